# Owns root file systems of Debian's releases, and programs in them as containers run them.
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

RELEASES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
PACKAGES = ["ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "libfabric-bin",
            "ucx-utils", "openmpi-bin", "python3-mpi4py", "iproute2", "mpich"]
USER = 1000
PATIENCE = 120

MAKE_BARE = r"""
set -eu
root=$1 release=$2 mirror=$3
debootstrap --variant=minbase "$release" "$root" ${mirror:+"$mirror"}
for file in /etc/apt/apt.conf.d/99*; do
  [ ! -f "$file" ] || cp "$file" "$root/etc/apt/apt.conf.d/"
done
"""

MAKE_WHOLE = r"""
set -eu
root=$1 bare=$2; shift 2
cp -a --reflink=auto "$bare/." "$root"
cp -L /etc/resolv.conf "$root/etc/"
mount -t proc proc "$root/proc"
chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -ec '
  apt-get update; apt-get install --yes --no-install-recommends "$@"; apt-get clean' sh "$@"
umount "$root/proc"
touch "$root/etc/hosts"
"""

# A container, with what every engine gives it; $weft is mounted at /run/weft.
CONTAINER = r"""
set -eu
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t tmpfs none "$root/run" && mkdir "$root/run/weft" && mount --bind "$weft" "$root/run/weft"
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/run/hosts"
mount --bind "$root/run/hosts" "$root/etc/hosts"
mount -t proc proc "$root/proc"; mount -t sysfs -o ro none "$root/sys"
mount -t tmpfs -o mode=755 none "$root/dev" && mkdir -m 1777 "$root/dev/shm"
for name in null zero urandom; do
  touch "$root/dev/$name"
  mount --bind /dev/$name "$root/dev/$name"
done
exec chroot "$root" setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs \
  --bounding-set=-all --inh-caps=-all "$@"
"""


class Absent(Exception):
    """This machine cannot make that root file system; the text says why."""


def mirror_of_this_machine():
    script = Path(__file__).resolve().parents[2] / "containers/image/debian_mirror.sh"
    return subprocess.run(["sh", script], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "userlands"


def cached(name, what, script, *words):
    """The root file system of that name, which is made if it is missing, or was made otherwise.
    Others who want it meanwhile wait."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return make(cache, name, what, script, words)


def make(cache, name, what, script, words):
    contents = " ".join(map(str, [script, *words]))
    root, stamp = cache / name, cache / f"{name}.whole"
    if stamp.exists() and stamp.read_text() == contents:
        return root
    if not shutil.which("debootstrap"):
        raise Absent("needs debootstrap: ./weft setup image")
    print(f"making {what}; this takes some minutes", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    log = cache / f"{name}.log"
    with log.open("w") as out:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", root,
             *words], stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise Absent(f"cannot make {what}: {last} ({log})")
    stamp.write_text(contents)
    return root


def bare_system(release):
    """What debootstrap calls minimal: no compiler, no Python, nothing of RDMA."""
    return cached(f"{release}-bare", f"a bare {RELEASES[release]}", MAKE_BARE, release,
                  mirror_of_this_machine())


def userland(release):
    """The release with its own RDMA programs."""
    return cached(release, f"the userland of {RELEASES[release]}", MAKE_WHOLE,
                  bare_system(release), *PACKAGES)


def made_userland(release):
    """The same, if it has been made already; None otherwise."""
    cache = cache_folder()
    return cache / release if (cache / f"{release}.whole").exists() else None


def plain(version):
    """Without Debian's part: 1.10.1~rc1+really.1.10.0-1 is 1.10.0, 1.18.1+ds-2 is 1.18.1."""
    return re.sub(r"^.*[+]really[.]?|[+]ds.*$", "", version.split("-")[0])


class Userland:
    """Containers of one release. All are in one network namespace: perftest and mpirun need TCP.
    `environment` is by kind of device and host."""

    def __init__(self, root, share, environment, addresses, folder):
        self.root, self.share, self.environment = root, share, environment
        self.addresses, self.folder = addresses, folder

    def words(self, device, host, *program):
        return ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation",
                "private", "env", f"root={self.root}", f"weft={self.share}", "sh", "-c", CONTAINER,
                "sh", "env", "-i", *self.environment[device][host],
                "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", *program]

    def run(self, device, host, *program):
        """Exit code and output."""
        with tempfile.TemporaryFile("w+") as out:
            try:
                code = subprocess.run(self.words(device, host, *program), stdout=out, stderr=out,
                                      stdin=subprocess.DEVNULL, timeout=PATIENCE,
                                      check=False).returncode
            except subprocess.TimeoutExpired:
                code = 124
            out.seek(0)
            return code, out.read()

    def pair(self, device, server, client, ready=""):
        """A server on h1 and a client on h2: the client's code, and what both said. The client
        begins when the server has said that it is ready, if that is a text, and begins again while
        the server does not listen yet."""
        with (self.folder / "server.log").open("w+") as log:
            serving = subprocess.Popen(self.words(device, "h1", *server), stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL)
            end = time.monotonic() + PATIENCE
            while (ready not in Path(log.name).read_text(errors="replace")
                   and serving.poll() is None and time.monotonic() < end):
                time.sleep(0.1)
            while True:
                code, text = self.run(device, "h2", *client)
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

    def versions(self, packages):
        """The versions of packages that are installed, of those asked for by name."""
        text = subprocess.run(
            ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W", "-f",
             "${Package} ${Version}\n", *packages.values()], text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        found = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
        return {name: plain(found.get(package, "none")) for name, package in packages.items()}
