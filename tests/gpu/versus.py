# SPDX-License-Identifier: Apache-2.0
"""The first steps of ddp-train on a GPU against PyTorch's: versus.py BUILD [--small] [--engine NAME]

The same images in the same order, the same weights by a safetensors file. PyTorch computes on the GPU too
where it can, else on the CPU, and says which. Prints TAP.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

from runs import apart, good_run, ok, skip  # noqa: E402
import runs  # noqa: E402

# As in tests/interop/train.bats: at these rates PyTorch's own runs one ulp apart stay within 1e-6.
SGD = ["--optimizer", "sgd", "--lr", 0.0001, "--weight-decay", 0.0005]
ADADELTA = ["--optimizer", "adadelta", "--lr", 0.02]
ROWS = {
    # name: net, ddp-train's options, limit; PyTorch computes with the same --amp, on a CPU tf32 is f32
    "mnist, SGD": ("mnist", ["--optimizer", "sgd", "--lr", 0.05, "--amp", "off"], 1e-4),
    "mnist, Adadelta": ("mnist", [*ADADELTA, "--amp", "off"], 1e-4),
    "mnist, AdamW": ("mnist", ["--optimizer", "adamw", "--lr", 0.0001, "--weight-decay", 0.01,
                               "--amp", "off"], 1e-4),
    "mnist, Adadelta, tf32": ("mnist", [*ADADELTA, "--amp", "tf32"], 2e-3),
    "mnist, Adadelta, bf16": ("mnist", [*ADADELTA, "--amp", "bf16"], 1e-2),
    "cifar, SGD": ("cifar", [*SGD, "--amp", "off"], 1e-4),
    "cifar, SGD, bf16": ("cifar", [*SGD, "--amp", "bf16"], 1e-2),
}
COMMON = ["--threads", 1, "--log-every", 1, "--schedule", "constant", "--warmup", 0]
EXACT = {"mnist": "--no-dropout", "cifar": "--no-augment"}
BATCH = {"mnist": 16, "cifar": 8}

arguments = None


def option(options, name, other=None):
    return options[options.index(name) + 1] if name in options else other


def make_optimizer(torch, net, options, parameters):
    rate, decay = option(options, "--lr"), option(options, "--weight-decay", 0.0)
    kind = option(options, "--optimizer")
    if kind == "sgd":
        return torch.optim.SGD(parameters, rate, 0.9, weight_decay=decay, nesterov=net == "cifar")
    if kind == "adamw":
        return torch.optim.AdamW(parameters, rate, weight_decay=decay)
    return torch.optim.Adadelta(parameters, rate, weight_decay=decay)


def order_of(torch, samples, batch):
    """The indices of step after step, as DistributedSampler deals them to one rank."""
    sampler = torch.utils.data.DistributedSampler(range(samples), 1, 0, seed=1)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from torch.tensor(list(sampler)).split(batch)
        epoch += 1


def theirs(torch, device, net, options, where, steps):
    """{step: loss} of PyTorch."""
    import networks
    import tensorfile
    import train_data

    model = networks.NETWORKS[net](dropout=False)
    model.load_state_dict(tensorfile.load(f"{where}/{net}.st")[0], strict=True)
    model.to(device)
    optimizer = make_optimizer(torch, net, options, model.parameters())
    images, labels = train_data.read(f"{where}/{net}", net, "train")
    amp, losses = option(options, "--amp"), {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = amp == "tf32"
    for indices in order_of(torch, len(labels), BATCH[net]):
        optimizer.zero_grad()
        x = train_data.normalised(net, images[indices]).to(device)
        with torch.autocast(device, torch.bfloat16) if amp == "bf16" else contextlib.nullcontext():
            logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[indices].to(device))
        loss.backward()
        optimizer.step()
        losses[len(losses) + 1] = loss.item()
        if len(losses) == steps:
            return losses


def write_inputs(torch, where):
    import networks
    import tensorfile
    import train_data

    for net in BATCH:
        train_data.write(f"{where}/{net}", net, 333, 50, 1)
        torch.manual_seed(1)
        model = networks.NETWORKS[net](dropout=False)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.bias.data[0::2] += 2
                module.bias.data[1::2] -= 2
        tensorfile.save(f"{where}/{net}.st", model.state_dict(), {"format": "pt"})


def compare(torch, device, where):
    for name, (net, options, limit) in ROWS.items():
        # An epoch of mnist is 21 steps, the last of them short.
        steps = 20 if not arguments.small else 22 if net == "mnist" else 3
        words = [net, "--data", f"{where}/{net}", "--init", f"{where}/{net}.st", *COMMON, EXACT[net], *options,
                 "--test-batch", 25, "--batch", BATCH[net], "--steps", steps, "--engine", arguments.engine]
        ours = good_run(name, arguments.build, words)
        if not ours:
            continue
        far = apart(ours.losses(), theirs(torch, device, net, options, where, steps))
        last = list(ours.losses().values())[-1]
        ok(far <= limit, f"{name}: {steps} losses to {last:.4f}, apart from PyTorch's {far:.1e}, "
           f"allowed {limit:.0e}")


def main():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--engine", default="cuda")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        import torch
    except ImportError:
        skip("PyTorch", f"{sys.executable} has none; PYTHON names another python")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"# PyTorch {torch.__version__} on the "
          f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU: it sees no GPU'}")
    with tempfile.TemporaryDirectory(prefix="ddp-gpu-versus.") as where:
        write_inputs(torch, where)
        compare(torch, device, where)
    print(f"1..{runs.count}")
    sys.exit(runs.failed > 0)


if __name__ == "__main__":
    main()
