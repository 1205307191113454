# SPDX-License-Identifier: Apache-2.0
"""A script that knows no launcher: it makes a process group, and fails unless the ranks form one world.

checks.py                     by env://; --local_rank is taken as launchers pass it
checks.py --init method       by a file, in the two ways that PyTorch takes it
checks.py --init file
checks.py --spawn RANKS       one task on each node, which starts that many ranks itself

It prints one line for each rank.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def all_reduce(rank, world):
    """Sums that are exact, in integers and in floats. Returns the sum of the ranks' numbers."""
    numbers = torch.arange(1000, dtype=torch.int64) * (rank + 1)
    dist.all_reduce(numbers)
    factor = world * (world + 1) // 2
    assert torch.equal(numbers, torch.arange(1000, dtype=torch.int64) * factor), numbers
    floats = torch.full((1000,), float(rank + 1))
    dist.all_reduce(floats)
    assert torch.equal(floats, torch.full((1000,), float(factor))), floats
    return int(numbers[1])


def model_step(rank, world):
    """One step of a model: weights become rank 0's, the gradient is the mean of all ranks'."""
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
    """The ranks' parts of a data set are equally long and together they are all of it."""
    samples = DistributedSampler(range(101), seed=7)
    samples.set_epoch(3)
    assert (samples.rank, samples.num_replicas) == (rank, world)
    mine = torch.tensor(list(samples))
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    assert sorted(set(torch.cat(parts).tolist())) == list(range(101)), parts


def run(label=""):
    rank, world = dist.get_rank(), dist.get_world_size()
    total = all_reduce(rank, world)
    model_step(rank, world)
    sampler(rank, world)
    node = os.environ["SLURMD_NODENAME"]
    dist.barrier()
    # One write, so that lines of ranks that share a pipe stay whole.
    line = f"rank {rank} of {world} on {node}: sum {total}{label}\n"
    os.write(1, line.encode())
    dist.destroy_process_group()


def spawned(local_rank, per_node):
    dist.init_process_group(
        "gloo",
        init_method=os.environ["DDP_INIT_FILE"],
        rank=int(os.environ["NODE_RANK"]) * per_node + local_rank,
        world_size=int(os.environ["GROUP_WORLD_SIZE"]) * per_node,
    )
    run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    parser.add_argument("--init", choices=("env", "method", "file"), default="env")
    parser.add_argument("--spawn", type=int)
    args = parser.parse_args()
    label = ""
    if args.spawn:
        mp.spawn(spawned, args=(args.spawn,), nprocs=args.spawn)
        return
    if args.init == "env":
        dist.init_process_group("gloo")
        label = f", local rank {os.environ['LOCAL_RANK']}"
    elif args.init == "method":
        dist.init_process_group("gloo", init_method=os.environ["DDP_INIT_METHOD"])
    else:
        dist.init_process_group("gloo", init_method=os.environ["DDP_INIT_FILE"],
                                rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))
    if args.local_rank is not None:
        label += f", argument {args.local_rank}"
    run(label)


if __name__ == "__main__":
    main()
