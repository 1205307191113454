# SPDX-License-Identifier: Apache-2.0
"""Loads libddp.so.1, and declares the structure and the functions of ddp.h that slurm_ddp uses."""

import ctypes
import functools
import os
from ctypes import c_bool, c_char_p, c_double, c_int, c_size_t, c_void_p


class Options(ctypes.Structure):
    """struct ddp_options"""

    _fields_ = [
        ("size", c_size_t),
        ("timeout", c_double),
        ("method", c_char_p),
        ("no_signals", c_bool),
        ("device", c_bool),
        *((n, c_int) for n in ("rank", "world_size", "local_rank", "local_size", "node_rank", "node_count")),
        ("job", c_char_p),
        ("directory", c_char_p),
    ]


# Arguments of each function. The functions return an int unless _RESULTS has another type.
_ARGUMENTS = {
    "ddp_version": (),
    "ddp_init": (ctypes.POINTER(c_void_p), ctypes.POINTER(Options)),
    "ddp_destroy": (c_void_p,),
    "ddp_error": (c_void_p,),
    "ddp_abort": (c_void_p, c_char_p, c_char_p),
    "ddp_all_reduce": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ddp_broadcast": (c_void_p, c_void_p, c_size_t, c_int),
    "ddp_all_gather": (c_void_p, c_void_p, c_void_p, c_size_t),
    "ddp_barrier": (c_void_p,),
    "ddp_device_join": (c_void_p,),
    "ddp_device_wait": (c_void_p, c_void_p),
}
for _name in ("all_reduce", "broadcast", "all_gather"):  # on a device: the same, and a stream
    _ARGUMENTS["ddp_device_" + _name] = (*_ARGUMENTS["ddp_" + _name], c_void_p)
_RESULTS = {"ddp_version": c_char_p, "ddp_error": c_char_p, "ddp_destroy": None, "ddp_abort": None}


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Return libddp, with prototypes: the one of this package, else the one that the dynamic linker finds."""
    places = ("lib", "../../../../lib")  # in a wheel, and in an unpacked tarball or prefix
    paths = (os.path.join(os.path.dirname(os.path.realpath(__file__)), place, "libddp.so.1") for place in places)
    libddp = ctypes.CDLL(next(filter(os.path.exists, paths), "libddp.so.1"))
    for name, arguments in _ARGUMENTS.items():
        function = getattr(libddp, name)
        function.argtypes, function.restype = arguments, _RESULTS.get(name, c_int)
    return libddp
