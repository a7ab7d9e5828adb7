#!/usr/bin/env python3
# Owns the test that what our soft-RoCE devices send is what other people's programs read.
"""usage: wire.py WEFT FOLDER [--keep FOLDER]

Runs programs of verbs and rdma_cm under `weft run --capture`, and has every frame that a host sent
decoded by tshark. Its ICRC is computed again by Python's zlib, and of some frames by scapy.
Lengths, PSNs, messages and AETHs are followed by rules that are written in wire_rules.py, and share
nothing with weft's own decoders. FOLDER has the programs of the conformance tests. Exit code 1 if a
frame is not as it should be, or an opcode is missing; 77 where there is no tshark."""

import collections
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "interop"))
import frames as reader  # pylint: disable=wrong-import-position
import wire_rules  # pylint: disable=wrong-import-position

PYTHON = "/usr/bin/python3"  # of the distribution, which is where scapy is
ROUNDS = 46
LEAST_FRAMES = 100_000
SCAPY_FRAMES = 1000
PATIENCE = 100

NARROW = HERE.parent / "fabrics" / "narrow.yaml"
LEAF_SPINE = HERE.parent / "fabrics" / "leaf_spine.yaml"
SOFT = HERE.parents[2] / "emu" / "devices" / "rxe" / "profiles" / "soft.yaml"

COLUMNS = ["frame.len", "udp.length", "infiniband.bth.opcode", "infiniband.bth.se",
           "infiniband.bth.padcnt", "infiniband.bth.tver", "infiniband.bth.p_key",
           "infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn",
           "infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen",
           "infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt", "infiniband.deth.q_key",
           "infiniband.deth.srcqp", "infiniband.immdt", "infiniband.ieth",
           "infiniband.aeth.syndrome", "infiniband.aeth.msn",
           "infiniband.atomicacketh.origremdt", "infiniband.invariant.crc",
           "infiniband.mad.baseversion", "infiniband.mad.mgmtclass", "infiniband.mad.method",
           "infiniband.mad.attributeid", "_ws.malformed"]

# What tshark guesses that payloads are.
GUESSES = ["smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband.eoib",
           "infiniband_sdp", "fcoib", "idp"]

SCAPY = """
import sys
from scapy.layers.l2 import Ether
from scapy.contrib.roce import BTH
from scapy.utils import rdpcap
wrong = 0
for frame in rdpcap(sys.argv[1]):
    raw = bytes(frame)
    found = Ether(raw)[BTH]
    wrong += found.compute_icrc(raw[42:-4]) != raw[-4:]
print(wrong)
"""


def pcapng(path):
    """(interface's name, frame) of each packet of a little-endian file."""
    data, names, at = path.read_bytes(), [], 0
    word = lambda where: int.from_bytes(data[where:where + 4], "little")
    while at + 12 <= len(data):
        kind, size = word(at), word(at + 4)
        if kind == 1:
            option = at + 16
            while word(option) & 0xFFFF not in (0, 2):
                option += 4 + (((word(option) >> 16) + 3) & ~3)
            names.append(data[option + 4:option + 4 + (word(option) >> 16)].decode())
        elif kind == 6:
            captured = word(at + 20)
            yield names[word(at + 8)], data[at + 28:at + 28 + captured]
        at += size


def write_pcap(path, chosen):
    with open(path, "wb") as out:
        out.write(b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + bytes(8) + b"\0\0\x04\0\x01\0\0\0")
        for frame in chosen:
            size = len(frame).to_bytes(4, "little")
            out.write(bytes(8) + size + size + frame)


