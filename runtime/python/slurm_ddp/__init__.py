# SPDX-License-Identifier: Apache-2.0
"""libddp for PyTorch: a backend of torch.distributed, a checkpoint before the job ends, and heartbeats.

    import slurm_ddp
    torch.distributed.init_process_group("ddp")

An import of this package imports neither PyTorch nor libddp.
"""

import importlib.util
import os
import sys

from .stop import Stop
from .world import beat, world

__all__ = ["Stop", "beat", "world"]

_C10D = "torch.distributed.distributed_c10d"


def _register(c10d):
    def create(*arguments):
        version = sys.modules["torch"].__version__
        if tuple(map(int, version.split(".")[:2])) < (2, 7):  # which lose a collective that C++ waits for
            raise RuntimeError(f'the backend ddp needs PyTorch 2.7 or later, and this is {version}; use "gloo"')
        return importlib.import_module(".backend", __name__).ProcessGroupDDP(*arguments)

    if not hasattr(c10d.Backend, "DDP"):
        try:
            c10d.Backend.register_backend("ddp", create, devices=["cpu", "cuda"])
        except TypeError:  # PyTorch before 2.1, which create() refuses
            c10d.Backend.register_backend("ddp", create)


class _Registration:
    """Registers the backend once torch.distributed has been imported."""

    def find_spec(self, name, path, target=None):
        if name != _C10D:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), _register(module))
        return spec


if _C10D in sys.modules:
    _register(sys.modules[_C10D])
else:
    sys.meta_path.insert(0, _Registration())


def __getattr__(name):
    """Return the entry point of a program in this wheel, which replaces the process with the program."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin", name.replace("_", "-"))
    if not os.path.isfile(path):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda: os.execv(path, [path, *sys.argv[1:]])
