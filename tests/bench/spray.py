#!/usr/bin/env python3
# Owns showing what sprayed paths buy: one job of stock programs over RC (rxe) and over SRD (efa),
# through the same network with the same trouble.
"""usage: tests/bench/spray.py [--build build/release] [--rounds 3] [--seed 1] [--write FOLDER]

Four hosts under one leaf send to four under another, through four spines, with perftest's
ib_send_bw (8 KiB messages, 184 MB a pair). RC keeps each connection on one path and sends again
from the first lost packet on; SRD spreads packets over all paths and sends again what is lost. All
links are as fast as a NIC, so the network could carry everything at once.
Prints a table of medians; --write puts it between its marks in FOLDER/rxe.md, and a picture into
FOLDER/spray.svg. Exit code 77 without perftest."""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = 4
MESSAGE = 8192
MESSAGES = 22500  # of a pair
GBPS = 0.5  # slow enough for most machines: the network decides
NETWORK = f"""name: spray
topology: {{generator: clos, tiers: 2, hosts: {2 * PAIRS}, hosts_per_pod: {2 * PAIRS},
  tor_down: {PAIRS}, tor_up: 4, agg_down: 2, rate: {int(GBPS * 1000)}Mbps, delay: 1us, mtu: 9200}}
"""
# What befalls the network. The programs come up in the first second or two.
DEATH = "link: tor*-spine0, down: true, at: 3s"
LOSS = "link: tor*-spine*, loss: 0.001"
TROUBLES = {
    "nothing": [],
    "one packet in 1000 is lost": [LOSS],
    "a spine is dead for 0.3 s": [DEATH + ", lasts: 300ms"],
    "both": [LOSS, DEATH + ", lasts: 300ms"],
    "a spine dies for good": [DEATH],
}
KINDS = {"rxe": ("RC over RoCEv2, one path", ["-x", "1", "-F"]),
         "efa": ("SRD, sprayed", ["-x", "0", "-c", "SRD"])}
BEGIN, END = "<!-- tests/bench/spray.py writes from here -->", "<!-- to here -->"


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.weft = os.path.join(options.build, "emu/cli/weft")
        self.network = os.path.join(folder, "spray.yaml")
        Path(self.network).write_text(NETWORK, encoding="utf-8")
        # Each job has ports of its own, from a start that differs between processes.
        self.port = 15000 + os.getpid() % 10000

    def run(self, kind, troubles, seed, programs):
        words = [self.weft, "run", "-q", "--device", kind, "--topology", self.network, "--seed",
                 str(seed), "--grace", "5"]
        for trouble in troubles:
            words += ["--fault", trouble]
        words.append("--")
        for i, program in enumerate(programs):
            words += ([":"] if i else []) + program
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, check=False).stdout

    def job(self, kind, troubles, seed):
        """Seconds of each pair's transfer; none for one that failed."""
        self.port += PAIRS
        servers, clients = [], []
        for pair in range(PAIRS):
            words = ["ib_send_bw", *KINDS[kind][1], "-d", "{h1.dev}", "-s", str(MESSAGE),
                     "-n", str(MESSAGES), "-p", str(self.port + pair)]
            servers.append(words)
            clients.append([*words, "{h%d.ip}" % (pair + 1)])
        text = self.run(kind, troubles, seed, servers + clients)
        times = []
        for pair in range(PAIRS):
            # perftest's line of a result: size, count, peak and average, in MiB/s.
            found = re.search(rf"^\[h{PAIRS + pair + 1}\] +{MESSAGE} +{MESSAGES} +\S+ +(\S+)", text,
                              re.M)
            times.append(MESSAGE * MESSAGES / (float(found[1]) * 2 ** 20) if found else None)
        return times


def summary(rounds):
    """Of several rounds of a job: the median of the slowest pair's time, and how many pairs
    failed."""
    # A job is done when its last transfer is. Rounds in which a connection broke have no time at
    # all.
    slowest = [max(times) for times in rounds if None not in times]
    failed = sum(times.count(None) for times in rounds)
    return (statistics.median(slowest) if slowest else None), failed


def cell(result):
    seconds, failed = result
    text = f"{seconds:.2f} s" if seconds is not None else "never done"
    return text + (f" ({failed} connections broke)" if failed else "")


def table(rows, rounds):
    ideal = MESSAGE * MESSAGES * 8 / (GBPS * 1e9)
    lines = [f"| trouble | {' | '.join(name for name, _ in KINDS.values())} |", "|---|---|---|"]
    for trouble, results in rows.items():
        lines.append(f"| {trouble} | " + " | ".join(cell(results[kind]) for kind in KINDS) + " |")
    lines.append(f"\nMedians of {rounds} rounds, {PAIRS} pairs of {MESSAGE * MESSAGES // 10**6} MB "
                 f"each; at the speed of the NICs it takes {ideal:.2f} s.")
    return "\n".join(lines)


def picture(rows):
    """Bars of the job's time, one of each kind for each trouble."""
    most = max(result[0] for results in rows.values() for result in results.values()
               if result[0] is not None)
    out, y = [], 40
    colours = {"rxe": "#c0504d", "efa": "#4f81bd"}
    for i, (kind, (name, _)) in enumerate(KINDS.items()):
        out.append(f'<rect x="{230 + i * 220}" y="10" width="12" height="12" '
                   f'fill="{colours[kind]}"/><text x="{248 + i * 220}" y="21">{name}</text>')
    for trouble, results in rows.items():
        out.append(f'<text x="220" y="{y + 20}" text-anchor="end">{trouble}</text>')
        for kind in KINDS:
            seconds, _ = results[kind]
            if seconds is None:
                out.append(f'<text x="230" y="{y + 11}">never done: connections broke</text>')
            else:
                width = 400 * seconds / most
                out.append(f'<rect x="230" y="{y}" width="{width:.0f}" height="12" '
                           f'fill="{colours[kind]}"/><text x="{236 + width:.0f}" '
                           f'y="{y + 11}">{seconds:.2f} s</text>')
            y += 15
        y += 10
    body = "\n".join(out)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y + 10}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
            f'fill="white"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", metavar="FOLDER")
    options = parser.parse_args()
    if not shutil.which("ib_send_bw"):
        print("skipped: needs perftest")
        return 77
    rows = {}
    with tempfile.TemporaryDirectory(prefix="weft-spray-") as folder:
        bench = Bench(options, folder)
        for trouble, faults in TROUBLES.items():
            rows[trouble] = {}
            for kind in KINDS:
                rounds = [bench.job(kind, faults, options.seed + i) for i in range(options.rounds)]
                rows[trouble][kind] = summary(rounds)
                print(f"{trouble}, {kind}: {cell(rows[trouble][kind])}   "
                      + "  ".join(" ".join(f"{t:.2f}" if t else "broke" for t in times)
                                  for times in rounds), file=sys.stderr, flush=True)
    print(table(rows, options.rounds))
    if options.write:
        document = Path(options.write) / "rxe.md"
        text = document.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        tail = rest.split(END, 1)[1]
        block = table(rows, options.rounds) + "\n\n![The time of the job](spray.svg)"
        document.write_text(f"{head}{BEGIN}\n\n{block}\n\n{END}{tail}", encoding="utf-8")
        (Path(options.write) / "spray.svg").write_text(picture(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
