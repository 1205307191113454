# SPDX-License-Identifier: Apache-2.0
"""bars.py CASE [STEPS]: ranks whose main thread prints no complete line.

tqdm, dots: rank 0 shows STEPS steps of one second each, as a bar of that kind. Without STEPS it shows four, and hangs.

child, store: all ranks hang, while a child writes to a file, or threads poll rank 0's store.
"""
import datetime
import os
import signal
import subprocess
import sys
import threading
import time

from startup import rank, started


def tqdm(steps):
    from tqdm import tqdm as bar
    started.set()
    for _ in bar(range(steps), total=1000):
        time.sleep(1)


def dots(steps):
    started.set()
    for _ in range(steps):
        print(".", end="", flush=True)
        time.sleep(1)


def child(_):
    subprocess.Popen([sys.executable, "-c", "import time\nwhile True: print(1, flush=True); time.sleep(1)"],
                     stdout=open("child.%d" % rank, "w"))


def store(_):
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))

    def poll():
        other = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        while True:
            other.set("polled by %d" % rank, "yes")
            time.sleep(0.1)

    threading.Thread(target=poll, daemon=True).start()


case = {"tqdm": tqdm, "dots": dots, "child": child, "store": store}[sys.argv[1]]
if rank == 0 or case in (child, store):
    case(int(sys.argv[2]) if len(sys.argv) > 2 else 4)
started.set()
if len(sys.argv) < 3:
    signal.pause()
