# Owns the rules that packets of RoCEv2 have to keep, written by the InfiniBand specification.
"""Packet: one packet by itself. follow(): what the packets of a queue pair have to do with each
other, where nothing was lost."""

import collections

RETH, ATOMIC, AETH, ATOMIC_ACK, IMMEDIATE, INVALIDATE, DETH = 16, 28, 4, 8, 4, 4, 8
BTH, ICRC, UDP = 12, 4, 8
ACK, RNR = 31, 0x20
RC, UC, UD = 0x00, 0x20, 0x60
CNP = 0x81
CNP_BODY = 16
ATOMIC_WRITE = 29
MAD = 256
MAD_QKEY = 0x80010000
READ_RESPONSES = (13, 14, 15, 16)
FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"

# By the lower five bits: kind, place in its message, extension headers.
OPERATIONS = {
    0: ("send", FIRST, []), 1: ("send", MIDDLE, []), 2: ("send", LAST, []),
    3: ("send", LAST, ["immediate"]), 4: ("send", ONLY, []), 5: ("send", ONLY, ["immediate"]),
    6: ("write", FIRST, ["reth"]), 7: ("write", MIDDLE, []), 8: ("write", LAST, []),
    9: ("write", LAST, ["immediate"]), 10: ("write", ONLY, ["reth"]),
    11: ("write", ONLY, ["reth", "immediate"]), 12: ("read", ONLY, ["reth"]),
    13: ("response", FIRST, ["aeth"]), 14: ("response", MIDDLE, []),
    15: ("response", LAST, ["aeth"]), 16: ("response", ONLY, ["aeth"]),
    17: ("acknowledge", ONLY, ["aeth"]), 18: ("atomic response", ONLY, ["aeth", "original"]),
    19: ("atomic", ONLY, ["atomic"]), 20: ("atomic", ONLY, ["atomic"]),
    22: ("send", LAST, ["key"]), 23: ("send", ONLY, ["key"]),
    ATOMIC_WRITE: ("atomic", ONLY, ["reth"]),
}
SIZES = {"reth": RETH, "atomic": ATOMIC, "aeth": AETH, "original": ATOMIC_ACK,
         "immediate": IMMEDIATE, "key": INVALIDATE, "deth": DETH}
# What tshark calls the parts of each header, and where they are.
FIELDS = {
    "reth": [("infiniband.reth.va", 0, 8), ("infiniband.reth.r_key", 8, 12),
             ("infiniband.reth.dmalen", 12, 16)],
    "atomic": [("infiniband.reth.va", 0, 8), ("infiniband.reth.r_key", 8, 12),
               ("infiniband.atomiceth.swapdt", 12, 20), ("infiniband.atomiceth.cmpdt", 20, 28)],
    "aeth": [("infiniband.aeth.syndrome", 0, 1), ("infiniband.aeth.msn", 1, 4)],
    "original": [("infiniband.atomicacketh.origremdt", 0, 8)],
    "immediate": [("infiniband.immdt", 0, 4)],
    "key": [("infiniband.ieth", 0, 4)],
    "deth": [("infiniband.deth.q_key", 0, 4), ("infiniband.deth.srcqp", 5, 8)],
}
BARE = ("read", "acknowledge", "atomic response")  # kinds without payload, beside atomics

OPCODES = ([RC | op for op in OPERATIONS] + [UC | op for op in range(12)] +
           [UD | 4, UD | 5, CNP])
NAKS = ("receiver not ready", "PSN sequence", "invalid request", "remote access",
        "remote operation")
# Of connection management, by attribute: REQ, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP.
MESSAGES = (0x10, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18)


def kind_of(syndrome):
    if syndrome >> 5 == 1:
        return NAKS[0]
    return NAKS[1 + (syndrome & 31)] if syndrome >> 5 == 3 and syndrome & 31 < 4 else hex(syndrome)


def number(data):
    return int.from_bytes(data, "big")


