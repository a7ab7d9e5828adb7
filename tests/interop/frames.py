# Owns reading RoCEv2 out of a capture, without a line in common with what weft decodes by.
#
# A mistake that weft makes in the same way when it writes and when it reads would stay unseen
# between two wefts. Here frames are read by the specification alone (IBTA volume 1, annex A17).
"""Frame by frame: checks every ICRC, and counts what the two sides have told each other."""

import collections
import socket
import struct
import zlib

ROCE_PORT = 4791
# Opcodes of RC, in the lower five bits. With 0x0D, 0x0F and 0x10, the first, last and only packet
# of a READ's response, these are the packets that carry an AETH.
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12
NOT_READY, GAP = "receiver not ready", "PSN sequence error"
# After an RNR NAK nothing is to be said until that packet comes again; Linux reports the packets
# behind it as a gap.
FALSE_GAP = "PSN sequence error behind receiver not ready"
# An answer may cross the packet that is sent again for want of it, hardly several times in a row.
DEAF_TIMES = 4
NAKS = {0: GAP, 1: "invalid request", 2: "remote access error",
        3: "remote operational error", 4: "invalid RD request"}


# Ethernet address of all routers of multicast (RFC 3810), to whom a kernel says what it listens to.
MULTICAST_ROUTERS = bytes.fromhex("333300000016")


class Capture:
    """The frames of a pcap file that another program is still writing."""

    # Bytes of the file's header, and in front of each frame.
    HEADER, RECORD = 24, 16

    def __init__(self, path):
        self.file = open(path, "rb")  # pylint: disable=consider-using-with
        self.order = None
        self.rest = b""

    def new_frames(self):
        """Those that have come since the last call."""
        data = self.rest + self.file.read()
        at = 0
        # The first bytes of the file tell its byte order, and whether times are in micro- or
        # nanoseconds.
        if self.order is None:
            if len(data) < self.HEADER:
                self.rest = data
                return
            self.order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
            at = self.HEADER
        while at + self.RECORD <= len(data):
            captured, = struct.unpack_from(self.order + "I", data, at + 8)
            end = at + self.RECORD + captured
            # The writer is in the middle of this frame.
            if end > len(data):
                break
            yield data[at + self.RECORD:end]
            at = end
        self.rest = data[at:]

    def close(self):
        self.file.close()


def ip_of(frame):
    """The IP packet in an Ethernet frame, without padding; None if it is no UDP over IP."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and len(frame) >= 34 and frame[14] == 0x45 and frame[23] == 17:
        return frame[14:14 + int.from_bytes(frame[16:18], "big")]
    if kind == b"\x86\xdd" and len(frame) >= 54 and frame[20] == 17:
        return frame[14:54 + int.from_bytes(frame[18:20], "big")]
    return None


def roce_of(frame):
    """(IP packet, where its UDP header begins) of a RoCEv2 frame, or None."""
    ip = ip_of(frame)
    if ip is None:
        return None
    udp = 20 if ip[0] >> 4 == 4 else 40
    # UDP header, BTH, ICRC.
    if len(ip) < udp + 8 + 12 + 4 or int.from_bytes(ip[udp + 2:udp + 4], "big") != ROCE_PORT:
        return None
    return ip, udp


def source_of(ip, udp):
    return (socket.inet_ntop(socket.AF_INET, ip[12:16]) if udp == 20 else
            socket.inet_ntop(socket.AF_INET6, ip[8:24]))


def destination_of(ip, udp):
    return (socket.inet_ntop(socket.AF_INET, ip[16:20]) if udp == 20 else
            socket.inet_ntop(socket.AF_INET6, ip[24:40]))


def icrc_of(ip, udp):
    """Eight bytes of ones in front; what a router may change counts as ones (IBTA A17)."""
    masked = bytearray(ip[:-4])
    if udp == 20:
        masked[1] = masked[8] = 0xFF           # DSCP and ECN, time to live
        masked[10:12] = b"\xff\xff"            # header checksum
    else:
        masked[0] |= 0x0F                      # traffic class, flow label, hop limit
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    masked[udp + 6:udp + 8] = b"\xff\xff"      # UDP's checksum
    masked[udp + 12] = 0xFF                    # FECN, BECN and the bits reserved with them
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


class Account:
    """What a capture says."""

    def __init__(self):
        self.frames = self.ipv6 = 0
        self.reports = 0  # to the routers of multicast
        self.wrong_icrc = []
        self.opcodes = collections.Counter()
        self.naks = collections.Counter()  # by (source address, name)
        self.not_ready = {}  # PSN of the last RNR NAK by (source address, queue pair)
        self.acknowledged = set()  # (who is told, PSN)
        # (source address, PSN): how often it was sent after its acknowledgement had been here.
        self.sent_in_vain = collections.Counter()

    def read(self, frames):
        for frame in frames:
            self.add(frame)

    def add(self, frame):
        self.reports += frame[:6] == MULTICAST_ROUTERS
        found = roce_of(frame)
        if found is None:
            return
        ip, udp = found
        self.frames += 1
        self.ipv6 += udp == 40
        if icrc_of(ip, udp) != ip[-4:]:
            self.wrong_icrc.append(frame.hex())
        bth = udp + 8
        opcode = ip[bth]
        self.opcodes[opcode] += 1
        source, to, psn = source_of(ip, udp), destination_of(ip, udp), ip[bth + 9:bth + 12]
        if ip[bth + 8] & 0x80 and (source, psn) in self.acknowledged:  # it asks for an answer
            self.sent_in_vain[source, psn] += 1
        if opcode & 0x1F in (ACKNOWLEDGE, 0x0D, 0x0F, 0x10, ATOMIC_ACKNOWLEDGE):
            syndrome = ip[bth + 12]
            self.add_answer(source, ip[bth + 5:bth + 8], psn, syndrome)
            if opcode & 0x1F == ACKNOWLEDGE and syndrome >> 5 == 0:
                self.acknowledged.add((to, psn))

    def add_answer(self, source, queue_pair, psn, syndrome):
        # The upper three bits: 0 ACK, 1 RNR NAK, 3 NAK with a code below.
        if syndrome >> 5 == 1:
            self.naks[source, NOT_READY] += 1
            self.not_ready[source, queue_pair] = psn
        elif syndrome >> 5 == 3:
            name = NAKS.get(syndrome & 31, f"code {syndrome & 31}")
            if name == GAP and self.not_ready.get((source, queue_pair)) == psn:
                name = FALSE_GAP
            self.naks[source, name] += 1

    def is_deaf(self, source):
        """Whether it has sent again and again what it had the answer to."""
        return any(one == source and times >= DEAF_TIMES
                   for (one, _), times in self.sent_in_vain.items())

    def __str__(self):
        naks = ", ".join(f"{source} {name}: {count}"
                         for (source, name), count in sorted(self.naks.items()))
        return (f"{self.frames} RoCE frames ({self.ipv6} by IPv6), {len(self.opcodes)} opcodes, "
                f"{len(self.wrong_icrc)} with a wrong ICRC; NAKs: {naks or 'none'}")

    # What one job's packets were answered says nothing of the next one's.
    def take_in(self, other):
        self.frames += other.frames
        self.ipv6 += other.ipv6
        self.wrong_icrc += other.wrong_icrc
        self.opcodes += other.opcodes
        self.naks += other.naks


def account_of(frames):
    account = Account()
    account.read(frames)
    return account
