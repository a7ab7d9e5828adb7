#!/usr/bin/env python3
# Owns programs in containers that have nothing in common with weftd but one mounted folder. Five
# kinds: who is admitted (users), what a container and a weftd survive of each other (restart), what
# the CDI files say (cdi), what a container that is not trusted can do with the folder (escape), and
# an engine that reads those files (podman).
"""usage: containers.py WEFT users|restart|cdi|escape|podman|cost

Containers are namespaces of the test's own (mount, pid, network, user), made with unshare; with
`podman` and `cost` they are podman's, above this machine's root. `cost` is no test: it measures
what containers cost. Needs root, and programs of rdma-core and perftest. Exit code 0, or 77 with
the reason if this machine cannot."""

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from outcome import skip, until

PATIENCE = 60
# Numbers that no account of a usual machine has.
ADMITTED = 4711
STRANGER = 4712
MAPPED = 200000  # root of a container with a user namespace, as everybody else sees it
CLONE_NEWUSER = 0x10000000


def run(*words, check=True):
    with tempfile.TemporaryFile("w+") as out:  # a weftd that stays would hold a pipe open
        code = subprocess.run(words, stdout=out, stderr=out, timeout=PATIENCE,
                              check=False).returncode
        out.seek(0)
        text = out.read()
    if check and code != 0:
        sys.exit(f"{shlex.join(words)}: exit code {code}\n{text}")
    return code, text


class Network:
    def __init__(self, weft, name, *options):
        self.weft, self.name, self.options = weft, name, options
        run(weft, "up", name, *options)

    def status(self):
        code, text = run(self.weft, "status", self.name, "--json", check=False)
        return json.loads(text) if code == 0 else None

    def processes(self):
        return [process for nic in self.status()["nics"] for process in nic["processes"]]

    # Killed, not ended: the new weftd finds the old one's files, as after a crash.
    def again(self):
        os.kill(self.status()["pid"], signal.SIGKILL)
        until(lambda: self.status() is None, "end of weftd")  # it takes a moment to die
        run(self.weft, "up", self.name, *self.options)

    def down(self):
        run(self.weft, "down", self.name)

    def devices(self, kind, folder):
        """What the CDI file of that kind says: edits by the device's name."""
        _, text = run(self.weft, "cdi", self.name, "--output", folder, "--device", kind)
        with open(text.strip(), encoding="utf-8") as file:
            cdi = json.load(file)
        assert cdi["kind"] == f"weft.dev/{kind.split(':')[0]}", cdi["kind"]
        assert tuple(map(int, cdi["cdiVersion"].split("."))) >= (0, 5, 0)
        for device in cdi["devices"]:
            assert set(device) == {"name", "containerEdits"}, device
            assert set(device["containerEdits"]) == {"env", "mounts"}, device
        return {device["name"].removeprefix(self.name + "."): device["containerEdits"]
                for device in cdi["devices"]}


class Pod:
    """A network namespace for containers that have to find each other by TCP."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own, "pod")
        run("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "ip", "link", "set", "lo", "up")

    def end(self):
        self.holder.kill()
        self.holder.wait()


def mapped(user, words):
    """Becomes the first process of a user namespace whose root is `user` outside."""
    # The child makes the namespace, and only its parent, which is outside, may write the maps: each
    # waits for the other by a pipe.
    inside, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER) != 0:
            os._exit(126)
        os.write(inside[1], b"x")
        os.read(go[0], 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.execvp(words[0], words)
    os.close(inside[1])
    if not os.read(inside[0], 1):
        sys.exit("this machine allows no user namespaces")
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
            file.write(f"0 {user} 1000")
    os.write(go[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def container(edits, user, words, pod=None, pod_in_front=True):
    """The words of a command that runs `words` in a container with these edits. `user` is a number,
    or "mapped"."""
    # All sources are bound before any is moved to its place: one place may lie below another's
    # source, or cover it.
    script = ["set -e", "mkdir -p /run/held"]
    for i, mount in enumerate(edits["mounts"]):
        source = shlex.quote(mount["hostPath"])
        script += [f"mkdir /run/held/{i}", f"mount --bind {source} /run/held/{i}"]
    for i, mount in enumerate(edits["mounts"]):
        at = shlex.quote(mount["containerPath"])
        script += [f"mkdir -p {at}", f"mount --move /run/held/{i} {at}"]
    inside = ["env", "-i", "PATH=" + os.environ["PATH"], *edits["env"], *words]
    if user == "mapped":
        inside = [sys.executable, "-B", __file__, "mapped", *inside]
    else:
        inside = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                  "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *inside]
    script.append("exec " + shlex.join(inside))
    front = ["nsenter", f"--net=/proc/{pod.holder.pid}/ns/net"] if pod and pod_in_front else []
    own_net = [] if pod else ["--net"]
    return [*front, "unshare", "--mount", "--pid", "--ipc", "--uts", *own_net, "--fork",
            "--kill-child", "--mount-proc", "--propagation", "private", "sh", "-c",
            "mount -t tmpfs none /run; " + "; ".join(script)]


def kill_container(process):
    """Its first process, with which the kernel ends all others. That of unshare would not do: a
    process that has changed its user no longer hears of its parent's death."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        for child in file.read().split():
            os.kill(int(child), signal.SIGKILL)


