#!/usr/bin/env python3
# Owns the seeds of the fuzz target `wire`: one input for each golden packet, and frames around
# them. After a golden packet has changed: python3 tests/fuzz/seed_wire.py
import pathlib
import re
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus/wire"
PACKET, TRIMMED, FRAME, FRAME_FIXED = 0, 2, 1, 3  # the first byte, see tests/fuzz/wire.cpp


def golden_packets():
    text = (ROOT / "tests/unit/srd/wire/golden.hpp").read_text()
    for name, hexes in re.findall(r'\{"(\w+)",\s*((?:"[0-9a-f]+"\s*)+)\}', text):
        yield name, bytes.fromhex("".join(re.findall(r'"([0-9a-f]+)"', hexes)))


def udp(packet, path=1):
    return struct.pack(">HHHH", 0xF000 + path, 0xEF00, 8 + len(packet), 0) + packet


def frame4(packet, dscp):
    # The target makes the header checksum right.
    inner = udp(packet)
    ip = struct.pack(">BBHHHBBH", 0x45, dscp << 2 | 2, 20 + len(inner), 0, 0x4000, 64, 17, 0)
    return bytes(12) + b"\x08\x00" + ip + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + inner


def frame6(packet, dscp):
    inner = udp(packet)
    ip = struct.pack(">IHBB", 6 << 28 | dscp << 22, len(inner), 17, 64)
    ends = b"\xfd" + bytes(14) + b"\x01" + b"\xfd" + bytes(14) + b"\x02"
    return bytes(12) + b"\x86\xdd" + ip + ends + inner


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)

    def write(name, kind, data):
        (CORPUS / name).write_bytes(bytes([kind]) + data)

    for name, packet in golden_packets():
        write(f"packet_{name}", PACKET, packet)
        write(f"frame4_{name}", FRAME_FIXED, frame4(packet, 47 if packet[1] >= 16 else 0))
        write(f"frame6_{name}", FRAME, frame6(packet, 47 if packet[1] >= 16 else 0))
        if len(packet) > 64 and packet[1] < 16:
            write(f"trimmed_{name}", TRIMMED, packet[:64])
            write(f"elsewhere_{name}", PACKET | (len(packet) - 64) << 2, packet[:64])
            write(f"frame4_trimmed_{name}", FRAME_FIXED, frame4(packet[:64], 43))
    write("empty_packet", PACKET, b"")
    write("empty_frame", FRAME, b"")
    write("padded_frame", FRAME_FIXED, frame4(b"", 0) + bytes(18))


if __name__ == "__main__":
    main()
