#!/usr/bin/env python3
# Owns labs as people use them: what starts, what is said, and that nothing of them stays. Most of
# it is judged with an engine that only writes down what it was asked for (fake_engine.sh): that
# needs no rights and sees each word of the command lines. What only real containers can show is
# judged with podman. lab_rounds.py and k8s_run.py stand on the classes of this file.
"""usage: lab.py WEFT fake|podman

`fake`: with a container engine that only remembers what it was asked for. `podman`: with podman, in
namespaces of the test's own, from an image made of this machine's programs and above its root;
needs root. Exit code 0, or 77 with the reason if this machine cannot."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from outcome import skip, until

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 120


class Labs:
    """`weft lab` with an engine, and what is there of its labs."""

    def __init__(self, weft, folder, engine):
        self.weft, self.folder, self.engine = weft, folder, engine
        self.logs = folder  # of what the test itself runs

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def words(self, *words):
        # Only `up` is told: the others have to know it from the lab's record.
        engine = ["--engine", self.engine] if words[0] == "up" else []
        return [self.weft, "lab", *words[:1], *engine, *words[1:]]

    def run(self, *words, code=0, start="lab"):
        command = self.words(*words) if start == "lab" else [self.weft, *words]
        with tempfile.TemporaryFile("w+") as out:  # a weftd that stays would hold a pipe open
            got = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                 timeout=PATIENCE, check=False).returncode
            out.seek(0)
            text = out.read()
        assert got == code, f"{words}: exit code {got}, not {code}\n{text}"
        return text

    def status(self, *words):
        return json.loads(self.run("status", "--json", *words))

    def weftd(self, name):
        return json.loads(self.run("status", name, "--json", start="weft"))["pid"]

    def nothing_is_left(self):
        # The folder of all networks may stay, empty.
        networks = os.path.join(self.folder, f"weft-{os.geteuid()}")
        assert not os.path.exists(networks) or not os.listdir(networks), os.listdir(networks)
        until(lambda: not self.processes(), f"end of {self.processes()}")

    def processes(self):
        """Whatever has the path of our networks on its command line."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{self.folder}/weft-" in line:
                found.append(f"{pid}: {line}")
        return found

    def end_processes(self):
        for line in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.kill(int(line.split(":")[0]), signal.SIGKILL)


# --- With an engine that makes no containers

# Lines of this text are counted: tests expect faults of n2 in line 7 and of n3 in line 8.
THREE = """name: three
topology:
  nics: 2
  defaults: {image: debian, env: {COLOUR: red}}
  nodes:
    n1: {cmd: [serve, all]}
    n2: {}
    n3: {user: "4711"}
"""
# Another lab, whose network is drawn: hosts are nodes that have no `kind`.
SPINE = """name: modelled
topology:
  nodes:
    n1: {image: debian}
    n2: {image: debian}
    spine: {kind: switch}
  links:
    - {endpoints: [n1, spine], rate: 100Gbps}
    - {endpoints: [n2, spine], rate: 100Gbps}
"""


class Fake(Labs):
    def __init__(self, weft, folder):
        super().__init__(weft, folder, os.path.join(HERE, "fake_engine.sh"))
        self.state = os.path.join(folder, "engine")
        os.mkdir(self.state)
        os.environ["FAKE_ENGINE"] = self.state

    def made(self, kind="containers"):
        folder = os.path.join(self.state, kind)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def pools(self):
        files = [os.path.join(self.state, "networks", name) for name in self.made("networks")]
        lines = [line for file in files for line in open(file, encoding="utf-8")]
        return [line.split()[1] for line in lines if line.startswith("pool ")]

    def container(self, name):
        with open(os.path.join(self.state, "containers", name), encoding="utf-8") as file:
            return file.read().splitlines()

    # As if the container had done that of itself.
    def set_state(self, name, state):
        lines = [line for line in self.container(name) if not line.startswith("state")]
        with open(os.path.join(self.state, "containers", name), "w", encoding="utf-8") as file:
            file.write("\n".join([*lines, f"state {state}", ""]))

    def asked(self, word):
        with open(os.path.join(self.state, "log"), encoding="utf-8") as file:
            return [line for line in file if line.startswith(word + " ")]

    def forget_asked(self):
        os.unlink(os.path.join(self.state, "log"))

    def flag(self, name, there=True):
        path = os.path.join(self.state, name)
        if there:
            with open(path, "w", encoding="utf-8"):
                pass
        else:
            os.remove(path)

    def nothing_is_left(self):
        super().nothing_is_left()
        assert not self.made() and not self.made("networks"), (self.made(), self.made("networks"))


