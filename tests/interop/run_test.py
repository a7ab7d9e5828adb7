#!/usr/bin/env python3
# Owns the proof that interop.py judges a job by what happens during it, and says all that is wrong.
"""A Suite without a network and a guest: its jobs, counts and frames are made up."""

import contextlib
import io
import unittest

import frames
import interop
import judge
from cases import Case
from made_up import FIRST, IP6S, IPS, LAST, LINUX_QP, answer, ask, bth, frame_of

REPORT = frames.MULTICAST_ROUTERS + bytes.fromhex("02000a4d026586dd") + bytes(76)
WRONG_ICRC = ask(LAST)[:-1] + bytes([ask(LAST)[-1] ^ 1])
REFUSED = frame_of("ours", "Linux", bth(0x11, LINUX_QP, LAST) + bytes.fromhex("61000001"))
GAP = frame_of("ours", "Linux", bth(0x11, LINUX_QP, LAST) + bytes.fromhex("60000001"))
BEGIN, TOLD = [ask(FIRST), answer(FIRST, 1)], [ask(LAST), answer(LAST, 2)]
IN_VAIN = [ask(LAST)] * 4
CASE = Case("case", "server", "client", says="all right")
REFUSES = Case("refuses", "server", "client", says="all right", naks=["invalid request"])
WELL, HANGS = (0, "all right"), (None, "still waiting")


class MadeUp(interop.Suite):
    """`counts`: what weft has dropped, each time that it is asked, and the frames that the capture
    gains right behind that; `jobs`: how the client (Linux) and the server (ours) end."""

    class Side:
        def __init__(self, name):
            self.name = name

    def __init__(self, counts, jobs):  # pylint: disable=super-init-not-called
        self.counts, self.jobs = list(counts), list(jobs)
        self.lossy, self.again, self.captured = False, [], []
        self.ip, self.ip6 = IPS, IP6S
        self.account, self.capture = frames.Account(), self

    def new_frames(self):
        new, self.captured = self.captured, []
        return new

    def drops(self):
        dropped, self.captured = self.counts.pop(0)
        return judge.Drops({"ports": [], "counters": {"dropped": dropped}})

    def run_programs(self, case, server, client):
        ends = self.jobs.pop(0)
        return (judge.End("Linux", *ends[0]), judge.End("ours", *ends[1])), f"told: {ends}"

    def play(self, case=CASE):
        """What the job's failure says, "" if there is none. All that was made up has to be used."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self.run_until_heard("job", case, self.Side("ours"), self.Side("Linux"))
            said = ""
        except judge.Failure as failure:
            said = str(failure)
        assert not (self.counts or self.jobs or self.captured)
        return said


def play(*counts, ends=(WELL, WELL), case=CASE):
    return MadeUp(counts, [ends]).play(case)


class RunTest(unittest.TestCase):
    def test_a_report_during_a_job_excuses_one_drop(self):
        self.assertEqual(play(({}, []), ({"no_nic": 1}, [REPORT])), "")
        self.assertEqual(play(({}, []), ({"no_nic": 2}, [REPORT])),
                         "weft has dropped 1 frames: no_nic")

    def test_a_report_before_a_job_excuses_none(self):
        # It came while weft was asked, so that is asked again, and has counted it.
        for first in ({}, {"no_nic": 1}):
            self.assertEqual(play((first, [REPORT]), ({"no_nic": 1}, []), ({"no_nic": 1}, [])), "")
            self.assertEqual(play((first, [REPORT]), ({"no_nic": 1}, []), ({"no_nic": 2}, [])),
                             "weft has dropped 1 frames: no_nic")

    def test_what_was_captured_before_a_job_has_to_be_right(self):
        self.assertIn("ICRC wrong", play(({}, [WRONG_ICRC]), ({}, [])))
        self.assertIn("ICRC wrong", play(({}, [WRONG_ICRC, REPORT]), ({}, []), ({}, [])))
        self.assertIn("ICRC wrong", play(({}, []), ({}, [WRONG_ICRC])))
        self.assertIn("'invalid request' 1 times", play(({}, [REFUSED]), ({}, [])))

    def test_what_was_captured_before_a_job_is_not_of_it(self):
        self.assertEqual(play(({}, []), ({}, [REFUSED]), case=REFUSES), "")
        self.assertEqual(play(({}, [REFUSED]), ({}, []), case=REFUSES),
                         "nobody answers 'invalid request'")
        # A frame that was lost before is not counted.
        self.assertEqual(play(({"loss": 1}, [GAP]), ({"loss": 1}, [])), "")
        self.assertIn("0 frames were lost", play(({"loss": 1}, []), ({"loss": 1}, [GAP])))
        deaf = MadeUp([({}, []), ({}, BEGIN + TOLD + IN_VAIN), ({}, []), ({}, [])],
                      [(HANGS, WELL), (WELL, WELL)])
        self.assertEqual((deaf.play(), deaf.again), ("", ["job"]))
        self.assertIn("exit codes", play(({}, BEGIN + TOLD), ({}, IN_VAIN), ends=(HANGS, WELL)))

    def test_who_is_excused_is_tried_again_twice(self):
        lost = [({"loss": count}, []) for count in (0, 1, 1, 2, 2, 3)]
        twice = MadeUp(lost, [(HANGS, WELL)] * 2 + [(WELL, WELL)])
        self.assertEqual((twice.play(), twice.again), ("", ["job"] * 2))
        thrice = MadeUp(lost, [(HANGS, WELL)] * 3)
        self.assertEqual((thrice.play(), thrice.again), (f"told: {(HANGS, WELL)}", ["job"] * 2))

    def test_what_is_wrong_is_said_beside_how_the_programs_end(self):
        for lost, code in (({"loss": 1}, ""), ({}, "exit codes: client None, server 0\n")):
            suite = MadeUp([({}, []), (lost, [WRONG_ICRC])], [(HANGS, WELL)])
            self.assertEqual(suite.play(), f"ICRC wrong in a frame: {WRONG_ICRC.hex()}\n"
                                           f"{code}told: {(HANGS, WELL)}")
            self.assertEqual(suite.again, [])

    def test_an_excused_job_may_not_have_come_to_its_refusals(self):
        suite = MadeUp([({}, []), ({"loss": 1}, []), ({"loss": 1}, []), ({"loss": 1}, [REFUSED])],
                       [(HANGS, WELL), (WELL, WELL)])
        self.assertEqual((suite.play(REFUSES), suite.again), ("", ["job"]))


if __name__ == "__main__":
    unittest.main()
