# SPDX-License-Identifier: Apache-2.0
"""report-files.py DIRECTORY: what report-demo wrote there, as the readers of others see it."""

import glob
import html.parser
import json
import math
import os
import sys
import xml.dom.minidom

sys.dont_write_bytecode = True  # the sources may be read-only
sys.path.insert(0, os.path.join(os.environ.get("top_srcdir", "../.."), "tests", "interop"))
import eventfile  # noqa: E402

directory = sys.argv[1]
name = sys.argv[2] if len(sys.argv) > 2 else None


def refuse(constant):
    raise ValueError(constant + " is no JSON")


def near(a, b, tolerance=1e-6):
    return math.isclose(a, b, rel_tol=tolerance)


# JSON: an object a line, each by its kind.
with open(os.path.join(directory, "log.jsonl"), encoding="utf-8") as file:
    log = [json.loads(line, parse_constant=refuse) for line in file]
kinds = {}
for one in log:
    kinds.setdefault(one["event"], []).append(one)
assert sorted(kinds) == ["end", "epoch", "run", "say", "step"], sorted(kinds)
assert log[0]["event"] == "run" and log[-1]["event"] == "end"
run, steps = kinds["run"][0], kinds["step"]
assert len(kinds["epoch"]) == run["epochs"]
assert len(run["ranks"]) == len(steps[0]["ranks"]) == len(kinds["end"][0]["ranks"]) == run["size"]
assert [one["total"] for one in steps] == sorted({one["total"] for one in steps})
assert steps[-1]["total"] == run["end"]
assert sum(one["samples"] for one in steps) == kinds["end"][0]["samples"]
if name:
    assert run["title"] == run["job"] == kinds["end"][0]["reason"] == name

# Event files: the same figures.
(path,) = glob.glob(os.path.join(directory, "events.out.tfevents.*"))
points = {}
for tag, step, value in eventfile.load(path):
    points.setdefault(tag, {})[step] = value
assert sorted(points) == sorted(
    ["train/loss", "train/top1", "train/lr", "train/images_per_second", "test/loss", "test/top1",
     "test/top5", "time/data", "time/compute", "time/all_reduce"]), sorted(points)
for one in steps:
    for tag, key in (("loss", "loss"), ("top1", "top1"), ("lr", "lr"),
                     ("images_per_second", "images_per_second")):
        assert near(points["train/" + tag][one["total"]], one[key]), (tag, one)
    assert near(sum(points["time/" + phase][one["total"]]
                    for phase in ("data", "compute", "all_reduce")), 1)
for one in kinds["epoch"]:
    for tag in ("loss", "top1", "top5"):
        assert near(points["test/" + tag][one["total"]], one["test_" + tag])

# The page: sound as HTML and as XML, nothing from elsewhere, not too large.
path = os.path.join(directory, "report.html")
assert os.path.getsize(path) < 1000000
with open(path, encoding="utf-8") as file:
    page = file.read()
document = xml.dom.minidom.parseString(page.encode())


class Page(html.parser.HTMLParser):
    """All elements are closed, in order, and none asks for a file."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], {}

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        for key, value in attrs:
            assert key not in ("src", "href", "style") and not key.startswith("on"), (tag, key)
            assert "nan" not in (value or "") or key not in ("d", "data-v", "x", "width")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


reader = Page()
reader.feed(page)
reader.close()
assert not reader.open, reader.open
assert reader.seen["script"] == 1 and reader.seen["style"] == 1
assert "url(" not in page and "@import" not in page
ids = [node.getAttribute("id") for node in document.getElementsByTagName("*")
       if node.hasAttribute("id")]
assert len(ids) == len(set(ids)), ids
for chart in ("loss", "accuracy", "throughput", "rate", "times"):
    assert chart in ids, chart
for frame in document.getElementsByTagName("svg"):
    if frame.getAttribute("class") == "frame":
        for label in frame.getAttribute("aria-labelledby").split():
            assert label in ids
if name:
    (title,) = document.getElementsByTagName("h1")
    assert title.firstChild.data == name, title.firstChild.data
