#!/usr/bin/env python3
# Owns measuring Gloo over weft beside Gloo over TCP.
"""Measures one Gloo program twice: over Gloo's own TCP, and with libgloo-weft.so loaded before it.

usage: tests/bench/gloo_numbers.py [--build build/release] [--rounds 5] [--write FILE] [WHAT ...]

Both go over this machine's loopback or over weftd's rings, and take turns; times are medians over
the rounds. WHAT: beginnings of rows. --write puts the table of all rows between its marks in FILE
(docs/gloo.md), unless one has failed. Needs the targets weft, weft_gloo_bench and
weft_gloo_preload."""
import json
import os
import shutil
import sys
import tempfile

import beside

# The rings of weftd; UDP, which goes between machines; Gloo's own TCP.
RINGS, UDP, TCP = "rings", "UDP", "TCP"


class Bench(beside.Bench):
    def rank(self, carrier, rank, words):
        """The command of a rank."""
        preload = os.path.abspath(os.path.join(self.options.build,
                                               "integration/gloo/libgloo-weft.so"))
        program = os.path.join(self.options.build, "tests/bench/weft_gloo_bench")
        variables = {RINGS: [f"LD_PRELOAD={preload}"], TCP: [],
                     UDP: [f"LD_PRELOAD={preload}", f"WEFT_NCCL_ADDRESS=127.51.8.{rank + 1}"]}
        return ["env", *variables[carrier], program, *words]

    def us(self, carrier, operation, ranks, size, iterations):
        """Microseconds of an iteration."""
        meeting = tempfile.mkdtemp(dir=self.folder)
        words = []
        for rank in range(ranks):
            words += ["--" if rank == 0 else ":",
                      *self.rank(carrier, rank, [meeting, str(rank), str(ranks), operation,
                                                 str(size), str(iterations // 5), str(iterations)])]
        before = beside.loopback_bytes()
        said = self.run(["run", "-q", "--device", "none", *words])
        passed = beside.loopback_bytes() - before
        shutil.rmtree(meeting)
        found = json.loads(said[said.index("{"):said.index("}") + 1])
        if not found["device"].startswith("tcp" if carrier == TCP else "weft") or found["wrong"]:
            raise RuntimeError(f"{operation} over {carrier}: {found}")
        if carrier != RINGS and passed < iterations * size:
            raise RuntimeError(f"{operation} over {carrier}: only {passed} bytes have passed the "
                               "loopback interface")
        return found["us"]


def row(bench, carrier, operation, ranks, size, iterations):
    ours, tcp = bench.medians([lambda: bench.us(carrier, operation, ranks, size, iterations),
                               lambda: bench.us(TCP, operation, ranks, size, iterations)])
    return f"{ours:.1f} us{beside.crowd(ranks)}", {"tcp": tcp / ours}


# name: what is asked for (nothing), how it is measured
def cases(bench):
    def measured(*what):
        return {}, lambda: row(bench, *what)

    return {
        "barrier, N=2": measured(RINGS, "barrier", 2, 0, 5000),
        "all-reduce 8 B, N=2": measured(RINGS, "all_reduce", 2, 8, 5000),
        "all-reduce 64 KiB, N=2": measured(RINGS, "all_reduce", 2, 64 << 10, 2000),
        "all-reduce 1 MiB, N=2": measured(RINGS, "all_reduce", 2, 1 << 20, 200),
        "all-reduce 64 MiB, N=2": measured(RINGS, "all_reduce", 2, 64 << 20, 5),
        "all-to-all 1 MiB, N=2": measured(RINGS, "all_to_all", 2, 1 << 20, 200),
        "all-reduce 1 MiB, N=4": measured(RINGS, "all_reduce", 4, 1 << 20, 200),
        "over UDP: all-reduce 8 B, N=2": measured(UDP, "all_reduce", 2, 8, 5000),
        "over UDP: all-reduce 1 MiB, N=2": measured(UDP, "all_reduce", 2, 1 << 20, 200),
    }


if __name__ == "__main__":
    sys.exit(beside.main(__doc__, "tests/bench/gloo_numbers.py", Bench, lambda bench: None, cases))
