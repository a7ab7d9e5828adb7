#!/usr/bin/env python3
# Owns the proof that judge.py excuses what was lost on the way, and nothing else.
import re
import unittest
from pathlib import Path

import frames
import judge
from cases import REFUSALS, Case, all_cases
from judge import Drops, End

OURS, LINUX = "10.77.1.1", "10.77.2.101"
CASE = Case("case", "server", "client", says="all right")
UNRELIABLE = Case("case", "server", "client", unreliable=True)
REFUSES = Case("reject", "", "client", codes=range(1, 256))
WELL, HANGS = (0, "all right"), (None, "")
# As libibverbs and perftest say it.
REPEATED = "transport retry counter exceeded"
FAILS, GIVES_UP = (1, "no memory"), (1, f"12: {REPEATED}")

# Each reason for which weft drops a frame, and what it says of a job. They are written out here: a
# new one has to be judged before this test passes again.
LOST = {"not_receiving", "network_full", "queue_full", "link_down", "loss", "burst", "grey",
        "host_paused"}
LATE = {"no_process"}
WRONG = {"malformed", "wrong_source", "no_nic", "corrupted", "oversize", "no_route"}
ROOT = Path(__file__).resolve().parents[2]


def drops(lost_out=0, dropped_in=0, unproved_in=0, **dropped):
    """As weft counts them after frames were lost for these reasons."""
    port = {"lost_out": lost_out, "dropped_in": dropped_in, "unproved_in": unproved_in,
            "dropped": sum(dropped.values())}
    return Drops({"ports": [port], "counters": {"dropped": dropped}})


def names_in(source, kind):
    """What its to_string() gives for each member of that enumeration."""
    text = (ROOT / source).read_text(encoding="utf-8")
    body = re.search(rf"^const char\* to_string\({kind} \w+\) {{$(.*?)^}}$", text,
                     re.DOTALL | re.MULTILINE)[1]
    named = dict(re.findall(rf'case {kind}::(\w+):\s*return "(\w+)";', body))
    assert len(named) == body.count("case ") > 0, f"{source} is not read right"
    return set(named.values())


class DropsTest(unittest.TestCase):
    def test_each_reason_that_weft_has_is_judged(self):
        self.assertEqual(names_in("emu/daemon/switchboard.cpp", "FrameDrop")
                         | names_in("emu/fabric/fabric.cpp", "LossReason"), LOST | LATE | WRONG)
        self.assertEqual(judge.LOST, LOST)
        self.assertEqual(judge.LATE, LATE)

    def test_what_the_network_loses_is_lost(self):
        for reason in sorted(LOST) + ["lost_out"]:
            before, after = drops(**{reason: 3}), drops(**{reason: 5})
            self.assertEqual(after.lost_since(before), 2, reason)
            self.assertEqual(after.wrong_since(before, 0), [], reason)

    def test_what_comes_to_an_ended_program_is_neither_lost_nor_wrong(self):
        before, after = drops(no_process=1, loss=7), drops(no_process=9, loss=7)
        self.assertEqual(after.lost_since(before), 0)
        self.assertEqual(after.wrong_since(before, 0), [])

    def test_what_nobody_should_have_sent_is_wrong_and_excuses_nothing(self):
        # One that weft does not have yet is wrong until somebody says what it means.
        for reason in sorted(WRONG) + ["dropped_in", "unproved_in", "to_be_invented"]:
            before, after = drops(), drops(**{reason: 2})
            self.assertEqual(after.lost_since(before), 0, reason)
            self.assertEqual(after.wrong_since(before, 0),
                             [f"weft has dropped 2 frames: {reason}"])

    def test_what_came_before_is_not_counted(self):
        before = drops(wrong_source=4, no_nic=5, loss=6, lost_out=7)
        self.assertEqual(before.lost_since(before), 0)
        self.assertEqual(before.wrong_since(before, 0), [])

    def test_a_kernel_may_report_to_routers_that_are_not_there(self):
        before, after = drops(no_nic=5), drops(no_nic=7)
        self.assertEqual(after.wrong_since(before, 2), [])
        self.assertEqual(after.wrong_since(before, 3), [])
        self.assertEqual(after.wrong_since(before, 1), ["weft has dropped 1 frames: no_nic"])
        self.assertEqual(drops(oversize=1).wrong_since(drops(), 9),
                         ["weft has dropped 1 frames: oversize"])

    def test_the_ports_of_a_network_are_added_up(self):
        port = {"lost_out": 2, "dropped_in": 1, "unproved_in": 0}
        after = Drops({"ports": [port, port], "counters": {"dropped": {}}})
        self.assertEqual(after.lost_since(drops()), 4)
        self.assertEqual(after.wrong_since(drops(), 0), ["weft has dropped 2 frames: dropped_in"])


