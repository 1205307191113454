# SPDX-License-Identifier: Apache-2.0
"""errors.py CASE: ranks with gloo, of which rank 1 fails in this way, and rank 0 waits for it in an all-reduce."""
import datetime
import os
import sys
import threading

import torch
import torch.distributed as dist
import torch.utils.data


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise ValueError("sample %d is broken" % index)


def exception():
    raise ValueError("the loss is not finite")


def different():
    raise ValueError("reason %s" % "abc"[int(os.environ["DDP_RESTART"])])


def ecc():
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered\n"
                       "CUDA kernel errors might be asynchronously reported at some other API call")


def system_exit():
    sys.exit("no data")


def interrupt():
    raise KeyboardInterrupt


def thread():
    worker = threading.Thread(target=exception)
    worker.start()
    worker.join()
    sys.exit(3)


def loader():
    for _ in torch.utils.data.DataLoader(Samples(), num_workers=1):
        pass


def nested():
    try:
        exception()
    except ValueError as error:
        raise KeyError("later") from error


def group():
    errors = []
    for function in (exception, nested):
        try:
            function()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("several", [ExceptionGroup("inner", errors[:1]), errors[1]])


def long():
    raise ValueError("x" * 30000)


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    dist.barrier()
    if dist.get_rank() == 1:
        globals()[sys.argv[1]]()
    dist.all_reduce(torch.ones(1))
