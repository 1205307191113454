# SPDX-License-Identifier: Apache-2.0
"""frameworks.py NAME: two ranks train with a framework, of which rank 1 and its workers receive SIGTERM in the third step; again:
to the end.

Each rank prints a line "rank R: steps FIRST to LAST". The training has 10 steps.
"""
import multiprocessing
import os
import signal
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import slurm_ddp

seen = []


def add_step(step):
    seen.append(step)
    if step == 3 and slurm_ddp.world.rank == 1:
        workers = [str(worker.pid) for worker in multiprocessing.active_children()]
        subprocess.run(["kill", *workers], check=True)  # by a process that is not their parent, as slurmstepd
        os.kill(os.getpid(), signal.SIGTERM)


def samples():
    return TensorDataset(torch.ones(20, 1))


def transformers():
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(1, 1)

        def forward(self, x):
            add_step(trainer.state.global_step + 1)
            return {"loss": self.inner(x).sum()}

    os.makedirs("trainer", exist_ok=True)
    arguments = TrainingArguments(
        output_dir="trainer", per_device_train_batch_size=1, max_steps=10, use_cpu=True, save_strategy="no", report_to="none",
        disable_tqdm=True, dataloader_num_workers=1)
    trainer = Trainer(
        Model(), arguments, train_dataset=[{"x": torch.ones(1)}] * 20, callbacks=[slurm_ddp.stop.transformers_callback()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint("trainer"))


def lightning():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            add_step(self.global_step + 1)
            return self.inner(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_steps=10, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[slurm_ddp.stop.lightning_callback("stop.ckpt")])
    trainer.fit(Module(), DataLoader(samples(), num_workers=2), ckpt_path="stop.ckpt" if os.path.exists("stop.ckpt") else None)
    torch.distributed.destroy_process_group()


def accelerate():
    from accelerate import Accelerator

    stop = slurm_ddp.Stop()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(samples(), num_workers=1))
    first = 0
    if os.path.exists("state"):
        accelerator.load_state("state")
        first = int(open("step").read())
    for step, (x,) in enumerate(accelerator.skip_first_batches(loader, first), first + 1):
        add_step(step)
        accelerator.backward(model(x).sum())
        optimizer.step()
        if stop():
            accelerator.save_state("state")
            if accelerator.is_main_process:
                open("step", "w").write(str(step))
            break
    accelerator.end_training()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write(f"rank {slurm_ddp.world.rank}: steps {seen[0]} to {seen[-1]}\n")
