#!/usr/bin/env python3
# Owns the networks of several Kubernetes nodes, joined by containers/image/node.sh: a first node
# alone, a second that joins it, and a third whose number lies between theirs and whose packets to
# the second go through the first. There is no cluster: DNS is a file that the test writes, in the
# words of `getent`.
"""usage: nodes.py WEFT NODE_SH

Nodes are addresses of loopback here. Exit code 0, or 77 with the reason if this machine cannot."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from outcome import skip, until

PATIENCE = 60
PROGRAM = ["ib_send_lat", "-c", "SRD", "-x", "0", "-d", "efa_0", "-n", "100", "-s", "64"]


class Node:
    """What the DaemonSet starts on a node."""

    def __init__(self, folder, number, script):
        # Any address 127.x is this machine's: nodes need no namespaces.
        self.address = f"127.0.93.{number}"
        self.host = f"h{number}"
        place = os.path.join(folder, self.host)
        os.mkdir(place, 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": place, "NODE_IP": self.address,
                            "WEFT_JOIN_KEY": f"{folder}/key", "WEFT_JOIN_TURN": "0.2",
                            "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        with open(f"{folder}/{self.host}.log", "w", encoding="utf-8") as log:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(["sh", script, "nodes"], env=self.environment,
                                            stdout=log, stderr=log)

    def weft(self, *words, **options):
        return subprocess.run(["weft", *words], env=self.environment, check=False, text=True,
                              capture_output=True, timeout=PATIENCE, **options)

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)


def latency(server, client, port):
    """perftest from one node to another. Both ends begin again until both succeed: nodes learn of
    each other by and by."""
    words = [*PROGRAM, "-p", str(port)]
    end = time.monotonic() + PATIENCE
    serving, said = None, ""
    log = tempfile.TemporaryFile("w+")
    try:
        while time.monotonic() < end:
            if serving is None or serving.poll() is not None:
                serving = subprocess.Popen(
                    ["weft", "exec", "default", server.host, "--", "timeout", "15", *words],
                    env=server.environment, stdout=log, stderr=log)
            done = client.weft("exec", "default", client.host, "--", "timeout", "10", *words,
                               "127.0.0.1")
            said = done.stdout + done.stderr
            if done.returncode == 0 and serving.wait(timeout=PATIENCE) == 0:
                return
    finally:
        serving.kill()
        serving.wait()
    log.seek(0)
    sys.exit(f"{said}\nserver:\n{log.read()[-3000:]}")


def main(weft, script):
    for program in ("ib_send_lat", "awk", "sort"):
        if shutil.which(program) is None:
            skip(f"needs {program}")
    with tempfile.TemporaryDirectory(prefix="weft-nodes-") as folder:
        os.mkdir(f"{folder}/bin")
        os.symlink(os.path.abspath(weft), f"{folder}/bin/weft")
        # The name of the service, as a file.
        with open(f"{folder}/bin/getent", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncat {folder}/addresses\n")
        os.chmod(f"{folder}/bin/getent", 0o755)
        subprocess.run([weft, "up", "--new-join-key", f"{folder}/key"], check=True)

        def say(*nodes):
            with open(f"{folder}/new", "w", encoding="utf-8") as file:
                file.writelines(f"127.0.93.{node} STREAM nodes\n" for node in nodes)
            os.rename(f"{folder}/new", f"{folder}/addresses")

        say(2)
        nodes = []
        try:
            nodes.append(Node(folder, 2, script))
            until(lambda: nodes[0].weft("status").returncode == 0, "first node")
            say(2, 10)  # 10 comes behind 2
            nodes.append(Node(folder, 10, script))
            until(lambda: nodes[1].weft("status").returncode == 0, "second node")
            latency(nodes[0], nodes[1], 18931)
            say(2, 10, 7)
            nodes.append(Node(folder, 7, script))
            until(lambda: nodes[2].weft("status").returncode == 0, "third node")
            latency(nodes[1], nodes[2], 18932)  # through the first one
            latency(nodes[2], nodes[0], 18933)
        finally:
            for node in nodes:
                node.end()
                with open(f"{folder}/{node.host}.log", encoding="utf-8") as log:
                    print(node.host, log.read(), sep="\n")
        # The folder of joining may stay, and nothing in the others: each node took down what it had
        # made.
        left = [entry for node in nodes
                for entry in os.listdir(node.environment["XDG_RUNTIME_DIR"]) if entry != "join"
                for entry in os.listdir(f"{node.environment['XDG_RUNTIME_DIR']}/{entry}")]
        assert not left, left


if __name__ == "__main__":
    main(*sys.argv[1:])
