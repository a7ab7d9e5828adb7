#!/usr/bin/env python3
# Owns many `weft run` at once on one machine, and what is left of one that was killed. Runs that
# begin together must not get the same block of loopback addresses: then one's client would meet
# another's server.
"""usage: parallel_runs.py WEFT together|killed

Exit code 0, or 77 with the reason if this machine cannot."""

import os
import signal
import subprocess
import sys
import tempfile

from outcome import until

# Beyond what a machine's cores would separate by chance.
RUNS = 32
PATIENCE = 300
PORT = 5000

SERVER = f"""
import socket, sys
listener = socket.create_server((sys.argv[1], {PORT}))
connection, _ = listener.accept()
connection.sendall(b"network of " + sys.argv[2].encode() + b" for " + connection.recv(100))
"""
CLIENT = f"""
import socket, sys
connection = socket.create_connection((sys.argv[1], {PORT}))
connection.sendall(sys.argv[2].encode())
said = connection.recv(100).decode()
assert said == f"network of {{sys.argv[2]}} for {{sys.argv[2]}}", said
print("met", sys.argv[1])
"""


def start_run(weft, number, environment):
    output = tempfile.TemporaryFile("w+")
    words = [weft, "run", "--device", "none", "--no-prefix", "-q", "--",
             sys.executable, "-c", SERVER, "{h1.ip}", str(number), ":",
             sys.executable, "-c", CLIENT, "{h1.ip}", str(number)]
    return subprocess.Popen(words, stdout=output, stderr=output, env=environment), output


def together(weft, environment):
    """Each binds the same port of its h1, all at the same time."""
    runs = [start_run(weft, number, environment) for number in range(RUNS)]
    addresses = []
    for number, (process, output) in enumerate(runs):
        code = process.wait(timeout=PATIENCE)
        output.seek(0)
        text = output.read()
        assert code == 0, f"run {number}: exit code {code}\n{text}"
        addresses += [line.split()[1] for line in text.splitlines() if line.startswith("met ")]
    assert len(addresses) == RUNS, addresses
    print(f"{RUNS} runs, {len(set(addresses))} addresses")


def processes_with(mark):
    # By an environment that only programs of this run have: it is inherited, whatever a program
    # does with sessions and names.
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name != str(os.getpid()):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except OSError:
                pass
    return found


def killed(weft, environment):
    """A run is killed whose programs have started others, in sessions of their own."""
    folder = environment["XDG_RUNTIME_DIR"]
    mark = f"WEFT_SOCKET={folder}/weft-"
    ready = os.path.join(folder, "ready")
    script = f"setsid sleep 600 & sleep 600 & touch {ready}; wait"
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        victim = subprocess.Popen([weft, "run", "--", "sh", "-c", script],
                                  stdout=log, stderr=log, env=environment)
    until(lambda: os.path.exists(ready), "programs", PATIENCE)
    until(lambda: len(processes_with(mark)) >= 3, "children", PATIENCE)
    victim.send_signal(signal.SIGKILL)
    victim.wait(timeout=PATIENCE)
    left = [name for name in os.listdir(folder) if name.startswith("weft-")]
    assert left, "a run has no folder while it runs?"
    # The next one sweeps, and leaves what has nothing to do with it alone.
    bystander = subprocess.Popen(["sleep", "600"], env={
        **environment, "WEFT_SOCKET": f"{folder}/weft-other/attach.sock"})
    try:
        process, output = start_run(weft, 1, environment)
        assert process.wait(timeout=PATIENCE) == 0, (output.seek(0), output.read())
        until(lambda: processes_with(mark) == [bystander.pid], "end of the left-over programs",
              PATIENCE)
        assert bystander.poll() is None
        left = [name for name in os.listdir(folder) if name.startswith("weft-")]
        assert not left, left
    finally:
        bystander.kill()
        bystander.wait()


def main(weft, kind):
    with tempfile.TemporaryDirectory(prefix="weft-parallel-") as folder:
        os.chmod(folder, 0o700)
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder,
                       "WEFT_RUNS": os.path.join(folder, "runs")}
        {"together": together, "killed": killed}[kind](os.path.abspath(weft), environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
