# SPDX-License-Identifier: Apache-2.0
"""compare.py SUBJECT: compares libddp's results (program $ORACLE) with PyTorch's.

Exits with 0 if all are equal, and prints the number of comparisons. DDP_SEED selects the inputs.
"""
import math
import os
import random
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

SEED = int(os.environ.get("DDP_SEED") or 20240917)


class Oracle:
    def __init__(self):
        self.process = subprocess.Popen(
            [os.environ["ORACLE"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.asked = 0

    def ask(self, *question):
        words = [w.hex() if isinstance(w, float) else str(int(w)) if isinstance(w, bool)
                 else str(w) for w in question]
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        self.asked += 1
        return self.process.stdout.readline().split()


def same(got, want, what):
    if got != want:
        sys.exit(f"{what}:\nlibddp  {got}\nPyTorch {want}")


def close(got, want, tolerance, what):
    for g, w in zip(got, want):
        if math.isnan(w) and math.isnan(g) or g == w:
            continue
        if not abs(g - w) <= tolerance * max(1.0, abs(w)):
            sys.exit(f"{what}:\nlibddp  {got}\nPyTorch {want}")
    same(len(got), len(want), what)


def reals(words):
    return [float.fromhex(w) for w in words]


def f32(values):
    return torch.tensor(values, dtype=torch.float32)


def sampler_of(n, ranks, rank, seed, epoch, shuffle, drop):
    sampler = DistributedSampler(range(n), ranks, rank, shuffle, seed, drop)
    sampler.set_epoch(epoch)
    return list(sampler)


def compare_sampler(oracle, rng):
    """Compares all indices, also for fewer samples than ranks and seeds of more than 32 bits."""
    cases = [(n, ranks) for n in range(1, 13) for ranks in range(1, 15)]
    cases += [(rng.randint(1, 3000), rng.randint(1, 70)) for _ in range(150)]
    cases += [(60000, 8), (50000, 7), (100003, 64)]
    for n, ranks in cases:
        seed = rng.choice([0, 1, 42, 2**32 - 1, 2**32 + 1, 2**62 + 5, rng.getrandbits(62)])
        epoch = rng.choice([0, 1, 2, rng.randint(3, 10**6)])
        rank = rng.randrange(ranks)
        for shuffle in (True, False):
            for drop in (True, False):
                question = (n, rank, ranks, seed, epoch, shuffle, drop)
                got = [int(w) for w in oracle.ask("sampler", *question)]
                same(got, sampler_of(n, ranks, rank, seed, epoch, shuffle, drop),
                     f"sampler {question}")


def compare_buckets(oracle, rng):
    """_compute_bucket_assignment_by_size over the same tensors."""
    for _ in range(400):
        count = rng.randint(1, 30)
        sizes = [rng.choice([1, 2, 7, rng.randint(1, 400)]) for _ in range(count)]
        first, limit = rng.randint(1, 1500), rng.randint(1, 3000)
        # The list of indices gives the order in which tensors are assigned to buckets.
        lists, _ = dist._compute_bucket_assignment_by_size(
            [torch.empty(s) for s in sizes], [first, limit], [False] * count, list(range(count)))
        want = [None] * count
        for number, members in enumerate(lists):
            for member in members:
                want[member] = number
        got = oracle.ask("buckets", first, limit, count, *[4 * s for s in sizes])
        same([int(w) for w in got], want, f"buckets {first} {limit} {sizes}")
    net = [288, 32, 18432, 64, 1179648, 128, 1280, 10]
    lists, _ = dist._compute_bucket_assignment_by_size(
        [torch.empty(s) for s in reversed(net)], [2**20, 25 * 2**20], [False] * 8, list(range(8)))
    same([[4 * sum(net[7 - i] for i in members) for members in lists]],
         [[4724264, 75264]], "buckets of the MNIST network")


def compare_clip(oracle, rng):
    """clip_grad_norm_, within f32's rounding, because libddp sums in double precision."""
    for _ in range(200):
        sizes = [rng.randint(1, 200) for _ in range(rng.randint(1, 5))]
        factor, limit = 10.0 ** rng.randint(-6, 6), 10.0 ** rng.randint(-3, 3)
        parameters = [torch.nn.Parameter(torch.zeros(s)) for s in sizes]
        for p in parameters:
            p.grad = f32([rng.gauss(0, factor) for _ in range(p.numel())])
        if rng.random() < 0.1:
            parameters[0].grad[0] = rng.choice([math.inf, math.nan])
        before = torch.cat([p.grad for p in parameters]).tolist()
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
        after = torch.cat([p.grad for p in parameters])
        got = reals(oracle.ask("clip", limit, len(before), *before))
        scale = float(after.abs().max()) if bool(torch.isfinite(after).all()) else 1.0
        close(got[:1], [norm], 1e-5, "norm")
        close([g / (scale or 1) for g in got[1:]], (after / (scale or 1)).tolist(), 1e-5, "clip")


def compare_moments(oracle, rng):
    """BatchNorm over the whole batch, and combined moments of its parts."""
    for _ in range(100):
        channels, parts = rng.randint(1, 8), [rng.choice([0, 1, 2, rng.randint(1, 50)])
                                              for _ in range(rng.randint(1, 8))]
        if sum(parts) < 2:
            continue
        shift = rng.choice([0, 1, 100])
        batch = f32([[rng.gauss(shift, 1) for _ in range(channels)] for _ in range(sum(parts))])
        words, begin = [], 0
        for count in parts:
            part = batch[begin:begin + count].double()
            begin += count
            mean = part.mean(0) if count else torch.full((channels,), math.nan)
            m2 = ((part - mean) ** 2).sum(0)
            words += [count] + mean.float().tolist() + m2.float().tolist()
        norm = torch.nn.BatchNorm1d(channels, momentum=None)
        norm(batch)
        got = reals(oracle.ask("moments", len(parts), channels, *words))
        count, mean, m2 = got[0], got[1:1 + channels], got[1 + channels:]
        same(count, float(sum(parts)), "count")
        close(mean, norm.running_mean.tolist(), 1e-5, "mean")
        close([m / (count - 1) for m in m2], norm.running_var.tolist(), 1e-4, "variance")


def main():
    print(f"DDP_SEED={SEED}")
    oracle = Oracle()
    globals()["compare_" + sys.argv[1]](oracle, random.Random(SEED))
    print(f"{oracle.asked} questions, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
