#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Independent parsers read a report's JSON log, event files and page, and a browser draws the page.

if ! command -v python3 >/dev/null; then
	echo 'python3 was not found'
	exit 77
fi
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
directory=$(mktemp -d "${TMPDIR:-/tmp}/ddp-report.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT

# check RANKS NAME [BROWSER]
check()
{
	ranks=$1
	shift
	rm -rf "$directory/run"
	./report-demo "$directory/run" "$ranks" 0 ${1:+"$1"} >"$directory/out" || exit 1
	HOME=$directory python3 "${srcdir:-.}/report-files.py" "$directory/run" "$@" || exit 1
}

# shellcheck disable=SC1003 # a literal backslash
name='<script>alert("1")</script> & '\''x'\'' ]]> <!-- é --> {"a": 1}\'
for ranks in 1 2 64 1000; do
	check $ranks ''
done
check 3 "$name"
echo 'ok 1 - the files of a report'
if [ -z "$browser" ]; then
	echo 'ok 2 - a browser draws the page # skip neither chromium nor google-chrome was found'
	exit 0
fi
check 1 '' "$browser"
check 65 "$name" "$browser"
echo 'ok 2 - a browser draws the page'
