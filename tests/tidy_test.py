#!/usr/bin/env python3
# Owns the proof that tests/tidy.py catches a violation of each of its rules, and nothing else.
import sys
import tempfile
import unittest
from pathlib import Path

import tidy as tidy_script
from cpp_outline import outline, without_literals
from tidy import EXCEPTIONS, IMPURE, LAYERS, LONG_FUNCTION, PROTOCOLS, PURE, Tidy

TOP = "// Owns nothing, for the test.\n"
HEADER = TOP + "#pragma once\n"
SPECIFICATION = "# Wire\n\n## 1. Terms\n\n## 3. Packets\n\n### 3.4 Data header\n\n"


def function(lines, name="f"):
    """A definition that has so many lines of code."""
    return f"void {name}() {{\n" + "  ++x;\n" * (lines - 2) + "}\n"


# A tree that breaks no rule, though it mentions much of what is forbidden.
CLEAN = {
    "README.md": "[wire](docs/wire.md), [more](a.md#top)\n[web](https://example.org/b.md)\n",
    "a.md": "# Top\n\n[back](README.md)\n",
    "a.py": "# Owns nothing, for the test.\n",
    "srd/base/b.cpp": TOP + '#include "srd/base/a.hpp"\n',
    "srd/base/a.hpp": HEADER,
    "srd/base/CMakeLists.txt": "sources(a.cpp b.cpp check.cpp)\n",
    "srd/attic/CMakeLists.txt": "sources(a.cpp)\n",
    "emu/CMakeLists.txt": "sources(${PROJECT_SOURCE_DIR}/srd/io/udp.cpp fabric/a.cpp)\n",
    "emu/devices/CMakeLists.txt": "sources(registry.cpp)\n",
    "emu/devices/registry.cpp": TOP + '#include "emu/devices/efa/kind.hpp"\n',
    "emu/devices/efa/kind.hpp": HEADER,
    "emu/cli/CMakeLists.txt": "sources(main.cpp)\nrun(python3 ${PROJECT_SOURCE_DIR}/a.py)\n",
    "srd/io/CMakeLists.txt": "sources(a.cpp)\n",
    "tests/CMakeLists.txt": "sources(unit/t.cpp)\n",
    "srd/base/time.hpp": HEADER,
    "srd/base/check.cpp": TOP + '#include "srd/base/time.hpp"\n\n#include <vector>\n'
    + "// std::thread, getenv() and printf() are not used here: /* nor is std::mutex */\n"
    + 'const char* kText = "printf(\\"%d\\", rand()) std::cout";\n'
    + "int time(int now);\nauto a = x.time(0);\nint n = 1'000'000;\n"
    + "void random(int);\nint brand();\nint bytes_per_us(int delay_ns_, int us_per_byte);\n",
    # Names that are used: in the same file, as a member, by a macro, as a default argument.
    "srd/net/machine.hpp": HEADER + "class M {\n  M();\n  ~M();\n"
    + "  bool operator==(const M&) const;\n"
    + "  int ready() const { return size() + kMax + kFew; }\n  int size() const;\n};\n"
    + "inline constexpr int kMax = 3;\ninline constexpr int kFew{2};\n#define READY m.ready()\n"
    + "enum class Kind { kNobodys };\nvoid start(int how = first());\nint first();\n",
    "srd/engine/peer.hpp": HEADER + "#include <cstdint>\n",
    "srd/io/udp.cpp": TOP + '#include "srd/net/machine.hpp"\n#include <mutex>\n'
    + "int M::size() const { return first(); }\nauto used = &start;\n// [wire 3.4]\n",
    "emu/cli/main.cpp": TOP + '#include <cstdio>\nint main() { std::puts(getenv("HOME")); }\n'
    + "namespace n {\n" + function(LONG_FUNCTION).replace("{\n", "{\n\n// Why.\n", 1) + "}\n",
    "tests/unit/t.cpp": TOP + '#include "srd/engine/peer.hpp"\n// [wire 1, 3.4] packet[wire::k]\n'
    + "std::int32_t there;\n",
    "docs/wire.md": SPECIFICATION + "A line of prose may be long; " * 8 + "so be it.\n" * 700,
    "build/junk.cpp": "\t",
}

