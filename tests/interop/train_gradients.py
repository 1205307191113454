# SPDX-License-Identifier: Apache-2.0
"""Gradients of every parameter by autograd in double precision, and a comparison with them.

A ReLU or a maximum that two roundings decide differently changes gradients by more than rounding
does. So images are chosen for which none of these is close.
"""

import sys

import torch
from torch.nn import functional as F

import networks
import tensorfile
import train_data


class Margin(torch.overrides.TorchFunctionMode):
    """Records the smallest distance of any ReLU or maximum from the opposite decision."""

    smallest = float("inf")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.relu:
            self.smallest = min(self.smallest, float(args[0].abs().min()))
        if function in (F.max_pool2d, torch.max_pool2d):
            two = F.unfold(args[0].transpose(0, 1).flatten(0, 1)[:, None], 2, stride=2)
            two = two.topk(2, 1).values
            apart = (two[:, 0] - two[:, 1])[two[:, 0] > 0]
            self.smallest = min(self.smallest, float(apart.min()))
        return function(*args, **(kwargs or {}))


def double(net, path):
    model = networks.NETWORKS[net](dropout=False).double()
    model.load_state_dict({k: v.double() if v.is_floating_point() else v
                           for k, v in tensorfile.load(path)[0].items()}, strict=True)
    return model


def widest(net, model, images, count):
    """Returns the first of the [count] successive images with the widest margin, and the margin."""
    best = (0, 0)
    for start in range(0, min(len(images) - count, 12 * count), count):
        with Margin() as margin, torch.no_grad():
            model(train_data.normalised(net, images[start:start + count]).double())
        best = max(best, (margin.smallest, start))
    return best


def gradients(net, directory, path, count, new):
    """Prints the first image and the loss, and writes the gradients."""
    count = int(count)
    images, labels = train_data.read(directory, net, "train")
    # Uses the batch's statistics, as in training, not the running ones.
    margin, start = widest(net, double(net, path).train(), images, count)
    model = double(net, path).train()
    some = slice(start, start + count)
    logits = model(train_data.normalised(net, images[some]).double())
    loss = F.cross_entropy(logits, labels[some])
    loss.backward()
    tensorfile.save(new, {k: v.grad for k, v in model.named_parameters()}, {"format": "pt"})
    print(start, f"{float(loss):.9g} margin {margin:.1e}")


def compare(one, other, limit):
    """Checks the norm of each gradient's difference, relative to the gradient's norm."""
    (ours, _), (theirs, _) = map(tensorfile.load, (one, other))
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    worst = []
    for name, gradient in theirs.items():
        assert ours[name].shape == gradient.shape, name
        error = (ours[name].double() - gradient).norm() / gradient.norm()
        worst.append((float(error), name))
    worst.sort(reverse=True)
    print(f"{len(worst)} gradients, relative errors up to",
          ", ".join(f"{error:.1e} of {name}" for error, name in worst[:3]))
    if not worst[0][0] <= float(limit):
        sys.exit(f"more than {limit}")
