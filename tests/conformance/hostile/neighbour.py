# Owns a process on a weftd's machine that means no good: it speaks the attach protocol, the ring
# layout, the bells and the control socket by hand, and wrongly.
#
# Attacks are drawn by lot from a seed. None of weft's code is used, because that code would refuse
# most of this; only the numbers that the protocol begins with are read from its header, so that
# weftd listens to what follows.
"""usage: neighbour.py DIRECTORY SEED   (of weftd's sockets; until the standard input ends)"""

import array
import ctypes
import fcntl
import mmap
import os
import random
import re
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROTOCOL = (ROOT / "emu/attach/protocol.hpp").read_text()
MAGIC = int(re.search(r"kAttachMagic = (0x[0-9a-fA-F]+)", PROTOCOL)[1], 16)
VERSION = int(re.search(r"kAttachVersion = (\d+)", PROTOCOL)[1])
# Types of messages, and below the layout of an attach request (emu/attach/protocol.hpp).
ATTACH, DESCRIBE, TAP, SERVICE, GROUP, LOCATE = 1, 2, 8, 10, 12, 14
REQUEST = "<IHH32sIIIIII"
SRD, ROCE = 0xEF00, 4791  # UDP ports
# Of srd/io/spsc_ring.hpp: the ring's header, where in a record the frame begins, and the cells that
# records are rounded up to.
HEADER, FRAME_OFFSET, CELL = 512, 22, 64
HOSTS = (b"h1", b"h2", b"h3")
# Numbers at which lengths and indices break: around a cell, a page, a ring, a sign, an overflow.
WORDS = (0, 1, 2, 63, 64, 65, 127, 128, 4095, 9001, 1 << 14, 1 << 20, 1 << 31, 0x7FFFFFFF,
         0xFFFFFFFE, 0xFFFFFFFF)
LONGS = (0, 1, 63, 64, 1 << 20, 1 << 21, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1)


class Place:
    """What weftd gave us: sockets, memory, and what we are called."""

    def __init__(self, neighbour, host=None, flags=0, ring_bytes=0, attachment=0, life=0,
                 port=None):
        self.fds, self.memory = [], None
        self.socket = neighbour.connect("attach.sock", socket.SOCK_SEQPACKET)
        self.host = host or neighbour.rng.choice(HOSTS)
        port = port or neighbour.rng.choice((SRD, SRD, ROCE))
        self.socket.send(struct.pack(REQUEST, MAGIC, VERSION, ATTACH, self.host, 0, flags,
                                     ring_bytes, port, attachment, life))
        data, rights, _, _ = self.socket.recvmsg(1024, socket.CMSG_SPACE(16))
        for level, kind, payload in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.fds += array.array("i", payload[:len(payload) - len(payload) % 4])
        if len(self.fds) != 2:
            self.close()
            raise OSError("refused")
        self.address = data[20:24]
        self.attachment, self.life = struct.unpack_from("<II", data, 24)
        size = os.fstat(self.fds[0]).st_size
        # The memory holds two rings, one for each direction.
        self.capacity = size // 2 - HEADER
        self.memory = mmap.mmap(self.fds[0], size)
        self.up = HEADER + self.capacity  # where the ring to weftd begins
        self.at = 0

    def close(self):
        if self.memory is not None:
            self.memory.close()
        fds, self.fds = self.fds, []
        for fd in fds:
            os.close(fd)
        self.socket.close()

    def __del__(self):
        """An attack that was refused half-way keeps no place."""
        if hasattr(self, "socket"):
            self.close()

    def put(self, frame, length=None):
        """A record as a producer writes it; the length may be a lie."""
        size = (FRAME_OFFSET + len(frame) + CELL - 1) // CELL * CELL
        if self.at + size + CELL > self.capacity:
            return False
        area = self.up + HEADER + self.at
        struct.pack_into("<I", self.memory, area + size, 0)
        self.memory[area + FRAME_OFFSET:area + FRAME_OFFSET + len(frame)] = frame
        struct.pack_into("<I", self.memory, area, len(frame) if length is None else length)
        self.at += size
        return True

    def ring(self):
        socket.socket(fileno=os.dup(self.fds[1])).send(b"!", socket.MSG_DONTWAIT)


