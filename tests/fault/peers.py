# SPDX-License-Identifier: Apache-2.0
"""A process of another user on a job's nodes: attacks the ranks' TCP listeners.

    peers.py ATTACK once|on DIRECTORY [CARDS]

Finds listeners in /proc/net/tcp, writes them to DIRECTORY, and reads those of other hosts from there.
ATTACK is one of the functions below. "once" attacks the current listeners once and keeps its
connections; "on" repeats the attack. Both run until they are killed. Prints the number of connections.
CARDS is the directory with the ranks' cards, for attacks by a process that knows a rank's
secret.
"""
import hashlib
import os
import random
import socket
import struct
import sys
import time

MAGIC = 0x3170637470646464
CHALLENGE, PROOF = 16, 32


def hello(sender, receiver, nonce=b"n" * 16):
    return struct.pack("<Qii", MAGIC, sender, receiver) + nonce


def proof(listening, connecting, greeting, challenge):
    key = hashlib.blake2s(connecting, key=listening).digest()
    return hashlib.blake2s(b"connect\0" + greeting + challenge, key=key).digest()


def secret(rank):
    """A card begins with a magic number of 8 bytes, then the secret."""
    with open(f"{sys.argv[4]}/{rank}", "rb") as file:
        return file.read()[8:8 + 32]


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
    """Publishes this host's listeners. Returns all known ones, of this host and of others."""
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


def connect(address):
    peer = socket.socket()
    peer.settimeout(0.5)
    try:
        peer.connect(address)
    except OSError:
        peer.close()
        return None
    return peer


def send(peer, data):
    try:
        peer.sendall(data)
    except OSError:
        pass


def receive(peer, size):
    data = b""
    try:
        while len(data) < size:
            more = peer.recv(size - len(data))
            if not more:
                break
            data += more
    except OSError:
        pass
    return data


# --- Attacks: functions of a connection, and of the address for further ones --------------------


def garbage(peer, _):
    send(peer, random.randbytes(65536))


def silence(_peer, _):
    """Sends nothing."""


def slow(peer, _):
    """Sends the first bytes of a greeting, but not the rest."""
    send(peer, hello(1, 0)[:7])


def greeting(peer, _):
    """Sends a greeting of each pair of ranks, without a proof."""
    send(peer, hello(*random.choice([(0, 1), (1, 0)])))


def wrong_rank(peer, _):
    send(peer, hello(*random.choice([(0, 0), (1, 1), (7, 0), (-1, 1), (1, 2**31 - 1)])))


def wrong_proof(peer, _):
    """Sends a correct greeting, a proof with a guessed secret, and garbage."""
    for pair in ((1, 0), (0, 1)):
        text = hello(*pair)
        send(peer, text)
        challenge = receive(peer, CHALLENGE)
        if len(challenge) == CHALLENGE:
            send(peer, proof(bytes(32), bytes(32), text, challenge) + random.randbytes(4096))


def other_step(peer, _):
    """Sends a greeting and a proof that were correct in another step, which had other secrets."""
    text = hello(1, 0)
    send(peer, text + proof(b"a" * 32, b"b" * 32, text, b"c" * 16))


def insider(peer, address):
    """
    Plays rank 1, whose card it publishes. Its greeting on two connections, and the proof for the first
    on the second, is refused; the proof on its own connection is accepted.
    """
    with open(f"{sys.argv[4]}/0", "rb") as file:
        card = bytearray(file.read())
    card[8:40] = b"1" * 32
    for name, data in (("1", card),):
        with open(f"{sys.argv[4]}/.{name}", "wb") as file:
            file.write(data)
        os.rename(f"{sys.argv[4]}/.{name}", f"{sys.argv[4]}/{name}")
    text, other = hello(1, 0), connect(address)
    answers = []
    for connection in (peer, other):
        connection.settimeout(60)
        send(connection, text)
        answers.append(receive(connection, CHALLENGE))
    right = proof(secret(0), secret(1), text, answers[0])
    for connection in (other, peer):
        send(connection, right)
        print(f"answered with {len(receive(connection, PROOF))} bytes", flush=True)


ATTACKS = {function.__name__: function for function in
           (garbage, silence, slow, greeting, wrong_rank, wrong_proof, other_step, insider)}
ATTACKS["flood"] = silence


def attack_all(name, everybody, peers):
    reached = 0
    for address in everybody:
        for _ in range(600 if name == "flood" else 1):
            peer = connect(address)
            if not peer:
                break
            reached += 1
            peers.append(peer)
            ATTACKS[name](peer, address)
    return reached


def main():
    name, how, directory = sys.argv[1:4]
    peers = []
    reached = attack_all(name, share(directory, listeners()), peers)
    print(f"reached {reached}", flush=True)
    while how == "on":
        attack_all(name, share(directory, listeners()), peers)
        del peers[:-2000]
        time.sleep(0.001)
    time.sleep(600)


main()
