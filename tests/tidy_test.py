#!/usr/bin/env python3
# Owns the proof that tests/tidy.py catches a violation of each of its rules, and nothing else.
import tempfile
import unittest
from pathlib import Path

from tidy import IMPURE, Tidy

TOP = "// Owns nothing, for the test.\n"
HEADER = TOP + "#pragma once\n"

# A tree that breaks no rule, though it mentions much of what is forbidden.
CLEAN = {
    "srd/base/time.hpp": HEADER,
    "srd/base/check.cpp": TOP + '#include "srd/base/time.hpp"\n\n#include <vector>\n'
    + "// std::thread, getenv() and printf() are not used here: /* nor is std::mutex */\n"
    + 'const char* kText = "printf(\\"%d\\", rand()) std::cout";\n'
    + "int time(int now);\nauto a = x.time(0);\nint n = 1'000'000;\n"
    + "void random(int);\nint brand();\n",
    "srd/engine/machine.hpp": HEADER,
    "srd/engine/peer.hpp": HEADER,
    "srd/io/udp.cpp": TOP + '#include "srd/engine/machine.hpp"\n#include <mutex>\n',
    "emu/cli/main.cpp": TOP + '#include <cstdio>\nint main() { std::puts(getenv("HOME")); }\n',
    "tests/unit/t.cpp": TOP + '#include "srd/engine/peer.hpp"\n',
    "docs/wire.md": "# Wire\n\n" + "A line of prose may be long; " * 8 + "so be it.\n" * 700,
    "build/junk.cpp": "\t",
}

# rule -> lines, each of which breaks it in a C++ file of srd/base
IMPURE_LINES = {
    "no-thread": ["#include <thread>", "std::mutex m;", "std::shared_mutex m;",
                  "pthread_create(0);"],
    "no-clock": ["auto t = std::chrono::steady_clock::now();", "time(nullptr);", "::time(&t);",
                 "clock_gettime(0, &t);", "std::this_thread::sleep_for(t);", "usleep(1);",
                 "std::clock();"],
    "no-environment": ['std::getenv("HOME");', "char** e = environ;"],
    "no-global-random": ["#include <random>", "rand();", "::random();",
                         "std::random_device d;", "std::mt19937 g;",
                         "std::uniform_int_distribution<int> d;"],
    "no-log": ["#include <iostream>", "#include <spdlog/spdlog.h>", 'printf("x");',
               'std::fprintf(stderr, "x");', "std::cerr << 1;", 'fmt::print("x");'],
}

# rule -> files, each of which breaks it and only it
BROKEN = {
    "layer": [
        ("srd/base/a.cpp", TOP + '#include "srd/engine/peer.hpp"\n'),
        ("srd/io/a.cpp", TOP + '#include "srd/engine/peer.hpp"\n'),
        ("emu/fabric/a.cpp", TOP + '#include "tests/unit/t.cpp"\n'),
        ("srd/attic/a.cpp", TOP),
    ],
    "include-path": [
        ("srd/base/a.cpp", TOP + '#include "time.hpp"\n'),
        ("srd/base/a.cpp", TOP + '#include "../base/time.hpp"\n'),
        ("srd/base/a.cpp", TOP + "#include <srd/base/time.hpp>\n"),
        ("srd/base/a.cpp", TOP + '#include "srd/base/gone.hpp"\n'),
    ],
    "pragma-once": [("srd/base/a.hpp", TOP)],
    "top-sentence": [("srd/base/a.cpp", "int x;\n"), ("a.py", "#!/usr/bin/env python3\nx = 1\n")],
    "no-tab": [("a.md", "\tx\n"), ("a.md", "x\r\n")],
    "trailing-space": [("srd/base/a.cpp", TOP + "int x; \n")],
    "last-line": [("srd/base/a.cpp", TOP + "int x;"), ("a.md", "")],
    "width": [("srd/base/a.cpp", TOP + "// " + "x" * 98 + "\n")],
    "length": [("srd/base/a.cpp", TOP + "\n" * 600)],
    "unfinished": [("a.md", "TO" + "DO: write\n"), ("srd/base/a.cpp", TOP + "// XX" + "X\n")],
    "private": [("a.md", "see /wo" + "rk/notes\n"), ("a.md", "see ../shar" + "ed/facts\n"),
                ("a.md", "an AI ag" + "ent wrote it\n"), ("a.md", "the previous sess" + "ion\n")],
}
for impure_rule, impure_lines in IMPURE_LINES.items():
    BROKEN[impure_rule] = [("srd/base/a.cpp", f"{TOP}{line}\n") for line in impure_lines]


def tidy_of(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            Path(root, path).parent.mkdir(parents=True, exist_ok=True)
            Path(root, path).write_bytes(text.encode())
        tidy = Tidy(root)
        tidy.check()
        return tidy


class TidyTest(unittest.TestCase):
    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(tidy_of(CLEAN).findings, [])

    def test_each_violation_is_found_and_named(self):
        for rule, files in BROKEN.items():
            for path, text in files:
                with self.subTest(rule=rule, text=text[:80]):
                    findings = tidy_of(CLEAN | {path: text}).findings
                    self.assertEqual([found.split(": ")[1] for found in findings], [rule])
                    self.assertRegex(findings[0], rf"^{path}:\d+: ")

    def test_every_purity_rule_has_a_violation(self):
        self.assertEqual(IMPURE_LINES.keys(), IMPURE.keys())

    def test_a_long_file_is_a_warning(self):
        tidy = tidy_of({"srd/base/a.cpp": TOP + "\n" * 450})
        self.assertEqual((tidy.findings, len(tidy.warnings)), ([], 1))


if __name__ == "__main__":
    unittest.main()
