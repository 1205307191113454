# SPDX-License-Identifier: Apache-2.0
"""The backend "ddp" of torch.distributed: process groups whose collectives are those of libddp.

Each process group is a world of libddp. Its ranks learn their nodes and a directory from PyTorch's store, and join the
world through that directory. A thread of the group executes the collectives in the order of the program. If the program
waits for a collective at once, and the thread is idle, the calling thread executes it.
"""

import atexit
import ctypes
import json
import os
import queue
import shutil
import socket
import sys
import tempfile
import threading

import torch
from torch._C._distributed_c10d import ProcessGroup, ReduceOp, Work
from torch.distributed import DistBackendError

from . import _lib

# Values of enum ddp_type and enum ddp_op. libddp has neither booleans nor averages.
_ORDER = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8)
_TYPES = {**{t: number for number, t in enumerate(_ORDER)}, torch.bool: _ORDER.index(torch.uint8)}
_OPS = {ReduceOp.SUM: 0, ReduceOp.AVG: 0, ReduceOp.MAX: 1, ReduceOp.MIN: 2}
_USE_GLOO = 'use a group of gloo: torch.distributed.new_group(backend="gloo")'

_groups = []  # groups that have not left their world, in the order of their creation
os.register_at_fork(after_in_child=_groups.clear)


class _Work(Work):
    """A collective, which a thread executes with run()."""

    def __init__(self, call, result):
        super().__init__()
        self._call, self._result, self._error = call, result, None
        self._future = torch.futures.Future()  # completed at the end
        self._ended = threading.Event()  # set at the end; unlike the future, has a time limit

    def run(self):
        try:
            with torch.no_grad():
                self._call()
        except Exception as error:
            self._error = error
        self._call = None
        self._future.set_result(None)  # calls callbacks, which may call wait()
        self._ended.set()

    def is_completed(self):
        return self._future.done()

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else 0
        if not self._future.done() and not self._ended.wait(seconds if seconds > 0 else None):
            raise RuntimeError(f"the collective did not end in {seconds:g} s")
        if self._error:
            raise self._error
        return True

    synchronize = wait

    def result(self):
        self.wait()
        return self._result

    def get_future(self):
        """Return a future of the result. Callers in C++ get errors of callbacks, but not of set_exception()."""
        return self._future.then(lambda _: self.result())


