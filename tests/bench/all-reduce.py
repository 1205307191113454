# SPDX-License-Identifier: Apache-2.0
"""all-reduce.py RANKS FILE NAME fresh|again SIZE...: gloo through PyTorch, for bench-all-reduce"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def batch(vector, calls, fresh):
    took = 0.0
    start = time.perf_counter()
    for _ in range(calls):
        if fresh:
            vector.zero_()
            start = time.perf_counter()
        dist.all_reduce(vector)
        if fresh:
            took += time.perf_counter() - start
    return (took if fresh else time.perf_counter() - start) / calls * 1e6


def run(rank, ranks, path, name, fresh, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=ranks)
    for size in sizes:
        if ranks > 2 and size > 4194304:
            continue
        vector = torch.zeros(size // 4)
        calls = 20 if size <= 262144 else 3 if size <= 4194304 else 1
        times = [batch(vector, calls, fresh) for _ in range(7 if size <= 4194304 else 4)][1:]
        if rank == 0:
            print(ranks, size, name, "%.3f" % statistics.median(times), sep="\t", flush=True)


if __name__ == "__main__":
    ranks, path, name, fresh, *sizes = sys.argv[1:]
    mp.spawn(run, (int(ranks), path, name, fresh == "fresh", [int(s) for s in sizes]), int(ranks))
