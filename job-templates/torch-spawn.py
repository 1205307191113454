#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing.spawn under Slurm: one task per node, which starts its own ranks.

    srun -N2 --ntasks-per-node=1 --ddp python3 torch-spawn.py [RANKS-PER-NODE]

By default there is one rank for each GPU of the node, or two ranks if there is none.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


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


def worker(local_rank, per_node, nodes):
    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", local_rank), "nccl"
        torch.cuda.set_device(device)

    # The ranks of a node share the CPUs of its task. With more threads than CPUs they are many times slower.
    torch.set_num_threads(max(1, int(os.environ["OMP_NUM_THREADS"]) // per_node))

    # Slurm starts one task on each node, so this program numbers the ranks of PyTorch.
    dist.init_process_group(
        backend,
        init_method=os.environ["DDP_INIT_FILE"],
        rank=int(os.environ["NODE_RANK"]) * per_node + local_rank,
        world_size=nodes * per_node,
    )
    loss = train(device)
    ranks = torch.tensor(dist.get_rank(), device=device)
    dist.all_reduce(ranks)
    if dist.get_rank() == 0:
        print(f"{nodes} nodes, {per_node} ranks on each, {torch.get_num_threads()} threads in each: loss {loss:.6f}")
        print(f"ok world={dist.get_world_size()} sum={ranks.item()}", flush=True)
    dist.destroy_process_group()


def main():
    if int(os.environ["LOCAL_WORLD_SIZE"]) != 1:
        sys.exit("torch-spawn.py: start one task per node: srun --ntasks-per-node=1")
    per_node = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count() or 2
    nodes = int(os.environ["GROUP_WORLD_SIZE"])
    mp.spawn(worker, args=(per_node, nodes), nprocs=per_node)


if __name__ == "__main__":
    main()