# rule -> lines, each of which breaks it in a C++ file of srd/base
IMPURE_LINES = {
    "no-thread": [f"#include <{header}>" for header in (
        "thread", "mutex", "shared_mutex", "condition_variable", "future", "semaphore", "latch",
        "barrier", "stop_token", "pthread.h")] + [
        "std::thread t;", "std::jthread t;", "std::async(f);", "std::mutex m;",
        "std::shared_mutex m;", "std::condition_variable c;", "std::condition_variable_any c;",
        "pthread_create(0);"],
    "no-clock": [f"auto t = std::chrono::{clock}_clock::now();" for clock in (
        "system", "steady", "high_resolution", "utc", "file")] + [
        "gettimeofday(&t, 0);", "clock_gettime(0, &t);", "__rdtsc();", "time(nullptr);",
        "time(NULL);", "time(0);", "std::time(&t);", "::time(&t);", "std::clock();", " ::clock();",
        "std::this_thread::sleep_for(t);", "std::this_thread::sleep_until(t);", "sleep(1);",
        "usleep(1);", "nanosleep(&t, 0);"],
    "no-environment": ['std::getenv("HOME");', 'secure_getenv("HOME");', "char** e = environ;"],
    "no-global-random": ["#include <random>", "rand();", "srand(1);", "rand_r(&s);", "::random();",
                         "srandom(1);", "drand48();", "lrand48();", "mrand48();",
                         "getrandom(p, 1, 0);", "std::random_device d;", "std::mt19937 g;",
                         "std::uniform_int_distribution<int> d;"],
    "no-log": ["#include <iostream>", "#include <cstdio>", "#include <stdio.h>",
               "#include <syslog.h>", "#include <spdlog/spdlog.h>", "std::cout << 1;",
               "std::cerr << 1;", "std::clog << 1;", 'spdlog::info("x");', 'fmt::print("x");',
               'printf("x");', 'std::fprintf(stderr, "x");', 'vprintf("x", a);', 'puts("x");',
               'fputs("x", f);'],
}

