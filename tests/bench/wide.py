# SPDX-License-Identifier: Apache-2.0
"""wide.py RANK SIZE FILE BYTES COUNT...: like "column time", with gloo of PyTorch."""
import sys
import time

import torch
import torch.distributed as dist

rank, size = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
numbers = [int(word) for word in sys.argv[4:]]
for nbytes, count in zip(numbers[::2], numbers[1::2]):
    data = torch.zeros(nbytes // 4)
    for i in range(-2, count):
        start = time.perf_counter()
        dist.all_reduce(data)
        if i >= 0 and rank == 0:
            print(f"{nbytes} {(time.perf_counter() - start) * 1e6:.2f}", flush=True)
dist.barrier()
