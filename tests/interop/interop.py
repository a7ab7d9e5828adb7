#!/usr/bin/env python3
# Owns the tests of our soft-RoCE against Linux's: the same programs on our device and in a guest
# with rdma_rxe, each side in either role, over a network that may lose and disorder.
"""usage: interop.py WEFT VERBS_DATA [--kernel K] [--loss P] [-k REGEX] [--list] [--keep DIR]

Needs no root: qemu-system-x86_64, the guest's image (`weft softroce vm -- true` makes it), and the
programs of rdmacm-utils, ibverbs-utils and perftest. Exit code 77 if something of this is missing.
"""

import argparse
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import frames  # pylint: disable=wrong-import-position

HOST_SEEN_BY_GUEST = "10.0.2.2"
PATIENCE = 100  # seconds for a client; a guest that QEMU translates is slow
ATTEMPTS = 3
PROGRAMS = ["rping", "ucmatose", "udaddy", "ibv_rc_pingpong", "ib_send_bw"]


class Failure(Exception):
    pass


class LastWordLost(Failure):
    """The server has all that it waited for, and has ended; the client's last message is repeated
    to nobody, as its acknowledgement was lost. Linux does so for ever where a program says
    retry_cnt 7, also beside Linux. The frame was lost by the network, or by a guest that was
    slow."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Ours:
    """Programs on the emulated device of host h1."""

    name = "ours"

    def __init__(self, network):
        self.network = network
        self.running = []

    def start(self, command):
        log = tempfile.TemporaryFile()
        process = subprocess.Popen(
            [self.network.weft, "exec", self.network.name, "h1", "--", "sh", "-c", command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=self.network.env, start_new_session=True)
        self.running.append((process, log))
        return process, log

    def wait(self, job, limit):
        process, log = job
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill(job)
            code = None
        log.seek(0)
        return code, log.read().decode(errors="replace")

    def kill(self, job):
        try:
            os.killpg(job[0].pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        job[0].wait()

    def wait_until_it_listens(self, job, port):
        """On a TCP port; without one, on a port of rdma_cm, as a descriptor of that name shows."""
        end = time.monotonic() + 30
        while time.monotonic() < end and job[0].poll() is None:
            if port and any(f":{port:04X} " in line and " 0A " in line
                            for line in Path("/proc/net/tcp").read_text().splitlines()):
                return
            if not port and self.has_sign(job[0].pid):
                return
            time.sleep(0.05)
        if job[0].poll() is None:
            raise Failure("our server does not listen")

    @staticmethod
    def has_sign(group):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(folder.name)) == group and any(
                        "weft-listens" in os.readlink(fd) for fd in (folder / "fd").iterdir()):
                    return True
            except OSError:
                continue
        return False


class Guest:
    """A shell in the guest: its programs see this machine's files."""

    name = "Linux"

    def __init__(self, network, kernel, forwards, capture):
        self.number = 0
        words = [network.weft, "softroce", "vm", "--network", network.name, "--host", "h2",
                 "--kernel", kernel, "--root", "/", "--memory", "640", "--outside", "--capture",
                 str(capture)]
        for port in forwards:
            words += ["--forward", str(port)]
        self.process = subprocess.Popen(words + ["--", "sh"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=network.env,
                                        start_new_session=True)
        self.said = b""
        self.run("mkdir -p /tmp/interop", 240)

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure("the guest has ended") from None

    def hear_until(self, mark, limit):
        end = time.monotonic() + limit
        while mark not in self.said:
            left = end - time.monotonic()
            if left <= 0:
                return None
            if select.select([self.process.stdout], [], [], left)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    raise Failure("the guest has ended")
                self.said += data
        before, self.said = self.said.split(mark, 1)
        return before.decode(errors="replace")

    def run(self, command, limit):
        """(exit code, output)"""
        self.number += 1
        mark = f"@@{self.number}@@"
        # The mark stands in the line only in two parts, so that no echo is taken for it.
        self.say(f"{{ {command}\n}} </dev/null 2>&1; echo \"@@\"\"{self.number}@@$?@@\"")
        said = self.hear_until(mark.encode(), limit)
        if said is None:
            raise Failure(f"the guest does not answer: {command}")
        return int(self.hear_until(b"@@", 10)), said

    def start(self, command):
        self.number += 1
        log = f"/tmp/interop/{self.number}"
        self.run(f"(setsid sh -c '{command}' >{log} 2>&1; echo $? >{log}.code) & "
                 f"echo $! >{log}.pid", 60)
        return log

    def wait(self, job, limit):
        code, said = self.run(
            f"n=0; while [ ! -s {job}.code ] && [ $n -lt {int(limit) * 5} ]; do sleep 0.2; "
            f"n=$((n + 1)); done; cat {job}; cat {job}.code 2>/dev/null || {{ echo none; false; }}",
            limit + 60)
        lines = said.strip().splitlines()
        if code != 0:
            self.kill(job)
            return None, said
        return int(lines[-1]), "\n".join(lines[:-1])

    def kill(self, job):
        self.run(f"pkill -KILL -P $(cat {job}.pid) -f .; pkill -KILL -s $(cat {job}.pid); true",
                 60)

    def wait_until_it_listens(self, job, port):
        look = (f"grep -q ':{port:04X} [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6" if port
                else "rdma resource show cm_id | grep -q 'state LISTEN'")
        code, said = self.run(
            f"n=0; until {look}; do [ ! -s {job}.code ] || break; sleep 0.1; n=$((n + 1)); "
            f"[ $n -lt 600 ] || break; done; [ $n -lt 600 ]", 120)
        if code != 0:
            raise Failure("the guest's server does not listen: " + said)

    def has_ended(self):
        return self.process.poll() is not None

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            pass
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Network:
    """Two hosts of ours, and a port for the guest on the link of the second one."""

    def __init__(self, weft, folder):
        self.weft, self.name = weft, f"interop{os.getpid()}"
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        self.env.pop("WEFT_SOCKET", None)
        self.command("up", self.name, "--hosts", "2", "--routable", "--device", "rxe", "--port",
                     f"dgram:{folder}/weftd,{folder}/guest@h2")

    def command(self, *words):
        done = subprocess.run([self.weft, *words], env=self.env, text=True, capture_output=True,
                              check=False)
        if done.returncode != 0:
            raise Failure(f"weft {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def down(self):
        subprocess.run([self.weft, "down", self.name], env=self.env, check=False,
                       capture_output=True)


class Case:
    """One job, of a server and a client. `{port}` is a TCP port, `{tcp}` the server's address for
    it, `{ip}` its address on the fabric; `{dev}` and `{gid}` are each side's own."""

    def __init__(self, name, server, client, says="", by_tcp=True, codes=(0,)):
        self.name, self.server, self.client = name, server, client
        self.says, self.by_tcp, self.codes = says, by_tcp, codes


def cases(verbs_data, lossy):
    # "lossy" with any network: a guest that gets no core loses what it does not take in time.
    program = f"WEFT_VERBS_TIMEOUT=18 {verbs_data} {{port}}"
    found = [Case("verbs_data", program + " lossy", program + " {tcp} lossy",
                  "atomics: all right")]
    for mtu in (256, 512, 1024, 2048, 4096):
        pingpong = f"ibv_rc_pingpong -d {{dev}} -g {{gid}} -p {{port}} -m {mtu} -c -n 40 -s "
        for size in (1, mtu, mtu + 1, 20001):
            found.append(Case(f"rc_pingpong.mtu{mtu}.{size}", f"{pingpong}{size}",
                              f"{pingpong}{size} {{tcp}}"))
    kinds = [("srq", "-q 4", (1, 4097))]
    if not lossy:  # nobody sends again what these lose
        kinds += [("uc", "-m 1024", (1, 1024, 9000)), ("ud", "", (1, 1000))]
    for kind, more, sizes in kinds:
        for size in sizes:
            words = (f"ibv_{kind}_pingpong -d {{dev}} -g {{gid}} -p {{port}} {more} "
                     f"-c -n 40 -s {size}")
            found.append(Case(f"{kind}_pingpong.{size}", words, words + " {tcp}"))
    tests = [("RC", verb, kind) for verb in ("send", "write", "read", "atomic")
             for kind in ("bw", "lat")]
    if not lossy:
        tests += [("UC", "send", "bw"), ("UC", "write", "lat"), ("UD", "send", "lat")]
    for service, verb, kind in tests:
        for size in ((8,) if verb == "atomic" else (2, 1000) if service == "UD" else (2, 65536)):
            words = f"ib_{verb}_{kind} -d {{dev}} -x {{gid}} -p {{port}} -F -n 30"
            words += "" if service == "UD" else " -u 17"
            words += "" if verb == "atomic" else f" -s {size}"
            words += "" if verb in ("read", "atomic") else f" -c {service}"
            found.append(Case(f"perftest.{service}.{verb}_{kind}.{size}", words, words + " {tcp}"))
    for size in (64, 4096, 60000):
        found.append(Case(f"rping.{size}", f"rping -s -a {{ip}} -V -C 30 -S {size}",
                          f"rping -c -a {{ip}} -V -C 30 -S {size}", by_tcp=False))
    found.append(Case("ucmatose", "ucmatose -b {ip} -C 20 -c 3", "ucmatose -s {ip} -C 20 -c 3",
                      by_tcp=False))
    found.append(Case("udaddy", "udaddy -b {ip} -C 20", "udaddy -s {ip} -C 20", by_tcp=False))
    # Nobody listens at that port.
    found.append(Case("reject", "", "rping -c -a {ip} -p 4242 -C 1", "REJECTED|unreachable|reject",
                      by_tcp=False, codes=range(1, 256)))
    return found


class Suite:
    def __init__(self, options, folder, capture):
        self.network = Network(options.weft, folder)
        self.lossy = options.loss > 0
        self.guest = None
        try:
            self.ports = {"guest": free_ports(4)}
            self.turn = 0
            self.guest = Guest(self.network, options.kernel, self.ports["guest"], capture)
            self.ours = Ours(self.network)
            if self.lossy:
                self.network.command("fault", self.network.name,
                                     f"link: h1-*, loss: {options.loss}, reordering: 0.01, "
                                     "reorder_delay: 200us, duplication: 0.005")
            self.ip = {"ours": "10.77.1.1", "Linux": "10.77.2.101"}
            self.dev = {"ours": "rxe_0", "Linux": "rxe_0"}
            self.gid = {side.name: self.gid_index(side) for side in (self.ours, self.guest)}
        except BaseException:
            self.end()
            raise

    def gid_index(self, side):
        job = side.start("cd /sys/class/infiniband/rxe_0/ports/1/gids && grep -H . [0-9]*")
        code, said = side.wait(job, 60)
        wanted = "".join(f"{int(part):02x}" for part in self.ip[side.name].split("."))
        for line in said.splitlines():
            index, _, gid = line.strip().partition(":")
            if code in (0, 2) and gid.replace(":", "").endswith("ffff" + wanted):
                return int(index)
        raise Failure(f"{side.name} has no GID of {self.ip[side.name]}: {said}")

    def run_until_heard(self, case, server, client):
        for attempt in range(ATTEMPTS):
            try:
                return self.run(case, server, client)
            except LastWordLost:
                if attempt + 1 == ATTEMPTS:
                    raise
                print(f"again           {case.name}: the last acknowledgement was lost")

    def run(self, case, server, client):
        self.turn += 1
        if server is self.guest:
            port, tcp = self.ports["guest"][self.turn % 4], "127.0.0.1"
        else:
            port, tcp = free_ports(1)[0], HOST_SEEN_BY_GUEST
        fill = {"port": port, "tcp": tcp, "ip": self.ip[server.name]}
        words = [text.format(dev=self.dev[side.name], gid=self.gid[side.name], **fill)
                 for side, text in ((server, case.server), (client, case.client))]
        serving = server.start(words[0]) if case.server else None
        try:
            if serving is not None:
                server.wait_until_it_listens(serving, port if case.by_tcp else None)
            code, said = client.wait(client.start(words[1]), PATIENCE)
        except Failure:
            if serving is not None and server is self.ours:  # the guest's end with the guest
                server.kill(serving)
            raise
        server_code, server_said = (0, "") if serving is None else server.wait(serving, 60)
        told = f"--- client ({client.name}): {words[1]}\n{said}\n"
        if serving is not None:
            told += f"--- server ({server.name}): {words[0]}\n{server_said}\n"
        if code is None and serving is not None and server_code == 0:
            raise LastWordLost(told)
        if code not in case.codes or (serving is not None and server_code != 0):
            raise Failure(f"exit codes: client {code}, server {server_code}\n{told}")
        if not re.search(case.says, said):
            raise Failure(f"the client does not say '{case.says}'\n{told}")

    def end(self):
        if self.guest is not None:
            self.guest.end()
        self.network.down()


def look_at_frames(capture):
    """What an independent reader says of everything that both sides have sent."""
    account = frames.account_of(capture)
    wrong = [f"ICRC wrong in a frame: {frame}" for frame in account.wrong_icrc[:5]]
    allowed = {"receiver not ready", "PSN sequence error"}
    wrong += [f"{source} answers {name} {count} times" for (source, name), count
              in account.naks.items() if name not in allowed]
    print(f"{account.frames} RoCE frames, {len(account.opcodes)} opcodes, "
          f"{len(account.wrong_icrc)} with a wrong ICRC; NAKs: {dict(account.naks) or 'none'}")
    return wrong


def missing(options):
    if shutil.which("qemu-system-x86_64") is None:
        return "this machine has no qemu-system-x86_64: install qemu-system-x86"
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"this machine has no {program}: ./weft setup rdma"
    status = subprocess.run([options.weft, "softroce", "status"], text=True, capture_output=True,
                            check=False).stdout
    if re.search(r"^image +none", status, re.MULTILINE):
        return "there is no image of the guest yet: weft softroce vm -- true makes it"
    return ""


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("verbs_data")
    parser.add_argument("--kernel", default="default")
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("-k", dest="wanted", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", help="where the capture goes")
    options = parser.parse_args()
    options.weft = os.path.abspath(options.weft)
    options.verbs_data = os.path.abspath(options.verbs_data)
    return options


def run_suite(options, chosen, folder):
    passed, failed = 0, 0
    capture = folder / "interop.pcap"
    suite = Suite(options, folder, capture)
    try:
        for case in chosen:
            for server, client in ((suite.ours, suite.guest), (suite.guest, suite.ours)):
                name = f"{case.name}, {client.name} to {server.name}"
                start = time.monotonic()
                try:
                    suite.run_until_heard(case, server, client)
                    passed += 1
                    print(f"ok      {time.monotonic() - start:6.1f} s  {name}", flush=True)
                except Failure as failure:
                    failed += 1
                    print(f"FAILED  {time.monotonic() - start:6.1f} s  {name}\n{failure}",
                          flush=True)
                    if suite.guest.has_ended():
                        return passed, failed + 1
    finally:
        suite.end()
        if options.keep and capture.exists():
            shutil.copy(capture, options.keep)
    complaints = look_at_frames(capture)
    for complaint in complaints:
        print("FAILED  " + complaint)
    return passed + (not complaints), failed + len(complaints)


def main():
    options = parse()
    chosen = [case for case in cases(options.verbs_data, options.loss > 0)
              if re.search(options.wanted, case.name)]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    reason = missing(options)
    if reason:
        print(reason)
        return 77
    if not chosen:
        print(f"no case is called like '{options.wanted}'")
        return 2
    with tempfile.TemporaryDirectory(prefix="weft-interop-") as folder:
        passed, failed = run_suite(options, chosen, Path(folder))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