class ProcessGroupDDP(ProcessGroup):
    """A process group that is a world of libddp."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = ""
        self._libddp, self._handle = _lib.library(), ctypes.c_void_p()
        self._side = None  # stream of collectives on a device, once libddp has joined the devices
        options = _meet(store, rank, size)
        options.timeout, self._directory = timeout.total_seconds(), options.directory
        try:
            self._check(self._libddp.ddp_init(ctypes.byref(self._handle), ctypes.byref(options)))
        except DistBackendError:
            self._libddp.ddp_destroy(self._handle)
            raise
        if options.node_count == 1:  # ranks of one node report errors in shared memory
            shutil.rmtree(self._directory, ignore_errors=True)
        self._use = threading.Lock()  # held by the thread that executes a collective
        self._pending = queue.SimpleQueue()
        self._last = None  # work that was queued last
        self._thread = threading.Thread(target=self._execute, name="slurm_ddp", daemon=True)
        self._thread.start()
        _groups.append(self)

    def getBackendName(self):
        return "ddp"

    # In C++ these belong to a backend, which this group does not have.
    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def shutdown(self):
        """Leave the world, which waits for the other ranks."""
        self._leave(None)

    def abort(self):
        """End the collectives of all ranks with an error."""
        self._leave("the process group was aborted")

    def _leave(self, reason):
        if self not in _groups:
            return
        _groups.remove(self)
        if reason:
            self._libddp.ddp_abort(self._handle, b"%s", reason.encode())
        self._pending.put(None)
        self._thread.join()  # after the last collective
        self._libddp.ddp_destroy(self._handle)
        shutil.rmtree(self._directory, ignore_errors=True)  # on each rank, because any of them may be killed

    def _check(self, status):
        if status < 0:
            raise DistBackendError(self._libddp.ddp_error(self._handle).decode(errors="replace"))

    def _execute(self):
        """Execute each pending work until None, in the thread of this group."""
        while (work := self._pending.get()) is not None:
            with self._use:
                work.run()
            del work

    def _start(self, collective, tensors, *columns, opts=None):
        """Call [collective] for each row of [columns], and return a work with the result [tensors]."""
        if self not in _groups:
            raise RuntimeError("this process is not, or no longer, a rank of this process group")

        def call():
            try:
                for row in zip(*columns):
                    collective(*row)
            except DistBackendError:
                raise
            except Exception as error:  # of this rank alone
                self._libddp.ddp_abort(self._handle, b"%s", f"{type(error).__name__}: {error}".rstrip(": ").encode())
                raise

        for t in tensors:
            if t.layout is not torch.strided or t.device.type not in ("cpu", "cuda"):
                raise RuntimeError(f"the backend ddp has no {t.layout} tensors on {t.device.type}; {_USE_GLOO}")
        work = _Work(self._on_device(call, tensors[0].device) if tensors and tensors[0].is_cuda else call, tensors)
        if threading.current_thread() is self._thread:
            work.run()  # a callback of a work starts it, and may wait for it; the order is the same on all ranks
        elif getattr(opts, "asyncOp", True) or not (self._last is None or self._last.is_completed()):
            self._last = work
            self._pending.put(work)
        else:
            with self._use:
                work.run()
        return work

    def _on_device(self, call, device):
        """Return a function that calls [call] on another stream, after the present work of this stream, and waits."""
        event = torch.cuda.current_stream(device).record_event()

        def run():
            if not self._side:
                self._check(self._libddp.ddp_device_join(self._handle))
                self._side = torch.cuda.Stream(device)
            with torch.cuda.stream(self._side):
                self._side.wait_event(event)
                call()
                self._side.synchronize()

        return run

    def _call(self, name, tensor, *arguments):
        """Call the collective [name] of libddp for the kind of memory in which [tensor] is."""
        prefix, stream = ("ddp_device_", [self._side.cuda_stream]) if tensor.is_cuda else ("ddp_", [])
        self._check(getattr(self._libddp, prefix + name)(self._handle, *arguments, *stream))
        if stream:
            self._check(self._libddp.ddp_device_wait(self._handle, *stream))

    # --- Collectives of one tensor, inside _start() ---------------------------------------------------

    def _all_reduce(self, send, recv, op):
        """Reduce [send] of all ranks to [recv], which may be [send]."""
        source, target = send.contiguous(), recv.contiguous()
        code = _OPS[ReduceOp.MAX if recv.dtype is torch.bool and op == ReduceOp.SUM else op]
        self._call("all_reduce", recv, source.data_ptr(), target.data_ptr(), target.numel(), _TYPES[recv.dtype], code)
        if op == ReduceOp.AVG:
            # Integers are divided as by NCCL. Lightning averages them if the backend is not named gloo.
            target.div_(self._size, rounding_mode=None if target.is_floating_point() else "trunc")
        if target is not recv:
            recv.copy_(target)

    def _broadcast(self, tensor, root):
        target = tensor.contiguous()
        self._call("broadcast", target, target.data_ptr(), target.nbytes, root)
        if target is not tensor:
            tensor.copy_(target)

    def _all_gather(self, send, recv):
        """Gather [send] of all ranks in [recv]."""
        source, target = send.contiguous(), recv.contiguous()
        self._call("all_gather", source, source.data_ptr(), target.data_ptr(), source.nbytes)
        if target is not recv:
            recv.copy_(target)

    def _gather(self, send, outputs):
        """Gather [send] of all ranks in the list [outputs], which is empty on ranks that do not need the result."""
        parts = send.new_empty((self._size, *send.shape))
        self._all_gather(send, parts)
        for output, part in zip(outputs, parts):
            output.copy_(part)

    def _reduce_scatter(self, send, recv, op):
        """Reduce [send] of all ranks, and copy this rank's part to [recv]."""
        parts = torch.empty_like(send, memory_format=torch.contiguous_format)
        self._all_reduce(send, parts, op)
        recv.copy_(parts.view(self._size, *recv.shape)[self._rank])

    def _scatter(self, recv, inputs, root):
        """Copy each tensor of the list [inputs] of rank [root] to [recv] of one rank."""
        parts = torch.stack(inputs) if self._rank == root else recv.new_empty((self._size, *recv.shape))
        self._broadcast(parts, root)
        recv.copy_(parts[self._rank])

    # --- Methods of ProcessGroup ----------------------------------------------------------------------

    def _operation(self, opts, tensors):
        """Return the operation of [opts], after a check that libddp has it for [tensors]."""
        op = opts.reduceOp.op
        for t in tensors:
            if op not in _OPS or t.dtype not in _TYPES or (op == ReduceOp.AVG and t.dtype is torch.bool):
                raise RuntimeError(f"the backend ddp has no {op.name} of {t.dtype}; {_USE_GLOO}")
        return op

    def _check_sizes(self, parts, wholes):
        for part, whole in zip(parts, wholes):
            if part.numel() * self._size != whole.numel() or part.dtype != whole.dtype:
                whole, part = f"{whole.numel()} elements of {whole.dtype}", f"{part.numel()} of {part.dtype}"
                raise ValueError(f"the tensor of all {self._size} ranks has {whole}, and the tensor of one rank has {part}")

    def _check_lists(self, lists, tensors):
        for parts, one in zip(lists, tensors):
            if len(parts) != self._size or any(p.shape != one.shape or p.dtype != one.dtype for p in parts):
                raise RuntimeError(
                    f"the backend ddp needs a list of {self._size} tensors of shape {tuple(one.shape)} and {one.dtype}, "
                    f"one for each rank; for unequal shapes {_USE_GLOO}"
                )

    def allreduce(self, tensors, opts):
        op = self._operation(opts, tensors)
        return self._start(lambda t: self._all_reduce(t, t, op), tensors, tensors, opts=opts)

    def broadcast(self, tensors, opts):
        root = opts.rootRank
        return self._start(lambda t: self._broadcast(t, root), tensors, tensors, opts=opts)

    def reduce(self, tensors, opts):
        op = self._operation(opts, tensors)
        targets = tensors if opts.rootRank == self._rank else [torch.empty_like(t) for t in tensors]
        return self._start(lambda t, target: self._all_reduce(t, target, op), tensors, tensors, targets, opts=opts)

    def allgather(self, outputs, inputs, opts=None):
        self._check_lists(outputs, inputs)
        return self._start(self._gather, outputs[0], inputs, outputs, opts=opts)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """Gather each tensor of [inputs] in the lists [outputs], which hold such tensors of one rank each."""
        return self.allgather([list(parts) for parts in zip(*outputs)], inputs, opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        self._check_sizes(inputs, outputs)
        return self._start(self._all_gather, outputs, inputs, outputs, opts=opts)

    def _allgather_base(self, output, input, opts=None):
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def gather(self, outputs, inputs, opts):
        self._check_lists(outputs, inputs)  # [outputs] is empty on the other ranks
        return self._start(self._gather, inputs, inputs, outputs or [[]], opts=opts)

    def scatter(self, outputs, inputs, opts):
        root = opts.rootRank
        self._check_lists(inputs, outputs)  # [inputs] is empty on the other ranks
        return self._start(lambda o, i: self._scatter(o, i, root), outputs, outputs, inputs or [[]], opts=opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        self._check_sizes(outputs, inputs)
        op = self._operation(opts, inputs)
        return self._start(lambda i, o: self._reduce_scatter(i, o, op), outputs, inputs, outputs, opts=opts)

    def _reduce_scatter_base(self, output, input, opts):
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter(self, outputs, inputs, opts):
        self._check_lists(inputs, outputs)
        return self.reduce_scatter_tensor_coalesced(outputs, [torch.stack(parts) for parts in inputs], opts)

    def barrier(self, opts=None):
        return self._start(lambda libddp: self._check(libddp.ddp_barrier(self._handle)), [], [self._libddp], opts=opts)

    def _end_coalescing(self, device):
        return self._start(None, [], [])

    allreduce_coalesced = allreduce
    # Newer names, and those that a program in C++ calls.
    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    _start_coalescing = start_coalescing = lambda self, device: None
    end_coalescing = _end_coalescing

    def _unsupported(self, *arguments, **options):
        raise RuntimeError(f"the backend ddp has neither send and recv nor all_to_all; {_USE_GLOO}")

    send = recv = recv_anysource = alltoall = alltoall_base = all_to_all_single = _unsupported


def _meet(store, rank, size):
    """Return the options for this rank, with a directory that rank 0 has created."""
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    base = os.environ.get("DDP_RENDEZVOUS") or None  # storage that all nodes see
    store.set(f"host-{rank}", host)
    if rank == 0:
        hosts = [store.get(f"host-{other}").decode() for other in range(size)]
        if not base and len(set(hosts)) > 1:
            base = os.path.join(os.getcwd(), ".ddp")
            os.makedirs(base, mode=0o700, exist_ok=True)
        store.set("world", json.dumps([hosts, tempfile.mkdtemp(prefix="group-", dir=base)]))
    hosts, directory = json.loads(store.get("world"))
    nodes = list(dict.fromkeys(hosts))
    options = _lib.Options(size=ctypes.sizeof(_lib.Options), no_signals=True, rank=rank, world_size=size)
    options.local_rank, options.local_size = hosts[:rank].count(host), hosts.count(host)
    options.node_rank, options.node_count = nodes.index(host), len(nodes)
    options.job, options.directory = os.path.basename(directory).encode(), os.fsencode(directory)
    return options


@atexit.register
def _leave_all():
    """Leave all worlds. If an exception ends this process, the other ranks get its text."""
    value = getattr(sys, "last_value", None)
    for group in list(_groups):
        group._leave(f"{type(value).__name__}: {value}" if value else None)
