#!/usr/bin/env python3
# Owns what becomes of a lab in which something breaks in each round. What breaks is drawn by a seed
# that is printed, so that a failure can be repeated.
"""usage: lab_rounds.py WEFT rounds

With podman, as lab.py. WEFT_LAB_ROUNDS and WEFT_LAB_SEED say how many rounds, and which. Exit code
0, or 77 with the reason if this machine cannot."""

import json
import os
import random
import signal
import subprocess
import sys

from lab import HARD, IMAGE, PATIENCE, Podman, main
from outcome import until


class Rounds:
    """A lab without any privilege in which something breaks in each round, while two nodes that
    had no part in it measure the way between them."""

    FILE = f"""name: rounds
topology:
  defaults:
    image: {IMAGE}
    user: "1000:1000"
    memory: 256m
    options: {HARD}
    cmd: [sleep, infinity]
  nodes: {{n1: {{}}, n2: {{}}, n3: {{}}, n4: {{}}}}
"""

    def __init__(self, labs, random):
        self.labs, self.random = labs, random
        # Each measurement has a port of its own: a server that was killed may leave its old one
        # busy.
        self.port = 18600
        self.file = labs.file("rounds.lab.yaml", self.FILE)
        labs.run("up", self.file)

    def survivors(self):
        """n1 and n2, in both directions."""
        for client, server in (("n1", "n2"), ("n2", "n1")):
            self.port += 1
            self.labs.latency(client, server, self.port)

    def node_dies(self):
        self.labs.podman("kill", "--signal", "KILL", "weft-rounds-n3")
        until(lambda: self.labs.status()["nodes"][2]["state"] == "exited", "end of n3")
        self.survivors()

    def weftd_dies(self):
        pid = self.labs.weftd("rounds")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "end of weftd")
        assert not self.labs.status()["whole"]
        self.labs.run("up", self.file)
        self.survivors()

    def weftd_dies_under_a_program(self):
        """What is attached comes back to the next weftd."""
        words = ["ib_send_lat", "-c", "SRD", "-x", "0", "-d", "efa_0", "-p", "18599"]
        with open(os.path.join(self.labs.logs, "n4.log"), "w", encoding="utf-8") as log:
            program = subprocess.Popen(self.labs.words("exec", "n4", "--", *words), stdout=log,
                                       stderr=log, stdin=subprocess.DEVNULL)
        try:
            attached = lambda: self.labs.status()["nodes"][3]["processes"] == 1
            until(attached, "attached program")
            self.weftd_dies()
            until(attached, "program that came back")
        finally:
            self.labs.podman("kill", "--signal", "KILL", "weft-rounds-n4")
            program.wait(timeout=PATIENCE)

    def node_is_paused(self):
        self.labs.podman("pause", "weft-rounds-n3")
        self.survivors()
        self.labs.podman("unpause", "weft-rounds-n3")

    def stranger_comes(self):
        status = lambda: json.loads(self.labs.run("status", "rounds", "--json", start="weft"))
        before = status()["refused"]
        done = subprocess.run(["podman", "exec", "--user", "1001", "weft-rounds-n3", "ibv_devinfo",
                               "-d", "efa_0"], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "does not admit uid 1001" in done.stderr + done.stdout, done
        assert status()["refused"] > before
        with open(status()["directory"] + "/weftd.log", encoding="utf-8") as file:
            assert "1001" in file.read()
        self.survivors()

    def disk_is_full(self):
        """Of the networks' directories: who attaches succeeds or reads why; nobody else is hurt."""
        filler = os.path.join(self.labs.folder, "filler")
        with open(filler, "wb") as file:
            try:
                while True:
                    file.write(b"x" * (1 << 20))
                    file.flush()
            except OSError:
                pass
        try:
            self.survivors()
        finally:
            os.remove(filler)

    def memory_ends(self):
        """A program of n3 takes more than the container may have."""
        hungry = "x=x; for i in 1 2 3 4 5 6 7 8 9 a b c d e f; do x=$x$x$x$x; done"  # 1 GiB
        subprocess.run(self.labs.words("exec", "n3", "--", "sh", "-c", hungry),
                       capture_output=True, check=False, timeout=PATIENCE)
        self.survivors()

    def run(self, count):
        kinds = [self.node_dies, self.weftd_dies, self.weftd_dies_under_a_program,
                 self.node_is_paused, self.stranger_comes, self.disk_is_full, self.memory_ends]
        first = self.random.sample(kinds, len(kinds))  # each once, then whatever comes
        for number in range(count):
            kind = first[number] if number < len(first) else self.random.choice(kinds)
            print(f"round {number + 1}: {kind.__name__}", flush=True)
            kind()
            self.labs.run("up", self.file)  # what has ended starts again
            assert self.labs.status()["whole"]
        self.labs.run("down")
        self.labs.nothing_is_left()


def rounds(weft, folder):
    seed = int(os.environ.get("WEFT_LAB_SEED", "1"))
    print("seed", seed)
    labs = Podman(weft, folder)
    # The networks' directories are on a disk of their own, which is small.
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "none", disk], check=True)
    labs.folder = os.environ["XDG_RUNTIME_DIR"] = disk
    try:
        Rounds(labs, random.Random(seed)).run(int(os.environ.get("WEFT_LAB_ROUNDS", "7")))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)


if __name__ == "__main__":
    main({"rounds": rounds}, *sys.argv[1:])