# A whole and good frame around any packet: what is wrong in it was put there on purpose.
def frame_of(source, destination, packet, port=SRD):
    udp = struct.pack(">HHHH", 0xF000, port, 8 + len(packet), 0)
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(packet), 0, 0x4000, 64, 17, 0, source,
                         destination)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total += total >> 16
    header = header[:10] + struct.pack(">H", ~total & 0xFFFF) + header[12:]
    return b"\2\0" + destination + b"\2\0" + source + b"\x08\0" + header + udp + packet


def frame_of6(source, destination, packet, port=ROCE):
    udp = struct.pack(">HHHH", 0xF000, port, 8 + len(packet), 0)
    header = struct.pack(">IHBB", 6 << 28, len(udp) + len(packet), 17, 64) + source + destination
    return bytes(12) + b"\x86\xdd" + header + udp + packet


def aliases_of(address):
    """The IPv6 addresses of a NIC that speaks RoCE: of the link, and of the network."""
    interface = b"\0\0" + address[:1] + b"\xff\xfe" + address[1:]
    return b"\xfe\x80" + bytes(6) + interface, b"\xfd\x77\x65\x66\x74" + bytes(3) + interface


class Neighbour:
    def __init__(self, directory, seed):
        self.directory = directory
        self.rng = random.Random(seed)
        self.kept = []  # connections and places that stay for a while
        self.children = []
        self.counts = {}

    def connect(self, name, kind):
        connection = socket.socket(socket.AF_UNIX, kind)
        connection.settimeout(0.5)
        connection.connect(f"{self.directory}/{name}")
        return connection

    def address(self):
        return bytes([127, 77, self.rng.randint(1, 4), self.rng.randint(1, 2)])

    def keep(self, what):
        self.kept.append(what)
        # So many connections lie about at a time, old and new.
        while len(self.kept) > 40:
            self.kept.pop(self.rng.randrange(len(self.kept))).close()

    @staticmethod
    def descriptors():
        """Of every kind that can be had without privilege. The caller closes them."""
        kinds = [os.open("/dev/null", os.O_RDONLY), os.open("/", os.O_RDONLY), *os.pipe(),
                 os.memfd_create("m"), os.open("/dev/zero", os.O_RDONLY)]
        with select.epoll() as epoll:
            kinds.append(os.dup(epoll.fileno()))
        if hasattr(os, "eventfd"):
            kinds.append(os.eventfd(0))
        return kinds + [end.detach() for end in socket.socketpair()]

    # --- Attacks. Each is one thing that a client can do; errors are weftd's good right.

    def wrong_message(self):
        request = bytearray(struct.pack(
            REQUEST, self.rng.choice((MAGIC, MAGIC, MAGIC, 0, 0xFFFFFFFF)),
            self.rng.choice((VERSION, VERSION, VERSION, 0, VERSION - 1, 0xFFFF)),
            self.rng.choice((ATTACH, DESCRIBE, TAP, *range(17), 0xFFFF)),
            self.rng.choice((b"h1", b"h3", b"", b"h1\0x", b"x" * 32, self.rng.randbytes(32))),
            *(self.rng.choice((0, 0, 1, *WORDS)) for _ in range(6))))
        for _ in range(self.rng.choice((0, 0, 1, 5))):
            request[self.rng.randrange(len(request))] = self.rng.randrange(256)
        size = self.rng.choice((len(request), len(request), 40, 0, 1, 12, 59, 61, 1023, 2000))
        request = (bytes(request) + bytes(size))[:size]
        connection = self.connect("attach.sock", socket.SOCK_SEQPACKET)
        for _ in range(self.rng.choice((1, 1, 2, 10))):
            fds = self.descriptors() if self.rng.random() < 0.5 else []
            # 27 times nine or ten is more than a message may carry.
            many = fds * self.rng.choice((0, 1, 1, 27))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", many))]
            try:
                connection.sendmsg([request], rights if many else [])
            finally:
                for fd in fds:
                    os.close(fd)
        self.keep(connection)

    def connection_to_itself(self):
        """A socket in its own queue is kept alive by nothing but that."""
        connection = self.connect("attach.sock", socket.SOCK_SEQPACKET)
        connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                     array.array("i", [connection.fileno()]))])
        connection.close()

    # Many connections at once, some of which say something before they go.
    def storm(self):
        name, kind = self.rng.choice((("attach.sock", socket.SOCK_SEQPACKET),
                                      ("control.sock", socket.SOCK_STREAM),
                                      ("metrics.sock", socket.SOCK_STREAM)))
        connections = [self.connect(name, kind) for _ in range(self.rng.randint(10, 120))]
        for connection in connections:
            if self.rng.random() < 0.5:
                connection.send(self.rng.randbytes(self.rng.randint(0, 100)))
        for connection in connections:
            connection.close()

    # Commands, good and bad, whole and in part; answers are mostly not read.
    def control(self):
        lines = (b'{"v":1,"cmd":"status"}', b'{"v":1,"cmd":"counters"}', b'{"v":1,"cmd":"metrics"}',
                 b'{"v":1,"cmd":"impair"}', b'{"v":1,"cmd":"heal","fault":-1}', b"[" * 50_000,
                 b'{"v":1,"cmd":"fault","fault":{"link":"nowhere","down":true}}',
                 b'{"v":1,"cmd":"capture","start":"/proc/self/mem"}', b"x" * 70_000, b"",
                 b'{"v":1,"cmd":"impair","link":"nowhere","set":{"loss":0.5}}',
                 b'{"v":1,"cmd":"capture","start":"/"}', self.rng.randbytes(300))
        connection = self.connect("control.sock", socket.SOCK_STREAM)
        for _ in range(self.rng.choice((1, 3, 50))):
            line = self.rng.choice(lines)
            if self.rng.random() < 0.2:
                line = line[:self.rng.randrange(len(line) + 1)]
            connection.sendall(line + (b"\n" if self.rng.random() < 0.9 else b""),
                               socket.MSG_DONTWAIT)
        if self.rng.random() < 0.3:
            connection.recv(100)
        self.keep(connection)

    def web(self):
        connection = self.connect("metrics.sock", socket.SOCK_STREAM)
        connection.send(self.rng.choice((b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
                                         b"GET / HTTP/1.1\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                         b"A" * 9000, self.rng.randbytes(500))))
        self.keep(connection)

    def forged_frames(self):
        """In the name of every process that there may be, to every process that there may be."""
        place = Place(self, flags=self.rng.choice((0, 1, 2, 3)))
        for _ in range(self.rng.randint(1, 200)):
            source = place.address if self.rng.random() < 0.7 else self.address()
            # Lives just before and after its own, as a restarted process would have, and far away.
            life = (place.life + self.rng.choice((-1, 0, 0, 1, 100, 1 << 20, 1 << 31))) % (1 << 32)
            owner = self.rng.choice((place.attachment, self.rng.randint(0, 40)))
            packet = struct.pack(">BBBBH", 1, self.rng.choice((1, 2, 3, 4, 5, 16, 17, 18, 255)),
                                 self.rng.choice((0, 1, 16, 255)), 0, self.rng.randint(0, 40))
            packet += (256).to_bytes(3, "big") * 2 + struct.pack(">HHIII", owner, 0, life, 0, 0)
            packet += bytes(self.rng.choice((0, 8, 36, 36, 500)))
            place.put(frame_of(source, self.address(), packet,
                               self.rng.choice((SRD, SRD, SRD, ROCE, 80))))
        place.ring()
        self.wait_and_rewrite(place)
        self.keep(place)

    def services(self):
        """Claims of what others may want, more than there is room for, with answers not read."""
        place = Place(self)
        for _ in range(self.rng.choice((1, 10, 2000))):
            message = struct.pack("<IHHQII", MAGIC, VERSION, SERVICE,
                                  0x1060000 + self.rng.choice((7471, self.rng.randrange(1 << 16))),
                                  self.rng.choice((0, 1, 1, *WORDS)), 0)
            if self.rng.random() < 0.02:
                message = message[:self.rng.randrange(len(message))] + self.rng.randbytes(3)
            place.socket.send(message)
        self.keep(place)

    def group(self):
        """A multicast group as 16 bytes; now and then what is none."""
        number = self.rng.choice((7, self.rng.getrandbits(16)))
        return self.rng.choice((bytes(10) + b"\xff\xff\xef\1" + struct.pack(">H", number),
                                b"\xff\x0e" + bytes(10) + struct.pack(">I", number),
                                bytes(10) + b"\xff\xff" + self.address(),
                                aliases_of(self.address())[1], self.rng.randbytes(16), bytes(16)))

    def groups(self):
        """Memberships by the thousand, and questions for anybody's address; nobody reads the
        answers."""
        place = Place(self, port=self.rng.choice((SRD, ROCE)))
        for _ in range(self.rng.choice((1, 10, 300, 12_000))):
            message = struct.pack("<IHH16sII", MAGIC, VERSION,
                                  self.rng.choice((GROUP, GROUP, LOCATE)), self.group(),
                                  self.rng.choice((0, 1, 1, 1, *WORDS)), 0)
            if self.rng.random() < 0.001:
                message = message[:self.rng.randrange(len(message))] + self.rng.randbytes(3)
            place.socket.send(message)
            if self.rng.random() < 0.9:
                place.socket.recv(100, socket.MSG_DONTWAIT)
        self.keep(place)

    def group_frames(self):
        """To groups, by whichever address, in the names of others; some are members themselves."""
        place = Place(self, port=ROCE)
        four = bytes(10) + b"\xff\xff\xef\1\0\7"
        six = b"\xff\x0e" + bytes(13) + b"\7"
        for group in (four, six):
            place.socket.send(struct.pack("<IHH16sII", MAGIC, VERSION, GROUP, group,
                                          self.rng.choice((0, 1, 1)), 0))
        for _ in range(self.rng.randint(1, 300)):
            queue_pair = self.rng.choice((0xFFFFFF, 0xFFFFFF, 1, self.rng.getrandbits(24)))
            packet = struct.pack(">BBHIIII", 0x64, 0, 0xFFFF, queue_pair, 0, 0x11111111, 2)
            packet += bytes(self.rng.choice((4, 4, 68, 4096)))
            owner = place.address if self.rng.random() < 0.8 else self.address()
            if self.rng.random() < 0.5:
                to = self.rng.choice((four[12:], b"\xef\1\xff\xff", b"\xff" * 4, self.address()))
                place.put(frame_of(owner, to, packet, ROCE))
            else:
                to = self.rng.choice((six, six[:-1] + b"\x08", *aliases_of(self.address())))
                place.put(frame_of6(self.rng.choice((*aliases_of(owner), six)), to, packet))
        place.ring()
        self.wait_and_rewrite(place)
        self.keep(place)

    def connection_management(self):
        """For queue pair 1: requests for no process are refused, in whatever name they come."""
        place = Place(self, port=ROCE)
        for _ in range(self.rng.randint(1, 200)):
            packet = struct.pack(">BBHII", 0x64, 0, 0xFFFF, 1, 0)
            packet += struct.pack(">II", 0x80010000, self.rng.choice((1, 1, 0, 0xFFFFFF)))
            packet += struct.pack(">BBBBIQHHI", 1, 7, 2, 3, 0, self.rng.getrandbits(64),
                                  self.rng.choice((*range(0x10, 0x19), 0, 0xFFFF)), 0, 0)
            packet += self.rng.randbytes(self.rng.choice((232, 232, 232, 231, 100, 0)))
            source = place.address if self.rng.random() < 0.9 else self.address()
            place.put(frame_of(source, self.address(), packet + bytes(4), ROCE))
        place.ring()
        self.wait_and_rewrite(place)
        self.keep(place)

    def wait_and_rewrite(self, place):
        """While weftd reads its frames their bytes change."""
        for _ in range(20):
            at = place.up + HEADER + self.rng.randrange(0, max(place.at, 64))
            place.memory[at:at + 4] = struct.pack("<I", self.rng.choice(WORDS))

    # The ring's indices and flags, and the lengths of records, in both directions.
    def ring_words(self):
        place = Place(self, ring_bytes=self.rng.choice((0, 1, 1 << 14, 1 << 17, 0xFFFFFFFF)))
        for _ in range(self.rng.randint(1, 30)):
            base = self.rng.choice((0, place.up))
            struct.pack_into("<Q", place.memory, base, self.rng.choice(LONGS))
            # The words at 0, 128 and 256 are `consumed`, `asleep` and `notice`.
            struct.pack_into("<I", place.memory, base + 128, self.rng.choice((0, 1, 0xFFFFFFFF)))
            struct.pack_into("<I", place.memory, base + 256, self.rng.choice((0, 1, 0xFFFFFFFF)))
            at = base + HEADER + self.rng.randrange(place.capacity // CELL) * CELL
            struct.pack_into("<I", place.memory, at, self.rng.choice(WORDS))
        place.put(bytes(self.rng.choice((0, 1, 60, 2000))), self.rng.choice(WORDS))
        place.ring()
        self.keep(place)

    def endless_ring(self):
        """Full of frames that are of no use, written again as fast as they are read."""
        place = Place(self)
        while place.put(bytes(64)):
            pass
        place.ring()
        self.keep(place)

    # A bell is a socket by which one side wakes the other.
    def bells(self):
        place = Place(self)
        bell = socket.socket(fileno=os.dup(place.fds[1]))
        what = self.rng.randrange(6)
        if what == 0:
            for _ in range(500):
                bell.send(b"x" * self.rng.choice((0, 1, 1, 100)), socket.MSG_DONTWAIT)
        elif what == 1:
            fds = self.descriptors()
            try:
                bell.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                       array.array("i", fds))])
            finally:
                for fd in fds:
                    os.close(fd)
        elif what == 2:
            bell.shutdown(self.rng.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        elif what == 3:
            bell.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            bell.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            struct.pack_into("<I", place.memory, 128, 1)
        elif what == 4:
            os.close(place.fds.pop())
        place_fd = place.fds[0]
        bell.close()
        self.flags_of(place_fd, place)
        self.keep(place)

    def flags_of(self, memory, place):
        """Descriptions that weftd may share with us."""
        for fd in [memory, place.socket.fileno(), *place.fds]:
            fcntl.fcntl(fd, fcntl.F_SETFL, self.rng.choice((0, os.O_APPEND, os.O_NONBLOCK,
                                                             os.O_ASYNC, os.O_DIRECT)))
        ctypes.CDLL(None).fallocate(memory, 3, ctypes.c_long(0),  # punch a hole, keep the size
                                    ctypes.c_long(self.rng.choice((4096, 1 << 20))))

    # As a process that comes back after weftd's restart, in another's name.
    def pretended_return(self):
        Place(self, attachment=self.rng.randint(1, 300),
              life=self.rng.choice((1, 0xFFFFFFFF, int(time.time() * 10) % (1 << 32)))).close()

    def attach_and_leave(self):
        for _ in range(self.rng.randint(1, 20)):
            place = Place(self)
            place.put(bytes(64))
            place.close()

    # Processes that end in the middle of it, or stop for ever with a place and a full ring.
    def dying_and_stopped(self):
        child = os.fork()
        if child == 0:
            step = self.rng.randrange(3)
            try:
                if step == 0:
                    self.connect("attach.sock", socket.SOCK_SEQPACKET)
                else:
                    place = Place(self)
                    place.put(bytes(64))
                if step == 2:
                    os.kill(os.getpid(), signal.SIGSTOP)
            finally:
                os._exit(0)
        self.children.append(child)
        while len(self.children) > 10:
            self.reap(self.children.pop(0))

    @staticmethod
    def reap(child):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    @staticmethod
    def check_itself():
        """A neighbour without descriptors cannot attack."""
        held = len(os.listdir("/proc/self/fd"))
        if held > 500:
            sys.exit(f"the neighbour itself leaks descriptors: {held}")

    def run(self):
        attacks = [self.wrong_message, self.connection_to_itself, self.storm, self.control,
                   self.web, self.forged_frames, self.ring_words, self.endless_ring, self.bells,
                   self.pretended_return, self.attach_and_leave, self.dying_and_stopped,
                   self.services, self.connection_management, self.groups, self.group_frames]
        while not select.select([sys.stdin], [], [], 0)[0]:
            attack = self.rng.choice(attacks)
            outcome = "done"
            try:
                attack()
            except (OSError, ValueError, struct.error):
                outcome = "refused"
            count = self.counts.setdefault(attack.__name__, {"done": 0, "refused": 0})
            count[outcome] += 1
            self.check_itself()
            # Else it would be a test of the scheduler.
            time.sleep(0.002)
        for child in self.children:
            self.reap(child)
        print(" ".join(f"{name}:{count['done']}+{count['refused']}"
                       for name, count in sorted(self.counts.items())), flush=True)


if __name__ == "__main__":
    os.nice(10)  # on two cores weftd is to be tested, not the scheduler
    Neighbour(sys.argv[1], int(sys.argv[2])).run()
