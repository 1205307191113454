# SPDX-License-Identifier: Apache-2.0
"""Compares the backend "ddp" with gloo: backend.py NAME..., where each NAME is a function of this file

Each rank prints "rank R of W: NAME" after each of them. With "spawn N" in front, this process starts N ranks with
torch.multiprocessing. All other launchers set env://. With "each" in front, each argument NAME+NAME... is a world of its own, of
forked children, since some functions end the process.
"""
import contextlib
import glob
import os
import sys
import time

import slurm_ddp  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8)
COUNTS = (0, 1, 5, 1000, 70001)


def print_line(*words):
    """Prints with one write, so that lines of ranks that share a pipe do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def numbers(count, dtype, seed=0):
    """Returns small integers that differ between ranks, so that sums are exact in all types."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    return torch.randint(0, 9, (count,), generator=generator).to(dtype)


def both(call):
    """Returns what call(group) returns, and checks that it is the same with the backends ddp and gloo."""
    ours, theirs = call(None), call(GLOO)
    torch.testing.assert_close(ours, theirs)
    return ours


# --- Collectives --------------------------------------------------------------------------------------


def all_reduce():
    for dtype in TYPES:
        for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN):
            for count in COUNTS:
                for asynchronous in (False, True):

                    def call(group):
                        tensor = numbers(count, dtype)
                        work = dist.all_reduce(tensor, op, group, asynchronous)
                        if work:
                            work.wait()
                        return tensor

                    both(call)
    mean = numbers(1000, torch.float32)
    dist.all_reduce(mean, ReduceOp.AVG)
    total = numbers(1000, torch.float32)
    dist.all_reduce(total, group=GLOO)
    torch.testing.assert_close(mean, total / dist.get_world_size())
    size = dist.get_world_size()
    dist.all_reduce(quotient := torch.tensor([size - 1, -1]) * (dist.get_rank() == 0), ReduceOp.AVG)
    assert quotient.tolist() == [0, 0], quotient
    dist.all_reduce(quotient := torch.tensor([7, -7]), ReduceOp.AVG)
    assert quotient.tolist() == [7, -7], quotient
    columns = numbers(12, torch.float32).view(3, 4).t()  # not contiguous
    rows = columns.contiguous()
    dist.all_reduce(columns)
    dist.all_reduce(rows, group=GLOO)
    torch.testing.assert_close(columns, rows)
    any_rank = torch.tensor([dist.get_rank() == 0, False])
    dist.all_reduce(any_rank)
    assert any_rank.tolist() == [True, False]
    parameter = torch.nn.Parameter(torch.ones(3))
    dist.all_reduce(parameter.detach(), ReduceOp.AVG)
    parts = [numbers(3, torch.float32), numbers(4, torch.float32)]
    with dist._coalescing_manager():
        for part in parts:
            dist.all_reduce(part)
    dist.all_reduce(same := numbers(3, torch.float32), group=GLOO)
    torch.testing.assert_close(parts[0], same)


