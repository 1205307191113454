# SPDX-License-Identifier: Apache-2.0
"""program.py DIRECTORY: a rank of the training in a scenario, and its faults.

The training uses DistributedDataParallel over gloo, a DataLoader with a worker process, and a tqdm bar. It writes a
checkpoint after every second step, and stops after one on SIGTERM. DIRECTORY/plan.json has the number of steps
and the faults, each {"kind": NAME, "rank": R, "step": K}. Rank R applies the fault once, at the start of its step K:

    fault.I     written by the rank that applies fault I: step of Slurm, node and pid
    applied.I   written by scenarios after a fault that a rank cannot apply to itself
    started     a line for each rank that has imported PyTorch: step of Slurm, variable RANK
    ranks       a line for each step of each rank: step of Slurm, rank, world, step, sum of an all-reduce
    weights.R   final weights of rank R
"""
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

directory = pathlib.Path(sys.argv[1])
started = threading.Event()


def send_heartbeats():
    """Touches the heartbeat file until the first step, because imports print nothing."""
    while "DDP_HEARTBEAT" in os.environ and not started.wait(0.5):
        pathlib.Path(os.environ["DDP_HEARTBEAT"]).touch()


def append(name, *words):
    """Appends a line with one write, so that lines of several ranks do not mix."""
    fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


attempt = "%s.%s" % (os.environ["SLURM_JOB_ID"], os.environ["SLURM_STEP_ID"])
threading.Thread(target=send_heartbeats, daemon=True).start()

plan = json.loads((directory / "plan.json").read_text())
sys.path.insert(0, plan["modules"])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

# Ranks of other nodes run for 0.1 to 0.3 s, until Slurm has ended a step that one node refuses.
append("started", attempt, os.environ.get("RANK"))

try:
    from tqdm import tqdm
except ImportError:  # Debian's PyTorch
    def tqdm(steps, **_):
        return steps

BATCH = 8
stop_requested = []
stop = None


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
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    time.sleep(1e6)  # PyTorch raises an exception in its handler of SIGCHLD


def apply_fault(number, kind):
    written = directory / ("fault.%d.%d" % (number, os.getpid()))
    written.write_text("%s %s %d" % (attempt, os.environ["SLURMD_NODENAME"], os.getpid()))
    try:
        os.link(written, directory / ("fault.%d" % number))
    except FileExistsError:
        return
    {"exception": raise_exception,
     "exit 0": lambda _: sys.exit(0),
     "endless sleep": lambda _: time.sleep(1e6),
     "endless destructor": raise_in_destructor,
     "time limit": await_stop,
     "DataLoader worker killed": kill_worker}.get(kind, await_fault)(number)


def await_fault(number):
    while not (directory / ("applied.%d" % number)).exists():
        time.sleep(0.05)


def await_stop(_):
    while not (stop_requested or getattr(stop, "_signal", 0)):
        time.sleep(0.05)


def apply_faults(rank, step):
    for number, fault in enumerate(plan["faults"]):
        if (fault["rank"], fault["step"]) == (rank, step):
            apply_fault(number, fault["kind"])


def check_sum(rank, world, step):
    total = torch.tensor(plan["factor"] * (step + 1) * (rank + 1))
    dist.all_reduce(total)
    append("ranks", attempt, rank, world, step, int(total))


def write_weights(rank, model):
    weights = (w.hex() for p in model.parameters() for w in p.flatten().tolist())
    (directory / ("weights.%d" % rank)).write_text(" ".join(weights))


def make_model():
    """Returns a dataset, a model, its optimizer, and a function that returns the samples of a rank in a step."""
    torch.manual_seed(0)
    points = torch.randn(64, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def indices(rank, step):  # does not depend on earlier attempts
        order = torch.randperm(64, generator=torch.Generator().manual_seed(step)).tolist()
        return order[rank * BATCH:(rank + 1) * BATCH]

    return (TensorDataset(points, points.sum(1, keepdim=True).sin()), model,
            torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5), indices)


