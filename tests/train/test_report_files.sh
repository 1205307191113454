#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Independent parsers read a training's JSON log, event files and page, and a browser draws the page.

if ! command -v python3 >/dev/null; then
	echo 'python3 was not found'
	exit 77
fi
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
directory=$(mktemp -d "${TMPDIR:-/tmp}/ddp-report.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT

for ranks in 1 3; do
	mkdir "$directory/$ranks"
	"${top_builddir:-../..}/runtime/train/ddp-train" mnist -n "$ranks" -t 1 --samples 480 -e 3 -b 8 \
		--log-every 4 --log-json "$directory/$ranks/log.jsonl" \
		--report "$directory/$ranks/report.html" --tensorboard "$directory/$ranks" \
		>"$directory/out" || exit 1
	python3 "${srcdir:-.}/report-files.py" "$directory/$ranks" || exit 1
done
echo 'ok 1 - the files of a report'
if [ -z "$browser" ]; then
	echo 'ok 2 - a browser draws the page # skip neither chromium nor google-chrome was found'
	exit 0
fi
for ranks in 1 3; do
	HOME=$directory python3 "${srcdir:-.}/report-files.py" "$directory/$ranks" "$browser" || exit 1
done
echo 'ok 2 - a browser draws the page'
