# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a step take: profile.py BUILD --net NET --batch N [--amp TYPE] [--ncu PROGRAM]

Three steps of ddp-train, after the first ones and in their graphs, as CUPTI saw them (trace.c): so gaps are
seen too. With --ncu as Nsight Compute measured the same kernels one by one, with what part of the card's
arithmetic and memory each one uses. Steps end with the optimizer's kernel. Prints TAP.
"""

import argparse
import collections
import csv
import functools
import pathlib
import re
import subprocess
import sys

from runs import Run, note, ok, skip
import runs

STEPS, WARM = 3, 20
MARK = re.compile(r"\boptimize\b|optimizeI|\d+optimize")
METRICS = ("gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")

arguments = build = None


def words():
    few = 64 * arguments.batch
    return [arguments.net, "--engine", "cuda", "--batch", arguments.batch, "--amp", arguments.amp, "--samples",
            few, "--steps", WARM + STEPS + 1, "--log-every", 1000,
            *(["--no-augment"] if arguments.net == "cifar" else [])]


@functools.lru_cache(None)
def short(name):
    """A kernel's name without its types of arguments."""
    if name.startswith("_Z"):
        done = subprocess.run(["c++filt", "-p", name], capture_output=True, text=True)
        name = done.stdout.strip() or name
    name = re.sub(r"^void |\(anonymous namespace\)::|<unnamed>::", "", name)
    return re.sub(r"(?<=.)\(.*", "", name)[:90]


def ends(rows, name_of):
    """Where steps end."""
    return [i for i, row in enumerate(rows) if MARK.search(name_of(row))]


def last_steps(rows, name_of):
    """The rows of the last three steps, or none."""
    found = ends(rows, name_of)
    return rows[found[-STEPS - 1] + 1:found[-1] + 1] if len(found) > STEPS else []


def table(rows, title):
    """Rows of (name, microseconds, ...) as a table by name, the longest first."""
    kinds = collections.defaultdict(list)
    for row in rows:
        kinds[row[0]].append(row[1:])
    total = sum(row[1] for row in rows)
    print(f"# {title}")
    print("#      us  share  calls  of a step" + ("; % of arithmetic and of memory used" if len(rows[0]) > 2 else ""))
    for name, figures in sorted(kinds.items(), key=lambda item: -sum(f[0] for f in item[1])):
        time = sum(f[0] for f in figures)
        parts = "".join(f" {sum(f[0] * f[i] for f in figures) / time:5.1f}" for i in range(1, len(figures[0])))
        print(f"# {time / STEPS:7.2f} {100 * time / total:5.1f}% {len(figures) / STEPS:6.1f}  {name}{parts}",
              flush=True)


def trace_file():
    return build / "logs" / f"trace-{arguments.net}-{arguments.amp}.txt"


def read_trace():
    """The trace's lines, (begin, end, stream, node, name), in the order of their ends."""
    lines = trace_file().read_text().splitlines() if trace_file().exists() else []
    rows = [(int(b), int(e), s, n, name) for b, e, s, n, name in (line.split("\t") for line in lines)]
    return sorted(rows, key=lambda row: row[1])


def trace():
    """As read_trace(), of a run; and why there are none."""
    library = build / "trace.so"
    if not library.exists():
        return [], f"{library.name} was not built"
    run = Run(build, words(), CUDA_INJECTION64_PATH=str(library), DDP_TRACE=str(trace_file()))
    statuses = run.wait()
    if not ok(statuses == [0], f"{arguments.net} with {library.name} ends with {statuses[0]}"):
        note(run.said())
    return read_trace(), f"CUPTI told of nothing: {run.said().strip()[-200:]}"


def by_trace():
    rows, why = trace()
    steps = last_steps(rows, lambda row: row[4])
    if not steps:
        skip(f"times of kernels, {arguments.net}", why)
        return
    first = max(row[1] for row in rows if row[1] < steps[0][1])
    wall, busy, at = steps[-1][1] - first, 0, first
    for begin, end, *_ in sorted(steps):
        busy += max(0, end - max(at, begin))
        at = max(at, end)
    ok(True, f"{arguments.net}, batch {arguments.batch}, {arguments.amp}: {wall / STEPS / 1000:.1f} us a step, "
       f"of which something runs {busy / STEPS / 1000:.1f}, in {len(steps) / STEPS:.1f} kernels and copies")
    table([(short(row[4]), (row[1] - row[0]) / 1000) for row in steps], "by CUPTI, in graphs")


def by_ncu():
    log, output = build / "logs" / f"ncu-{arguments.net}.csv", build / "logs" / f"ncu-{arguments.net}.out"
    # From a step before the three on, as many kernels as the trace had.
    kernels = [row for row in read_trace() if not row[4].startswith("(")]
    before = ends(kernels, lambda row: row[4])[-STEPS - 2:]
    part = ["--launch-skip", before[0] + 1, "--launch-count", before[-1] - before[0] + 9,
            "--kill", "on"] if len(before) == STEPS + 2 else []
    command = [arguments.ncu, "--graph-profiling", "node", "--clock-control", "none", "--csv", "--page", "raw",
               "--log-file", log, "--metrics", ",".join(METRICS), *part, build / "ddp-train", *words(), "-n", 1,
               "--progress", "off"]
    with open(output, "w") as out:
        done = subprocess.run(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, cwd=build,
                              env=Run.environment(build, build, 0, 1, (), False, {}))
    rows = [row for row in csv.DictReader(line for line in log.read_text().splitlines()
                                          if line.startswith('"'))] if log.exists() else []
    found = []
    for row in rows:
        if row.get("ID"):  # the line of units has none
            values = [float(row[metric].replace(",", "") or 0) for metric in METRICS]
            found.append((short(row["Kernel Name"]), *values))
    unit = rows[0].get("gpu__time_duration.sum", "us") if rows else "us"
    scale = {"ns": 1e-3, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}.get(unit, 1)
    steps = [(name, time * scale, *rest) for name, time, *rest in last_steps(found, lambda row: row[0])]
    if steps:
        ok(True, f"{arguments.net}, batch {arguments.batch}: {sum(s[1] for s in steps) / STEPS:.1f} us of kernels a step")
        table(steps, "by Nsight Compute, one by one")
    else:
        note(output.read_text())
        skip("times of kernels by ncu", f"it ended with {done.returncode}, {len(found)} kernels were measured")


def main():
    global arguments, build
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--small", action="store_true", help="taken for the sake of the other programs")
    parser.add_argument("--net", default="cifar")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--amp", default="bf16")
    parser.add_argument("--ncu")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    (build / "logs").mkdir(exist_ok=True)
    by_ncu() if arguments.ncu else by_trace()
    print(f"1..{runs.count}")
    sys.exit(runs.failed > 0)


if __name__ == "__main__":
    main()
