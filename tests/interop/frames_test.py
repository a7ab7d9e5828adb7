#!/usr/bin/env python3
# Owns the proof that frames.py finds what is wrong in a frame, and calls refusals by their names.
import struct
import unittest

import frames
from made_up import (IP6S, IPS, LAST, LINUX_QP, OTHER_QP, OUR_QP, answer, ask, bth, frame_of,
                     with_bytes, with_new_icrc)

OURS, LINUX = IPS["ours"], IPS["Linux"]
# Opcodes of RC with an AETH: first, last and only packet of a READ's response, acknowledgements of
# ATOMICs and of everything else.
ANSWERS = (0x0D, 0x0F, 0x10, 0x11, 0x12)
# Syndromes: RNR NAK with a timer, NAK of a gap.
NOT_READY, GAP = 0x2C, 0x60


def nak(syndrome, psn=LAST, side="Linux", queue_pair=OUR_QP, opcode=0x11):
    """By that side, to a queue pair of the other one."""
    other = "ours" if side == "Linux" else "Linux"
    return frame_of(side, other, bth(opcode, queue_pair, psn)
                    + (syndrome << 24 | 1).to_bytes(4, "big"))


def naks(*captured):
    return dict(frames.account_of(captured).naks)


class NaksTest(unittest.TestCase):
    def test_each_code_has_its_name(self):
        # IBTA volume 1, codes of NAKs in an AETH.
        for code, name in enumerate(("PSN sequence error", "invalid request",
                                     "remote access error", "remote operational error",
                                     "invalid RD request", "code 5")):
            self.assertEqual(naks(nak(0x60 | code)), {(LINUX, name): 1})
        self.assertEqual(naks(nak(0x7F)), {(LINUX, "code 31"): 1})

    def test_receivers_that_are_not_ready_may_say_for_how_long(self):
        for timer in (0, 1, 12, 31):
            self.assertEqual(naks(nak(0x20 | timer)), {(LINUX, "receiver not ready"): 1})

    def test_nothing_else_is_a_nak(self):
        for kind in (0, 2, 4, 5, 6, 7):
            for code in (0, 1, 2, 31):
                self.assertEqual(naks(nak(kind << 5 | code)), {})
        self.assertEqual(naks(ask(0x600000), answer(LAST, 0x61)), {})

    def test_naks_are_counted_by_who_sends_them(self):
        seen = [nak(0x61), nak(0x61, side="ours", queue_pair=LINUX_QP), nak(0x61, LAST + 1)]
        account = frames.account_of(seen)
        self.assertEqual(account.naks, {(LINUX, "invalid request"): 2,
                                        (OURS, "invalid request"): 1})
        both = frames.Account()
        both.take_in(account)
        both.take_in(account)
        self.assertEqual(both.naks[LINUX, "invalid request"], 4)


