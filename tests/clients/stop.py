# SPDX-License-Identifier: Apache-2.0
"""stop.py [--before SECONDS] LOADER...: two ranks train until slurm_ddp.Stop() ends them, with a batch of each DataLoader per step.

LOADER is the method by which its workers start, with a + if they are persistent, or 0 without workers. Each worker starts and
ends a program. Each rank writes lines to the file rank-RANK: "trains", when all workers have returned a batch; "saved STEP",
from rank 0 after a second; "exits", at its end.
"""
import argparse
import atexit
import os
import subprocess
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import slurm_ddp


class Samples(Dataset):
    ended = False

    def __len__(self):
        return 100000

    def __getitem__(self, index):
        if not self.ended:
            program = subprocess.Popen(["sleep", "1000"])
            program.terminate()
            program.wait()
            self.ended = True
        time.sleep(0.01)
        return index


def loader(name):
    method = name.rstrip("+")
    if method == "0":
        return DataLoader(Samples())
    workers = 1 if method == "spawn" else 2  # a worker that starts by spawn imports PyTorch
    return DataLoader(Samples(), num_workers=workers, multiprocessing_context=method, persistent_workers=name.endswith("+"))


def write_line(*words):
    with open(f"rank-{slurm_ddp.world.rank}", "a") as file:
        print(*words, file=file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=float, default=0)
    parser.add_argument("loader", nargs="+")
    args = parser.parse_args()
    atexit.register(write_line, "exits")
    stop = slurm_ddp.Stop(before=args.before)
    dist.init_process_group("gloo")
    loaders = [loader(name) for name in args.loader]
    batches = [iter(each) for each in loaders]
    for step in range(10000):
        for each in batches:
            next(each)
        dist.all_reduce(torch.ones(1))
        if step == 4:
            write_line("trains")
        if stop():
            if dist.get_rank() == 0:
                time.sleep(1)
            write_line("saved", step + 1, stop.reason)
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