class Run:
    """One job: what it printed, and what its hosts sent."""

    def __init__(self, weft, folder, name, options, commands, device="rxe"):
        self.name = name
        self.path = folder / name
        words = [weft, "run", "-q", "--device", device, "--capture", "--out", str(self.path)]
        words += options + ["--"]
        for index, command in enumerate(commands):
            words += ([":"] if index else []) + command
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False, text=True)
        self.code, self.output = done.returncode, done.stdout
        # The link that a frame enters the network by: from a host.
        self.sent = [(link.split("->")[0], frame)
                     for link, frame in pcapng(self.path / "capture.pcapng")
                     if link[0] == "h" and reader.roce_of(frame)]
        self.file = self.path / "sent.pcap"
        write_pcap(self.file, (frame for _, frame in self.sent))
        (self.path / "capture.pcapng").unlink()

    def start_tshark(self):
        """Decodes while the next job runs."""
        words = ["tshark", "-n", "-r", str(self.file), "-T", "fields", "-E", "occurrence=f"]
        for guess in GUESSES:
            words += ["--disable-protocol", guess]
        for column in COLUMNS:
            words += ["-e", column]
        # A file, because nobody empties a pipe meanwhile.
        self.lines = open(self.path / "tshark", "w+",  # pylint: disable=consider-using-with
                          encoding="utf-8")
        self.tshark = subprocess.Popen(  # pylint: disable=consider-using-with
            words, stdout=self.lines, stderr=subprocess.DEVNULL)

    def decoded(self):
        if self.tshark.wait(PATIENCE) != 0:
            raise RuntimeError(f"{self.name}: tshark ends with {self.tshark.returncode}")
        self.lines.seek(0)
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in self.lines]

    def pairs(self):
        """What weft_verbs_opcodes printed: (host, type, MTU, number, peer's, first PSN)."""
        for line in self.output.splitlines():
            words = line.split()
            if words[1:2] == ["pair"]:
                yield (words[0].strip("[]"), words[2], *map(int, words[3:7]))


class Findings:
    """What is wrong, and how often."""

    SHOWN = 5

    def __init__(self):
        self.counts = collections.Counter()

    def add(self, run, what, detail):
        self.counts[run, what] += 1
        if self.counts[run, what] <= self.SHOWN:
            print(f"WRONG {run}: {what}: {detail}", flush=True)


def compare(run, findings, seen):
    """Each frame: our bytes, by the rules, against tshark's words."""
    decoded = run.decoded()
    if len(decoded) != len(run.sent):
        findings.add(run.name, "frames", f"tshark sees {len(decoded)} of {len(run.sent)}")
        return []
    packets = []
    for number, ((host, frame), told) in enumerate(zip(run.sent, decoded), 1):
        ip, udp = reader.roce_of(frame)
        if reader.icrc_of(ip, udp) != ip[-4:]:
            findings.add(run.name, "ICRC", f"frame {number}: {frame.hex()}")
        packet = wire_rules.Packet(host, ip, udp)
        for what, detail in itertools.chain(packet.faults(), packet.differs_from(told)):
            findings.add(run.name, what, f"frame {number}, opcode {packet.opcode}: {detail}")
        seen["opcodes"][packet.opcode] += 1
        if packet.syndrome is not None and packet.syndrome != wire_rules.ACK:
            seen["naks"][wire_rules.kind_of(packet.syndrome)] += 1
        if packet.mad is not None:
            seen["messages"][packet.mad] += 1
        packets.append(packet)
    return packets


