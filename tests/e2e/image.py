#!/usr/bin/env python3
# Owns the tool image, and the compose file that starts a network from it.
"""usage: image.py WEFT image|compose

image: makes the image twice, as `./weft build image` does, above a base that is there already,
looks into it, and runs it with podman. compose: starts containers/compose/compose.yaml with it, by
`docker compose` or docker-compose and podman's service, with nodes of Debian's own programs, has
these talk, and takes it down. Needs root. Exit code 0, or 77 with the reason if this machine
cannot."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import lab
from layer import check, make_packages
from outcome import skip, until

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests/compat"))
from userlands import Absent, bare_system, userland  # noqa: E402

# Of what is not Debian's, unpacked.
MOST = 60_000_000
DATE = "1700000000"
ENOUGH = 400
HARD = ["--network=none", "--user=1000:1000", "--cap-drop=all", "--read-only", "--tmpfs=/tmp",
        "--security-opt=no-new-privileges"]
FABRIC = "com.docker.compose.service=fabric"
LATENCY = ["ib_send_lat", "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "200", "-s", "64"]


def make_image(packages, archive):
    done = subprocess.run(
        ["sh", PROJECT / "containers/image/build.sh", packages, archive], text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=ENOUGH,
        env={**os.environ, "WEFT_BASE": str(bare_system("bookworm")), "SOURCE_DATE_EPOCH": DATE})
    check(done.returncode == 0, f"build.sh: exit code {done.returncode}\n{done.stdout}")
    return archive


def packages_of(weft, folder):
    place = folder / "packages"
    make_packages(shutil.which("cmake"), Path(weft).parents[2], place)
    return place


def look_into(archive):
    """The files above Debian's, by their sizes."""
    with tarfile.open(archive) as outer:
        def blob(digest):
            return outer.extractfile("./blobs/sha256/" + digest.removeprefix("sha256:"))
        index = json.load(outer.extractfile("./index.json"))
        manifest = json.load(blob(index["manifests"][0]["digest"]))
        named = ["blobs/" + part["digest"].replace(":", "/")
                 for part in (manifest["config"], *manifest["layers"])]
        listed = json.load(outer.extractfile("./manifest.json"))
        check(listed == [{"Config": named[0], "RepoTags": ["weft:latest"], "Layers": named[1:]}],
              f"docker reads {listed}, others {named}")
        files = {}
        for layer in manifest["layers"][1:]:
            with tarfile.open(fileobj=blob(layer["digest"])) as inner:
                files.update((member.name, member.size) for member in inner if member.isfile())
    return files


def image(weft, folder):
    folder = Path(folder)
    packages = packages_of(weft, folder)
    one, two = (make_image(packages, folder / f"{turn}.tar") for turn in ("one", "two"))
    check(one.read_bytes() == two.read_bytes(), "the image differs when made again")
    files = look_into(one)
    for file in ("bin/weft", "bin/weftd", "bin/weft-device-plugin", "bin/weft-serve",
                 "lib/weft/libweft-preload.so", "share/man/man1/weft.1.gz"):
        check("usr/" + file in files, f"no {file} in the image")
    size = sum(files.values())
    print(f"{size / 1e6:.1f} MB above Debian's base, unpacked; the same bytes when made again")
    check(size <= MOST, f"{size} bytes are more than {MOST}")
    engine = lab.Podman(weft, str(folder))
    engine.podman("load", "--input", str(one))
    check("weft" in engine.podman("run", "--rm", *HARD, "localhost/weft", "--version"), "version")
    said = engine.podman("run", "--rm", *HARD, "localhost/weft", "run", "-n", "2", "--", "sh", "-c",
                         "echo on $WEFT_HOST")
    check("on h1" in said and "on h2" in said, said)


def compose_words():
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) and subprocess.run(
                [*words, "version"], capture_output=True, check=False).returncode == 0:
            return words
    return skip("needs docker's compose plugin, or docker-compose")


