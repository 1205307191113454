# SPDX-License-Identifier: Apache-2.0
"""Runs of ddp-train on one GPU: train.py PART BUILD [small]; PART is train, ranks or sharing. Prints TAP.

    train    one rank: types, checkpoints between CPU and GPU, a killed training
    ranks    two ranks that pose as two hosts to NCCL (NCCL_HOSTID), so that it accepts one GPU for both
    sharing  ranks that share the GPU: sums staged through host memory, and NCCL's switch for shared GPUs

Most of it is MATRIX: each row is a run and the run that must have the same losses.
"""

import atexit
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PART, BUILD = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
SMALL = "small" in sys.argv  # few steps, for emulated GPUs
LIMIT = 100  # limit of a run, in seconds
STOPPED = 3  # exit status of a rank after a stop request

# With these rates, two ways of rounding give similar results.
PLAIN = ["--log-every", 1, "--optimizer", "sgd", "--warmup", 0, "--threads", 1, "--amp", "off"]
NETS = {"mnist": ["mnist", "--samples", 600, *PLAIN, "--lr", 0.02],
        "cifar": ["cifar", "--samples", 60, "--test-batch", 5, "--no-augment", *PLAIN, "--lr", 0.0001]}
# Samples per step of all ranks together; number of steps.
SIZES = {"mnist": (16, 20), "cifar": (8, 2 if SMALL else 10)}

# Columns: part, net, options, ranks, mode, reference, limit of the losses' relative distance (0:
# equal)
# mode: "alone", "hosts" (two hosts to NCCL), "staged", or "switch" (NCCL_MULTI_RANK_GPU_ENABLE)
# reference: "one": one rank with the whole batch; "cpus": the same number of ranks on CPUs;
# "again": the same run once more; None: the loss must fall
MATRIX = [
    *[("train", "mnist", ["--amp", amp], 1, "alone", None, 0) for amp in ("off", "tf32", "bf16", "fp16")],
    ("train", "mnist", ["--deterministic"], 1, "alone", "again", 0),
    ("ranks", "mnist", [], 2, "hosts", "one", 1e-3),
    ("ranks", "cifar", ["--sync-bn"], 2, "hosts", "one", 1e-3),
    *[("sharing", "mnist", [], ranks, "staged", "one", 1e-3) for ranks in (2, 4, 8)],
    *[("sharing", "mnist", [], ranks, "switch", "one", 1e-3) for ranks in (2, 4, 8)],
    ("sharing", "mnist", ["--wire", "bf16"], 4, "staged", "one", 3e-2),
    ("sharing", "cifar", ["--sync-bn"], 4, "staged", "one", 1e-3),
    # BatchNorm over the samples of each rank gives other results than over all samples.
    ("sharing", "cifar", [], 4, "staged", "cpus", 1e-3),
    *[("sharing", "mnist", ["--amp", amp], 4, "staged", None, 0) for amp in ("tf32", "fp16")],
    ("sharing", "mnist", ["--amp", "bf16", "--deterministic"], 4, "staged", "again", 0),
    ("sharing", "mnist", ["--virtual-ranks", 4, "--deterministic"], 4, "staged", "one", 0),
    ("sharing", "mnist", ["--virtual-ranks", 4, "--deterministic", "--amp", "bf16"], 2, "staged", "one", 0),
    ("sharing", "cifar", ["--virtual-ranks", 4, "--deterministic", "--amp", "auto"], 4, "staged", "one", 0),
]

count = failed = 0
started = []  # runs that were started


@atexit.register
def end_all():
    for run in started:
        run.kill()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def ok(good, text):
    global count, failed
    count, failed = count + 1, failed + (not good)
    print(f"{'ok' if good else 'not ok'} {count} - {text}", flush=True)
    return good


def note(text):
    for line in text.strip().splitlines()[-12:]:
        print(f"# {line}", flush=True)


