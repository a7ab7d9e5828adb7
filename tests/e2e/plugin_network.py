#!/usr/bin/env python3
# Owns what the device plugin makes of a network that is not there, or not any more: which devices
# the kubelet is told of, and what the plugin's log says of it.
"""usage: plugin_network.py WEFT fake PLUGIN KUBELET

Needs no containers and no rights."""

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
        """What it has said of the network."""
        lines = [line.removeprefix(NAME) for line in self.log.read_text().splitlines()]
        return [line for line in lines if not line.startswith("registered ")]

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
            unnamed.end()
            named.end()
        finally:
            unnamed.kill()
    finally:
        named.kill()
    labs.run("down", start="weft")


def fake(weft, folder, *programs):
    labs = lab.Labs(weft, folder, "")
    try:
        waits(labs, Path(folder), programs)
        labs.nothing_is_left()
    finally:
        labs.end_processes()  # a test that fails leaves its weftd


if __name__ == "__main__":
    lab.main({"fake": fake}, *sys.argv[1:])
