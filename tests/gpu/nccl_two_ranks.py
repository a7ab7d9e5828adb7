#!/usr/bin/env python3
# Owns stock NCCL over our plugin: two ranks on one GPU, as two hosts, through PyTorch.
"""usage: nccl_two_ranks.py WEFT PLUGIN

Needs an NVIDIA GPU and a PyTorch with NCCL; without them exit code 77, with the reason. Exit code 1
if a collective is wrong, or if NCCL did not go through the plugin."""

import os
import subprocess
import sys
import tempfile

SKIP = 77
PATIENCE_S = 300
ELEMENTS = 1 << 18  # 1 MiB of float: the two ranks share the GPU by time slices
WAYS = [("Ring", "Simple"), ("Tree", "Simple"), ("Ring", "LL"), ("Tree", "LL")]

# Each rank; whole numbers, so that every sum is exact.
RANK = f"""
import os, sys
import torch
import torch.distributed as dist
rank = int(sys.argv[1])
os.environ["NCCL_HOSTID"] = f"host{{rank}}"  # no memory to share, and one GPU for both is right
torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
count = {ELEMENTS}
base = torch.arange(count, device="cuda", dtype=torch.float32) % 1000

def check(name, got, wanted):
    assert torch.equal(got, wanted), f"{{name}} is wrong at rank {{rank}}"

for turn in range(3):
    one = base + rank + turn
    both = 2 * base + 1 + 2 * turn
    value = one.clone()
    dist.all_reduce(value)
    check("all_reduce", value, both)
    gathered = [torch.empty_like(one) for _ in range(2)]
    dist.all_gather(gathered, one)
    for other in range(2):
        check("all_gather", gathered[other], base + other + turn)
    part = torch.empty(count // 2, device="cuda")
    dist.reduce_scatter(part, list(one.chunk(2)))
    check("reduce_scatter", part, both.chunk(2)[rank])
    exchanged = torch.empty_like(one)
    dist.all_to_all_single(exchanged, one)
    half = base.chunk(2)[rank]
    check("all_to_all", exchanged, torch.cat([half + turn, half + 1 + turn]))
    if rank == 0:
        dist.send(one, 1)
    else:
        got = torch.empty_like(one)
        dist.recv(got, 0)
        check("recv", got, base + turn)
torch.cuda.synchronize()
dist.destroy_process_group()
print(f"rank {{rank}}: right, NCCL", ".".join(map(str, torch.cuda.nccl.version())), flush=True)
"""


def reason_to_skip():
    try:
        import torch
    except ImportError:
        return "needs PyTorch"
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU that PyTorch can use"
    if not torch.distributed.is_nccl_available():
        return "needs a PyTorch with NCCL"
    return None


def run(weft, plugin, algorithm, protocol):
    environment = dict(os.environ, NCCL_NET_PLUGIN=plugin, NCCL_NET="weft",
                       NCCL_SOCKET_IFNAME="lo", NCCL_DEBUG="INFO", NCCL_MAX_NCHANNELS="2",
                       NCCL_ALGO=f"allreduce:{algorithm.lower()}", NCCL_PROTO=protocol)
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        rank = [sys.executable, "-c", RANK]
        words = [weft, "run", "--device", "none", "--",
                 *rank, "0", meeting, ":", *rank, "1", meeting]
        return subprocess.run(words, env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S)


def main(weft, plugin):
    if reason := reason_to_skip():
        print("skipped:", reason)
        return SKIP
    good = True
    for algorithm, protocol in WAYS:
        done = run(weft, os.path.abspath(plugin), algorithm, protocol)
        text = done.stdout + done.stderr
        used = "NET/weft" in text
        if done.returncode != 0 or not used or text.count(": right, NCCL") != 2:
            good = False
            print(f"{algorithm}, {protocol}: code {done.returncode},",
                  "through the plugin" if used else "NOT through the plugin", "\n" + text[-4000:])
        else:
            print(f"{algorithm}, {protocol}: right")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
