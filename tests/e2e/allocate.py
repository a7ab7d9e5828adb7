#!/usr/bin/env python3
# Owns the whole way of a NIC to a pod: the device plugin's process, a kubelet of ours
# (weft_test_kubelet), and containers of podman that are given just what the kubelet was answered.
"""usage: allocate.py WEFT fake|podman PLUGIN KUBELET NCCL_PLUGIN

podman: two nodes are two hosts of one network, each with a kubelet and a plugin; needs root. fake:
no containers, but this machine's programs with what containers would be given. Exit code 0, or 77
with the reason if this machine cannot."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import lab
from outcome import skip, until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
from userlands import RELEASES, made_userland  # noqa: E402

RELEASE = "bookworm"
RESOURCE = "vpc.amazonaws.com/efa"
NICS = 4
CONFIG = """network: default
host: {host}
kubelet: {folder}
resources:
  - {{name: {resource}, device: {device}}}
"""
HARD = ["--user=1000:1000", "--cap-drop=all", "--security-opt=no-new-privileges", "--read-only",
        "--read-only-tmpfs=false", "--memory=256m"]
PODS = "weft-test-pods"


class Kubelet:
    def __init__(self, program, folder):
        # pylint: disable=consider-using-with
        self.words, self.folder = [program, str(folder)], folder
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def order(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the kubelet has ended at {words}: {self.process.wait()}"
        return json.loads(line)

    def devices(self):
        return self.order("see")["devices"]

    def lists(self, healthy, unhealthy=()):
        wanted = {**dict.fromkeys(healthy, "Healthy"), **dict.fromkeys(unhealthy, "Unhealthy")}
        until(lambda: self.devices() == wanted, f"{wanted} at the kubelet: {self.devices()}")

    def admit(self, name, count):
        answer = self.order("admit", name, count)
        assert "error" not in answer, answer
        assert len(answer["ids"]) == count, answer
        return answer

    def refuses(self, what, *order):
        answer = self.order(*order)
        assert what in answer.get("error", ""), (order, what, answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=lab.PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Plugin:
    """The plugin's process on a node, for a host of the network."""

    def __init__(self, program, folder, host, device):
        self.config, self.log = folder.parent / f"{host}.yaml", folder.parent / f"{host}.log"
        self.config.write_text(CONFIG.format(host=host, folder=folder, resource=RESOURCE,
                                             device=device))
        self.program = program
        self.start()

    def start(self):
        # pylint: disable=consider-using-with
        with self.log.open("a") as log:
            self.process = subprocess.Popen([self.program, str(self.config)], stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)

    def end(self, number, code):
        self.process.send_signal(number)
        got = self.process.wait(timeout=lab.PATIENCE)
        assert got == code, f"the plugin ends with {got}, not {code}: {self.log.read_text()}"


class Node:
    def __init__(self, plugin, kubelet, folder, host, device="efa"):
        self.folder = Path(folder) / f"node-{host}"
        self.folder.mkdir()
        self.kubelet = Kubelet(kubelet, self.folder)
        self.plugin = Plugin(plugin, self.folder, host, device)

    def end(self):
        for process in (self.plugin.process, self.kubelet.process):
            process.kill()
            process.wait()


def options_of(answer):
    """An answer to Allocate, as options of podman: all of it, and nothing else."""
    words = [f"--env={name}={value}" for name, value in answer["envs"].items()]
    for mount in answer["mounts"]:
        end = ":ro" if mount["read_only"] else ""
        words.append(f"--volume={mount['host_path']}:{mount['container_path']}{end}")
    for node in answer["devices"]:
        words.append(
            f"--device={node['host_path']}:{node['container_path']}:{node['permissions']}")
    words += [f"--annotation={name}={value}" for name, value in answer["annotations"].items()]
    words += [f"--device={name}" for name in answer["cdi_devices"]]
    return words


