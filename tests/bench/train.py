# SPDX-License-Identifier: Apache-2.0
"""One rank of a training in PyTorch, for bench-train: train.py NET DIRECTORY [options]

DDP_INIT_METHOD defines the world; without it this is one process without DDP. Rank 0
prints a JSON object once the first step is done, and one with the speed at the end.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
import networks  # noqa: E402
import train_data  # noqa: E402


def usual(args, images, labels, sampler):
    """Yields batches of a usual DataLoader."""
    loader = DataLoader(train_data.Images(args.net, images, labels), args.batch, sampler=sampler,
                        drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def memory(args, images, labels, sampler):
    """Yields batches of a set in memory, which is normalised once unless [args.bytes]; a batch is one gather."""
    if not args.bytes:
        images = torch.cat([train_data.normalised(args.net, x) for x in images.split(1000)])
    if not args.usual:
        images = images.contiguous(memory_format=torch.channels_last)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for indices in torch.tensor(list(sampler)).split(args.batch):
            if len(indices) == args.batch:
                batch = images[indices]
                yield train_data.normalised(args.net, batch) if args.bytes else batch, labels[indices]
        epoch += 1


def make(args):
    """Returns model, optimizer and batches."""
    torch.manual_seed(1)
    model = networks.NETWORKS[args.net]()
    if not args.usual:
        model = model.to(memory_format=torch.channels_last)
    if dist.is_initialized():
        model = DistributedDataParallel(model, gradient_as_bucket_view=not args.usual)
    if args.net == "mnist":
        optimizer = torch.optim.Adadelta(model.parameters(), 1.0)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4, nesterov=True)
    images, labels = train_data.read(args.directory, args.net, "train")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    sampler = DistributedSampler(range(len(labels)), ranks, rank)
    batches = (usual if args.usual else memory)(args, images, labels, sampler)
    return model, optimizer, batches


def step(args, model, optimizer, batches):
    images, labels = next(batches)
    optimizer.zero_grad(set_to_none=not args.usual)
    context = torch.autocast("cpu", dtype=torch.bfloat16) if args.bf16 else contextlib.nullcontext()
    with context:
        logits = model(images)
    F.cross_entropy(logits.float(), labels).backward()
    optimizer.step()


def steps_for(seconds, one):
    """Returns the number of steps for [seconds] if one takes [one]: the same on all ranks."""
    count = torch.tensor([max(2, int(seconds / one))])
    if dist.is_initialized():
        dist.broadcast(count, 0)
    return int(count)


def tell(rank, **entry):
    if rank == 0:
        print(json.dumps(entry), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("net")
    parser.add_argument("directory")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--usual", action="store_true")
    parser.add_argument("--bytes", action="store_true", help="keep bytes in memory")
    args = parser.parse_args()
    torch.set_num_threads(1)
    method = os.environ.get("DDP_INIT_METHOD")
    if method:
        dist.init_process_group("gloo", init_method=method)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if method else (0, 1)
    work = (args, *make(args))
    step(*work)
    tell(rank, event="step")
    if args.seconds:
        for _ in range(2):
            step(*work)
        begin = time.perf_counter()
        step(*work)
        step(*work)
        count = steps_for(args.seconds, (time.perf_counter() - begin) / 2)
        begin = time.perf_counter()
        for _ in range(count):
            step(*work)
        rate = count * args.batch * ranks / (time.perf_counter() - begin)
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        tell(rank, event="end", images_per_second=rate, resident=resident)
    if method:
        dist.barrier()


if __name__ == "__main__":
    main()
