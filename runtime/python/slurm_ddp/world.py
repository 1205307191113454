# SPDX-License-Identifier: Apache-2.0
"""Identity of this rank, and its heartbeat, from the variables of srun --ddp, ddp-exec, ddp-run, torchrun or plain srun."""

import contextlib
import os
import time
from typing import Any, Optional


def _variable(kind, default, *names) -> Any:
    """Return a property: the first of these variables that is set, as a [kind]; else [default]."""

    def get(_):
        value = next(filter(None, map(os.environ.get, names)), None)
        return kind(value) if value else default

    return property(get)


class World:
    """The ranks of this step, as seen by one of them. Each attribute is read from the environment when it is used."""

    rank: int = _variable(int, 0, "RANK", "SLURM_PROCID")  # 0 to size - 1
    size: int = _variable(int, 1, "WORLD_SIZE", "SLURM_STEP_NUM_TASKS")  # number of ranks
    node: int = _variable(int, 0, "GROUP_RANK", "SLURM_NODEID")  # index of this rank's node
    device: int = _variable(int, 0, "LOCAL_RANK", "SLURM_LOCALID")  # index of the device to use
    share: float = _variable(float, 1.0, "DDP_SHARE")  # this rank's part of its device, at most 1
    restart: int = _variable(int, 0, "DDP_RESTART")  # number of restarts by ddp-run so far
    checkpoint: Optional[str] = _variable(str, None, "DDP_CHECKPOINT")  # directory of the checkpoints
    end_time: Optional[float] = _variable(float, None, "DDP_END_TIME", "SLURM_JOB_END_TIME")  # job's end, s since 1970


world = World()
_due = 0.0


def beat() -> None:
    """Show ddp-run --hang that this rank makes progress. Touches the file DDP_HEARTBEAT at most once a second."""
    global _due
    path, now = os.environ.get("DDP_HEARTBEAT"), time.monotonic()
    if not path or now < _due:
        return
    _due = now + 1
    with contextlib.suppress(OSError):  # as libddp: a heartbeat that cannot be written does not end a training
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        os.utime(path)