class FalseGapTest(unittest.TestCase):
    FALSE, TRUE = "PSN sequence error behind receiver not ready", "PSN sequence error"

    def gaps(self, *captured):
        """(false ones, true ones)"""
        found = frames.account_of(captured).naks
        return tuple(sum(count for (_, name), count in found.items() if name == wanted)
                     for wanted in (self.FALSE, self.TRUE))

    def test_a_gap_at_the_packet_that_is_to_come_again_is_false(self):
        self.assertEqual(naks(nak(NOT_READY), nak(GAP), nak(GAP)),
                         {(LINUX, "receiver not ready"): 1, (LINUX, self.FALSE): 2})
        # Whose fault that is, judge.py says.
        self.assertEqual(naks(*(nak(syndrome, side="ours") for syndrome in (NOT_READY, GAP))),
                         {(OURS, "receiver not ready"): 1, (OURS, self.FALSE): 1})

    def test_a_gap_elsewhere_is_true(self):
        for psn in (LAST - 1, LAST + 1, LAST + 0x10000):
            self.assertEqual(self.gaps(nak(NOT_READY), nak(GAP, psn)), (0, 1))
        self.assertEqual(self.gaps(nak(GAP)), (0, 1))
        self.assertEqual(self.gaps(nak(GAP), nak(NOT_READY)), (0, 1))
        # The newest one counts.
        self.assertEqual(self.gaps(nak(NOT_READY), nak(NOT_READY, LAST + 4), nak(GAP)), (0, 1))
        self.assertEqual(self.gaps(nak(NOT_READY), nak(NOT_READY, LAST + 4), nak(GAP, LAST + 4)),
                         (1, 0))

    def test_the_gap_has_to_be_told_by_the_same_one_to_the_same_queue_pair(self):
        self.assertEqual(self.gaps(nak(NOT_READY, queue_pair=OTHER_QP), nak(GAP)), (0, 1))
        self.assertEqual(self.gaps(nak(NOT_READY), nak(GAP, queue_pair=OTHER_QP)), (0, 1))
        self.assertEqual(self.gaps(nak(NOT_READY, side="ours"), nak(GAP)), (0, 1))
        # One is not forgotten for what another one is told.
        self.assertEqual(self.gaps(nak(NOT_READY), nak(NOT_READY, LAST + 4, queue_pair=OTHER_QP),
                                   nak(NOT_READY, LAST + 8, side="ours"), nak(GAP)), (1, 0))

    def test_only_a_receiver_that_is_not_ready_makes_a_gap_false(self):
        for syndrome in (0x1F, 0x61, 0x40):
            self.assertEqual(self.gaps(nak(syndrome), nak(GAP)), (0, 1))


class FramesTest(unittest.TestCase):
    def test_each_frame_with_a_wrong_icrc_is_kept(self):
        for good in (ask(LAST), ask(LAST, ips=IP6S), answer(LAST, 1), answer(LAST, 1, ips=IP6S),
                     nak(0x61)):
            wrong = with_bytes(good, len(good) - 5, bytes([good[-5] ^ 1]))
            account = frames.account_of([good, wrong, good, wrong[:-1] + b"\0"])
            self.assertEqual(account.wrong_icrc, [wrong.hex(), (wrong[:-1] + b"\0").hex()])
            self.assertEqual(account.frames, 4)
            both = frames.Account()
            both.take_in(account)
            self.assertEqual(both.wrong_icrc, account.wrong_icrc)
            self.assertIn("2 with a wrong ICRC", str(both))

    def test_answers_have_an_aeth_and_requests_have_none(self):
        for opcode in range(0x20):
            frame = frame_of("ours", "Linux", bth(opcode, LINUX_QP, LAST)
                             + struct.pack("!I", 0x1F000003))
            packet = frames.Packet(frame, *frames.roce_of(frame))
            self.assertEqual((packet.syndrome, packet.msn),
                             (0x1F, 3) if opcode in ANSWERS else (None, None), hex(opcode))

    def test_no_answer_of_linux_is_taken_for_its_request(self):
        for opcode in ANSWERS:
            self.assertEqual(frames.account_of([nak(0x1F, opcode=opcode)]).answers.last, {})
        self.assertEqual(len(frames.account_of([ask(LAST)]).answers.last), 1)

    def test_a_fragment_is_not_right(self):
        good = answer(LAST, 1)
        for flags in (0x4001, 0x6000, 0x2000, 0x0100, 0x0001, 0x00FF):
            changed = with_bytes(good, 20, flags.to_bytes(2, "big") + good[22:24] + b"\0\0")
            total = 0xFFFF - frames.sum_of_words(changed[14:34])
            changed = with_new_icrc(with_bytes(changed, 24, total.to_bytes(2, "big")))
            packet = frames.Packet(changed, *frames.roce_of(changed))
            self.assertTrue(packet.has_right_checksums() and packet.has_right_icrc())
            self.assertFalse(packet.is_right_in_every_bit(), hex(flags))


if __name__ == "__main__":
    unittest.main()
