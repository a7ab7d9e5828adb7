#!/usr/bin/env python3
# Owns the seeds of the fuzz targets `uverbs` and `uverbs_rxe`: a program's life, whole and with its
# beginning only.
# After a layout has changed: python3 tests/fuzz/seed_uverbs.py
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "tests/fuzz/corpus"
RESET, INIT, RTR, RTS = 0, 1, 2, 3


def record(kind, body):
    return bytes([len(body) // 4, kind]) + body


def command(number, *fields):
    return record(number, struct.pack("<Q", 0) + b"".join(fields))


def u32(*values):
    return struct.pack(f"<{len(values)}I", *values)


def attribute(number, length, value=0xAAAAAAAAAAAAAAAA):
    return struct.pack("<HHHHQ", number, length, 1, 0, value)


def method(target, number, *attributes):
    return record(0x80 | target, struct.pack("<HBB", number, 0, 0) + b"".join(attributes))


def modify(qp, mask, state):
    body = bytearray(112)
    struct.pack_into("<II", body, 64, qp, mask)
    body[96], body[104] = state, 1
    return record(26, bytes(body))


def life():
    yield command(0, bytes(8))
    yield command(1)
    yield command(2, bytes([1] + [0] * 7))
    yield command(3)
    yield command(17)
    cq = struct.pack("<QIIiI", 7, 16, 0, -1, 0)
    yield command(18, cq, struct.pack("<IIHB5x", 0, 32, 1, 0))
    qp = struct.pack("<QIIIIIIIIIBBBB", 9, 0, 2, 2, 0, 8, 8, 2, 1, 32, 1, 255, 0, 0)
    yield command(24, qp, struct.pack("<IIIIHB5x", 0, 8 * 16, 8 * 64, 0, 0, 0))
    ah = bytearray(32)
    ah[29], ah[30] = 1, 1
    yield command(5, bytes(8), u32(0, 0), bytes(ah))
    yield modify(3, 0x71, INIT)
    yield modify(3, 0x1, RTR)
    yield modify(3, 0x10001, RTS)
    for page in range(8):
        yield record(0xC0 | page, u32(1))
    yield record(0xC2, bytes([1, 0, 0xA0, 0x1C, 0, 1, 4, 0]) + bytes(56))
    yield command(25, u32(3, 1))
    yield method(0, 2, attribute(0, 1, 1), attribute(1, 48))
    yield method(0, 7, attribute(0, 4, 1), attribute(1, 8))
    yield method(0, 8, attribute(0, 4), attribute(1, 8), attribute(2, 4))
    yield method(19, 0, attribute(0, 0, 0), attribute(0x1000, 32), attribute(0x1001, 32))
    yield method(4, 2, attribute(0, 0, 3), attribute(1, 0, 5), attribute(2, 4, 0x17))
    yield record(0xC2, bytes([2, 0, 0xA0, 0x1C, 0, 1, 4, 0]) + bytes(56))
    amount = attribute(3, 8, 9)
    yield method(19, 2, attribute(0, 0, 5), attribute(1, 1, 1), attribute(2, 1, 1), amount)
    yield method(19, 3, attribute(0, 0, 5), attribute(1, 1, 0), attribute(2, 8))
    yield method(19, 1, attribute(0, 0, 5))
    outputs = [attribute(0x1001 + i, 2) for i in range(4)]
    yield method(7, 0x1000, attribute(0x1000, 0, 9), *outputs)
    yield modify(3, 0x1, RESET)
    yield command(27, u32(3, 0))
    yield command(20, u32(2, 0))
    yield record(4, u32(0))
    yield record(0x41, struct.pack("<QHHI", 0, 0, 3, 0) + bytes(8))


GID = bytes(10) + b"\xff\xff" + bytes([127, 77, 1, 1])
QPN = 256  # of the first queue pair


def modify_connected(qp, mask, state):
    """To itself."""
    body = bytearray(112)
    body[0:16] = GID
    body[24], body[25], body[30], body[31] = 1, 64, 1, 1
    struct.pack_into("<II", body, 64, qp, mask)
    struct.pack_into("<IIIII", body, 72, 0, 0, 0, QPN, 15)
    body[96], body[98], body[101], body[102], body[103], body[104] = state, 3, 1, 1, 1, 1
    body[105:108] = bytes([8, 1, 1])
    return record(26 | 0x20, bytes(body))  # no place for a reply: the GID begins there


def ring(producer, opcode, flags, length, sges, data):
    """The header of a ring, and its first entry."""
    header = bytearray(384)
    struct.pack_into("<II", header, 0, 8, 15)
    struct.pack_into("<I", header, 128, producer)
    entry = bytearray(208)
    struct.pack_into("<QIIII", entry, 0, 7, 0, opcode, flags, 5)
    struct.pack_into("<IIII", entry, 184, length, length, 0, sges)
    return bytes(header) + bytes(entry) + data


def rxe_life():
    yield command(0, bytes(8))
    yield command(1)
    yield command(2, bytes([1] + [0] * 7))
    yield command(3)
    yield command(17)
    cq = struct.pack("<QIIiI", 7, 16, 0, -1, 0)
    yield command(18, cq)
    qp = struct.pack("<QIIIIIIIIIBBBB", 9, 0, 2, 2, 0, 8, 8, 2, 2, 32, 1, 2, 0, 0)
    yield command(24, qp)
    yield modify_connected(3, 0x39, INIT)
    yield modify_connected(3, 0x129181, RTR)
    yield modify_connected(3, 0x12E01, RTS)
    for page in range(8):  # a receive without segments, or an inline send without bytes
        yield record(0xC0 | page, ring(1, 2, 2 | 8, 0, 0, bytes(32)))
    yield command(28, u32(3, 0, 0, 208))
    for opcode in (0, 3, 4, 5, 7, 8, 9, 14, 255):
        for page in range(4):
            yield record(0xC0 | page, ring(2, opcode, 2, 8, 1, bytes(32)))
        yield command(28, u32(3, 0, 0, 208))
    yield command(23, u32(2, 0))
    yield command(25, u32(3, 1))
    yield command(14, u32(0, 1))
    ud = struct.pack("<QIIIIIIIIIBBBB", 9, 0, 2, 2, 0, 8, 8, 2, 2, 32, 1, 4, 0, 0)
    yield command(24, ud)
    ah = bytearray(32)
    ah[0:16] = GID
    ah[24], ah[25], ah[30], ah[31] = 1, 64, 1, 1
    yield command(5, bytes(8), u32(0, 0), bytes(ah))
    yield command(19, u32(2, 64))
    yield modify_connected(3, 0x1, 6)
    yield command(27, u32(3, 0))
    yield command(20, u32(2, 0))
    yield record(4, u32(0))


def write_seeds(target, records, lengths):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for length in (*lengths, len(records)):
        (folder / f"life-{length}").write_bytes(b"".join(records[:length]))


def main():
    write_seeds("uverbs", list(life()), (1, 4, 6, 8, 11, 24, 27))
    write_seeds("uverbs_rxe", list(rxe_life()), (7, 10, 19, 40, 64))


main()
