#!/usr/bin/env python3
# Owns measuring stock programs on emulated soft-RoCE devices beside the same over SRD, TCP and
# shared memory.
"""Measures stock programs on emulated soft-RoCE devices.

usage: tests/bench/rxe_numbers.py [--build build/release] [--rounds 5] [--pin] [--json] [WHAT ...]

Every figure is the median over rounds, each in processes of its own. The yardstick, ib_send_lat -c
SRD on an EFA device, is measured in the same run, first and last: if the two differ, something else
used the machine. Needs perftest, ucx-utils, and the targets weft, weftd and weft_preload."""
import random
import re
import sys

import efa_numbers

MIB = 1.048576e-3  # perftest's MB/s in GB/s


class Bench(efa_numbers.Bench):
    def rxe(self, program, size, count, column, unit, scale=1.0, arguments=(), more=()):
        """A pair of perftest; the column of its line for that size, counted with the prefix."""
        words = [program, "-d", "{h1.dev}", "-x", "1", "-F", "-s", str(size), "-n", str(count),
                 *more]
        text = self.pair(words, ["--device", "rxe", *arguments])
        for line in text.splitlines():
            fields = line.split()
            if len(fields) > column and fields[0] == "[h2]" and fields[1] == str(size):
                return {unit: float(fields[column]) * scale}
        raise RuntimeError(text)

    def ucx(self, transports, arguments):
        """Half a round trip of a tagged message of 8 bytes: what ucx_perftest calls latency."""
        words = ["env", "UCX_TLS=" + transports, "UCX_WARN_UNUSED_ENV_VARS=n", "ucx_perftest",
                 "-t", "tag_lat", "-s", "8", "-n", "100000", "-w", "2000"]
        port = ["-p", str(random.randint(15000, 30000))]
        host = "{h1.ip}" if arguments else "127.0.0.1"
        text = self.run([self.weft, "run", "-q", *(arguments or ["--device", "none"]), "--",
                         *self.pinned(0, words + port), ":",
                         *self.pinned(1, ["sh", "-c", "sleep 0.3; exec \"$@\"", "sh", *words, host,
                                          *port])])
        found = re.search(r"^\[h2\] *Final:\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", text, re.M)
        if not found:
            raise RuntimeError(text)
        return {"us": float(found[4])}


# name: what is asked for, how it is measured
def cases(bench):
    ucx_rxe = ["--device", "rxe"]
    return {
        "RC send_lat 64": ("<= 0.8 us", lambda: bench.rxe("ib_send_lat", 64, 20000, 5, "us")),
        "RC read_lat 64": ("<= 0.8 us", lambda: bench.rxe("ib_read_lat", 64, 20000, 5, "us")),
        "RC write_lat 8": ("<= 1.5 us", lambda: bench.rxe("ib_write_lat", 8, 20000, 5, "us")),
        "RC send_bw 64": (">= 3 M/s", lambda: bench.rxe("ib_send_bw", 64, 1000000, 5, "M/s")),
        "RC write_bw 65536": (">= 10 GB/s", lambda: bench.rxe("ib_write_bw", 65536, 20000, 4,
                                                              "GB/s", MIB)),
        "RC read_bw 65536": (">= 10 GB/s", lambda: bench.rxe("ib_read_bw", 65536, 20000, 4, "GB/s",
                                                             MIB)),
        "RC send_lat 64, leaf-spine": (
            "<= 3 us", lambda: bench.rxe("ib_send_lat", 64, 10000, 5, "us",
                                         arguments=bench.through("50ns"))),
        "RC write_bw 65536, leaf-spine": (
            ">= 6 GB/s", lambda: bench.rxe("ib_write_bw", 65536, 10000, 4, "GB/s", MIB,
                                           arguments=bench.through("50ns"))),
        "RC send_lat 64, events": ("<= 5 us", lambda: bench.rxe("ib_send_lat", 64, 10000, 5, "us",
                                                                more=["-e"])),
        "UC send_lat 64": ("", lambda: bench.rxe("ib_send_lat", 64, 20000, 5, "us",
                                                 more=["-c", "UC"])),
        "UD send_lat 64": ("", lambda: bench.rxe("ib_send_lat", 64, 20000, 5, "us",
                                                 more=["-c", "UD"])),
        "UCX tag_lat 8, rc_verbs": ("<= 2 us", lambda: bench.ucx("rc_verbs,ud_verbs:aux,self",
                                                                 ucx_rxe)),
        "UCX tag_lat 8, ud_verbs": ("", lambda: bench.ucx("ud_verbs,self", ucx_rxe)),
        "UCX tag_lat 8, tcp": ("", lambda: bench.ucx("tcp,self", [])),
        "UCX tag_lat 8, posix": ("", lambda: bench.ucx("posix,self", [])),
    }


def main():
    bench = Bench(efa_numbers.options_of(__doc__))
    yardstick = ("SRD send_lat 64 (yardstick)", "",
                 lambda: bench.perftest("ib_send_lat", 64, 20000, 5, "us"))
    return 1 if efa_numbers.measure_all(bench, cases(bench), yardstick) else 0


if __name__ == "__main__":
    sys.exit(main())
