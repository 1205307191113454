# SPDX-License-Identifier: Apache-2.0
"""train-model.py SUBJECT: the networks and optimizers of ddp-train (the program in
$NETWORK), compared with PyTorch's. DDP_SEED selects the inputs."""

import math
import os
import re
import subprocess
import sys

import torch
from torch import optim

import networks
import tensorfile

SEED = int(os.environ.get("DDP_SEED") or 20240917)
# Whether results must be bit-equal. Later versions of PyTorch compute AdamW in another order, and
# processors without AVX2 round more often.
EXACT = torch.__version__.startswith("1.") and re.search(
    r"CPU capability usage: AVX", torch.__config__.show()) is not None
CASES = [("mnist", 10), ("mnist", 3), ("cifar", 10), ("cifar", 100)]


def network(*arguments):
    done = subprocess.run([os.environ["NETWORK"], *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout, done.stderr


def run(*arguments):
    status, out, err = network(*arguments)
    if status != 0:
        sys.exit(f"network {arguments} ended with {status}: {err}")
    return out


def expect(condition, what):
    if not condition:
        sys.exit(what)


def ordered(tensor):
    """Maps floats to integers, so that adjacent floats differ by 1."""
    bits = tensor.contiguous().view(torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & 0x7fffffff), bits)


def agree(got, want, what):
    """Checks that values agree within 2 ulp, or, if roundings are known to differ, within 1e-5 of the largest."""
    ulp = int((ordered(got) - ordered(want)).abs().max())
    relative = float((got - want).abs().max() / want.abs().max())
    print(f"{what}: {ulp} ulp, {relative:.1e}")
    expect(got.shape == want.shape and (ulp <= 2 if EXACT else relative <= 1e-5), what)


def module(name, classes, seed):
    torch.manual_seed(seed)
    return networks.NETWORKS[name](classes)


def compare_init():
    """Within one ulp of the largest possible value, since builds of PyTorch differ by that."""
    for name, classes in CASES:
        # drawing the larger network takes seconds
        seeds = (0, 1, 42, 2**32 + 1, SEED)
        for seed in seeds if name == "mnist" or os.environ.get("DDP_LONG") else seeds[-2:]:
            run("init", name, classes, seed, "init.st")
            got, want = tensorfile.load("init.st")[0], module(name, classes, seed)
            networks.NETWORKS[name](classes).load_state_dict(got, strict=True)
            worst = 0
            for key, value in want.state_dict().items():
                if value.dtype == torch.int64:
                    continue
                ulp = 2.0 ** (math.frexp(float(value.abs().max()))[1] - 24)
                worst = max(worst, float((value - got[key]).abs().max()) / ulp)
            expect(worst <= 1, f"{name} {classes} seed {seed}: {worst} ulp apart")
            print(f"{name} {classes} seed {seed}: {worst:g} ulp")


def compare_copy():
    """Copies a trained model's state from PyTorch into a model and back."""
    for name, classes in CASES:
        state = module(name, classes, SEED).state_dict()
        for key, value in state.items():
            if "running" in key:
                value += torch.rand(value.shape)
        tensorfile.save("state.st", state, {"format": "pt"})
        run("copy", name, classes, "state.st", "copy.st")
        got = tensorfile.load("copy.st")[0]
        expect(got.keys() == state.keys(), f"{name}: names")
        for key, value in state.items():
            expect(torch.equal(got[key], value), f"{name}: {key}")


def compare_refusals():
    """Each error names the file and the tensor."""
    state = module("mnist", 10, SEED).state_dict()
    cases = {
        "missing": {k: v for k, v in state.items() if k != "fc1.bias"},
        "wrapped": {f"module.{k}": v for k, v in state.items()},
        "shape": {**state, "conv2.weight": torch.zeros(64, 32, 9)},
        "transposed": {**state, "fc2.weight": state["fc2.weight"].t()},
        "type": {**state, "fc2.bias": torch.zeros(10, dtype=torch.float64)},
    }
    texts = {
        "missing": "has no tensor fc1.bias",
        "wrapped": "model.module.state_dict()",
        "shape": " has shape [64, 32, 9], but the network needs [64, 32, 3, 3]",
        "transposed": " has shape [128, 10], but the network needs [10, 128]",
        "type": " is F64, not F32",
    }
    for case, tensors in cases.items():
        tensorfile.save(f"{case}.st", tensors, {})
        status, _, err = network("copy", "mnist", 10, f"{case}.st", "out.st")
        expect(status > 64 and f"{case}.st" in err and texts[case] in err, f"{case}: {err}")
        expect(not os.path.exists("out.st"), f"{case}: written all the same")
    # other tensors in the file are ignored
    tensorfile.save("more.st", {**state, "optimizer.0.x": torch.ones(3)}, {})
    run("copy", "mnist", 10, "more.st", "out.st")


OPTIMIZERS = {
    "sgd": ("sgd", 0, 0, False),
    "sgd, decay": ("sgd", 5e-4, 0, False),
    "momentum": ("sgd", 0, 0.9, False),
    "momentum, decay": ("sgd", 5e-4, 0.9, False),
    "nesterov, decay": ("sgd", 5e-4, 0.9, True),
    "adamw": ("adamw", 0.01, 0, False),
    "adamw, no decay": ("adamw", 0, 0, False),
    "adadelta": ("adadelta", 0, 0, False),
    "adadelta, decay": ("adadelta", 1e-3, 0, False),
}
SLOTS = {"sgd": ["momentum_buffer"], "adamw": ["exp_avg", "exp_avg_sq"],
         "adadelta": ["square_avg", "acc_delta"]}


def make(kind, decay, momentum, nesterov, parameter):
    if kind == "sgd":
        return optim.SGD([parameter], 0.1, momentum, 0, decay, nesterov)
    if kind == "adamw":
        return optim.AdamW([parameter], 0.1, weight_decay=decay)
    return optim.Adadelta([parameter], 0.1, weight_decay=decay)


def follow(case, values, gradients, rates):
    """Returns PyTorch's values after each step, and its slots at the end."""
    parameter = torch.nn.Parameter(values.clone())
    optimizer = make(*case, parameter)
    trace = []
    for gradient, rate in zip(gradients, rates):
        optimizer.param_groups[0]["lr"] = float(rate)
        parameter.grad = gradient.clone()
        optimizer.step()
        trace.append(parameter.detach().clone())
    state = optimizer.state[parameter]
    slots = [state[key] for key in SLOTS[case[0]] if state.get(key) is not None]
    return torch.stack(trace), slots


def compare_optim(simd):
    """Fifty steps, with a count that is not a multiple of a vector, and gradients of any magnitude and zeros."""
    os.environ["DDP_SIMD"] = simd
    torch.manual_seed(SEED)
    steps, count = 50, 4099
    values = torch.randn(count)
    gradients = torch.randn(steps, count) * torch.exp(4 * torch.randn(count))
    gradients[:, ::7] = 0
    rates = 0.05 * torch.rand(steps, dtype=torch.float64)
    tensorfile.save("optim.st", {"values": values, "gradients": gradients, "rates": rates}, {})
    for name, case in OPTIMIZERS.items():
        kind, decay, momentum, nesterov = case
        run("optim", kind, decay, momentum, int(nesterov), "optim.st", "out.st")
        got, (trace, slots) = tensorfile.load("out.st")[0], follow(case, values, gradients, rates)
        agree(got["trace"], trace, f"{name} ({simd}), values")
        for i, slot in enumerate(slots):
            agree(got[f"slot{i}"], slot, f"{name} ({simd}), slot {i}")


def main():
    torch.set_num_threads(1)
    subject, *arguments = sys.argv[1:]
    globals()[f"compare_{subject}"](*arguments)


main()