# rule -> files, each of which breaks it and only it; third, if it is found in another file: which
BROKEN = {
    "layer": [
        ("srd/base/a.cpp", TOP + '#include "srd/engine/peer.hpp"\n'),
        ("srd/io/a.cpp", TOP + '#include "srd/engine/peer.hpp"\n'),
        ("emu/fabric/a.cpp", TOP + '#include "tests/unit/t.cpp"\n'),
        ("srd/attic/a.cpp", TOP),
    ],
    "kind": [
        ("emu/cli/main.cpp", TOP + '#include "emu/devices/efa/kind.hpp"\n'),
    ],
    "include-path": [
        ("srd/base/a.cpp", TOP + '#include "time.hpp"\n'),
        ("srd/base/a.cpp", TOP + '#include "../base/time.hpp"\n'),
        ("srd/base/a.cpp", TOP + "#include <srd/base/time.hpp>\n"),
        ("srd/base/a.cpp", TOP + '#include "srd/base/gone.hpp"\n'),
    ],
    "namespace": [
        ("emu/fabric/a.cpp", TOP + "namespace weft {\n}\n"),
        ("emu/fabric/a.cpp", TOP + "namespace weft::emu::fabric {\n}\n"),
        ("emu/fabric/a.cpp", TOP + "namespace weft::sim::fabric {\n}\n"),
        ("srd/base/a.cpp", TOP + "namespace weft::sim {\n}\n"),
        ("srd/io/udp.cpp", CLEAN["srd/io/udp.cpp"] + "namespace weft::io {\n}\n"),
    ],
    "limit-name": [
        ("srd/base/a.cpp", TOP + "constexpr int kMostSheep = 1;\n"),
        ("srd/base/a.cpp", TOP + "int most_sheep;\n"),
    ],
    "unit-name": [
        ("srd/base/a.cpp", TOP + "int ns_delay;\n"),
        ("srd/base/a.cpp", TOP + "int latency_us_p50;\n"),
    ],
    "type-name": [
        ("srd/base/time.hpp", HEADER + "struct M {\n};\n", "srd/net/machine.hpp"),
        ("srd/base/time.hpp", HEADER + "enum class Kind { a };\n", "srd/net/machine.hpp"),
        ("srd/base/time.hpp", HEADER + "namespace n {\nclass M final : A {\n};\n}\n",
         "srd/net/machine.hpp"),
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
    "exit-code": [
        ("srd/io/CMakeLists.txt", "sources(a.cpp)\nset_tests_properties(a PROPERTIES\n"
         + '  PASS_REGULAR_EXPRESSION "fine")\n'),
    ],
    "citation": [
        ("srd/base/a.cpp", TOP + "// [wire 3.9]\n"),
        ("tests/unit/t.cpp", TOP + '#include "srd/engine/peer.hpp"\n// [wire 3.4, 8]\n'),
        ("srd/io/udp.cpp", CLEAN["srd/io/udp.cpp"].replace("[wire 3.4]", "Why."),
         "docs/wire.md"),
        ("tests/unit/t.cpp", CLEAN["tests/unit/t.cpp"].replace("[wire 1, 3.4]", "Why."),
         "docs/wire.md"),
    ],
    "link": [("a.md", "# Top\n\n[gone](docs/gone.md)\n"),
             ("srd/base/a.cpp", TOP + "// docs/gone.md\n")],
    "dead-file": [
        ("docs/orphan.md", "# Orphan\n\n[in](wire.md), and no way out of README.md\n"),
        ("srd/base/orphan.hpp", HEADER),
        ("srd/base/orphan.cpp", TOP),
        ("srd/engine/check.cpp", TOP),  # the list that names one of this name is another folder's
        ("tests/unit/orphan_test.cpp", TOP),
        ("tests/e2e/orphan.py", "# Owns nothing, for the test.\n"),
    ],
    "sized-type": [
        ("srd/base/a.cpp", TOP + "std::uint64_t a;\n"),
        ("srd/base/a.cpp", TOP + '#include "srd/base/time.hpp"\nstd::uintptr_t a;\n'),
    ],
    "long-function": [
        ("srd/base/a.cpp", TOP + function(LONG_FUNCTION + 1)),
        ("srd/base/a.cpp", TOP + "namespace n {\n" + function(LONG_FUNCTION + 1, "A::b") + "}\n"),
        ("srd/base/time.hpp", HEADER + "class A {\n" + function(LONG_FUNCTION + 1, "A") + "};\n"),
    ],
    "unused-name": [
        ("srd/base/time.hpp", HEADER + "int nobodys(int x);\n"),
        ("srd/base/time.hpp", HEADER + "class A {\n  int nobodys() const { return 1; }\n};\n"),
        ("srd/base/time.hpp", HEADER + "inline constexpr int kNobody = 1;  // kNobody is unused\n"),
        ("srd/base/time.hpp", HEADER + "template <class T = std::vector<int>>\nT nobodys();\n"),
    ],
    "exception": [
        (EXCEPTIONS, "long emu/cli/main.cpp f 80\n"),
        (EXCEPTIONS, "long srd/base/gone.cpp f 80\n"),
        (EXCEPTIONS, "keep srd/net/machine.hpp size for users\n"),
        (EXCEPTIONS, "keep srd/net/machine.hpp size\n"),
        (EXCEPTIONS, "twin M\n"),
        (EXCEPTIONS, "twin M for no reason\n"),
        (EXCEPTIONS, "allow everything\n"),
    ],
}
for impure_rule, impure_lines in IMPURE_LINES.items():
    BROKEN[impure_rule] = [("srd/base/a.cpp", f"{TOP}{line}\n") for line in impure_lines]


def tidy_of(files, kind=Tidy):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            Path(root, path).parent.mkdir(parents=True, exist_ok=True)
            Path(root, path).write_bytes(text.encode())
        tidy = kind(root)
        tidy.check()
        return tidy


class TidyTest(unittest.TestCase):
    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(tidy_of(CLEAN).findings, [])

    def test_each_violation_is_found_and_named(self):
        for rule, files in BROKEN.items():
            for path, text, *where in files:
                with self.subTest(rule=rule, text=text[:80]):
                    findings = tidy_of(CLEAN | {path: text}).findings
                    self.assertEqual([found.split(": ")[1] for found in findings], [rule])
                    self.assertRegex(findings[0], rf"^{(where or [path])[0]}:\d+: ")

    def test_every_purity_rule_has_a_violation(self):
        self.assertEqual(IMPURE_LINES.keys(), IMPURE.keys())

    def test_every_line_that_reports_is_reached_by_a_violation(self):
        reached = set()

        class Watched(Tidy):
            def find(self, *words):
                reached.add(sys._getframe(1).f_lineno)
                super().find(*words)

        planted = [{path: text} for files in BROKEN.values() for path, text, *_ in files]
        planted.append({"srd/base/a.cpp": TOP + function(LONG_FUNCTION + 1),
                        EXCEPTIONS: f"long srd/base/a.cpp f {LONG_FUNCTION + 2}\n"})
        for files in planted:
            tidy_of(CLEAN | files, Watched)
        source = Path(tidy_script.__file__).read_text().split("\n")
        reporting = {number for number, line in enumerate(source, 1) if "self.find(" in line}
        self.assertEqual(reporting - reached, set())

    def test_the_tables_name_rooms_that_there_are(self):
        root = Path(tidy_script.__file__).resolve().parent.parent
        rooms = {*LAYERS, *PURE, *(room for seen in LAYERS.values() for room in seen),
                 *(room for rooms in PROTOCOLS.values() for room in rooms)}
        self.assertEqual({room for room in rooms if not (root / room).exists()}, set())

    def test_counterparts_and_foreign_structs_may_share_a_name(self):
        includes = "".join(f'#include "{path}"\n' for path in (
            "srd/net/machine.hpp", "emu/roce/wire/m.hpp", "emu/kernel/abi/m.hpp",
            "emu/devices/rxe/abi.hpp"))
        files = {path: HEADER + "class M {\n  enum class Kind { a };\n};\n" for path in (
            "emu/roce/wire/m.hpp", "emu/kernel/abi/m.hpp", "emu/devices/rxe/abi.hpp")}
        seen_by = "emu/devices/registry.cpp"
        files[seen_by] = CLEAN[seen_by] + includes
        self.assertEqual(tidy_of(CLEAN | files).findings, [])
        files["emu/devices/rxe/abi.hpp"] = HEADER
        files["emu/devices/rxe/m.hpp"] = HEADER + "class M {\n};\n"
        files[seen_by] += '#include "emu/devices/rxe/m.hpp"\n'
        findings = tidy_of(CLEAN | files).findings
        self.assertEqual([found.split(": ")[1] for found in findings], ["type-name"])
        files[EXCEPTIONS] = "twin M two rooms of RoCEv2, in this test\n"
        self.assertEqual(tidy_of(CLEAN | files).findings, [])

    def test_two_kinds_of_one_protocol_may_share_a_name(self):
        a = tidy_script.are_counterparts
        self.assertTrue(a("emu/devices/efa", "emu/devices/third"))
        self.assertFalse(a("emu/devices/efa", "emu/devices/efa"))
        self.assertFalse(a("emu/devices", "emu/devices/efa"))

    def test_a_long_file_is_a_warning(self):
        tidy = tidy_of(CLEAN | {"srd/base/a.cpp": TOP + "\n" * 450})
        self.assertEqual((tidy.findings, len(tidy.warnings)), ([], 1))

    def test_what_overrides_is_used_by_those_who_know_the_base(self):
        for word, findings in ((" override", []), ("", ["unused-name"])):
            text = HEADER + f"class A : B {{\n  int nobodys(){word} {{ return 1; }}\n}};\n"
            found = tidy_of(CLEAN | {"srd/base/time.hpp": text}).findings
            self.assertEqual([one.split(": ")[1] for one in found], findings)

    def test_exceptions_let_pass_what_they_name(self):
        planted = {
            "srd/base/a.cpp": TOP + function(LONG_FUNCTION + 5, "A::f"),
            "srd/base/time.hpp": HEADER + "int nobodys();\n",
        }
        rows = "# Why.\n\nlong srd/base/a.cpp A::f {}\nkeep srd/base/{}.hpp nobodys for users\n"
        for lines, stem, rules in [
                (LONG_FUNCTION + 5, "time", []),
                (LONG_FUNCTION + 4, "time", ["long-function"]),  # it has grown
                (LONG_FUNCTION + 6, "time", ["exception"]),  # it has shrunk
                (LONG_FUNCTION + 5, "other", ["unused-name", "exception"])]:
            findings = tidy_of(CLEAN | planted | {EXCEPTIONS: rows.format(lines, stem)}).findings
            self.assertEqual([found.split(": ")[1] for found in findings], rules)


class MainTest(unittest.TestCase):
    def test_a_folder_without_files_is_no_tidy_tree(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit) as end:
            tidy_script.main(folder)
        self.assertIn("nothing to check", str(end.exception.code))


class OutlineTest(unittest.TestCase):
    def functions(self, text):
        return [(name, length) for name, _, length in outline(without_literals(text)).functions]

    def declared(self, text):
        return [name for name, _ in outline(without_literals(text)).declared]

    def test_functions_are_told_from_what_looks_like_them(self):
        for text, functions in [
                ("A::A(int a) : a_{a}, b_(b{a}) {\n  go({1, 2});\n}", [("A::A", 3)]),
                ("class A {\n  int b_ = f();\n  int c() { return 1; }\n};", [("c", 1)]),
                ("template <class T, auto = [](int) { return 1; }>\nvoid f() {\n}", [("f", 3)]),
                ("template <>\ninline int f<int>() {\n}", [("f", 3)]),
                ("void f(A a = {}, B b = B{1}) {\n}", [("f", 2)]),
                ('extern "C" {\nint f(int) {\n}\n}', [("f", 2)]),
                ('extern "C" int f(int) {\n}', [("f", 2)]),
                ("bool operator()(int a) const {\n}", [("operator", 2)]),
                ("TEST_F(Suite, Case) {\n}", [("Suite.Case", 2)]),
                ("struct alignas(64) A {\n  int b;\n};\nstruct A f() {\n}", [("f", 2)]),
                ("#define F(x) \\\n  void x() {\nvoid g() {\n}", [("g", 2)]),
                ('void f() {\n  // }\n  g("}");\n}', [("f", 3)]),
                ("const auto kName = [](int a) {\n  return a;\n};", []),
                ("enum class A { b, c };\nint table[] = {f(1), g(2)};", []),
                ("concept C = requires(M& m) {\n  m.f();\n};", []),
        ]:
            with self.subTest(text=text):
                self.assertEqual(self.functions(text), functions)

    def test_names_are_those_of_functions_and_constants(self):
        for text, names in [
                ("namespace n {\nint f();\n[[nodiscard]] const A<int>& g(int);\n}", "fg"),
                ("class A {\n public:\n  virtual int f() = 0;\n\n  int g_ = h();\n};", "f"),
                ("class A : B {\n  using C::C;\n  friend void f();\n  ~A() = default;\n};", ""),
                ("typedef int (*f)(int);\nusing g = int();\nextern int h;", ""),
        ]:
            with self.subTest(text=text):
                self.assertEqual(self.declared(text), list(names))
        constants = ("constexpr int kA = 1;\nstatic constexpr B kB{f(1)};\n"
                     "const char* const kC[2][3] = {};\nenum { kD = 1 };\n")
        self.assertEqual(self.declared(constants), ["kA", "kB", "kC"])

    def test_types_are_those_of_namespaces(self):
        for text, names in [
                ("namespace n {\nstruct A {\n  struct B {\n  };\n};\nclass C;\n}", "A"),
                ("enum class A : int { b, c };\nenum B { d };\nunion C {\n};", "ABC"),
                ("class alignas(64) A final : public B {\n};\nstruct [[nodiscard]] C {\n};", "AC"),
                ("template <class T>\nclass A {\n};\ntemplate <>\nstruct std::hash<A> {\n};", "A"),
                ("class A::B {\n};\nstruct A f() {\n  struct B {\n  };\n}", ""),
        ]:
            with self.subTest(text=text):
                types = outline(without_literals(text)).types
                self.assertEqual([name for name, _ in types], list(names))


if __name__ == "__main__":
    unittest.main()
