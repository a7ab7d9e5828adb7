#!/usr/bin/env python3
# Owns measuring stock programs on emulated EFA devices beside other ways to do the same.
"""Measures stock programs on emulated EFA devices, beside what the machine does without them.

usage: tests/bench/efa_numbers.py [--build build/release] [--rounds 5] [--pin] [--json] [WHAT ...]

Every figure is the median over rounds, each in processes of its own. The first and the last line
are the transport without verbs (`weft perf`, direct ring): if they differ, something else used the
machine. Needs perftest, libfabric, Open MPI, and the targets weft, weftd, weft_preload,
weft-fabric-bench and weft-collectives.
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

# A real network between the two hosts: two leaves and eight spines, with a delay for each link.
LEAF_SPINE = """name: leaf-spine
topology: {generator: clos, tiers: 2, hosts: 2, hosts_per_pod: 2, tor_down: 1, tor_up: 8,
  agg_down: 2, rate: 100Gbps, delay: %s, mtu: 9200}
"""


class Bench:
    def __init__(self, options):
        self.options = options
        self.weft = os.path.join(options.build, "emu/cli/weft")
        self.fabric = os.path.join(options.build, "integration/libfabric/weft-fabric-bench")
        self.collectives = os.path.join(options.build, "integration/mpi/weft-collectives")
        self.scratch = tempfile.mkdtemp(prefix="weft-numbers-")

    def run(self, words, environment=None, limit=60):
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit,
                              env={**os.environ, **(environment or {})}, check=False)
        return done.stdout + done.stderr

    def pinned(self, core, words):
        return (["taskset", "-c", str(core)] if self.options.pin else []) + words

    def pair(self, words, arguments=()):
        """One program on each of two hosts; the second is told where the first is."""
        # At random: the port of the last pair may not be free yet.
        port = ["-P" if words[0] == self.fabric else "-p", str(random.randint(15000, 30000))]
        server = self.pinned(0, words + port)
        client = self.pinned(1, words + port + ["{h1.ip}"])
        return self.run([self.weft, "run", "-q", *arguments, "--"] + server + [":"] + client)

    def perf(self):
        text = self.run([self.weft, "perf", "--op", "write", "--size", "65536", "--rounds", "1",
                         "--json"])
        return {"GB/s": json.loads(text.splitlines()[-1])["gbytes_per_s"]}

    def perftest(self, program, size, count, column, unit, scale=1.0, arguments=()):
        words = [program, "-c", "SRD", "-d", "{h1.dev}", "-x", "0", "-s", str(size),
                 "-n", str(count)]
        # h2 is the client.
        text = self.pair(words, arguments)
        for line in text.splitlines():
            fields = line.split()
            if len(fields) > column and fields[0] == "[h2]" and fields[1] == str(size):
                return {unit: float(fields[column]) * scale}
        raise RuntimeError(text)

    def through(self, delay):
        path = os.path.join(self.scratch, delay + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(LEAF_SPINE % delay)
        return ["--topology", path]

    def tagged(self, provider, size):
        words = [self.fabric, "-p", provider, "-s", str(size), "-r", "3", "-t", "0.1", "--json"]
        if provider == "efa":
            text = self.pair(words)
        else:
            words += ["-P", str(random.randint(15000, 30000))]
            with subprocess.Popen(self.pinned(0, words), stdout=subprocess.DEVNULL) as server:
                try:
                    text = self.run(self.pinned(1, words + ["127.0.0.1"]))
                    server.wait(timeout=10)
                finally:
                    server.kill()
        found = re.search(r"\{.*\}", text)
        if not found:
            raise RuntimeError(text)
        row = json.loads(found.group())
        return {"us": row["latency_us"], "GB/s": row["gbytes_per_s"],
                "M/s": row["msgs_per_s"] / 1e6}

    def pingpong(self, size, count):
        """The stock program; its port is one option at the server and another at the client."""
        words = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-S", str(size), "-I", str(count)]
        port = str(random.randint(15000, 30000))
        server = self.pinned(0, words + ["-B", port])
        client = self.pinned(1, words + ["-P", port, "{h1.ip}"])
        text = self.run([self.weft, "run", "-q", "--"] + server + [":"] + client)
        for line in text.splitlines():
            fields = line.split()
            if len(fields) > 7 and fields[0] == "[h2]" and fields[1] == str(size):
                return {"us": float(fields[7])}
        raise RuntimeError(text)

    def all_reduce(self, words, environment):
        mpirun = ["mpirun.openmpi", "--oversubscribe", "-n", "2", "--bind-to",
                  "core" if self.options.pin else "none"]
        mpirun += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        program = [self.collectives, "-c", "all_reduce", "-b", "1048576", "-e", "1048576",
                   "-n", "50", "--json"]
        # Without an environment for the provider it is plain TCP, which needs no weft.
        wrap = [self.weft, "run", "-q", "--no-prefix", "--"] if environment else []
        text = self.run(wrap + mpirun + words + program,
                        {**environment, "OMPI_MCA_orte_tmpdir_base": self.scratch})
        times = [json.loads(line)["best_us"] for line in text.splitlines() if line.startswith("{")]
        if not times:
            raise RuntimeError(text)
        return {"us": statistics.median(times)}


# name: what is asked for, how it is measured
def cases(bench):
    mib = 1.048576e-3
    efa = {"FI_PROVIDER": "efa"}
    ofi = ["--mca", "pml", "cm", "--mca", "mtl", "ofi"]
    tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
    found = {
        "send_lat 64": ("<= 1 us", lambda: bench.perftest("ib_send_lat", 64, 20000, 5, "us")),
        "send_lat 64, leaf-spine": (
            "<= 3 us", lambda: bench.perftest("ib_send_lat", 64, 10000, 5, "us",
                                              arguments=bench.through("50ns"))),
        "send_bw 8192": (
            ">= 6 GB/s", lambda: bench.perftest("ib_send_bw", 8192, 100000, 4, "GB/s", mib)),
        "send_bw 64": (">= 1 M/s", lambda: bench.perftest("ib_send_bw", 64, 1000000, 5, "M/s")),
        "read_bw 1048576": (
            ">= 6 GB/s", lambda: bench.perftest("ib_read_bw", 1048576, 3000, 4, "GB/s", mib,
                                                ["--device", "efa:read"])),
        "fi_pingpong 64": ("<= 2.5 us", lambda: bench.pingpong(64, 100000)),
        "all-reduce 1 MiB, mtl/ofi": ("<= ob1/tcp", lambda: bench.all_reduce(ofi, efa)),
        "all-reduce 1 MiB, ob1/tcp": ("", lambda: bench.all_reduce(tcp, {})),
    }
    sizes = (64, "<= 2.5 us, >= 1 M/s"), (65536, ">= 4 GB/s"), (1048576, ">= 4 GB/s")
    for provider in ["efa", "tcp;ofi_rxm", "udp;ofi_rxd"]:
        for size, asked in sizes:
            found["%s %d" % (provider, size)] = (
                asked if provider == "efa" else "",
                lambda provider=provider, size=size: bench.tagged(provider, size))
    return found


def report(options, name, asked, samples):
    medians = {unit: statistics.median(one[unit] for one in samples) for unit in samples[0]}
    if options.json:
        print(json.dumps({"efa_numbers": name, "asked": asked, "rounds": len(samples), **medians}),
              flush=True)
        return
    text = "  ".join("%9.3f %-5s" % (value, unit) for unit, value in medians.items())
    spread = "  ".join("%.2f..%.2f" % (min(one[unit] for one in samples),
                                       max(one[unit] for one in samples)) for unit in medians)
    print("%-28s%-50s%-22s%s" % (name, text, asked, spread), flush=True)


def options_of(description):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pin", action="store_true", help="each side on a core of its own")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("what", nargs="*", help="beginnings of names")
    return parser.parse_args()


def measure_all(bench, every, yardstick):
    """Reports those of `every` case that were asked for, and the yardstick before and after them.
    Returns how many failed: the others are still measured."""
    options = bench.options
    asked_for = [(name, *case) for name, case in every.items()
                 if not options.what or any(name.startswith(one) for one in options.what)]
    failed = 0
    try:
        for name, asked, measure in [yardstick, *asked_for, yardstick]:
            try:
                report(options, name, asked, [measure() for _ in range(options.rounds)])
            except (RuntimeError, subprocess.SubprocessError, OSError, KeyError, ValueError,
                    IndexError) as error:
                failed += 1
                print("%-28s%s" % (name, str(error).strip().splitlines()[-1:]), file=sys.stderr)
    finally:
        shutil.rmtree(bench.scratch)
    return failed


def main():
    bench = Bench(options_of(__doc__))
    failed = measure_all(bench, cases(bench), ("weft perf write 65536", "", bench.perf))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
