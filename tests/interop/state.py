# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of libddp.bats.

state.py write DIRECTORY            net.st, a state_dict, and odd.st, of every type and odd shapes
state.py list FILE                  as `tensors list`
state.py same ONE OTHER             the same tensors, bit by bit, and the same format
state.py strict FILE                load_state_dict(strict=True) into the network, equal to net.st
state.py checksum FILE STEP         a checkpoint of STEP whose checksum is right
state.py events DIRECTORY           what `tensors events` writes
state.py package FILE NEW           the package safetensors reads FILE as we do, and writes NEW
state.py tensorboard DIRECTORY      TensorBoard's own reader reads what we do
The last two end with 77 where the package is missing.
"""

import os
import struct
import sys

import torch
from torch import nn

import eventfile
import tensorfile


class Net(nn.Module):
    """pytorch/examples' network for MNIST, with a BatchNorm, which has an integer tensor."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)


def net():
    torch.manual_seed(1)
    model = Net()
    model.bn1.num_batches_tracked += 4711
    return model


def odd():
    torch.manual_seed(2)
    made = {"é\"\\\n\x01😀": torch.arange(3, dtype=torch.int32)}
    for name, dtype in tensorfile.TYPES.items():
        for shape in ([], [0], [3, 0, 2], [1], [5], [2, 3, 4], [1, 2, 1, 2, 1, 2, 1, 2]):
            made[f"{name}.{len(shape)}.{sum(shape)}"] = (torch.randn(shape) * 50 + 100).to(dtype)
    made["F32.special"] = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    made["BF16.special"] = made["F32.special"].to(torch.bfloat16)
    made["F16.special"] = torch.tensor([65504.0, 6e-8, float("-inf")]).to(torch.float16)
    made["I64.special"] = torch.tensor([-2**63, 2**63 - 1])
    return made


def write(directory):
    tensorfile.save(f"{directory}/net.st", net().state_dict(), {"format": "pt"})
    tensorfile.save(f"{directory}/odd.st", odd(), {"format": "pt"})


def list_(path):
    for name, tensor in tensorfile.load(path)[0].items():
        print(name, tensorfile.NAMES[tensor.dtype], *tensor.shape)


def assert_same(one, other):
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype and tensor.shape == other[name].shape, name
        assert tensorfile.to_bytes(tensor) == tensorfile.to_bytes(other[name]), name


def same(one, other):
    (first, first_metadata), (second, second_metadata) = map(tensorfile.load, (one, other))
    assert first_metadata["format"] == second_metadata["format"] == "pt"
    assert_same(first, second)


def strict(path):
    torch.manual_seed(3)
    model = Net()
    tensors = tensorfile.load(path)[0]
    model.load_state_dict(tensors, strict=True)
    want = net().state_dict()
    assert_same({name: model.state_dict()[name] for name in want}, want)


def checksum(path, step):
    metadata = tensorfile.load(path)[1]
    assert metadata["ddp.step"] == step, metadata
    with open(path, "rb") as file:
        data = file.read()
    blank = data.replace(metadata["ddp.crc32c"].encode(), b"00000000", 1)
    assert blank != data and int(metadata["ddp.crc32c"], 16) == eventfile.crc32c(blank)


def points():
    for i in range(100):
        value = struct.unpack("<f", struct.pack("<f", 1.0 / (i + 1)))[0]
        yield "loss/train" if i % 2 else "précision", i * 100, value


def events(directory):
    names = os.listdir(directory)
    assert len(names) == 1 and names[0].startswith("events.out.tfevents."), names
    assert eventfile.load(f"{directory}/{names[0]}") == list(points())


def package(path, new):
    try:
        import safetensors.torch
    except ImportError:
        sys.exit(77)
    tensors, metadata = tensorfile.load(path)
    assert_same(safetensors.torch.load_file(path), tensors)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == metadata
    safetensors.torch.save_file(tensors, new, {"format": "pt"})


def tensorboard(directory):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        sys.exit(77)
    board = EventAccumulator(directory, size_guidance={"scalars": 0}).Reload()
    for tag in ("loss/train", "précision"):
        got = [(event.step, event.value) for event in board.Scalars(tag)]
        assert got == [(step, value) for name, step, value in points() if name == tag], tag


if __name__ == "__main__":
    # Packages that Debian does not have, and newer ones than Debian's: TensorBoard needs a new protobuf.
    sys.path[:0] = filter(None, [os.environ.get("READERS")])
    commands = {"write": write, "list": list_, "same": same, "strict": strict,
                "checksum": checksum, "events": events, "package": package,
                "tensorboard": tensorboard}
    commands[sys.argv[1]](*sys.argv[2:])
