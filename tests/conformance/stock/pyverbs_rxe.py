#!/usr/bin/env python3
# Owns running rdma-core's own tests, all of them, on a soft-RoCE device. They were written by those
# who made the verbs, for adapters and for the kernel's rxe: what they hold for granted, no test of
# ours would think of asking. Each module is a run of its own, so that one that hangs or crashes
# costs only itself.
"""usage: pyverbs_rxe.py WEFT [--write DOCUMENT] [MODULE...]

Runs the tests that Debian ships with rdma-core (python3-pyverbs). They look for a network interface
of the device to learn its address; there is none, so that a copy of them is told. Prints a table of
what passed, and why what was skipped was; --write puts it into a document. Exit code 1 if a test
failed; 77 where they are not installed."""

import collections
import dataclasses
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"
TEMPLATE = "base.py.in"  # of base.py, which has the host's address
PATIENCE = 300  # seconds for one module
BEGIN, END = "<!-- pyverbs_rxe.py writes from here -->", "<!-- to here -->"
# Of unittest's verbose output: why tests were skipped, how many ran, and the last line of all, with
# what became of them. That is not counted from the tests' own lines: their processes write between
# the words of these.
SKIPPED = re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.M)
RAN = re.compile(r"^Ran (\d+) tests? in", re.M)
VERDICT = re.compile(r"(?:OK|FAILED)(?: \(([a-z ]+=\d+(?:, [a-z ]+=\d+)*)\))?$", re.M)

ASKS_IP = re.compile(r"\['ip', '-j', 'addr', 'show', [\w.]+\]")
ANSWER_OF_IP = '[{"addr_info": [{"local": "HOST_ADDRESS"}], "address": "02:00:00:00:00:01"}]'


def copied(folder):
    """A copy of the tests that can be run; the address in it is filled in by run()."""
    shutil.copytree(TESTS, folder / "tests")
    for packed in (folder / "tests").glob("*.gz"):
        # Debian packs the larger files of its documentation, which these are counted among.
        with gzip.open(packed) as text:
            packed.with_suffix("").write_bytes(text.read())
        packed.unlink()
    base = folder / "tests" / "base.py"
    text = base.read_text()
    base.chmod(0o644)
    # The only changes: where the base class gives up for want of an address it gets one; and where
    # it asks `ip` about the interface, of which the kernel does not know (Debian 13's does), it is
    # told.
    gives_up = "if not self.ip_addr:"
    if gives_up not in text:
        sys.exit(f"{TESTS}/base.py has no line '{gives_up}': without an address from here, the "
                 "tests would skip themselves. Find where this release gives up, and change it.")
    text = text.replace(gives_up, 'if setattr(self, "ip_addr", "HOST_ADDRESS"):')
    (folder / "tests" / TEMPLATE).write_text(ASKS_IP.sub(repr(["echo", ANSWER_OF_IP]), text))
    return folder / "tests"


# At the end of a program, with Python 3.13, pyverbs closes devices before what was made with them,
# and uses memory that was given back. So such a program ends without that, once it has its result.
RUN_TESTS = """
import os, runpy, sys
try:
    runpy.run_path(os.path.abspath("run_tests.py"), run_name="__main__")
except SystemExit as end:
    if sys.version_info < (3, 13):
        raise
    sys.stdout.flush()
    os._exit(int(end.code or 0))
"""


def run(weft, tests, module):
    """Exit code and output; 124: it ran too long. weft puts the host's address for {h1.ip}, another
    one for each module: networks take the addresses that are free."""
    script = (f"cd {tests} && sed s/HOST_ADDRESS/{{h1.ip}}/ {TEMPLATE} >base.py && "
              f"exec {PYTHON} -B -c \"$RUN_TESTS\" -v {module}")
    try:
        done = subprocess.run(
            [weft, "run", "-q", "--no-prefix", "--device", "rxe", "--", "sh", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=PATIENCE, check=False, env={**os.environ, "RUN_TESTS": RUN_TESTS})
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"").decode(errors="replace")


@dataclasses.dataclass
class Outcome:
    """Of a module's tests, or of several modules'."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    why: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.why.update(other.why)
        return self


def outcome(code, text):
    """By exit code and output. A module that crashed, ran too long or ran nothing has failed."""
    why = collections.Counter(reason for _, reason in SKIPPED.findall(text))
    ran, verdicts = RAN.findall(text), VERDICT.findall(text)
    if not ran or not verdicts:
        return Outcome(failed=1, why=why)
    of = {name.strip(): int(number)
          for name, number in re.findall(r"([a-z ]+)=(\d+)", verdicts[-1])}
    failed = sum(of.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
    skipped = of.get("skipped", 0)
    # A test and its tearDown() can fail both, and where setUpClass() fails no test of it ran.
    passed = max(0, int(ran[-1]) - failed - skipped)
    return Outcome(passed, failed if failed or code == 0 else 1, skipped, why)


def family(module):
    """The row of the table: all tests for another vendor's devices, which skip themselves, share
    one."""
    name = module.removeprefix("test_")
    for vendor in ("mlx5", "efa", "cuda"):
        if name.startswith(vendor):
            return vendor + "*"
    return name


def table(rows, total):
    lines = ["| module (`test_...`) | passed | skipped | why |", "|---|---|---|---|"]
    for name, row in rows.items():
        why = "; ".join(f"{reason} ({count})" if len(row.why) > 1 else reason
                        for reason, count in row.why.most_common())
        lines.append(f"| `{name}` | {row.passed} | {row.skipped} | {why.replace('|', '/')} |")
    lines.append(f"| all | {total.passed} | {total.skipped} | |")
    return "\n".join(lines)


def main(weft, *words):
    words = list(words)
    document = None
    if "--write" in words[:-1]:
        at = words.index("--write")
        document = Path(words[at + 1])
        del words[at:at + 2]
    if not TESTS.is_dir() or subprocess.run([PYTHON, "-c", "import pyverbs.device"], check=False,
                                            stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: this machine has no python3-pyverbs, or not rdma-core's tests")
        return 77
    rows, total = {}, Outcome()
    with tempfile.TemporaryDirectory(prefix="weft-pyverbs-") as folder:
        tests = copied(Path(folder))
        modules = words or sorted(path.stem for path in tests.glob("test_*.py"))
        for module in modules:
            code, text = run(weft, tests, module)
            got = outcome(code, text)
            for row in (rows.setdefault(family(module), Outcome()), total):
                row += got
            if got.failed:
                # What went wrong first is at the beginning, what unittest makes of it at the end.
                said = text if len(text) < 6000 else f"{text[:4000]}\n[...]\n{text[-2000:]}"
                print(f"FAILED: {module} ended with {code}:\n{said}", flush=True)
    print(table(rows, total))
    if document:
        text = document.read_text()
        head, rest = text.split(BEGIN)
        tail = rest.split(END, 1)[1]
        document.write_text(f"{head}{BEGIN}\n\n{table(rows, total)}\n\n{END}{tail}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
