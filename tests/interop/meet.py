# SPDX-License-Identifier: Apache-2.0
"""One of several steps that run at the same time: meet.py DIR VALUE NAME OTHER...

Rank 0 creates DIR/NAME when its world is complete, and waits for the files of all OTHERs. Then
all ranks sum values that differ between steps, many times, so that a message of another step is detected.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

DEADLINE = 300  # seconds; on a busy host, one world may import PyTorch minutes before another one


def arrive(directory, name, others):
    open(os.path.join(directory, name), "w").close()
    end = time.monotonic() + DEADLINE
    for other in others:
        while not os.path.exists(os.path.join(directory, other)):
            if time.monotonic() > end:
                sys.exit(f"{other} did not arrive in {DEADLINE} s")
            time.sleep(0.02)


def main():
    directory, value, name, *others = sys.argv[1:]
    value = int(value)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        arrive(directory, name, others)
    dist.barrier()
    for i in range(100):
        numbers = torch.full((64,), value + i + rank, dtype=torch.int64)
        dist.all_reduce(numbers)
        wanted = world * (value + i) + world * (world - 1) // 2
        assert torch.equal(numbers, torch.full((64,), wanted)), (name, i, numbers)
    dist.barrier()
    if rank == 0:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        os.write(1, f"{name} world {world} at {where}\n".encode())
    # PyTorch 2.6 may hang if all ranks leave gloo right after a barrier.
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
