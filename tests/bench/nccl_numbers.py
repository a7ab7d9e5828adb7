#!/usr/bin/env python3
# Owns measuring the NCCL plugin beside its yardsticks: TCP, shared memory, and itself without
# trouble.
"""Measures the NCCL plugin beside what else could do the job, in the same run.

usage: tests/bench/nccl_numbers.py [--build build/release] [--rounds 5] [--write FILE] [WHAT ...]

Every row is a ratio of two that took turns, so that a machine which changes its speed changes both;
times are medians over the rounds. WHAT: beginnings of rows. --write puts the table of all rows
between its marks in FILE (docs/collectives.md), unless one has failed. Needs the target weft."""
import json
import os
import statistics
import sys
from pathlib import Path

import beside
from beside import FAILURES, crowd

EP_RANKS = 2

# Four leaves with a host each, and four spines: every ring crosses the core. So slow that the two
# cores of a laptop are not what is measured: at a dilation of 100 they carry less than a
# tenth of a link.
DILATION = 2000
LINK_GBYTES = 12.5
SPINES = 4
# Of a run there: iterations before it is measured, and that are measured. Three are checked, and
# all is done out of place and in place.
WARM_UP, ITERATIONS, CHECKED = 4, 3, 3
WARM_UP_SHARE = WARM_UP / (2 * (WARM_UP + ITERATIONS + CHECKED))
LEAF_SPINE = """name: leaf-spine
topology: {generator: clos, tiers: 2, hosts: 4, hosts_per_pod: 4, tor_down: 1, tor_up: 4,
  agg_down: 4, rate: 100Gbps, delay: 500ns, mtu: 9200}
"""
LOSS = "link: 'h*->*', loss: 0.01"
# Changes nothing, but makes the network a modelled one.
NO_LOSS = "link: 'h*->*', rate_factor: 1"


class Bench(beside.Bench):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.network = os.path.join(folder, "leaf-spine.yml")
        Path(self.network).write_text(LEAF_SPINE, encoding="utf-8")

    def nccl(self, *words):
        """The line of the first placement: out of place."""
        line = self.lines(["nccl-perf", *words])[0]
        if line["in_place"] or not line["time_us"] > 0:
            raise RuntimeError(f"{' '.join(words)}: no time out of place: {line}")
        return line

    def compare(self, *words):
        """{plugin: us}, medians of rounds in which all four take turns."""
        found = self.lines(["nccl-perf", *words, "--compare", "--rounds",
                            str(self.options.rounds)])
        times = found[0]["time_us"]
        if found[0]["in_place"] or not all(us > 0 for us in times.values()):
            raise RuntimeError(f"{' '.join(words)}: no times out of place: {found[0]}")
        return times


# Buffers are new to a process: the first times through them it waits for pages, which a job that
# lives longer than a second does not notice. And so many iterations that one lost time slice of a
# processor does not decide.
WARM = ["-w", "200", "-n", "1000"]
# Of large ones every iteration goes through all of the buffers.
WARM_LARGE = ["-w", "5", "-n", "10"]


def check_yardsticks(bench):
    """That each is the plugin it is called by, and that TCP's bytes go through TCP."""
    size, iterations, ranks = 1 << 20, 20, 2
    for name, plugin in (("weft", "weft"), ("tcp", "weft-tcp"), ("memory", "weft-memory")):
        before = beside.loopback_bytes()
        line = bench.nccl("sendrecv", "--plugin", name, "-N", str(ranks), "-b", str(size), "-e",
                          str(size), "-n", str(iterations))
        if line["plugin"] != plugin:
            raise RuntimeError(f"--plugin {name} is {line['plugin']}, not {plugin}")
        passed = beside.loopback_bytes() - before
        if name == "tcp" and passed < ranks * iterations * size:
            raise RuntimeError(f"tcp: only {passed} bytes have passed the loopback interface")


def compared_with(bench, peers, *words):
    """A row: our time, and how many times faster than each peer; below 1: slower."""
    times = bench.compare(*words)
    ranks = int(words[words.index("-N") + 1]) if "-N" in words else 2
    ours = times["weft"]
    return f"{ours:.1f} us{crowd(ranks)}", {peer: times[peer] / ours for peer in peers}


