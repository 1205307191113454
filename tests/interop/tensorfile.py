# SPDX-License-Identifier: Apache-2.0
"""A writer and a reader of safetensors files for PyTorch, written from the format's documentation."""

import ctypes
import json
import math
import struct

import torch

# The order of types in a file: tensors with larger elements come first.
TYPES = {"I64": torch.int64, "F64": torch.float64, "F32": torch.float32, "I32": torch.int32,
         "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8}
NAMES = {dtype: name for name, dtype in TYPES.items()}
ORDER = {dtype: place for place, dtype in enumerate(TYPES.values())}


def to_bytes(tensor):
    tensor = tensor.detach().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def save(path, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    ordered = sorted(tensors.items(), key=lambda item: (ORDER[item[1].dtype], item[0].encode()))
    for name, tensor in ordered:
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in ordered:
            file.write(to_bytes(tensor))


def load(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start].decode())
    metadata, tensors, at = header.pop("__metadata__", {}), {}, 0
    for name, entry in header.items():
        dtype, shape, (begin, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        count = math.prod(shape)
        assert begin == at, (name, begin, at)
        if count == 0:
            tensors[name] = torch.empty(shape, dtype=dtype)
        else:
            tensors[name] = torch.frombuffer(
                data, dtype=dtype, count=count, offset=start + begin).reshape(shape)
        at = begin + count * tensors[name].element_size()
        assert end == at, (name, end, at)
    assert start + at == len(data), (start, at, len(data))
    return tensors, metadata
