#!/usr/bin/env python3
# Owns the grid of weft nccl-perf: operations, algorithms, protocols, ranks and sizes under every
# kind of trouble. None of it may give a wrong element.
"""usage: nccl_grid.py WEFT

Without WEFT_LONG_TESTS=1 each way of moving data runs once, with a condition, a number of ranks and
sizes of its own; with it every combination runs. Exit code 1 names the runs that went wrong."""

import json
import os
import subprocess
import sys
import tempfile

RINGS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
PAIRS = ["sendrecv", "alltoall", "gather", "scatter", "hypercube"]
PROTOCOLS = ["simple", "ll", "ll128"]
WAYS = ([[op, "--proto", proto] for op in RINGS for proto in PROTOCOLS]
        + [["all_reduce", "--algo", "tree", "--proto", proto] for proto in PROTOCOLS]
        + [[op, "--algo", "pat"] for op in ("all_gather", "reduce_scatter")]
        + [[op] for op in PAIRS])
RANKS = [2, 3, 4, 5, 8]
# Nothing, one element, and around what a channel, a slot and a chunk of the small buffer hold.
ELEMENT = 4
BORDERS = [16 << 10, 64 << 10, 128 << 10, 512 << 10]
SIZES = ([["-b", "0", "-e", "8", "-i", "4"]]
         + [["-b", str(at - ELEMENT), "-e", str(at + ELEMENT), "-i", str(ELEMENT)]
            for at in BORDERS])
LARGE = ["-b", "64M", "-e", "64M", "-n", "1", "-w", "0"]
TOPOLOGY = """
name: grid
topology:
  {generator: leaf-spine, hosts: 8, hosts_per_leaf: 4, rate: 100Gbps, delay: 100ns}
"""
CONDITIONS = {
    "ideal": [],
    "reorder": ["--fault", "link: 'h*->*', reordering: 0.1, reorder_delay: 50us"],
    "loss": ["--fault", "link: 'h*->*', loss: 0.01"],
    "corrupted": ["--fault", "link: 'h*->*', corruption: 0.005"],
    "dying path": ["TOPOLOGY", "--fault", "link: 'tor0->spine0', down: true, at: 300ms"],
    "chaos": ["--chaos", "11"],
}
LIMIT_S = 600


def plan(everything):
    """Words of one run each."""
    runs = []
    for i, way in enumerate(WAYS):
        ranks = [n for n in RANKS if way[0] != "hypercube" or n & (n - 1) == 0]
        conditions = list(CONDITIONS.items())
        if everything:
            runs += [(name, [*way, "-N", str(n), *size, *words])
                     for name, words in conditions for n in ranks for size in [*SIZES, LARGE]]
        else:
            name, words = conditions[i % len(conditions)]
            number = str(ranks[i % len(ranks)])
            runs.append((name, [*way, "-N", number, *SIZES[i % len(SIZES)], *words]))
    return runs


def run(weft, words, topology):
    """Returns what is wrong with it; empty: nothing."""
    if "TOPOLOGY" in words:
        at = words.index("TOPOLOGY")
        words = [*words[:at], "--topology", topology, *words[at + 1:]]
    small = [] if "64M" in words else ["-n", "2", "--buffsize", "256K"]
    command = [weft, "nccl-perf", "--json", "--seed", "5", *small, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT_S} s"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = sum(line["wrong"] for line in lines)
    if done.returncode != 0 or wrong != 0 or not lines:
        said = done.stderr.strip()[:500]
        return f"code {done.returncode}, {wrong} wrong of {len(lines)} lines: {said}"
    return ""


def main(weft):
    everything = os.environ.get("WEFT_LONG_TESTS") == "1"
    runs = plan(everything)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        topology = os.path.join(folder, "grid.yml")
        with open(topology, "w", encoding="utf-8") as file:
            file.write(TOPOLOGY)
        for name, words in runs:
            if problem := run(weft, words, topology):
                failed += 1
                print(f"{name}: {' '.join(words)}: {problem}", flush=True)
    print(f"{len(runs)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