class EndsTest(unittest.TestCase):
    def verdict(self, client, server, lost=0, case=CASE, is_deaf=False, asker="ours"):
        """The kind of failure; None if there is none."""
        answerer = {"ours": "Linux", "Linux": "ours"}[asker]
        try:
            judge.judge_ends(case, End(asker, *client), server and End(answerer, *server), lost,
                             is_deaf, "what was said")
        except judge.Failure as failure:
            self.assertIn("what was said", str(failure))
            return type(failure)
        return None

    def test_both_have_to_end_well(self):
        self.assertIsNone(self.verdict(WELL, WELL))
        self.assertIsNone(self.verdict(WELL, WELL, lost=1))
        for client, server in ((FAILS, WELL), (WELL, FAILS), (FAILS, FAILS), (HANGS, FAILS),
                               ((0, "nothing of it"), WELL)):
            for lost in (0, 1):
                self.assertIs(self.verdict(client, server, lost), judge.Failure)

    def test_a_last_word_is_excused_by_a_lost_frame_only(self):
        for client, server, asker in ((WELL, HANGS, "ours"), (HANGS, WELL, "Linux"),
                                      (WELL, GIVES_UP, "ours"), (GIVES_UP, WELL, "ours"),
                                      (WELL, GIVES_UP, "Linux"), (GIVES_UP, WELL, "Linux")):
            self.assertIs(self.verdict(client, server, lost=0, asker=asker), judge.Failure)
            self.assertIs(self.verdict(client, server, lost=1, asker=asker), judge.LastWordLost)

    def test_who_gives_up_is_excused_only_beside_one_that_has_ended_well(self):
        said = (0, f"all right, and once: {REPEATED}")
        for asker in ("ours", "Linux"):
            self.assertIsNone(self.verdict(said, WELL, lost=1, asker=asker))
            self.assertIsNone(self.verdict(WELL, said, lost=1, asker=asker))
            for client, server in ((GIVES_UP, FAILS), (FAILS, GIVES_UP), (GIVES_UP, GIVES_UP),
                                   (said, FAILS), (FAILS, said)):
                self.assertIs(self.verdict(client, server, lost=1, asker=asker), judge.Failure)
            # Words that are nearly the same say something else.
            for words in ("RNR retry counter exceeded", "transport retry counter", "exceeded"):
                for ends in (((1, words), WELL), (WELL, (1, words))):
                    self.assertIs(self.verdict(*ends, lost=1, asker=asker), judge.Failure)

    def test_ours_gives_up_and_does_not_hang(self):
        for client, server, asker in ((WELL, HANGS, "Linux"), (HANGS, WELL, "ours")):
            self.assertIs(self.verdict(client, server, lost=1, asker=asker), judge.Failure)
            self.assertIs(self.verdict(client, server, lost=1, asker=asker, case=UNRELIABLE),
                          judge.LastWordLost)

    def test_both_may_wait_only_if_nobody_sends_again_and_a_frame_was_lost(self):
        self.assertIs(self.verdict(HANGS, HANGS, lost=1), judge.Failure)
        self.assertIs(self.verdict(HANGS, HANGS, lost=0, case=UNRELIABLE), judge.Failure)
        self.assertIs(self.verdict(HANGS, HANGS, lost=1, case=UNRELIABLE), judge.MessageLost)
        for one, other in ((HANGS, FAILS), (HANGS, GIVES_UP)):
            for asker in ("ours", "Linux"):
                for ends in ((one, other), (other, one)):
                    self.assertIs(self.verdict(*ends, lost=1, case=UNRELIABLE, asker=asker),
                                  judge.Failure)

    def test_linux_is_deaf_only_if_it_is_the_one_that_does_not_end(self):
        deaf = {"is_deaf": True}
        self.assertIs(self.verdict(HANGS, WELL, asker="Linux", **deaf), judge.LastWordIgnored)
        self.assertIs(self.verdict(WELL, HANGS, asker="ours", **deaf), judge.LastWordIgnored)
        for client, server, asker in ((HANGS, WELL, "ours"), (WELL, HANGS, "Linux"),
                                      (HANGS, HANGS, "Linux"), (HANGS, FAILS, "Linux"),
                                      (GIVES_UP, WELL, "Linux"), (FAILS, WELL, "Linux")):
            self.assertIs(self.verdict(client, server, asker=asker, **deaf), judge.Failure)

    def test_a_client_without_a_server_is_never_excused(self):
        self.assertIsNone(self.verdict(FAILS, None, case=REFUSES))
        for end in (WELL, HANGS):
            self.assertIs(self.verdict(end, None, lost=1, case=REFUSES), judge.Failure)