def stop_by_signal():
    """Returns a function that returns whether a rank got a signal, as in doc/restarts.md."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: stop_requested.append(1))

    def stop():
        requested = torch.tensor(len(stop_requested))
        dist.all_reduce(requested)
        if requested:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm may send it to a rank that already exits
        return bool(requested)

    return stop


def leave_out_dynamo():
    """Replaces a package that DDP imports and only torch.compile needs, because its import takes as long as that of torch."""
    torch._dynamo = sys.modules["torch._dynamo"] = mock.MagicMock(disable=lambda function, *_, **__: function, is_compiling=lambda: False)


def leave_out_packages(*names):
    """Hides packages that Lightning imports if it finds them, and that take longer to import than Lightning."""
    find = importlib.metadata.version

    def version(name):
        if name in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return find(name)

    importlib.metadata.version = version
    sys.modules.update(dict.fromkeys(names))


def train():
    global stop
    torch.set_num_threads(1)
    if "framework" not in plan:
        leave_out_dynamo()
    if plan.get("backend") == "ddp":
        import slurm_ddp
        stop = slurm_ddp.Stop()
    else:
        stop = stop_by_signal()
    if plan.get("sub-step"):
        subprocess.run(["srun", "-Q", "--overlap", "-N1", "-n1", "-w", os.environ["SLURMD_NODENAME"], "/bin/true"], check=True)
    dataset, model, optimizer, indices = make_model()
    if plan.get("framework") == "accelerate":
        import accelerate
        accelerator = accelerate.Accelerator(cpu=True)
    else:
        dist.init_process_group(plan.get("backend", "gloo"))
    rank, world = dist.get_rank(), dist.get_world_size()
    first = 0
    checkpoint = directory / "state" / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    if plan.get("framework") == "accelerate":
        ddp, optimizer = accelerator.prepare(model, optimizer)
    else:
        ddp = DistributedDataParallel(model)

    def save(step):
        if rank == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            tmp = checkpoint.with_name("tmp-%d.pt" % os.getpid())
            torch.save(state, tmp)
            os.replace(tmp, checkpoint)

    steps = range(first, plan["steps"])
    batches = iter(DataLoader(dataset, batch_sampler=[indices(rank, step) for step in steps], num_workers=1))
    started.set()
    for step in tqdm(steps, disable=rank != 0):
        apply_faults(rank, step)
        x, y = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
        check_sum(rank, world, step)
        if stop():
            save(step)
            break
        if step % 2:
            save(step)
    else:
        write_weights(rank, model)
    del ddp  # otherwise PyTorch 1.13 can hang; see doc/troubleshooting.md
    dist.destroy_process_group()


def train_with_lightning():
    """The same training: an epoch is a step. Lightning saves last.ckpt, and slurm_ddp saves stop.ckpt on a signal."""
    leave_out_packages("scipy", "transformers")
    import lightning
    import slurm_ddp
    from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint

    torch.set_num_threads(1)
    dataset, inner, _, indices = make_model()

    class Samples:
        """The samples of each epoch. The worker persists, because a fork during the training can hang; see doc/troubleshooting.md."""

        def __iter__(self):
            yield indices(trainer.global_rank, trainer.global_step)

        def __len__(self):
            return 1

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def training_step(self, batch, _):
            return torch.nn.functional.mse_loss(self.inner(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.5)

        def train_dataloader(self):
            return DataLoader(dataset, batch_sampler=Samples(), num_workers=1, persistent_workers=True)

    def begin(trainer, *_):
        started.set()
        apply_faults(trainer.global_rank, trainer.current_epoch)

    def end(trainer, *_):
        check_sum(trainer.global_rank, trainer.world_size, trainer.current_epoch)

    state = directory / "state"
    saved = sorted(state.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp",
        max_epochs=plan["steps"], logger=False, use_distributed_sampler=False,
        callbacks=[LambdaCallback(on_train_batch_start=begin, on_train_batch_end=end), ModelCheckpoint(state, every_n_epochs=2, save_last=True),
                   slurm_ddp.stop.lightning_callback(str(state / "stop.ckpt"))])
    trainer.fit(Module(), ckpt_path=saved[-1] if saved else None)
    if trainer.current_epoch == plan["steps"]:
        write_weights(trainer.global_rank, inner)
    dist.destroy_process_group()


def train_with_transformers():
    """The same training with the Trainer: an epoch is a step."""
    import slurm_ddp
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(1)
    dataset, inner, optimizer, indices = make_model()

    class Samples:
        def __iter__(self):
            yield indices(dist.get_rank(), trainer.state.global_step)

        def __len__(self):
            return 1

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            return {"loss": torch.nn.functional.mse_loss(self.inner(x), y)}

    class Steps(TrainerCallback):
        def on_step_begin(self, _, state, *__, **___):
            started.set()
            apply_faults(dist.get_rank(), state.global_step)

        def on_step_end(self, _, state, *__, **___):
            check_sum(dist.get_rank(), dist.get_world_size(), state.global_step - 1)

    class OurTrainer(Trainer):
        def get_train_dataloader(self):
            return DataLoader(dataset, batch_sampler=Samples(), num_workers=1, persistent_workers=True,
                              collate_fn=lambda rows: dict(zip("xy", map(torch.stack, zip(*rows)))))

    state = directory / "state"
    saved = [path.parent for path in state.glob("*/trainer_state.json")]  # the Trainer's last file of a checkpoint
    arguments = TrainingArguments(
        state, num_train_epochs=plan["steps"], save_strategy="steps", save_steps=2, max_grad_norm=0, use_cpu=True, report_to="none")
    trainer = OurTrainer(Model(), arguments, optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1)),
                         callbacks=[slurm_ddp.stop.transformers_callback(), Steps()])
    trainer.train(resume_from_checkpoint=str(max(saved, key=lambda path: int(path.name.split("-")[1]))) if saved else None)
    if trainer.state.global_step == plan["steps"]:
        write_weights(dist.get_rank(), inner)
    dist.destroy_process_group()


if __name__ == "__main__":
    {"lightning": train_with_lightning, "transformers": train_with_transformers}.get(plan.get("framework"), train)()
