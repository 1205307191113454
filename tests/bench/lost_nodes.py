# SPDX-License-Identifier: Apache-2.0
"""A picture of a training that loses two of four nodes: images per second and loss, by the clock.

    lost_nodes.py BUILD FILE.svg     BUILD: a build tree; as root, since slurmd is killed

It prints the numbers of the picture, for tests/results/lost-nodes-DATE.log.

A private cluster of four nodes, ddp-run, ddp-train with virtual ranks. Twice, five seconds after the first step of an attempt,
the slurmd, slurmstepd and rank of a node are killed at the same time. The picture has the values of ddp-train's --log-json at
the time at which they were read, and the losses of an undisturbed run on one rank, step by step.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MINICLUSTER = os.path.join(HERE, "../../contrib/minicluster")
TRAINING = ["mnist", "--samples", "11520", "-e", "3", "--global-batch", "48", "--seed", "3", "--virtual-ranks", "12",
            "--log-every", "5", "--log-json", "-"]
COMMAND = ["ddp-run", "--hang", "3", "--min-nodes", "2"]
WIDTH, HEIGHT, LEFT, GAP = 720, 130, 60, 44
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 }
.line { fill: none; stroke: #1f6feb; stroke-width: 1.5 } .other { fill: none; stroke: #8c959f; stroke-width: 4; opacity: .5 }
.lost { stroke: #cf222e; stroke-dasharray: 3 3 } .axis { stroke: #8c959f }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } }
</style>"""


def processes(pattern, node):
    """Returns the processes whose command line has [pattern] and whose environment or command line names [node]."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
            environment = open(f"/proc/{pid}/environ").read().split("\0")
        except OSError:
            continue
        if re.search(pattern, command) and (f"SLURMD_NODENAME={node}" in environment or f" -N {node} " in command):
            yield int(pid)


def lose(top, node):
    ranks = list(processes("^[^ ]*ddp-train ", node))
    parents = [int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) for pid in ranks]
    for pid in [*processes(f"^slurmd .*{top}/", node), *parents, *ranks]:
        os.kill(pid, 9)


def train(words, environment, on_step=lambda steps: None):
    """Runs a training. Returns the log's entries for steps, each with the time at which it was read."""
    steps = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=environment["HOME"]) as run:
        for line in run.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("event") == "step":
                steps.append((time.time(), said))
                on_step(steps)
    if run.returncode:
        sys.exit(f"lost_nodes: {words} ended with {run.returncode}")
    return steps


def path(points, kind, x, y):
    return f'<path class="{kind}" d="M' + "L".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points) + '"/>'


def panel(top, title, most, unit, lines, x):
    y = lambda value: top + HEIGHT * (1 - min(value, most) / most)
    out = [f'<text class="title" x="0" y="{top - 10}">{title}</text>',
           f'<text x="{LEFT - 8}" y="{top + 5}" text-anchor="end">{most:{unit}}</text>',
           f'<text x="{LEFT - 8}" y="{top + HEIGHT + 4}" text-anchor="end">0</text>',
           f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{top + HEIGHT}" y2="{top + HEIGHT}"/>']
    return out + [path(points, kind, x, y) for kind, points in lines]


def draw(file, steps, undisturbed, lost, caption):
    begin, end = steps[0][0], steps[-1][0]
    x = lambda seconds: LEFT + (WIDTH - LEFT) * (seconds - begin) / (end - begin)
    rate, losses = [], []
    for (before, _), (now, said) in zip(steps, steps[1:]):
        speed = said["images_per_second"]
        if now - before > 2:
            rate += [(before, 0), (now, 0)]
        rate.append((now, speed))
        losses.append((now, said["loss"]))
    want = {said["total"]: said["loss"] for _, said in undisturbed}
    same = [(now, want[said["total"]]) for now, said in steps if said["total"] in want]
    most = max(speed for _, speed in rate)
    lines = panel(34, "images per second", most, ",.0f", [("line", rate)], x)
    lines += panel(34 + HEIGHT + GAP, "loss, and that of an undisturbed run on one rank at the same steps (grey)",
                   max(loss for _, loss in losses), ".1f", [("other", same), ("line", losses)], x)
    bottom = 34 + 2 * HEIGHT + GAP
    for at, node in lost:
        lines += [f'<line class="lost" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="34" y2="{bottom}"/>',
                  f'<text x="{x(at) + 4:.1f}" y="48">{node} is lost</text>']
    for second in range(0, int(end - begin) + 1, 10):
        lines.append(f'<text x="{x(begin + second):.1f}" y="{bottom + 18}" text-anchor="middle">{second} s</text>')
    lines.append(f'<text x="0" y="{bottom + 42}">{caption}</text>')
    with open(file, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 20} {bottom + 54}" '
                  f'width="{WIDTH + 20}" height="{bottom + 54}">\n{STYLE}\n' + "\n".join(lines) + "\n</svg>\n")


