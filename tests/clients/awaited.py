# SPDX-License-Identifier: Apache-2.0
"""awaited.py HOW: two ranks with gloo, of which rank 0 waits for rank 1 in an all-reduce.

sleep: rank 1 sleeps in its own function. thread: rank 1 raises an exception, and a thread keeps it from exiting. other: rank 1
waits for a message that rank 0 does not send.
"""
import datetime
import sys
import threading
import time

from startup import rank, started

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def load_samples():
    time.sleep(3600)


def main(how):
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    dist.barrier()
    started.set()
    if rank == 1 and how == "thread":
        threading.Thread(target=load_samples).start()
        raise ValueError("the loss is not finite")
    if rank == 1 and how == "other":
        dist.recv(torch.ones(10), 0)
    if rank == 1:
        load_samples()
    dist.all_reduce(torch.ones(10), async_op=True).wait()


main(sys.argv[1])
