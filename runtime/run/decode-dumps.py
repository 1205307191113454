# SPDX-License-Identifier: Apache-2.0
"""decode-dumps DIRECTORY SIZE: find the last collective of each rank in the dumps of PyTorch's flight recorder.

ddp-run runs this file with python3 and reads a JSON list from its standard output: an object for each rank of one process
group, {"rank": 2, "there": 1, "waits": 1, "sequence": 17, "last": "#17 nccl:all_reduce 1000 Float"}. "there" says that
the rank left a dump. The members after it are absent if the rank was in no collective of the group. Ranks are below SIZE.
The list is empty if no dump has an entry of a process group.

A dump, DIRECTORY/fr-<rank>, is a pickle written by torch's C++ code: {"version": "2.10", "entries": [{"process_group": ("0",
"default_pg"), "collective_seq_id": 17, "profiling_name": "nccl:all_reduce", "state": "started", ...}, ...], "pg_config":
{"0": {"ranks": "[0, 1, 2]", ...}}, ...}. "entries" has the collectives of all process groups in the order in which they
were enqueued. PyTorch 2.4 and later write these members; others are ignored.

A dump is as trustworthy as the program that wrote it. Each is decoded in a separate process with limits of time and
memory, and no function that the pickle names is called. A dump that cannot be decoded counts as absent.
"""

import collections
import gc
import io
import json
import os
import pickle
import re
import resource
import signal
import stat
import sys

DUMP_BYTES = 1 << 24  # limit for one dump, which usually has half a megabyte
SUMMARY_BYTES = 1 << 24
MEMORY_BYTES = 1 << 30
DUMP_MEMORY_BYTES = 1 << 28  # memory limit for one dump; a dump of 3 MB needs 16 MB
PROCESSES = 8  # number of processes at the same time
CPU_SECONDS = 2  # CPU time limit for one dump
GROUPS_OF_RANK = 256
GROUPS = 4096
TENSORS = 4096  # per collective
DIMENSIONS = 16  # per tensor


class Unpickler(pickle.Unpickler):
    """Accepts containers and scalars only. torch writes some lists as build_list([...]), which returns its argument."""

    def find_class(self, module, name):
        if module == "torch.jit._pickle" and re.fullmatch("build_[a-z]*list", name):
            return list
        raise pickle.UnpicklingError(f"{module}.{name}")


def member(mapping, key, kind):
    value = mapping.get(key) if isinstance(mapping, dict) else None
    return value if isinstance(value, kind) else None


def plain(text, limit):
    return "".join(char if char.isprintable() else "?" for char in text[:limit])


# --- One dump ---------------------------------------------------------------------------------------


def has_ended(entry):
    """Returns whether the collective is completed. Gloo marks that only as "retired"; NCCL retires incomplete ones, too."""
    return entry["state"] == "completed" or bool(
        member(entry, "retired", int) and entry["profiling_name"].startswith("gloo:"))


def is_entry(entry):
    group, sequence = member(entry, "process_group", (list, tuple)), member(entry, "collective_seq_id", int)
    return (group is not None and len(group) > 1 and isinstance(group[0], str) and isinstance(group[1], str)
            and sequence is not None and 0 <= sequence < 1 << 64
            and member(entry, "profiling_name", str) is not None and member(entry, "state", str) is not None)


def elements(tensor):
    product = 1
    for size in tensor[:DIMENSIONS] if isinstance(tensor, (list, tuple)) else []:
        product *= size if isinstance(size, int) else 0
    return product


def describe(entry, name, description):
    """Returns a text such as "#17 nccl:all_reduce 1000 Float", with the group unless it has all ranks."""
    text = f"#{int(entry['collective_seq_id'])} {plain(entry['profiling_name'], 48)}"
    tensors = member(entry, "input_sizes", (list, tuple))
    types = member(entry, "input_dtypes", (list, tuple))
    if tensors:
        text += f" {sum(map(elements, tensors[:TENSORS])) % (1 << 64)}"
    if types and isinstance(types[0], str):
        text += f" {plain(types[0], 16)}"
    if description != "default_pg":
        text += f" of group {plain(description if description not in ('', 'undefined') else name, 30)}"
    return text


def summarize(dump):
    """Returns whether the rank waits in an operation with one other rank, and its last collective in each group.

    The last collective is the last one that has ended or, if a later collective waits, the first of these. An operation
    that was sent together with others may never be marked as ended, so it counts as ended if a later operation is.
    """
    entries = member(dump, "entries", list)
    understood = [entry for entry in entries if is_entry(entry)]
    if entries and not understood:  # a rank that was in no collective has no entries
        raise ValueError("no entry is a collective")
    last, alone = {}, False
    for entry in understood:
        group, ended = tuple(entry["process_group"][:2]), has_ended(entry)
        if member(entry, "is_p2p", int):
            alone = not ended
        elif group in last or len(last) < GROUPS_OF_RANK:
            before, waits = last.get(group, (entry, False))
            last[group] = (entry if ended or not waits else before, not ended)
    configurations = member(dump, "pg_config", dict)
    return alone, [
        (name, description, member(member(configurations, name, dict), "ranks", str) or "",
         {"waits": int(waits), "sequence": int(entry["collective_seq_id"]), "last": describe(entry, name, description)})
        for (name, description), (entry, waits) in last.items()]