class Pods:
    """Containers that never heard of weft, on a network of podman's."""

    def __init__(self, engine):
        self.engine = engine
        root = made_userland(RELEASE)
        # Nothing is fetched for this test: where nobody has made such a system yet, it is an image
        # of this machine's own programs.
        self.image = ["--rootfs", f"{root}:O"] if root else [lab.IMAGE]
        print("containers of", RELEASES[RELEASE] if root else "this machine's programs")
        engine.podman("network", "create", PODS)

    def words(self, answer, program, *options):
        return ["run", f"--network={PODS}", *HARD, *options, *options_of(answer), *self.image,
                *program]

    def start(self, name, answer, program=("sleep", "infinity")):
        self.engine.podman(*self.words(answer, program, "--detach", f"--name={name}"))

    def run(self, answer, *program):
        return said("podman", *self.words(answer, program, "--rm"))

    def address(self, name):
        return self.engine.podman("inspect", "--format",
                                  f'{{{{(index .NetworkSettings.Networks "{PODS}").IPAddress}}}}',
                                  name).strip()

    def remove(self, *names):
        self.engine.podman("rm", "--force", "--time", "0", *names)

    def end(self):
        self.engine.podman("network", "rm", PODS)


def latency(port, device=None):
    """A pod with one device need not name it, as the sample pods do not."""
    named = ["-d", device] if device else []
    return ["ib_send_lat", "-c", "SRD", "-x", "0", *named, "-n", "200", "-s", "64", "-p", str(port)]


def measured(text):
    return re.search(r"^ *64 +200 +[0-9.]+", text, re.M)


def said(*words, **options):
    """Exit code and output."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=lab.PATIENCE, check=False,
                          **options)
    return done.returncode, done.stdout


def attached(labs):
    status = json.loads(labs.run("status", "default", "--json", start="weft"))
    return [process for nic in status["nics"] for process in nic["processes"]]


def until_heard(call):
    """Exit code and output of a client, which begins again while its server does not listen yet."""
    end = time.monotonic() + lab.PATIENCE
    code, text = call()
    while code != 0 and time.monotonic() < end:
        code, text = call()
    assert code == 0 and measured(text), (code, text)


def devices_of(answer, kind="efa"):
    """A pod knows its devices by the numbers of the host's NICs."""
    return [one.replace("nic", f"{kind}_") for one in answer["ids"]]


def listed(text):
    """The devices in what ibv_devices says."""
    return sorted(re.findall(r"^\s+(\S+)\s+[0-9a-f]{16}$", text, re.M))


def whole_life(pods, kubelets):
    """A server and a client, each the container's own program."""
    served, asked = (kubelet.admit(name, 1) for kubelet, name in kubelets)
    assert served["envs"] != asked["envs"], (served, asked)
    for answer in (served, asked):
        code, text = pods.run(answer, "ibv_devices")
        assert code == 0 and listed(text) == devices_of(answer), (code, text)
    pods.start("server", served, latency(18515))
    until_heard(lambda: pods.run(asked, *latency(18515), pods.address("server")))
    assert pods.engine.podman("wait", "server").strip() == "0"
    text = pods.engine.podman("logs", "server")
    assert measured(text), text
    pods.remove("server")
    for kubelet, name in kubelets:
        kubelet.order("remove", name)


class Exec:
    """A measurement whose server waits in a container that runs, until the client is called."""

    DEVICES = {"one": "efa_0", "two": "efa_1"}

    def __init__(self, pods, log, server, client, port):
        # pylint: disable=consider-using-with
        self.pods, self.log, self.client, self.port = pods, log, client, port
        self.address = pods.address(server)
        with log.open("w") as out:
            self.process = subprocess.Popen(
                ["podman", "exec", server, *latency(port, self.DEVICES[server])], stdout=out,
                stderr=out, stdin=subprocess.DEVNULL)
        # It has its device, and waits. Those of former measurements have none any more.
        until(lambda: attached(pods.engine) or self.process.poll() is not None, "server")

    def finish(self):
        words = latency(self.port, self.DEVICES[self.client])
        until_heard(lambda: said("podman", "exec", self.client, *words, self.address))
        assert self.process.wait(timeout=lab.PATIENCE) == 0, self.log.read_text()
        until(lambda: not attached(self.pods.engine), "end of the attachments")


