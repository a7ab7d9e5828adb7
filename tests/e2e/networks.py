#!/usr/bin/env python3
# Owns networks of several weftds and kernels, in namespaces that the test makes for itself. One
# half of each network lies in the test's namespace and the other in a second one (Far), with a
# cable of the kernel (veth) between them: what crosses it has really left the process. Each kind
# ends with a look at the counters, for a test whose packets took another way would prove nothing.
"""usage: networks.py WEFT WEFTD udp|dpdk|udp_rails|dpdk_rails|taps|run

Exit code 0, or 77 with the reason if this machine cannot."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from outcome import skip

PATIENCE = 60
# Some seconds of a stream that loses one packet in a thousand.
BYTES = 20_000_000

# All values of a byte in turn: a piece that is lost, doubled or swapped changes the digest.
SENDER = """
import os, socket, sys
listener = socket.create_server(("10.9.0.2", 5000))
print("ready", flush=True)
connection, _ = listener.accept()
left = int(sys.argv[1])
block = bytes(range(256)) * 256
while left:
    connection.sendall(block[:left])
    left -= len(block[:left])
connection.close()
"""


def run(*words):
    # Into files: a weftd that stays would hold a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        code = subprocess.run(words, stdout=out, stderr=errors, timeout=PATIENCE,
                              check=False).returncode
        out.seek(0)
        errors.seek(0)
        text = out.read()
        if code != 0:
            raise RuntimeError(f"{' '.join(words)}: {code}\n{text}{errors.read()}")
        return text


class Far:
    """A second network namespace."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + PATIENCE
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            if time.monotonic() > deadline:
                raise RuntimeError("no second namespace")
            time.sleep(0.01)

    def words(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *words]

    def end(self):
        self.holder.kill()
        self.holder.wait()


def join_key():
    """The key that all weftds of this test share."""
    path = os.path.join(os.environ["XDG_RUNTIME_DIR"], "join.key")
    if not os.path.exists(path):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(32))
    return path


class Weftd:
    """One that ends with the test. `weft exec` and `weft status` find it by its name."""

    def __init__(self, program, name, *words, inside=lambda *words: words):
        # Where `weft up` would have made it.
        directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], f"weft-{os.geteuid()}")
        os.makedirs(directory, 0o700, exist_ok=True)
        directory = os.path.join(directory, name)
        if any(word.startswith("udp:") for word in words):
            words += ("--join-key", join_key())
        self.process = subprocess.Popen(inside(program, "--dir", directory, *words))
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(os.path.join(directory, "attach.sock")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"weftd '{name}' did not start")
            time.sleep(0.01)

    def end(self):
        self.process.terminate()
        self.process.wait()


def falls_asleep(pid):
    """There comes half a second in which the process gets no processor time."""
    def ticks():
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before = ticks()
        time.sleep(0.5)
        if ticks() - before <= 1:
            return
    raise RuntimeError("weftd does not sleep")


def status(weft, name):
    return json.loads(run(weft, "status", name, "--json"))


def join_by_cable(far):
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "near", "mtu", "9200", "type", "veth", "peer", "name", "far",
        "mtu", "9200")
    run("ip", "link", "set", "far", "netns", str(far.holder.pid))
    run("ip", "addr", "add", "10.9.0.1/24", "dev", "near")
    run("ip", "link", "set", "near", "up")
    run(*far.words("ip", "link", "set", "lo", "up"))
    run(*far.words("ip", "addr", "add", "10.9.0.2/24", "dev", "far"))
    run(*far.words("ip", "link", "set", "far", "up"))


def mark_some(far):
    """Congestion marks on what comes over the cable, if this kernel can make them."""
    if shutil.which("nft") is None:
        return False
    # 60928 is where datagrams between weftds go; every fourth gets the mark.
    rules = ("add table netdev t; add chain netdev t c { type filter hook ingress device far "
             "priority 0; }; add rule netdev t c udp dport 60928 numgen random mod 4 < 1 "
             "ip ecn set ce")
    done = subprocess.run(far.words("nft", rules), capture_output=True, check=False)
    return done.returncode == 0


