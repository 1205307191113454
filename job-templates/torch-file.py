#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's rendezvous through a file, in the two ways that programs call it.

    srun --ddp python3 torch-file.py method     init_method alone
    srun --ddp python3 torch-file.py file       init_method, rank and world_size

No port is needed. `srun --ddp` gives every step a fresh file on shared storage, and
removes it when the step ends.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def init(form, backend):
    if form == "method":
        # The URL already contains rank and world size.
        dist.init_process_group(backend, init_method=os.environ["DDP_INIT_METHOD"])
    else:
        dist.init_process_group(
            backend,
            init_method=os.environ["DDP_INIT_FILE"],
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )


def train(device):
    """Fit a line in a few steps. Returns this rank's last loss."""
    torch.manual_seed(dist.get_rank())  # different data on every rank
    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        x = torch.randn(32, 1, device=device)
        loss = nn.functional.mse_loss(model(x), 2 * x + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    if sys.argv[1:] not in (["method"], ["file"]):
        sys.exit("usage: torch-file.py method|file")
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "nccl"
        torch.cuda.set_device(device)

    init(sys.argv[1], backend)
    loss = train(device)
    ranks = torch.tensor(dist.get_rank(), device=device)
    dist.all_reduce(ranks)
    if dist.get_rank() == 0:
        print(f"form {sys.argv[1]}: loss {loss:.6f}")
        print(f"ok world={dist.get_world_size()} sum={ranks.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
