#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The files of a report are what the readers of others take: JSON, event files, HTML.

if ! command -v python3 >/dev/null; then
	echo 'python3 was not found'
	exit 77
fi
directory=$(mktemp -d "${TMPDIR:-/tmp}/ddp-report.XXXXXX") || exit 99
trap 'rm -rf "$directory"' EXIT

# check RANKS [NAME]
check()
{
	ranks=$1
	shift
	rm -rf "$directory/run"
	./report-demo "$directory/run" "$ranks" 0 "$@" >"$directory/out" || exit 1
	python3 "${srcdir:-.}/report-files.py" "$directory/run" "$@" || exit 1
}

check 1
check 2
check 64
check 1000
# shellcheck disable=SC1003 # a backslash is meant
check 3 '<script>alert("1")</script> & '\''x'\'' ]]> <!-- é --> {"a": 1}\'
