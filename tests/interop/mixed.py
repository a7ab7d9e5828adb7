#!/usr/bin/env python3
# Owns the test of a mixed network: two hosts with our soft-RoCE, a guest with Linux's, and a host
# with nothing but a kernel's TCP, on one leaf-spine network of which a link fails again and again.
#
# All jobs run at the same time and must end well, whatever is lost: the modelled network carries
# four kinds of senders at once, and trouble in it must look like loss to each of them and never
# like damage.
"""usage: mixed.py WEFT PROGRAMS [--kernel K] [--keep FILE]

PROGRAMS is the folder with weft_verbs_data. Needs no root, but a network namespace of its own, in
which it starts itself again. Exit code 77 if something is missing.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import frames  # pylint: disable=wrong-import-position
import interop  # pylint: disable=wrong-import-position
import judge  # pylint: disable=wrong-import-position

FABRIC = interop.HERE.parent / "conformance" / "fabrics" / "four_leaves.yaml"
GUEST, TAP, TAP_DEVICE = "10.77.3.101", "10.77.4.101", "weft-cable"
TCP_PORT = 7000
# Long enough that several links fail meanwhile.
TCP_BYTES = 40_000_000
PATIENCE = 240

# In the guest: takes a stream, sends it back, and says what it was.
ECHO = f"""
import hashlib, socket
listener = socket.create_server(("", {TCP_PORT}))
print("listening", flush=True)
peer, where = listener.accept()
seen = hashlib.sha256()
count = 0
while data := peer.recv(65536):
    seen.update(data)
    count += len(data)
    peer.sendall(data)
print(where[0], count, seen.hexdigest())
"""


class Stream(threading.Thread):
    """Plain TCP of this namespace's kernel, by way of the tap."""

    def __init__(self):
        super().__init__()
        # Digests of what was sent and what came back: neither is kept.
        self.sent, self.back, self.wrong = hashlib.sha256(), hashlib.sha256(), None
        self.seconds = 0.0

    def run(self):
        start = time.monotonic()
        try:
            self.talk()
        except OSError as error:
            self.wrong = f"TCP: {error}"
        self.seconds = time.monotonic() - start

    def talk(self):
        with socket.create_connection((GUEST, TCP_PORT), 60) as peer:
            peer.settimeout(PATIENCE)
            # Both directions at once, or both ends would wait with full buffers.
            reader = threading.Thread(target=self.listen, args=(peer,))
            reader.start()
            block = os.urandom(1 << 16)
            left = TCP_BYTES
            while left:
                piece = block[:left]
                self.sent.update(piece)
                peer.sendall(piece)
                left -= len(piece)
            peer.shutdown(socket.SHUT_WR)
            reader.join()

    def listen(self, peer):
        try:
            while data := peer.recv(1 << 16):
                self.back.update(data)
        except OSError as error:
            self.wrong = f"TCP: {error}"


class Trouble(threading.Thread):
    """The busiest link of each leaf to a spine fails for 0.3 s, again and again, until end()."""

    def __init__(self, network):
        super().__init__()
        self.network, self.over, self.failed, self.wrong = network, threading.Event(), set(), None
        self.before = self.carried()

    def carried(self):
        status = json.loads(self.network.command("status", self.network.name, "--json"))
        return {link["link"]: link["bytes"] for link in status["fabric"]["links"]}

    def run(self):
        try:
            while not self.over.wait(1.5):
                now = self.carried()
                leaf_links = [link for link in now
                              if link.startswith("tor") and "spine" in link]
                for leaf in sorted({link.split("->")[0] for link in leaf_links}):
                    # By bytes since the last look: a link that carries nothing would show nothing.
                    busiest = max((link for link in leaf_links if link.startswith(leaf + "->")),
                                  key=lambda link: now[link] - self.before.get(link, 0))
                    if now[busiest] > self.before.get(busiest, 0) and not self.over.is_set():
                        self.network.command("fault", self.network.name,
                                             f"link: '{busiest}', down: true, lasts: 300ms")
                        self.failed.add(busiest)
                        break
                self.before = now
        except interop.Failure as failure:
            self.wrong = str(failure)

    def end(self):
        self.over.set()
        self.join()