def scaling(bench):
    """Bytes that all ranks together receive in a second: 8 ranks against 2."""
    size = 8 << 20

    def total(ranks):
        def measure():
            us = bench.nccl("all_reduce", "-N", str(ranks), "-b", str(size), "-e", str(size),
                            *WARM_LARGE)["time_us"]
            return 2 * (ranks - 1) * size / us / 1000  # GB/s
        return measure

    two, eight = bench.medians([total(2), total(8)])
    return f"{eight:.1f} GB/s{crowd(8)}", {"N=2": eight / two}


class Network:
    """A modelled network of its own for ranks of nccl-perf, which can be asked what befell it."""
    made = 0

    def __init__(self, bench, *words, faults=()):
        self.bench, self.faults, self.words = bench, faults, words
        Network.made += 1
        self.name = f"nccl-numbers-{os.getpid()}-{Network.made}"

    def __enter__(self):
        try:
            self.bench.run(["up", self.name, "--device", "none", *self.words])
            # Before any rank is there, so that none gets a direct ring past the model.
            for fault in self.faults:
                self.bench.run(["fault", self.name, fault])
            self.socket = os.path.join(self.status()["directory"], "attach.sock")
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            self.bench.run(["down", self.name])
        except FAILURES:
            if kind is None:  # else what went wrong before is to be told, and may be SystemExit
                raise

    def status(self):
        return json.loads(self.bench.run(["status", self.name, "--json"]))

    def fabric(self):
        """What the model counted; all frames of the ranks, or the row would lie."""
        status = self.status()
        fabric = status["fabric"]
        if not fabric or fabric["injected"] == 0 or status["direct_pairs"] != 0:
            raise RuntimeError(f"{self.name}: frames did not go through the modelled network")
        return fabric

    def nccl(self, *words):
        # The last word on where ranks attach; the network that nccl-perf makes stays idle.
        return self.bench.nccl(*words, "--env", f"WEFT_SOCKET={self.socket}")


def lossy(bench):
    """Both through the same model of a network: one as it is, one that loses one frame of 100."""
    lost = []

    def busbw(fault):
        with Network(bench, "--hosts", "2", faults=[fault]) as network:
            line = network.nccl("all_reduce", "-b", "16M", "-e", "16M", *WARM_LARGE)
            fabric = network.fabric()
        share = fabric["dropped"]["loss"] / fabric["injected"]
        if not (0.005 < share < 0.02 if fault == LOSS else share == 0):
            raise RuntimeError(f"{fault}: {share:.2%} of the frames were lost")
        if fault == LOSS:
            lost.append(share)
        return line["busbw"]

    good, bad = bench.medians([lambda: busbw(NO_LOSS), lambda: busbw(LOSS)])
    return (f"{bad:.2f} GB/s ({statistics.median(lost):.2%} of the frames lost)",
            {"no loss": bad / good})


def core_network(bench, dilation, faults=()):
    """(GB/s in the network's own time, what the network counted) of an all-reduce of four."""
    size, ranks = 4 << 20, 4
    with Network(bench, "--topology", bench.network, "--dilation", str(dilation),
                 faults=faults) as network:
        line = network.nccl("all_reduce", "-N", str(ranks), "-b", str(size), "-e", str(size),
                            "-n", str(ITERATIONS), "-w", str(WARM_UP))
        fabric = network.fabric()
    # Not from busbw, which is rounded to what a real network needs.
    return 2 * (ranks - 1) / ranks * size / (line["time_us"] / dilation) / 1000, fabric


def healthy(bench):
    """Also half as slow: if that changes the result, it is this machine that was measured."""
    busbw, half = bench.medians([lambda: core_network(bench, DILATION)[0],
                                 lambda: core_network(bench, DILATION / 2)[0]])
    said = (f"{busbw:.2f} GB/s in the network's time, dilated by {DILATION}; "
            f"{half:.2f} by {DILATION // 2}")
    if abs(half / busbw - 1) > 0.05:
        raise RuntimeError(f"the result depends on the dilation: {said}")
    return said, {"a link": busbw / LINK_GBYTES}


