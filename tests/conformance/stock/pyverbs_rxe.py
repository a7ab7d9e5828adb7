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
# Of unittest's verbose output: the end of each line of a test that was skipped, and the end of all.
# Of tests that failed there may be no such line, where their processes wrote between its words.
SKIPPED = re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.M)
FAILURES = re.compile(r"^FAILED \(.*\)$", re.M)

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


def family(module):
    """The row of the table: all tests for another vendor's devices, which skip themselves, share
    one."""
    name = module.removeprefix("test_")
    for vendor in ("mlx5", "efa", "cuda"):
        if name.startswith(vendor):
            return vendor + "*"
    return name


def table(rows):
    lines = ["| module (`test_...`) | passed | skipped | why |", "|---|---|---|---|"]
    total = [0, 0]
    for name, (passed, skipped) in rows.items():
        why = "; ".join(f"{reason} ({count})" if len(skipped) > 1 else reason
                        for reason, count in skipped.most_common())
        lines.append(f"| `{name}` | {passed} | {sum(skipped.values())} | {why.replace('|', '/')} |")
        total[0] += passed
        total[1] += sum(skipped.values())
    lines.append(f"| all | {total[0]} | {total[1]} | |")
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
    rows, failed = {}, 0
    with tempfile.TemporaryDirectory(prefix="weft-pyverbs-") as folder:
        tests = copied(Path(folder))
        modules = words or sorted(path.stem for path in tests.glob("test_*.py"))
        for module in modules:
            code, text = run(weft, tests, module)
            passed, skipped = rows.setdefault(family(module), (0, collections.Counter()))
            reasons = [reason for _, reason in SKIPPED.findall(text)]
            skipped.update(reasons)
            ran = sum(int(count) for count in re.findall(r"^Ran (\d+) tests? in", text, re.M))
            end = FAILURES.findall(text)
            bad = sum(int(count) for count in re.findall(r"(?:failures|errors)=(\d+)", str(end)))
            passed += ran - bad - len(reasons)
            rows[family(module)] = (passed, skipped)
            # A module that crashed or ran too long counts no test: that is one failure.
            if bad or code != 0:
                failed += max(bad, 1)
                # What went wrong first is at the beginning, what unittest makes of it at the end.
                said = text if len(text) < 6000 else f"{text[:4000]}\n[...]\n{text[-2000:]}"
                print(f"FAILED: {module} ended with {code}:\n{said}", flush=True)
    print(table(rows))
    if document:
        text = document.read_text()
        head, rest = text.split(BEGIN)
        tail = rest.split(END, 1)[1]
        document.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}")
    print(f"{sum(row[0] for row in rows.values())} passed, {failed} failed, "
          f"{sum(sum(row[1].values()) for row in rows.values())} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
