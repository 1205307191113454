#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training in PyTorch, with nothing specific to Slurm but slurm_ddp.Stop.

`srun --ddp`, or torchrun, sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, which
PyTorch's default init_method "env://" reads.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

try:
    from slurm_ddp import Stop
except ImportError:  # without slurm-ddp's wheel, a signal ends the training at once

    def Stop():
        return lambda: False


INPUTS, CLASSES = 20, 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per step and rank [32]")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument(
        "--backend",
        default="nccl" if torch.cuda.is_available() else "gloo",
        help="gloo if ranks share a GPU, which NCCL does not support",
    )
    parser.add_argument("--checkpoint", metavar="FILE", default="torch-ddp.pt")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue from the checkpoint if it exists, as ddp-run needs it; see elastic.job",
    )
    args = parser.parse_args()
    if os.path.exists(args.checkpoint) and not os.path.isfile(args.checkpoint):
        parser.error(f"--checkpoint {args.checkpoint} is not a file")
    return args


def synthetic(count, seed):
    """Random points, classified by a fixed random matrix; the same on every rank."""
    teacher = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(0))
    points = torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points @ teacher).argmax(1))


def train(model, loader, optimizer, device):
    """Train for one epoch. Returns the mean loss of this rank's batches."""
    model.train()
    total = 0.0
    for points, classes in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points.to(device)), classes.to(device))
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, dataset, device):
    """Evaluate every sample once: each rank counts its part, and the counts are summed."""
    model.eval()
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    count = torch.zeros(2, device=device)
    for points, classes in DataLoader(part, batch_size=256):
        right = model(points.to(device)).argmax(1) == classes.to(device)
        count += torch.tensor([right.sum().item(), len(classes)], device=device)
    dist.all_reduce(count)
    return (count[0] / count[1]).item()


def save(epoch, model, optimizer, path):
    """Replace the checkpoint atomically: a reader finds the old file or the new one. A symbolic link is kept."""
    path = os.path.realpath(path)
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{path}.tmp{os.getpid()}")
    os.replace(f"{path}.tmp{os.getpid()}", path)


def resume(model, optimizer, path):
    """Load the checkpoint on rank 0 only, because other nodes may still see an older file. Returns the next epoch."""
    state = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        state = [torch.load(path, map_location="cpu")]
    dist.broadcast_object_list(state)
    if state[0] is None:
        return 0
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epoch"] + 1


def fit(args, device):
    """Train for all epochs, with evaluation and a checkpoint after each."""
    rank = dist.get_rank()
    stop = Stop()  # on SIGTERM, SIGUSR1 and before the time limit, end after the epoch; for long epochs see doc/restarts.md

    dataset = synthetic(4096, seed=1)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, CLASSES)).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr, momentum=0.9)

    first = resume(model, optimizer, args.checkpoint) if args.resume else 0

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)  # shuffle differently in every epoch
        loss = train(ddp, loader, optimizer, device)
        accuracy = evaluate(model, synthetic(1000, seed=2), device)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %")
            save(epoch, model, optimizer, args.checkpoint)
        if stop():
            break


def main():
    args = parse_arguments()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)  # without it, all ranks of a node would use GPU 0
    dist.init_process_group(args.backend)

    fit(args, device)  # DDP must end before destroy_process_group(), or PyTorch 1.13 can hang

    ranks = torch.tensor(dist.get_rank(), device=device)
    dist.all_reduce(ranks)
    if dist.get_rank() == 0:
        print(f"ok world={dist.get_world_size()} sum={ranks.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
