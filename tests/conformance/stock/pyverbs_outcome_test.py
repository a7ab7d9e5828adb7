#!/usr/bin/env python3
# Owns the proof that no module of rdma-core's tests that failed, or ran nothing, counts as passed.
import unittest

from pyverbs_rxe import outcome


def counts(code, text):
    got = outcome(code, text)
    return got.passed, got.failed, got.skipped


class Outcomes(unittest.TestCase):
    def test_of_modules_that_come_to_their_end(self):
        self.assertEqual(counts(0, "Ran 3 tests in 0.1s\n\nOK\n"), (3, 0, 0))
        self.assertEqual(counts(0, "Ran 3 tests in 0.1s\n\nOK (skipped=2)\n"), (1, 0, 2))
        self.assertEqual(counts(1, "Ran 9 tests in 2s\n\nFAILED (failures=1, errors=2, skipped=3)"),
                         (3, 3, 3))
        self.assertEqual(counts(0, "Ran 4 tests in 2s\n\nOK (skipped=1, expected failures=2)"),
                         (3, 0, 1))
        self.assertEqual(counts(1, "Ran 2 tests in 2s\n\nFAILED (unexpected successes=1)"),
                         (1, 1, 0))

    def test_whatever_the_processes_of_the_tests_write_between(self):
        text = ("test_a ... Process Process-2:\nTraceback\nERROR\ntest_b ... noise\n"
                "skipped 'no such device'\nRan 3 tests in 0.1s\n\n")
        self.assertEqual(counts(1, text + "noise FAILED (errors=1, skipped=1)\n"), (1, 1, 1))

    def test_of_modules_that_do_not(self):
        self.assertEqual(counts(0, ""), (0, 1, 0))
        self.assertEqual(counts(139, "test_a ... ok\n"), (0, 1, 0))
        self.assertEqual(counts(124, "Ran 3 tests in 0.1s\n"), (0, 1, 0))
        self.assertEqual(counts(134, "Ran 3 tests in 0.1s\n\nOK\n"), (3, 1, 0))

    def test_where_more_fails_than_ran(self):
        self.assertEqual(counts(1, "Ran 1 test in 0.1s\n\nFAILED (errors=2)\n"), (0, 2, 0))
        self.assertEqual(counts(0, "Ran 0 tests in 0.1s\n\nOK (skipped=1)\n"), (0, 0, 1))

    def test_reasons(self):
        text = "test_a ... skipped 'no ODP'\ntest_b ... skipped \"no ODP\"\nRan 2 tests in 1s\n\nOK"
        self.assertEqual(outcome(0, text).why, {"no ODP": 2})


if __name__ == "__main__":
    unittest.main()
