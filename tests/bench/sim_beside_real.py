#!/usr/bin/env python3
# Owns measuring one all-reduce twice: in `weft sim`, and by real ranks on the same network in real
# time.
"""Runs the same ring all-reduce in virtual time (`weft sim`) and in real time (`weft nccl-perf`).

usage: tests/bench/sim_beside_real.py [--build build/release] [--rounds 3] [--ranks 2,4,8]
         [--sizes 1M,16M] [--seconds 1.2] [--within 0.1] [--write FILE]

Both get one topology, a leaf-spine with links of 100 Gb/s. In real time it is slowed down until
the processor does not matter: an iteration takes --seconds at least, and the network is 1000
times slower for each rank at least. All times are the network's. What the simulator is to send is
read from a trace of the harness: its messages, in its order, each as soon as what it passes on
has come. A row fails whose times differ by more than --within, or whose real time changes by more
than 5 % when the network is slowed down half as much. --write puts the table between its marks in
FILE (docs/collectives.md). Needs the target weft."""
import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import beside

# Every rank has a leaf of its own, so the whole ring crosses the spines; it takes the first ranks.
HOSTS = 8
NETWORK = f"""name: leaf-spine
topology: {{generator: clos, tiers: 2, hosts: {HOSTS}, hosts_per_pod: {HOSTS}, tor_down: 1,
  tor_up: 4, agg_down: {HOSTS}, rate: 100Gbps, delay: 500ns, mtu: 9200}}
"""
# A frame of weftd's: 4096 bytes, the transport's header, and Ethernet, IPv6 and UDP around it. An
# acknowledgement has a shorter header.
PAYLOAD, DATA_HEADER, ACK_HEADER, ENVELOPE = 4096, 64, 56, 62
FRAMES = f"""mtu: {PAYLOAD + DATA_HEADER + ENVELOPE}
data_overhead: {DATA_HEADER + ENVELOPE}
control_size: {ACK_HEADER + ENVELOPE}
"""
# Only the simulator rations senders by itself; processes do not.
PLAIN = "transport: {receiver_credits: false}\n"
# The transport's timers go by the machine's clock. In a network that is slowed down its next packet
# never comes within the 2 us that an acknowledgement waits for it, so each has one of its own.
EACH_ACKNOWLEDGED = "transport: {receiver_credits: false, ack_every: 1}\n"
CHANNELS, SLICES = 2, 2
WARM_UP, ITERATIONS = 1, 2
# Of each rank: they all share the processor, and each carries so many bytes in a second.
LEAST_DILATION = 1000
MARKS = ("<!-- tests/bench/sim_beside_real.py writes from here -->",
         "<!-- the table of both times ends here -->")


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


# --- What the harness sends

def messages_in(trace, ranks):
    """[rank][channel]: bytes of the messages of one iteration, in order; from a trace of two."""
    sent = [{} for _ in range(ranks)]
    for bar in sorted((bar for bar in trace if bar.get("name", "").startswith("isend ")),
                      key=lambda bar: bar["ts"]):
        sent[bar["pid"]].setdefault(bar["tid"], []).append(bar["args"]["bytes"])
    iteration = []
    for rank, channels in enumerate(sent):
        found = []
        for sizes in channels.values():
            half = len(sizes) // 2
            if sizes[:half] != sizes[half:]:
                raise RuntimeError(f"rank {rank}: two iterations, and different messages")
            found.append(sizes[:half])
        iteration.append(found)
    steps = 2 * (ranks - 1) * SLICES
    for rank, channels in enumerate(iteration):
        lengths = [len(sizes) for sizes in channels]
        if not lengths or lengths != [len(sizes) for sizes in iteration[0]] or any(
                length == 0 or length % steps for length in lengths):
            raise RuntimeError(f"rank {rank} sends {lengths} messages: that is no ring of {ranks}")
    return iteration


# --- The same for the simulator

