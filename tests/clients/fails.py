# SPDX-License-Identifier: Apache-2.0
"""fails.py CASE: ranks with gloo, of which rank 1 fails in this way, and rank 0 waits for it in an all-reduce.

log, upload, hook: rank 1 logs exceptions, also with its own thread, and both ranks exit.
"""
import ctypes
import datetime
import logging
import sys
import threading
import time
import urllib.request

from startup import rank, started

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.utils.data  # noqa: E402
import tqdm  # noqa: E402

bars = []


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise ValueError("sample %d is broken" % index)


def exception():
    raise ValueError("the loss is not finite")


def bar():
    """Leaves. Rank 0 has an open progress bar, so its traceback begins behind it."""
    dist.destroy_process_group()
    sys.exit(0)


def refused():
    """Cannot reach a server that has nothing to do with the training. Rank 0 computes meanwhile."""
    urllib.request.urlopen("http://127.0.0.1:9/")


def interrupt():
    raise KeyboardInterrupt


def loader():
    for _ in torch.utils.data.DataLoader(Samples(), num_workers=1):
        pass


def group():
    errors = [ValueError("the loss is not finite"), KeyError("later")]
    raise ExceptionGroup("several", [ExceptionGroup("inner", errors[:1]), errors[1]])


def thread():
    """A thread that is not a daemon runs."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    exception()


def printer():
    """A thread that is not a daemon prints."""
    def run():
        while True:
            print("rank 1 prefetches", flush=True)
            time.sleep(0.5)
    threading.Thread(target=run).start()
    exception()


def late():
    """A thread that is not a daemon prints one line, after PyTorch's hook has printed the exception."""
    def run():
        time.sleep(3)
        print("rank 1 has loaded its samples", flush=True)
        time.sleep(3600)
    threading.Thread(target=run).start()
    exception()


def main_ended():
    """The main thread has ended."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    try:
        exception()
    except ValueError:
        sys.excepthook(*sys.exc_info())
    ctypes.CDLL(None).pthread_exit(None)


def log():
    for _ in range(3):
        time.sleep(3)
        try:
            exception()
        except ValueError:
            logging.exception("step failed")
    worker = threading.Thread(target=exception)
    worker.start()
    time.sleep(5)


def print_lines():
    for i in range(30):
        print("rank 1 works", i, flush=True)
        time.sleep(0.4)


def upload():
    """Logs an exception; then the main thread ends, and another thread prints for a while."""
    try:
        exception()
    except ValueError:
        logging.exception("first try of the upload")
    threading.Thread(target=print_lines).start()


def hook():
    """Prints an exception with PyTorch's hook; then the main thread runs, and then another one prints."""
    try:
        exception()
    except ValueError:
        sys.excepthook(*sys.exc_info())
    for _ in range(25):
        time.sleep(0.4)
    worker = threading.Thread(target=print_lines)
    worker.start()
    worker.join()


def load_samples():
    """Sleeps in a function of the program."""
    time.sleep(3600)


def receive():
    """Waits for a message that rank 0 does not send."""
    dist.recv(torch.ones(10), 0)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    dist.barrier()
    started.set()
    if sys.argv[1] == "bar" and rank == 0:
        bars.append(tqdm.tqdm(range(10), initial=4, mininterval=0))
    if sys.argv[1] == "refused" and rank == 0:
        time.sleep(60)
    if rank == 1:
        globals()[sys.argv[1]]()
    dist.all_reduce(torch.ones(10), async_op=True).wait()
    dist.destroy_process_group()  # without this, PyTorch 2.15 sometimes aborts at the exit


main()
