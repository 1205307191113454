# SPDX-License-Identifier: Apache-2.0
"""A parser of TensorBoard's event files, written from the formats' documentation (records, protobuf)."""

import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), "checksum of a length"
        body = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body), "checksum"
        yield body
        at += 16 + length


def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return number, at


def fields(data):
    """Returns the fields of a message: {number: value}. No field occurs twice in these files."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
        assert key >> 3 not in found
        found[key >> 3] = value
    return found


def load(path):
    """Returns the scalars of the file: [(tag, step, value)]."""
    with open(path, "rb") as file:
        events = [fields(body) for body in records(file.read())]
    assert events[0][3] == b"brain.Event:2", events[0]
    scalars = []
    for event in events[1:]:
        value = fields(fields(event[5])[1])
        scalars.append((value[1].decode(), event[2], struct.unpack("<f", value[2])[0]))
    return scalars
