# SPDX-License-Identifier: Apache-2.0
"""hangs.py CASE [STEPS]: ranks whose main thread prints no complete line.

tqdm, lightning, dots: rank 0 shows STEPS steps of two seconds each, as a bar of that kind. Without STEPS it shows four, and hangs.

child, store, asyncio: all ranks hang, while a child writes to a file, threads poll rank 0's store, or an event loop of
another thread writes.
"""
import asyncio
import datetime
import os
import signal
import subprocess
import sys
import threading
import time

from startup import rank, started


def tqdm(steps):
    from tqdm import tqdm as bar
    started.set()
    for _ in bar(range(1000), total=1000):
        time.sleep(2)
        steps -= 1
        if steps == 0:
            return


def lightning(steps):
    import lightning
    import torch
    from lightning.pytorch.callbacks import TQDMProgressBar
    from lightning.pytorch.plugins.environments import LightningEnvironment

    class Model(lightning.LightningModule):
        def training_step(self, batch, index):
            started.set()
            time.sleep(2)
            if index + 1 == steps:
                self.trainer.should_stop = True
                if len(sys.argv) < 3:
                    signal.pause()
            return torch.nn.functional.mse_loss(self.layer(batch), batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    model = Model()
    model.layer = torch.nn.Linear(2, 2)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, logger=False, max_epochs=1, enable_checkpointing=False,
                                callbacks=[TQDMProgressBar()], plugins=[LightningEnvironment()])
    trainer.fit(model, torch.utils.data.DataLoader(torch.zeros(1000, 2)))


def dots(steps):
    started.set()
    for _ in range(steps):
        print(".", end="", flush=True)
        time.sleep(2)


def child(_):
    subprocess.Popen([sys.executable, "-c", "import time\nwhile True: print(1, flush=True); time.sleep(1)"],
                     stdout=open("child.%d" % rank, "w"))


def store(_):
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))

    def poll():
        other = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        while True:
            other.set("polled by %d" % rank, "yes")
            time.sleep(0.1)

    threading.Thread(target=poll, daemon=True).start()


def loop(_):
    async def write():
        with open("loop.%d" % rank, "w") as file:
            while True:
                print(1, file=file, flush=True)
                await asyncio.sleep(0.5)

    threading.Thread(target=asyncio.run, args=(write(),), daemon=True).start()


case = {"tqdm": tqdm, "lightning": lightning, "dots": dots, "child": child, "store": store, "asyncio": loop}[sys.argv[1]]
if rank == 0 or case in (child, store, loop):
    case(int(sys.argv[2]) if len(sys.argv) > 2 else 4)
started.set()
if len(sys.argv) < 3:
    signal.pause()