def where():
    """Returns date and machine, as in the other benchmarks."""
    model = next(line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    slurm = subprocess.run(["slurmd", "-V"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return (f"{time.strftime('%F %H:%M', time.gmtime())} UTC, {os.cpu_count()} CPUs ({model}), Linux {os.uname().release}, "
            f"{slurm}, load {os.getloadavg()[0]:.2f}")


def tell(begun, steps, undisturbed, lost):
    """Prints the time, the number of nodes, the steps and the speed of each attempt."""
    want = {said["total"]: said["loss"] for _, said in undisturbed}
    apart = max(abs(said["loss"] - want[said["total"]]) for _, said in steps)
    print("a training that loses two of four nodes:", *COMMAND, "-N4 ddp-train", *TRAINING)
    print(begun)
    print("all nodes share this machine, so that fewer ranks are faster; seconds from the first step on, medians of images/s")
    print("nodes     from       to  stood still   steps said  images/s")
    for count in range(len(lost) + 1):
        first, last = lost[count - 1][0] if count else 0, lost[count][0] if count < len(lost) else float("inf")
        # An entry that is read just after a loss was written before the loss.
        of = [(at, said) for at, said in steps if (first + 2 if count else 0) < at <= (last + 2)]
        still = f"{of[0][0] - first:.1f} s" if count else "-"
        print(f"{4 - count:5}{of[0][0] - steps[0][0]:9.1f}{of[-1][0] - steps[0][0]:9.1f}{still:>13}"
              f"{of[0][1]['total']:7}-{of[-1][1]['total']:<5}{statistics.median(said['images_per_second'] for _, said in of):9.0f}"
              + (f"  {lost[count][1]} is lost {last - steps[0][0]:.1f} s after the first step" if count < len(lost) else ""))
    print(f"weights: equal to the bit to those of one rank that nobody disturbed; losses of the {len(steps)} steps said, some "
          f"of them twice: at most {apart:g} from that rank's")


def main(build, file):
    begun = where()
    top = tempfile.mkdtemp(prefix="ddp-lost.")
    os.chmod(top, 0o755)
    home = os.path.join(top, "work")
    os.mkdir(home)
    shutil.chown(home, "nobody")
    cluster = os.path.join(top, "cluster")
    environment = {**os.environ, "HOME": home, "SLURM_CONF": os.path.join(cluster, "slurm.conf"),
                   "DDP_MODULES": os.path.join(build, "runtime/.libs"), "XDG_CACHE_HOME": home}
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    ddp_train = os.path.join(build, "runtime/train/ddp-train")
    lost = []

    def on_step(steps):
        """Kills a node five seconds after the first step on the remaining nodes."""
        began = next((at for at, _ in steps if not lost or at > lost[-1][0] + 2), None)
        if len(lost) < 2 and began and time.time() > began + 5:
            node = f"n{4 - len(lost)}"
            lost.append((time.time(), node))
            lose(top, node)

    try:
        subprocess.run([MINICLUSTER, "up", "--dir", cluster, "--nodes", "4", "--gpus", "0", "--conf", "SlurmdTimeout=300",
                        "--plugin", os.path.join(build, "spank-plugin/.libs/ddp.so")], check=True, stdout=subprocess.DEVNULL)
        steps = train([*user, os.path.join(build, "runtime/run", COMMAND[0]), *COMMAND[1:], "-N4", ddp_train, *TRAINING,
                       "-c", "state", "--checkpoint-steps", "20", "-m", "model"], environment, on_step)
        undisturbed = train([*user, ddp_train, *TRAINING, "-n", "1", "-m", "undisturbed"], environment)
        models = [open(os.path.join(home, name), "rb").read() for name in ("model", "undisturbed")]
        if models[0] != models[1] or len(lost) != 2:
            sys.exit("lost_nodes: the weights are not those of the undisturbed run")
        tell(begun, steps, undisturbed, lost)
        draw(file, steps, undisturbed, lost,
             f"mnist, --virtual-ranks 12, {time.strftime('%F')}: the weights are equal to the bit. All nodes share "
             f"{os.cpu_count()} CPUs.")
    finally:
        subprocess.run([MINICLUSTER, "down", "--dir", cluster], stdout=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
