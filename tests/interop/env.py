# SPDX-License-Identifier: Apache-2.0
"""A script that knows no launcher: init_method env://, and --local_rank as launchers pass it."""

import argparse
import os

import torch.distributed as dist

import checks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    label = f", local rank {os.environ['LOCAL_RANK']}"
    if args.local_rank is not None:
        label += f", argument {args.local_rank}"
    checks.run(label)


if __name__ == "__main__":
    main()
