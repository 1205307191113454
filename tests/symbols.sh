#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ddp.so shares a process with Slurm, whose libraries export thousands of names: it must
# define what Slurm looks up and nothing else, and pull in no library but libc. What the
# sanitizers of an instrumented build add is let through.

plugin=${DDP_PLUGIN:?the path of ddp.so}
status=0

fail()
{
	echo "symbols.sh: $plugin $*" >&2
	status=1
}

if ! test -f "$plugin"; then
	fail "does not exist"
	exit "$status"
fi

# NM may hold a flag, as libtool's choice does.
# shellcheck disable=SC2086
symbols=$(${NM:-nm} -D --defined-only "$plugin" | sed 's/.* //; s/@.*//')
for name in plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_task_init; do
	echo "$symbols" | grep -qx "$name" || fail "does not define $name"
done
for name in $symbols; do
	case $name in
	plugin_name | plugin_type | plugin_version | slurm_spank_*) ;;
	*) fail "exports $name" ;;
	esac
done

needed=$("${READELF:-readelf}" -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
	case $name in
	libc.so.* | ld-linux*.so.*) ;;
	libasan.so.* | libubsan.so.* | libtsan.so.* | libclang_rt.*) ;;
	*) fail "needs $name" ;;
	esac
done

exit "$status"
