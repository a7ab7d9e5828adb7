#!/usr/bin/env python3
# Owns the storm of reliable connections: what happens to hosts, links and weftd while soft-RoCE
# programs talk. What is drawn follows from a seed that is printed; when it happens to the programs
# does not, because they run in real time.
"""usage: rc_storm.py WEFT WEFTD WEFT_RC_STORM [ROUNDS [SEED]]

Four peers on two hosts talk to a target on a third. In each round, by lot, a peer is killed and
started again, or stopped for a while, a host's link goes down, or weftd is killed and started
again. The programs look at everything that they are told; here it is seen that nobody stays behind,
that all who live go on in the end, and that weftd keeps nothing of those who died."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEERS = 4
PATIENCE = 60
NETWORK = "storm"


class Storm:
    def __init__(self, weft, weftd, program, seed, place):
        self.weft, self.weftd, self.program = weft, weftd, program
        self.directory = place / f"weft-{os.getuid()}" / NETWORK
        self.directory.parent.mkdir(mode=0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(place)}
        self.random = random.Random(seed)
        self.log = (place / "log").open("w+")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.daemon = None
        self.start_weftd()
        # Before anybody came: to this it has to return in the end.
        self.held = self.holds()
        self.target = self.start("h1", "target")
        self.await_listener()
        self.peers = [self.start(self.host(i), "peer") for i in range(PEERS)]
        self.happened = {}

    @staticmethod
    def host(peer):
        return f"h{2 + peer % 2}"

    def start(self, host, role):
        return subprocess.Popen(
            [self.weft, "exec", NETWORK, host, "--device", "rxe", "--", self.program, role,
             str(self.port)], env=self.environment, stdout=self.log, stderr=self.log)

    @staticmethod
    def wait_until(condition, otherwise):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, otherwise
            time.sleep(0.02)

    def start_weftd(self):
        self.daemon = subprocess.Popen(
            [self.weftd, "--dir", self.directory, "--hosts", "3"], stdout=self.log, stderr=self.log)
        self.wait_until(lambda: self.status() is not None, "weftd does not answer")

    def status(self):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(self.directory / "control.sock"))
                connection.sendall(b'{"v":1,"cmd":"status"}\n')
                line = b""
                while not line.endswith(b"\n"):
                    piece = connection.recv(1 << 16)
                    if not piece:
                        return None
                    line += piece
            return json.loads(line)["status"]
        except OSError:
            return None

    def holds(self):
        """weftd's descriptors, and processes on its NICs."""
        status = self.status()
        return (len(os.listdir(f"/proc/{self.daemon.pid}/fd")),
                sum(len(nic["processes"]) for nic in status["nics"]))

    def await_listener(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.target.poll() is None:
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                _, local, _, state = line.split()[:4]
                # 0A: it listens (TCP_LISTEN). Asked of the kernel, for a connection as a question
                # would be taken for a peer's.
                if state == "0A" and int(local.rsplit(":", 1)[1], 16) == self.port:
                    return
            time.sleep(0.02)
        raise AssertionError("the target does not listen")

    def await_peers(self):
        self.wait_until(lambda: self.holds()[1] == self.held[1] + 1 + PEERS, "a peer does not join")

    # --- What may happen.

    def kill(self):
        peer = self.random.randrange(PEERS)
        self.peers[peer].kill()
        self.peers[peer].wait()
        self.peers[peer] = self.start(self.host(peer), "peer")

    def stop(self, seconds):
        peer = self.random.choice(self.peers)
        peer.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        peer.send_signal(signal.SIGCONT)

    def stop_for_a_moment(self):
        self.stop(0.03)

    def stop_for_longer_than_the_target_waits(self):
        self.stop(0.6)

    def cut(self, milliseconds):
        host = self.random.choice(("h1", "h2", "h3"))
        subprocess.run([self.weft, "fault", NETWORK,
                        f"link: {host}-fabric, down: true, lasts: {milliseconds}ms"],
                       env=self.environment, stdout=self.log, stderr=self.log, check=True)
        time.sleep(milliseconds / 1000)

    def cut_for_a_moment(self):
        self.cut(50)

    def cut_for_longer_than_anybody_waits(self):
        self.cut(600)

    def kill_weftd(self):
        self.await_peers()  # one that only begins would find no weftd, and say so
        self.daemon.kill()
        self.daemon.wait()
        self.start_weftd()

    def run(self, rounds):
        # Deaths of peers three times as often as anything else.
        everything = (self.kill, self.kill, self.kill, self.stop_for_a_moment,
                      self.stop_for_longer_than_the_target_waits, self.cut_for_a_moment,
                      self.cut_for_longer_than_anybody_waits, self.kill_weftd)
        for _ in range(rounds):
            what = self.random.choice(everything)
            self.happened[what.__name__] = self.happened.get(what.__name__, 0) + 1
            what()
            time.sleep(self.random.uniform(0.02, 0.1))
            for program in (self.target, *self.peers):
                assert program.poll() is None, "a program has ended"
        self.await_peers()  # one that only begins does not know yet how to end well
        # Each goes on for a while, on a connection that works, and then ends well.
        self.end(self.peers, "a peer")
        self.end([self.target], "the target")
        self.wait_until(lambda: self.holds() == self.held, "weftd keeps what it had for the dead")

    @staticmethod
    def end(programs, name):
        for program in programs:
            program.send_signal(signal.SIGTERM)
        for program in programs:
            assert program.wait(PATIENCE) == 0, f"{name} ended with {program.returncode}"

    def close(self):
        for process in (*getattr(self, "peers", ()), getattr(self, "target", None), self.daemon):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def main(weft, weftd, program, rounds="100", seed=None):
    if not program:
        print("skipped: this tree was configured without libibverbs-dev")
        return 77
    seed = int(seed or os.environ.get("WEFT_STORM_SEED") or random.randrange(1 << 32))
    place = Path(tempfile.mkdtemp(prefix="weft-rc-storm-"))
    storm = None
    try:
        storm = Storm(weft, weftd, program, seed, place)
        storm.run(int(rounds))
        storm.log.seek(0)
        print(storm.log.read(), end="")
        print("what happened:", storm.happened)
        return 0
    except (AssertionError, subprocess.SubprocessError) as error:
        print(f"FAILED (WEFT_STORM_SEED={seed}): {error}")
        print((place / "log").read_text()[-4000:])
        return 1
    finally:
        if storm is not None:
            storm.close()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
