#!/usr/bin/env python3
# Owns the proof that tests/run.py calls a test by its exit code, whatever the test has printed.
"""usage: run_test.py CTEST"""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import run

CTEST = "ctest"
SAYS_SKIPPED = "echo '[  SKIPPED ] Suite.case'"
SUMMARY = "echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 1 test.'"
AS_WE_DECLARE = 'SKIP_REGULAR_EXPRESSION "a^" SKIP_RETURN_CODE 77'
AS_CMAKE_DECLARES = 'SKIP_REGULAR_EXPRESSION "[[]  SKIPPED []]"'

# name -> what the shell runs, properties
TESTS = {
    "good": ("true", ""),
    "bad": ("false", ""),
    "skips": ("echo no such device; exit 77", AS_WE_DECLARE),
    "skips_and_fails": (f"{SAYS_SKIPPED}; exit 23", AS_WE_DECLARE),
    "skips_by_its_words": (f"{SAYS_SKIPPED}; exit 23", AS_CMAKE_DECLARES),
    "skips_as_googletest": (f"{SUMMARY}; exit 77", AS_CMAKE_DECLARES),
    "leaks_as_googletest": (f"{SUMMARY}; echo ERROR: leaks; exit 23", AS_CMAKE_DECLARES),
    "disabled": ("true", "DISABLED TRUE"),
}


class RunTest(unittest.TestCase):
    def test_the_exit_code_decides(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name, (script, properties) in TESTS.items():
                lines.append(f'add_test({name} sh -c "{script}")')
                if properties:
                    lines.append(f"set_tests_properties({name} PROPERTIES {properties})")
            lines.append("add_test(missing /nonexistent/program)")
            Path(folder, "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
            junit = Path(folder, "tests.xml")
            subprocess.run([CTEST, "--output-junit", junit], cwd=folder, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                counts = run.report(xml.parse(junit).getroot().iter("testcase"), {})
        failed = [line.split()[1].rstrip(":") for line in said.getvalue().splitlines()
                  if line.startswith("FAILED ")]
        self.assertEqual(sorted(failed),
                         ["bad", "leaks_as_googletest", "missing", "skips_and_fails",
                          "skips_by_its_words"])
        self.assertEqual(counts, (1, 5, 3))
        self.assertIn("because: no such device\n  skips\n", said.getvalue())


if __name__ == "__main__":
    CTEST = sys.argv.pop(1)
    unittest.main()
