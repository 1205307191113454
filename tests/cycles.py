#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
cycles.py - the runtime's directories call one way only, and so do its files

An object calls another one if it needs a symbol that the other one defines. Fails if directories call each other in a
cycle, or more than two files of one directory do.
"""
import collections
import os
import pathlib
import subprocess
import sys

runtime = pathlib.Path(os.environ["DDP_RUNTIME"])
sources = pathlib.Path(os.environ.get("srcdir", "tests")) / "../runtime"
nm = os.environ.get("NM", "nm").split()
needs, definers = collections.defaultdict(set), collections.defaultdict(set)
for path in runtime.rglob("*.o"):
    name = path.relative_to(runtime)
    # The object run/.libs/libx_la-facts.o belongs to run/facts.
    directory = name.parent.parent if name.parent.name == ".libs" else name.parent
    file = str(directory / name.stem.rpartition("_la-")[2])
    if not any((sources / (file + suffix)).exists() for suffix in (".c", ".cu")):
        continue  # an object of an earlier build
    for line in subprocess.run([*nm, "-g", path], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, symbol = line.split()[-2:]
        if kind in "UwW":
            needs[file].add(symbol)
        else:
            definers[symbol].add(file)
if len(needs) < 50:
    sys.exit(f"cycles.py: {len(needs)} objects in {runtime}: build the runtime first")

files, directories = collections.defaultdict(set), collections.defaultdict(set)
for file, symbols in needs.items():
    for symbol in symbols:
        # Several programs or modules may define this symbol. The nearest definition is meant.
        near = {other for other in definers[symbol] if os.path.dirname(other) == os.path.dirname(file)}
        for other in (near or definers[symbol]) - {file}:
            files[file].add(other)
            if not near:
                directories[os.path.dirname(file)].add(os.path.dirname(other))


def cycles(graph):
    reach = {}
    for node in list(graph):
        reach[node], todo = set(), [node]
        while todo:
            new = graph.get(todo.pop(), set()) - reach[node]
            reach[node] |= new
            todo += new
    return {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in reach} - {frozenset()}


wrong = list(cycles(directories)) + [cycle for cycle in cycles(files) if len(cycle) > 2]
for cycle in wrong:
    print("cycles.py: call each other in a cycle:", *sorted(cycle))
sys.exit(bool(wrong))
