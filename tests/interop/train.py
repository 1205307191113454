# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of train.bats: trainings to compare ddp-train with.

train.py data NET DIRECTORY TRAIN TEST        write a data set of so many images
train.py init NET FILE [SHIFT]                initial weights
train.py ulp FILE SEED NEW                    FILE with each weight one ulp up or down
train.py run NET DIRECTORY FILE... [options]  train from each FILE with DDP over gloo
train.py evaluate NET DIRECTORY FILE          load_state_dict(strict=True), and the test set
train.py same ONE OTHER LIMIT                 two files of tensors, within LIMIT
train.py losses LOG; last-epoch LOG; close|spread|band OURS THEIRS LIMIT   see train_losses.py

"run" prints a line for each step of each FILE: which one, step, loss with nine digits.
"""

import argparse
import contextlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import networks
import tensorfile
import train_data
import train_losses


def save(path, model):
    tensorfile.save(path, model.state_dict(), {"format": "pt"})


def init(net, path, shift=0.0):
    """PyTorch's initial weights. With [shift] every second channel after a BatchNorm is mostly positive
    and the others mostly negative, because near 0 rounding errors decide whether a ReLU passes a value."""
    torch.manual_seed(1)
    model = networks.NETWORKS[net](dropout=False)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.bias.data[0::2] += shift
            module.bias.data[1::2] -= shift
    save(path, model)


def load(path, net):
    model = networks.NETWORKS[net](dropout=False)
    model.load_state_dict(tensorfile.load(path)[0], strict=True)
    return model


def ulp(path, seed, new):
    tensors, random = tensorfile.load(path)[0], torch.Generator().manual_seed(seed)
    for name, tensor in tensors.items():
        if "weight" in name or "bias" in name:
            up = torch.rand(tensor.shape, generator=random) < 0.5
            infinity = torch.full_like(tensor, float("inf"))
            tensors[name] = torch.nextafter(tensor, torch.where(up, infinity, -infinity))
    tensorfile.save(new, tensors, {"format": "pt"})


def evaluate(net, directory, path):
    """Prints the loss, the number of correct images, and the number of images."""
    model = load(path, net).eval()
    images, labels = train_data.read(directory, net, "test")
    with torch.no_grad():
        logits = torch.cat([model(train_data.normalised(net, x)) for x in images.split(100)])
    loss = float(F.cross_entropy(logits.double(), labels))
    print(f"{loss:.9g} {int((logits.argmax(1) == labels).sum())} {len(labels)}")


def optimizer_of(args, parameters):
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, args.lr, args.momentum, 0.0, args.decay, args.nesterov)
    if args.optimizer == "adamw":
        return torch.optim.AdamW(parameters, args.lr, weight_decay=args.decay)
    return torch.optim.Adadelta(parameters, args.lr, weight_decay=args.decay)


def schedule_of(args, optimizer):
    if args.schedule == "step":
        return torch.optim.lr_scheduler.StepLR(optimizer, args.step_size, args.gamma)
    if args.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)


def batches(args, samples, ranks):
    """Yields the indices of all steps, epoch by epoch, for the [ranks] that this process replaces."""
    samplers = [DistributedSampler(range(samples), args.ranks, rank, seed=args.seed)
                for rank in ranks]
    epoch = 0
    while True:
        for sampler in samplers:
            sampler.set_epoch(epoch)
        orders = [list(sampler) for sampler in samplers]
        size = args.batch
        yield [sum((order[i:i + size] for order in orders), [])
               for i in range(0, len(orders[0]), size)]
        epoch += 1


def step(args, model, optimizer, images, labels):
    """Runs one step of this process. Returns the sum of its losses, and its number of samples."""
    optimizer.zero_grad()
    context = torch.autocast("cpu", dtype=torch.bfloat16) if args.bf16 else contextlib.nullcontext()
    with context:
        logits = model(train_data.normalised(args.net, images))
    loss = F.cross_entropy(logits.float(), labels, label_smoothing=args.smoothing)
    loss.backward()
    if args.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    return torch.tensor([loss.item() * len(labels), len(labels)], dtype=torch.float64)


def train(args, number, rank):
    """Trains from the weights of file [number]. The first process prints a line for each step."""
    images, labels = train_data.read(args.directory, args.net, "train")
    whole = model = load(args.files[number], args.net)
    if not args.whole:
        model = DistributedDataParallel(model)
    optimizer = optimizer_of(args, model.parameters())
    schedule = schedule_of(args, optimizer)
    done = 0
    for epoch in batches(args, len(images), range(args.ranks) if args.whole else [rank]):
        for indices in epoch:
            sums = step(args, model, optimizer, images[indices], labels[indices])
            if not args.whole:
                dist.all_reduce(sums)
            done += 1
            if rank == 0:
                print(number, done, f"{float(sums[0] / sums[1]):.9g}", flush=True)
            if done == args.steps:
                if args.save and rank == 0:
                    save(args.save, whole)
                return
        schedule.step()


def work(rank, args, meeting):
    torch.set_num_threads(1)
    if not args.whole:
        dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=args.ranks)
    for number in range(len(args.files)):
        train(args, number, rank)
    if not args.whole:
        # A rank may abort if it ends while the other rank uses the connection, or while gloo's
        # threads run.
        dist.barrier()
        dist.destroy_process_group()


def run(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("net", choices=("mnist", "cifar"))
    parser.add_argument("directory")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--whole", action="store_true",
                        help="one process without DDP, whose batch is that of all ranks")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="of each rank")
    parser.add_argument("--optimizer", choices=("sgd", "adamw", "adadelta"), default="adadelta")
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--decay", type=float, default=0.0)
    parser.add_argument("--schedule", choices=("constant", "step", "cosine"), default="step")
    parser.add_argument("--step-size", type=int, default=1)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--epochs", type=int, default=14, help="of the cosine schedule")
    parser.add_argument("--smoothing", type=float, default=0.0)
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--save")
    args = parser.parse_args(words)
    if args.whole:
        work(0, args, None)
        return
    with tempfile.TemporaryDirectory(prefix="ddp-") as directory:
        # fork before the first computation, so that ranks need not import PyTorch again
        mp.start_processes(work, (args, f"{directory}/meeting"), args.ranks, start_method="fork")


def same(one, other, limit):
    """Checks that the files have the same tensors, each with a relative norm of the difference below [limit]."""
    (first, _), (second, _) = map(tensorfile.load, (one, other))
    assert first.keys() == second.keys(), first.keys() ^ second.keys()
    worst = (0.0, "none")
    for name, tensor in second.items():
        assert first[name].dtype == tensor.dtype and first[name].shape == tensor.shape, name
        error = (first[name].double() - tensor.double()).norm() / tensor.double().norm()
        worst = max(worst, (float(error), name))
    print(f"{len(first)} tensors, apart {worst[0]:.1e} in {worst[1]}")
    if not worst[0] <= float(limit):
        sys.exit(f"more than {limit}")


def data(net, directory, train, test):
    train_data.write(directory, net, int(train), int(test), 1)


COMMANDS = {
    "data": data,
    "init": lambda net, path, shift=0: init(net, path, float(shift)),
    "ulp": lambda path, seed, new: ulp(path, int(seed), new),
    "run": lambda *words: run(words),
    "evaluate": evaluate,
    "same": same,
    "losses": train_losses.of_log,
    "last-epoch": train_losses.last_epoch,
    "close": train_losses.close,
    "spread": train_losses.spread,
    "band": train_losses.band,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
