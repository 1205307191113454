# SPDX-License-Identifier: Apache-2.0
"""Images for both sides, in the published formats: IDX and CIFAR-10's binary files.

Each class has a pattern. A sample is its class's pattern, shifted and with much noise.
"""

import os
import struct

import numpy as np
import torch
from torch.utils.data import Dataset

SHAPE = {"mnist": (1, 28, 28), "cifar": (3, 32, 32)}
MEAN = {"mnist": (0.1307,), "cifar": (0.4914, 0.4822, 0.4465)}
DEVIATION = {"mnist": (0.3081,), "cifar": (0.2470, 0.2435, 0.2616)}


def make(net, count, seed):
    """Returns [count] images and labels. The patterns are always the same, [seed] is the noise's."""
    channels, height, width = SHAPE[net]
    patterns = np.random.RandomState(1).randint(0, 2, (10, channels, height // 4, width // 4))
    patterns = patterns.repeat(4, 2).repeat(4, 3) * 110
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    images = patterns[labels] + random.randint(0, 146, (count, *SHAPE[net]))
    for image, shift in zip(images, random.randint(-2, 3, (count, 2))):
        image[:] = np.roll(image, tuple(shift), (1, 2))
    return images.astype(np.uint8), labels.astype(np.uint8)


def names(net, part):
    if net == "mnist":
        stem = "train" if part == "train" else "t10k"
        return [f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"]
    return [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]


def write_part(directory, net, part, count, seed):
    images, labels = make(net, count, seed)
    paths = [os.path.join(directory, name) for name in names(net, part)]
    if net == "mnist":
        with open(paths[0], "wb") as file:
            file.write(struct.pack(">4I", 2051, count, 28, 28) + images.tobytes())
        with open(paths[1], "wb") as file:
            file.write(struct.pack(">2I", 2049, count) + labels.tobytes())
        return
    records = np.concatenate([labels[:, None], images.reshape(count, -1)], 1)
    for path, some in zip(paths, np.array_split(records, len(paths))):
        some.tofile(path)


def write(directory, net, train, test, seed):
    os.makedirs(directory, exist_ok=True)
    write_part(directory, net, "train", train, seed)
    write_part(directory, net, "test", test, seed + 1)


def read(directory, net, part):
    """Returns images (uint8 N, C, H, W) and labels (int64)."""
    paths = [os.path.join(directory, name) for name in names(net, part)]
    if net == "mnist":
        images = np.fromfile(paths[0], np.uint8)[16:].reshape(-1, *SHAPE[net])
        labels = np.fromfile(paths[1], np.uint8)[8:]
    else:
        records = np.concatenate([np.fromfile(path, np.uint8) for path in paths])
        records = records.reshape(-1, 1 + np.prod(SHAPE[net]))
        images, labels = records[:, 1:].reshape(-1, *SHAPE[net]), records[:, 0]
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def normalised(net, images):
    """The result of torchvision's ToTensor() and Normalize(): N, C, H, W."""
    mean, deviation = (torch.tensor(v[net]).view(1, -1, 1, 1) for v in (MEAN, DEVIATION))
    return (images.float() / 255 - mean) / deviation


class Images(Dataset):
    """Like torchvision's data set with ToTensor() and Normalize(), which convert each sample on access."""

    def __init__(self, net, images, labels):
        self.net, self.images, self.labels = net, images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return normalised(self.net, self.images[index:index + 1])[0], self.labels[index]
