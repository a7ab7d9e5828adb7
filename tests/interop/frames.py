# Owns reading RoCEv2 out of a capture, without a line in common with what weft decodes by.
#
# A mistake that weft makes in the same way when it writes and when it reads would stay unseen
# between two wefts. Here frames are read by the specification alone (IBTA volume 1, annex A17).
"""Frame by frame: checks every ICRC, and counts what the two sides have told each other."""

import collections
import socket
import struct
import zlib

from answers import Answers

ROCE_PORT = 4791
# Opcodes of RC, in the lower five bits. With 0x0D, 0x0F and 0x10, the first, last and only packet
# of a READ's response, these are the packets that carry an AETH.
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12
WITH_AETH = (ACKNOWLEDGE, 0x0D, 0x0F, 0x10, ATOMIC_ACKNOWLEDGE)
# Headers of UDP and BTH, an AETH, and the ICRC.
ACKNOWLEDGE_SIZE = 8 + 12 + 4 + 4
DEFAULT_P_KEY = b"\xff\xff"
NOT_READY, GAP = "receiver not ready", "PSN sequence error"
# After an RNR NAK nothing is to be said until that packet comes again; Linux reports the packets
# behind it as a gap.
FALSE_GAP = "PSN sequence error behind receiver not ready"
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


def sum_of_words(data):
    """The checksum of the Internet (RFC 1071), 0xffff where the checksum in the data is right."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


# Where a frame comes from and goes to, by Ethernet and by IP.
Ends = collections.namedtuple("Ends", "source_mac to_mac source to")


class Packet:
    """Of RoCEv2, `udp` is where its UDP header begins in the IP packet."""

    def __init__(self, frame, ip, udp):
        self.ip, self.udp = ip, udp
        self.ends = Ends(frame[6:12], frame[:6], source_of(ip, udp), destination_of(ip, udp))
        bth = self.bth = udp + 8
        self.opcode = ip[bth]
        self.queue_pair = ip[bth + 5:bth + 8]  # the receiver's
        self.wants_answer = bool(ip[bth + 8] & 0x80)
        self.psn = int.from_bytes(ip[bth + 9:bth + 12], "big")
        self.syndrome = self.msn = None
        if self.opcode & 0x1F in WITH_AETH:
            self.syndrome = ip[bth + 12]
            self.msn = int.from_bytes(ip[bth + 13:bth + 16], "big")

    def ends_of_requests(self):
        """Of those that this one answers."""
        ends = self.ends
        return Ends(ends.to_mac, ends.source_mac, ends.to, ends.source)

    def is_acknowledgement(self):
        # The upper three bits of a syndrome: 0 ACK, 1 RNR NAK, 3 NAK with a code below.
        return self.opcode & 0x1F == ACKNOWLEDGE and self.syndrome >> 5 == 0

    def has_right_icrc(self):
        return icrc_of(self.ip, self.udp) == self.ip[-4:]

    def has_right_checksums(self):
        """The header's, and UDP's if it is there."""
        ip, udp = self.ip, self.udp
        if udp == 20 and sum_of_words(ip[:20]) != 0xFFFF:
            return False
        if ip[udp + 6:udp + 8] == b"\0\0":
            return True
        addresses = ip[12:20] if udp == 20 else ip[8:40]
        pseudo = addresses + struct.pack("!HH", 17, len(ip) - udp)
        return sum_of_words(pseudo + ip[udp:]) == 0xFFFF

    def is_right_in_every_bit(self):
        """Of an acknowledgement: that nothing in it gives its receiver a reason to drop it."""
        ip, udp, bth = self.ip, self.udp, self.bth
        return (self.has_right_icrc() and self.has_right_checksums() and
                not (udp == 20 and (ip[6] & 0x3F or ip[7])) and  # no fragment
                len(ip) - udp == ACKNOWLEDGE_SIZE == int.from_bytes(ip[udp + 4:udp + 6], "big") and
                ip[bth + 1] & 0x3F == 0 and  # bytes of padding, version of the transport
                ip[bth + 2:bth + 4] == DEFAULT_P_KEY)


class Account:
    """What a capture says."""

    def __init__(self):
        self.frames = self.ipv6 = 0
        self.reports = 0  # to the routers of multicast
        self.wrong_icrc = []
        self.opcodes = collections.Counter()
        self.naks = collections.Counter()  # by (source address, name)
        self.not_ready = {}  # PSN of the last RNR NAK by (source address, queue pair)
        self.answers = Answers()

    def read(self, frames):
        for frame in frames:
            self.add(frame)

    def add(self, frame):
        self.reports += frame[:6] == MULTICAST_ROUTERS
        found = roce_of(frame)
        if found is None:
            return
        packet = Packet(frame, *found)
        self.frames += 1
        self.ipv6 += packet.udp == 40
        if not packet.has_right_icrc():
            self.wrong_icrc.append(frame.hex())
        self.opcodes[packet.opcode] += 1
        if packet.syndrome is not None:
            self.add_nak(packet)
        self.answers.add(packet)

    def add_nak(self, packet):
        source, code = packet.ends.source, packet.syndrome & 31
        if packet.syndrome >> 5 == 1:
            self.naks[source, NOT_READY] += 1
            self.not_ready[source, packet.queue_pair] = packet.psn
        elif packet.syndrome >> 5 == 3:
            name = NAKS.get(code, f"code {code}")
            if name == GAP and self.not_ready.get((source, packet.queue_pair)) == packet.psn:
                name = FALSE_GAP
            self.naks[source, name] += 1

    def __str__(self):
        naks = ", ".join(f"{source} {name}: {count}"
                         for (source, name), count in sorted(self.naks.items()))
        return (f"{self.frames} RoCE frames ({self.ipv6} by IPv6), {len(self.opcodes)} opcodes, "
                f"{len(self.wrong_icrc)} with a wrong ICRC; NAKs: {naks or 'none'}")

    # Without what is of a single job: the reports, the answers and what waits for a receiver.
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