def pair(server, client, folder, words):
    """A perftest between two containers; each is a function from words to a command. Returns the
    server's figures."""
    log = os.path.join(folder, "server.log")
    words = [*words, "-c", "SRD", "-x", "0", "-d", "efa_0"]
    with open(log, "w", encoding="utf-8") as out:
        serving = subprocess.Popen(server(words), stdout=out, stderr=out)
        code = 1
        end = time.monotonic() + PATIENCE
        while code != 0 and serving.poll() is None and time.monotonic() < end:
            code, text = run(*client([*words, "127.0.0.1"]), check=False)
        assert code == 0, text
        assert serving.wait(timeout=PATIENCE) == 0
    with open(log, encoding="utf-8") as file:
        text = file.read()
    found = re.search(r"^ *\d+ +\d+ +(\d.*)$", text, re.M)
    assert found, text
    return [float(figure) for figure in found[1].split()]


def latency(server, client, folder):
    pair(server, client, folder, ["ib_send_lat", "-n", "200", "-s", "64"])


def users(weft, folder):
    events = os.path.join(folder, "events.jsonl")
    network = Network(weft, "containers", "--events", events, "--allow-uid", str(ADMITTED),
                      "--allow-uid", str(MAPPED))
    pod = Pod()
    # Not in a chroot. Then another user has its place, and the end says so.
    can_map = run("unshare", "--user", "true", check=False)[0] == 0
    try:
        devices = network.devices("efa", folder)
        # Another user, and root of a container's own user namespace; weftd is in none of these.
        latency(lambda words: container(devices["h1"], ADMITTED, words, pod),
                lambda words: container(devices["h2"], "mapped" if can_map else MAPPED, words, pod),
                folder)
        assert network.status()["refused"] == 0
        until(lambda: not network.processes(), "end of the attachments")
        refused = 0
        for _ in range(3):
            code, text = run(*container(devices["h1"], STRANGER, ["ibv_devinfo", "-d", "efa_0"]),
                             check=False)
            assert code != 0 and f"does not admit uid {STRANGER}" in text, text
            # One try of a program may knock more than once, so the count only has to grow.
            before, refused = refused, network.status()["refused"]
            assert refused > before, (before, refused)
        with open(events, encoding="utf-8") as file:
            refusals = [json.loads(line) for line in file if '"refuse"' in line]
        assert {line["uid"] for line in refusals} == {STRANGER}, refusals
        times = [line["times"] for line in refusals]
        # Events are written at the 1st, 2nd, 4th, 8th ... refusal: a stranger must not fill the
        # file.
        assert times == [1 << i for i in range(refused.bit_length())], (times, refused)
        # The others do not notice.
        latency(lambda words: container(devices["h2"], 0, words, pod),
                lambda words: container(devices["any"], ADMITTED, words, pod), folder)
    finally:
        pod.end()
        network.down()
    # By default: its own user and root, and nobody else finds an open door.
    network = Network(weft, "closed")
    try:
        devices = network.devices("efa", folder)
        words = ["ibv_devinfo", "-d", "efa_0"]
        code, text = run(*container(devices["h1"], ADMITTED, words), check=False)
        assert code != 0 and "--allow-uid" in text, text
        run(*container(devices["h1"], 0, words))
    finally:
        network.down()
    if not can_map:
        skip("all was well, but for a user namespace, which this machine does not allow")