def nothing_without(pods):
    """A container that was given nothing has nothing."""
    nothing = {"envs": {}, "mounts": [], "devices": [], "annotations": {}, "cdi_devices": []}
    code, text = pods.run(nothing, "sh", "-c",
                          'ibv_devices; echo "[$LD_PRELOAD$WEFT_HOST]"; '
                          'test ! -e /run/weft && echo "no folder"')
    assert code == 0 and "[]" in text and not listed(text), (code, text)
    # It has run: without a kernel for them it fails, else its list is empty.
    assert "Failed to get IB devices list" in text or "node GUID" in text, text
    assert "no folder" in text, text
    code, text = pods.run(nothing, *latency(18520))
    assert code != 0 and not measured(text), (code, text)


def exhausted(pods, node):
    """Three containers have all four NICs; the fourth gets words."""
    kubelet = node.kubelet
    answers = [kubelet.admit(name, count) for name, count in (("a", 1), ("b", 1), ("c", 2))]
    ids = [one for answer in answers for one in answer["ids"]]
    assert sorted(ids) == [f"nic{nic}" for nic in range(NICS)], ids
    kubelet.refuses("'d' asks for 1 of 'vpc.amazonaws.com/efa', of which 0 are free", "admit", "d",
                    1)
    code, text = pods.run(answers[2], "ibv_devices")
    assert code == 0 and listed(text) == devices_of(answers[2]), (code, text)
    # What is free again is given again.
    kubelet.order("remove", "a")
    assert kubelet.admit("d", 1)["ids"] == answers[0]["ids"]
    kubelet.refuses("of which 0 are free", "admit", "e", 1)
    for name in "bcd":
        kubelet.order("remove", name)


def restarted(pods, node, folder):
    """The plugin, the kubelet and weftd come and go; the containers go on."""
    kubelet, plugin = node.kubelet, node.plugin
    every = [f"nic{nic}" for nic in range(NICS)]
    pods.start("one", kubelet.admit("one", 1))
    pods.start("two", kubelet.admit("two", 1))
    log = Path(folder) / "exec.log"
    for port, number, code in ((18530, signal.SIGKILL, -9), (18540, signal.SIGTERM, 143)):
        measurement = Exec(pods, log, "one", "two", port)
        plugin.end(number, code)
        kubelet.lists([])
        kubelet.refuses("of which 0 are free", "admit", "three", 1)
        measurement.finish()
        measurement = Exec(pods, log, "two", "one", port + 1)
        plugin.start()
        kubelet.lists(every)
        measurement.finish()
        # The book is the kubelet's: the new plugin gives nobody what the others have.
        kubelet.refuses("of which 2 are free", "admit", "three", 3)
        taken = kubelet.admit("three", 2)
        assert sorted(taken["ids"]) == ["nic2", "nic3"], taken
        assert listed(pods.run(taken, "ibv_devices")[1]) == devices_of(taken)
        kubelet.order("remove", "three")
    # Another kubelet, which has lost its book.
    kubelet.kill()
    kubelet.start()
    kubelet.lists(every)
    Exec(pods, log, "one", "two", 18550).finish()
    assert sorted(kubelet.admit("all", NICS)["ids"]) == every
    kubelet.order("remove", "all")


def weftd_restarted(labs, pods, node, folder, up):
    every = [f"nic{nic}" for nic in range(NICS)]
    measurement = Exec(pods, Path(folder) / "exec.log", "one", "two", 18560)
    pid = labs.weftd("default")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "end of weftd")
    node.kubelet.lists([], every)
    node.kubelet.refuses("of which 0 are free", "admit", "three", 1)
    node.kubelet.refuses("nic2", "ask", "nic2")
    labs.run(*up, start="weft")
    node.kubelet.lists(every)
    measurement.finish()
    answer = node.kubelet.admit("three", 1)
    assert pods.run(answer, "ibv_devinfo", "-d", *devices_of(answer))[0] == 0
    node.kubelet.order("remove", "three")


