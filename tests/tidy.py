#!/usr/bin/env python3
# Owns the house rules that no compiler checks: which folders may include which, what protocol code
# may not touch, the form of a file, and what nothing leads to: sections of the specification that
# are not cited, files and functions that are not used.
"""usage: tests/tidy.py [ROOT]   prints `file:line: rule: what to do`; exit code 1 if it did"""

import os
import re
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

from cpp_outline import outline, without_literals

# --- Layers. A room sees itself and the rooms and single headers named here: nothing else of ours.
OURS = ("srd/", "emu/", "integration/", "tests/")
TRANSPORT = ["srd/base", "srd/net", "srd/wire", "srd/engine"]
LAYERS = {
    "srd/base": [],
    "srd/net": ["srd/base"],
    "srd/wire": ["srd/base", "srd/net"],
    "srd/engine": ["srd/base", "srd/net", "srd/wire"],
    "srd/message": TRANSPORT,
    "srd/io": ["srd/base", "srd/net"],
    "srd/run": ["srd/base", "srd/net", "srd/io"],
    "emu/fabric": ["srd/base"],
    "emu/sim": [*TRANSPORT, "emu/fabric"],
    "emu/scenarios": [],
    "emu/world": TRANSPORT,
    "emu/swarm": [*TRANSPORT, "emu/world"],
    "emu/nic": TRANSPORT,
    "emu/roce/wire": ["srd/base", "srd/net"],
    "emu/roce/cm": ["srd/base", "srd/net", "emu/roce/wire"],
    "emu/roce/engine": ["srd/base", "srd/net", "emu/roce/wire"],
    "emu/roce/swarm": ["srd/base", "srd/net", "emu/roce/wire", "emu/roce/engine"],
    "emu/kernel/abi": [],
    "emu/kernel/umad": ["srd/base", "srd/net", "emu/roce/wire", "emu/kernel"],
    "emu/kernel/ucma": ["srd/base", "srd/net", "emu/roce/cm", "emu/kernel"],
    "emu/kernel": ["srd/base", "srd/net", "emu/nic"],
    "emu/devices": ["srd", "emu/nic", "emu/roce", "emu/kernel"],
    "emu/attach": ["srd"],
    "emu/options": [],
    "emu/daemon": ["srd", "emu/attach", "emu/fabric", "emu/options", "emu/roce/wire"],
    "emu/launch": ["srd", "emu/attach", "emu/devices", "emu/fabric", "emu/kernel"],
    "emu/k8s": ["srd/base", "emu/fabric"],
    "emu/labs": ["srd", "emu/launch", "emu/fabric", "emu/k8s"],
    "emu/softroce": ["srd", "emu/launch", "emu/roce/wire"],
    "integration/nccl/core": TRANSPORT,
    "integration/nccl": ["srd", "emu/attach"],
    "integration/kubernetes": ["srd/base", "srd/io/posix.hpp", "emu/launch", "emu/fabric",
                               "emu/options"],
    "integration/gloo": ["srd", "integration/nccl/core", "integration/nccl/plugin_nic.hpp"],
    "integration/collectives": ["srd/base", "integration/nccl/abi.hpp"],
    "integration/workloads": [*TRANSPORT, "emu/fabric", "emu/sim"],
    "emu/cli": ["srd", "emu", "integration/collectives", "integration/workloads"],
    "integration": ["srd", "emu/kernel", "emu/devices", "emu/attach"],
    "tests": ["srd", "emu", "integration"],
}

# --- Purity. A run of these rooms is a function of what goes in and of a seed.
PURE = [*TRANSPORT, "srd/message", "emu/fabric", "emu/k8s", "emu/sim", "emu/world",
        "emu/swarm", "emu/nic", "emu/roce", "integration/nccl/core", "integration/workloads"]
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

