#!/usr/bin/env python3
# Owns the house rules that no compiler checks: who may include whom, what protocol code may not
# touch, and the form of a file.
"""usage: tests/tidy.py [ROOT]   prints `file:line: rule: what to do`; exit code 1 if it did"""

import os
import re
import sys
from pathlib import Path

# --- Layers. A room sees itself and the rooms and single headers named here: nothing else of ours.
OURS = ("srd/", "emu/", "integration/", "tests/")
MACHINE = ["srd/engine/machine.hpp", "srd/engine/types.hpp"]  # the engine's face
TRANSPORT = ["srd/base", "srd/wire", "srd/engine", "srd/message"]
ATTACH = ["emu/daemon/attach_protocol.hpp", "emu/daemon/client.hpp"]  # a process's way to weftd
LAYERS = {
    "srd/base": [],
    "srd/wire": ["srd/base"],
    "srd/engine": ["srd/base", "srd/wire"],
    "srd/message": ["srd/base", "srd/wire", "srd/engine"],
    "srd/io": ["srd/base", "srd/wire", *MACHINE],
    "srd/run": ["srd/base", "srd/wire", "srd/engine", "srd/io"],
    "emu/fabric": ["srd/base", *MACHINE],
    "emu/sim": [*TRANSPORT, "emu/fabric"],
    "emu/scenarios": [],
    "emu/swarm": [*TRANSPORT, "emu/fabric"],
    "emu/nic": TRANSPORT,
    "emu/kernel": [*TRANSPORT, "emu/nic"],
    "emu/profiles": ["srd/base", "emu/kernel"],
    "emu/daemon": ["srd", "emu/fabric"],
    "emu/cli": ["srd", "emu"],
    "integration": ["srd", "emu/nic", "emu/kernel", *ATTACH],
    "tests": ["srd", "emu", "integration"],
}

# --- Purity. A run of these rooms is a function of what goes in and of a seed.
PURE = [*TRANSPORT, "emu/fabric", "emu/sim", "emu/swarm", "emu/nic"]
IMPURE = {
    "no-thread": ("one caller at a time here; threads belong to srd/run and above", r"""
        \#\s*include\s*<(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier
                         |stop_token|pthread\.h)>
        |\bstd::(j?thread|async|(\w+_)?mutex|condition_variable\w*)\b|\bpthread_\w+"""),
    "no-clock": ("time is an argument: take a TimePoint", r"""
        \b(system|steady|high_resolution|utc|file)_clock\b|\b(gettimeofday|clock_gettime|__rdtsc)\b
        |(?<![\w.>:])(std::|::)?time\s*\(\s*(nullptr|NULL|0|&\w+)\s*\)|(std|\B)::clock\s*\(
        |\b(nano|u)?sleep(_for|_until)?\s*\("""),
    "no-environment": ("only programs read the environment: take a configuration value", r"""
        \b(secure_)?getenv\b|\benviron\b"""),
    "no-global-random": ("draw from the Rng that is passed in", r"""
        \#\s*include\s*<random>|(?<![\w.>])(s?rand|rand_r|srandom)\s*\(|(?<![\w.>])random\s*\(\s*\)
        |\b[dlm]rand48\b|\bgetrandom\b
        |\brandom_device\b|\bmt19937|\bstd::\w+_distribution\b"""),
    "no-log": ("count it or return it: programs do the talking", r"""
        \#\s*include\s*<(iostream|cstdio|stdio\.h|syslog\.h|spdlog/.*)>
        |\bstd::(cout|cerr|clog)\b|\bspdlog::|\bfmt::print\b
        |\b(f|v|vf|d)?printf\s*\(|\bf?puts\s*\("""),
}
IMPURE = {rule: (advice, re.compile(pattern, re.VERBOSE))
          for rule, (advice, pattern) in IMPURE.items()}

