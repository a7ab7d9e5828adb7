#!/usr/bin/env python3
# Owns one rank of a PyTorch program on CPUs: collectives and a step of training, every element
# compared.
"""usage: torch_rank.py RANK RANKS FILE

The ranks meet in FILE, which is not there before. Exit code 77: there is no PyTorch with Gloo."""

import sys

try:
    import torch
    from torch import distributed
except ImportError:
    sys.exit(77)

SIZES = [1, 7, 1000, 1 << 18, 1 << 21]
STEPS = 5


def pattern(rank, count):
    return (torch.arange(count, dtype=torch.float64) % 1013) * (rank + 1)


def collectives(rank, ranks):
    for count in SIZES:
        reduced = pattern(rank, count)
        distributed.all_reduce(reduced)
        assert torch.equal(reduced, pattern(0, count) * sum(range(1, ranks + 1))), count
        gathered = [torch.zeros(count, dtype=torch.float64) for _ in range(ranks)]
        distributed.all_gather(gathered, pattern(rank, count))
        assert all(torch.equal(gathered[r], pattern(r, count)) for r in range(ranks)), count
        told = pattern(rank, count)
        distributed.broadcast(told, src=ranks - 1)
        assert torch.equal(told, pattern(ranks - 1, count)), count
        distributed.barrier()


def point_to_point(rank, ranks):
    """Around the ring, in both orders at once."""
    out, got = pattern(rank, 5000), torch.zeros(5000, dtype=torch.float64)
    works = [distributed.isend(out, (rank + 1) % ranks), distributed.irecv(got, (rank - 1) % ranks)]
    for work in works:
        work.wait()
    assert torch.equal(got, pattern((rank - 1) % ranks, 5000))


def training(rank, ranks):
    """Gradients are averaged over the ranks, so the weights stay the same at all of them."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).sum().backward()
        optimizer.step()
    weights = [torch.zeros(64, 64) for _ in range(ranks)]
    distributed.all_gather(weights, model.module.weight.data)
    assert all(torch.equal(weights[0], one) for one in weights)


def main():
    rank, ranks, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank,
                                   world_size=ranks)
    collectives(rank, ranks)
    point_to_point(rank, ranks)
    training(rank, ranks)
    print(f"rank {rank}: all right", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
