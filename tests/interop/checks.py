# SPDX-License-Identifier: Apache-2.0
"""A PyTorch script without launcher code: it creates a process group and fails unless the ranks form one world.

It uses env://, accepts --local_rank from launchers, and prints one line for each rank.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def all_reduce(rank, world):
    """Checks exact sums of integers and floats. Returns the sum of the ranks' numbers."""
    numbers = torch.arange(1000, dtype=torch.int64) * (rank + 1)
    dist.all_reduce(numbers)
    factor = world * (world + 1) // 2
    assert torch.equal(numbers, torch.arange(1000, dtype=torch.int64) * factor), numbers
    floats = torch.full((1000,), float(rank + 1))
    dist.all_reduce(floats)
    assert torch.equal(floats, torch.full((1000,), float(factor))), floats
    return int(numbers[1])


def model_step(rank, world):
    """Checks one step: all ranks get rank 0's weights, and the gradient is the mean over the ranks."""
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(model.weight, 10.0 + rank)
    ddp = DistributedDataParallel(model)
    assert torch.equal(model.weight, torch.full((1, 3), 10.0)), model.weight
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(torch.full((1, 3), float(rank + 1))).sum().backward()
    mean = torch.full((1, 3), (world + 1) / 2)
    assert torch.allclose(model.weight.grad, mean, rtol=1e-6, atol=0), model.weight.grad
    optimizer.step()
    weights = [torch.empty(1, 3) for _ in range(world)]
    dist.all_gather(weights, model.weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights), weights


def sampler(rank, world):
    """Checks that the ranks' parts of a data set have the same length and together contain every sample."""
    samples = DistributedSampler(range(101), seed=7)
    samples.set_epoch(3)
    assert (samples.rank, samples.num_replicas) == (rank, world)
    mine = torch.tensor(list(samples))
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    assert sorted(set(torch.cat(parts).tolist())) == list(range(101)), parts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    total = all_reduce(rank, world)
    model_step(rank, world)
    sampler(rank, world)
    line = (f"rank {rank} of {world} on {os.environ['SLURMD_NODENAME']}: sum {total}, "
            f"local rank {os.environ['LOCAL_RANK']}")
    if args.local_rank is not None:
        line += f", argument {args.local_rank}"
    dist.barrier()
    # one write, so that lines of several ranks do not mix in a shared pipe
    os.write(1, f"{line}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