def dead_spine(bench):
    """The spine dies in the warm-up, and nobody tells the transport."""
    # A millisecond of the network after the fault was asked for. Ranks need less to begin: a second
    # or two of this machine.
    fault = ["link: '*-spine0', down: true, at: 1ms"]
    deaths = []

    def without_spine():
        busbw, fabric = core_network(bench, DILATION, fault)
        deaths.append(death(fabric))
        return busbw

    good, bad = bench.medians([lambda: core_network(bench, DILATION)[0], without_spine])
    lost, before = (statistics.median(each) for each in zip(*deaths))
    return (f"{bad:.2f} GB/s; the spine died after {before:.0%} of all bytes (the warm-up: "
            f"{WARM_UP_SHARE:.0%}), and {lost:.0f} frames at it", {"healthy": bad / good})


def death(fabric):
    """(frames that the dead spine lost, share of all bytes that had passed before it died)."""
    lost = sum(link["drops"] for link in fabric["links"] if "spine0" in link["link"])
    passed = [sum(link["bytes"] for link in fabric["links"] if f"->spine{spine}" in link["link"])
              for spine in range(SPINES)]
    # Alive, it has an even share of the bytes.
    before = SPINES * passed[0] / sum(passed)
    if lost == 0 or not 0 < before < WARM_UP_SHARE:
        raise RuntimeError(f"the spine did not die in the warm-up, but after {before:.0%} of all "
                           f"bytes, and lost {lost} frames")
    return lost, before


def experts(bench):
    """Dispatch of 128 tokens of each rank, beside one stream of writes."""
    def perf():
        # Three rounds, of which the first is cold.
        return bench.lines(["perf", "--op", "write", "--size", "65536", "--rounds", "3"])[-1][
            "gbytes_per_s"]

    def dispatch():
        line = bench.lines(["ep-perf", "--real-time", "--ranks", str(EP_RANKS), "--rounds", "50",
                            "--order", "count"])[0]
        # Experts are chosen evenly, and tokens for a rank's own do not travel.
        return line["dispatch_gbytes_per_s"] * (EP_RANKS - 1) / EP_RANKS

    write, gbytes = bench.medians([perf, dispatch])
    return (f"{gbytes:.2f} GB/s from each rank to the other (write, one way: {write:.2f})",
            {"write": gbytes / write})


# name: what is asked for (how many times as fast as each peer), how it is measured
def cases(bench):
    def compared(peers, *words):
        return lambda: compared_with(bench, peers, *words)

    def one(size):
        return ["-b", size, "-e", size]

    return {
        "sendrecv 8 B": ({"tcp": 3.3}, compared(["tcp"], "sendrecv", *one("8"), *WARM)),
        "sendrecv 64 KiB": ({"tcp": 3}, compared(["tcp"], "sendrecv", *one("64K"), *WARM)),
        "cold: sendrecv 64 KiB, the first 20": (
            {}, compared(["tcp"], "sendrecv", *one("64K"), "-w", "0", "-n", "20")),
        "sendrecv 1 MiB": ({"tcp": 2}, compared(["tcp"], "sendrecv", *one("1M"), *WARM)),
        "all-reduce 8 B, N=2": ({"tcp": 2}, compared(["tcp"], "all_reduce", *one("8"), *WARM)),
        "all-reduce 64 MiB, N=2": (
            {"tcp": 1.5, "memory": 0.6},
            compared(["tcp", "memory"], "all_reduce", *one("64M"), "-n", "5", "-w", "1")),
        "all-reduce 8 MiB, N=4": (
            {"tcp": 1.2}, compared(["tcp"], "all_reduce", "-N", "4", *one("8M"), *WARM_LARGE)),
        "all-reduce 8 MiB, N=8": (
            {"tcp": 1.2}, compared(["tcp"], "all_reduce", "-N", "8", *one("8M"), *WARM_LARGE)),
        "N=8, bytes of all ranks": ({"N=2": 0.5}, lambda: scaling(bench)),
        "1 % loss, all-reduce 16 MiB": ({"no loss": 0.8}, lambda: lossy(bench)),
        "leaf-spine, 100 Gb/s, N=4": ({"a link": 0.85}, lambda: healthy(bench)),
        "one of four spines dies": ({"healthy": 0.7}, lambda: dead_spine(bench)),
        "ep-perf dispatch, EP2": ({"write": 0.5}, lambda: experts(bench)),
    }


if __name__ == "__main__":
    sys.exit(beside.main(__doc__, "tests/bench/nccl_numbers.py", Bench, check_yardsticks, cases))
