# Owns a bare system for tests: this machine's own, or another root file system, below a layer that
# is thrown away, without the tree and what was built in it.
import os
import shutil
import subprocess
import sys
from pathlib import Path

from outcome import skip

PATIENCE = 300
# Below the mounts of namespaces of its own. Network: only loopback. $given: files at /tmp/given.
PROLOGUE = r"""
set -eu
top=$1 project=$2 given=$3 lower=$4
mount -t tmpfs none "$top" && cd "$top" && mkdir upper work root
mount -t overlay overlay -o lowerdir="$lower",upperdir=upper,workdir=work root || exit 77
ip link set lo up || exit 77
mount -t proc proc root/proc; mount --rbind /dev root/dev
for folder in run tmp home; do mount -t tmpfs -o mode=1777 none root/$folder; done
mkdir -p root/tmp/given "root$project"
mount --bind "$given" root/tmp/given; mount -t tmpfs none "root$project"
clean() {
  chroot root env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
"""


def check(condition, what):
    if not condition:
        sys.exit(what)


def run(*words, wanted=0, **options):
    """What it said; another exit code than the wanted one ends the test."""
    done = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL, **options)
    check(done.returncode == wanted, f"{words}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def make_packages(cmake, build, folder):
    """Debian packages of what was built."""
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "file"):
        if not shutil.which(tool):
            skip(f"making packages needs {tool}: ./weft setup package")
    run(Path(cmake).with_name("cpack"), "--config", f"{build}/CPackConfig.cmake", "-B", folder,
        cwd=build, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    return sorted(folder.glob("*.deb"))


def in_layer(script, project, given, folder, lower="/"):
    """Runs a script above `lower`; `clean WORDS` in it runs a program in that system. Returns the
    exit code and the output."""
    if os.geteuid() != 0:
        skip("a bare system needs root: chroot and mounts")
    top = folder / "layer"
    top.mkdir(exist_ok=True)
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc",
         "--propagation", "private", "sh", "-c", PROLOGUE + script, "sh", top, project, given,
         lower],
        text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 77:
        skip(f"no bare system here, which needs overlay mounts: {done.stdout.strip()[-300:]}")
    return done.returncode, done.stdout