class Packet:  # pylint: disable=too-many-instance-attributes
    """What the bytes say."""

    def __init__(self, host, ip, udp):
        self.host = host
        self.ip, self.udp = ip, udp
        bth = udp + UDP
        self.bth = bth
        self.opcode = ip[bth]
        self.transport, self.operation = self.opcode & 0xE0, self.opcode & 0x1F
        self.pad = ip[bth + 1] >> 4 & 3
        self.to = number(ip[bth + 5:bth + 8])
        self.asks = ip[bth + 8] >> 7
        self.psn = number(ip[bth + 9:bth + 12])
        self.known = self.opcode == CNP or self.opcode in OPCODES
        self.kind, self.place, headers = OPERATIONS.get(self.operation, ("?", ONLY, []))
        headers = list(headers)
        if self.opcode == CNP:
            self.kind, self.place, headers = "notification", ONLY, []
        if self.transport == UD:
            headers.insert(0, "deth")
        at = bth + BTH
        self.headers = {}
        for name in headers:
            self.headers[name] = ip[at:at + SIZES[name]]
            at += SIZES[name]
        self.payload = len(ip) - ICRC - at - self.pad
        self.padding = ip[len(ip) - ICRC - self.pad:len(ip) - ICRC]
        aeth = self.headers.get("aeth")
        self.syndrome = aeth[0] if aeth else None
        self.msn = number(aeth[1:]) if aeth else None
        reth = self.headers.get("reth")
        self.length = number(reth[12:]) if reth else None
        self.mad = None
        if self.transport == UD and self.to == 1 and self.payload == MAD:
            self.mad = number(ip[at + 16:at + 18])
        self.body = ip[at:at + self.payload] if self.payload >= 0 else b""

    def faults(self):
        """(what, detail) of each rule that it breaks by itself."""
        ip = self.ip
        if not self.known:
            yield "opcode", "not one of ours"
            return
        if number(ip[self.udp + 4:self.udp + 6]) != len(ip) - self.udp:
            yield "UDP length", number(ip[self.udp + 4:self.udp + 6])
        if self.udp == 20 and (number(ip[2:4]) != len(ip) or ip[6] != 0x40 or ip_sum(ip) != 0):
            yield "IP header", ip[:20].hex()
        if self.udp == 40 and number(ip[4:6]) != len(ip) - 40:
            yield "IPv6 length", number(ip[4:6])
        if number(ip[self.udp:self.udp + 2]) < 0xC000:
            yield "source port", number(ip[self.udp:self.udp + 2])
        if ip[self.bth + 1] & 0x0F != 0 or ip[self.bth + 8] & 0x7F != 0:
            yield "BTH version or reserved bits", ip[self.bth:self.bth + BTH].hex()
        if number(ip[self.bth + 2:self.bth + 4]) != 0xFFFF:
            yield "P_Key", ip[self.bth + 2:self.bth + 4].hex()
        if self.payload < 0 or (self.payload + self.pad) % 4 != 0 or any(self.padding):
            yield "padding", f"{self.payload} bytes, {self.padding.hex()}"
        yield from self.faults_of_size()
        if self.asks and self.kind in ("response", "acknowledge", "atomic response"):
            yield "AckReq", "of a response"
        if self.syndrome is not None and not (
                self.syndrome == ACK or self.operation == 17 and
                (self.syndrome >> 5 == 1 or self.syndrome in (0x60, 0x61, 0x62, 0x63))):
            yield "AETH syndrome", hex(self.syndrome)
        if self.to == 1:
            yield from self.faults_of_mad()

    def faults_of_size(self):
        size = self.payload
        if self.opcode == CNP:
            if size != CNP_BODY or any(self.body):
                yield "length", f"{size} bytes of a notification"
        elif self.operation == ATOMIC_WRITE:
            if size != 8 or self.length != 8:
                yield "length", f"{size} bytes of an atomic write of {self.length}"
        elif self.kind in BARE or self.kind == "atomic":
            if size != 0:
                yield "length", f"{size} bytes where there are none"
        elif self.place in (FIRST, MIDDLE) and size not in (256, 512, 1024, 2048, 4096):
            yield "length", f"{size} bytes of a packet that is no last one"
        elif self.place == LAST and size == 0 or size > 4096:
            yield "length", f"{size} bytes"

    def faults_of_mad(self):
        deth = self.headers.get("deth")
        if deth is None or self.payload != MAD or number(deth[:4]) != MAD_QKEY:
            yield "message", "to queue pair 1, and not one of management"
        elif self.body[:4] != b"\x01\x07\x02\x03":
            yield "message", f"of management: {self.body[:24].hex()}"

    def differs_from(self, told):
        """(what, detail) of each field that tshark reads otherwise. `told`: words by column."""
        ip, bth = self.ip, self.bth
        wanted = {
            "frame.len": len(ip) + 14,
            "udp.length": len(ip) - self.udp,
            "infiniband.bth.opcode": self.opcode,
            "infiniband.bth.se": ip[bth + 1] >> 7,
            "infiniband.bth.padcnt": self.pad,
            "infiniband.bth.tver": 0,
            "infiniband.bth.p_key": 0xFFFF,
            "infiniband.bth.destqp": self.to,
            "infiniband.bth.a": self.asks,
            "infiniband.bth.psn": self.psn,
        }
        # tshark looks no further into a notification, and 4.0 not into an atomic write, either.
        further = {}
        if self.opcode != CNP:
            further["infiniband.invariant.crc"] = number(ip[-4:])
            for name, header in self.headers.items():
                for field, begin, end in FIELDS[name]:
                    further[field] = number(header[begin:end])
        if self.operation != ATOMIC_WRITE or any(told.get(name) for name in further):
            wanted |= further
        if self.mad is not None:
            wanted |= {"infiniband.mad.baseversion": 1, "infiniband.mad.mgmtclass": 7,
                       "infiniband.mad.method": 3, "infiniband.mad.attributeid": self.mad}
        for name, text in told.items():
            value = wanted.get(name)
            if text == "" and value is None:
                continue
            if text == "" or value is None or value_of(name, text) != value:
                yield f"tshark: {name}", f"{text or 'nothing'} and not {value}"


