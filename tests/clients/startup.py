# SPDX-License-Identifier: Apache-2.0
"""The rank of this process, and heartbeats until the program has started, so that imports do not count as a hang.

Import this module before PyTorch, and call started.set().
"""
import os
import pathlib
import threading

rank = int(os.environ["RANK"])
started = threading.Event()


def heartbeat():
    while not started.wait(0.2):
        pathlib.Path(os.environ["DDP_HEARTBEAT"]).touch()


threading.Thread(target=heartbeat, daemon=True).start()