def ask_scapy(runs, folder, findings):
    """How many frames it has read; None: it is not installed."""
    some = [frame for run in runs for _, frame in run.sent if frame[12:14] == b"\x08\x00"]
    some = random.Random(1).sample(some, min(SCAPY_FRAMES, len(some)))
    write_pcap(folder / "some.pcap", some)
    done = subprocess.run([PYTHON, "-c", SCAPY, str(folder / "some.pcap")], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if "No module named 'scapy'" in done.stderr:
        return None
    if done.returncode != 0 or int(done.stdout) != 0:
        findings.add("all", "scapy's ICRC", done.stdout + done.stderr[-500:])
    return len(some)


def jobs(weft, programs, folder):
    port = 10000 + random.randrange(20000)
    profile = folder / "congestion.yaml"
    profile.write_text(SOFT.read_text().replace("congestion_control: {value: false",
                                                "congestion_control: {value: true"))

    def pair(name, options, program, *words):
        nonlocal port
        port += 1
        mine = [str(programs / program), str(port)]
        return Run(weft, folder, name, options, [mine + list(words), mine + ["{h1.ip}"]])

    def opcodes(name, rounds, gid):
        nonlocal port
        port += 1
        mine = ["env", f"WEFT_VERBS_GID={gid}", str(programs / "weft_verbs_opcodes"), str(port),
                str(rounds)]
        return Run(weft, folder, name, [], [mine, mine + ["{h1.ip}"]])

    def stock(name, program, words, options=(), device="rxe"):
        nonlocal port
        port += 1
        if shutil.which(program) is None:
            print(f"not run: {name}: this machine has no {program}")
            return None
        commands = [[program] + [word.replace("PORT", str(port)) for word in end.split()]
                    for end in words]
        return Run(weft, folder, name, list(options), commands, device)

    yield opcodes("opcodes", ROUNDS - 4, 1)
    yield opcodes("opcodes by IPv6", 4, 2)
    yield pair("refusals", [], "weft_verbs_peers")
    loss = ["--topology", str(LEAF_SPINE), "--fault", "link: tor0-*, loss: 0.01"]
    port += 1
    lossy = ["env", "WEFT_VERBS_LONGEST=20001", str(programs / "weft_verbs_data"), str(port)]
    yield Run(weft, folder, "loss", loss, [lossy + ["lossy"], lossy + ["{h1.ip}", "lossy"]])
    yield stock("congestion", "ib_write_bw", ["-x 1 -F -n 60 -p PORT",
                                              "-x 1 -F -n 60 -p PORT {h1.ip}"],
                ["--topology", str(NARROW)], f"rxe:{profile}")
    yield stock("rping", "rping", ["-s -C 3 -p PORT", "-c -a {h1.ip} -C 3 -p PORT"])
    yield stock("udaddy", "udaddy", ["-c 3", "-c 3 -s {h1.ip}"])
    if shutil.which("rping") is not None:
        yield Run(weft, folder, "refused", [], [
            ["sleep", "1"], ["sh", "-c", f"! rping -c -a {{h1.ip}} -C 1 -p {port + 1}"]])


def main(weft, programs, *options):
    if shutil.which("tshark") is None:
        print("skipped: this machine has no tshark, which decodes what the test looks at")
        return 77
    if not programs:
        print("skipped: this tree was configured without libibverbs-dev")
        return 77
    begin = time.monotonic()
    findings = Findings()
    seen = {name: collections.Counter() for name in ("opcodes", "naks", "messages")}
    total = 0
    with tempfile.TemporaryDirectory(prefix="weft-wire-") as made:
        folder = Path(options[1]) if options[:1] == ("--keep",) else Path(made)
        runs = []
        for run in jobs(weft, Path(programs), folder):
            if run is None:
                continue
            if run.code != 0:
                findings.add(run.name, "exit code", f"{run.code}\n{run.output[-2000:]}")
            run.start_tshark()
            runs.append(run)
        for run in runs:
            packets = compare(run, findings, seen)
            total += len(packets)
            for what, detail in wire_rules.follow(packets, list(run.pairs())):
                findings.add(run.name, what, detail)
            print(f"{run.name}: {len(packets)} frames", flush=True)
        by_scapy = ask_scapy(runs, folder, findings)
    for what, wanted in (("opcodes", wire_rules.OPCODES), ("naks", wire_rules.NAKS),
                         ("messages", wire_rules.MESSAGES)):
        missing = sorted(set(wanted) - set(seen[what]))
        if missing:
            findings.add("all", f"{what} that nobody sent", missing)
    if total < LEAST_FRAMES:
        findings.add("all", "frames", f"{total}, fewer than {LEAST_FRAMES}")
    print(f"{total} frames of {len(seen['opcodes'])} opcodes, "
          f"{'no scapy here' if by_scapy is None else f'{by_scapy} of them read by scapy'}; NAKs: "
          f"{dict(seen['naks'])}; messages: {dict(seen['messages'])}; "
          f"{sum(findings.counts.values())} wrong; {time.monotonic() - begin:.0f} s")
    return 1 if findings.counts else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
