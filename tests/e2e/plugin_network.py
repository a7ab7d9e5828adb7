#!/usr/bin/env python3
# Owns what the device plugin makes of a network that is not there, or not any more: which devices
# the kubelet is told of, and what the plugin's log says of it.
"""usage: plugin_network.py WEFT fake PLUGIN KUBELET

Needs no containers and no rights."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import lab
from allocate import Kubelet
from outcome import until

CONFIG = """kubelet: {folder}
{host}resources:
  - {{name: rdma/nics, device: rxe}}
"""
NAME = "weft-device-plugin: "


class Plugin:
    """The plugin's process, and the kubelet beside it."""

    def __init__(self, program, kubelet, folder, host=""):
        # pylint: disable=consider-using-with
        folder.mkdir()
        self.kubelet = Kubelet(kubelet, folder)
        # Not in the folder, which a kubelet clears.
        config, self.log = folder.with_suffix(".yaml"), folder.with_suffix(".log")
        config.write_text(CONFIG.format(folder=folder, host=f"host: {host}\n" if host else ""))
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, str(config)], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)

    def lines(self):
        """What it has said of the network. A weftd that is killed may hang up first."""
        lines = [line.removeprefix(NAME) for line in self.log.read_text().splitlines()]
        return [re.sub("^(network 'default'): weftd closed.*;", r"\1 is not up;", line)
                for line in lines if not line.startswith("registered ")]

    def says(self, *wanted):
        """All that it has said up to now, each once."""
        until(lambda: len(self.lines()) >= len(wanted), f"{wanted} in {self.lines()}")
        assert self.lines() == list(wanted), (self.lines(), wanted)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=lab.PATIENCE)
        assert code == 143, (code, self.log.read_text())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.kubelet.kill()


def waits(labs, folder, programs):
    """For a network, and for its host, which need not be named."""
    labs.run("up", "default", "--device", "rxe", start="weft")
    named = Plugin(*programs, folder / "named", "h7")
    try:
        named.says("network 'default' has no host 'h7' with NICs; waiting")
        labs.run("down", start="weft")
        unnamed = Plugin(*programs, folder / "unnamed")
        try:
            for plugin in (named, unnamed):
                until(lambda one=plugin: "network 'default' is not up; waiting" in one.lines(),
                      "network that is not up")
                assert not plugin.kubelet.devices()
            labs.run("up", "default", "--device", "rxe", start="weft")
            unnamed.kubelet.lists(["nic0"])
            unnamed.says("network 'default' is not up; waiting",
                         "network 'default' is up: host 'h1' has 1 NIC")
            unnamed.end()
            named.end()
        finally:
            unnamed.kill()
    finally:
        named.kill()
    labs.run("down", start="weft")


def comes_and_goes(labs, folder, programs):
    """By being killed, stopped, ended, and in another shape: each is said once, and when it is
    over."""
    up = ("up", "default", "--device", "rxe", "--nics", "2")
    every, is_up = ["nic0", "nic1"], "network 'default' is up: host 'h1' has 2 NICs"
    gone = "network 'default' is not up; all devices are unhealthy meanwhile"
    said = []
    plugin = Plugin(*programs, folder / "twice")

    def lost(why):
        plugin.kubelet.lists([], every)
        said.append(why)
        plugin.says(*said)
        plugin.kubelet.refuses("'nic0' is not healthy", "ask", "nic0")

    def found():
        said.append(is_up)
        plugin.kubelet.lists(every)
        plugin.says(*said)
        plugin.kubelet.admit("pod", 1)
        plugin.kubelet.order("remove", "pod")

    try:
        said.append("network 'default' is not up; waiting")
        plugin.says(*said)
        labs.run(*up, start="weft")
        found()
        for _ in range(2):
            pid = labs.weftd("default")
            os.kill(pid, signal.SIGKILL)
            lost(gone)
            labs.run(*up, start="weft")
            found()
        pid = labs.weftd("default")
        os.kill(pid, signal.SIGSTOP)
        lost("network 'default': waiting for weftd: Resource temporarily unavailable; "
             "all devices are unhealthy meanwhile")
        os.kill(pid, signal.SIGCONT)
        found()
        labs.run("down", start="weft")
        lost(gone)
        labs.run(*up, "--first-host", "5", start="weft")
        lost("network 'default' has no host 'h1' with NICs; all devices are unhealthy meanwhile")
        labs.run("down", start="weft")
        lost(gone)
        labs.run(*up, start="weft")
        found()
        # One of its NICs is not there any more.
        labs.run("down", start="weft")
        lost(gone)
        labs.run(*up[:-1], "1", start="weft")
        plugin.kubelet.lists(every[:1], every[1:])
        plugin.says(*said, "network 'default' is up: host 'h1' has 1 NIC")
        plugin.end()
    finally:
        plugin.kill()
    labs.run("down", start="weft")


def fake(weft, folder, *programs):
    labs = lab.Labs(weft, folder, "")
    try:
        waits(labs, Path(folder), programs)
        comes_and_goes(labs, Path(folder), programs)
        labs.nothing_is_left()
    finally:
        labs.end_processes()  # a test that fails leaves its weftd


if __name__ == "__main__":
    lab.main({"fake": fake}, *sys.argv[1:])