# --- Names. What is in emu/ROOM or integration/ROOM is in weft::ROOM, so that a name says where to
# look. The rooms of srd are one library, weft::srd, on the plain vocabulary of weft.
NAMESPACE = re.compile(r"^\s*(?:inline )?namespace weft((?:::\w+)*) \{")
# A name of a type stands for one thing. The rooms of one protocol have the same names for the same
# things as those of the other, and an interface of others says itself what its structs are called.
PROTOCOLS = {
    "SRD": ["srd", "emu/nic", "emu/devices/efa", "emu/world", "emu/swarm"],
    "RoCEv2": ["emu/roce", "emu/devices/rxe"],
}
FOREIGN_NAMES = re.compile(r"^emu/(kernel/abi/|devices/\w+/abi\.hpp$)")
KINDS_OF_DEVICES = "emu/devices/"  # each folder is a room of its own, and a kind
LIST_OF_KINDS = "emu/devices/registry.cpp"
# A unit, where it is abbreviated, ends the name; only a ratio goes on, as in bytes_per_us.
OTHER_WORD_FOR_A_LIMIT = re.compile(r"\b(?:k(?:Most|Maximum)(?:[A-Z]\w*)?|(?:most|maximum)_\w+)\b")
UNIT_WITHIN = re.compile(r"\b(?:\w+_)?(?:ns|us|ms|gbps|kib|mib|gib)_(?!per_|to_)\w*[a-z0-9]")

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
SIZED_TYPE = re.compile(r"\bstd::u?int(?:ptr|max|(?:_fast|_least)?(?:8|16|32|64))_t\b")

# --- The specification. `[wire 3.4]` cites a section, `[wire 3.8, 4.8]` two.
SPECIFICATION = "docs/wire.md"
SECTION = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
CITATION = re.compile(r"\[wire ((?:\d+(?:\.\d+)?)(?:, \d+(?:\.\d+)?)*)\]")
CITED_CHAPTERS = ("3.", "4.", "5.")  # each section of these has code that obeys it and a test
OBEYING = ("srd/", "emu/")

# --- What is used. LONG_FUNCTION counts the lines that hold code, from the first line of the
# signature to the closing brace: blank lines and comments are free.
LONG_FUNCTION = 70
PRODUCT = ("srd/", "emu/", "integration/")
EXCEPTIONS = "tests/tidy_exceptions.txt"
THIS_CHECK = "tests/tidy"  # it and its own test speak of what is not there
ENTRY_DOCUMENT = "README.md"
BUILD_LISTS = "CMakeLists.txt"
LISTED_FILE = re.compile(r"(\$\{\w+\}/)?([\w./-]+\.(?:cpp|c|py|sh))\b")
LINK = re.compile(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)")
MENTION = re.compile(r"(?<![\w/])(docs/[\w/.-]+\.md)\b")


def within(path, places):
    return any(path == place or path.startswith(place + "/") for place in places)


def parents(path):
    return [parent.as_posix() for parent in PurePosixPath(path).parents]


def resolve(folder, target):
    """`target` as seen from `folder`, from the root of the tree."""
    return PurePosixPath(os.path.normpath(PurePosixPath(folder, target))).as_posix()


def room_of(path):
    return parents(path)[0] if path.startswith(KINDS_OF_DEVICES) else "/".join(path.split("/")[:2])


def are_counterparts(room, other):
    """Whether the rooms are two kinds of devices, or of one protocol each."""
    if room.startswith(KINDS_OF_DEVICES) and other.startswith(KINDS_OF_DEVICES):
        return room != other
    protocols = [{name for name, rooms in PROTOCOLS.items() if within(one, rooms)}
                 for one in (room, other)]
    return all(protocols) and not protocols[0] & protocols[1]


def numbered(text):
    return enumerate(text.split("\n"), 1)


