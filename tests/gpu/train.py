# SPDX-License-Identifier: Apache-2.0
"""ddp-train on a GPU: train.py BUILD [--small] [--ranks] [--engine NAME]

Checkpoints that move between engines, what is refused, a killed training; with --ranks instead two
ranks on one GPU, and one of these killed. Prints TAP.
"""

import argparse
import os
import signal
import sys
import tempfile

from runs import Run, apart, good_run, note, ok, skip
import runs

# Rates at which two roundings stay together.
PLAIN = ["--no-augment", "--log-every", 1, "--optimizer", "sgd", "--lr", 0.02, "--warmup", 0,
         "--threads", 1]
NETS = {"mnist": ["mnist", "--samples", 600, "--batch", 16, *PLAIN],
        "cifar": ["cifar", "--samples", 60, "--batch", 4, "--test-batch", 5, *PLAIN, "--lr", 0.0001]}

arguments = None


def run(text, words, **more):
    return good_run(text, arguments.build, words, **more)


# --- One rank --------------------------------------------------------------------------------


def relay(net, words, steps, engines):
    """The losses of a training that goes from engine to engine, each for [steps] more."""
    losses = {}
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-state.") as state:
        for leg, engine in enumerate(engines):
            done = run(f"{net}: {steps} steps with --engine {engine}",
                       [*words, "--engine", engine, "--steps", steps * (leg + 1),
                        "--checkpoint", state])
            if not done:
                return None
            if not ok(done.engine().startswith(engine), f"{net}: leg {leg + 1} is on {done.engine()}"):
                return None
            losses.update(done.losses())
    return losses


def test_checkpoints():
    """A training from CPU to GPU and back has the losses of one that stays."""
    for net, words in NETS.items():
        steps = 2 if arguments.small and net == "cifar" else 10
        gpu = arguments.engine
        one = relay(net, words, 3 * steps, ["cpu"])
        other = relay(net, words, steps, ["cpu", gpu, "cpu"])
        if one is None or other is None:
            continue
        far = apart(other, one)
        ok(far < 1e-3, f"{net}: {len(one)} losses from CPU to {gpu} and back, apart {far:.1e}")


def test_types():
    """Each type of activations trains."""
    for amp in ("off", "tf32", "bf16", "fp16"):
        done = run(f"mnist, --amp {amp}",
                   [*NETS["mnist"], "--engine", arguments.engine, "--amp", amp, "--steps", 30])
        if done:
            losses = list(done.losses().values())
            ok(len(losses) == 30 and losses[-1] < losses[0],
               f"mnist, --amp {amp}: the loss goes from {losses[0]:.4f} to {losses[-1]:.4f}")


def test_deterministic():
    """Two runs with --deterministic have the same losses, to the last digit."""
    words = [*NETS["mnist"], "--engine", arguments.engine, "--deterministic", "--steps", 20]
    one, other = (run("mnist, --deterministic", words) for _ in range(2))
    if one and other:
        ok(one.losses() == other.losses(), "mnist, --deterministic: two runs are equal")


def test_hidden():
    """Without a visible GPU --engine cuda is refused with a reason, and auto takes the CPU."""
    words = [*NETS["mnist"], "--steps", 2]
    refused = Run(arguments.build, [*words, "--engine", "cuda"], CUDA_VISIBLE_DEVICES="")
    statuses, said = refused.wait(), refused.said()
    ok(statuses[0] not in (0, None) and "GPU" in said, "no GPU is visible: --engine cuda says so")
    note(said)
    taken = Run(arguments.build, [*words, "--engine", "auto"], CUDA_VISIBLE_DEVICES="")
    ok(taken.wait() == [0] and taken.engine().startswith("cpu"),
       "no GPU is visible: --engine auto takes the CPU")


def test_killed():
    """Killed in a step, it goes on from its last checkpoint."""
    words = [*NETS["mnist"], "--engine", arguments.engine]
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-state.") as state:
        first = Run(arguments.build, [*words, "--checkpoint", state, "--checkpoint-steps", 5,
                                      "--steps", 100000, "--epochs", 100000])
        came = first.reached(12)
        first.kill()
        if not ok(came, "a training to be killed"):
            note(first.said())
            return
        before = max(first.losses())
        again = run("the next one", [*words, "--checkpoint", state, "--steps", before + 10,
                                     "--epochs", 100000])
        if again:
            begin = min(again.losses(), default=0)
            ok(5 < begin <= before + 6, f"killed after {before} steps, it went on with step {begin}")


# --- Two ranks on one GPU --------------------------------------------------------------------


def test_two_ranks():
    """Two ranks train as one with a batch twice as large."""
    for net, more in (("mnist", []), ("cifar", ["--sync-bn"])):
        batch, steps = (16, 10) if net == "mnist" else (4, 2 if arguments.small else 10)
        words = [*NETS[net], "--engine", arguments.engine, "--steps", steps, *more]
        one = run(f"{net}: one rank", [*words, "--batch", batch])
        two = run(f"{net}: two ranks", [*words, "--batch", batch // 2], ranks=2)
        if one and two:
            far = apart(two.losses(), one.losses())
            ok(far < 1e-3, f"{net} {' '.join(more)}: losses of two ranks and of one, apart {far:.1e}")


def test_lost_rank():
    """One of two is killed: the other ends in time, and names it."""
    two = Run(arguments.build, [*NETS["mnist"], "--engine", arguments.engine, "--steps", 1000000,
                                "--epochs", 1000000], ranks=2, DDP_TIMEOUT="15")
    if not ok(two.reached(20), "two ranks train"):
        note(two.said())
        two.kill()
        return
    os.kill(two.processes[1].pid, signal.SIGKILL)
    statuses = two.wait(40)
    said = two.outputs[0].read_text(errors="replace")
    ok(statuses[0] not in (0, None), f"rank 1 is killed: rank 0 ends with {statuses[0]}")
    ok("rank 1" in said, "and names it")
    note(said)


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--engine", default="cuda")
    arguments = parser.parse_args()
    if arguments.ranks:
        tests = (test_two_ranks, test_lost_rank)
    else:
        tests = (test_checkpoints, test_types, test_deterministic, test_hidden, test_killed)
    for test in tests:
        test()
    print(f"1..{runs.count}")
    sys.exit(runs.failed > 0)


if __name__ == "__main__":
    main()
