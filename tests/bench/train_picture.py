# SPDX-License-Identifier: Apache-2.0
"""bench-train's picture: bars of images per second, as a self-contained SVG.

    train_picture.py LOG... FILE.svg    draws the output of earlier runs of bench-train
"""

import re
import sys
from html import escape

WIDTH, LABEL, BAR, GAP = 720, 190, 18, 6
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .ours { fill: #1f6feb } .theirs { fill: #8c959f }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } }
</style>"""


def bar(top, name, rate, longest):
    width = max(1, (WIDTH - LABEL - 80) * rate / longest)
    kind = "ours" if name.startswith("ddp-train") else "theirs"
    return (f'<text x="{LABEL - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{kind}" x="{LABEL}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2"/>'
            f'<text x="{LABEL + width + 6:.1f}" y="{top + 13}">{rate:,.0f}</text>')


def write(path, groups, caption):
    """Writes the picture of [groups]: (title, {name: images per second})."""
    lines, top = [], 8
    for title, rates in groups:
        lines.append(f'<text class="title" x="0" y="{top + 13}">{escape(title)}</text>')
        top += BAR + GAP
        for name, rate in rates.items():
            lines.append(bar(top, name, rate, max(rates.values())))
            top += BAR + GAP
        top += 2 * GAP
    lines.append(f'<text x="0" y="{top + 13}">{escape(caption)}</text>')
    height = top + BAR + GAP
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                   f'width="{WIDTH}" height="{height}">\n{STYLE}\n' + "\n".join(lines) + "\n</svg>\n")


def read(paths):
    """Returns the tables of bench-train's logs, as groups for write(), and the machine of the first log."""
    groups, where, rates = [], "", None
    for path in paths:
        with open(path) as log:
            for line in log:
                row = re.match(r"  (\S.*?)  +(\d+)  \[\d+, \d+\]", line)
                if row and rates is not None:
                    rates[row[1]] = int(row[2])
                    continue
                rates = None
                title = re.match(r"(.*: images/s) of all ranks, medians", line)
                if title:
                    rates = {}
                    groups.append((title[1], rates))
                elif re.match(r"\d{4}-\d\d-\d\d .* UTC", line) and not where:
                    where = line.strip().rsplit(", load", 1)[0]
    return groups, where


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[-1].endswith(".svg"):
        sys.exit(__doc__.strip())
    write(sys.argv[-1], *read(sys.argv[1:-1]))
