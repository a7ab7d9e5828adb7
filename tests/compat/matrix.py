#!/usr/bin/env python3
# Owns the matrix of real userlands: releases of Debian, each with its own unmodified RDMA programs.
"""usage: matrix.py WEFT [--write DOCUMENT] [RELEASE...]

Makes a root file system of each release with its own packages (debootstrap, apt; kept in
~/.cache/weft/userlands), and runs them there as containers are run: uid 1000, no capability, no
new privileges, a read-only root, and of weft only the folder of `weft up`. --write puts the table
into a document. Exit code 0, 1 if a cell failed, or 77 with the reason if this machine cannot."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RELEASES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
PACKAGES = ["ibverbs-utils", "ibverbs-providers", "perftest", "libfabric-bin", "openmpi-bin",
            "python3-mpi4py"]
VERSIONS = {"rdma-core": "ibverbs-providers", "perftest": "perftest",
            "libfabric": "libfabric-bin", "Open MPI": "openmpi-bin"}
USER = 1000
PATIENCE = 120
BEGIN, END = "<!-- tests/compat/matrix.py writes from here -->", "<!-- to here -->"

MAKE_ROOT = r"""
set -eu
root=$1 release=$2 mirror=$3; shift 3
debootstrap --variant=minbase "$release" "$root" ${mirror:+"$mirror"}
cp -L /etc/resolv.conf "$root/etc/"
for file in /etc/apt/apt.conf.d/99*; do
  [ ! -f "$file" ] || cp "$file" "$root/etc/apt/apt.conf.d/"
done
mount -t proc proc "$root/proc"
chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -ec '
  apt-get update; apt-get install --yes --no-install-recommends "$@"; apt-get clean' sh "$@"
umount "$root/proc"
mkdir -p "$root/run"
"""

# A container, with what every engine gives it; $weft is mounted at /run/weft.
CONTAINER = r"""
set -eu
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t tmpfs none "$root/run" && mkdir "$root/run/weft" && mount --bind "$weft" "$root/run/weft"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 none "$root/dev" && mkdir -m 1777 "$root/dev/shm"
for name in null zero urandom; do
  touch "$root/dev/$name"
  mount --bind /dev/$name "$root/dev/$name"
done
exec chroot "$root" setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs \
  --bounding-set=-all --inh-caps=-all "$@"
"""

ALL_REDUCE = r"""
import array
from mpi4py import MPI
world = MPI.COMM_WORLD
for length in (1, 1000, 100_000):
    mine = array.array("d", [world.rank * 3.0 + i % 7 for i in range(length)])
    total = array.array("d", bytes(8 * length))
    world.Allreduce([mine, MPI.DOUBLE], [total, MPI.DOUBLE])
    ranks = world.size * (world.size - 1) / 2
    assert all(total[i] == 3.0 * ranks + world.size * (i % 7) for i in range(length)), length
if world.rank == 0:
    print("right on", world.size, "ranks")
"""


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def mirror_of_this_machine():
    script = Path(__file__).resolve().parents[2] / "containers/image/debian_mirror.sh"
    return subprocess.run(["sh", script], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()


def userland(release):
    """The root file system of that release, which is made if it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "userlands"
    root = cache / release
    if (root / ".whole").exists():
        return root
    if not shutil.which("debootstrap"):
        skip("needs debootstrap: ./weft setup image")
    print(f"making the userland of {RELEASES[release]}; this takes some minutes", flush=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    log = cache / f"{release}.log"
    with log.open("w") as out:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", MAKE_ROOT, "sh", root,
             release, mirror_of_this_machine(), *PACKAGES],
            stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        skip(f"no userland of {RELEASES[release]}: {last} ({log})")
    (root / ".whole").touch()
    return root


class Userland:
    """Containers of one release. All are in one network namespace: perftest and mpirun need TCP."""

    def __init__(self, root, share, device, folder):
        self.root, self.share, self.device, self.folder = root, share, device, folder

    def words(self, host, *program):
        environment = [*self.device, f"WEFT_HOST={host}", f"WEFT_DEVICES=/run/weft/efa-{host}",
                       "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp"]
        return ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation",
                "private", "env", f"root={self.root}", f"weft={self.share}", "sh", "-c", CONTAINER,
                "sh", "env", "-i", *environment, *program]

    def run(self, host, *program):
        """Exit code and output."""
        with tempfile.TemporaryFile("w+") as out:
            try:
                code = subprocess.run(self.words(host, *program), stdout=out, stderr=out,
                                      stdin=subprocess.DEVNULL, timeout=PATIENCE,
                                      check=False).returncode
            except subprocess.TimeoutExpired:
                code = 124
            out.seek(0)
            return code, out.read()

    def versions(self):
        text = subprocess.run(
            ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W", "-f",
             "${Package} ${Version}\n", *VERSIONS.values()], text=True, check=True,
            stdout=subprocess.PIPE).stdout
        found = dict(line.split() for line in text.splitlines())
        return {name: found[package].split("-")[0] for name, package in VERSIONS.items()}

    def pair(self, server, client):
        """A server on h1 and a client on h2: the client's code, and what both said. The client
        begins again while the server does not listen yet."""
        with (self.folder / "server.log").open("w+") as log:
            serving = subprocess.Popen(self.words("h1", *server), stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL)
            end = time.monotonic() + PATIENCE
            while True:
                code, text = self.run("h2", *client)
                if code == 0 or serving.poll() is not None or time.monotonic() > end:
                    break
                time.sleep(0.2)
            try:
                served = serving.wait(timeout=PATIENCE if code == 0 else 5)
            except subprocess.TimeoutExpired:
                serving.kill()
                serving.wait()
                served = 124
            log.seek(0)
            return code or served, text + log.read()


