#!/usr/bin/env python3
# Owns the report of a test run: what ctest found for one preset, what was skipped, and why.
"""usage: tests/run.py PRESET [CTEST OPTION...]   (`./weft test` builds first, then calls this)"""

import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FINISHED = re.compile(r"^\s*(\d+)/(\d+) Test\s+#\d+: (\S+) [ .]*(.*?) +[\d.]+ sec")
GTEST_SKIP = re.compile(r": Skipped\n(.*?)\s*\n\[====", re.DOTALL)  # from --gtest_brief=1
GTEST_ALL_SKIPPED = re.compile(  # the end of all that it prints
    r"\[  PASSED  \] 0 tests\.\n\[  SKIPPED \] \d+ tests?[^\n]*\Z")
LINES_OF_A_FAILURE = 80


def run_ctest(preset, options, junit):
    """Shows how far ctest is; returns its exit code, all it said, and its verdict on each test."""
    command = ["ctest", "--preset", preset, "--parallel", str(os.cpu_count()),
               "--output-junit", str(junit), "--no-tests=error", *options]
    terminal = sys.stdout.isatty()
    said, verdicts, last_shown = [], {}, time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ctest:
        for line in ctest.stdout:
            said.append(line)
            done = FINISHED.match(line)
            if not done:
                continue
            verdicts[done[3]] = done[4].replace("***", " ").strip(" :")
            if terminal:
                print(f"\r\033[K[{done[1]}/{done[2]}] {done[3]:.70}", end="", flush=True)
            elif time.monotonic() - last_shown > 10:
                last_shown = time.monotonic()
                print(f"[{done[1]}/{done[2]}] {done[3]}", flush=True)
    if terminal:
        print("\r\033[K", end="")
    return ctest.returncode, "".join(said), verdicts


def name_of(case):
    return case.get("name").split("  #")[0]  # GoogleTest adds what it knows of the parameter


def skip_reason(case):
    """Why a test skipped itself, or None. Its exit code has to say so, whatever it has printed; one
    that could not even be started has failed. CMake makes ctest look for words in what GoogleTest
    prints, and then it does not tell the exit code: there the last line has to be the summary,
    after which sanitizers would report."""
    if case.get("status") == "disabled":
        return "disabled"
    skipped = case.find("skipped")
    output = case.findtext("system-out", "").strip()
    message = "" if skipped is None else skipped.get("message", "")
    if not message.startswith("SKIP_RETURN_CODE=") and not (
            message.startswith("SKIP_REGULAR_EXPRESSION") and GTEST_ALL_SKIPPED.search(output)):
        return None
    gtest = GTEST_SKIP.search(output)
    return (gtest[1].strip() if gtest else output.split("\n")[-1]) or "no reason given"


def report(cases, verdicts):
    """Prints failures with output, then skips by reason; returns (passed, failed, skipped)."""
    passed, failures, skips = 0, [], {}
    for case in cases:
        reason = skip_reason(case)
        if reason is not None:
            skips.setdefault(reason, []).append(name_of(case))
        elif case.get("status") == "run":
            passed += 1
        else:
            failures.append(case)
    for case in failures:
        name = name_of(case)
        output = case.findtext("system-out", "").strip().splitlines()
        print(f"\nFAILED {name}: {verdicts.get(name, 'not run')}")
        if len(output) > LINES_OF_A_FAILURE:
            print(f"  ... the last {LINES_OF_A_FAILURE} of {len(output)} lines:")
        print("".join(f"  {line}\n" for line in output[-LINES_OF_A_FAILURE:]), end="")
    for reason, names in sorted(skips.items()):
        print(f"\nSKIPPED {len(names)}, because: {reason}")
        print("".join(f"  {name}\n" for name in names), end="")
    return passed, len(failures), sum(map(len, skips.values()))


def main(preset, *options):
    junit = ROOT / "build" / preset / "tests.xml"
    junit.unlink(missing_ok=True)
    start = time.monotonic()
    code, said, verdicts = run_ctest(preset, options, junit)
    if not verdicts:  # there is no such test, or ctest was asked only to list them
        print(said, end="")
        if code:
            print("0 passed, 1 failed, 0 skipped")
        return code
    passed, failed, skipped = report(xml.parse(junit).getroot().iter("testcase"), verdicts)
    seconds = time.monotonic() - start
    print(f"\npreset {preset}, {seconds:.1f} s; details in {junit.relative_to(ROOT)}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