def comes_and_goes(labs, subnet="10.89.0"):
    text = labs.run("up", labs.file("three.lab.yaml", THREE))
    assert "nodes: 3 of 3" in text and "weft lab exec n1" in text, text
    assert labs.made() == ["weft-three-n1", "weft-three-n2", "weft-three-n3"], labs.made()
    lines = labs.container("weft-three-n2")
    # The first address of the engine's network is its gateway's: n1 has .2, n2 .3.
    for line in ("env WEFT_HOST=n2", "env COLOUR=red", f"ip {subnet}.3", f"add-host n1:{subnet}.2",
                 "network weft-three"):
        assert line in lines, (line, lines)
    folder = next(line.split()[1].split(":")[0] for line in lines if line.startswith("volume"))
    assert os.path.exists(f"{folder}/attach.sock") and os.path.exists(
        f"{folder}/libweft-preload.so"), folder
    status = labs.status()
    assert status["lab"] == "three" and status["whole"], status
    assert [node["node"] for node in status["nodes"]] == ["n1", "n2", "n3"], status
    assert all(len(node["nics"]) == 2 and node["state"] == "running" for node in status["nodes"])
    assert "n3" in labs.run("status")
    # What is not weft's is the engine's: words, standard streams, exit code.
    text = labs.run("exec", "n2", "--", "sh", "-c", "echo [$1]; exit 7", "sh", "a b", code=7)
    assert text == "[a b]\n", text
    assert "no node 'n9'" in labs.run("exec", "n9", "--", "true", code=1)
    labs.run("exec", "n2", code=2)
    assert "[n3] said by weft-three-n3" in labs.run("logs")
    assert labs.run("logs", "n1") == "said by weft-three-n1\n"
    # It is a network as any other, but for its end.
    assert "is a lab" in labs.run("down", "three", code=1, start="weft")
    assert "is a lab" in labs.run("up", "three", code=1, start="weft")
    labs.run("fault", "three", "link: n1-*, loss: 0.1", start="weft")
    labs.run("down")
    labs.nothing_is_left()
    assert "no lab is up" in labs.run("down", code=1)