def others():
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype in TYPES:
        for root in range(size):
            both(lambda group: [tensor := numbers(7, dtype), dist.broadcast(tensor, root, group)][0])

            def reduce(group):
                dist.reduce(tensor := numbers(7, dtype), root, group=group)
                return tensor if rank == root else None

            def gather(group):
                parts = [torch.empty(7, dtype=dtype) for _ in range(size)] if rank == root else None
                dist.gather(numbers(7, dtype), parts, root, group)
                return parts

            def scatter(group):
                parts = [numbers(7, dtype, part) for part in range(size)] if rank == root else None
                dist.scatter(part := torch.empty(7, dtype=dtype), parts, root, group)
                return part

            both(reduce)
            both(gather)
            both(scatter)

        def all_gather(group):
            parts = [torch.empty(7, dtype=dtype) for _ in range(size)]
            dist.all_gather(parts, numbers(7, dtype), group)
            return parts

        def all_gather_single(group):
            dist.all_gather_into_tensor(whole := torch.empty(size * 7, dtype=dtype), numbers(7, dtype), group)
            return whole

        def all_gather_coalesced(group):
            parts = [[torch.empty(7, dtype=dtype), torch.empty(2, dtype=dtype)] for _ in range(size)]
            dist.all_gather_coalesced(parts, [numbers(7, dtype), numbers(2, dtype)], group)
            return [part for of_rank in parts for part in of_rank]

        both(all_gather)
        both(all_gather_single)
        both(all_gather_coalesced)
        part = torch.empty(7, dtype=dtype)
        dist.reduce_scatter_tensor(part, numbers(7 * size, dtype))
        dist.all_reduce(whole := numbers(7 * size, dtype), group=GLOO)
        torch.testing.assert_close(part, whole.view(size, 7)[rank])
        wholes = [numbers(7, dtype, seed) for seed in range(size)]
        dist.reduce_scatter(part, wholes)
        for whole in wholes:
            dist.all_reduce(whole, group=GLOO)
        torch.testing.assert_close(part, wholes[rank])
    for root in range(size):
        total = torch.tensor([rank + 1])
        dist.reduce(total, root)
        assert total.item() == (size * (size + 1) // 2 if rank == root else rank + 1)
    dist.barrier()
    dist.all_gather_object(objects := [None] * size, {"rank": rank})
    assert objects == [{"rank": other} for other in range(size)]
    dist.broadcast_object_list(objects := [{"rank": rank}], src=size - 1)
    assert objects == [{"rank": size - 1}]
    dist.gather_object(rank, gathered := [None] * size if rank == 0 else None)
    assert gathered in (None, list(range(size)))
    dist.scatter_object_list(scattered := [None], [f"for {other}" for other in range(size)])
    assert scattered == [f"for {rank}"]


def unsupported():
    for call in (
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.int8)),
        lambda: dist.all_reduce(torch.ones(3), ReduceOp.PRODUCT),
        lambda: dist.all_reduce(torch.tensor([True]), ReduceOp.AVG),
        lambda: dist.all_reduce(torch.ones(3).to_sparse()),
        lambda: dist.all_reduce(torch.ones(3, device="meta")),
        lambda: dist.all_gather([torch.ones(3)], torch.ones(3)),
        lambda: dist.all_gather([torch.ones(3)] * dist.get_world_size(), torch.ones(1)),
        lambda: dist.reduce_scatter(torch.ones(3), [torch.ones(3 + r) for r in range(dist.get_world_size())]),
        lambda: dist.send(torch.ones(3), (dist.get_rank() + 1) % dist.get_world_size()),
    ):
        try:
            call()
        except RuntimeError as error:
            assert 'new_group(backend="gloo")' in str(error), error
        else:
            raise AssertionError("no error")


def subgroups():
    """Groups of the ranks of a node, of one rank per node, of all ranks, and of ranks in another order."""
    size, rank = dist.get_world_size(), dist.get_rank()
    hosts = [None] * size
    dist.all_gather_object(hosts, os.environ.get("SLURMD_NODENAME", "host"))
    by_host = {host: [other for other in range(size) if hosts[other] == host] for host in hosts}
    lists = [*by_host.values(), list(range(size)), [size - 1, 0], [0]]
    lists += [[ranks[i] for ranks in by_host.values()] for i in range(min(map(len, by_host.values())))]
    for ranks in lists:
        group = dist.new_group(ranks, backend="ddp")
        if rank in ranks:
            dist.all_reduce(total := torch.tensor([rank]), group=group)
            assert total.item() == sum(ranks), (ranks, total)
            dist.destroy_process_group(group)
    dist.barrier()


# --- Training -----------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """A network with a layer that only some steps use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(20, 300)
        self.norm = torch.nn.LayerNorm(300)
        self.extra = torch.nn.Linear(300, 300)
        self.last = torch.nn.Linear(300, 3)

    def forward(self, x, extra=True):
        x = torch.relu(self.norm(self.first(x)))
        return self.last(self.extra(x) if extra else x)


def train(group, steps=4, optimizer=None, wrap=None, context=None, extra=True, uneven=False, **options):
    """Returns the weights after a few steps with DDP and [options] on [group]."""
    model = DistributedDataParallel(Net(), process_group=group, bucket_cap_mb=0.1, **options)
    if wrap:
        wrap(model, group)
    optimizer = optimizer(model, group) if optimizer else torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
    steps += dist.get_rank() if uneven else 0
    with model.join() if uneven else contextlib.nullcontext():
        for step in range(steps):
            torch.manual_seed(100 * step + dist.get_rank())
            data = torch.randn(8, 20)
            use_extra = extra if isinstance(extra, bool) else extra(step)
            with model.no_sync() if context and step % 2 == 0 else contextlib.nullcontext():
                model(data, use_extra).square().mean().backward()
            if not context or step % 2:
                optimizer.step()
                optimizer.zero_grad()
    return [p.detach() for p in model.module.parameters()]


def ddp():
    weights = both(train)
    dist.all_gather_into_tensor(all_first := torch.empty(dist.get_world_size() * 6000), weights[0].view(-1))
    assert (all_first.view(-1, 6000) == weights[0].view(-1)).all(), "the weights of the ranks differ"