def read_dump(path):
    # O_NONBLOCK: a FIFO that has no writer must not block.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > DUMP_BYTES:
            raise ValueError("not a plain file, or too large")
        return Unpickler(io.BytesIO(file.read(info.st_size))).load()


def set_limit(kind, most):
    now = resource.getrlimit(kind)
    resource.setrlimit(kind, [most if limit == resource.RLIM_INFINITY else min(most, limit) for limit in now])


def start_summary(path):
    """Summarize a dump in a separate process, which may crash. Returns its pid and the pipe that it writes to."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            set_limit(resource.RLIMIT_CPU, CPU_SECONDS)
            set_limit(resource.RLIMIT_AS, DUMP_MEMORY_BYTES)
            gc.disable()
            text = json.dumps(summarize(read_dump(path)))
            with open(writable, "w") as pipe:
                pipe.write(text)
        finally:
            os._exit(0)
    os.close(writable)
    return pid, open(readable)


def end_summary(pid, pipe):
    with pipe:
        text = pipe.read(SUMMARY_BYTES)
    os.kill(pid, signal.SIGKILL)  # the process may still be writing
    os.waitpid(pid, 0)
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- All dumps --------------------------------------------------------------------------------------


class Dumps:
    def __init__(self, size):
        self.size = size
        self.ranks = set()  # ranks that left a dump
        self.waiting = set()  # ranks that wait, in any group or for one other rank
        # {(name, description, ranks): {rank: arrival}}. Groups of one name, such as the parts of a mesh, differ by their ranks.
        self.groups = {}

    def add(self, rank, summary):
        alone, arrivals = summary
        self.ranks.add(rank)
        if alone or any(arrival["waits"] for *_, arrival in arrivals):
            self.waiting.add(rank)
        for *group, arrival in arrivals:
            if tuple(group) in self.groups or len(self.groups) < GROUPS:
                self.groups.setdefault(tuple(group), {})[rank] = arrival

    def arrivals(self, group):
        """Returns an arrival for each rank of a group. If no dump lists the ranks, the default group has all ranks, and
        another group has the ranks that took part in one of its collectives."""
        _, description, ranks = group
        inside = {int(rank) for rank in re.findall("[0-9]{1,9}", ranks)}
        if not ranks and description == "default_pg":
            inside = set(range(self.size))
        inside.update(self.groups[group])
        return [{"rank": rank, "there": int(rank in self.ranks), **self.groups[group].get(rank, {})}
                for rank in sorted(inside) if rank < self.size]

    def weigh(self, arrivals):
        """Returns 3: a rank did not arrive in a collective, and waits in no group; 2: the ranks that did not arrive wait in
        another group; 1: all ranks arrived; 0: no rank waits.

        ddp_arrival_describe() uses the same rule to find ranks that did not arrive.
        """
        furthest = max((arrival["sequence"] for arrival in arrivals if arrival.get("waits")), default=None)
        if furthest is None:
            return 0
        missing = ([arrival for arrival in arrivals if not arrival["there"]]
                   or [arrival for arrival in arrivals if arrival.get("sequence", 0) < furthest])
        if not missing:
            return 1
        return 2 if any(arrival["rank"] in self.waiting for arrival in missing) else 3

    def choose(self):
        """Returns the arrivals of the group with the largest weight: a rank that is missing in one group may wait in another."""
        best, most = [], -1
        for group in self.groups:
            arrivals = self.arrivals(group)
            weight = self.weigh(arrivals)
            if weight > most:
                best, most = arrivals, weight
            if most == 3:
                break
        return best


def main(directory, size):
    set_limit(resource.RLIMIT_AS, MEMORY_BYTES)
    set_limit(resource.RLIMIT_CORE, 0)
    dumps, started = Dumps(size), collections.deque()
    found = sorted(int(name[3:]) for name in os.listdir(directory) if re.fullmatch("fr-(0|[1-9][0-9]{0,8})", name))

    def end_one():
        rank, child = started.popleft()
        summary = end_summary(*child)
        if summary:
            dumps.add(rank, summary)

    for rank in found:
        if rank < size:
            started.append((rank, start_summary(os.path.join(directory, f"fr-{rank}"))))
        if len(started) >= min(len(os.sched_getaffinity(0)) + 1, PROCESSES):
            end_one()
    while started:
        end_one()
    sys.stdout.buffer.write(json.dumps(dumps.choose(), ensure_ascii=False).encode())


main(sys.argv[1], int(sys.argv[2]))
