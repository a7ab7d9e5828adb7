#!/usr/bin/env python3
# Owns the comparison of one path with many: the same job over soft RoCE and over SRD.
"""What the spray buys: the same job over rxe (RC: one path a connection, go-back-N) and over efa
(SRD: sprayed over all paths), through the same network, in the same troubles.

usage: tests/bench/spray.py [--build build/release] [--rounds 5] [--messages 20000] [--json]

The job is perftest's: ib_send_bw with messages of 4096 bytes between two leaves with eight spines,
1 Gb/s a link. Prints a table of medians, in MB/s of the job, as docs/roce.md has it. Runs that
failed count as 0. Needs perftest, and the targets weft, weftd and weft_preload.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

NETWORK = """name: leaf-spine
topology: {generator: clos, tiers: 2, hosts: 2, hosts_per_pod: 2, tor_down: 1, tor_up: 8,
  agg_down: 2, rate: 1Gbps, delay: 2us, mtu: 9200}
"""
LOSS = ["link: tor*->spine*, loss: 0.001"]
# One of eight spines is dead at any time, another one every 100 ms.
DYING = [f"switch: spine{i}, at: {100 * i}ms, lasts: 100ms, every: 800ms, times: 100000"
         for i in range(8)]
TROUBLES = [("none", []), ("0.1 % of the frames lost", LOSS),
            ("a dying spine, another every 100 ms", DYING), ("both", LOSS + DYING)]
DEVICES = [("rxe", ["-x", "1"]), ("efa", ["-c", "SRD", "-x", "0"])]


def job(options, network, device, words, faults, seed):
    """MB/s of the job; 0 if it failed."""
    words = ["ib_send_bw", "-F", *words, "-d", "{h1.dev}", "-s", "4096", "-n",
             str(options.messages), "-p", str(random.randint(15000, 30000))]
    command = [os.path.join(options.build, "emu/cli/weft"), "run", "-q", "--device", device,
               "--seed", str(seed), "--topology", network]
    for fault in faults:
        command += ["--fault", fault]
    done = subprocess.run([*command, "--", *words, ":", *words, "{h1.ip}"], capture_output=True,
                          text=True, timeout=300, check=False)
    row = re.search(r"^\[h2\]\s+4096\s+\d+\s+[\d.]+\s+([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or row is None:
        sys.stderr.write(done.stdout + done.stderr)
        return 0.0
    return float(row[1]) * 1.048576


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="weft-spray-") as scratch:
        network = os.path.join(scratch, "network.yaml")
        with open(network, "w", encoding="utf-8") as file:
            file.write(NETWORK)
        for trouble, faults in TROUBLES:
            for device, words in DEVICES:
                figures[trouble, device] = [
                    job(options, network, device, words, faults, seed)
                    for seed in range(1, options.rounds + 1)]
    if options.json:
        print(json.dumps([{"trouble": trouble, "device": device, "mbytes_per_s": all_of}
                          for (trouble, device), all_of in figures.items()]))
        return
    print("| trouble | rxe, one path | efa, sprayed |\n|---|---|---|")
    for trouble, _ in TROUBLES:
        cells = [f"{statistics.median(figures[trouble, device]):.0f} "
                 f"({min(figures[trouble, device]):.0f}-{max(figures[trouble, device]):.0f})"
                 for device, _ in DEVICES]
        print(f"| {trouble} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
