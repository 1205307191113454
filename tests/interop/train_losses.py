# SPDX-License-Identifier: Apache-2.0
"""Compares losses of trainings, step by step: ddp-train's and PyTorch's.

Lines are "run step loss".
"""

import json
import sys


def of_log(path):
    """Prints the losses of a log that --log-json wrote with --log-every 1."""
    with open(path) as file:
        for line in file:
            entry = json.loads(line)
            if entry["event"] == "step":
                print(0, entry["total"], f"{entry['loss']:.9g}")


def last_epoch(path):
    """Prints loss, number of correct images and number of images of the last evaluation in the log."""
    with open(path) as file:
        entries = [json.loads(line) for line in file]
    last = [entry for entry in entries if entry.get("evaluated")][-1]
    samples = last["test_samples"]
    print(f"{last['test_loss']:.9g} {round(last['test_top1'] * samples)} {samples}")


def read(path):
    """Returns {run: [loss of each step]}. Fails if a step is missing."""
    runs = {}
    with open(path) as file:
        for line in file:
            run, step, loss = line.split()
            losses = runs.setdefault(int(run), [])
            losses.append(float(loss))
            assert len(losses) == int(step), f"{path}: {line}"
    return runs


def apart(one, other):
    return [abs(x - y) / abs(y) for x, y in zip(one, other)]


def pair(ours, theirs):
    one, other = read(ours)[0], read(theirs)[0]
    assert len(one) == len(other) > 1, (len(one), len(other))
    return one, other


def close(ours, theirs, limit):
    """Checks that all losses agree within the relative [limit]."""
    one, other = pair(ours, theirs)
    errors = apart(one, other)
    worst = max(errors)
    print(f"{len(errors)} losses, {other[0]:.5f} to {other[-1]:.5f}, within {worst:.1e}, "
          f"the last {errors[-1]:.1e}")
    if not worst <= float(limit):
        sys.exit(f"more than {limit}, at step {1 + errors.index(worst)}")


def spread(ours, theirs, floor):
    """Checks that no loss differs from PyTorch's first run by more than twice what its other runs do so far, or [floor]."""
    one, runs = read(ours)[0], read(theirs)
    base = runs.pop(0)
    assert len(runs) >= 3 and all(len(losses) == len(one) for losses in runs.values())
    allowed = widest = 0
    for step, error in enumerate(apart(one, base)):
        widest = max(widest, *(apart(losses, base)[step] for losses in runs.values()))
        allowed = max(float(floor), 2 * widest)
        if step % 10 == 9:
            print(f"step {step + 1}: {base[step]:.6f}, apart {error:.1e}, allowed {allowed:.1e}")
        if not error <= allowed:
            sys.exit(f"step {step + 1}: apart {error:.1e}, allowed {allowed:.1e}")


def band(ours, theirs, limit):
    """Checks that losses agree within [limit] but are not equal, because the precision differs."""
    one, other = pair(ours, theirs)
    errors = apart(one, other)
    print(f"{len(errors)} losses, apart {max(errors):.1e}")
    if not 1e-5 < max(errors) <= float(limit):
        sys.exit(f"not between 1e-5 and {limit}")