class Tidy:
    def __init__(self, root):
        self.root = Path(root)
        self.findings = []
        self.warnings = []
        self.texts = {}     # path -> text
        self.bare = {}      # path of a C++ file -> its text without literals and comments
        self.outlines = {}  # path of a C++ file -> its functions and names

    def find(self, path, line, rule, advice):
        self.findings.append(f"{path}:{line}: {rule}: {advice}")

    def files(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            for path in (Path(folder, name) for name in sorted(names)):
                if path.suffix in CPP | SCRIPTS | OTHER_TEXT or path.name in SCRIPT_NAMES:
                    yield path

    def read(self):
        for file in self.files():
            path = file.relative_to(self.root).as_posix()
            self.texts[path] = file.read_bytes().decode(errors="replace")
            if file.suffix in CPP:
                self.bare[path] = without_literals(self.texts[path])
                self.outlines[path] = outline(self.bare[path])

    def check(self):
        self.read()
        for path, text in self.texts.items():
            suffix, lines = PurePosixPath(path).suffix, text.split("\n")
            self.check_text(path, lines)
            if suffix in CPP | SCRIPTS or not suffix:
                self.check_code(path, suffix, lines)
            if suffix in CPP:
                self.check_includes(path, lines)
            if suffix in CPP and within(path, PURE):
                self.check_purity(path)
            if suffix in CPP and path.startswith(PRODUCT):
                self.check_namespace(path)
        self.check_citations()
        self.check_documents()
        self.check_dead_files()
        self.check_sized_types()
        exceptions = self.read_exceptions()
        self.check_function_length(exceptions["long"])
        self.check_unused_names(exceptions["keep"])
        self.check_words()
        self.check_type_names(exceptions["twin"])

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
            if path.endswith(BUILD_LISTS) and "PASS_REGULAR_EXPRESSION" in line:
                self.find(path, number, "exit-code", "it passes tests that fail: have the command "
                          "check what is printed")

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
            elif quote == '"' and self.is_of_another_kind(path, target):
                self.find(path, number, "kind", f"only {LIST_OF_KINDS} knows which kinds there are")

    def is_of_another_kind(self, path, target):
        """A new kind of device is its folder and a line in the list: no other code names a kind."""
        kind = re.match(rf"{KINDS_OF_DEVICES}\w+/", target)
        return (kind and path.startswith(PRODUCT) and path != LIST_OF_KINDS
                and not path.startswith(kind[0]))

    def check_purity(self, path):
        for number, line in numbered(self.bare[path]):
            for rule, (advice, pattern) in IMPURE.items():
                if pattern.search(line):
                    self.find(path, number, rule, advice)

    def check_namespace(self, path):
        tree, room = path.split("/")[:2]
        home = "srd" if tree == "srd" else room
        for number, line in numbered(self.bare[path]):
            found = NAMESPACE.match(line)
            within_weft = found and (found[1].split("::") + [""])[1]
            if found and within_weft != home and (tree != "srd" or within_weft):
                self.find(path, number, "namespace", f"what is here belongs to weft::{home}")

    def check_words(self):
        for path in self.bare:
            for number, line in numbered(self.bare[path]) if path.startswith(PRODUCT) else ():
                for name in OTHER_WORD_FOR_A_LIMIT.findall(line):
                    self.find(path, number, "limit-name", f"a limit is called max: rename {name}")
                for name in UNIT_WITHIN.findall(line):
                    self.find(path, number, "unit-name", f"let the unit end the name {name}")

    def check_type_names(self, allowed):
        """A type's name is that of one thing, or of its counterpart in the other protocol."""
        homes = {}
        for path, found in self.outlines.items():
            if path.startswith(PRODUCT) and path.endswith((".hpp", ".h")):
                for name, line in () if FOREIGN_NAMES.match(path) else found.types:
                    homes.setdefault(name, {}).setdefault(room_of(path), (path, line))
        twins = {}
        for name, rooms in homes.items():
            for room, place in sorted(rooms.items()):
                if any(not are_counterparts(room, other) for other in rooms if other != room):
                    twins.setdefault(name, []).append(place)
        for name, places in twins.items():
            if name not in allowed:
                path, line = places[-1]
                self.find(path, line, "type-name",
                          f"{name} is another type in {places[0][0]}: find a name of its own")
        for name in sorted(allowed.keys() - twins.keys()):
            self.find(EXCEPTIONS, allowed[name], "exception",
                      f"there is one type called {name} now: remove this line")

    def check_citations(self):
        """Each citation names a section; each section that binds is cited by code and by a test."""
        specification = self.texts.get(SPECIFICATION, "")
        sections = {found[1]: specification.count("\n", 0, found.start()) + 1
                    for found in SECTION.finditer(specification)}
        cited = {"code": set(), "a test": set()}
        for path, text in self.texts.items():
            if path.startswith(THIS_CHECK):
                continue
            for found in CITATION.finditer(text):
                names = found[1].split(", ")
                for name in set(names) - sections.keys():
                    self.find(path, text.count("\n", 0, found.start()) + 1, "citation",
                              f"{SPECIFICATION} has no section {name}")
                if path.startswith(OBEYING):
                    cited["code"].update(names)
                elif path.startswith("tests/"):
                    cited["a test"].update(names)
        for section, line in sections.items():
            for where, names in cited.items():
                if section.startswith(CITED_CHAPTERS) and section not in names:
                    self.find(SPECIFICATION, line, "citation",
                              f"cite [wire {section}] in {where} that shows how it is obeyed")

    def documents_named(self, path):
        """(document, line) for each that a text names from the root, or links to if it is one."""
        text, folder = self.texts[path], parents(path)[0]
        named = {found[1]: found.start() for found in MENTION.finditer(text)}
        if path.endswith(".md"):
            named = {resolve(folder, found[1]): found.start() for found in LINK.finditer(text)
                     if "://" not in found[1]}
        return [(document, text.count("\n", 0, at) + 1) for document, at in named.items()]

    def check_documents(self):
        """Links lead somewhere, and from the entry document they lead everywhere."""
        links = {path: self.documents_named(path) for path in self.texts
                 if not path.startswith(THIS_CHECK)}
        for path, named in links.items():
            for document, line in named:
                if document not in self.texts:
                    self.find(path, line, "link", f"there is no {document} in the tree")
        reached, ahead = set(), [ENTRY_DOCUMENT]
        while ahead:
            path = ahead.pop()
            if path not in reached:
                reached.add(path)
                ahead.extend(document for document, _ in links.get(path, ()))
        for path in sorted(links.keys() - reached):
            if path.endswith(".md"):
                self.find(path, 1, "dead-file", f"no link leads here from {ENTRY_DOCUMENT}")

    def check_dead_files(self):
        included = {found[2] for text in self.texts.values()
                    for found in map(INCLUDE.match, text.split("\n")) if found}
        listed = self.listed_files()
        for path in self.texts:
            suffix = PurePosixPath(path).suffix
            if suffix in {".hpp", ".h"} and path not in included:
                self.find(path, 1, "dead-file", "nothing includes it: remove it")
            elif suffix in {".cpp", ".c"} and path not in listed:
                self.find(path, 1, "dead-file", f"no {BUILD_LISTS} names it: add or remove it")
            elif suffix in SCRIPTS and path not in listed and not self.is_named(path):
                self.find(path, 1, "dead-file",
                          f"no {BUILD_LISTS}, script or document names it: do so, or remove it")

    def check_sized_types(self):
        """Which standard header brings <cstdint> along differs from compiler to compiler."""
        ahead = {path: {found[2] for found in map(INCLUDE.match, text.split("\n")) if found}
                 for path, text in self.texts.items() if PurePosixPath(path).suffix in CPP}
        for path in ahead:
            used = next((number for number, line in numbered(self.bare[path])
                         if SIZED_TYPE.search(line)), None)
            if used is None:
                continue
            reached, left = set(), [path]
            while left:
                for header in ahead.get(left.pop(), set()) - reached:
                    reached.add(header)
                    left.append(header)
            if "cstdint" not in reached:
                self.find(path, used, "sized-type", "include <cstdint>: no header of ours does")

    def listed_files(self):
        """The sources and scripts that the build's lists name, from the root of the tree."""
        listed = set()
        for path, text in self.texts.items():
            if PurePosixPath(path).name != BUILD_LISTS:
                continue
            for variable, name in LISTED_FILE.findall(text):
                folder = "." if variable == "${PROJECT_SOURCE_DIR}/" else parents(path)[0]
                listed.add(resolve(folder, name))
        return listed

    def is_named(self, path):
        name, stem = PurePosixPath(path).name, PurePosixPath(path).stem
        naming = re.compile(rf"(?<![\w-]){re.escape(name)}\b|\b(from|import) {stem}\b")
        return any(other != path and PurePosixPath(other).suffix not in CPP and naming.search(text)
                   for other, text in self.texts.items())

    def read_exceptions(self):
        """{"long": {(path, function): (lines, at)}, "keep": {(path, name): at},
        "twin": {type: at}}"""
        exceptions = {"long": {}, "keep": {}, "twin": {}}
        for number, line in numbered(self.texts.get(EXCEPTIONS, "")):
            word, *rest = line.split(None, 3) or ["#"]
            if word == "long" and len(rest) == 3 and rest[2].isdigit():
                exceptions[word][rest[0], rest[1]] = int(rest[2]), number
            elif word == "keep" and len(rest) == 3:
                exceptions[word][rest[0], rest[1]] = number
            elif word == "twin" and len(rest) >= 2:
                exceptions[word][rest[0]] = number
            elif not word.startswith("#"):
                self.find(EXCEPTIONS, number, "exception", "say it in the form that the top shows")
        return exceptions

    def check_function_length(self, allowed):
        needed = set()
        for path, found in self.outlines.items():
            for name, line, length in found.functions:
                limit, entry = allowed.get((path, name), (LONG_FUNCTION, None))
                if length > limit:
                    self.find(path, line, "long-function",
                              f"{name} has {length} lines of code: split it; {limit} are the limit")
                if length > LONG_FUNCTION and entry:
                    needed.add((path, name))
                    if length < limit:
                        self.find(EXCEPTIONS, entry, "exception", f"{name} has only {length} lines "
                                  "now: write that, so that it does not grow again")
        self.check_needed(allowed.keys() - needed, {key: at for key, (_, at) in allowed.items()})

    def check_unused_names(self, kept):
        """A name that our headers declare is used somewhere in the product; tests do not count.
        What overrides is used by those who know the base, which may be other people's."""
        uses, declarations = Counter(), Counter()
        product = [path for path in self.bare if path.startswith(PRODUCT)]
        for path in product:
            uses.update(re.findall(r"\w+", self.bare[path]))
            declarations.update(name for name, _ in self.outlines[path].declared)
        unused = {}
        for path in product:
            for name, line in self.outlines[path].declared if path.endswith((".hpp", ".h")) else ():
                if (uses[name] <= declarations[name]
                        and name not in self.outlines[path].overrides):
                    unused.setdefault((path, name), line)
        for (path, name), line in unused.items():
            if (path, name) not in kept:
                self.find(path, line, "unused-name", f"only tests use {name}, if anything does: "
                          f"remove it, or say in {EXCEPTIONS} why it stays")
        self.check_needed(kept.keys() - unused.keys(), kept)

    def check_needed(self, idle, lines):
        for path, name in sorted(idle):
            self.find(EXCEPTIONS, lines[path, name], "exception",
                      f"{path} needs no exception for {name} any more: remove this line")


def comment_shares(texts):
    """Of the lines of C++ that are not blank, how many are comments: 'emu 10 %, srd 12 %'."""
    lines, comments = Counter(), Counter()
    for path, text in texts.items():
        if path.endswith((".cpp", ".hpp")):
            room = path.split("/")[0]
            lines[room] += sum(1 for line in text.splitlines() if line.strip())
            comments[room] += sum(1 for line in text.splitlines()
                                  if line.lstrip().startswith("//"))
    return ", ".join(f"{room} {100 * comments[room] / lines[room]:.1f} %"
                     for room in sorted(lines) if lines[room] > 0)


def main(root):
    tidy = Tidy(root)
    tidy.check()
    if not tidy.texts:
        sys.exit(f"there is nothing to check in {root}")
    for warning in tidy.warnings:
        print(f"warning: {warning}")
    for finding in tidy.findings:
        print(finding)
    print(f"comment lines: {comment_shares(tidy.texts)}")
    return 1 if tidy.findings else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent))
