# SPDX-License-Identifier: Apache-2.0
"""Ranks that meet in a file, in the two ways that PyTorch takes it: file.py method|file."""

import os
import sys

import torch.distributed as dist

import checks


def main():
    if sys.argv[1] == "method":
        dist.init_process_group("gloo", init_method=os.environ["DDP_INIT_METHOD"])
    else:
        dist.init_process_group(
            "gloo",
            init_method=os.environ["DDP_INIT_FILE"],
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
    checks.run()


if __name__ == "__main__":
    main()
