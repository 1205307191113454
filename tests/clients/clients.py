# SPDX-License-Identifier: Apache-2.0
"""clients.py NAME: one step of data-parallel training with a framework, as in its documentation.

The model is one weight w = 0, the loss of rank r is w (r + 1), the learning rate 1. So after a step over
W ranks, whose gradients are averaged, w is -(W + 1) / 2 on each of them, and anything else where ranks train alone or
some twice. Each prints

    rank R of W on NODE: w -2.5

These functions read no variables of Slurm or slurm-ddp, only their framework's API.
"""
import os
import sys


def print_result(rank, size, w):
    sys.stdout.write(f"rank {rank} of {size} on {os.environ['SLURMD_NODENAME']}: w {float(w):g}\n")
    sys.stdout.flush()


def weight():
    """A PyTorch model of one weight: forward() is w times its argument."""
    import torch

    class Weight(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return (self.w * x).sum()

    return Weight()


def sgd(model):
    import torch

    return torch.optim.SGD(model.parameters(), lr=1)


def ones(size):
    """A data set with one sample for each of [size] ranks."""
    import torch

    return torch.utils.data.TensorDataset(torch.ones(size, 1))


def pytorch():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = weight()
    both = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = sgd(both)
    both(torch.tensor(dist.get_rank() + 1.0)).backward()
    optimizer.step()
    print_result(dist.get_rank(), dist.get_world_size(), model.w)
    dist.destroy_process_group()


def fsdp():
    """FSDP2, and a checkpoint of torch.distributed.checkpoint that all ranks write and read."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = weight()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = sgd(model)
    model(torch.tensor(rank + 1.0)).backward()
    optimizer.step()
    state = model.state_dict()
    dcp.save(state, checkpoint_id="checkpoint")
    with torch.no_grad():
        model.w.mul_(0)
    dcp.load(state, checkpoint_id="checkpoint")
    model.load_state_dict(state)
    print_result(rank, size, model.w.full_tensor())
    dist.destroy_process_group()


def lightning():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = weight()

        def training_step(self, batch, _):
            return self.model(batch[0] * (self.global_rank + 1))

        def configure_optimizers(self):
            return sgd(self)

    import torch

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, torch.utils.data.DataLoader(ones(4)))
    print_result(trainer.global_rank, trainer.world_size, module.model.w)
    # Otherwise gloo's threads sometimes abort when the process ends.
    torch.distributed.destroy_process_group()


def accelerate():
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    inner = weight()
    model, optimizer = accelerator.prepare(inner, sgd(inner))
    accelerator.backward(model(torch.tensor(accelerator.process_index + 1.0)))
    optimizer.step()
    print_result(accelerator.process_index, accelerator.num_processes, inner.w)
    accelerator.end_training()


def transformers():
    import torch
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir="trainer", per_device_train_batch_size=1, max_steps=1, learning_rate=1, optim="sgd", use_cpu=True,
        lr_scheduler_type="constant", max_grad_norm=0, save_strategy="no", report_to="none", disable_tqdm=True)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = weight()

        def forward(self, x):
            return {"loss": self.inner(x * (arguments.process_index + 1))}

    model = Loss()
    Trainer(model, arguments, train_dataset=[{"x": torch.ones(1)}] * arguments.world_size).train()
    print_result(arguments.process_index, arguments.world_size, model.inner.w)


def deepspeed():
    import deepspeed
    import torch

    deepspeed.init_distributed("gloo")
    inner = weight()
    engine, _, _, _ = deepspeed.initialize(model=inner, optimizer=sgd(inner), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 100})
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    engine.backward(engine(torch.tensor(rank + 1.0)))
    engine.step()
    print_result(rank, size, inner.w)


def jax():
    import jax

    jax.distributed.initialize()
    import jax.numpy as jnp
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rank, size = jax.process_index(), jax.process_count()
    sharding = NamedSharding(Mesh(numpy.array(jax.devices()), ("rank",)), PartitionSpec("rank"))
    batch = jax.make_array_from_process_local_data(sharding, numpy.full(jax.local_device_count(), rank + 1.0, "float32"))
    gradient = jax.jit(jax.grad(lambda w, x: jnp.mean(w * x)))(0.0, batch)
    print_result(rank, size, -gradient)
    jax.distributed.shutdown()


def flax():
    import jax

    jax.distributed.initialize()
    import numpy
    import optax
    from flax import nnx
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rank, size = jax.process_index(), jax.process_count()
    sharding = NamedSharding(Mesh(numpy.array(jax.devices()), ("rank",)), PartitionSpec("rank"))
    batch = jax.make_array_from_process_local_data(sharding, numpy.full((1, 1), rank + 1.0, "float32"))
    model = nnx.Linear(1, 1, use_bias=False, kernel_init=nnx.initializers.zeros, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(1.0), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        optimizer.update(model, nnx.grad(lambda model: model(batch).mean())(model))

    step(model, optimizer, batch)
    print_result(rank, size, model.kernel[0, 0])
    jax.distributed.shutdown()


def composer():
    import torch
    from composer import Trainer
    from composer.models import ComposerModel
    from composer.utils import dist

    class Model(ComposerModel):
        def __init__(self):
            super().__init__()
            self.inner = weight()

        def forward(self, batch):
            return self.inner(batch[0] * (dist.get_global_rank() + 1))

        def loss(self, outputs, batch):
            return outputs

    dist.initialize_dist("cpu")
    model = Model()
    data = ones(dist.get_world_size())
    Trainer(
        model=model, optimizers=sgd(model), max_duration="1ba", device="cpu", progress_bar=False,
        train_dataloader=torch.utils.data.DataLoader(data, sampler=dist.get_sampler(data))).fit()
    print_result(dist.get_global_rank(), dist.get_world_size(), model.inner.w)


def ignite():
    import ignite.distributed as idist
    import torch

    def train(_):
        rank, size = idist.get_rank(), idist.get_world_size()
        model = idist.auto_model(weight())
        optimizer = idist.auto_optim(sgd(model))
        model(torch.tensor(rank + 1.0)).backward()
        optimizer.step()
        print_result(rank, size, model.module.w)

    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(train)


def mpi4py():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    gradient = world.allreduce(world.rank + 1.0) / world.size
    assert world.rank == int(os.environ["RANK"]), "MPI's rank is not the step's"
    print_result(world.rank, world.size, -gradient)


def submitit():
    """Submits pytorch() as a job and prints its ranks' logs."""
    import submitit

    executor = submitit.AutoExecutor(folder="submitit")
    executor.update_parameters(nodes=2, tasks_per_node=2, timeout_min=5, cpus_per_task=1, slurm_srun_args=["--ddp"])
    job = executor.submit(pytorch)
    job.results()
    for task in range(4):
        print("\n".join(line for line in job.task(task).stdout().splitlines() if line.startswith("rank ")))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
