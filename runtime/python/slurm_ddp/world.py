# SPDX-License-Identifier: Apache-2.0
"""Identity of this rank, and its heartbeat, from the variables of srun --ddp, ddp-exec, ddp-run, torchrun or plain srun."""

import os
import time
from typing import Optional

# Variables of each attribute of World, in the order in which they are tried, the type, and the value without any of them.
_SOURCES = {
    "rank": (("RANK", "SLURM_PROCID"), int, 0),
    "size": (("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"), int, 1),
    "node": (("GROUP_RANK", "SLURM_NODEID"), int, 0),
    "device": (("LOCAL_RANK", "SLURM_LOCALID"), int, 0),
    "share": (("DDP_SHARE",), float, 1.0),
    "restart": (("DDP_RESTART",), int, 0),
    "checkpoint": (("DDP_CHECKPOINT",), str, None),
    "end_time": (("DDP_END_TIME", "SLURM_JOB_END_TIME"), float, None),
}


class World:
    """The ranks of this step, as seen by one of them. Each attribute is read from the environment when it is used."""

    rank: int  # 0 to size - 1
    size: int  # number of ranks
    node: int  # index of this rank's node
    device: int  # index of the device to use, LOCAL_RANK
    share: float  # this rank's part of its device, at most 1
    restart: int  # number of restarts by ddp-run so far
    checkpoint: Optional[str]  # directory of the checkpoints, from DDP_CHECKPOINT
    end_time: Optional[float]  # end of the job's time limit, in seconds since 1970

    def __getattr__(self, name):
        if name not in _SOURCES:
            raise AttributeError(name)
        variables, kind, default = _SOURCES[name]
        value = next(filter(None, map(os.environ.get, variables)), None)
        return kind(value) if value else default


world = World()
_due = 0.0


def beat() -> None:
    """Show ddp-run --hang that this rank makes progress. Touches the file DDP_HEARTBEAT at most once a second."""
    global _due
    path, now = os.environ.get("DDP_HEARTBEAT"), time.monotonic()
    if not path or now < _due:
        return
    _due = now + 1
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        os.utime(path)
    except OSError:  # as libddp: a heartbeat that cannot be written does not end a training
        _due = float("inf")
