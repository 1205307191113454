#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks manual pages. ddp.h(3) is written by hand: it must have every error, and every function of
# ddp.h with the same prototype, and no other names. All pages of the runtime must be valid roff.

top=${top_srcdir:?}
header=$top/runtime/ddp.h
page=$top/runtime/ddp.3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

fail()
{
	echo "man.sh: $*" >&2
	status=1
}

# Prints one prototype per line, with normalized spaces.
prototypes()
{
	tr '\n\t' '  ' | sed 's/;/;\n/g' | sed 's/  */ /g; s/^ //; s/ $//; s/( /(/g' | sort
}

awk '/^DDP_API/ { on = 1 } on { print } /;/ { on = 0 }' "$header" |
	sed 's/^DDP_API //; s/ *DDP_FORMAT([^)]*)//' | prototypes >"$work/header"
sed -n '/^\.EX/,/^\.EE/p' "$page" | sed 's/\\-/-/g' |
	awk '/^[a-z].*ddp_[a-z0-9_]*\(/ { on = 1 } on { print } /;$/ { on = 0 }' |
	prototypes >"$work/page"

count=$(grep -c '' "$work/header")
[ "$count" -gt 40 ] || fail "found $count functions in $header"
missing=$(comm -23 "$work/header" "$work/page")
[ -z "$missing" ] || fail "$page lacks these of $header:
$missing"
extra=$(comm -13 "$work/header" "$work/page")
[ -z "$extra" ] || fail "$header lacks these of $page:
$extra"

# The page's text must name only functions that ddp.h has.
grep -o 'ddp_[a-z0-9_]*' "$page" | sort -u | while read -r name; do
	grep -qw "$name" "$header" || echo "$name"
done >"$work/unknown"
[ -s "$work/unknown" ] && fail "$header lacks $(tr '\n' ' ' <"$work/unknown")"

sed -n '/DDP_STATUS_MAP/,/^$/s/.*X(\([A-Z]*\), *-.*/DDP_ERR_\1/p' "$header" | sort >"$work/errors"
grep -o 'DDP_ERR_[A-Z][A-Z]*' "$page" | sort -u >"$work/page-errors"
diff "$work/errors" "$work/page-errors" >"$work/diff" || fail "errors differ: < in the header, > on the page:
$(cat "$work/diff")"

if command -v groff >/dev/null; then
	for file in "$page" "$top/runtime/info/ddp-info.1" "${top_builddir:?}/runtime/slurm-ddp.7" \
		"$top_builddir/runtime/launch/ddp-exec.1" "$top_builddir/runtime/train/ddp-train.1"; do
		test -f "$file" || { fail "$file does not exist"; continue; }
		groff -man -ww -z "$file" 2>"$work/groff"
		[ -s "$work/groff" ] && fail "$file: $(cat "$work/groff")"
	done
fi
exit "$status"
