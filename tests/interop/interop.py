#!/usr/bin/env python3
# Owns the tests of our soft-RoCE against Linux's: the same programs on our device and in a guest
# with rdma_rxe, each side in either role, over a network that may lose and disorder.
#
# Three things decide whether a job is right: how both programs end, what they say, and what an
# independent reader (frames.py) finds in a capture at the guest's port. The jobs are in cases.py,
# the rules in judge.py.
"""usage: interop.py WEFT PROGRAMS [--kernel K] [--loss P] [-k REGEX] [--list] [--keep FILE]

PROGRAMS is the folder with weft_verbs_data and weft_verbs_peers (build/release/tests/conformance).
Needs no root: qemu-system-x86_64, the guest's image (`weft softroce vm -- true` makes it), and the
programs of rdmacm-utils, ibverbs-utils and perftest. Exit code 77 if something of this is missing.
"""

import argparse
import ipaddress
import json
import math
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
import judge  # pylint: disable=wrong-import-position
from cases import all_cases  # pylint: disable=wrong-import-position
from judge import Failure, LastWordLost  # pylint: disable=wrong-import-position

HERE = Path(__file__).resolve().parent

# QEMU's name for this machine in the network that it makes for TCP.
HOST_SEEN_BY_GUEST = "10.0.2.2"
PATIENCE = 100  # seconds for a client; a guest that QEMU translates is slow
# A job is run again only where a frame was counted as lost (LastWordLost).
ATTEMPTS = 3
# So that a guest without a core for a moment is not taken for dead; see Network.
SHORTEST_TIMEOUT = 250  # milliseconds, of our device
GRACE = 30  # seconds for one side when the other has ended
PROGRAMS = ["rping", "ucmatose", "udaddy", "ibv_rc_pingpong", "ib_send_bw"]


