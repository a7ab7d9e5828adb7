#!/usr/bin/env python3
# Owns what people install: a prefix of `cmake --install`, and Debian packages.
"""usage: packages.py prefix|deb CMAKE BUILD PROJECT

prefix: installs BUILD into a folder and uses it from there, also through a link. deb: makes the
packages, looks into them, installs them into this machine's system and into bare Debian 12 and 13,
uses them there, and removes and purges them. Exit code 0, or 77 with the reason if this machine
cannot, or lacks one of these systems."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from layer import check, in_layer, make_packages, run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
from userlands import RELEASES, Absent, bare_system  # noqa: E402

CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
         "LC_ALL": "C.UTF-8"}
# The programs of these packages need nothing else: one package serves several releases.
COMMON = {"libc6", "libgcc-s1", "libstdc++6", "weft", "weft-preload", "zlib1g"}
EXPECTED = {
    "weft": ["usr/bin/weft", "usr/bin/weftd", "usr/lib/weft/libnccl-net-weft.so",
             "usr/lib/weft/image.sh", "usr/lib/systemd/system/weftd@.service",
             "usr/share/man/man1/weft.1.gz", "usr/share/man/man1/weftd.1.gz",
             "usr/share/bash-completion/completions/weft",
             "usr/share/zsh/vendor-completions/_weft",
             "usr/share/fish/vendor_completions.d/weft.fish", "usr/share/doc/weft/copyright"],
    "weft-preload": ["usr/lib/weft/libweft-preload.so", "usr/share/doc/weft-preload/copyright"],
    "weft-device-plugin": ["usr/bin/weft-device-plugin",
                           "usr/share/man/man1/weft-device-plugin.1.gz",
                           "usr/share/doc/weft-device-plugin/copyright"],
    "weft-dpdk": ["usr/lib/weft/libweft-dpdk.so", "usr/share/doc/weft-dpdk/copyright"],
}
# What apt, dpkg, ldconfig and man-db write of their own accord.
OF_OTHERS = re.compile(r"^(var/(lib/(dpkg|apt|man-db)|cache|log)|etc/ld\.so\.cache|tmp|run|home)\b")


def prefix(cmake, build, _, folder):
    place = folder / "a prefix"
    run(cmake, "--install", build, "--prefix", place)
    (folder / "bin").mkdir()
    link = folder / "bin" / "weft"
    link.symlink_to(place / "bin" / "weft")
    clean = {**CLEAN, "PATH": f"{folder}/bin:{CLEAN['PATH']}", "TMPDIR": str(folder)}
    said = run("weft", "doctor", env=clean, cwd="/")
    check("weftd and the preload library are built" in said, said)
    said = run("weft", "run", "-n", "2", "--", "sh", "-c", "readlink -f ${LD_PRELOAD%%:*}",
               env=clean, cwd="/")
    check(said.count(str(place / "lib/weft/libweft-preload.so")) == 2, said)
    # Moved as a whole, it still works; and it takes no parts from elsewhere.
    shutil.move(place, folder / "elsewhere")
    link.unlink()
    link.symlink_to(folder / "elsewhere" / "bin" / "weft")
    run("weft", "run", "--", "true", env=clean, cwd="/")
    (folder / "elsewhere/bin/weftd").rename(folder / "weftd")
    said = run("weft", "doctor", env=clean, cwd="/", wanted=1)
    check("missing: weftd" in said, f"a weftd from elsewhere?\n{said}")


def fields_of(package):
    text = run("dpkg-deb", "-f", package)
    return dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[\w-]+: ", line))


def look_into(package):
    fields = fields_of(package)
    name = fields["Package"]
    listed = run("dpkg-deb", "-c", package).splitlines()
    files = {line.split(None, 5)[5].removeprefix("./").rstrip("/") for line in listed}
    missing = [file for file in EXPECTED[name] if file not in files]
    check(not missing, f"{name} lacks {missing}")
    foreign = [line for line in listed if line.split()[1] != "root/root"]
    check(not foreign, f"{name} has files of others than root:\n{foreign}")
    needed = {word.split()[0] for word in re.split(r"[,|]", fields.get("Depends", ""))
              if word.strip()}
    if name != "weft-dpdk":
        check(needed <= COMMON, f"{name} needs {needed - COMMON}, which other releases lack")
    return name


def lint(packages):
    if not shutil.which("lintian"):
        print("lintian is not installed: its opinion was not asked (./weft setup ci)")
        return
    said = run("lintian", "--allow-root", "--fail-on", "none", *packages)
    errors = [line for line in said.splitlines() if line.startswith("E:")]
    check(not errors, "lintian:\n" + "\n".join(errors))


# The releases for which packages of Debian 12 are meant.
BARE = ("bookworm", "trixie")
USE = r"""
find upper -mindepth 1 | sort >before
quietly() { "$@" >log 2>&1 || { cat log; exit 1; }; }
install='apt-get install --yes --no-install-recommends --reinstall $(
  ls /tmp/given/weft_*.deb /tmp/given/weft-preload_*.deb /tmp/given/weft-device-plugin_*.deb)'