class WordsTest(unittest.TestCase):
    WORD = "disconnected without having been established"
    CASE = Case("case", "server", "client", if_lost=WORD)

    def wrong(self, client, server, case=CASE, lost=0, lossy=False):
        return judge.wrong_words(case, (End("ours", 0, client), server), lost, lossy)

    def test_what_is_said_of_a_lost_frame_needs_one(self):
        said, nothing = End("Linux", 0, f"fine\n{self.WORD}\nfine\n"), End("Linux", 0, "fine")
        self.assertEqual(self.wrong("fine", said),
                         [f"Linux says '{self.WORD}', but no frame was lost"])
        self.assertEqual(len(self.wrong(self.WORD, nothing)), 1)
        self.assertEqual(self.wrong("fine", nothing), [])
        self.assertEqual(self.wrong("fine", None), [])
        self.assertEqual(self.wrong("fine", said, lost=1), [])
        self.assertEqual(self.wrong("fine", said, lossy=True), [])
        self.assertEqual(self.wrong("fine", said, case=CASE), [])

    def test_the_jobs_wait_for_what_the_program_says(self):
        program = Path(__file__).with_name("connections.py").read_text(encoding="utf-8")
        cases = [case for case in all_cases("", False) if case.name.startswith("connections")]
        self.assertEqual(len(cases), 2)
        for case in cases:
            self.assertIn(f'NEVER_ESTABLISHED = "{case.if_lost}"\n', program)


class NaksTest(unittest.TestCase):
    def wrong(self, naks, gaps=0, asked_for=()):
        account = frames.Account()
        account.naks.update(naks)
        return judge.wrong_naks(account, set(asked_for), {OURS}, {LINUX}, gaps)

    def test_each_gap_needs_a_lost_frame(self):
        gaps = {(OURS, frames.GAP): 2, (LINUX, frames.GAP): 1}
        self.assertEqual(self.wrong(gaps, 3), [])
        self.assertEqual(self.wrong(gaps, 2),
                         ["3 answers 'PSN sequence error', but 2 frames were lost"])
        self.assertEqual(len(self.wrong({(LINUX, frames.GAP): 1}, 0)), 1)

    def test_only_linux_reports_a_gap_behind_not_ready(self):
        self.assertEqual(self.wrong({(LINUX, frames.FALSE_GAP): 9}), [])
        self.assertEqual(len(self.wrong({(OURS, frames.FALSE_GAP): 1}, 9)), 1)

    def test_a_refusal_is_the_servers_to_give_where_it_is_asked_for(self):
        refusal = "invalid request"
        self.assertEqual(self.wrong({(OURS, refusal): 1}, asked_for=[refusal]), [])
        self.assertEqual(self.wrong({(LINUX, refusal): 1}, asked_for=[refusal]),
                         [f"{LINUX} answers 'invalid request' 1 times"])
        self.assertEqual(len(self.wrong({(OURS, refusal): 1})), 1)
        self.assertEqual(self.wrong({(OURS, "receiver not ready"): 5}), [])
        # None of them is right by itself, nor one that has no name.
        for name in sorted(REFUSALS) + ["invalid RD request", "code 5"]:
            for source in (OURS, LINUX):
                self.assertEqual(self.wrong({(source, name): 1}, 9),
                                 [f"{source} answers '{name}' 1 times"])


class AgainTest(unittest.TestCase):
    def test_without_a_lossy_network_two_jobs_may_be_tried_again(self):
        self.assertEqual(judge.too_many_again(["a", "b", "a", "b"], False), [])
        self.assertEqual(judge.too_many_again(["a", "b", "c"], False),
                         ["3 jobs were run again without a lossy network: a; b; c"])
        self.assertEqual(judge.too_many_again(["a", "b", "c"], True), [])


class ReportsTest(unittest.TestCase):
    def test_reports_to_routers_are_counted(self):
        report = frames.MULTICAST_ROUTERS + bytes.fromhex("02000a4d026586dd") + bytes(76)
        other = bytes.fromhex("33330000000202000a4d026586dd") + bytes(76)
        self.assertEqual(frames.account_of([report, other, report]).reports, 2)


if __name__ == "__main__":
    unittest.main()
