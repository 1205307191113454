# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench-gpu: train_gpu.py NET DIRECTORY KIND [options]

KIND is a usual configuration, or one of the fast ones of PyTorch:

    usual    eager, f32, a DataLoader with a worker and pinned memory, as pytorch/examples
    eager    channels_last, bf16 autocast, the set on the GPU
    graphs   the same compiled by torch.compile, whose CUDA graphs hold forward and backward
    whole    the same compiled, and one CUDA graph of the whole step, its optimizer included
    autotune as graphs, in torch.compile's mode max-autotune

Prints a JSON object once the first step is done. Then for each number that it reads it trains so many
seconds and prints another one with the speed. MATRIX in place of NET measures one large product.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import time

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
import networks  # noqa: E402
import train_data  # noqa: E402


def tell(**entry):
    print(json.dumps(entry), flush=True)


def synchronise(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def by_loader(args, images, labels):
    workers = dict(num_workers=1, pin_memory=True) if args.device == "cuda" else {}
    loader = DataLoader(train_data.Images(args.net, images, labels), args.batch, shuffle=True,
                        drop_last=True, **workers)
    while True:
        for x, y in loader:
            yield x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)


def on_device(args, images, labels):
    """Yields batches of a set on the GPU, normalised once. The GPU draws the order and gathers each batch in one call."""
    images = torch.cat([train_data.normalised(args.net, x) for x in images.split(5000)])
    images = images.to(args.device, torch.bfloat16).contiguous(memory_format=torch.channels_last)
    labels = labels.to(args.device)
    while True:
        order = torch.randperm(len(labels), device=args.device)
        for indices in order.split(args.batch):
            if len(indices) == args.batch:
                yield images[indices], labels[indices]


def make_optimizer(args, parameters):
    # a graph that includes the optimizer needs the optimizer's counters on the device
    capturable = {"capturable": True} if args.kind == "whole" else {}
    if args.net == "mnist":
        return torch.optim.Adadelta(parameters, 1.0, **capturable)
    fused = {"fused": True} if args.device == "cuda" and args.kind != "usual" else {}
    return torch.optim.SGD(parameters, 0.1, 0.9, weight_decay=5e-4, nesterov=True, **fused)


class Training:
    """A model with a function step(images, labels) that trains it."""

    def __init__(self, args):
        self.args = args
        torch.manual_seed(1)
        self.model = networks.NETWORKS[args.net]().to(args.device)
        if args.kind != "usual":
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = make_optimizer(args, self.model.parameters())
        self.forward = self.loss
        mode = {"graphs": "reduce-overhead", "autotune": "max-autotune"}.get(args.kind)
        if args.kind in ("graphs", "autotune", "whole"):
            self.forward = torch.compile(self.loss, mode=mode)
        self.graph = None

    def loss(self, images, labels):
        usual = self.args.kind == "usual"
        bf16 = contextlib.nullcontext() if usual else torch.autocast(self.args.device, torch.bfloat16)
        with bf16:
            logits = self.model(images)
        return F.cross_entropy(logits.float(), labels)

    def eager_step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        self.forward(images, labels).backward()
        self.optimizer.step()

    def step(self, images, labels):
        if self.args.kind != "whole":
            self.eager_step(images, labels)
            return
        if self.graph is None:
            self.capture(images, labels)
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()

    def capture(self, images, labels):
        self.images, self.labels = images.clone(), labels.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                self.eager_step(self.images, self.labels)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.forward(self.images, self.labels).backward()
            self.optimizer.step()


def matrix(args):
    """Returns the TFLOP/s of a large product in bf16."""
    n = 8192 if args.device == "cuda" else 512
    a, b = (torch.randn(n, n, device=args.device, dtype=torch.bfloat16) for _ in range(2))
    best, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 1:
        synchronise(args)
        start = time.perf_counter()
        for _ in range(10):
            a @ b
        synchronise(args)
        best = max(best, 10 * 2 * n**3 / (time.perf_counter() - start))
    tell(event="matrix", flops=best)


def train(args):
    training = Training(args)
    images, labels = train_data.read(args.directory, args.net, "train")
    batches = (by_loader if args.kind == "usual" else on_device)(args, images, labels)
    training.step(*next(batches))
    synchronise(args)
    tell(event="step")
    for line in sys.stdin:
        seconds, steps = float(line), 0
        for _ in range(20 if args.device == "cuda" else 1):
            training.step(*next(batches))
        synchronise(args)
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(50 if args.device == "cuda" else 1):
                training.step(*next(batches))
                steps += 1
            synchronise(args)
        tell(event="end", images_per_second=steps * args.batch / (time.perf_counter() - begin))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("net", choices=("mnist", "cifar", "matrix"))
    parser.add_argument("directory")
    parser.add_argument("kind", choices=("usual", "eager", "graphs", "whole", "autotune"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.device == "cuda":
        torch.backends.cudnn.benchmark = args.kind != "usual"
        torch.set_float32_matmul_precision("high" if args.kind != "usual" else "highest")
    matrix(args) if args.net == "matrix" else train(args)


if __name__ == "__main__":
    main()
