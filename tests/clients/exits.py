# SPDX-License-Identifier: Apache-2.0
"""exits.py CASE: two ranks with gloo, of which rank 1 raises an exception and does not exit, and rank 0 waits for it.

log: rank 1 logs exceptions, also with its own thread, and both ranks exit.
"""
import ctypes
import datetime
import logging
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.utils.data


class Samples(torch.utils.data.IterableDataset):
    def __iter__(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            yield 1
            if os.getppid() == 1:
                sys.exit()


class Waits:
    def __del__(self):
        time.sleep(3600)


def thread():
    """A thread that is not a daemon runs."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    fail()


def printer():
    """A thread that is not a daemon prints."""
    def run():
        while True:
            print("rank 1 prefetches", flush=True)
            time.sleep(0.5)
    threading.Thread(target=run).start()
    fail()


def destructor():
    """A destructor waits."""
    global waits
    waits = Waits()
    fail()


def loader():
    """The workers of a DataLoader ignore SIGTERM."""
    global samples
    samples = iter(torch.utils.data.DataLoader(Samples(), num_workers=1, batch_size=None, persistent_workers=True))
    next(samples)
    fail()


def main_ended():
    """The main thread has ended."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    try:
        fail()
    except ValueError:
        sys.excepthook(*sys.exc_info())
    ctypes.CDLL(None).pthread_exit(None)


def log():
    for _ in range(8):
        time.sleep(3)
        try:
            fail()
        except ValueError:
            logging.exception("step failed")
    worker = threading.Thread(target=fail)
    worker.start()
    time.sleep(12)


def fail():
    raise ValueError("the loss is not finite")


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    dist.barrier()
    if dist.get_rank() == 1:
        globals()[sys.argv[1]]()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()  # without this, PyTorch 2.15 sometimes aborts at the exit
