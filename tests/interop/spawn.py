# SPDX-License-Identifier: Apache-2.0
"""One task on each node, which starts its ranks itself: spawn.py RANKS-PER-NODE."""

import os
import sys

import torch.distributed as dist
import torch.multiprocessing as mp

import checks


def worker(local_rank, per_node):
    dist.init_process_group(
        "gloo",
        init_method=os.environ["DDP_INIT_FILE"],
        rank=int(os.environ["NODE_RANK"]) * per_node + local_rank,
        world_size=int(os.environ["GROUP_WORLD_SIZE"]) * per_node,
    )
    checks.run()


if __name__ == "__main__":
    mp.spawn(worker, args=(int(sys.argv[1]),), nprocs=int(sys.argv[1]))