def restart(weft, folder):
    """weftd dies, and comes back; a container dies."""
    network = Network(weft, "restart", "--allow-uid", str(ADMITTED))
    pod = Pod()
    started = []
    try:
        devices = network.devices("efa", folder)
        words = ["ib_send_lat", "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "100"]
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            for host, port, user in (("h1", 18515, ADMITTED), ("h2", 18516, 0)):
                started.append(subprocess.Popen(
                    container(devices[host], user, [*words, "-p", str(port)], pod),
                    stdout=log, stderr=log))
        until(lambda: len(network.processes()) == 2, "two attached processes")
        network.again()
        until(lambda: len(network.processes()) == 2, "two processes that came back")
        kill_container(started[0])
        until(lambda: len(network.processes()) == 1, "end of a container's place")
        client = [*words, "-p", "18516", "127.0.0.1"]
        code, text = run(*container(devices["h1"], ADMITTED, client, pod), check=False)
        assert code == 0, text
        assert started[1].wait(timeout=PATIENCE) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
        pod.end()
        network.down()


def cdi(weft, folder):
    """The devices of CDI files, in containers made by what the files say."""
    names = {"h1", "h2", "h3", "h1-all-rails", "h2-all-rails", "h3-all-rails", "any"}
    network = Network(weft, "lab", "--hosts", "3", "--nics", "2")
    try:
        for kind, first in (("efa", "efa_0"), ("rxe", "rxe_0")):
            devices = network.devices(kind, folder)
            assert set(devices) == names, devices.keys()
            for name, nics in (("h2", 1), ("h3-all-rails", 2), ("any", 1)):
                _, text = run(*container(devices[name], 0, ["ibv_devinfo"]))
                assert len(re.findall(r"hca_id:", text)) == nics and first in text, (name, text)
        # A tree has a name that can be written down before there is a network.
        device = devices["h2"]
        fixed = {**device, "env": [re.sub("^WEFT_DEVICES=.*", "WEFT_DEVICES=/run/weft/rxe-h2", one)
                                   for one in device["env"]]}
        gid = ["cat", "/sys/class/infiniband/rxe_0/ports/1/gids/0"]
        assert run(*container(device, 0, gid)) == run(*container(fixed, 0, gid))
        # Processes of a container that was given "any" host are all on the same one.
        gids = "cat /sys/class/infiniband/rxe_0/ports/1/gids/0"
        _, text = run(*container(devices["any"], 0, ["sh", "-c", f"{gids}; sh -c '{gids}'"]))
        assert len(set(text.split())) == 1, text
        beside = [subprocess.Popen(container(devices["any"], 0, ["sh", "-c", f"{gids}; read end"]),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                  for _ in range(12)]
        seen = {one.stdout.readline() for one in beside}
        for one in beside:
            one.communicate("end\n")
        # 12 containers that all drew the same one of three hosts would be an accident of 1 in 3^11.
        assert len(seen) > 1, f"{len(beside)} containers on {seen}"
        listed = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        assert listed == ["weft-lab-efa.json", "weft-lab-rxe.json"], listed
    finally:
        network.down()
    assert not [name for name in os.listdir(folder) if name.endswith(".json")]
    # `weft up --cdi`: from the start, until the end, also if weftd was killed in between.
    network = Network(weft, "default", "--cdi")
    file = "/var/run/cdi/weft-default-efa.json"
    with open(file, encoding="utf-8") as text:
        assert {device["name"] for device in json.load(text)["devices"]} >= {"h1", "any"}
    network.again()
    assert os.path.exists(file)
    os.kill(network.status()["pid"], signal.SIGKILL)
    network.options = ()
    until(lambda: network.status() is None, "end of weftd")
    run(weft, "up", "default")
    assert not os.path.exists(file), "the file of a weftd that was killed is still there"
    network.down()


def seen(top):
    """All that a folder holds: names, modes and what is in the files."""
    found = {}
    for folder, folders, files in os.walk(top):
        found[folder] = os.lstat(folder).st_mode
        for name in folders + files:
            path = os.path.join(folder, name)
            found[path] = os.lstat(path).st_mode
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = found[path], file.read()
    return found


# What a container that may write into the folder puts in the place of what weft and weftd write
# there, or into their way to it.
LINKS = ["attach.sock", "attach.sock.new", "libweft-preload.so", "libweft-preload.so.new",
         "any-efa", "any-efa/0", "any-efa/count", "efa-h1", "devices", "devices/h1",
         "devices/h1/TREE", "devices/h1/TREE/statistics"]
# Swaps folders and links to the outside as fast as it can.
SWAPS = """
import ctypes, itertools, os, sys
libc, outside = ctypes.CDLL(None), sys.argv[1]
os.chdir("/run/weft")
trees = os.open("devices", os.O_RDONLY)
for name in ("devices", "any-efa"):
    os.symlink(outside, name + ".link")
print("swaps", flush=True)
for turn in itertools.count():
    for name in ("devices", "any-efa"):
        libc.renameat2(-100, name.encode(), -100, (name + ".link").encode(), 2)
    libc.renameat2(trees, b"h1", trees, b"gone%d" % turn, 0)  # to be written again
"""


def escape(weft, folder):
    """A container that may write into the folder leads weft and weftd to nothing outside."""
    outside = os.path.join(folder, "outside")
    os.makedirs(os.path.join(outside, "h1"))
    os.chmod(outside, 0o700)
    for name in ("file", "0", "count", "h1/file"):
        with open(os.path.join(outside, name), "w", encoding="utf-8") as file:
            file.write(f"{name} is nobody else's\n")
        os.chmod(os.path.join(outside, name), 0o600)
    before = seen(outside)
    network = Network(weft, "default", "--hosts", "1")
    share = os.path.join(network.status()["directory"], "share")
    started = []
    try:
        for name in LINKS:
            devices = network.devices("efa", folder)
            tree = next(variable.rsplit("/", 1)[1] for variable in devices["h1"]["env"]
                        if variable.startswith("WEFT_DEVICES="))
            at = "/run/weft/" + name.replace("TREE", tree)
            # A link to a folder would have files made in it; one to a file would have it
            # overwritten.
            for target in (outside, os.path.join(outside, "file")):
                run(*container(devices["h1"], 0,
                               ["sh", "-c", f"rm -rf {at}; ln -s {target} {at}"]))
                network.again()
                # It may fail, as long as it says so.
                run(weft, "cdi", "--output", folder, "--device", "efa", check=False)
                assert seen(outside) == before, (name, target)
            shutil.rmtree(share)
            network.again()
        devices = network.devices("efa", folder)
        started.append(subprocess.Popen(
            container(devices["h1"], 0, [sys.executable, "-c", SWAPS, outside]),
            stdout=subprocess.PIPE, text=True))
        assert started[0].stdout.readline() == "swaps\n"
        # Enough for the swaps to fall between any two steps of weft now and then.
        for _ in range(40):
            run(weft, "cdi", "--output", folder, "--device", "efa", check=False)
            assert seen(outside) == before
        network.again()
    finally:
        network.down()  # while the other swaps
        for process in started:
            process.kill()
            process.wait()
    assert seen(outside) == before


CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
log_driver = "k8s-file"
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


ROOTFS = os.environ.get("WEFT_TEST_ROOTFS", "/")


def unprivileged_podman(folder):
    """The words that run a container, of an engine that shares nothing with the machine's."""
    runtime = shutil.which("runc") and "runc" or shutil.which("crun") and "crun"
    if not shutil.which("podman") or not runtime:
        skip("needs podman, with runc or crun")
    conf = os.path.join(folder, "containers.conf")
    with open(conf, "w", encoding="utf-8") as file:
        file.write(CONTAINERS_CONF.format(runtime=runtime))
    os.environ["CONTAINERS_CONF"] = conf
    engine = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/runroot", "--tmpdir",
              f"{folder}/tmp"]
    plain = [*engine, "run", "--rm", "--cap-drop=all", "--security-opt=no-new-privileges"]
    code, text = run(*plain, "--network=none", "--rootfs", f"{ROOTFS}:O", "true", check=False)
    if code != 0:
        skip(f"podman does not run here: {text.strip()[-300:]}")
    return plain


def podman(weft, folder):
    """Podman reads the file, and two containers without privileges talk to each other."""
    plain = unprivileged_podman(folder)
    pod = Pod()
    network = Network(weft, "default", "--cdi", "--allow-uid", "1000")
    try:
        def words_of(device, user):
            return lambda words: [
                *plain, f"--network=ns:/proc/{pod.holder.pid}/ns/net", f"--user={user}:{user}",
                "--memory=256m", f"--device=weft.dev/efa={device}", "--rootfs", f"{ROOTFS}:O",
                *words]
        _, text = run(*words_of("h1", 1000)(["ibv_devinfo"]))
        assert "efa_0" in text, text
        latency(words_of("h1", 1000), words_of("h2", 0), folder)
        code, text = run(*words_of("h2", 1001)(["ibv_devinfo", "-d", "efa_0"]), check=False)
        assert code != 0 and "does not admit uid 1001" in text, text
    finally:
        network.down()
        pod.end()


ROUNDS = 7
PROGRAMS = (("ib_send_lat, 64 B", ["ib_send_lat", "-n", "20000", "-s", "64"], 2, "us"),
            ("ib_send_bw, 8 KiB", ["ib_send_bw", "-n", "100000", "-s", "8192"], 1, "MB/s"))


def cost(weft, folder):
    """Stock programs, weftd and all in containers without privileges, beside the same without any,
    in turn."""
    plain = unprivileged_podman(folder)
    outside = Network(weft, "default")
    fabric = f"{folder}/fabric"
    os.mkdir(fabric)
    serve = os.path.join(os.path.dirname(__file__), "../../containers/image/serve.sh")
    weftd = subprocess.Popen(
        [*plain, f"--volume={fabric}:/run", f"--env=PATH={os.path.dirname(weft)}:/usr/bin:/bin",
         "--env=XDG_RUNTIME_DIR=/run", "--network=none", "--rootfs", f"{ROOTFS}:O", "sh",
         os.path.abspath(serve), "--hosts", "2", "--allow-uid", "1000"], stdout=subprocess.DEVNULL)
    share = f"{fabric}/weft-0/default/share"
    until(lambda: os.path.exists(f"{share}/efa-h2"), "weftd in a container")
    pod = Pod()

    def contained(host):
        device = {"WEFT_SOCKET": "/run/weft/attach.sock", "WEFT_HOST": host,
                  "WEFT_DEVICES": f"/run/weft/efa-{host}",
                  "LD_PRELOAD": "/run/weft/libweft-preload.so"}
        return lambda words: [
            *plain, f"--network=ns:/proc/{pod.holder.pid}/ns/net", "--user=1000:1000",
            "--memory=256m", "--read-only", "--read-only-tmpfs=false",
            f"--volume={share}:/run/weft",
            *(f"--env={name}={value}" for name, value in device.items()), "--rootfs",
            f"{ROOTFS}:O", *words]

    def bare(host):
        return lambda words: [weft, "exec", "default", host, "--", *words]

    try:
        for name, words, column, unit in PROGRAMS:
            figures = {contained: [], bare: []}
            for turn in range(ROUNDS):
                for where in (contained, bare) if turn % 2 else (bare, contained):
                    figures[where].append(pair(where("h1"), where("h2"), folder, words)[column])
            within, without = (statistics.median(figures[it]) for it in (contained, bare))
            print(f"{name}: {within:.2f} {unit} in containers, {without:.2f} {unit} without, "
                  f"ratio {within / without:.3f} (medians of {ROUNDS})", flush=True)
    finally:
        weftd.terminate()
        weftd.wait(PATIENCE)
        outside.down()
        pod.end()


def main(weft, kind):
    if os.geteuid() != 0:
        skip("needs root, who can be several users")
    for program in ("unshare", "nsenter", "setpriv", "ip", "ibv_devinfo", "ib_send_lat"):
        if shutil.which(program) is None:
            skip(f"needs {program}")
    if run("unshare", "--mount", "--pid", "--net", "--fork", "true", check=False)[0] != 0:
        skip("this machine does not allow namespaces")
    if os.environ.get("WEFT_IN_CONTAINER_TEST") != "1":
        # /run is the test's own, and all that it starts ends with it.
        os.environ["WEFT_IN_CONTAINER_TEST"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                              "--mount-proc", "--propagation", "private", "sh", "-c",
                              'mount -t tmpfs none /run && exec "$0" "$@"', sys.executable, "-B",
                              __file__, weft, kind])
    with tempfile.TemporaryDirectory(prefix="weft-containers-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        {"users": users, "restart": restart, "cdi": cdi, "escape": escape, "podman": podman,
         "cost": cost}[kind](os.path.abspath(weft), folder)


if sys.argv[1] == "mapped":
    mapped(MAPPED, sys.argv[2:])
main(*sys.argv[1:])