class Run:
    """A run of ddp-train with [ranks] processes. Rank 0 writes a log in JSON."""

    def __init__(self, words, ranks=1, mode="staged", **more):
        self.directory = tempfile.TemporaryDirectory(prefix="ddp-gpu-run.")
        top = pathlib.Path(self.directory.name)
        self.log, self.outputs, self.processes = top / "log", [], []
        words = [BUILD / "ddp-train", *words, "--progress", "off", "--log-json", self.log]
        if ranks == 1 and "-n" not in words:
            words += ["-n", 1]
        started.append(self)
        for rank in range(ranks):
            self.outputs.append(top / f"out{rank}")
            with open(self.outputs[-1], "w") as out:
                self.processes.append(subprocess.Popen(
                    list(map(str, words)), env=self.environment(top, rank, ranks, mode, more), stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True))

    @staticmethod
    def environment(top, rank, ranks, mode, more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("SLURM_", "DDP_", "TORCHELASTIC_"))}
        kept.update(DDP_MODULES=os.environ.get("DDP_MODULES", str(BUILD)), DDP_TIMEOUT="60")
        kept.setdefault("CUDA_VISIBLE_DEVICES", "0")
        if ranks > 1:
            kept.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                        GROUP_RANK="0", GROUP_WORLD_SIZE="1", TORCHELASTIC_RUN_ID="gpu",
                        TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_MAX_RESTARTS="0", MASTER_ADDR="127.0.0.1",
                        MASTER_PORT="7", DDP_RENDEZVOUS=str(top), NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        if mode == "hosts":
            kept["NCCL_HOSTID"] = f"ddp-test-{rank}"
        if mode == "switch":
            kept["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        kept.update(more)
        return kept

    def wait(self, limit=LIMIT):
        """Returns the exit statuses. Kills a process that does not end; its status is None."""
        statuses, end = [], time.monotonic() + limit
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

    def output(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def entries(self, event=None):
        """Returns the entries of the log so far. The last line of the log may be incomplete."""
        lines = self.log.read_text().splitlines(keepends=True) if self.log.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [e for e in entries if event in (None, e["event"])]

    def losses(self):
        """Returns {step: loss}. The log has null for a loss that is not finite."""
        return {e["total"]: math.nan if e["loss"] is None else e["loss"] for e in self.entries("step")}

    def engine(self):
        return (self.entries("run") or [{"engine": "none"}])[0]["engine"]

    def reached(self, step):
        """Waits until [step] is in the log; returns False if a rank ends before that."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and all(p.poll() is None for p in self.processes):
            if max(self.losses(), default=0) >= step:
                return True
            time.sleep(0.02)
        return max(self.losses(), default=0) >= step


def good_run(text, words, **more):
    """Returns a run whose ranks all ended with 0. Otherwise prints a failed test and returns None."""
    run = Run(words, **more)
    statuses = run.wait()
    if all(status == 0 for status in statuses):
        return run
    ok(False, f"{text}: ended with {statuses}")
    note(run.output())
    return None


def distance(one, other):
    """Returns the largest relative distance of two series of losses: infinite if a step is missing or a loss not finite."""
    if not one or one.keys() != other.keys() or not all(map(math.isfinite, [*one.values(), *other.values()])):
        return float("inf")
    return max(abs(one[step] - other[step]) / abs(other[step]) for step in one)


# --- The matrix ------------------------------------------------------------------------------


def words_of(net, options, ranks, engine):
    batch, steps = SIZES[net]
    words = [*NETS[net], "--steps", steps, "--engine", engine]
    if "--virtual-ranks" in options:
        return [*words, "--batch", batch // options[options.index("--virtual-ranks") + 1], *options]
    return [*words, "--batch", batch // ranks, *options]


def check_row(net, options, ranks, mode, reference, limit):
    name = f"{net} {' '.join(map(str, options))}: {ranks} ranks, {mode}".replace(" :", ":").replace("1 ranks, ", "")
    words = words_of(net, options, ranks, "cuda")
    run = good_run(name, words, ranks=ranks, mode=mode)
    if not run:
        return
    losses = run.losses()
    if mode == "staged":
        ok(f"{ranks} ranks share GPU 0" in run.output(), f"{name}: the output names the path")
    if reference is None:
        values = list(losses.values())
        ok(values and values[-1] < values[0], f"{name}: the loss falls")
        return
    if reference == "again":
        other = good_run(f"{name}, again", words, ranks=ranks, mode=mode)
    elif reference == "cpus":
        other = good_run(f"{name}, on CPUs", words_of(net, options, ranks, "cpu"), ranks=ranks)
    else:
        more = [word for word in options if word not in ("--wire", "bf16")] if "--wire" in options else options
        other = good_run(f"{name}, one rank", words_of(net, more, 1, "cuda"))
    if other:
        far = distance(losses, other.losses())
        ok(far <= limit, f"{name}: {len(losses)} losses, distance {far:.1e} from those of '{reference}', limit {limit:.0e}")


# --- One rank --------------------------------------------------------------------------------


def relay(net, steps, engines):
    """Returns the losses of a training that moves from engine to engine, with [steps] on each engine."""
    losses = {}
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-state.") as state:
        for leg, engine in enumerate(engines):
            done = good_run(f"{net}: {steps} steps with --engine {engine}",
                            [*NETS[net], "--batch", 4, "--engine", engine, "--steps", steps * (leg + 1),
                             "--checkpoint", state])
            if not done:
                return {}
            ok(done.engine().startswith(engine), f"{net}: part {leg + 1} is on {done.engine()}")
            losses.update(done.losses())
    return losses


def test_checkpoints():
    """A training that moves from CPU to GPU and back has the same losses as one that stays on the CPU."""
    for net, (_, steps) in SIZES.items():
        far = distance(relay(net, steps, ["cpu", "cuda", "cpu"]), relay(net, 3 * steps, ["cpu"]))
        ok(far < 1e-3, f"{net}: losses from CPU to GPU and back, distance {far:.1e}")


def test_hidden():
    """Without a visible GPU, --engine cuda is refused with a reason, and auto uses the CPU."""
    words = [*NETS["mnist"], "--steps", 2]
    refused = Run([*words, "--engine", "cuda"], CUDA_VISIBLE_DEVICES="")
    ok(refused.wait()[0] not in (0, None) and "GPU" in refused.output(), "no GPU is visible: an error says so")
    note(refused.output())
    auto = Run([*words, "--engine", "auto"], CUDA_VISIBLE_DEVICES="")
    ok(auto.wait() == [0] and auto.engine().startswith("cpu"), "no GPU is visible: --engine auto uses the CPU")


# --- Kills -----------------------------------------------------------------------------------


def check_killed(ranks, victim, first, state, mode="staged"):
    """Kills rank [victim] after step [first]. The other ranks must end. Returns the last step."""
    run = Run([*NETS["mnist"], "--engine", "cuda", "--batch", 16 // ranks, "--checkpoint", state, "--checkpoint-steps",
               5, "--steps", 1000000, "--epochs", 1000000], ranks=ranks, mode=mode, DDP_TIMEOUT="15")
    if not ok(run.reached(first), f"{ranks} ranks train to step {first}"):
        note(run.output())
        run.kill()
        return None
    os.kill(run.processes[victim].pid, signal.SIGKILL)
    statuses = run.wait(60)
    others = [rank for rank in range(ranks) if rank != victim]
    ended = all(statuses[rank] not in (0, None) for rank in others)
    # NCCL's error says only that a peer was lost.
    named = mode == "hosts" or any(f"rank {victim}" in run.outputs[rank].read_text(errors="replace") for rank in others)
    if others and not ok(ended and named, f"rank {victim} of {ranks} is killed: the others end with "
                         f"{[statuses[rank] for rank in others]}, and name it if sums are staged"):
        note(run.output())
    return max(run.losses())


def test_kills(ranks, victims, resume, mode="staged"):
    """After each kill, the next run continues from the last checkpoint. The last run has [resume] ranks."""
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-state.") as state:
        last = 12
        for victim in victims:
            last = check_killed(ranks, victim, last, state, mode)
            if last is None:
                return
            last += 8
        for after in resume:
            again = good_run(f"the next run, on {after}", [
                *NETS["mnist"], "--engine", "cuda", "--batch", 16 // after, "--checkpoint", state, "--steps", last + 10,
                "--epochs", 1000000], ranks=after, mode=mode)
            if again:
                first = min(again.losses(), default=0)
                ok(5 < first <= last, f"the next run, on {after}, continues with step {first}")
            last += 20


# --- Memory ----------------------------------------------------------------------------------


def ask_driver(*query):
    """Returns the rows that nvidia-smi prints: none if nvidia-smi is not installed or fails."""
    try:
        done = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(", ") for line in done.stdout.splitlines() if line.strip()]


def test_memory():
    """Each of four ranks uses at most a quarter of the GPU, by its own report and by the driver's count."""
    total = [int(row[0]) << 20 for row in ask_driver("--query-gpu=memory.total")][:1] or [8 << 30]
    run = Run([*NETS["mnist"], "--engine", "cuda", "--batch", 4, "--epochs", 100000, "--steps", 1000000], ranks=4)
    run.reached(60)  # one epoch, so that kernels of an evaluation are loaded too
    held = {int(row[0]): int(row[1]) << 20 for row in ask_driver("--query-compute-apps=pid,used_memory")
            if row[1].isdigit()}
    run.processes[1].terminate()
    statuses = run.wait()
    if not ok(statuses == [STOPPED] * 4, f"one of 4 ranks is asked to stop: all end with {statuses}"):
        note(run.output())
        return
    reported = [rank["resident"] for entry in run.entries() for rank in entry.get("ranks", []) if "resident" in rank]
    ok(len(reported) >= 4 and 0 < max(reported) <= total[0] / 4,
       f"4 ranks report at most {max(reported, default=0) >> 20} MiB each, of {total[0] >> 20}")
    counted = [held[process.pid] for process in run.processes if process.pid in held]
    if counted:
        # More than the rank reports: kernels that libraries load later, and graphs.
        ok(max(counted) <= total[0] / 4 and max(counted) <= max(reported) + (512 << 20),
           f"the driver counts at most {max(counted) >> 20} MiB for each")


def test_launched():
    """ddp-train -n 4 on one GPU gives each rank a quarter. ddp-train refuses a share that is too small."""
    words = [*NETS["mnist"], "--engine", "cuda", "--steps", 20]
    run = good_run("ddp-train -n 4", [*words, "-n", 4])
    if run:
        ok("4 ranks share GPU 0, 25 % of its memory each" in run.output(), "ddp-train -n 4: a quarter for each")
    little = Run(words, ranks=2, DDP_SHARE="0.000001")
    statuses = little.wait()
    ok(all(status not in (0, None) for status in statuses) and "this rank may have" in little.output(),
       "a share that is too small is refused; the error names the need")
    note(little.output())


rows = [row for part, *row in MATRIX if part == PART]
for row in rows:
    if row[3] != "switch":
        check_row(*row)
if PART == "train":
    test_checkpoints()
    test_hidden()
    test_kills(1, [0], [1])
elif PART == "ranks":
    test_kills(2, [1], [2], mode="hosts")
else:
    test_launched()
    test_memory()
    test_kills(4, [0, 2, 3], [4, 1])
    for row in rows:  # the last test, because it may hang according to NVIDIA's documentation
        if row[3] == "switch":
            check_row(*row)
print(f"1..{count}")
sys.exit(failed > 0)
