#!/usr/bin/env python3
# Owns `weft k8s run` as people use it: manifests in, pods that run, and nothing left of them.
"""usage: k8s_run.py WEFT fake|podman

As lab.py: with an engine that only remembers, or with podman in namespaces of the test's own. Exit
code 0, or 77 with the reason if this machine cannot."""

import os
import re
import signal
import subprocess
import sys

from lab import IMAGE, PATIENCE, Fake, Podman, main
from outcome import until

SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../containers/kubernetes/samples")
EFA = ["--resource", "vpc.amazonaws.com/efa=4"]
POD = """apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {k8s.v1.cni.cncf.io/networks: ib-net}}
spec:
  restartPolicy: POLICY
  containers:
    - name: test
      image: debian
      command: [COMMAND]
      resources: {limits: {openshift.io/mlnxnics: 1}}
---
"""


def pod(name, command, policy="Never"):
    return POD.replace("NAME", name).replace("COMMAND", command).replace("POLICY", policy)


def network_of(labs):
    """Policy and network of the sample, without its job."""
    with open(os.path.join(SAMPLES, "sriov.yaml"), encoding="utf-8") as file:
        return labs.file("network.yaml", file.read().rsplit("---\n", 1)[0])


class Run:
    """A run that goes on while the test looks at it."""

    def __init__(self, labs, *words):
        # pylint: disable=consider-using-with
        self.log = open(os.path.join(labs.folder, "run.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [labs.weft, "k8s", "run", "--engine", labs.engine, *words], stdout=self.log,
            stderr=self.log, stdin=subprocess.DEVNULL)

    def said(self):
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def ends(self, code):
        got = self.process.wait(timeout=PATIENCE)
        assert got == code, f"exit code {got}, not {code}\n{self.said()}"
        return self.said()


# --- With an engine that makes no containers

def pods_end(labs):
    """Each in its way: with success, with a failure, at the second time, and one that stays."""
    files = [network_of(labs), labs.file("pods.yaml", "".join((
        pod("good", "work"), pod("bad", "work"), pod("later", "work", "OnFailure"),
        pod("stays", "work", "Always"))))]
    run = Run(labs, *files)
    names = [f"weft-k8s-{name}" for name in ("bad", "good", "later", "stays")]
    until(lambda: labs.made() == names or run.process.poll() is not None, f"{names}")
    lines = labs.container("weft-k8s-good")
    assert any(line.startswith("network weft-k8s-default.ib-net:ip=192.168.100.") for line in lines
               ), lines
    assert "env WEFT_HOST=good" in lines, lines
    # It is a lab as any other: here its NIC breaks.
    until(lambda: "nodes: 4 of 4" in run.said(), "start")
    labs.run("fault", "k8s", "link: node1_ibs1f0-_fabric, loss: 0.1", start="weft")
    assert [node["node"] for node in labs.status("k8s")["nodes"]] == ["good", "bad", "later",
                                                                     "stays"]
    labs.set_state("weft-k8s-good", "exited 0")
    labs.set_state("weft-k8s-bad", "exited 3")
    labs.set_state("weft-k8s-stays", "exited 1")
    labs.set_state("weft-k8s-later", "exited 2")
    until(lambda: "later has ended with exit code 2: it begins again" in run.said(), "second time")
    until(lambda: "state running 0" in labs.container("weft-k8s-later"), "later again")
    until(lambda: "state running 0" in labs.container("weft-k8s-stays"), "stays again")
    labs.set_state("weft-k8s-later", "exited 0")
    text = run.ends(1)
    for row in ("good +succeeded +0 +0", "bad +failed +3 +0", "later +succeeded +0 +1",
                "stays +running +1"):
        assert re.search(f"^{row}", text, re.M), (row, text)
    for node in ("good", "bad", "later", "stays"):
        assert f"[{node}] said by weft-k8s-{node}" in text, text
    labs.nothing_is_left()


def pods_hang(labs):
    files = [network_of(labs), labs.file("pods.yaml", pod("hangs", "work"))]
    text = Run(labs, "--timeout", "1", *files).ends(1)
    assert "hangs has not ended in 1 seconds" in text, text
    labs.nothing_is_left()
    # What does not start on the cluster does not start here, and is a failure.
    files[1] = labs.file("pods.yaml", pod("good", "work") + pod("lost", "work").replace(
        "ib-net", "ib-nte"))
    run = Run(labs, *files)
    until(lambda: labs.made() == ["weft-k8s-good"], "the one that starts")
    labs.set_state("weft-k8s-good", "exited 0")
    assert "did you mean 'ib-net'" in run.ends(1)
    labs.nothing_is_left()


def runs_break_off(labs):
    """Ctrl-C; and kill -9, after which the next one clears away."""
    files = [network_of(labs), labs.file("pods.yaml", pod("stays", "work", "Always"))]
    run = Run(labs, *files)
    until(lambda: "nodes: 1 of 1" in run.said(), "start")
    run.process.send_signal(signal.SIGINT)
    run.ends(130)
    labs.nothing_is_left()
    run = Run(labs, *files)
    until(lambda: "nodes: 1 of 1" in run.said(), "start")
    until(lambda: labs.status("k8s")["whole"], "whole lab")
    run.process.kill()
    run.process.wait()
    assert labs.made() == ["weft-k8s-stays"], labs.made()
    run = Run(labs, *files)
    until(lambda: "nodes: 1 of 1" in run.said(), "next start")
    assert "cleared away what was left of 'k8s'" in run.said(), run.said()
    run.process.send_signal(signal.SIGTERM)
    run.ends(143)
    labs.nothing_is_left()
    # Left up on request.
    text = Run(labs, "--detach", "--name", "my-pods", *files).ends(0)
    assert "weft lab down my-pods" in text, text
    assert labs.made() == ["weft-my--pods-stays"], labs.made()
    assert labs.status()["whole"]
    labs.run("down", "my-pods")
    labs.nothing_is_left()


def needs_podman(labs):
    """Pods' interfaces have names, which docker does not give."""
    labs.flag("docker")
    files = [network_of(labs), labs.file("pods.yaml", pod("a", "work"))]
    said = Run(labs, *files).ends(1)
    assert "needs podman" in said, said
    labs.nothing_is_left()


def fake(weft, folder):
    for number, part in enumerate((pods_end, pods_hang, runs_break_off, needs_podman)):
        own = os.path.join(folder, str(number))
        os.mkdir(own)
        os.environ["XDG_RUNTIME_DIR"] = own
        labs = Fake(weft, own)
        try:
            part(labs)
        finally:  # a part that fails leaves its weftd
            labs.end_processes()


# --- With podman

def podman(weft, folder):
    labs = Podman(weft, folder)
    image = ["--image", f"perftest={IMAGE}", "--image", f"debian={IMAGE}", "--timeout", "100"]
    # The samples: a latency between two pods that find each other by a service's name, ...
    text = Run(labs, *EFA, *image, os.path.join(SAMPLES, "pod.yaml")).ends(0)
    assert re.search(r"^\[efa-client\] +2 +1000 ", text, re.M), text
    labs.nothing_is_left()
    # ... what a pod sees of four NICs, ...
    text = Run(labs, *EFA, *image, os.path.join(SAMPLES, "job.yaml")).ends(0)
    assert len(re.findall(r"^\[efa-devices-0\] hca_id:\tefa_\d", text, re.M)) == 4, text
    labs.nothing_is_left()
    # ... and 16 pods with a virtual function each.
    text = Run(labs, *image, os.path.join(SAMPLES, "sriov.yaml")).ends(0)
    assert len(re.findall(r"^\[pairs-\d+\] hca_id:\trxe_0", text, re.M)) == 16, text
    labs.nothing_is_left()
    # By the address that whereabouts hands out, over a network of manifests.
    words = "ib_send_lat, -d, rxe_0, -x, 1, -n, 100, -s, 64"
    pods = labs.file("pods.yaml", pod("server", words) +
                     pod("client", words + ", 192.168.100.1", "OnFailure"))
    text = Run(labs, *image, network_of(labs), pods).ends(0)
    assert re.search(r"^\[client\] +64 +100 ", text, re.M), text
    assert re.search(r"^client +succeeded ", text, re.M), text
    labs.nothing_is_left()


if __name__ == "__main__":
    main({"fake": fake, "podman": podman}, *sys.argv[1:])
