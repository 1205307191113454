#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Independent parsers read a training's JSON log, event files and page, and a browser draws the page.

if ! command -v python3 >/dev/null; then
	echo 'python3 was not found'
	exit 77
fi
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || command -v node)
directory=$(mktemp -d "${TMPDIR:-/tmp}/ddp-report.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT

train()
{
	"${top_builddir:-../..}/runtime/train/ddp-train" mnist -t 1 --samples 480 "$@" >"$directory/out" || exit 1
}

for ranks in 1 3; do
	mkdir "$directory/$ranks"
	train -n "$ranks" -e 3 -b 8 --log-every 4 --log-json "$directory/$ranks/log.jsonl" \
		--report "$directory/$ranks/report.html" --tensorboard "$directory/$ranks"
	python3 "${srcdir:-.}/report-files.py" "$directory/$ranks" || exit 1
done
echo 'ok 1 - the files of a report'
if [ -z "$browser" ]; then
	echo 'ok 2 - a browser draws the page # skip neither chromium, google-chrome nor node was found'
	exit 0
fi
for ranks in 1 3; do
	HOME=$directory python3 "${srcdir:-.}/report-files.py" "$directory/$ranks" "$browser" || exit 1
done
echo 'ok 2 - a browser draws the page'
if ! command -v node >/dev/null; then
	echo 'ok 3 - pages of resumed trainings and evaluations # skip node was not found'
	exit 0
fi

# has TEXT: succeeds if the last page has TEXT, apart from spaces between elements.
draw() { node "${srcdir:-.}/page-dom.js" "$directory/page.html" | tr -s '\t\n ' ' ' >"$directory/drawn"; }
has() { grep -qF -- "$1" "$directory/drawn" || { echo "the page does not have $1"; exit 1; }; }
lacks() { ! grep -qF -- "$1" "$directory/drawn" || { echo "the page has $1"; exit 1; }; }

# 2 epochs of 60 steps, then 2 of 30 steps: the ticks of the epochs are at the steps at which they ended.
train -n 1 -b 8 -e 2 -c "$directory/state" -r "$directory/page.html"
train -n 1 -b 16 -e 4 -c "$directory/state" -r "$directory/page.html"
draw
for tick in '33.06878306878307%" 1' '66.13756613756614%" 2' '82.67195767195767%" 3' '99.20634920634922%" 4'; do
	has "<text x=\"${tick% *} y=\"100%\" dy=\"1.5em\" text-anchor=\"middle\">${tick#* }</text>"
done
# A finished training that is run again keeps its page.
cp "$directory/page.html" "$directory/before.html"
train -n 1 -b 16 -e 4 -c "$directory/state" -r "$directory/page.html"
cmp "$directory/page.html" "$directory/before.html" || exit 1
# An evaluation has its result, and no curves.
train -n 1 --evaluate -c "$directory/state" -r "$directory/page.html"
draw
has '<dt>Accuracy</dt>'
lacks nan
lacks 'class="chart"'
# One interval in all: its curves begin at step 0, and are more than an invisible point.
train -n 1 -b 16 -e 1 --log-every 30 -r "$directory/page.html"
draw
grep -qE '<path class="line c0" d="M0.0,[^"]*L992.1,[^"]*"' "$directory/drawn" || exit 1
# The labels of large losses stay short. In a warm-up the rate rises in a straight line.
(train -n 1 -b 16 -e 1 --warmup 1 -l 1e4 --log-every 3 -r "$directory/page.html") # may diverge
draw
! grep -oE 'text-anchor="end">[^<]*' "$directory/drawn" | grep -E '>[^<]{9,}$' || exit 1
grep -qE '<path class="line c3" d="M[^"]*L[^"]*L[^V"]*"' "$directory/drawn" || exit 1
echo 'ok 3 - pages of resumed trainings and evaluations'