def start_all(network, guest, programs):
    """[(what, side, job)], of which those that serve come first; and the TCP stream."""
    one, two = interop.Ours(network, "h1"), interop.Ours(network, "h2")
    port = interop.free_ports(1)[0]
    data = f"WEFT_VERBS_TIMEOUT=18 {programs}/weft_verbs_data {port}"
    # -V compares every byte that comes back.
    rping = "rping -V -C 600 -S 20000 -p"
    echo = guest.start(f"/usr/bin/python3 -I -S {write_echo(guest)}")
    guest.wait_until_it_listens(echo, TCP_PORT)
    jobs = [("rping, guest serves h1", guest, guest.start(f"{rping} 7001 -s -a {GUEST}")),
            ("rping, h2 serves the guest", two, two.start(f"{rping} 7002 -s -a 10.77.2.1")),
            ("verbs_data, h1 serves h2", one, one.start(data + " lossy")),
            ("TCP, guest serves the tap", guest, echo)]
    guest.wait_until_it_listens(jobs[0][2], None)
    two.wait_until_it_listens(jobs[1][2], None)
    one.wait_until_it_listens(jobs[2][2], port)
    stream = Stream()
    stream.start()
    jobs += [("rping, h1 asks the guest", one, one.start(f"{rping} 7001 -c -a {GUEST}")),
             ("rping, the guest asks h2", guest, guest.start(f"{rping} 7002 -c -a 10.77.2.1")),
             ("verbs_data, h2 asks h1", two, two.start(data + " 127.0.0.1 lossy"))]
    return jobs, stream


def write_echo(guest):
    code, said = guest.run(f"cat >/tmp/echo.py <<'E'\n{ECHO}\nE", 60)
    if code != 0:
        raise interop.Failure(said)
    return "/tmp/echo.py"


def wait_for_all(jobs, stream):
    wrong = []
    for what, side, job in reversed(jobs):  # those that ask end first
        # Whoever answers somebody who has failed may wait for ever.
        code, said = side.wait(job, 5 if wrong else PATIENCE)
        print(f"{'ok' if code == 0 else 'FAILED':8}{what}", flush=True)
        if code != 0:
            wrong.append(f"{what}: exit code {code}\n{said}")
        elif what.startswith("TCP"):
            stream.join(PATIENCE)
            expected = f"{TAP} {TCP_BYTES} {stream.sent.hexdigest()}"
            if expected not in said or stream.back.digest() != stream.sent.digest():
                wrong.append(f"TCP: not '{expected}' but '{said}'")
        elif what.startswith("verbs_data") and "atomics: all right" not in said:
            wrong.append(f"{what}: {said}")
    return wrong + ([stream.wrong] if stream.wrong else [])


def play(options, folder):
    # In a namespace of its own, so that the tap needs no root.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    capture = folder / "mixed.pcap"
    network = interop.Network(options.weft, folder, [
        "--topology", str(FABRIC), "--port", f"dgram:{folder}/weftd,{folder}/guest@h3",
        "--port", f"tap:{TAP_DEVICE}@h4"])
    guest = None
    try:
        subprocess.run(["ip", "addr", "add", TAP + "/16", "dev", TAP_DEVICE], check=True)
        subprocess.run(["ip", "link", "set", TAP_DEVICE, "up"], check=True)
        guest = interop.Guest(network, options.kernel, [], capture, "h3")
        start = time.monotonic()
        jobs, stream = start_all(network, guest, options.programs)
        trouble = Trouble(network)
        trouble.start()
        try:
            wrong = wait_for_all(jobs, stream)
        finally:
            trouble.end()
        seconds = time.monotonic() - start
        status = json.loads(network.command("status", network.name, "--json"))
    finally:
        if guest is not None:
            guest.end()
        network.down()
    account = frames.account_of(frames.Capture(capture).new_frames())
    # If no frame was lost at a link that failed, nothing was shown, and the test says so.
    lost = status["fabric"]["dropped"].get("link_down", 0)
    print(f"{seconds:.0f} s; {TCP_BYTES} bytes of TCP each way in {stream.seconds:.0f} s; failed "
          f"for 0.3 s at a time: {', '.join(sorted(trouble.failed)) or 'nothing'}; "
          f"{lost} frames lost there; at the guest: {account}")
    if trouble.wrong:
        wrong.append(trouble.wrong)
    if lost == 0:
        wrong.append("no frame was lost at a link that failed: nothing was shown")
    if account.wrong_icrc:
        wrong.append(f"ICRC wrong in a frame: {account.wrong_icrc[0]}")
    wrong += [f"{source} answers '{name}'" for source, name in account.naks
              if name not in judge.ALWAYS_RIGHT]
    if options.keep:
        shutil.copy(capture, options.keep)
    return wrong


def main():
    options = interop.parse(__doc__)
    reason = interop.missing(options)
    if not reason and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        reason = "there is no /dev/net/tun"
    if not reason and subprocess.run(["unshare", "-rn", "true"], capture_output=True,
                                     check=False).returncode:
        reason = "this machine gives no network namespace of one's own"
    if reason:
        print("skipped:", reason)
        return 77
    if os.environ.get("WEFT_MIXED") != "inside":
        os.environ["WEFT_MIXED"] = "inside"
        os.execvp("unshare", ["unshare", "-rn", sys.executable, __file__, *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="weft-mixed-") as folder:
        wrong = play(options, Path(folder))
    for one in wrong:
        print("FAILED  " + one)
    print("all as it must be" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
