#!/usr/bin/env python3
# Owns the matrix of real userlands: releases of Debian, each with its own unmodified RDMA programs.
"""usage: matrix.py WEFT [--write DOCUMENT] [--only TEXT] [RELEASE...]

Makes a root file system of each release with its own packages (debootstrap, apt; kept in
~/.cache/weft/userlands), and runs them there as containers are run: uid 1000, no capability, no
new privileges, a read-only root, and of weft only the folder of `weft up`. --write puts the tables
into a document; --only runs the rows whose name has that text, and shows what their programs said.
Exit code 0, 1 if a cell failed, or 77 with the reason if this machine cannot."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import efa_cells
import rxe_cells
from userlands import RELEASES, USER, Absent, Userland, userland

VERSIONS = {"rdma-core": "ibverbs-providers", "perftest": "perftest", "libfabric": "libfabric-bin",
            "UCX": "ucx-utils", "Open MPI": "openmpi-bin", "MPICH": "mpich", "glibc": "libc6"}
TABLES = {"EFA (`--device efa`)": efa_cells.CELLS,
          "An ordinary RDMA NIC (`--device rxe`)": rxe_cells.CELLS}
BEGIN, END = "<!-- tests/compat/matrix.py writes from here -->", "<!-- to here -->"


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def devices_of(weft, kind, folder):
    """By host: the environment of its first NIC; and what is mounted at /run/weft."""
    subprocess.run([weft, "cdi", "--output", folder, "--device", kind], check=True,
                   stdout=subprocess.DEVNULL)
    devices = json.loads((folder / f"weft-default-{kind}.json").read_text())["devices"]
    edits = {device["name"]: device["containerEdits"] for device in devices}
    return ({host: edits[host]["env"] for host in ("h1", "h2")},
            edits["h1"]["mounts"][0]["hostPath"])


def show(text, whole):
    lines = text.strip().splitlines()
    print("  " + "\n  ".join(lines if whole else lines[-15:]), flush=True)


def column_of(weft, release, only, folder):
    """The versions, and for each table its cells."""
    root = userland(release)
    subprocess.run([weft, "up", "default", "--allow-uid", str(USER)], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        environment = {}
        for kind in ("efa", "rxe"):
            environment[kind], share = devices_of(weft, kind, folder / "cdi")
        nics = json.loads(subprocess.run([weft, "status", "default", "--json"], check=True,
                                         stdout=subprocess.PIPE).stdout)["nics"]
        addresses = {nic["host"]: nic["address"] for nic in nics}
        land = Userland(root, share, environment, addresses, folder)
        tables = [land.versions(VERSIONS)]
        for cells in TABLES.values():
            told = {}
            for name, cell in cells.items():
                if only not in name:
                    continue
                told[name], text = cell(land)
                print(f"{RELEASES[release]}: {name}: {told[name]}", flush=True)
                if only or told[name].startswith("FAILED"):
                    show(text, only)
            tables.append(told)
        return tables
    finally:
        subprocess.run([weft, "down", "default"], check=True)


def table(title, names, columns):
    lines = [[title, *names], *([row, *(column[row] for column in columns)] for row in columns[0])]
    lines.insert(1, ["---"] * (len(names) + 1))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    given = parser.parse_intermixed_args()
    if set(given.releases) - set(RELEASES):
        parser.error(f"the releases are {sorted(RELEASES)}")
    if given.write and (given.only or given.releases):
        parser.error("--write wants the whole table")
    return given


def main():
    given = arguments()
    releases = given.releases or list(RELEASES)
    if os.geteuid() != 0:
        skip("needs root: chroot, mounts and users")
    if os.environ.get("WEFT_IN_MATRIX") != "1":
        try:
            for release in releases:
                userland(release)  # with the machine's network
        except Absent as why:
            skip(why)
        own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
               "--propagation", "private"]
        if subprocess.run([*own, "true"], check=False).returncode != 0:
            skip("this machine does not allow namespaces")
        script = 'mount -t tmpfs none /run && ip link set lo up && exec "$0" "$@"'
        os.environ["WEFT_IN_MATRIX"] = "1"
        os.execvp("unshare", [*own, "sh", "-c", script, sys.executable, "-B", __file__,
                              *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="weft-compat-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        columns = [column_of(given.weft, release, given.only, Path(folder))
                   for release in releases]
    names = [RELEASES[release] for release in releases]
    text = "\n\n".join(table(title, names, list(parts))
                       for title, parts in zip(["Version", *TABLES], zip(*columns)))
    print(text)
    if given.write:
        before = given.write.read_text()
        head, tail = before.split(BEGIN)[0], before.split(END)[1]
        given.write.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")
    cells = [cell for column in columns for part in column[1:] for cell in part.values()]
    failed = sum(cell.startswith("FAILED") for cell in cells)
    good = sum(cell in ("yes", "listed") for cell in cells)
    print(f"{good} passed, {failed} failed, {len(cells) - good - failed} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
