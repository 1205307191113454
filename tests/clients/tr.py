# SPDX-License-Identifier: Apache-2.0
"""A training with DistributedDataParallel over gloo, a DataLoader with a worker process, and a tqdm bar, on CPUs.

If RANK is set, the process group is created with env://. Otherwise the program trains alone, as a program does that
also runs without a launcher. So tests see a world of the wrong size in the last line of each rank:

    TRAINED rank R of W sum S

S is the sum of --value * (rank + 1) over the ranks, from an all-reduce, and is checked. Rank 0 also prints all weights.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--value", type=int, default=1, help="factor of the rank in the sum; shows a mix of two steps")
    parser.add_argument("--checkpoint", metavar="FILE", help="written after each epoch; read at the start if it exists")
    parser.add_argument("--fail", type=int, metavar="RANK", help="in the second epoch, unless resumed from a checkpoint")
    return parser.parse_args()


def print_line(*words):
    """Prints with one write, so that lines of ranks that share a pipe do not mix."""
    os.write(1, (" ".join(words) + "\n").encode())


def checked_sum(value, rank, world):
    total = torch.tensor(value * (rank + 1))
    if dist.is_initialized():
        dist.all_reduce(total)
    expected = value * world * (world + 1) // 2
    assert total == expected, f"rank {rank} of {world}: sum {total} instead of {expected}"
    return total


def main():
    args = parse_arguments()
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

    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
        print_line(f"rank {rank} resumes with epoch {first}")

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in tqdm(loader, f"epoch {epoch}", disable=rank != 0):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
            # Rank 0 has taken part in a step of this epoch, so the checkpoint of the previous epoch is complete.
            if (rank, epoch, first) == (args.fail, 1, 0):
                raise RuntimeError(f"rank {rank} fails in epoch {epoch}")
        if args.checkpoint and rank == 0:
            state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)

    print_line(f"TRAINED rank {rank} of {world} sum {checked_sum(args.value, rank, world)}")
    if rank == 0:
        print_line("weights", *(w.hex() for p in model.parameters() for w in p.flatten().tolist()))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