def devinfo(land):
    code, text = land.run("h1", "ibv_devinfo", "-d", "efa_0")
    good = code == 0 and "PORT_ACTIVE" in text
    return "yes" if good else f"FAILED {code}", text


def perftest(program):
    def cell(land):
        words = [program, "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "100", "-s", "1024", "-F"]
        code, text = land.pair(words, [*words, "127.0.0.1"])
        if code == 0 and re.search(r"^ *1024 +\d+ ", text, re.M):
            return "yes", text
        # Its own words for what that version does not do over SRD.
        if "SRD connection only possible in" in text:
            return "not offered", text
        # One that was built without the newer calls (ibv_wr_*) posts reads by ibv_post_send(), in
        # which the EFA library of rdma-core takes sends only, whatever the device.
        if "Couldn't post send" in text and re.search(r"ibv_wr\* API\s*: OFF", text):
            return "not offered", text
        return f"FAILED {code}", text
    return cell


def pingpong(endpoint):
    def cell(land):
        words = ["fi_pingpong", "-p", "efa", "-e", endpoint, "-I", "20", "-v"]
        code, text = land.pair(words, [*words, "127.0.0.1"])
        return "yes" if code == 0 and "MB/sec" in text else f"FAILED {code}", text
    return cell


def direct(land):
    code, text = land.run("h1", "fi_info", "-p", "efa")
    if code == 0 and "fabric: efa-direct" in text:
        return "listed", text
    return ("not offered" if code == 0 and "fabric: efa" in text else f"FAILED {code}"), text


def all_reduce(land):
    rank = ("export WEFT_HOST=h$((OMPI_COMM_WORLD_RANK % 2 + 1)); "
            "export WEFT_DEVICES=/run/weft/efa-$WEFT_HOST; exec python3 -c \"$PROGRAM\"")
    code, text = land.run(
        "h1", "env", "PROGRAM=" + ALL_REDUCE, "FI_PROVIDER=efa", "mpirun", "--oversubscribe", "-n",
        "4", "--mca", "pml", "cm", "--mca", "mtl", "ofi", "sh", "-c", rank)
    return "yes" if code == 0 and "right on 4 ranks" in text else f"FAILED {code}", text


CELLS = {"`ibv_devinfo`": devinfo,
         **{f"`{program} -c SRD`": perftest(program)
            for program in ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw",
                            "ib_read_lat", "ib_read_bw")},
         "`fi_pingpong -p efa -e rdm`": pingpong("rdm"),
         "`fi_pingpong -p efa -e dgram`": pingpong("dgram"), "fabric `efa-direct`": direct,
         "Open MPI, all-reduce, checked": all_reduce}


def row_of(weft, release, folder):
    """The name, the versions and the cells of one release."""
    root = userland(release)
    subprocess.run([weft, "up", "default", "--allow-uid", str(USER)], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        cdi = folder / "cdi"
        subprocess.run([weft, "cdi", "--output", cdi, "--device", "efa"], check=True,
                       stdout=subprocess.DEVNULL)
        host = json.loads((cdi / "weft-default-efa.json").read_text())["devices"][0]
        edits = host["containerEdits"]
        device = [one for one in edits["env"] if not re.match("WEFT_(HOST|DEVICES)=", one)]
        land = Userland(root, edits["mounts"][0]["hostPath"], device, folder)
        cells = {}
        for name, cell in CELLS.items():
            cells[name], text = cell(land)
            print(f"{RELEASES[release]}: {name}: {cells[name]}", flush=True)
            if cells[name].startswith("FAILED"):
                print("  " + "\n  ".join(text.strip().splitlines()[-15:]), flush=True)
        return {"": RELEASES[release], **land.versions(), **cells}
    finally:
        subprocess.run([weft, "down", "default"], check=True)


def table(rows):
    lines = ["| " + " | ".join([name, *(row[name] for row in rows)]) + " |" for name in rows[0]]
    return "\n".join([lines[0], "|" + "---|" * (len(rows) + 1), *lines[1:]])


def main(weft, *words):
    words = list(words)
    document = None
    if "--write" in words[:-1]:
        at = words.index("--write")
        document = Path(words[at + 1])
        del words[at:at + 2]
    releases = words or list(RELEASES)
    if set(releases) - set(RELEASES):
        sys.exit(__doc__)
    if os.geteuid() != 0:
        skip("needs root: chroot, mounts and users")
    if os.environ.get("WEFT_IN_MATRIX") != "1":
        for release in releases:
            userland(release)  # with the machine's network
        own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "--propagation", "private"]
        if subprocess.run([*own, "true"], check=False).returncode != 0:
            skip("this machine does not allow namespaces")
        script = 'mount -t tmpfs none /run && ip link set lo up && exec "$0" "$@"'
        os.environ["WEFT_IN_MATRIX"] = "1"
        os.execvp("unshare", [*own, "sh", "-c", script, sys.executable, "-B", __file__, weft,
                              *words, *(["--write", str(document)] if document else [])])
    with tempfile.TemporaryDirectory(prefix="weft-compat-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        rows = [row_of(weft, release, Path(folder)) for release in releases]
    print(table(rows))
    if document:
        text = document.read_text()
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        document.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}")
    cells = [cell for row in rows for cell in row.values()]
    failed = sum(cell.startswith("FAILED") for cell in cells)
    absent = sum(cell == "not offered" for cell in cells)
    good = sum(cell in ("yes", "listed") for cell in cells)
    print(f"{good} passed, {failed} failed, {absent} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
