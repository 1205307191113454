# SPDX-License-Identifier: Apache-2.0
"""program.py DIRECTORY: a rank of the training in a scenario, and its faults.

The training uses DistributedDataParallel over gloo, a DataLoader with a worker process, and a tqdm bar. It writes a
checkpoint after every second step, and stops after one on SIGTERM. DIRECTORY/plan.json has the number of steps
and the faults, each {"kind": NAME, "rank": R, "step": K}. Rank R applies the fault once, at the start of its step K:

    fault.I     written by the rank that applies fault I: step of Slurm, node and pid
    applied.I   written by scenarios after a fault that a rank cannot apply to itself
    ranks       a line for each step of each rank: step of Slurm, rank, world, step, sum of an all-reduce
    weights.R   final weights of rank R
"""
import ctypes
import json
import os
import pathlib
import signal
import sys
import threading
import time

directory = pathlib.Path(sys.argv[1])
started = threading.Event()


def send_heartbeats():
    """Touches the heartbeat file until the first step, because imports print nothing."""
    while "DDP_HEARTBEAT" in os.environ and not started.wait(0.5):
        pathlib.Path(os.environ["DDP_HEARTBEAT"]).touch()


threading.Thread(target=send_heartbeats, daemon=True).start()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

try:
    from tqdm import tqdm
except ImportError:  # Debian's PyTorch
    def tqdm(steps, **_):
        return steps

BATCH = 8
plan = json.loads((directory / "plan.json").read_text())
attempt = "%s.%s" % (os.environ["SLURM_JOB_ID"], os.environ["SLURM_STEP_ID"])
stop_requested = []


def append(name, *words):
    """Appends a line with one write, so that lines of several ranks do not mix."""
    fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


class WaitsForever:
    def __del__(self):
        time.sleep(1e6)


def raise_in_destructor(number):
    global kept
    kept = WaitsForever()
    raise ValueError("fault %d" % number)


def raise_exception(number):
    raise ValueError("fault %d" % number)


def kill_worker(number):
    os.kill(batches._workers[0].pid, signal.SIGKILL)
    time.sleep(1e6)  # PyTorch raises an exception in its handler of SIGCHLD


def apply_fault(number, kind):
    written = directory / ("fault.%d.%d" % (number, os.getpid()))
    written.write_text("%s %s %d" % (attempt, os.environ["SLURMD_NODENAME"], os.getpid()))
    try:
        os.link(written, directory / ("fault.%d" % number))
    except FileExistsError:
        return
    {"exception": raise_exception,
     "SIGKILL": lambda _: os.kill(os.getpid(), signal.SIGKILL),
     "SIGSEGV": lambda _: ctypes.string_at(0),
     "exit 0": lambda _: sys.exit(0),
     "endless sleep": lambda _: time.sleep(1e6),
     "endless destructor": raise_in_destructor,
     "DataLoader worker killed": kill_worker,
     "SIGSTOP": lambda _: os.kill(os.getpid(), signal.SIGSTOP)}.get(kind, await_fault)(number)


def await_fault(number):
    while not (directory / ("applied.%d" % number)).exists():
        time.sleep(0.05)


def main():
    global batches
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.append(1))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    points = torch.randn(64, 8)
    dataset = TensorDataset(points, points.sum(1, keepdim=True).sin())
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    first = 0
    checkpoint = directory / "state" / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    ddp = DistributedDataParallel(model)

    def indices(step):
        """Returns the samples of this rank in the step, which do not depend on earlier attempts."""
        order = torch.randperm(64, generator=torch.Generator().manual_seed(step)).tolist()
        return order[rank * BATCH:(rank + 1) * BATCH]

    def train(step):
        x, y = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
        total = torch.tensor(plan["factor"] * (step + 1) * (rank + 1))
        dist.all_reduce(total)
        append("ranks", attempt, rank, world, step, int(total))

    def save(step):
        if rank == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, checkpoint.with_name("tmp"))
            os.replace(checkpoint.with_name("tmp"), checkpoint)

    steps = range(first, plan["steps"])
    batches = iter(DataLoader(dataset, batch_sampler=[indices(step) for step in steps], num_workers=1))
    started.set()
    for step in tqdm(steps, disable=rank != 0):
        for number, fault in enumerate(plan["faults"]):
            if (fault["rank"], fault["step"]) == (rank, step):
                apply_fault(number, fault["kind"])
        train(step)
        stop = torch.tensor(len(stop_requested))
        dist.all_reduce(stop)
        if stop:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm may send it to a rank that already exits
            save(step)
            break
        if step % 2:
            save(step)
    else:
        weights = (w.hex() for p in model.parameters() for w in p.flatten().tolist())
        (directory / ("weights.%d" % rank)).write_text(" ".join(weights))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
