# SPDX-License-Identifier: Apache-2.0
"""recorder.py: three ranks with gloo, of which rank 2 does not call the fifth collective, write dumps of PyTorch's flight recorder.

The collectives and the dumps are PyTorch's. A thread of this script answers ddp-run's request on the pipe, because
PyTorch has such a thread for NCCL only. tests/runtime/dumps has dumps of this program.
"""
import datetime
import os
import signal
import threading

from startup import rank, started

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def answer(pipe):
    with open(pipe, "rb") as request:
        if request.read(1):
            torch._C._distributed_c10d._dump_fr_trace_file(rank)


def main():
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    os.mkfifo(pipe)
    threading.Thread(target=answer, args=(pipe,), daemon=True).start()
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    pair = dist.new_group([0, 1], group_desc="pair")
    ones = torch.ones(1000)
    for _ in range(3):
        dist.all_reduce(ones)
    if rank < 2:
        dist.broadcast(ones, 0, group=pair)
    dist.barrier()
    started.set()
    if rank == 2:
        signal.pause()
    dist.all_reduce(torch.ones(10, 10))


main()