# Free when they were asked for. All are open at the same time, so no two are the same.
def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Ours:
    """Programs on the emulated device of a host."""

    name = "ours"

    def __init__(self, network, host="h1"):
        self.network, self.host = network, host
        self.running = []
        network.sides.append(self)

    def start(self, command):
        log = tempfile.TemporaryFile()
        process = subprocess.Popen(
            [self.network.weft, "exec", self.network.name, self.host, "--", "sh", "-c", command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=self.network.env, start_new_session=True)
        self.running.append((process, log))
        return process, log

    @staticmethod
    def code_of(job, limit):
        """None if it has not ended by then."""
        try:
            return job[0].wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, job, limit):
        log = job[1]
        code = self.code_of(job, limit)
        if code is None:
            self.kill(job)
        log.seek(0)
        return code, log.read().decode(errors="replace")

    def kill(self, job):
        try:
            os.killpg(job[0].pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        job[0].wait()

    def end(self):
        for job in self.running:
            if job[0].poll() is None:
                self.kill(job)

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

    # No table of the kernel shows that a program listens by rdma_cm: the preload library opens a
    # descriptor called weft-listens for as long.
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
    """A shell in the guest: its programs see this machine's files. A program that begins there
    costs 50 ms and more, because QEMU translates it: so what is done for each job is done by the
    shell itself, and it tells of the end of a job instead of being asked."""

    name = "Linux"

    # Sourced once. `say_end` is one write, so it never falls between the letters of a line.
    WORDS = r"""
mkdir -p /tmp/interop && mkfifo /tmp/interop/never && exec 9<>/tmp/interop/never
pause() { read -r -t "$1" -u 9; true; }
text_of() { text=; IFS= read -r -d "" text <"$1"; }
say_end() { printf "\n@@end %s %s@@\n" "$1" "$2"; }
listens_at() {  # TCP PORT
  local text file
  for file in /proc/net/tcp /proc/net/tcp6; do
    text_of "$file"
    [[ ! $text =~ :$1\ [0-9A-F:]+\ 0A\  ]] || return 0
  done
  return 1
}
listens_by_rdma_cm() { [[ $(rdma resource show cm_id) == *"state LISTEN"* ]]; }
"""
    END = re.compile(rb"\n@@end (\d+) (\d+)@@\n")

    def __init__(self, network, kernel, forwards, capture, host="h2"):
        self.number = 0
        # The guest sees this machine's root, so that its programs are those of this machine;
        # --outside gives it a second NIC, for TCP.
        words = [network.weft, "softroce", "vm", "--network", network.name, "--host", host,
                 "--kernel", kernel, "--root", "/", "--memory", "640", "--outside", "--capture",
                 str(capture)]
        for port in forwards:
            words += ["--forward", str(port)]
        self.process = subprocess.Popen(words + ["--", "bash"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=network.env,
                                        start_new_session=True)
        self.said = b""
        self.ended = {}  # exit codes by a job's number
        try:
            self.run(self.WORDS, 240)
        except BaseException:
            self.end()
            raise

    def say(self, line):
        try:
            # The guest's shell reads its commands here, one line after the other.
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure("the guest has ended") from None

    def take_end(self, found):
        self.ended[int(found.group(1))] = int(found.group(2))
        return b""

    def hear(self, limit):
        """More of what is said, without the ends of jobs, wherever they stand in it; false if
        there is nothing more."""
        if not select.select([self.process.stdout], [], [], max(0, limit))[0]:
            return False
        data = os.read(self.process.stdout.fileno(), 65536)
        if not data:
            raise Failure("the guest has ended")
        self.said = self.END.sub(self.take_end, self.said + data)
        return True

    # What was said before the mark; None if it does not come in time.
    def hear_until(self, mark, limit):
        end = time.monotonic() + limit
        while mark not in self.said:
            if not self.hear(end - time.monotonic()):
                return None
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
        job = self.number
        # The job goes on in the background; its number is in the name of its output and of its
        # process.
        self.run(f"({{ {command}; }} >/tmp/interop/{job} 2>&1; say_end {job} $?) & pid_{job}=$!",
                 60)
        return job

    def code_of(self, job, limit):
        end = time.monotonic() + limit
        while job not in self.ended and self.hear(end - time.monotonic()):
            pass
        return self.ended.get(job)

    def wait(self, job, limit):
        code = self.code_of(job, limit)
        if code is None:
            self.kill(job)
        return code, self.run(f"text_of /tmp/interop/{job}; printf %s \"$text\"", 60)[1]

    def kill(self, job):
        # The children of the job's shell; that shell then tells of the end.
        self.run(f"pkill -KILL -P $pid_{job}; true", 60)

    def wait_until_it_listens(self, job, port):
        look = f"listens_at {port:04X}" if port else "listens_by_rdma_cm"
        end = time.monotonic() + 60
        while job not in self.ended:
            # The guest looks a few times before it answers, and pauses between the looks.
            if self.run(f"for n in 1 2 3 4 5; do ! {look} || break; pause 0.02; done; {look}",
                        60)[0] == 0:
                return
            if time.monotonic() > end:
                raise Failure("the guest's server does not listen")

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
    """One that stays until down()."""

    def __init__(self, weft, folder, words):
        self.weft, self.name, self.sides = weft, f"interop{os.getpid()}", []
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        # Set where this test itself runs under `weft run`: it would lead to that network.
        self.env.pop("WEFT_SOCKET", None)
        # A guest without a core for half a second is not dead, but stock pingpongs give up then.
        self.env["WEFT_SHORTEST_TIMEOUT"] = str(SHORTEST_TIMEOUT)
        self.command("up", self.name, "--routable", "--device", "rxe", *words)

    def command(self, *words):
        done = subprocess.run([self.weft, *words], env=self.env, text=True, capture_output=True,
                              check=False)
        if done.returncode != 0:
            raise Failure(f"weft {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def down(self):
        for side in self.sides:
            side.end()
        subprocess.run([self.weft, "down", self.name], env=self.env, check=False,
                       capture_output=True)


class Suite:
    def __init__(self, options, folder, capture):
        # Two hosts of ours, and a port for the guest on the link of the second one.
        self.network = Network(options.weft, folder,
                               ["--hosts", "2", "--port",
                                f"dgram:{folder}/weftd,{folder}/guest@h2"])
        self.lossy = options.loss > 0
        self.guest = None
        try:
            # A port that was just used may not be free yet in the guest, so four take turns.
            self.ports = {"guest": free_ports(4)}
            self.turn = 0
            self.guest = Guest(self.network, options.kernel, self.ports["guest"], capture)
            self.ours = Ours(self.network)
            if self.lossy:
                self.network.command("fault", self.network.name,
                                     f"link: h1-*, loss: {options.loss}, reordering: 0.01, "
                                     "reorder_delay: 200us, duplication: 0.005")
            # The guest stands beside the NICs of the second host, hence 101.
            self.ip = {"ours": "10.77.1.1", "Linux": "10.77.2.101"}
            self.ip6 = {name: ip6_of(address) for name, address in self.ip.items()}
            self.dev = {"ours": "rxe_0", "Linux": "rxe_0"}
            self.gids = {side.name: self.gid_indices(side) for side in (self.ours, self.guest)}
            self.capture = frames.Capture(capture)
            self.account = frames.Account()
            self.take_account()  # of the guest's beginning, which is no job's
            self.again = []  # names of the jobs that were tried again, once for each time
        except BaseException:
            self.end()
            raise

    # Which index a GID has depends on the kernel, so each side is asked.
    def gid_indices(self, side):
        job = side.start("cd /sys/class/infiniband/rxe_0/ports/1/gids && grep -H . [0-3]")
        said = side.wait(job, 60)[1]
        found = {}
        for line in said.splitlines():
            index, _, gid = line.strip().partition(":")
            if gid.count(":") == 7:
                found[ipaddress.ip_address(gid)] = int(index)
        wanted = {"gid": "::ffff:" + self.ip[side.name], "gid6": self.ip6[side.name],
                  "gid0": ip6_of(self.ip[side.name], "fe80::")}
        try:
            return {name: found[ipaddress.ip_address(gid)] for name, gid in wanted.items()}
        except KeyError as missing_one:
            raise Failure(f"{side.name} has no GID {missing_one}: {said}") from None

    def run_until_heard(self, name, case, server, client):
        for attempt in range(ATTEMPTS):
            try:
                return self.run(case, server, client)
            except LastWordLost as excuse:
                if attempt + 1 == ATTEMPTS:
                    raise
                self.again.append(name)
                print(f"again           {name}: {excuse.what}")

    def begin(self):
        """(what weft has dropped so far, the Account of frames until then). These are no job's: a
        report to routers among them excuses nothing later, an answer tells nobody anything."""
        early = frames.Account()
        for _ in range(ATTEMPTS):
            before = self.drops()
            account = self.take_account()
            early.take_in(account)
            # Nobody knows whether a report came before or after the count: once more.
            if account.reports == 0:
                return before, early
        raise Failure("the guest sends reports to multicast routers all the time")

    def run(self, case, server, client):
        """Raises a Failure if it does not go well: a LastWordLost if it may be tried again. Only
        what was lost during this try excuses it, and what both sides have sent meanwhile has to be
        right in any case."""
        before, early = self.begin()
        ends, told = self.run_programs(case, server, client)
        # First weft's count, then the capture: so each report to routers that is counted was read.
        drops = self.drops()
        account = self.take_account()
        lost = drops.lost_since(before)
        wrong = judge.wrong_words(case, ends, lost, self.lossy)
        wrong += drops.wrong_since(before, account.reports)
        # What was lost before the job is not known, so any gap is right there.
        for seen, gaps in ((early, math.inf), (account, math.inf if self.lossy else lost)):
            wrong += judge.wrong_icrcs(seen)
            wrong += judge.wrong_naks(seen, case.naks, self.addresses(server.name),
                                      self.addresses("Linux"), gaps)
        try:
            is_deaf = account.answers.is_deaf(self.addresses("Linux"))
            judge.judge_ends(case, *ends, lost, is_deaf, told)
            # Who has not come to the end may not have come to these.
            given = {name for _, name in account.naks}
            wrong += [f"nobody answers '{name}'" for name in sorted(case.naks - given)]
        except Failure as failure:
            if not wrong:
                raise
            wrong.append(str(failure))
        # Nothing excuses what is wrong in a frame or a word: this is no LastWordLost.
        if wrong:
            raise Failure("\n".join(wrong))

    def run_programs(self, case, server, client):
        """((End of the client, End of the server or None), a text for whoever looks for why)"""
        self.turn += 1
        if server is self.guest:
            # A port of the guest is forwarded from this machine's loopback address.
            port, tcp = self.ports["guest"][self.turn % 4], "127.0.0.1"
        else:
            port, tcp = free_ports(1)[0], HOST_SEEN_BY_GUEST
        fill = {"port": port, "tcp": tcp, "server": server.name, "ip": self.ip[server.name],
                "ip6": self.ip6[server.name]}
        words = [text.format(dev=self.dev[side.name], **self.gids[side.name], **fill)
                 for side, text in ((server, case.server), (client, case.client))]
        serving = server.start(words[0]) if case.server else None
        try:
            if serving is not None:
                server.wait_until_it_listens(serving, port if case.by_tcp else None)
            client_end = judge.End(
                client.name,
                *self.wait_for_client(client, client.start(words[1]), server, serving))
        except Failure:
            if serving is not None and server is self.ours:  # the guest's end with the guest
                server.kill(serving)
            raise
        told = f"--- client ({client.name}): {words[1]}\n{client_end.said}\n"
        if serving is None:
            return (client_end, None), told
        server_end = judge.End(server.name, *server.wait(serving, GRACE))
        told += f"--- server ({server.name}): {words[0]}\n{server_end.said}\n"
        return (client_end, server_end), told

    @staticmethod
    def wait_for_client(client, asking, server, serving):
        """(exit code, output): as long as it may take, but not much longer than its server."""
        end = time.monotonic() + PATIENCE
        while client.code_of(asking, 1) is None and time.monotonic() < end:
            if serving is not None and server.code_of(serving, 0) == 0:
                client.code_of(asking, GRACE)
                break
        return client.wait(asking, 0)

    def drops(self):
        return judge.Drops(json.loads(
            self.network.command("status", self.network.name, "--json")))

    def addresses(self, name):
        return {self.ip[name], self.ip6[name], ip6_of(self.ip[name], "fe80::")}

    def forget_frames(self):
        """Of a job that has failed already: the next one is not to be blamed."""
        self.take_account()

    def take_account(self):
        """Of the frames since the last one."""
        account = frames.account_of(self.capture.new_frames())
        self.account.take_in(account)
        return account

    def end(self):
        if self.guest is not None:
            self.guest.end()
        self.network.down()


def ip6_of(address, prefix="fd77:6566:7400::"):
    """Of the NIC with that IPv4 address, whose Ethernet address is 02:00 and that."""
    four = ipaddress.ip_address(address).packed
    interface = b"\0\0" + four[:1] + b"\xff\xfe" + four[1:]
    return str(ipaddress.ip_address(ipaddress.ip_address(prefix).packed[:8] + interface))


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


def parse(text=__doc__):
    parser = argparse.ArgumentParser(description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("programs")
    parser.add_argument("--kernel", default="default")
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("-k", dest="wanted", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", help="where the capture goes, a file")
    options = parser.parse_args()
    options.weft = os.path.abspath(options.weft)
    options.programs = os.path.abspath(options.programs)
    return options


def run_case(suite, case, server, client):
    """Whether it went well."""
    name = f"{case.name}, {client.name} to {server.name}"
    start = time.monotonic()
    try:
        suite.run_until_heard(name, case, server, client)
        print(f"ok      {time.monotonic() - start:6.1f} s  {name}", flush=True)
        return True
    except Failure as failure:
        suite.forget_frames()
        print(f"FAILED  {time.monotonic() - start:6.1f} s  {name}\n{failure}", flush=True)
        return False


def run_suite(options, chosen, folder):
    """(passed, failed, how many more tries there were)"""
    well = []
    capture = folder / "interop.pcap"
    suite = Suite(options, folder, capture)
    try:
        for case in chosen:
            for server, client in ((suite.ours, suite.guest), (suite.guest, suite.ours)):
                if suite.guest.has_ended():
                    break
                well.append(run_case(suite, case, server, client))
        if suite.guest.has_ended():
            print("FAILED  the guest has ended")
            well.append(False)
    finally:
        suite.end()
        if options.keep and capture.exists():
            shutil.copy(capture, options.keep)
    print(suite.account)
    for wrong in judge.too_many_again(suite.again, suite.lossy):
        print(f"FAILED  {wrong}")
        well.append(False)
    return well.count(True), well.count(False), len(suite.again)


def main():
    options = parse()
    chosen = [case for case in all_cases(options.programs, options.loss > 0)
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
        passed, failed, again = run_suite(options, chosen, Path(folder))
    print(f"{passed} passed, {failed} failed, 0 skipped, {again} tried again")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
