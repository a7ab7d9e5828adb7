#!/usr/bin/env python3
# Owns the proof that Linux is called deaf only where a capture leaves no doubt.
"""Made-up conversations of Linux, which asks, with ours; and real acknowledgements, so that what is
made up here and what is read there are not wrong in the same way."""

import struct
import unittest

import frames
from made_up import (FIRST, IP6S, IPS, LAST, OTHER_QP, READ, answer, ask, with_bytes,
                     with_new_icrc)

# As docs/interop.md says, whatever answers.py says.
TIMES = 4
# Of the other services that Linux has, in the upper three bits of an opcode.
UC, UD = 0x20, 0x60
READ_RESPONSE_MIDDLE = 0x0E

# By our device and by Linux 6.1, IPv4 and IPv6.
REAL = [bytes.fromhex(frame) for frame in (
    "02000a4d026502000a4d010108004500003000004000401122be0a4d01010a4d0265c5bc12b7001c00001100ffff"
    "0000002f00ffffff1f00000170293444",
    "02000a4d010102000a4d026508004500003025b140004011fd0c0a4d02650a4d0101ca0012b7001c00001100ffff"
    "0002001e00fffffe1f0000016c7f1a53",
    "02000a4d026502000a4d010186dd6000d113001c1140fd7765667400000000000afffe4d0101fd77656674000000"
    "00000afffe4d0265d11312b7001c00001100ffff00000063003e2b1e1f0000016063f75d")]

BEGIN = [ask(FIRST), answer(FIRST, 1)]
IN_VAIN = [ask(LAST)] * TIMES


def is_deaf(conversation, addresses=(IPS["Linux"],)):
    return frames.account_of(conversation).answers.is_deaf(addresses)


class AnswersTest(unittest.TestCase):
    def test_who_repeats_what_was_acknowledged_is_deaf(self):
        told = BEGIN + [ask(LAST), answer(LAST, 2)]
        self.assertTrue(is_deaf(told + IN_VAIN))
        self.assertTrue(is_deaf(told + [ask(LAST), answer(LAST, 2)] * TIMES))
        self.assertFalse(is_deaf(told + IN_VAIN[1:]))
        self.assertFalse(is_deaf(told + IN_VAIN, (IPS["ours"],)))
        told = [ask(FIRST, ips=IP6S), answer(FIRST, 1, ips=IP6S), ask(LAST, ips=IP6S),
                answer(LAST, 2, ips=IP6S)] + [ask(LAST, ips=IP6S)] * TIMES
        self.assertTrue(is_deaf(told, (IP6S["Linux"],)))

    def test_who_asks_for_no_answer_is_not(self):
        told = BEGIN + [ask(LAST), answer(LAST, 2)]
        self.assertFalse(is_deaf(told + [ask(LAST, flags=0)] * TIMES))
        self.assertFalse(is_deaf(told + IN_VAIN[1:] + [ask(LAST, flags=0)] * TIMES))
        self.assertTrue(is_deaf(told + [ask(LAST, flags=0)] + IN_VAIN))

    def test_other_services_neither_ask_nor_answer(self):
        for service in (UC, UD):
            told = [ask(LAST), answer(LAST, 2)]
            self.assertFalse(is_deaf(BEGIN + told + [ask(LAST, opcode=service | 4)] * TIMES))
            self.assertFalse(is_deaf(BEGIN + [ask(LAST), answer(LAST, 2, opcode=service | 0x11)]
                                     + IN_VAIN))
            # Neither does it take away from what is known of RC: who was answered, and what the
            # last request was.
            other = [ask(LAST, OTHER_QP, opcode=service | 4)]
            self.assertTrue(is_deaf(BEGIN + other + told + IN_VAIN))
            self.assertTrue(is_deaf(BEGIN + told + [ask(LAST + 1, opcode=service | 4)] + IN_VAIN))

    def test_data_for_the_other_side_asks_for_nothing(self):
        told = BEGIN + [ask(LAST), answer(LAST, 2)]
        self.assertFalse(is_deaf(told + [ask(LAST, opcode=READ_RESPONSE_MIDDLE)] * TIMES))
        self.assertTrue(is_deaf(told + [ask(LAST + 1, opcode=READ_RESPONSE_MIDDLE)] + IN_VAIN))

    def test_who_was_not_told_is_not(self):
        self.assertFalse(is_deaf(BEGIN + [ask(LAST)] + IN_VAIN))
        # Told only in the end, and refused.
        self.assertFalse(is_deaf(BEGIN + [ask(LAST)] + IN_VAIN + [answer(LAST, 2)]))
        for syndrome in (0x20, 0x60, 0x9F):
            self.assertFalse(is_deaf(BEGIN + [ask(LAST), answer(LAST, 2, syndrome=syndrome)]
                                     + IN_VAIN))
        # An acknowledgement of what nobody had sent yet.
        self.assertFalse(is_deaf(BEGIN + [answer(LAST, 2)] + [ask(LAST)] + IN_VAIN))

    def test_only_the_last_request_is_asked_in_vain(self):
        told = BEGIN + [ask(0), answer(0, 2)]
        self.assertFalse(is_deaf(told + [ask(LAST)] + [ask(0)] * TIMES))
        self.assertFalse(is_deaf(told + [ask(LAST, opcode=READ)] + [ask(0)] * TIMES))
        # What went by another way does not count.
        self.assertTrue(is_deaf(told + [ask(LAST, OTHER_QP)] + [ask(0)] * TIMES))

    def test_the_answer_has_to_go_to_the_queue_pair_that_asks(self):
        self.assertFalse(is_deaf(BEGIN + [ask(LAST), answer(LAST, 2, OTHER_QP)] + IN_VAIN))
        # It went there always, and nobody has gone on.
        self.assertFalse(is_deaf([ask(LAST), answer(LAST, 1, OTHER_QP)] + IN_VAIN))
        # Two queue pairs have asked with this PSN: it cannot be said which one was answered.
        self.assertFalse(is_deaf(BEGIN + [ask(LAST, OTHER_QP), ask(LAST), answer(LAST, 2)]
                                 + IN_VAIN))
        # Another queue pair was told.
        self.assertFalse(is_deaf(BEGIN + [ask(LAST, OTHER_QP), answer(LAST, 1, OTHER_QP)]
                                 + IN_VAIN))

    def test_the_answer_has_to_go_to_the_address_that_asks(self):
        for at in (0, 6):  # to and from, of Ethernet
            moved = with_bytes(answer(LAST, 2), at, bytes.fromhex("02000a4d02ff"))
            self.assertFalse(is_deaf(BEGIN + [ask(LAST), moved] + IN_VAIN))
        elsewhere = answer(LAST, 2, ips={**IPS, "Linux": "10.77.2.102"})
        self.assertFalse(is_deaf(BEGIN + [ask(LAST), elsewhere] + IN_VAIN))
        elsewhere = answer(LAST, 2, ips={**IPS, "ours": "10.77.1.2"})
        self.assertFalse(is_deaf(BEGIN + [ask(LAST), elsewhere] + IN_VAIN))

    def test_an_answer_that_is_wrong_in_a_bit_is_none(self):
        good = answer(LAST, 2)
        self.assertTrue(is_deaf(BEGIN + [ask(LAST), good] + IN_VAIN))
        wrong = {
            "ICRC": with_bytes(good, len(good) - 1, bytes([good[-1] ^ 1])),
            "checksum of IPv4": with_bytes(good, 24, bytes([good[24] ^ 1])),
            "checksum of UDP": with_bytes(good, 40, b"\0\1"),
            "length of UDP": with_new_icrc(with_bytes(good, 38, b"\0\x1d")),
            "padding": with_new_icrc(with_bytes(good, 43, b"\x10")),
            "P_Key": with_new_icrc(with_bytes(good, 44, b"\x7f\xff")),
            # A fragment, whose checksum is right: as much as is added here is taken off there.
            "fragment": with_new_icrc(with_bytes(
                with_bytes(good, 20, b"\x60"), 24, struct.pack(
                    "!H", (int.from_bytes(good[24:26], "big") - 0x2000) % 0xFFFF))),
            "the last fragment, eight bytes on": with_new_icrc(with_bytes(
                with_bytes(good, 21, b"\x01"), 24, struct.pack(
                    "!H", (int.from_bytes(good[24:26], "big") - 1) % 0xFFFF))),
        }
        for what, frame in wrong.items():
            self.assertFalse(is_deaf(BEGIN + [ask(LAST), frame] + IN_VAIN), what)

    def test_messages_are_never_counted_backwards(self):
        self.assertFalse(is_deaf(BEGIN + [ask(0), answer(0, 3), ask(LAST), answer(LAST, 2)]
                                 + IN_VAIN))
        self.assertFalse(is_deaf(BEGIN + [ask(LAST), answer(LAST, 0)] + IN_VAIN))
        around = [ask(FIRST), answer(FIRST, 0xFFFFFF), ask(LAST), answer(LAST, 0)]
        self.assertTrue(is_deaf(around + IN_VAIN))


