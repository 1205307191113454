# SPDX-License-Identifier: Apache-2.0
"""Ends a training early, after a checkpoint: on a signal, or before the job's time limit.

Slurm signals every process of a step, so also the workers of a DataLoader, which would end before the rank has written its
checkpoint. Stop() therefore changes how this process starts processes with multiprocessing:

1. The signals are blocked in a child from its beginning: while the parent forks it or executes it, they are blocked in the
   parent's thread, and the child inherits this. So does the fork server.
2. A thread of the child waits for these signals. If the parent sent one, as Process.terminate() does, the child ends, or runs
   its own handler. Others have no effect, since the parent receives them as well, and ends its children.
3. Programs that the child starts get the signals unblocked.
"""

import atexit
import contextlib
import functools
import json
import multiprocessing.process
import multiprocessing.util
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Optional

from .world import world

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Stop:
    """A request to end the training, on which all ranks agree after the same step.

        stop = slurm_ddp.Stop()
        for step in range(first, steps):
            train(step)
            if stop():
                save(step + 1)
                break

    Create it in the main thread, before DataLoaders start workers. It handles SIGTERM and SIGUSR1 until the program ends.
    """

    def __init__(self, before: float = 60):
        """[before]: seconds before the end of the job's time limit at which to stop."""
        self.reason: Optional[str] = None  # "SIGTERM", "SIGUSR1" or "time", once all ranks have agreed to stop
        self._signal = 0
        self._before = before
        self._handle_signals()
        _protect_children()

    def __call__(self) -> bool:
        """Return whether to save a checkpoint and stop. Collective: every rank calls it after each step.

        With torch.distributed, the ranks agree in an all-reduce of 4 bytes. Without, each rank decides alone.
        """
        if self.reason is None:
            time_is_up = world.end_time is not None and time.time() >= world.end_time - self._before
            cause = _maximum(self._signal or int(time_is_up))
            if cause:
                self._agreed("time" if cause == 1 else signal.Signals(cause).name)
        return self.reason is not None

    def _handle_signals(self):
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked if another Stop protects this process

    def _on_signal(self, number, frame):
        self._signal = self._signal or number

    def _agreed(self, reason):
        self.reason = reason
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # Slurm may repeat it while this rank exits
        if world.rank == 0:
            why = "the job's time ends soon" if reason == "time" else f"{reason} was received"
            print(f"slurm_ddp: {why}; all ranks stop after this step", file=sys.stderr, flush=True)
            atexit.register(_write_record, reason)


def lightning_callback(checkpoint: str):
    """Return a callback for Lightning's Trainer that saves [checkpoint], for fit(ckpt_path=), and ends the training.

    Create it in the main thread, before workers start.
    """
    from lightning.pytorch.callbacks import LambdaCallback

    stop = Stop()  # not in on_train_start, before which fit() starts workers

    def begin(trainer, module):
        stop._handle_signals()  # replaces Lightning's handler of SIGTERM, which calls a collective

    def check(trainer, module, *_):
        if not trainer.should_stop and stop():
            trainer.save_checkpoint(checkpoint)
            trainer.should_stop = True
            trainer.limit_val_batches = 0

    return LambdaCallback(on_sanity_check_start=begin, on_train_start=begin, on_train_batch_end=check)


def transformers_callback():
    """Return a callback for the Trainer of Transformers that saves a checkpoint and ends the training.

    Create it in the main thread, before workers start.
    """
    from transformers import TrainerCallback

    stop = Stop()

    class Callback(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if stop():
                control.should_save = control.should_training_stop = True

    return Callback()


def _maximum(cause):
    """Return the largest of all ranks' causes: 0, 1 if the time is up, or the number of a signal, which is more specific."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return cause
    import torch

    # The kinds of tensors that the process group supports, such as "cpu:gloo,cuda:nccl"; PyTorch 1 cannot say.
    kinds = getattr(dist, "get_backend_config", lambda: "cpu:")()
    largest = torch.tensor(cause, dtype=torch.int32, device="cpu" if "cpu:" in kinds else kinds.split(":")[0])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


def _write_record(reason):
    """Write the record by which ddp-run recognizes that this attempt has not failed, unless an exception ends the program."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not hasattr(sys, "last_value"):
        with contextlib.suppress(OSError), open(path, "w") as file:
            json.dump({"message": f"stopped: {reason}"}, file)


@contextlib.contextmanager
def _blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@functools.lru_cache(None)
def _protect_children():
    """Replace the two functions by which multiprocessing starts processes. The second one also starts its helpers."""
    start = multiprocessing.process.BaseProcess.start

    @_blocked()
    def start_protected(self):
        self.run = functools.partial(_run_protected, self.run)
        try:
            start(self)
        finally:
            del self.run

    multiprocessing.process.BaseProcess.start = start_protected
    multiprocessing.util.spawnv_passfds = _blocked()(multiprocessing.util.spawnv_passfds)  # it unblocks SIGTERM


def _run_protected(run):
    """Run a process of multiprocessing, in the child."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # a forked child has the handlers of Stop
    threading.Thread(target=_wait_for_parent, args=(multiprocessing.parent_process().pid,), daemon=True).start()
    subprocess.Popen.__init__ = functools.partialmethod(_start_program, subprocess.Popen.__init__)
    run()


def _wait_for_parent(parent):
    while True:
        received = signal.sigwaitinfo(SIGNALS)
        if received.si_pid != parent:
            continue
        if signal.getsignal(received.si_signo) == signal.SIG_DFL:
            os._exit(0)  # as PyTorch's handler in a worker, which Python does not see
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        signal.raise_signal(received.si_signo)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _start_program(self, init, *args, preexec_fn=None, **options):
    def unblock():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if preexec_fn:
            preexec_fn()

    init(self, *args, preexec_fn=unblock, **options)
