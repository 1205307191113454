# SPDX-License-Identifier: Apache-2.0
"""Runs of ddp-train for the tests of GPUs: one rank, or several as processes of one host.

Ranks that share one GPU do so, or pose as several hosts to NCCL (NCCL_HOSTID), which then talks over sockets.
"""

import atexit
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 100  # seconds that a run may take
GONE = ("SLURM_", "DDP_", "TORCHELASTIC_")
RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")

count = failed = 0
under_way = []


@atexit.register
def end_all():
    """No process is left behind, whatever ends this one; SIGTERM is timeout's."""
    for run in under_way:
        run.kill()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def ok(good, text):
    """A line of TAP."""
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {text}", flush=True)
    return good


def skip(text, why):
    global count
    count += 1
    print(f"ok {count} - {text} # skip {why}", flush=True)


def note(text):
    for line in text.strip().splitlines()[-12:]:
        print(f"# {line}", flush=True)


class Run:
    """[ranks] processes of ddp-train from the build in [build], with --log-json of rank 0."""

    def __init__(self, build, words, ranks=1, gone=(), posing=True, **more):
        self.directory = tempfile.TemporaryDirectory(prefix="ddp-gpu-run.")
        top, build = pathlib.Path(self.directory.name), pathlib.Path(build).resolve()
        self.log = top / "log"
        words = [str(build / "ddp-train"), *map(str, words), "--progress", "off",
                 "--log-json", str(self.log)]
        if ranks == 1 and "-n" not in words:
            words += ["-n", "1"]
        self.outputs = [top / f"out{rank}" for rank in range(ranks)]
        self.processes = []
        under_way.append(self)
        for rank in range(ranks):
            with open(self.outputs[rank], "w") as out:
                self.processes.append(subprocess.Popen(
                    words, env=self.environment(build, top, rank, ranks, gone, posing, more), stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True))

    @staticmethod
    def environment(build, top, rank, ranks, gone, posing, more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(GONE) and k not in RANK}
        kept.update(DDP_MODULES=str(build), XDG_CACHE_HOME=str(build), DDP_TIMEOUT="60")
        kept.setdefault("CUDA_VISIBLE_DEVICES", "0")
        if ranks > 1:
            kept.update(zip(RANK, map(str, (rank, ranks, rank, ranks, 0, 1))))
            kept.update(TORCHELASTIC_RUN_ID="gpu", TORCHELASTIC_RESTART_COUNT="0",
                        TORCHELASTIC_MAX_RESTARTS="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="7",
                        DDP_RENDEZVOUS=str(top), NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
            if posing:
                kept["NCCL_HOSTID"] = f"ddp-test-{rank}"
        kept.update(more)
        for name in gone:
            kept.pop(name, None)
        return kept

    def wait(self, limit=LIMIT):
        """The exit statuses; those that do not end are killed, and None."""
        statuses = []
        end = time.monotonic() + limit
        for process in self.processes:
            try:
                statuses.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                statuses.append(None)
        self.kill()
        return statuses

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def said(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def entries(self, event=None):
        """What the log has so far; its last line may be half written."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [e for e in entries if event is None or e["event"] == event]

    def losses(self):
        """{step: loss}"""
        return {e["total"]: e["loss"] for e in self.entries("step")}

    def engine(self):
        return (self.entries("run") or [{"engine": "none"}])[0]["engine"]

    def reached(self, step, limit=LIMIT):
        """Wait until [step] is in the log; whether it came."""
        end = time.monotonic() + limit
        while time.monotonic() < end and all(p.poll() is None for p in self.processes):
            if max(self.losses(), default=0) >= step:
                return True
            time.sleep(0.02)
        return max(self.losses(), default=0) >= step


def good_run(text, *args, **more):
    """A run that must end well; None where it did not, which is told."""
    run = Run(*args, **more)
    statuses = run.wait()
    if any(status != 0 for status in statuses):
        ok(False, f"{text}: ended with {statuses}")
        note(run.said())
        return None
    return run


def apart(one, other):
    """The largest relative distance of two series of losses; infinite where steps are missing."""
    if not one or one.keys() != other.keys():
        return float("inf")
    return max(abs(one[step] - other[step]) / abs(other[step]) for step in one)