class Matrix:
    """A file of flows and of triggers by which the end of one begins others (htsim's format)."""

    def __init__(self, nodes):
        self.nodes, self.flows, self.triggers = nodes, [], []

    def trigger(self, count=1):
        """A new one, which its `count`-th activation sets off."""
        number = len(self.triggers) + 1
        kind = f"barrier count {count}" if count > 1 else "oneshot"
        self.triggers.append(f"trigger id {number} {kind}")
        return number

    def flow(self, source, destination, size, begins, fires):
        """A message; `begins`: the trigger that starts it, `fires`: the one that its arrival
        activates. Either may be None. A message without bytes still is a packet."""
        line = f"{source}->{destination} id {len(self.flows) + 1} "
        line += f"trigger {begins}" if begins else "start 0"
        line += f" size {max(size, 1)}"
        self.flows.append(line + (f" recv_done_trigger {fires}" if fires else ""))
        return len(self.flows) - 1

    def text(self):
        head = [f"Nodes {self.nodes}", f"Connections {len(self.flows)}",
                f"Triggers {len(self.triggers)}"]
        return "\n".join([*head, *self.flows, *self.triggers]) + "\n"


class Schedule:
    """Iterations of a ring, as the harness runs them.

    A rank passes a slice on when it has come. A round through the buffer begins when the rank has
    all of the round before, in its channel; an iteration, when it has all of the one before, in all
    channels. The first measured one begins when all ranks have got so far: there is a barrier."""

    def __init__(self, messages, nodes, warm_up=WARM_UP, iterations=ITERATIONS):
        self.messages, self.ranks = messages, len(messages)
        self.channels = len(messages[0])
        self.round = 2 * (self.ranks - 1) * SLICES  # messages
        self.matrix = Matrix(nodes)
        self.measured = []  # by iteration: [(sender, flow)]
        begins = [None] * self.ranks
        for iteration in range(warm_up + iterations):
            last = iteration == warm_up + iterations - 1
            if last:
                over = [None] * self.ranks
            elif iteration == warm_up - 1:
                over = [self.matrix.trigger(self.ranks * self.channels)] * self.ranks
            else:
                over = [self.matrix.trigger(self.channels) for _ in range(self.ranks)]
            flows = [flow for channel in range(self.channels)
                     for flow in self.channel_of(channel, begins, over)]
            if iteration >= warm_up:
                self.measured.append(flows)
            begins = over

    def channel_of(self, channel, begins, over):
        flows = []
        length = len(self.messages[0][channel])
        starts = list(begins)  # by rank: of its round
        for base in range(0, length, self.round):
            is_last = base + self.round == length
            ends = over if is_last else [self.matrix.trigger() for _ in range(self.ranks)]
            passes_on = [starts] * SLICES  # by slice, then by rank: what lets it send
            for step in range(0, self.round, SLICES):
                for piece in range(SLICES):
                    came = [None] * self.ranks
                    if step + SLICES < self.round:
                        came = [self.matrix.trigger() for _ in range(self.ranks)]
                    elif piece == SLICES - 1:
                        came = ends
                    for rank in range(self.ranks):
                        to = (rank + 1) % self.ranks
                        size = self.messages[rank][channel][base + step + piece]
                        flows.append((rank, self.matrix.flow(rank, to, size,
                                                             passes_on[piece][rank], came[to])))
                    passes_on = [came if i == piece else each for i, each in enumerate(passes_on)]
            starts = ends
        return flows

    def time_us(self, rows):
        """Of an iteration, the average of the ranks; `rows`: what `weft sim --flows` says. As in
        the harness, a rank is done when it knows that all that it has sent has arrived."""
        if any(row["state"] != "done" for row in rows):
            raise RuntimeError("weft sim: not all messages have arrived")
        begin = min(rows[flow]["start_us"] for _, flow in self.measured[0])
        ends = [0.0] * self.ranks
        for flows in self.measured:
            for rank, flow in flows:
                ends[rank] = max(ends[rank], rows[flow]["start_us"] + rows[flow]["fct_us"])
        return (statistics.mean(ends) - begin) / len(self.measured)


# --- Measuring

