# SPDX-License-Identifier: Apache-2.0
"""report-files.py DIRECTORY [BROWSER]: checks the files that ddp-train wrote, with independent parsers.

With BROWSER, which may be node, the page is drawn by it.
"""

import glob
import html.parser
import json
import math
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the sources may be read-only
sys.path.insert(0, os.path.join(os.environ.get("top_srcdir", "../.."), "tests", "interop"))
import eventfile  # noqa: E402

directory = sys.argv[1]
browser = sys.argv[2] if len(sys.argv) > 2 else None
path = os.path.join(directory, "report.html")


def refuse(constant):
    raise ValueError(constant + " is no JSON")


def parse(lines):
    return [json.loads(line, parse_constant=refuse) for line in lines]


def by_kind(events):
    kinds = {}
    for one in events:
        kinds.setdefault(one["event"], []).append(one)
    return kinds


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in order and that none loads a file."""

    EMPTY = ("meta", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.texts = [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)
        for key, value in attrs:
            assert key not in ("src", "href") and not key.startswith("on"), (tag, key)
            assert "NaN" not in (value or "") and "undefined" not in (value or ""), (tag, key, value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data.strip())

    def count(self, tag, kind=None):
        return sum(one == tag and kind in (None, attrs.get("class")) for one, attrs in self.seen)


# log.jsonl has one JSON object per line, grouped by event.
with open(os.path.join(directory, "log.jsonl"), encoding="utf-8") as file:
    log = parse(file)
kinds = by_kind(log)
assert sorted(kinds) == ["end", "epoch", "run", "step"], sorted(kinds)
assert log[0]["event"] == "run" and log[-1]["event"] == "end"
run, steps, end = kinds["run"][0], kinds["step"], kinds["end"][0]
assert len(kinds["epoch"]) == run["epochs"]
assert len(run["ranks"]) == len(steps[0]["ranks"]) == len(end["ranks"]) == run["size"]
assert [one["total"] for one in steps] == sorted({one["total"] for one in steps})
assert steps[-1]["total"] == run["end"]

# The rates in the lines of steps, epochs and the run must agree.
samples, seconds = (sum(one[key] for one in steps) for key in ("samples", "seconds"))
assert samples == end["samples"] and math.isclose(seconds, end["training"])
assert math.isclose(samples / seconds, end["images_per_second"])
assert math.isclose(sum(one["seconds"] for one in kinds["epoch"]), seconds)

# The event files must have the same numbers.
(events,) = glob.glob(os.path.join(directory, "events.out.tfevents.*"))
points = {}
for tag, step, value in eventfile.load(events):
    points.setdefault(tag, {})[step] = value
assert sorted(points) == sorted(
    ["train/loss", "train/top1", "train/lr", "train/images_per_second", "test/loss", "test/top1",
     "test/top5", "time/data", "time/compute", "time/all_reduce"]), sorted(points)
for one in steps:
    for tag, key in (("loss", "loss"), ("top1", "top1"), ("lr", "lr"),
                     ("images_per_second", "images_per_second")):
        assert math.isclose(points["train/" + tag][one["total"]], one[key], rel_tol=1e-6), (tag, one)
    assert math.isclose(sum(points["time/" + phase][one["total"]]
                            for phase in ("data", "compute", "all_reduce")), 1, rel_tol=1e-6)
for one in kinds["epoch"]:
    for tag in ("loss", "top1", "top5"):
        assert math.isclose(points["test/" + tag][one["total"]], one["test_" + tag], rel_tol=1e-6)

# The page must be well-formed, small and complete, and must load nothing.
assert os.path.getsize(path) < 1000000
with open(path, encoding="utf-8") as file:
    source = file.read()
page = Page(source)
assert page.count("script") == 2 and page.count("style") == 1
assert "url(" not in source and "@import" not in source
embedded = by_kind(parse(page.texts["script"][0].splitlines()))
assert embedded["run"] == kinds["run"] and embedded["epoch"] == kinds["epoch"]
assert {**embedded["end"][0], "time": ""} == {**end, "time": ""}
assert len(embedded["step"]) == len(steps)
for mine, other in zip(embedded["step"], steps):
    assert all(other[key] == mine[key] for key in mine if key != "speeds"), (mine, other)


def draw(text, width=1280):
    """Returns the page as drawn by the browser, or by node, which has no widths."""
    with open(path, "w", encoding="utf-8") as out:
        out.write(text.replace("</body>", "<script>document.body.dataset.wide = "
                               "document.documentElement.scrollWidth - innerWidth</script></body>"))
    if os.path.basename(browser).startswith("node"):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page-dom.js")
        done = subprocess.run([browser, script, path], stdout=subprocess.PIPE, encoding="utf-8", check=True)
        return Page(done.stdout)
    done = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
         f"--user-data-dir={directory}/profile", "--enable-logging=stderr", "--dump-dom",
         "file://" + os.path.realpath(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=True, timeout=120)
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not errors, errors
    found = Page(re.sub(r"<script.*?</script>|<style.*?</style>", "", done.stdout, flags=re.DOTALL))
    (wide,) = (attrs["data-wide"] for tag, attrs in found.seen if tag == "body")
    assert int(wide) <= 0, f"{wide} pixels too wide at {width}"
    return found


if browser:
    shown = draw(source)
    charts = [attrs["id"] for tag, attrs in shown.seen if tag == "figure"]
    assert charts == ["loss", "accuracy", "throughput", *["ranks-speed"] * (run["size"] > 1), "rate",
                      "times"], charts
    assert shown.texts["h1"] == [run["title"]] and run["command"] in shown.texts["code"]
    assert run["title"] in shown.texts["title"]
    curves = [attrs["d"] for tag, attrs in shown.seen if tag == "path" and "line" in attrs["class"]]
    assert sum(len(re.findall("[ML]", one)) == len(steps) + 1 for one in curves) >= 3
    # At the end of an epoch the rate changes, so the curve has a vertical and then a horizontal
    # line.
    assert any(len(re.findall("V[^H]*H", one)) == run["epochs"] - 1 for one in curves)
    rows = min(len(kinds["epoch"]), 200) + run["size"] + (run["size"] > 1)
    assert shown.count("tr") == 2 + rows, shown.count("tr")
    assert shown.count("div", "bar") == min(run["size"], 64)
    # Two more pages, drawn on a narrow screen: a training that is running and has a loss that is
    # not finite, and a training before its first step.
    going = source.replace('{"event": "end"', '{"event": "now"')
    middle = steps[len(steps) // 2]["total"]
    going = re.sub(rf'("total": {middle}, "loss": )[0-9.e-]+', r"\1null", going)
    shown = draw(going, 360)
    assert "not ended" in shown.texts["p"]
    assert any(f"from step {middle} on" in " ".join(text.split()) for text in shown.texts["p"])
    shown = draw(re.sub(r'\n{"event": "(step|epoch|say)".*', "", going), 360)
    assert "before the end of the first epoch" in " ".join(shown.texts["p"])
