#!/usr/bin/env python3
# Owns the seeds of the fuzz target `uverbs`: a program's life, whole and with its beginning only.
# After a layout has changed: python3 tests/fuzz/seed_uverbs.py
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "tests/fuzz/corpus/uverbs"
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


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    records = list(life())
    for length in (1, 4, 6, 8, 11, 24, 27, len(records)):
        (CORPUS / f"life-{length}").write_bytes(b"".join(records[:length]))


main()
