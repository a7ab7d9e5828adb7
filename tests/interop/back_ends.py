#!/usr/bin/env python3
# Owns the comparison of our soft-RoCE device with Linux's: the same programs on each, alone, and a
# document of what differs.
#
# It runs twice: outside, where it makes the back ends and reads what comes, and inside each of
# them, where it runs the programs. The two talk by lines that begin with MARK, because a guest has
# no other way back than its output.
"""usage: back_ends.py WEFT PROGRAMS [--kernels 6.1,6.12] [--raw DIR] [--write docs/back-ends.md]

PROGRAMS is the folder with weft_verbs_refusals, weft_verbs_data and weft_verbs_peers. On each back
end runs `back_ends.py inside FOLDER PROGRAMS`, by `weft run --device rxe` and by `weft softroce vm
--root /`. With --raw what each has said is kept in DIR, and a back end that has said all there is
not run again. Needs python3-pyverbs, with rdma-core's tests, perftest, QEMU and a guest's image.
"""

import argparse
import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path("/usr/share/doc/rdma-core/tests")
OTHERS = re.compile(r"^test_(mlx5|efa|cuda)")  # of other devices
PATIENCE = 900
# Behind it stands JSON, wherever in a line it begins: a kernel may print into the same line.
MARK = "@@ "
CHAPTERS = ["states", "objects", "requests", "keys", "windows", "events"]
# Pairs on one device. PORT is a port's number, and IP the device's address.
PAIRS = (
    [f"ibv_{kind}_pingpong -g 1 -p PORT -c -n 50 -s {size}" for kind in ("rc", "uc", "srq", "ud")
     for size in (64, 4000 if kind != "ud" else 1000)] +
    [f"ibv_rc_pingpong -g {gid} -p PORT -c -n 50" for gid in (0, 2)] +
    ["ibv_rc_pingpong -g 1 -p PORT -c -e -n 50", "ibv_rc_pingpong -g 1 -p PORT -c -N -n 50"] +
    [f"ib_{verb} -d rxe_0 -x 1 -p PORT -F -u 17 {more}" for verb, more in (
        ("send_bw", "-n 50"), ("send_bw", "-n 50 -b"), ("send_lat", "-n 50"),
        ("send_lat", "-n 50 -e"), ("write_bw", "-n 50 -q 4"), ("write_lat", "-n 50"),
        ("read_bw", "-n 50"), ("read_lat", "-n 50"), ("atomic_bw", "-n 50"),
        ("atomic_lat", "-n 50 -A CMP_AND_SWAP"), ("send_bw", "-n 50 --use-srq -q 2"))] +
    [f"ib_{verb} -d rxe_0 -x 1 -p PORT -F {more}" for verb, more in (
        ("send_bw", "-c UC -n 50"), ("write_lat", "-c UC -n 50"), ("send_lat", "-c UD -n 50"))])


# --- On a back end

def say(**what):
    print(MARK + json.dumps(what), flush=True)


def address():
    """IPv4, as the GID table says it: the suite would look for an interface of the device."""
    for path in sorted(Path("/sys/class/infiniband/rxe_0/ports/1/gids").iterdir(),
                       key=lambda path: int(path.name)):
        gid = path.read_text().strip()
        if gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            octets = bytes.fromhex(gid[30:].replace(":", ""))
            return ".".join(map(str, octets))
    raise RuntimeError("the device has no GID of an IPv4 address")


def run_rdma_core(folder):
    """rdma-core's own tests. As shipped, those of rdma_cm look for the address at an interface in
    /sys/class/infiniband/DEVICE/device/net, which soft-RoCE has not; here they are told."""
    import unittest  # pylint: disable=import-outside-toplevel
    sys.path.insert(0, str(folder))
    sys.path.insert(0, str(folder / "tests"))
    sys.argv[1:] = []
    from args_parser import parser  # pylint: disable=import-outside-toplevel,import-error
    parser.parse_args()
    import tests  # pylint: disable=import-outside-toplevel,import-error
    from tests import base  # pylint: disable=import-outside-toplevel,import-error
    own = address()
    base.RDMATestCase._get_ip_mac = (  # pylint: disable=protected-access
        lambda self, dev, port, idx: self.args.append([dev, port, idx, own, None]))

    # Says each test's end at once: a guest that dies later has said what was before.
    class Told(unittest.TestResult):
        def tell(self, test, outcome, why=""):
            name = re.sub(r"^tests\.", "", test.id())
            say(test=name, outcome=outcome, why=str(why).strip().splitlines()[-1] if why else "")

        def addSuccess(self, test):  # pylint: disable=invalid-name
            self.tell(test, "passed")

        def addSkip(self, test, reason):  # pylint: disable=invalid-name
            self.tell(test, "skipped", reason)

        def addFailure(self, test, err):  # pylint: disable=invalid-name
            self.tell(test, "failed", err[1])

        def addError(self, test, err):  # pylint: disable=invalid-name
            self.tell(test, "failed", err[1])

    start = time.monotonic()
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(Told())
    say(seconds=time.monotonic() - start)


