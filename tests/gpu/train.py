# SPDX-License-Identifier: Apache-2.0
"""ddp-train on a GPU: train.py BUILD [--small] [--ranks] [--sharing] [--engine NAME]

Checkpoints that move between engines, what is refused, a killed training; with --ranks instead two
ranks on one GPU that pose as two hosts, and one of these killed; with --sharing ranks that share it.
Prints TAP.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from runs import Run, apart, good_run, note, ok, skip
import runs

# Rates at which two roundings stay together.
PLAIN = ["--log-every", 1, "--optimizer", "sgd", "--lr", 0.02, "--warmup", 0,
         "--threads", 1, "--amp", "off"]
NETS = {"mnist": ["mnist", "--samples", 600, "--batch", 16, *PLAIN],
        "cifar": ["cifar", "--samples", 60, "--batch", 4, "--test-batch", 5, "--no-augment", *PLAIN,
                  "--lr", 0.0001]}

LONG = bool(os.environ.get("DDP_LONG"))
STOPPED = 3  # the exit status of who was told to

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


# --- Ranks that share one GPU --------------------------------------------------------------------


def shared_run(text, words, ranks):
    return run(text, [*words, "--engine", arguments.engine], ranks=ranks, posing=False)


# Each rank is a process with a context of its own, and the driver makes one after the other: some 1 s each with
# the libraries. So there are few without DDP_LONG.
SIZES = {"mnist": (2, 4, 8), "wire": (4,), "cifar": (4,), "sync": (2, 4, 8)} if LONG else \
    {"mnist": (2, 8), "wire": (4,), "cifar": (4,), "sync": (4,)}


def test_shared():
    """Ranks that share a GPU, up to 8, train as one with a batch as large as all of theirs."""
    ones = {}
    for net, more, sizes in (("mnist", [], SIZES["mnist"]), ("mnist", ["--wire", "bf16"], SIZES["wire"]),
                             ("cifar", ["--sync-bn"], SIZES["sync"]), ("cifar", [], SIZES["cifar"])):
        batch, steps = (16, 20) if net == "mnist" else (8, 2 if arguments.small else 20)
        words = [*NETS[net], "--steps", steps]
        # BatchNorm over a rank's own samples is another network than over all of them.
        alone = net == "mnist" or more
        if alone and net not in ones:
            ones[net] = run(f"{net}: one rank", [*words, "--engine", arguments.engine, "--batch", batch])
        for ranks in sizes:
            one = ones[net] if alone else run(
                "cifar: as many ranks on CPUs",
                [*words, "--engine", "cpu", "--batch", batch // ranks], ranks=ranks)
            many = shared_run(f"{net}: {ranks} ranks share a GPU",
                              [*words, *more, "--batch", batch // ranks], ranks)
            if not one or not many:
                continue
            far, most = apart(many.losses(), one.losses()), 3e-2 if "bf16" in more else 1e-3
            ok(far < most, f"{net} {' '.join(more)}: losses of {ranks} ranks that share a GPU and "
               f"of one, apart {far:.1e}")
            ok(f"{ranks} ranks share GPU 0" in many.said(), "what is shared is said")


def test_shared_types():
    """Each type of activations, and the same bits from run to run with --deterministic."""
    ranks = 4
    for amp in ("bf16", "fp16", "tf32", "off"):
        words = [*NETS["mnist"], "--batch", 4, "--amp", amp, "--steps", 20, "--deterministic"]
        done = [shared_run(f"mnist, --amp {amp}: {ranks} ranks", words, ranks)
                for _ in range(2 if LONG or amp == "bf16" else 1)]
        if all(done):
            losses = list(done[0].losses().values())
            ok(len(losses) == 20 and losses[-1] < losses[0],
               f"mnist, --amp {amp}: {ranks} ranks learn")
        if all(done[1:]) and done[1:]:
            ok(done[0].losses() == done[1].losses(), f"mnist, --amp {amp}: two runs are equal")


def test_virtual():
    """With --virtual-ranks one rank and several that share a GPU have the same losses, to the last digit."""
    for net, more in (("mnist", []), ("mnist", ["--amp", "bf16"]), ("cifar", ["--amp", "auto"])):
        steps = 20 if net == "mnist" else 2 if arguments.small else 10
        words = [*NETS[net], "--batch", 2, "--virtual-ranks", 4, "--deterministic", "--steps", steps, *more]
        done = [shared_run(f"{net}: {ranks} ranks, 4 virtual ones", words, ranks)
                for ranks in ((1, 2, 4) if LONG else (1, 4))]
        if all(done):
            ok(len(done[0].losses()) == steps and all(one.losses() == done[0].losses() for one in done),
               f"{net} {' '.join(more)}: four virtual ranks have the same losses on one rank and on several")


def ask_card(*what):
    """Lines of nvidia-smi, or none where it is not here or says nothing."""
    try:
        done = subprocess.run(["nvidia-smi", *what, "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(", ") for line in done.stdout.splitlines() if line.strip()]


def test_shared_memory():
    """What each of four ranks has of the GPU, as it says itself and as the driver does, is within a quarter."""
    ranks, share = 4, 0.25
    total = [int(line[0]) << 20 for line in ask_card("--query-gpu=memory.total")][:1] or [8 << 30]
    words = [*NETS["mnist"], "--engine", arguments.engine, "--batch", 4, "--epochs", 100000]
    many = Run(arguments.build, [*words, "--steps", 1000000], ranks=ranks, posing=False)
    # An epoch is over: by then libraries have loaded the kernels of an evaluation too, and graphs are uploaded.
    many.reached(60)
    held = {int(line[0]): int(line[1]) << 20 for line in ask_card("--query-compute-apps=pid,used_memory")
            if line[1].isdigit()}
    many.processes[1].terminate()
    statuses = many.wait()
    if not ok(statuses == [STOPPED] * ranks,
              f"{ranks} ranks in their shares, of which one is told to stop, end with {statuses}"):
        note(many.said())
        return
    said = [rank["resident"] for entry in many.entries() for rank in entry.get("ranks", [])
            if "resident" in rank]
    ok(len(said) >= ranks and 0 < max(said) <= share * total[0],
       f"each of {ranks} ranks says it has at most {max(said, default=0) >> 20} MiB of "
       f"{total[0] >> 20}")
    mine = [held[process.pid] for process in many.processes if process.pid in held]
    if mine:
        # A rank says what it allocated and what its context took at first. Kernels that libraries load later come
        # on top, some hundred MiB of them, and so do graphs.
        ok(max(mine) <= share * total[0] and max(mine) <= max(said) + (512 << 20),
           f"the driver counts {max(mine) >> 20} MiB for one of them at most, itself {max(said) >> 20}")
    else:
        skip("what the driver counts for each rank", "nvidia-smi shows none of them")


def test_shared_launched():
    """ddp-train -n 4 deals four ranks to what GPUs there are; each stays in its part."""
    done = run("ddp-train -n 4", [*NETS["mnist"], "--engine", arguments.engine, "--steps", 20, "-n", 4])
    if done:
        ok("4 ranks share GPU 0, a quarter of its memory each" in done.said(),
           "ddp-train -n 4 on one GPU: a quarter for each")
    words = [*NETS["mnist"], "--engine", arguments.engine, "--steps", 2]
    little = Run(arguments.build, words, ranks=2, posing=False, DDP_SHARE="0.000001")
    statuses = little.wait()
    said = little.said()
    # Who asks first refuses: the memory that ranks share (device/shard-gpu.c), or the engine's own (train/cuda).
    ok(all(status not in (0, None) for status in statuses) and "no room for" in said and
       ("this rank's share is" in said or "this rank may have" in said),
       "a share that is too small is refused with what is missing")
    note(said)


def kill_one(victim, ranks, steps, words, state):
    """One of [ranks] that share a GPU is killed at a random time after [steps] steps: the others leave."""
    many = Run(arguments.build, [*words, "--checkpoint", state, "--checkpoint-steps", 5,
                                 "--steps", 1000000, "--epochs", 1000000],
               ranks=ranks, posing=False, DDP_TIMEOUT="15")
    if not ok(many.reached(steps), f"{ranks} ranks that share a GPU train to step {steps}"):
        note(many.said())
        many.kill()
        return None
    time.sleep(random.random() / 10)
    os.kill(many.processes[victim].pid, signal.SIGKILL)
    statuses = many.wait(60)
    others = [status for rank, status in enumerate(statuses) if rank != victim]
    good = ok(all(status not in (0, None) for status in others),
              f"rank {victim} of {ranks} is killed: the others end with {others}")
    said = [path.read_text(errors="replace") for path in many.outputs]
    gone = [int(line[0]) for line in ask_card("--query-compute-apps=pid")]
    ok(not any(process.pid in gone for process in many.processes), "none of them is left on the GPU")
    named = [f"rank {victim}" in text for rank, text in enumerate(said) if rank != victim]
    if not ok(any(named), "and it is named") or not good:
        note(many.said())
    return max(many.losses()) if good else None


def test_shared_killed():
    """Leader and followers are killed in turn; each time the next run goes on from the checkpoint."""
    ranks = 4
    words = [*NETS["mnist"], "--batch", 4, "--engine", arguments.engine]
    turns = arguments.kills or (10 if LONG else 2 if arguments.small else 4)
    seed = random.randrange(1 << 30)
    print(f"# kills with seed {seed}", flush=True)
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-state.") as state:
        steps = 12
        for turn in range(turns):
            victim = 0 if turn % 2 == 0 else random.randrange(1, ranks)
            before = kill_one(victim, ranks, steps, words, state)
            if before is None:
                return
            steps = before + 8
        # On as many ranks as it was, and alone: both have what was there.
        for count in (ranks, 1):
            again = run(f"the next one, on {count}", [*words, "--batch", 16 // count, "--checkpoint",
                        state, "--steps", steps + 10, "--epochs", 1000000], ranks=count, posing=False)
            if again:
                begin = min(again.losses(), default=0)
                ok(5 < begin <= steps + 6, f"killed after {before} steps, it went on with step {begin}")
                steps += 20


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--sharing", action="store_true")
    parser.add_argument("--kills", type=int, default=0, help="of ranks that share a GPU")
    parser.add_argument("--engine", default="cuda")
    arguments = parser.parse_args()
    if arguments.ranks:
        tests = (test_two_ranks, test_lost_rank)
    elif arguments.sharing:
        tests = (test_shared, test_shared_launched, test_shared_killed, test_shared_memory,
                 test_shared_types, test_virtual)
    else:
        tests = (test_checkpoints, test_types, test_deterministic, test_hidden, test_killed)
    for test in tests:
        test()
    print(f"1..{runs.count}")
    sys.exit(runs.failed > 0)


if __name__ == "__main__":
    main()
