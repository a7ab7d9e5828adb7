# Owns frames that never were, for the tests of what reads them: of Linux, which asks, and of ours.
"""RoCEv2 frames whose ICRC and checksums are right, and ways to spoil them."""

import socket
import struct

import frames

MACS = {"ours": bytes.fromhex("02000a4d0101"), "Linux": bytes.fromhex("02000a4d0265")}
IPS = {"ours": "10.77.1.1", "Linux": "10.77.2.101"}
IP6S = {"ours": "fd77:6566:7400::aff:fe4d:101", "Linux": "fd77:6566:7400::aff:fe4d:265"}
# Queue pairs.
OUR_QP, LINUX_QP, OTHER_QP = 0x2F, 0x11, 0x12
SEND_ONLY, READ, ACKNOWLEDGE, WANTS_ANSWER = 0x04, 0x0C, 0x11, 0x80
FIRST, LAST = 0xFFFFFE, 0x000001  # PSNs: they begin again on the way


def frame_of(source, to, headers, ips=None):
    """An Ethernet frame with IP, UDP, these headers of RoCE, and an ICRC."""
    ips = ips or IPS
    udp = struct.pack("!HHHH", 0xC000, 4791, 8 + len(headers) + 4, 0)
    if ":" in ips[source]:
        kind, family = b"\x86\xdd", socket.AF_INET6
        ip = struct.pack("!IHBB", 6 << 28, len(udp) + len(headers) + 4, 17, 64)
    else:
        kind, family = b"\x08\x00", socket.AF_INET
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + len(headers) + 4, 0, 0x4000, 64, 17,
                         0)
    ip += b"".join(socket.inet_pton(family, ips[side]) for side in (source, to))
    packet = bytearray(ip + udp + headers + bytes(4))
    if family == socket.AF_INET:
        packet[10:12] = (0xFFFF - frames.sum_of_words(ip)).to_bytes(2, "big")
    packet[-4:] = frames.icrc_of(bytes(packet), len(ip))
    return MACS[to] + MACS[source] + kind + bytes(packet)


def bth(opcode, queue_pair, psn, flags=0):
    return struct.pack("!BBHII", opcode, 0, 0xFFFF, queue_pair, flags << 24 | psn)


def ask(psn, queue_pair=OUR_QP, opcode=SEND_ONLY, ips=None, flags=WANTS_ANSWER):
    return frame_of("Linux", "ours", bth(opcode, queue_pair, psn, flags) + b"data", ips)


def answer(psn, msn, queue_pair=LINUX_QP, syndrome=0x1F, ips=None, opcode=ACKNOWLEDGE):
    return frame_of("ours", "Linux", bth(opcode, queue_pair, psn)
                    + (syndrome << 24 | msn).to_bytes(4, "big"), ips)


def with_bytes(frame, at, new):
    return frame[:at] + new + frame[at + len(new):]


def with_new_icrc(frame, udp=20):
    return frame[:-4] + frames.icrc_of(frame[14:], udp)
