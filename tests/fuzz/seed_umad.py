#!/usr/bin/env python3
# Owns the seeds of the fuzz target `umad`: a ping with its answer, and one that nobody answers.
# After a layout has changed: python3 tests/fuzz/seed_umad.py
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "tests/fuzz/corpus/umad"
OUI = bytes([0, 0x14, 5])
REGISTER, REGISTER2, UNREGISTER, PKEY, READ, HEAR, ANSWER, REFLECT, WAIT, REOPEN, WRITE = range(11)


def record(act, body=b"", file=0):
    body += bytes(-len(body) % 4)
    return bytes([len(body) // 4, act << 1 | file]) + body


def mad(method=1, transaction=7):
    return (bytes([1, 0x32, 1, method, 0, 0, 0, 0]) + struct.pack(">Q", transaction) + bytes(21) +
            OUI + bytes(216))


def datagram(timeout=0, retries=0, index=0, last=2):
    gid = b"\xfd" + bytes(14) + bytes([last])
    return (struct.pack("<5I", 0, 0, timeout, retries, 0) + struct.pack(">IIH", 1, 0, 0) +
            bytes([0, 0, 1, index, 64, 0]) + gid + bytes(12) + mad())


def agent(methods=0):
    return struct.pack("<I4I", 0, methods, 0, 0, 0) + bytes([1, 0x32, 1]) + OUI + bytes(2)


def agent2(methods=0, flags=0):
    return struct.pack("<IIBBHIQQIB3x", 0, 1, 0x32, 1, 0, flags, methods, 0, 0x001405, 0)


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    begin = record(PKEY) + record(REGISTER, agent()) + record(REGISTER2, agent2(2), 1)
    ping = record(WRITE, datagram(1000, 2))
    seeds = {
        "ping": begin + ping + record(REFLECT) + record(READ, bytes(320), 1) +
                record(ANSWER) + record(READ, bytes(320)) + record(UNREGISTER, bytes(4)),
        "silence": begin + ping + record(WAIT) * 4 + record(READ, bytes(88)) + ping +
                   record(REOPEN),
        "refusals": begin + record(WRITE, datagram(index=9)) + record(WRITE, datagram(last=9)) +
                    record(REGISTER2, agent2(2, 6)) + record(HEAR, mad(1)) +
                    record(HEAR, mad(0x81, 1 << 56)) + record(READ, bytes(64), 1),
    }
    for name, seed in seeds.items():
        (CORPUS / name).write_bytes(seed)


if __name__ == "__main__":
    main()