class PacketTest(unittest.TestCase):
    def test_real_acknowledgements_are_right(self):
        for frame in REAL:
            packet = frames.Packet(frame, *frames.roce_of(frame))
            self.assertTrue(packet.is_acknowledgement())
            self.assertTrue(packet.is_right_in_every_bit())
            self.assertEqual(packet.msn, 1)

    def test_no_bit_of_them_may_change_that_their_receiver_reads(self):
        for frame in REAL:
            ip, udp = frames.roce_of(frame)
            # What a router may change is covered by no ICRC, and in IPv6 by nothing.
            free = set() if udp == 20 else {0, 1, 2, 3, 7}
            free |= {udp + 12}  # FECN and BECN
            for at in set(range(len(ip))) - free:
                for bit in range(8):
                    changed = with_bytes(frame, 14 + at, bytes([ip[at] ^ 1 << bit]))
                    found = frames.roce_of(changed)
                    self.assertFalse(found and frames.Packet(changed, *found)
                                     .is_right_in_every_bit(), (at, bit))

    def test_a_checksum_of_udp_counts_where_there_is_one(self):
        for frame in REAL:
            ip, udp = frames.roce_of(frame)
            addresses = ip[12:20] if udp == 20 else ip[8:40]
            total = frames.sum_of_words(addresses + struct.pack("!HH", 17, 28) + ip[udp:])
            for error in (0, 1):
                checksum = (0xFFFF - total - error).to_bytes(2, "big")
                changed = with_bytes(frame, 14 + udp + 6, checksum)
                packet = frames.Packet(changed, *frames.roce_of(changed))
                self.assertEqual(packet.is_right_in_every_bit(), error == 0)


if __name__ == "__main__":
    unittest.main()
