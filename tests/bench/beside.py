# Owns measuring programs beside what else could do their job: turns, medians, ratios, and the table
# of them in a document. nccl_numbers.py and gloo_numbers.py stand on it.
"""Rows of a table, each a ratio of two that took turns, so that a machine which changes its speed
changes both; times are medians over the rounds."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Of a row; a line that is cut off, or has not what it should have, is one like any other.
FAILURES = (RuntimeError, subprocess.SubprocessError, ValueError, LookupError)
# For each round, in case a program hangs: 64 MiB take a minute and a half where others compile.
LONGEST_ROUND_S = 300


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.weft = os.path.join(options.build, "emu/cli/weft")
        self.folder = folder

    def run(self, words):
        """What a command of weft prints. Nothing of it stays, whatever ends this script."""
        # Variables of the caller would change what is measured.
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("WEFT_", "NCCL_"))}
        with subprocess.Popen([self.weft, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, env=clean) as program:
            try:
                limit = LONGEST_ROUND_S * self.options.rounds
                out, complaint = program.communicate(timeout=limit)
            except BaseException:
                # Asked to end, it ends its ranks and its weftd, and removes their files.
                program.terminate()
                try:
                    program.wait(timeout=10)
                finally:
                    program.kill()
                raise
        if program.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: code {program.returncode}\n{complaint}")
        return out

    def lines(self, words):
        found = [json.loads(line) for line in self.run([*words, "--json"]).splitlines()
                 if line.startswith("{")]
        if not found:
            raise RuntimeError(f"{' '.join(words)}: printed no result")
        for line in found:
            if line.get("wrong") or line.get("status", "ok") != "ok":
                raise RuntimeError(f"{' '.join(words)}: has failed: {line}")
        return found

    def medians(self, measures):
        """Of several functions that take turns, and in every second round backwards."""
        samples = [[] for _ in measures]
        for turn in range(self.options.rounds):
            order = list(range(len(measures)))
            for i in order if turn % 2 == 0 else reversed(order):
                samples[i].append(measures[i]())
        return [statistics.median(each) for each in samples]


def loopback_bytes():
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines()
                if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def crowd(ranks):
    """Ranks spin: with more of them than cores, they mostly wait for each other's time slices."""
    cores = len(os.sched_getaffinity(0))
    return f", {ranks} ranks on {cores} cores" if ranks > cores else ""


def line_of(name, ours, ratios, asked):
    """A line of the table; it says in words what is slower, and what was asked for in vain."""
    said = ", ".join(f"{peer}: {ratio:.2f}" + (" (below 1: slower)" if ratio < 1 else "")
                     for peer, ratio in ratios.items())
    goals = ", ".join(f">= {least} x {peer}" + (": missed" if ratios[peer] < least else "")
                      for peer, least in asked.items())
    return f"| {name} | {ours} | {said} | {goals} |"


def build_type(build):
    """As CMake knows it: a table of a build without optimization would mislead."""
    try:
        cache = Path(build, "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    return next((line.split("=", 1)[1] or "plain" for line in cache.splitlines()
                 if line.startswith("CMAKE_BUILD_TYPE:")), "unknown")


def machine(build):
    model = next((line.split(":", 1)[1].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown processor")
    return (f"{len(os.sched_getaffinity(0))} cores ({model}), "
            f"load {os.getloadavg()[0]:.1f} at the start; build type {build_type(build)}")


def check_places(parser, options, marks):
    """Where it is measured, and where the table goes, before there is one."""
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if not os.access(os.path.join(options.build, "emu/cli/weft"), os.X_OK):
        parser.error(f"there is no emu/cli/weft in {options.build}: build it, or name another "
                     "folder with --build")
    if options.write:
        try:
            text = Path(options.write).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            parser.error(f"--write: {error}")
        begin, end = marks
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            parser.error(f"--write: {options.write} has not each of the marks once, in this order: "
                         f"{begin} {end}")


def parsed(description, rows, marks):
    """The options, after everything that would make an hour of measuring worthless."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("what", nargs="*")
    options = parser.parse_args()
    check_places(parser, options, marks)
    if options.write and options.what:
        parser.error("--write puts down all rows, measured at one time: leave out "
                     + " ".join(options.what))
    for each in options.what:
        if not each or not any(name.startswith(each) for name in rows):
            parser.error(f"no row begins with '{each}'; there are: " + "; ".join(rows))
    return options


def put_between(file, marks, text):
    path = Path(file)
    begin, end = marks
    before, rest = path.read_text(encoding="utf-8").split(begin)
    path.write_text(before + begin + f"\n{text}\n" + end + rest.split(end)[1], encoding="utf-8")


def main(description, script, make_bench, check_yardsticks, cases):
    """`cases(bench)`: name: what is asked for (how many times as fast as each peer), how it is
    measured. The table goes between two marks, of which the first one names the script."""
    marks = f"<!-- {script} writes from here -->", "<!-- to here -->"
    options = parsed(description, list(cases(None)), marks)
    # Ended politely, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    state, failed = machine(options.build), 0
    table = ["| what | ours | so many times as fast as | asked |", "|---|---|---|---|"]
    print(state, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = make_bench(options, folder)
        try:
            check_yardsticks(bench)
        except FAILURES as error:
            print(f"the yardsticks: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        for name, (asked, measure) in cases(bench).items():
            if options.what and not any(name.startswith(each) for each in options.what):
                continue
            try:
                ours, ratios = measure()
            except FAILURES as error:
                failed += 1
                print(f"{name}: failed: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            table.append(line_of(name, ours, ratios, asked))
            print(table[-1], flush=True)
    if options.write and failed:
        print(f"{options.write} is left as it was: {failed} rows have failed", file=sys.stderr)
    elif options.write:
        put_between(options.write, marks,
                    f"{state}; medians of {options.rounds} rounds.\n\n" + "\n".join(table))
    return 1 if failed else 0
