#!/usr/bin/env python3
# Owns the seeds of the fuzz target `ucma`: a listener and a connection, with the peer's words.
# After a layout has changed: python3 tests/fuzz/seed_ucma.py
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "tests/fuzz/corpus/ucma"
TCP, UDP = 0x106, 0x111
PEER, OWN = bytes([10, 9, 0, 2]), bytes([10, 9, 0, 1])


def record(kind, body=b""):
    body += bytes(-len(body) % 4)
    return bytes([len(body) // 4, kind]) + body


def u32(*values):
    return struct.pack(f"<{len(values)}I", *values)


def socket(address, port):
    return struct.pack("<HBB", 2, port >> 8, port & 0xFF) + address + bytes(20)


def create(space):
    return record(0, struct.pack("<QQHB5x", 1, 0, space, 0))


def param(qpn):
    return u32(qpn, 0) + bytes(256) + bytes([0, 0, 1, 1, 0, 7, 7, 1])


REFLECT, WAIT = record(0xFE), record(0xFD)
EVENT = record(12, bytes(8))


def life(space):
    yield create(space)
    yield record(2, bytes(8) + socket(bytes(4), 7174) + u32(0))  # BIND_IP
    yield record(7, u32(0, 4))  # LISTEN
    yield create(space)
    yield record(3, bytes(28) + socket(OWN, 7174) + u32(1, 2000))  # RESOLVE_IP
    yield EVENT
    yield record(4, u32(1, 2000))  # RESOLVE_ROUTE
    yield EVENT
    yield record(5, bytes(8) + u32(1, 0))  # QUERY_ROUTE
    yield record(19, bytes(8) + u32(1, 0))  # QUERY
    yield record(6, param(17) + u32(1, 0))  # CONNECT: to itself
    yield EVENT
    yield record(8, struct.pack("<Q", 3) + param(18) + u32(2, 0))  # ACCEPT
    yield EVENT
    yield record(11, bytes(8) + u32(1, 2))  # INIT_QP_ATTR
    yield record(8, struct.pack("<Q", 0) + bytes(272) + u32(1, 0))
    yield EVENT
    yield record(10, u32(1))  # DISCONNECT
    yield EVENT
    yield WAIT
    yield record(0x20 | 18, bytes(8) + u32(1, 0))  # MIGRATE_ID
    yield record(1, bytes(8) + u32(2, 0))  # DESTROY_ID


def outwards():
    yield create(TCP)
    yield record(3, bytes(28) + socket(PEER, 7174) + u32(0, 2000))
    yield record(4, u32(0, 2000))
    yield record(6, param(17) + u32(0, 0))
    yield REFLECT
    yield from [WAIT] * 18
    yield EVENT * 3


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, records in (("tcp", life(TCP)), ("udp", life(UDP)), ("out", outwards())):
        (CORPUS / name).write_bytes(b"".join(records))


main()