def garbage(labs, node):
    kubelet = node.kubelet
    healthy = [f"nic{nic}" for nic in range(NICS)]
    absent = ["nic9", "../../etc", "nic00", "nic-1", "nic18446744073709551616", "nic0" * 1000]
    for ids, words in (*((["nic0", one], f"no device '{one[:100]}'") for one in absent),
                       ([], "no device is asked for"),
                       (["nic0", "nic0"], "'nic0' is asked for twice")):
        kubelet.refuses(words, "ask", *ids)
    at = kubelet.order("see")["endpoint"]
    held = []
    for size in (0, 1, 24, 100_000):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].connect(at)
        try:
            held[-1].sendall(os.urandom(size))
        except OSError:
            pass  # the plugin may have hung up
    kubelet.admit("beside", 1)
    kubelet.order("remove", "beside")
    for one in held:
        one.close()
    # A NIC without a link is given to nobody.
    labs.run("fault", "default", "link: h1-fabric#0, down: true", start="weft")
    kubelet.lists(healthy[1:], healthy[:1])
    kubelet.refuses("'nic0' is not healthy", "ask", "nic0")
    assert kubelet.admit("other", 1)["ids"] == ["nic1"]
    kubelet.refuses("of which 2 are free", "admit", "more", 3)
    kubelet.order("remove", "other")
    labs.run("heal", "default", "0", start="weft")
    kubelet.lists(healthy)


def in_place(answer):
    """The environment of a container, for a program that sees the mount where it lies."""
    mount = answer["mounts"][0]
    return {**os.environ, **{name: value.replace(mount["container_path"], mount["host_path"])
                             for name, value in answer["envs"].items()}}


def between(log, served, asked, server, client):
    with log.open("w") as out:
        serving = subprocess.Popen(server, env=in_place(served), stdout=out, stderr=out,
                                   stdin=subprocess.DEVNULL)
    try:
        until_heard(lambda: said(*client, env=in_place(asked)))
        assert serving.wait(timeout=lab.PATIENCE) == 0, log.read_text()
    finally:
        serving.kill()
        serving.wait()


# Of version 8 of NCCL's table: a name, then the calls. Of the properties the name comes first.
NCCL = """
import ctypes, sys
table = ctypes.cast(ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(sys.argv[1]),
                    "ncclNetPlugin_v8")), ctypes.POINTER(ctypes.c_void_p))
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
log = ctypes.CFUNCTYPE(None)(lambda: None)
assert call(table[1])(ctypes.cast(log, ctypes.c_void_p)) == 0
count = ctypes.c_int()
assert call(table[2])(ctypes.addressof(count)) == 0
properties = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(table[3])
for device in range(count.value):
    told = (ctypes.c_char_p * 32)()
    assert properties(device, ctypes.addressof(told)) == 0
    print(told[0].decode())
"""


def nccl_devices(plugin, answer):
    """What NCCL finds in a container, whose other NICs are other pods'."""
    code, text = said(sys.executable, "-c", NCCL, plugin, env=in_place(answer))
    assert code == 0, text
    return text.split()


def tree_with_traps(answer, kind, folder):
    """A container's tree is its image's to change: what is no NIC there neither stops a program
    nor hides the others."""
    traps, environment = Path(folder) / "traps", in_place(answer)
    shutil.copytree(environment["WEFT_DEVICES"], traps, symlinks=True)
    os.mkfifo(traps / "nic7")
    os.symlink("/dev/zero", traps / "nic8")
    os.mkdir(traps / "nic9")
    (traps / "nic10").write_bytes(b"index = " + b"9" * 1_000_000)
    code, text = said("ibv_devices", env={**environment, "WEFT_DEVICES": str(traps)})
    assert code == 0 and listed(text) == devices_of(answer, kind), (code, text)
    shutil.rmtree(traps)


