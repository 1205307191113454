# SPDX-License-Identifier: Apache-2.0
"""A training with DistributedDataParallel over gloo, a DataLoader with a worker process, and a tqdm bar, on CPUs.

If RANK is set, the process group is created with env://. Otherwise the program trains alone, as a program does that
also runs without a launcher. So tests see a world of the wrong size in the last line of each rank:

    TRAINED rank R of W sum S

S is the sum of rank + 1 over the ranks, from an all-reduce, and is checked. Rank 0 also prints all weights.
"""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm


def print_line(*words):
    """Prints with one write, so that lines of ranks that share a pipe do not mix."""
    os.write(1, (" ".join(words) + "\n").encode())


def checked_sum(rank, world):
    total = torch.tensor(rank + 1)
    if dist.is_initialized():
        dist.all_reduce(total)
    assert total == world * (world + 1) // 2, f"rank {rank} of {world}: sum {total}"
    return total


def main():
    rank, world = 0, 1
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    points = torch.randn(64, 4)
    dataset = TensorDataset(points, points.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, world, rank)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=1, persistent_workers=True)
    model = torch.nn.Linear(4, 1)
    ddp = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.5)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in tqdm(loader, f"epoch {epoch}", disable=rank != 0):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()

    print_line(f"TRAINED rank {rank} of {world} sum {checked_sum(rank, world)}")
    if rank == 0:
        print_line("weights", *(w.hex() for p in model.parameters() for w in p.flatten().tolist()))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