def ip_sum(ip):
    total = sum(number(ip[i:i + 2]) for i in range(0, 20, 2))
    return (total & 0xFFFF) + (total >> 16) ^ 0xFFFF


def value_of(name, text):
    """Of numbers, decimal and hexadecimal ones, of fields that are bytes, and of words."""
    if name in ("infiniband.immdt", "infiniband.ieth"):
        return int(text, 16)
    try:
        return int(text, 0)
    except ValueError:
        return {"True": 1, "False": 0}.get(text, text)


def plus(psn, count):
    return (psn + count) & 0xFFFFFF


def behind(psn, expected):
    return 0 < (expected - psn & 0xFFFFFF) < 1 << 23


class Requests:
    """What one queue pair has sent, packet by packet."""

    def __init__(self, host, pair):
        _, self.transport, self.mtu, self.number, self.peer, self.next = pair
        self.host = host
        self.name = f"{host} {self.transport} {self.number}"
        self.message = None  # kind, bytes so far, bytes that the RETH says
        self.ended = 0       # messages
        self.repeated = 0
        self.asked = {}      # by PSN: what answers there

    def send(self, packet):
        """Yields what is wrong."""
        if behind(packet.psn, self.next):
            self.repeated += 1
            return
        if packet.psn != self.next:
            yield "PSN", f"{self.name}: {packet.psn} and not {self.next}"
        self.next = plus(packet.psn, 1)
        if self.transport == "UD":
            deth = packet.headers["deth"]
            if number(deth[5:]) != self.number or number(deth[:4]) != 0x11111111:
                yield "DETH", f"{self.name}: {deth.hex()}"
            return
        yield from self.carry_on(packet)
        if packet.kind in ("read", "atomic"):
            count = max(1, -(-packet.length // self.mtu)) if packet.kind == "read" else 1
            for place in range(count):
                self.asked[plus(packet.psn, place)] = (packet.kind, place, count, self.ended,
                                                       packet)
            self.next = plus(packet.psn, count)
        else:
            self.asked[packet.psn] = ("message", 0, 1, self.ended, packet)

    def carry_on(self, packet):
        if packet.place in (FIRST, ONLY):
            if self.message is not None:
                yield "message", f"{self.name}: {packet.psn} begins one inside another"
            self.message = [packet.kind, 0, packet.length]
        elif self.message is None or self.message[0] != packet.kind:
            yield "message", f"{self.name}: {packet.psn} goes on with none"
            self.message = [packet.kind, 0, None]
        if packet.place in (FIRST, MIDDLE) and packet.payload != self.mtu:
            yield "length", f"{self.name}: {packet.psn} has {packet.payload} of {self.mtu} bytes"
        if packet.payload > self.mtu:
            yield "length", f"{self.name}: {packet.psn} has more than {self.mtu} bytes"
        self.message[1] += packet.payload
        if packet.place in (LAST, ONLY):
            kind, size, said = self.message
            if kind == "write" and said != size:
                yield "length", f"{self.name}: a write of {said} bytes has {size}"
            self.message = None
            self.ended = plus(self.ended, 1)

    def hear(self, packet):
        """The peer's answer."""
        asked = self.asked.get(packet.psn)
        if asked is None:
            yield "PSN", f"{self.name}: {packet.psn} is answered, and was never sent"
            return
        kind, place, count, ended, request = asked
        if packet.syndrome not in (None, ACK):
            yield "NAK", f"{self.name}: {kind_of(packet.syndrome)} at {packet.psn}"
        if self.repeated:  # on a machine that gave it no core; what answers came when is not known
            return
        if packet.msn is not None and packet.msn != ended:
            yield "MSN", f"{self.name}: {packet.msn} and not {ended} at {packet.psn}"
        if packet.kind == "acknowledge":
            if kind != "message":
                yield "acknowledgement", f"{self.name}: of the {kind} {packet.psn}"
            return
        if request.operation == ATOMIC_WRITE:
            if packet.operation != 16 or packet.payload != 0:
                yield "response", f"{self.name}: {packet.operation} to an atomic write"
        elif kind == "atomic":
            if packet.operation != 18:
                yield "response", f"{self.name}: {packet.operation} to an atomic"
        elif kind != "read":
            yield "response", f"{self.name}: {packet.operation} to a message"
        else:
            where = ONLY if count == 1 else FIRST if place == 0 else \
                LAST if place == count - 1 else MIDDLE
            size = request.length - place * self.mtu if place == count - 1 else self.mtu
            if packet.place != where or packet.payload != size:
                yield "response", (f"{self.name}: {packet.psn} is {packet.place} with "
                                   f"{packet.payload} bytes and not {where} with {size}")


def follow(packets, pairs):
    """Where the program says what its queue pairs are: (what, detail) of all that does not fit."""
    if not pairs:
        return
    transports = {RC: "RC", UC: "UC", UD: "UD"}
    by_peer = {(pair[0], pair[1], pair[4]): Requests(pair[0], pair) for pair in pairs}
    by_number = {(pair[0], pair[1], pair[3]): by_peer[pair[0], pair[1], pair[4]] for pair in pairs}
    hosts = sorted({pair[0] for pair in pairs})
    heard = collections.Counter()
    for packet in packets:
        transport = transports.get(packet.transport)
        if packet.kind in ("response", "acknowledge", "atomic response"):
            other = hosts[1 - hosts.index(packet.host)]
            requests = by_number.get((other, transport, packet.to))
            step = requests.hear if requests else None
        else:
            requests = by_peer.get((packet.host, transport, packet.to))
            step = requests.send if requests else None
        if step is None:
            yield "queue pair", f"{packet.host} sends to {packet.to}, which nobody has"
            continue
        heard[requests.name, packet.kind] += 1
        yield from step(packet)
    for requests in by_peer.values():
        if requests.message is not None:
            yield "message", f"{requests.name}: the last one does not end"
    if not any(name.split()[1] == "RC" and kind == "acknowledge" for name, kind in heard):
        yield "acknowledgement", "there is none"