def goes_on(labs):
    """`up` said again starts what is missing."""
    file = labs.file("three.lab.yaml", THREE)
    labs.run("up", file)
    before = labs.weftd("three")
    labs.run("up", file)
    assert labs.weftd("three") == before and len(labs.asked("run")) == 3, labs.asked("run")
    os.kill(before, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{before}/exe"), "end of weftd")
    assert not labs.status()["whole"]
    assert "weftd is not running" in labs.run("status")
    labs.set_state("weft-three-n2", "exited 137")
    assert labs.status()["nodes"][1]["exit_code"] == 137
    labs.run("up", file)
    assert labs.weftd("three") != before and labs.status()["whole"]
    assert len(labs.asked("run")) == 4, labs.asked("run")
    # Under the same name another lab than the one that is up.
    other = labs.file("other.lab.yaml", THREE + "    n4: {}\n")
    assert "made from another text" in labs.run("up", other, code=1)
    assert labs.status()["whole"]
    # Paused containers, and a weftd that is gone, hinder nobody.
    labs.set_state("weft-three-n1", "paused 0")
    os.kill(labs.weftd("three"), signal.SIGKILL)
    assert "only a part" in labs.run("down", file)
    labs.nothing_is_left()


def fails(labs):
    """Without success nothing stays, and the place of the fault is said."""
    labs.flag("fail-weft-three-n2")
    text = labs.run("up", labs.file("three.lab.yaml", THREE), code=1)
    assert re.search(r"three\.lab\.yaml:7: node 'n2' does not start: Error: no such image",
                     text), text
    labs.nothing_is_left()
    labs.flag("fail-weft-three-n2", there=False)
    text = labs.run("up", labs.file("bad.lab.yaml", THREE.replace("user:", "usr:")), code=1)
    place = "bad.lab.yaml:8: topology.nodes.n3"
    assert f"{place}: unknown key 'usr'; did you mean 'user'?" in text, text
    text = labs.run("up", labs.file("none.lab.yaml", "device: none\n" + THREE), code=1)
    assert "'device' cannot be 'none'" in text, text
    assert "cannot be read" in labs.run("up", labs.folder + "/no.yaml", code=1)
    # A network of that name is not the lab's to replace.
    labs.run("up", "three", start="weft")
    assert "that is no lab" in labs.run("up", labs.file("three.lab.yaml", THREE), code=1)
    assert "is no lab" in labs.run("down", "three", code=1)
    labs.run("down", "three", start="weft")
    labs.nothing_is_left()


def start_slowly(labs, file):
    """A start that has begun with its containers."""
    labs.flag("slow")
    with open(os.path.join(labs.folder, "log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen(labs.words("up", file), stdout=log, stderr=log)
    until(lambda: labs.made("networks"), "network")
    time.sleep(0.2)  # somewhere in the middle of it
    return process


def breaks_off(labs):
    file = labs.file("three.lab.yaml", THREE)
    # 128 + the signal's number, as a shell has it.
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start_slowly(labs, file)
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == code, process.returncode
        labs.flag("slow", there=False)
        labs.nothing_is_left()
    # Killed: it can be ended by name, and the start of any lab ends it.
    for second in ("down", "up"):
        process = start_slowly(labs, file)
        process.kill()
        process.wait()
        labs.flag("slow", there=False)
        if second == "down":
            assert "only a part" in labs.run("down", "three")
        else:
            text = labs.run("up", labs.file("spine.lab.yaml", SPINE))
            assert "cleared away what was left of 'three'" in text, text
            assert labs.made() == ["weft-modelled-n1", "weft-modelled-n2"], labs.made()
            assert labs.status()["lab"] == "modelled"
            labs.run("down")
        labs.nothing_is_left()
    # One that is just being started by somebody else is left alone.
    process = start_slowly(labs, file)
    labs.run("up", labs.file("spine.lab.yaml", SPINE))
    assert process.wait(timeout=PATIENCE) == 0
    labs.flag("slow", there=False)
    assert "2 labs are up (modelled, three)" in labs.run("status", code=1)
    labs.run("exec", "--lab", "modelled", "n1", "--", "true")
    labs.run("down", "modelled")
    labs.run("down", "three")
    labs.nothing_is_left()


def keeps_its_engine(labs):
    """What was started with an engine is ended with it, from wherever, whatever is said later."""
    file = labs.file("three.lab.yaml", THREE)
    engine, other = labs.engine, os.path.join(labs.folder, "other")
    shutil.copy(engine, other)
    # A relative path must not be kept as it was said: `down` may be called from elsewhere.
    labs.engine = os.path.relpath(engine)
    labs.run("up", file)
    assert labs.status()["engine"] == engine, labs.status()
    labs.engine = other
    assert "leave --engine out" in labs.run("up", file, code=1)
    labs.set_state("weft-three-n2", "exited 1")
    with tempfile.TemporaryFile() as out:
        subprocess.run([labs.weft, "lab", "up", file], cwd="/", stdout=out, stderr=out,
                       timeout=PATIENCE, check=True)
    assert labs.status()["whole"] and labs.status()["engine"] == engine, labs.status()
    labs.run("down")
    labs.nothing_is_left()
    # A record that nobody can read is in nobody's way.
    # Without a record the first engine that is found is asked, and podman is looked for first: here
    # the fake one by that name.
    os.symlink(engine, os.path.join(labs.folder, "podman"))
    os.environ["PATH"] = labs.folder + ":" + os.environ["PATH"]
    labs.engine = engine
    labs.run("up", file)
    labs.file(f"weft-{os.geteuid()}/three/lab.json", "{")
    assert "`weft lab down three`" in labs.run("up", file, code=1)
    assert "only a part" in labs.run("down", "three")
    labs.nothing_is_left()


def with_docker(labs):
    """Docker gives a container the address that it is to have only in a network whose subnet was
    said, and two networks never the same subnet."""
    labs.flag("docker")
    comes_and_goes(labs, "172.18.0")
    labs.forget_asked()
    goes_on(labs)
    breaks_off(labs)
    # What a start left that was killed while it asked docker for a subnet.
    labs.run("up", labs.file("three.lab.yaml", THREE))
    label = f"label weft.lab={os.path.join(labs.folder, f'weft-{os.geteuid()}', 'three')}"
    network = os.path.join(labs.state, "networks", "weft-three")
    with open(network, encoding="utf-8") as file:
        assert label in file.read()
    os.rename(network, network + "-.subnet")
    for node in ("n1", "n2", "n3"):
        labs.set_state(f"weft-three-{node}", "exited 137")
    labs.run("up", labs.file("three.lab.yaml", THREE))
    assert labs.made("networks") == ["weft-three"] and labs.status()["whole"], labs.made("networks")
    labs.run("down")
    # Several at once, of which each asks for the subnet that another one is about to take.
    names = [f"l{number}" for number in range(8)]
    files = [labs.file(f"{name}.lab.yaml", THREE.replace("three", name)) for name in names]
    starts = [subprocess.Popen(labs.words("up", file), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True) for file in files]
    for start in starts:
        said = start.communicate(timeout=PATIENCE)[1]
        assert start.returncode == 0, said
    pools = labs.pools()
    assert len(pools) == len(set(pools)) == len(names), pools
    for name in names:
        labs.run("down", name)
    labs.nothing_is_left()


def fake(weft, folder):
    for number, part in enumerate((comes_and_goes, goes_on, fails, breaks_off, keeps_its_engine,
                                   with_docker)):
        own = os.path.join(folder, str(number))
        os.mkdir(own)
        os.environ["XDG_RUNTIME_DIR"] = own
        labs = Fake(weft, own)
        try:
            part(labs)
        finally:  # a part that fails leaves its weftd
            labs.end_processes()


# --- With podman

# So that podman needs neither systemd nor a journal.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
log_driver = "k8s-file"
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
# Runs in the namespaces: what podman keeps in /run, its namespaces and its networks are the test's
# own, and its mounts reach nobody else.
HERMETIC = """
set -e
mount -t tmpfs none /run
mkdir -p /run/netns /etc/containers/networks
mount -t tmpfs none /etc/containers/networks
mount --make-rshared /
ip link set lo up
exec "$@"
"""
IMAGE = "localhost/weft-lab-test"
PROGRAMS = ["sh", "sleep", "cat", "ibv_devinfo", "ibv_devices", "ib_send_lat"]
# As little as a careful operator leaves a container.
HARD = ("[--read-only, --cap-drop=all, --security-opt=no-new-privileges]")


class Podman(Labs):
    def __init__(self, weft, folder):
        super().__init__(weft, folder, "podman")
        store = os.path.join(folder, "store")
        os.mkdir(store)
        for name, variable, text in (("containers.conf", "CONTAINERS_CONF", CONTAINERS_CONF),
                                     ("storage.conf", "CONTAINERS_STORAGE_CONF", STORAGE_CONF)):
            runtime = "runc" if shutil.which("runc") else "crun"
            os.environ[variable] = self.file(name, text.format(runtime=runtime, folder=store))
        self.podman("info", reason="podman does not run here")
        self.make_image()
        self.podman("run", "--rm", IMAGE, "sleep", "0", reason="podman runs no containers here")

    def podman(self, *words, reason=None):
        with tempfile.TemporaryFile("w+") as out:
            code = subprocess.run(["podman", *words], stdout=out, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, timeout=PATIENCE,
                                  check=False).returncode
            out.seek(0)
            text = "".join(line for line in out if "connect to syslog" not in line)
        if code != 0 and reason:
            skip(f"{reason}: {text.strip()[-300:]}")
        assert code == 0, f"podman {words}: {text}"
        return text

    def make_image(self):
        """An image that never heard of weft: some programs, what they load, and nothing else."""
        root = os.path.join(self.folder, "image")
        files = {shutil.which(name) for name in PROGRAMS}
        providers = "/usr/lib/x86_64-linux-gnu/libibverbs"
        files |= {os.path.join(providers, name) for name in os.listdir(providers)}
        for file in list(files):
            said = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
            # Lines of ldd: `name => path (address)`.
            files |= set(re.findall(r"(/\S+) \(0x", said))
        # What else belongs to libc, as each image has it: the preload library asks for these.
        libc = os.path.dirname(next(file for file in files if "/libc.so." in file))
        files |= {os.path.join(libc, name) for name in ("libdl.so.2", "libpthread.so.0")}
        folders = set()
        for file in files:
            to = root + file
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(file, to)
            folders.add(os.path.dirname(file))
        shutil.copytree("/etc/libibverbs.d", root + "/etc/libibverbs.d")
        for name in ("tmp", "run", "proc", "sys", "dev"):
            os.makedirs(f"{root}/{name}", exist_ok=True)
        with open(f"{root}/etc/nsswitch.conf", "w", encoding="utf-8") as file:
            file.write("hosts: files\n")
        path = ":".join(sorted(folder for folder in folders if folder.endswith("bin")))
        archive = os.path.join(self.folder, "image.tar")
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        self.podman("import", "--change", f"ENV PATH={path}", archive, IMAGE)

    def nothing_is_left(self):
        super().nothing_is_left()
        assert not self.podman("ps", "--all", "--quiet", "--external").strip()
        assert "weft" not in self.podman("network", "ls"), self.podman("network", "ls")
        mounts = [line for line in open("/proc/mounts", encoding="utf-8") if "/merged" in line]
        assert not mounts, mounts

    def latency(self, client, server, port):
        """ib_send_lat between two nodes, which find each other by name."""
        words = ["ib_send_lat", "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "200", "-s", "64",
                 "-p", str(port)]
        with open(os.path.join(self.logs, "server.log"), "w", encoding="utf-8") as log:
            serving = subprocess.Popen(self.words("exec", server, "--", *words), stdout=log,
                                       stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        text, code = "", 1
        while code != 0 and serving.poll() is None and time.monotonic() < end:
            done = subprocess.run(self.words("exec", client, "--", *words, server),
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            code, text = done.returncode, done.stdout + done.stderr
        assert code == 0 and re.search(r"^ *64 +200 ", text, re.M), text
        assert serving.wait(timeout=PATIENCE) == 0


def memory_beside(labs, nodes):
    """kB of each node that are not its program's: what the engine keeps running for it."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip() not in ("conmon", "aardvark-dns"):
                    continue
            # Shared pages count for each process by its share only (Pss): many conmon are one
            # program.
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
                total += int(re.search(r"^Pss: +(\d+)", file.read(), re.M).group(1))
        except OSError:
            continue
    return total / nodes


def hardened(labs):
    """An unmodified image; no privilege at all; names; both ends of a measurement."""
    labs.run("up", labs.file("hard.lab.yaml", f"""name: hard
topology:
  nics: 2
  defaults: {{image: {IMAGE}, user: "1000:1000", memory: 256m, options: {HARD}}}
  nodes: {{n1: {{cmd: [sleep, infinity]}}, n2: {{cmd: [sleep, infinity]}}}}
"""))
    assert labs.status()["whole"], (labs.status(), labs.run("logs"))
    assert "n1" in labs.run("exec", "n2", "--", "cat", "/etc/hosts")
    text = labs.run("exec", "n1", "--", "ibv_devices")
    assert "efa_0" in text and "efa_1" in text, text
    labs.latency("n2", "n1", 18515)
    # `down` has to end a container that cannot answer.
    labs.podman("pause", "weft-hard-n2")
    assert labs.status()["nodes"][1]["state"] == "paused"
    labs.run("down")
    labs.nothing_is_left()


def many(labs):
    """Sixteen nodes with two rails, as fast as podman makes containers."""
    nodes = [f"n{i}" for i in range(1, 17)]
    text = "name: many\ntopology:\n  defaults: {rootfs: /, cmd: [sleep, infinity]}\n  nodes:\n"
    text += "".join(f"    {node}: {{}}\n" for node in nodes)
    text += "    rail1: {kind: switch}\n    rail2: {kind: switch}\n  links:\n"
    text += "".join(f"    - {{endpoints: [{node}, rail{rail}], rate: 400Gbps}}\n"
                    for node in nodes for rail in (1, 2))
    begin = time.monotonic()
    labs.run("up", labs.file("many.lab.yaml", text))
    up = time.monotonic() - begin
    status = labs.status()
    assert status["whole"] and len(status["nodes"]) == 16, status
    assert all(len(node["nics"]) == 2 for node in status["nodes"])
    each = memory_beside(labs, 16)
    labs.latency("n16", "n1", 18516)
    begin = time.monotonic()
    labs.run("down")
    print(f"16 nodes, 2 rails: up {up:.1f} s, down {time.monotonic() - begin:.1f} s, "
          f"{each:.0f} kB beside each node's program")
    labs.nothing_is_left()


def killed(labs):
    """kill -9 of weft in the middle of a start, and Ctrl-C."""
    file = labs.file("killed.lab.yaml", "name: killed\ntopology:\n  defaults: {rootfs: /}\n"
                     "  nodes: {n1: {}, n2: {}, n3: {}, n4: {}, n5: {}, n6: {}}\n")
    for number in (signal.SIGKILL, signal.SIGINT):
        with open(os.path.join(labs.folder, "log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen(labs.words("up", file), stdout=log, stderr=log)
        until(lambda: process.poll() is not None or labs.podman("ps", "--quiet").strip(),
              "first container")
        process.send_signal(number)
        code = process.wait(timeout=PATIENCE)
        if number == signal.SIGKILL:
            labs.run("down", "killed")
        else:
            assert code in (0, 130), code
            if code == 0:  # it was faster
                labs.run("down", "killed")
        labs.nothing_is_left()


def podman(weft, folder):
    labs = Podman(weft, folder)
    for part in (hardened, killed, many):
        part(labs)


def main(parts, weft, kind, *more):
    """`parts`: by their names, functions that get the program, a folder of their own, and what is
    in `more`."""
    if kind != "fake":
        if os.geteuid() != 0:
            skip("needs root, for namespaces of its own")
        for program in ("podman", "unshare", "ip", "tar", "ldd", *PROGRAMS):
            if shutil.which(program) is None:
                skip(f"needs {program}")
        if os.environ.get("WEFT_IN_LAB_TEST") != "1":
            os.environ["WEFT_IN_LAB_TEST"] = "1"
            hermetic = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                        "--mount-proc", "--propagation", "private"]
            if subprocess.run([*hermetic, "sh", "-c", HERMETIC, "sh", "true"],
                              capture_output=True, check=False).returncode != 0:
                skip("this machine does not allow namespaces")
            os.execvp("unshare", [*hermetic, "sh", "-c", HERMETIC, "sh", sys.executable, "-B",
                                  sys.argv[0], weft, kind, *more])
    # So that what a part has begun ends with it, also when somebody else ends the test.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        weft, *more = map(os.path.abspath, (weft, *more))
        os.chdir(folder)  # conmon leaves a file where it works if its container runs out of memory
        try:
            parts[kind](weft, folder, *more)
        finally:
            if kind != "fake":  # containers that are paused outlive their namespaces
                for words in (("unpause", "--all"), ("rm", "--force", "--time", "0", "--all")):
                    subprocess.run(["podman", *words], capture_output=True, check=False)


if __name__ == "__main__":
    main({"fake": fake, "podman": podman}, *sys.argv[1:])
