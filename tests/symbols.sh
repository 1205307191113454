#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks the symbols that the built libraries export and need.
#
# ddp.so shares a process with Slurm, whose libraries export thousands of names. So ddp.so must
# define the names that Slurm searches for, and no others, and must need no library but libc.
# Libraries that sanitizers add are accepted.
#
# libddp must have the soname, and must export the symbols of libddp.symbols and no others. The
# opening comment of ddp.h says when these may change. Each module must export only ddp_module.

runtime=${DDP_RUNTIME:?the build directory of runtime/}
plugin=${DDP_PLUGIN-} # empty: built without Slurm
list=${srcdir:-.}/libddp.symbols
status=0

fail()
{
	echo "symbols.sh: $*" >&2
	status=1
}

# NM may contain an option, as libtool's does.
exported()
{
	# shellcheck disable=SC2086
	${NM:-nm} -D --defined-only "$1" | sed 's/.* //; s/@.*//' | LC_ALL=C sort
}

dynamic() # FILE TAG
{
	"${READELF:-readelf}" -d "$1" | sed -n "s/.*($2).*\[\(.*\)\]/\1/p"
}

check_plugin()
{
	symbols=$(exported "$plugin")
	for name in plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_task_init; do
		echo "$symbols" | grep -qx "$name" || fail "$plugin does not define $name"
	done
	for name in $symbols; do
		case $name in
		plugin_name | plugin_type | plugin_version | slurm_spank_*) ;;
		*) fail "$plugin exports $name" ;;
		esac
	done
	for name in $(dynamic "$plugin" NEEDED); do
		case $name in
		libc.so.* | ld-linux*.so.*) ;;
		libasan.so.* | libubsan.so.* | libtsan.so.* | libclang_rt.*) ;;
		*) fail "$plugin needs $name" ;;
		esac
	done
}

check_library()
{
	library=$runtime/.libs/libddp.so
	difference=$({ dynamic "$library" SONAME && exported "$library"; } | diff "$list" -)
	[ -z "$difference" ] || fail "$library differs from $list:
$difference"
	for module in "$runtime"/.libs/ddp_*.so; do
		[ ! -e "$module" ] || [ "$(exported "$module")" = ddp_module ] ||
			fail "$module exports $(exported "$module" | tr '\n' ' '), not ddp_module only"
	done
}

check_library
[ -z "$plugin" ] || check_plugin
exit "$status"