def some_of_the_nics(labs, node, kind, port, nccl):
    """Pods whose NICs are not the first of the host, or not one after the other."""
    kubelet, log = node.kubelet, Path(node.folder) / "../server.log"
    answers = {name: kubelet.admit(name, count) for name, count in (("a", 1), ("b", 1), ("c", 1))}
    kubelet.order("remove", "b")
    answers["d"] = kubelet.admit("d", 2)
    assert answers["d"]["ids"] == ["nic1", "nic3"], answers["d"]
    for answer in answers.values():
        text = subprocess.run(["ibv_devices"], env=in_place(answer), check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        assert listed(text) == devices_of(answer, kind), (answer, text)
        wanted = [one.replace("nic", "weft") for one in answer["ids"]]
        assert nccl_devices(nccl, answer) == wanted, answer
    tree_with_traps(answers["d"], kind, node.folder)
    server, client = devices_of(answers["d"], kind)[1], devices_of(answers["c"], kind)[0]
    if kind == "efa":
        words, address = latency, "127.0.0.1"
    else:
        # By rdma_cm, which looks for the NIC by its address.
        nics = json.loads(labs.run("status", "--json", start="weft"))["nics"]
        address = next(nic["address"] for nic in nics if (nic["host"], nic["nic"]) == ("h1", 3))

        def words(number, device):
            return ["ib_send_lat", "-R", "-d", device, "-x", "1", "-n", "200", "-s", "64", "-p",
                    str(number)]
    between(log, answers["d"], answers["c"], words(port, server), [*words(port, client), address])


def fake(weft, folder, plugin, kubelet, nccl):
    for program in ("ibv_devices", "ib_send_lat"):
        if not shutil.which(program):
            skip(f"needs {program}")
    for port, kind in ((18570, "efa"), (18571, "rxe")):
        own = Path(folder) / kind
        own.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(own)
        labs = lab.Labs(weft, str(own), "")
        node = Node(plugin, kubelet, own, "h1", kind)
        try:
            labs.run("up", "default", "--nics", str(NICS), "--device", kind, start="weft")
            node.kubelet.lists([f"nic{nic}" for nic in range(NICS)])
            garbage(labs, node)
            some_of_the_nics(labs, node, kind, port, nccl)
            labs.run("down", start="weft")
            node.plugin.end(signal.SIGTERM, 143)
            labs.nothing_is_left()
        finally:
            node.end()
            labs.end_processes()  # a test that fails leaves its weftd


def podman(weft, folder, plugin, kubelet, _nccl):
    labs = lab.Podman(weft, folder)
    up = ["up", "default", "--hosts", "2", "--nics", str(NICS), "--allow-uid", "1000"]
    pods = Pods(labs)
    nodes = []
    try:
        # The plugins are there first, and wait.
        nodes += [Node(plugin, kubelet, folder, host) for host in ("h1", "h2")]
        until(lambda: "is not up" in nodes[1].plugin.log.read_text(), "plugin that waits")
        assert not nodes[0].kubelet.devices()
        labs.run(*up, start="weft")
        for node in nodes:
            node.kubelet.lists([f"nic{nic}" for nic in range(NICS)])
            assert node.kubelet.order("see")["resource"] == RESOURCE
        first, second = (node.kubelet for node in nodes)
        nothing_without(pods)
        whole_life(pods, ((first, "server"), (first, "client")))  # two pods of a node
        whole_life(pods, ((first, "server"), (second, "client")))  # of two nodes
        exhausted(pods, nodes[0])
        garbage(labs, nodes[0])
        restarted(pods, nodes[0], folder)
        weftd_restarted(labs, pods, nodes[0], folder, up)
        pods.remove("one", "two")
        for node in nodes:
            node.plugin.end(signal.SIGTERM, 143)
            assert os.listdir(node.folder) == ["kubelet.sock"], os.listdir(node.folder)
            node.kubelet.end()
        labs.run("down", start="weft")
        pods.end()
        labs.nothing_is_left()
    finally:
        for node in nodes:
            node.end()
        labs.end_processes()  # a test that fails leaves its weftd


if __name__ == "__main__":
    lab.main({"fake": fake, "podman": podman}, *sys.argv[1:])
