#!/usr/bin/env python3
# Owns the seeds of the fuzz target `switchboard`: a frame of each kind that it draws, from a host
# outside to a NIC of ours. After a change of draw(): python3 tests/fuzz/seed_switchboard.py
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus/switchboard"
BYTES, ARP, SOLICITATION, ROCE = range(4)  # see draw() in tests/fuzz/switchboard.cpp
SIZE = 300
# Numbers of address(): the form times four, and the host. The first two hosts are ours.
V4, LINK_LOCAL, V6 = 4, 0, 8


def frame(kind, source, about, rest=b"", port=0, size=SIZE):
    return bytes([port, kind]) + struct.pack(">IBB", size, source, about) + rest


def management(attribute):
    """A datagram to queue pair 1 with a message of connection management."""
    bth = struct.pack(">BBHII", 0x64, 0, 0xFFFF, 1, 0)
    deth = struct.pack(">II", 0x80010000, 1)
    mad = struct.pack(">BBBBIQHHI", 1, 7, 2, 3, 0, 77, attribute, 0, 0)
    return bth + deth + mad + bytes(range(232))


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)

    def write(name, *frames):
        (CORPUS / name).write_bytes(b"".join(frames))

    write("arp", frame(ARP, V4 + 2, V4))
    write("arp_for_others", frame(ARP, V4 + 2, V4 + 3, port=1), frame(ARP, V4 + 3, V4 + 2, port=2))
    write("arp_of_ours", frame(ARP, V4, V4 + 1))
    for name, form in (("link_local", LINK_LOCAL), ("v6", V6)):
        write("solicitation_" + name, frame(SOLICITATION, form + 2, form, size=86))
        write("roce_" + name, frame(ROCE, form + 2, form, bytes(SIZE)))
    write("arp_in_a_tag", frame(BYTES, 0, 0, bytes(12) + b"\x81\x00\x00\x05\x08\x06" + bytes(40),
                                size=58))
    for name, attribute in (("request", 0x10), ("disconnect", 0x15), ("lookup", 0x17)):
        write("management_" + name, frame(ROCE, V4 + 2, V4, management(attribute), size=322))


if __name__ == "__main__":
    main()
