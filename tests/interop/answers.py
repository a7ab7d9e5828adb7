# Owns finding in a capture whether somebody was told what it asks for again and again.
#
# It may put the blame for a job that does not end on whoever asks, so whatever is not beyond doubt
# counts as not told.
"""Answers: who has asked what of whom, what was acknowledged, and what was asked nevertheless."""

import collections

READ_RESPONSE_MIDDLE = 0x0E  # of the responses to RC the only one without an AETH
RC_END = 0x20  # the first opcode of another service
# An answer may cross the packet that is sent again for want of it, hardly several times in a row.
DEAF_TIMES = 4


def is_after(one, other):
    """Of PSNs or MSNs, which begin again after 24 bits."""
    return 0 < (one - other) & 0xFFFFFF < 1 << 23


class Answers:
    """Of RC. A way is (Packet.ends, queue pair) of requests: the ends are addresses of Ethernet and
    IP, the queue pair is the one that is asked, as no packet names the one that asks."""

    def __init__(self):
        self.last = {}  # newest PSN by way
        self.asked = collections.defaultdict(set)  # queue pairs by (ends, PSN)
        # The asking queue pair by way, as answers call it: one, if nobody is mistaken.
        self.askers = collections.defaultdict(set)
        self.went_on = set()  # ways by which something new came after an answer
        self.acknowledged = set()  # (way, PSN)
        self.in_vain = collections.Counter()  # (way, PSN) that came after its acknowledgement
        self.messages = {}  # newest MSN by (ends of requests, asking queue pair)
        self.backwards = set()  # of these, whose MSN has fallen

    def add(self, packet):
        if packet.opcode >= RC_END or packet.opcode == READ_RESPONSE_MIDDLE:
            return
        if packet.syndrome is None:
            self.add_request(packet)
        elif packet.is_acknowledgement():
            self.add_acknowledgement(packet)

    def add_request(self, packet):
        way = packet.ends, packet.queue_pair
        self.asked[packet.ends, packet.psn].add(packet.queue_pair)
        if way not in self.last or is_after(packet.psn, self.last[way]):
            self.last[way] = packet.psn
            if way in self.askers:
                self.went_on.add(way)
        if packet.wants_answer and (way, packet.psn) in self.acknowledged:
            self.in_vain[way, packet.psn] += 1

    def add_acknowledgement(self, packet):
        ends = packet.ends_of_requests()
        told = ends, packet.queue_pair
        if is_after(self.messages.get(told, packet.msn), packet.msn):
            self.backwards.add(told)
        self.messages[told] = packet.msn
        asked = self.asked.get((ends, packet.psn), set())
        if len(asked) != 1:  # of nobody, or it cannot be said of whom
            return
        way = ends, next(iter(asked))
        self.askers[way].add(packet.queue_pair)
        if packet.is_right_in_every_bit():
            self.acknowledged.add((way, packet.psn))

    def is_told(self, way):
        """Whether all answers have gone to one queue pair that has understood one of them, and make
        sense one after the other."""
        asker, *others = self.askers[way]
        return not others and way in self.went_on and (way[0], asker) not in self.backwards

    def is_deaf(self, addresses):
        """Whether somebody there has sent its last request again and again, though it had the
        acknowledgement."""
        return any(ends.source in addresses and times >= DEAF_TIMES and
                   psn == self.last[ends, queue_pair] and self.is_told((ends, queue_pair))
                   for ((ends, queue_pair), psn), times in self.in_vain.items())
