#!/usr/bin/env python3
# Owns stock programs between two networks that udp ports join over a cable between namespaces. What
# counts is that programs notice nothing of the boundary: a program of one network and one of the
# other must get the same results as two of the same. The ports' counters prove that their packets
# did cross it.
"""usage: joined.py WEFT WEFTD PEER COLLECTIVES perftest|libfabric|mpi

PEER and COLLECTIVES are programs of this tree, empty if they were not built.
Exit code 0, or 77 with the reason if this machine cannot."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE = 60


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def run(*words):
    subprocess.run(words, timeout=PATIENCE, check=True)


class Networks:
    """Hosts h1 and h2 (network "one") are here, h3 and h4 ("two") beyond a cable."""

    def __init__(self, weft, weftd, directory):
        self.weft = weft
        self.weftd = weftd
        self.directory = directory
        self.started = []
        self.holder = None

    def up(self):
        self.holder = self.start("unshare", "-n", "sleep", "600")
        own = os.readlink("/proc/self/ns/net")
        self.until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own,
                   "a second namespace")
        self.cable()
        # Where `weft exec` and `weft status` look for networks by name.
        base = os.path.join(self.directory, f"weft-{os.geteuid()}")
        os.makedirs(base, 0o700)
        key = os.path.join(base, "join.key")
        run(self.weft, "up", "--new-join-key", key)
        for name, first, ends, inside in (
                ("one", "1", "10.9.0.1,10.9.0.2", lambda *words: words),
                ("two", "3", "10.9.0.2,10.9.0.1", self.beyond)):
            self.start(*inside(self.weftd, "--dir", os.path.join(base, name), "--hosts", "2",
                               "--first-host", first, "--mtu", "8928", "--port", f"udp:{ends}",
                               "--join-key", key))
            # Its sockets have names before they listen.
            self.until(lambda at=name: self.status(at).returncode == 0, f"weftd '{name}'")

    def start(self, *words, **options):
        self.started.append(subprocess.Popen(words, **options))
        return self.started[-1]

    @staticmethod
    def until(condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited too long for {what}")
            time.sleep(0.01)

    def status(self, name):
        return subprocess.run([self.weft, "status", name, "--json"], capture_output=True,
                              timeout=PATIENCE, check=False)

    def beyond(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *words]

    def cable(self):
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "near", "mtu", "9200", "type", "veth", "peer", "name", "far",
            "mtu", "9200", "netns", str(self.holder.pid))
        run("ip", "addr", "add", "10.9.0.1/24", "dev", "near")
        run("ip", "link", "set", "near", "up")
        run(*self.beyond("ip", "link", "set", "lo", "up"))
        run(*self.beyond("ip", "addr", "add", "10.9.0.2/24", "dev", "far"))
        run(*self.beyond("ip", "link", "set", "far", "up"))

    def on(self, host, *words):
        """The command that runs one on a host, in the namespace of its network."""
        command = [self.weft, "exec", "one" if host in ("h1", "h2") else "two", host, "--", *words]
        return command if host in ("h1", "h2") else self.beyond(*command)

    def pair(self, server, client, environments=({}, {})):
        """Both have to end well; the client tries again until the server listens."""
        here = self.start(*self.on("h1", *server), env={**os.environ, **environments[0]})
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(self.on("h3", *client), timeout=PATIENCE, check=False,
                                  env={**os.environ, **environments[1]})
            if done.returncode == 0 or here.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if done.returncode != 0 or here.wait(PATIENCE) != 0:
            raise RuntimeError(f"{server[0]}: {here.poll()} here, {done.returncode} beyond")

    def expect_frames(self, least):
        for name in ("one", "two"):
            seen = json.loads(self.status(name).stdout)
            port = seen["ports"][0]
            print(name, port, seen["counters"])
            if port["frames_in"] < least or port["frames_out"] < least:
                raise RuntimeError("the packets took another way")

    def end(self):
        for process in reversed(self.started):
            process.terminate()
            process.wait()


def perftest(networks, _peer, _collectives):
    for words in (["ib_send_lat", "-s", "64", "-n", "1000"],
                  ["ib_send_bw", "-s", "8192", "-n", "5000"]):
        words += ["-c", "SRD", "-d", "efa_0", "-x", "0"]
        networks.pair(words, words + ["10.9.0.1"])
    # 1000 round trips, and 5000 messages in one direction with their acknowledgements.
    networks.expect_frames(2000)


def libfabric(networks, peer, _collectives):
    for case in ("message", "rma", "atomics"):
        folder = os.path.join(networks.directory, case)
        os.mkdir(folder)
        ranks = [{"WEFT_CASE_DIR": folder, "WEFT_RANK": rank} for rank in ("0", "1")]
        networks.pair([peer, case], [peer, case], ranks)
    networks.expect_frames(1000)


def mpi(networks, _peer, collectives):
    """Two ranks on each network: the launcher's own line is on this side."""
    # Ranks 0 and 1 on h1 and h2 of one network, 2 and 3 on h3 and h4 of the other.
    one = (f'n=one; test $OMPI_COMM_WORLD_RANK -lt 2 || n=two; exec "{networks.weft}" exec $n '
           f'h$((OMPI_COMM_WORLD_RANK + 1)) -- "{collectives}" --json -e 65536 -n 2')
    done = subprocess.run(
        ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4", "--mca", "pml",
         "cm", "--mca", "mtl", "ofi", "sh", "-c", one],
        env={**os.environ, "FI_PROVIDER": "efa", "OMPI_MCA_orte_tmpdir_base": networks.directory},
        stdout=subprocess.PIPE, text=True, timeout=2 * PATIENCE, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(len(rows), "measurements")
    # Every collective in every size is a row: fewer rows are a program that gave up.
    if done.returncode != 0 or len(rows) < 100 or any(row["wrong"] for row in rows):
        raise RuntimeError(f"mpirun: {done.returncode}\n{done.stdout}")
    networks.expect_frames(1000)


KINDS = {"perftest": perftest, "libfabric": libfabric, "mpi": mpi}


def inside(weft, weftd, peer, collectives, kind):
    directory = tempfile.mkdtemp(prefix="weft-joined-")
    os.environ["XDG_RUNTIME_DIR"] = directory
    networks = Networks(weft, weftd, directory)
    try:
        networks.up()
        KINDS[kind](networks, peer, collectives)
    finally:
        networks.end()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    if len(sys.argv) == 7:
        inside(*sys.argv[1:6])
        return
    peer, collectives, kind = sys.argv[3:6]
    for program in ["unshare", "nsenter", "ip"] + {
            "perftest": ["ib_send_bw"], "mpi": ["mpirun.openmpi"]}.get(kind, []):
        if shutil.which(program) is None:
            skip(f"there is no {program}")
    if (kind == "libfabric" and not peer) or (kind == "mpi" and not collectives):
        skip("this tree was configured without libfabric-dev or libopenmpi-dev")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        skip("this machine gives no network namespace of one's own")
    sys.exit(subprocess.run(["unshare", "-rn", sys.executable, "-B", *sys.argv, "inside"],
                            timeout=4 * PATIENCE, check=False).returncode)


if __name__ == "__main__":
    main()