def ddp_options():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    both(lambda group: train(group, find_unused_parameters=True, extra=lambda step: step % 2 == 0))
    both(lambda group: train(group, static_graph=True))
    both(lambda group: train(group, gradient_as_bucket_view=True))
    both(lambda group: train(group, context=True))
    both(lambda group: train(group, uneven=True))
    both(lambda group: train(
        group, wrap=lambda model, group: model.register_comm_hook(group, default_hooks.bf16_compress_hook)))
    # Callbacks of this hook start collectives and wait for them. gloo does not order those of several buckets.
    train(None, wrap=lambda model, group: model.register_comm_hook(
        powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook))
    both(lambda group: train(group, optimizer=lambda model, group: ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)))


def sync_batch_norm():
    """Is for GPUs alone in some releases of PyTorch, with any backend."""

    def call(group):
        torch.manual_seed(dist.get_rank())
        return torch.nn.SyncBatchNorm(3, process_group=group)(torch.randn(4, 3)).detach()

    try:
        both(call)
    except ValueError as error:
        assert "GPU" in str(error), error


def fsdp():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def run(group):
        mesh = DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
        model = Net()
        fully_shard(model.extra, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(3):
            torch.manual_seed(100 * step + dist.get_rank())
            model(torch.randn(8, 20)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, [p.full_tensor().detach() for p in model.parameters()]

    model, weights = run(None)
    torch.testing.assert_close(weights, run(GLOO)[1])
    path = os.path.join(os.getcwd(), "checkpoint")
    dcp.save(get_model_state_dict(model), checkpoint_id=path)
    state = get_model_state_dict(model)
    for value in state.values():
        value.to_local().zero_()
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state)
    torch.testing.assert_close([p.full_tensor().detach() for p in model.parameters()], weights)


# --- Failures -----------------------------------------------------------------------------------------


def fail(how):
    """A rank fails in a training: [how] is "killed", "exit" or "raised", and a number. Each other rank prints the error that it gets."""
    how, failing = how.split(":")
    rank = dist.get_rank()
    model = DistributedDataParallel(Net())
    for step in range(1000):
        if step == 3 and rank == int(failing):
            print_line(f"rank {rank}: fails")
            if how == "killed":
                os.kill(os.getpid(), 9)
            if how == "exit":
                sys.exit(3)
            raise ValueError("no more data")
        try:
            model(torch.randn(8, 20)).square().mean().backward()
        except RuntimeError as error:
            print_line(f"rank {rank}: {how}:", str(error).split("\n")[0])
            sys.exit(0)


def fail_async():
    """Rank 0 ends with an exception during a collective that rank 1 never calls."""
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3), async_op=True)
        raise ValueError("no more data")
    try:
        dist.barrier()
        dist.barrier()
    except RuntimeError as error:
        print_line("rank 1: async:", error)


def leave():
    """Ends without destroy_process_group(), while a collective of another thread may be running."""
    dist.all_reduce(torch.ones(1000000), async_op=True)


def fork():
    """A forked child cannot use the group, and does not disturb its parent."""
    pid = os.fork()
    if pid == 0:
        try:
            dist.barrier()
        except RuntimeError:
            print_line(f"rank {dist.get_rank()} of {dist.get_world_size()}: fork, in a child")
        sys.exit(0)
    os.waitpid(pid, 0)
    dist.barrier()


def run(names):
    global GLOO
    GLOO = dist.new_group(backend="gloo")
    for name in names:
        function, _, argument = name.partition("=")
        globals()[function](*[argument] if argument else [])
        print_line(f"rank {dist.get_rank()} of {dist.get_world_size()}: {name}")


def main(names):
    dist.init_process_group("ddp" if "MASTER_ADDR" in os.environ else None)
    run(names)
    if names[-1] != "leave":
        dist.destroy_process_group()


def run_each(worlds):
    for number, names in enumerate(worlds):
        pid = os.fork()
        if pid == 0:
            main(names.split("+"))
            sys.exit(0)
        os.waitpid(pid, 0)
        # The next world uses the same port.
        open(f"ended.{number}.{os.environ['RANK']}", "w").close()
        while len(glob.glob(f"ended.{number}.*")) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.05)


def spawned(rank, size, port, names):
    dist.init_process_group("ddp", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    run(names)


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        torch.multiprocessing.spawn(spawned, (int(sys.argv[2]), free, sys.argv[3:]), int(sys.argv[2]))
    elif sys.argv[1] == "each":
        run_each(sys.argv[2:])
    else:
        main(sys.argv[1:])