def joined_weftds(weft, weftd, daemons, kind, far):
    join_by_cable(far)
    marks = kind == "udp" and mark_some(far)
    near_port, far_port = {
        # Own address, then the other's.
        "udp": ("udp:10.9.0.1,10.9.0.2", "udp:10.9.0.2,10.9.0.1"),
        "dpdk": ("dpdk:net_af_packet0,iface=near", "dpdk:net_af_packet0,iface=far"),
    }[kind]
    daemons.append(Weftd(weftd, "one", "--hosts", "1", "--mtu", "8928", "--port", near_port))
    daemons.append(Weftd(weftd, "two", "--hosts", "1", "--mtu", "8928", "--first-host", "3",
                         "--port", far_port, inside=far.words))
    server = subprocess.Popen(
        [weft, "exec", "one", "h1", "--", "fi_pingpong", "-p", "efa", "-e", "rdm", "-I", "200",
         "-c"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        client = [weft, "exec", "two", "h3", "--", "fi_pingpong", "-p", "efa", "-e", "rdm",
                  "-I", "200", "-c", "10.9.0.1"]
        deadline = time.monotonic() + PATIENCE
        while True:  # until the server listens
            done = subprocess.run(far.words(*client), text=True, capture_output=True,
                                  timeout=PATIENCE, check=False)
            if done.returncode == 0 or server.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        print(done.stdout)
        if done.returncode != 0:
            raise RuntimeError(f"client: {done.returncode}\n{done.stderr}")
        if server.wait(PATIENCE) != 0:
            raise RuntimeError(f"server: {server.returncode}")
    finally:
        server.kill()
        print(server.communicate()[0])
        for name in ("one", "two"):
            seen = status(weft, name)
            print(name, seen["ports"], seen["counters"])
    port = status(weft, "two")["ports"][0]
    if port["frames_in"] < 1000 or port["frames_out"] < 1000:
        raise RuntimeError("the packets took another way")
    if marks and port["marked_in"] == 0:
        raise RuntimeError("no congestion mark was seen")
    print("marks:", port["marked_in"] if marks else "not tried")


def pingpong(weft, rail, server, client, address):
    """Both are (weftd, host, namespace or None); the server's control line is at the address."""
    words = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", f"efa_{rail}-rdm", "-I", "20", "-c"]
    inside = [far.words if far else lambda *line: list(line) for _, _, far in (server, client)]
    listening = subprocess.Popen(
        inside[0](weft, "exec", server[0], server[1], "--", *words),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:  # until the server listens
            done = subprocess.run(
                inside[1](weft, "exec", client[0], client[1], "--", *words, address),
                text=True, capture_output=True, timeout=PATIENCE, check=False)
            if (done.returncode == 0 or listening.poll() is not None
                    or time.monotonic() > deadline):
                break
            time.sleep(0.1)
        if done.returncode != 0:
            raise RuntimeError(f"rail {rail}: {done.returncode}\n{done.stdout}{done.stderr}")
        if listening.wait(PATIENCE) != 0:
            raise RuntimeError(f"rail {rail}: the server ended with {listening.returncode}")
    finally:
        listening.kill()
        said = listening.communicate()[0]
        if listening.returncode != 0:
            print(said)


def three_weftds(weft, weftd, daemons, kind, far):
    """In a row: two - one - three, each in a namespace of its own and with four rails."""
    further = Far()
    daemons.append(further)  # ends with the others
    run("ip", "link", "set", "lo", "up")
    for number, (cable, end) in enumerate((("near", far), ("near2", further)), start=1):
        there = cable.replace("near", "far")
        run("ip", "link", "add", cable, "mtu", "9200", "type", "veth", "peer", "name", there,
            "mtu", "9200")
        run("ip", "link", "set", there, "netns", str(end.holder.pid))
        run("ip", "addr", "add", f"10.9.{number}.1/24", "dev", cable)
        run("ip", "link", "set", cable, "up")
        run(*end.words("ip", "link", "set", "lo", "up"))
        run(*end.words("ip", "addr", "add", f"10.9.{number}.2/24", "dev", there))
        run(*end.words("ip", "link", "set", there, "up"))
        run(*end.words("ip", "route", "add", "default", "via", f"10.9.{number}.1"))
    # For the line on which the programs find each other; their data goes through weftd.
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
        file.write("1")
    ports = {
        "udp": [["udp:10.9.1.1,10.9.1.2", "udp:10.9.2.1,10.9.2.2"],
                ["udp:10.9.1.2,10.9.1.1"], ["udp:10.9.2.2,10.9.2.1"]],
        "dpdk": [["dpdk:net_af_packet0,iface=near", "dpdk:net_af_packet1,iface=near2"],
                 ["dpdk:net_af_packet0,iface=far"], ["dpdk:net_af_packet0,iface=far2"]],
    }[kind]
    for number, (name, end) in enumerate((("one", None), ("two", far), ("three", further))):
        words = ["--hosts", "1", "--nics", "4", "--mtu", "8928",
                 "--first-host", str(2 * number + 1)]
        for port in ports[number]:
            words += ["--port", port]
        daemons.append(Weftd(weftd, name, *words,
                             inside=end.words if end else lambda *line: line))
    for rail in range(4):
        pingpong(weft, rail, ("two", "h3", far), ("three", "h5", further), "10.9.1.2")
    pingpong(weft, 3, ("one", "h1", None), ("two", "h3", far), "10.9.1.1")
    for name in ("one", "two", "three"):
        seen = status(weft, name)
        print(name, seen["ports"], seen["counters"])
        for port in seen["ports"]:
            if port["frames_in"] < 1000 or port["frames_out"] < 1000:
                raise RuntimeError("the packets took another way")


def two_taps(weft, weftd, daemons, far):
    """A TCP stream of the kernel through the modelled network, while that loses packets."""
    run("ip", "link", "set", "lo", "up")
    daemons.append(Weftd(weftd, "one", "--hosts", "2", "--port", "tap:near@h1",
                         "--port", "tap:far@h2"))
    run("ip", "link", "set", "far", "netns", str(far.holder.pid))
    run("ip", "addr", "add", "10.9.0.1/24", "dev", "near")
    run("ip", "link", "set", "near", "up")
    run(*far.words("ip", "addr", "add", "10.9.0.2/24", "dev", "far"))
    run(*far.words("ip", "link", "set", "far", "up"))
    run(weft, "fault", "one", "link: h1-fabric, loss: 0.001")
    sender = subprocess.Popen(far.words("python3", "-c", SENDER, str(BYTES)),
                              stdout=subprocess.PIPE, text=True)
    try:
        sender.stdout.readline()
        received = run("python3", "-c",
                       "import hashlib, socket\n"
                       "s = socket.create_connection(('10.9.0.2', 5000), 30)\n"
                       "h = hashlib.sha256()\n"
                       "while (b := s.recv(1 << 16)): h.update(b)\n"
                       "print(h.hexdigest())").strip()
        if sender.wait(PATIENCE) != 0:
            raise RuntimeError(f"sender: {sender.returncode}")
    finally:
        sender.kill()
    block = bytes(range(256)) * 256
    expected = hashlib.sha256((block * (BYTES // len(block) + 1))[:BYTES]).hexdigest()
    run("ip", "link", "del", "near")  # nothing that weftd could not live with ...
    falls_asleep(daemons[-1].process.pid)  # ... or stay awake for
    counters = status(weft, "one")
    print(counters["fabric"]["dropped"], counters["ports"])
    if received != expected:
        raise RuntimeError("the stream is not what was sent")
    if counters["fabric"]["delivered"] < 1000:
        raise RuntimeError("the stream took another way")


def run_in_namespaces(weft):
    """`weft run --netns`: TCP of the kernel and packets of a device between the same addresses."""
    server = ("import os, socket\n"
              "s = socket.create_server((\'{h1.ip}\', 5001))\n"
              "c, peer = s.accept()\n"
              "c.sendall(peer[0].encode())")
    client = ("import socket\n"
              "c = socket.create_connection((\'{h1.ip}\', 5001), 30)\n"
              "print(c.recv(99).decode() == \'{h2.ip}\')")
    out = run(weft, "run", "--netns", "--device", "none", "--", "python3", "-c", server, ":",
              "python3", "-c", client)
    print(out)
    if "True" not in out:
        raise RuntimeError("no TCP between the hosts")
    if shutil.which("fi_pingpong") is not None:
        words = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-I", "10", "-c"]
        print(run(weft, "run", "--netns", "--", *words, ":", *words, "{h1.ip}"))


def inside(weft, weftd, kind):
    directory = tempfile.mkdtemp(prefix="weft-networks-")
    os.environ["XDG_RUNTIME_DIR"] = directory
    far = Far()
    daemons = []
    try:
        if kind == "taps":
            two_taps(weft, weftd, daemons, far)
        elif kind.endswith("_rails"):
            three_weftds(weft, weftd, daemons, kind.removesuffix("_rails"), far)
        else:
            joined_weftds(weft, weftd, daemons, kind, far)
    finally:
        for daemon in reversed(daemons):
            daemon.end()
        far.end()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    if len(sys.argv) == 5 and sys.argv[4] == "inside":
        inside(*sys.argv[1:4])
        return
    weft, weftd, kind = sys.argv[1:4]
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            skip(f"there is no {program}")
    if kind.startswith(("udp", "dpdk")) and shutil.which("fi_pingpong") is None:
        skip("there is no fi_pingpong")
    if kind in ("taps", "run") and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        skip("there is no /dev/net/tun")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        skip("this machine gives no network namespace of one's own")
    if kind == "run":
        run_in_namespaces(weft)
        return
    sys.exit(subprocess.run(
        ["unshare", "-rn", sys.executable, "-B", __file__, weft, weftd, kind, "inside"],
        timeout=3 * PATIENCE, check=False).returncode)


main()
