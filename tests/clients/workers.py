# SPDX-License-Identifier: Apache-2.0
"""workers.py METHOD: slurm_ddp.Stop and children of multiprocessing, without PyTorch. Prints what a signal to each process did."""
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import slurm_ddp


def handle():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))


def work(lines, has_handler):
    if has_handler:
        handle()
    program = subprocess.Popen(["sleep", "1000"])
    program.terminate()
    lines.put(f"program ended with {program.wait()}")
    while True:
        time.sleep(0.05)


def signal_all(number):
    """Signals this process group from another process, as Slurm does."""
    sender = subprocess.Popen([sys.executable, "-c", f"import os, signal; signal.signal({number}, signal.SIG_IGN); os.killpg(0, {number})"])
    print("sender ended with", sender.wait())


def main():
    context = multiprocessing.get_context(sys.argv[1])
    stop = slurm_ddp.Stop()
    lines = context.Queue()
    children = [context.Process(target=work, args=(lines, i == 1)) for i in range(2)]
    for child in children:
        child.start()
    for _ in children:
        print(lines.get())
    print("stop", stop())
    for number in slurm_ddp.stop.SIGNALS:
        signal_all(number)
    print("stop", stop(), stop.reason)
    late = context.Process(target=work, args=(lines, False), daemon=True)
    late.start()  # by the fork server, which was signalled
    print(lines.get())
    for child in children:
        print("running", child.is_alive())
        child.terminate()
        child.join()
        print("terminated with", child.exitcode)
    # The interpreter ends and joins the last child.


if __name__ == "__main__":
    main()