class Bench(beside.Bench):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.network = os.path.join(folder, "leaf-spine.yml")
        Path(self.network).write_text(NETWORK, encoding="utf-8")

    def nccl(self, ranks, size, *words):
        line = self.lines(["nccl-perf", "all_reduce", "-N", str(ranks), "-b", str(size), "-e",
                           str(size), "--channels", str(CHANNELS), "-c", "0", *words])[0]
        if line["in_place"] or not line["time_us"] > 0:
            raise RuntimeError(f"{ranks} ranks, {size} bytes: no time out of place: {line}")
        return line["time_us"]

    def real_us(self, ranks, size, dilation):
        return self.nccl(ranks, size, "--topology", self.network, "--dilation", str(dilation), "-w",
                         str(WARM_UP), "-n", str(ITERATIONS)) / dilation

    def schedule(self, ranks, size):
        """The harness's, over the plugin that needs no network: it sends the same over any."""
        trace = Path(self.folder, "trace.json")
        trace.unlink(missing_ok=True)
        self.nccl(ranks, size, "--plugin", "memory", "-w", "0", "-n", "1", "--trace", str(trace))
        messages = messages_in(json.loads(trace.read_text(encoding="utf-8")), ranks)
        return Schedule(messages, HOSTS)

    def virtual_us(self, schedule, transport):
        Path(self.folder, "ring.cm").write_text(schedule.matrix.text(), encoding="utf-8")
        scenario, flows = Path(self.folder, "ring.yml"), Path(self.folder, "flows.json")
        scenario.write_text(NETWORK + FRAMES + transport +
                            "traffic: {kind: matrix, file: ring.cm}\n", encoding="utf-8")
        self.run(["sim", str(scenario), "--json", "--flows", str(flows)])
        rows = [json.loads(line) for line in flows.read_text(encoding="utf-8").splitlines()]
        return schedule.time_us(rows)


def floor_us(ranks, size):
    """Each rank sends and receives so many bytes over a link of 100 Gb/s, with their headers."""
    return 2 * (ranks - 1) / ranks * size * (1 + (DATA_HEADER + ENVELOPE) / PAYLOAD) / 12500


def row_of(bench, ranks, size_text):
    """(a line of the table, what is wrong with it)"""
    options, size = bench.options, bytes_of(size_text)
    least = floor_us(ranks, size)
    dilation = max(LEAST_DILATION * ranks, round(options.seconds * 1e6 / least, -2))
    schedule = bench.schedule(ranks, size)
    plain, each = (bench.virtual_us(schedule, transport)
                   for transport in (PLAIN, EACH_ACKNOWLEDGED))
    real = [bench.real_us(ranks, size, dilation) for _ in range(options.rounds)]
    median, half = statistics.median(real), bench.real_us(ranks, size, dilation / 2)
    wrong = []
    if max(abs(median / virtual - 1) for virtual in (plain, each)) > options.within:
        wrong.append(f"more than {options.within:.0%} apart")
    if abs(half / median - 1) > 0.05:
        wrong.append("the time depends on the dilation")
    return (f"| {ranks} | {size_text} | {least:.1f} | {plain:.1f} | {each:.1f} | {median:.1f} "
            f"({min(real):.1f} to {max(real):.1f}) | {dilation:g} | {half:.1f} | "
            f"{median / plain:.3f} | {median / each:.3f} |", "; ".join(wrong))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--sizes", default="1M,16M")
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--within", type=float, default=0.1)
    parser.add_argument("--write", metavar="FILE")
    options = parser.parse_args()
    beside.check_places(parser, options, MARKS)
    try:
        options.ranks = [int(ranks) for ranks in options.ranks.split(",")]
        options.sizes = options.sizes.split(",")
        sizes = [bytes_of(size) for size in options.sizes]
    except (ValueError, IndexError):
        parser.error("--ranks: numbers with commas; --sizes: such as 1M,16M")
    if not all(2 <= ranks <= HOSTS for ranks in options.ranks) or min(sizes) < 1:
        parser.error(f"--ranks: 2 to {HOSTS}; --sizes: at least 1")
    return options


def main():
    options = parsed()
    state, failed = beside.machine(options.build), False
    table = ["| ranks | bytes | at least | sim | sim, each packet acknowledged | real | dilated by "
             "| real, by half | real / sim | real / sim, each |", "|---" * 10 + "|"]
    print(state, *table, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for ranks in options.ranks:
            for size in options.sizes:
                line, wrong = row_of(bench, ranks, size)
                table.append(line)
                print(line, flush=True)
                if wrong:
                    failed = True
                    print(f"{ranks} ranks, {size}: {wrong}", file=sys.stderr)
    if options.write and failed:
        print(f"{options.write} is left as it was: rows have failed", file=sys.stderr)
    elif options.write:
        beside.put_between(options.write, MARKS,
                           f"{state}; microseconds of the network; medians of {options.rounds} "
                           "rounds (smallest to largest).\n\n" + "\n".join(table))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