def run_refusals(programs):
    for chapter in CHAPTERS:
        done = subprocess.run([f"{programs}/weft_verbs_refusals", chapter], text=True, check=False,
                              capture_output=True, timeout=PATIENCE)
        say(chapter=chapter, code=done.returncode, said=(done.stdout + done.stderr).splitlines())


def run_pair(number, server, client):
    """A server in the background until it ends by itself; ten seconds to begin to listen."""
    port = str(21000 + number)
    own = address()
    fill = [words.replace("PORT", port).replace("IP", own) for words in (server, client)]
    with tempfile.TemporaryFile("w+") as log:
        serving = subprocess.Popen(fill[0], shell=True, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 30
        # As /proc/net/tcp shows a port; 0A is LISTEN.
        sign = f":{int(port):04X} "
        while time.monotonic() < end and serving.poll() is None and not any(
                sign in line and " 0A " in line for name in ("tcp", "tcp6")
                for line in Path(f"/proc/net/{name}").read_text().splitlines()):
            time.sleep(0.05)
        try:
            done = subprocess.run(fill[1], shell=True, text=True, capture_output=True, timeout=120,
                                  check=False)
            code, said = done.returncode, done.stdout + done.stderr
            serving.wait(60)
        except subprocess.TimeoutExpired:
            code, said = -1, "no end"
            serving.kill()
        log.seek(0)
        good = code == 0 and serving.returncode == 0
        # The name of the job in the document: the command without what differs from run to run.
        words = re.sub(r" -?p?\s?PORT| IP| 127.0.0.1|WEFT_\w+=\d+ |\S+/", "", client)
        say(pair=words, good=good,
            said="" if good else (said + log.read())[-400:])


def inside(folder, programs):
    # A client of these programs is the same command with the server's address behind it.
    pairs = [(words, words + " IP") for words in PAIRS]
    for name in ("weft_verbs_data", "weft_verbs_peers"):
        program = f"WEFT_VERBS_TIMEOUT=18 WEFT_VERBS_LONGEST=65537 {programs}/{name}"
        pairs.append((f"{program} PORT", f"{program} PORT 127.0.0.1"))
    for number, (server, client) in enumerate(pairs):
        run_pair(number, server, client)
    run_refusals(programs)
    run_rdma_core(folder)


# --- Outside

def prepare(folder):
    """Debian ships the tests compressed."""
    (folder / "tests").mkdir()
    for path in TESTS.iterdir():
        name = path.name.removesuffix(".gz")
        if path.is_file() and not OTHERS.search(name):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.name.endswith(".gz") else data
            (folder / "tests" / name).write_bytes(data)


# What one back end has said; heard from a file if there is a whole one, and else it is run.
class Outcome:
    """Of one back end."""

    def __init__(self, name, words, raw):
        self.name = name
        self.tests, self.chapters, self.pairs, self.seconds = {}, {}, {}, None
        path = raw / (name.replace(" ", "-") + ".txt")
        if path.exists():
            self.hear_all(path)
        if self.seconds is None:
            with open(path, "w", encoding="utf-8") as log:
                code = subprocess.run(words, stdout=log, check=False, timeout=2 * PATIENCE, env={
                    **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}).returncode
            self.hear_all(path)
        if self.seconds is None:
            sys.exit(f"{name}: ended with {code}\n{path.read_text(errors='replace')[-3000:]}")

    def hear_all(self, path):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if MARK in line:
                self.hear(json.loads(line[line.index(MARK) + len(MARK):]))

    def hear(self, what):
        if "test" in what:
            self.tests[what["test"]] = (what["outcome"], what["why"])
        elif "chapter" in what:
            self.chapters[what["chapter"]] = what
        elif "pair" in what:
            self.pairs[what["pair"]] = (what["good"], what["said"])
        else:
            self.seconds = what["seconds"]

    def counts(self, module=""):
        outcomes = collections.Counter(outcome for name, (outcome, _) in self.tests.items()
                                       if name.startswith(module))
        return "/".join(str(outcomes[one]) for one in ("passed", "skipped", "failed"))


def by_module(outcomes):
    lines = ["| module | " + " | ".join(one.name for one in outcomes) + " |",
             "|---|" + "---|" * len(outcomes)]
    modules = sorted({name.split(".")[0] for one in outcomes for name in one.tests})
    for module in modules:
        lines.append(f"| `{module}` | " + " | ".join(one.counts(module + ".")
                                                     for one in outcomes) + " |")
    lines.append("| all | " + " | ".join(f"**{one.counts()}**" for one in outcomes) + " |")
    return lines


def cell(result):
    outcome, why = result
    return outcome if outcome == "passed" or not why else f"{outcome}: {why.replace('|', '/')}"


def different_tests(outcomes):
    names = sorted({name for one in outcomes for name in one.tests})
    lines = []
    for name in names:
        results = [one.tests.get(name, ("not there", "")) for one in outcomes]
        if len({outcome for outcome, _ in results}) > 1:
            lines.append(f"| `{name}` | " + " | ".join(cell(one) for one in results) + " |")
    if not lines:
        return ["Each test ends in the same way on all of them."]
    return ["| test | " + " | ".join(one.name for one in outcomes) + " |",
            "|---|" + "---|" * len(outcomes), *lines]


def refusals_that_differ(outcomes):
    """The program expects what ours does: so what it finds wrong is a difference."""
    where = collections.defaultdict(list)
    for one in outcomes:
        for chapter in CHAPTERS:
            for line in one.chapters[chapter]["said"]:
                if line.startswith("WRONG") or one.chapters[chapter]["code"] not in (0, 1):
                    where[chapter, line.strip()].append(one.name)
    lines = ["| chapter | what differs from ours | where |", "|---|---|---|"]
    for (chapter, line), names in where.items():
        said, places = line.replace("|", "/"), ", ".join(dict.fromkeys(names))
        lines.append(f"| {chapter} | {said} | {places} |")
    return lines if where else ["None."]


def pairs_table(outcomes):
    bad = sorted({pair for one in outcomes for pair, (good, _) in one.pairs.items() if not good})
    total = len(outcomes[0].pairs)
    lines = ["| | " + " | ".join(one.name for one in outcomes) + " |",
             "|---|" + "---|" * len(outcomes),
             f"| of {total} jobs, well | " + " | ".join(
                 str(sum(good for good, _ in one.pairs.values())) for one in outcomes) + " |"]
    for pair in bad:
        ends = [one.pairs.get(pair, (False, "not run")) for one in outcomes]
        lines.append(f"| `{pair}` | " + " | ".join(
            "well" if good else (said.strip().splitlines() or ["fails"])[-1].replace("|", "/")
            for good, said in ends) + " |")
    return lines


DOCUMENT = """# The same programs on our soft-RoCE and on Linux's

What each back end does with the same programs, alone; how they speak with each other is in
[interop.md](interop.md). Written by

```
python3 tests/interop/back_ends.py {weft} {programs} --kernels {kernels} --write docs/back-ends.md
```

which runs one command on each of them, by `weft run --device rxe -- COMMAND` and by
`weft softroce vm --root / --kernel K -- COMMAND`.

## rdma-core's own tests (pyverbs)

Passed/skipped/failed, without those of other devices. The tests of rdma_cm are told the device's
address, which they would look for at an interface in `device/net`. Seconds: {seconds}.

{modules}

Tests that end differently:

{tests}

## Stock programs and ours, in pairs on one device

Pingpongs of rdma-core and perftest over RC, UC and UD, `weft_verbs_data`, `weft_verbs_peers`.

{pairs}

## Refusals

`weft_verbs_refusals` ([roce.md](roce.md)) expects what our device does: errnos, and statuses of
completions, as numbers.

{refusals}
"""


def document(outcomes, options):
    return DOCUMENT.format(
        weft=options.weft, programs=options.programs, kernels=options.kernels,
        seconds=", ".join(f"{one.name} {one.seconds:.0f}" for one in outcomes),
        modules="\n".join(by_module(outcomes)), tests="\n".join(different_tests(outcomes)),
        pairs="\n".join(pairs_table(outcomes)),
        refusals="\n".join(refusals_that_differ(outcomes)))


def main():
    if sys.argv[1:2] == ["inside"]:
        inside(Path(sys.argv[2]), sys.argv[3])
        return 0
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("programs")
    parser.add_argument("--kernels", default="6.1,6.12")
    parser.add_argument("--write", help="the document")
    parser.add_argument("--raw", help="a folder")
    options = parser.parse_args()
    if shutil.which("qemu-system-x86_64") is None or not TESTS.is_dir():
        print("needs qemu-system-x86_64, and rdma-core's tests: ./weft setup conformance softroce")
        return 77
    weft, programs = os.path.abspath(options.weft), os.path.abspath(options.programs)
    with tempfile.TemporaryDirectory(prefix="weft-back-ends-") as folder:
        os.chmod(folder, 0o755)
        prepare(Path(folder))
        raw = Path(options.raw or folder)
        raw.mkdir(parents=True, exist_ok=True)
        job = ["/usr/bin/python3", os.path.abspath(__file__), "inside", folder, programs]
        outcomes = [Outcome("ours", [weft, "run", "--no-prefix", "--device", "rxe", "--", *job],
                            raw)]
        for kernel in filter(None, options.kernels.split(",")):
            outcomes.append(Outcome(f"Linux {kernel}", [
                weft, "softroce", "vm", "--kernel", kernel, "--root", "/", "--memory", "1024", "--",
                *job], raw))
    for one in outcomes:
        print(f"{one.name}: rdma-core {one.counts()} passed/skipped/failed in {one.seconds:.0f} s; "
              f"pairs {sum(good for good, _ in one.pairs.values())} of {len(one.pairs)}")
    text = document(outcomes, options)
    if options.write:
        Path(options.write).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