class Composed:
    """The compose file, with an engine behind a socket."""

    def __init__(self, folder, socket):
        self.words = [*compose_words(), "--project-name", "weft-test", "--file",
                      str(PROJECT / "containers/compose/compose.yaml")]
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}",
                            "WEFT_IMAGE": "localhost/weft", "NODE_IMAGE": "localhost/node",
                            "WEFT_FOLDER": str(folder)}

    def run(self, *words, wanted=0):
        done = subprocess.run([*self.words, *words], env=self.environment, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=ENOUGH)
        check(wanted is None or done.returncode == wanted,
              f"{words}: exit code {done.returncode}\n{done.stdout}")
        return done.returncode, done.stdout


def look_after(engine, ended):
    """Podman has its health checks run by systemd; in the test's namespaces there is none."""
    while not ended.wait(1):
        for name in engine.podman("ps", "--quiet", "--filter", "label=" + FABRIC).split():
            subprocess.run(["podman", "healthcheck", "run", name], capture_output=True, check=False,
                           timeout=lab.PATIENCE)


def talk(composed):
    """Both ends begin again until both have succeeded: the server may not listen yet."""
    composed.run("exec", "-d", "n1", *LATENCY)
    end = time.monotonic() + lab.PATIENCE
    code, text = 1, ""
    while code != 0 and time.monotonic() < end:
        code, text = composed.run("exec", "-T", "n2", *LATENCY, "n1", wanted=None)
    check(code == 0 and "64      200" in text, text)


def compose(weft, folder):
    folder = Path(folder)
    engine = lab.Podman(weft, str(folder))
    engine.podman("load", "--input", str(make_image(packages_of(weft, folder),
                                                    folder / "image.tar")))
    node = folder / "node.tar"
    subprocess.run(["tar", "-C", userland("bookworm"), "--exclude=./proc/*", "--exclude=./sys/*",
                    "--exclude=./dev/*", "--exclude=./var/cache/*", "-cf", node, "."], check=True)
    engine.podman("import", "--change", "ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin", str(node),
                  "localhost/node")
    socket, fabric = folder / "engine.sock", folder / "fabric"
    fabric.mkdir()
    before = engine.podman("network", "ls")
    with open(folder / "service.log", "w", encoding="utf-8") as log:
        service = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{socket}"],
                                   stdout=log, stderr=log)
    composed = Composed(fabric, socket)
    ended = threading.Event()
    health = threading.Thread(target=look_after, args=(engine, ended))
    health.start()
    try:
        until(socket.exists, "socket of the engine")
        composed.run("up", "--detach", "--no-build")
        ended.set()
        talk(composed)
        composed.run("down", "--timeout", "5")
        check(not engine.podman("ps", "--all", "--quiet", "--external").strip(), "containers")
        check(engine.podman("network", "ls") == before, engine.podman("network", "ls"))
        # Podman leaves the place, below /run, where it had put the container's first program.
        left = [path for path in fabric.rglob("*")
                if not path.is_dir() and path.name != "podman-init"]
        check(not left, f"left in the folder of the network: {left}")
        # The lab's own checks want its networks' folder to be empty, which is another one here.
        until(lambda: not engine.processes(), f"end of {engine.processes()}")
    finally:
        ended.set()
        health.join()
        composed.run("down", "--timeout", "5", wanted=None)  # of a part that fails
        service.terminate()
        service.wait()


def main():
    if not os.environ.get("WEFT_PACKAGE_TESTS"):
        print("it makes Debian packages, which takes minutes: .ci/run packages runs it")
        sys.exit(77)
    for program in ("buildah", "cmake"):
        if not shutil.which(program):
            skip(f"needs {program}: ./weft setup build image")
    if sys.argv[2:] == ["compose"]:
        compose_words()
    try:
        # Now, while there may be a network to fetch them by.
        bare_system("bookworm")
        if sys.argv[2:] == ["compose"]:
            userland("bookworm")
    except Absent as why:
        skip(str(why))
    lab.main({"image": image, "compose": compose}, *sys.argv[1:])


if __name__ == "__main__":
    main()