# --- Form.
CPP = {".cpp", ".hpp", ".c", ".h"}
SCRIPTS = {".py", ".sh"}
SCRIPT_NAMES = {"weft", "run"}  # scripts without a suffix
OTHER_TEXT = {".cmake", ".json", ".md", ".txt", ".yaml", ".yml"}
SKIPPED_FOLDERS = {".git", "build", "corpus", "__pycache__"}
WIDTH, LONG, TOO_LONG = 100, 400, 600
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
PRIVATE = re.compile(r"(?<![\w.])/(work|home/\w+|Users/\w+)/|\.\./shar" r"ed\b"
                     r"|\b(AI|coding|sub-?) ?ag" r"ents?\b|\b(this|previous|next) sess" r"ion\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LITERAL_OR_COMMENT = re.compile(
    r'R"(?P<raw>[^()\s\\]{0,16})\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?\*/", re.DOTALL)


def within(path, places):
    return any(path == place or path.startswith(place + "/") for place in places)


def without_literals(text):
    return LITERAL_OR_COMMENT.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


class Tidy:
    def __init__(self, root):
        self.root = Path(root)
        self.findings = []
        self.warnings = []

    def find(self, path, line, rule, advice):
        self.findings.append(f"{path}:{line}: {rule}: {advice}")

    def files(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            for path in (Path(folder, name) for name in sorted(names)):
                if path.suffix in CPP | SCRIPTS | OTHER_TEXT or path.name in SCRIPT_NAMES:
                    yield path

    def check(self):
        for file in self.files():
            path, suffix = file.relative_to(self.root).as_posix(), file.suffix
            text = file.read_bytes().decode(errors="replace")
            lines = text.split("\n")
            self.check_text(path, lines)
            if suffix in CPP | SCRIPTS or not suffix:
                self.check_code(path, suffix, lines)
            if suffix in CPP:
                self.check_includes(path, lines)
            if suffix in CPP and within(path, PURE):
                self.check_purity(path, text)

    def check_text(self, path, lines):
        if lines[-1] or len(lines) < 2:
            self.find(path, len(lines), "last-line", "end the file with one newline")
        for number, line in enumerate(lines, 1):
            if "\t" in line or "\r" in line:
                self.find(path, number, "no-tab", "indent with spaces, end lines with \\n")
            if line.endswith(" "):
                self.find(path, number, "trailing-space", "remove the space at the end of the line")
            if UNFINISHED.search(line):
                self.find(path, number, "unfinished", "do it now, or write an issue about it")
            if PRIVATE.search(line):
                self.find(path, number, "private", "say it without where or how the text was made")

    def check_code(self, path, suffix, lines):
        mark = "//" if suffix in CPP else "#"
        first = 1 if lines[0].startswith("#!") else 0
        if not re.match(rf"{mark} \S+ \S+ \S+", lines[first]):
            self.find(path, first + 1, "top-sentence", f"begin with `{mark}` what the file owns")
        if suffix in {".hpp", ".h"} and "#pragma once" not in lines:
            self.find(path, 1, "pragma-once", "add `#pragma once` below the top sentence")
        for number, line in enumerate(lines, 1):
            if len(line) > WIDTH:
                self.find(path, number, "width", f"break the line before column {WIDTH}")
        count = len(lines) - 1
        if count > TOO_LONG:
            self.find(path, count, "length", f"find its two ideas; {TOO_LONG} lines are the limit")
        elif count > LONG:
            self.warnings.append(f"{path}: {count} lines; {TOO_LONG} are the limit")

    def check_includes(self, path, lines):
        room = next((room for room in LAYERS if within(path, [room])), None)
        if room is None and path.startswith(OURS):
            self.find(path, 1, "layer", "give this folder its place in LAYERS of tests/tidy.py")
        for number, line in enumerate(lines, 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            quote, target = include.groups()
            if (quote == '"') != target.startswith(OURS):
                self.find(path, number, "include-path", 'ours are "from/the/root.hpp", others <so>')
            elif quote == '"' and not (self.root / target).is_file():
                self.find(path, number, "include-path", f"there is no {target} in the tree")
            elif quote == '"' and room and not within(target, [room, *LAYERS[room]]):
                self.find(path, number, "layer", f"{room} must not see {target}: it is not below")

    def check_purity(self, path, text):
        for number, line in enumerate(without_literals(text).split("\n"), 1):
            for rule, (advice, pattern) in IMPURE.items():
                if pattern.search(line):
                    self.find(path, number, rule, advice)


def main(root):
    tidy = Tidy(root)
    tidy.check()
    for warning in tidy.warnings:
        print(f"warning: {warning}")
    for finding in tidy.findings:
        print(finding)
    return 1 if tidy.findings else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent))