quietly clean sh -c "$install"
quietly clean sh -c "$install"
clean weft --version
clean weft doctor
clean weft run -n 2 -- sh -c 'echo "on $WEFT_HOST"'
! clean which weft-device-plugin >/dev/null || clean weft-device-plugin --help >/dev/null
! clean which ibv_devices >/dev/null || clean weft run -- ibv_devices
clean weft demo --seconds 2 --out /tmp/demo >/dev/null
clean setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/tmp/user \
  weft demo --seconds 2 --out /tmp/demo-of-user >/dev/null
! clean which systemd-analyze >/dev/null ||
  clean systemd-analyze verify /usr/lib/systemd/system/weftd@.service
clean sh -ec 'export XDG_RUNTIME_DIR=/run
  unit=/usr/lib/systemd/system/weftd@.service
  eval "$(sed -n "s/^ExecStart=//p" $unit | sed s/%i/lab/)"
  weft status lab
  eval "$(sed -n "s/^ExecStop=//p" $unit | sed s/%i/lab/)"'
ours='weft-device-plugin weft weft-preload'
quietly clean dpkg --remove $ours
if clean which weft weft-device-plugin; then echo "removed, and still there"; exit 1; fi
quietly clean dpkg --purge $ours
find upper -mindepth 1 | sort >after
comm -13 before after | sed 's,^upper/,left: ,'
"""


def deb(cmake, build, project, folder):
    packages, again = (make_packages(cmake, build, folder / turn) for turn in ("one", "two"))
    names = [look_into(package) for package in packages]
    check({"weft", "weft-preload"} <= set(names), f"only {names}")
    for one, other in zip(packages, again):
        check(one.read_bytes() == other.read_bytes(), f"{one.name} differs when made again")
    lint(packages)
    use("this machine's system", Path("/"), project, folder)
    absent = []
    for release in BARE:
        try:
            use(f"a bare {RELEASES[release]}", bare_system(release), project, folder)
        except Absent as why:
            absent.append(str(why))
    if absent:
        print("skipped:", *absent)
        sys.exit(77)


def use(name, system, project, folder):
    code, said = in_layer(USE, project, folder / "one", folder, system)
    check(code == 0, f"{name}: exit code {code}:\n{said}")
    for words in ("weftd and the preload library are built", "on h1", "on h2"):
        check(words in said, f"{name}: no '{words}' in\n{said}")
    if (system / "usr/bin/ibv_devices").exists():
        check("efa_0" in said, said)
    left = [line[6:] for line in said.splitlines() if line.startswith("left: ")]
    left = [path for path in left if not OF_OTHERS.match(path) and not (system / path).is_dir()]
    check(not left, f"{name}: left behind: {left}")
    print(f"{name}: installed, used, removed, and nothing is left")


def main(kind, cmake, build, project):
    with tempfile.TemporaryDirectory(prefix="weft-packages-") as folder:
        {"prefix": prefix, "deb": deb}[kind](cmake, Path(build), Path(project), Path(folder))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    if sys.argv[1] == "deb" and not os.environ.get("WEFT_PACKAGE_TESTS"):
        print("it makes Debian packages, which takes minutes: .ci/run packages runs it")
        sys.exit(77)
    main(*sys.argv[1:])
