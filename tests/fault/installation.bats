# SPDX-License-Identifier: Apache-2.0
# Installations without root: a prefix that was copied to another directory, and a wheel. The tests
# make both from $DDP_BUILDDIR, unless DDP_TARBALL and DDP_WHEEL name those that contrib/package
# made.
#
# shellcheck disable=SC2016,SC2086,SC2154 # readelf prints $ORIGIN; status and output come from run

setup_file()
{
	SRC=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	DDP_BUILDDIR=${DDP_BUILDDIR:-$SRC}
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-installation.XXXXXX")
	export SRC DDP_BUILDDIR DIR
	VERSION=$(sed -n 's/^AC_INIT(\[slurm-ddp\], \[\([^]]*\)\].*/\1/p' "$SRC/configure.ac")
	export VERSION
	mkdir "$DIR/dest"
	if [ -n "${DDP_TARBALL-}" ]; then
		tar -C "$DIR/dest" -xzf "$DDP_TARBALL"
	else
		flock "$DDP_BUILDDIR/Makefile" make -C "$DDP_BUILDDIR/runtime" install DESTDIR="$DIR/dest" >"$DIR/install.log" 2>&1
	fi
	prefix=$(find "$DIR/dest" -name ddp-train)
	cp -a "${prefix%/bin/ddp-train}" "$DIR/copy"
	rm -r "$DIR/dest"
	wheel=${DDP_WHEEL:-$(SOURCE_DATE_EPOCH=0 python3 "$SRC/contrib/package.d/wheel.py" "$DIR/copy" "$VERSION" \
		"py3-none-linux_$(uname -m)" "$DIR")}
	/usr/bin/python3 -m venv "$DIR/venv"
	env -i PATH="$PATH" "$DIR/venv/bin/pip" --disable-pip-version-check install --no-index "$wheel" >"$DIR/pip.log"
}

teardown_file() { rm -rf "$DIR"; }

# bare COMMAND...: runs the command with only PATH in the environment.
bare() { env -i PATH="$PATH" "$@"; }

# trains BIN ROOT: runs ddp-train and ddp-info, also with --check, in directory BIN. If ROOT has the oneDNN module, and
# this host has its libraries, ddp-train must use it.
trains()
{
	local module engine=''
	module=$(find "$2" -name ddp_onednn.so)
	[ -z "$module" ] || ldd "$module" | grep -q 'not found' || engine='oneDNN [0-9.]+, '
	run bare "$1/ddp-train" mnist -n 1 --samples 256 --epochs 1
	[ "$status" -eq 0 ]
	grep -Eq "^1 rank on 1 node, cpu: $engine" <<<"$output"
	run bare "$1/ddp-info" --max-bytes 64K
	[ "$status" -eq 0 ]
	grep -q ' 1 rank on 1 node, ' <<<"$output"
	# Its verdicts depend on the Slurm of this host, if there is one.
	run bare "$1/ddp-info" --check --here --limit 5
	grep -q '^verdict  on ' <<<"$output"
}

# decodes BIN: checks that a program in directory BIN, with the code of ddp-run, finds its decoder of dumps.
decodes()
{
	rm -rf "$DIR/failed"
	mkdir "$DIR/failed"
	echo 'n1 1' >"$DIR/failed/task-0"
	for rank in 0 1 2; do
		cp "$SRC/tests/runtime/dumps/gloo-$rank" "$DIR/failed/fr-$rank"
	done
	flock "$DDP_BUILDDIR/Makefile" make -s -C "$DDP_BUILDDIR/tests/runtime" report
	cp "$DDP_BUILDDIR/tests/runtime/report" "$1/"
	run bare "$1/report" "$DIR/failed" 3
	rm "$1/report"
	[ "$status" -eq 0 ]
	[[ $output == *'did not arrive in #5 gloo:all_reduce 100 Float: rank 2'* ]]
}

@test "a copied prefix: ddp-train finds libddp and its modules" {
	trains "$DIR/copy/bin" "$DIR/copy"
}

@test "a copied prefix: its programs do not name the directory that they were installed in" {
	readelf -d "$DIR"/copy/bin/ddp-{info,train} >"$DIR/dynamic"
	[ "$(grep -c 'RUNPATH.*\[\$ORIGIN/\.\./lib[^]:]*\]$' "$DIR/dynamic")" -eq 2 ]
}

@test "a copied prefix: ddp-run finds the decoder of flight recorder dumps" {
	decodes "$DIR/copy/bin"
}

@test "programs, libddp, ddp.pc, manual pages, changelog and wheel have the release of configure.ac" {
	[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]
	for program in ddp-exec ddp-info ddp-run ddp-train; do
		[ "$(bare "$DIR/copy/bin/$program" --version)" = "$program $VERSION" ]
	done
	grep -qx "#define DDP_VERSION \"$VERSION\"" "$DIR/copy/include/ddp.h"
	[ "$(PKG_CONFIG_PATH=$(dirname "$(find "$DIR/copy" -name ddp.pc)") pkg-config --modversion ddp)" = "$VERSION" ]
	grep -q "^\.TH SLURM-DDP 7 \"\" \"slurm-ddp $VERSION\"" "$DIR/copy/share/man/man7/slurm-ddp.7"
	[[ $("$DIR/venv/bin/pip" --disable-pip-version-check show slurm-ddp) == *"Version: $VERSION"* ]]
	# the latest release in the changelog
	[ "$(sed -n 's/^## \[\([0-9].*\)\].*/\1/p' "$SRC/CHANGELOG.md" | head -n 1)" = "$VERSION" ]
}

@test "a wheel in a new environment: every program is in PATH and works" {
	(cd "$DIR/copy/bin" && for program in *; do [ -x "$DIR/venv/bin/$program" ]; done)
	trains "$DIR/venv/bin" "$DIR/venv"
	decodes "$(echo "$DIR"/venv/lib/python*/site-packages/slurm_ddp/bin)"
	# The arguments and the exit status are passed on unchanged.
	run bare "$DIR/venv/bin/ddp-train" mnist --epochs 'a b'
	[ "$status" -eq 2 ]
	[[ $output == *'a b'* ]]
}

@test "a wheel and a copied prefix: Python finds libddp" {
	for python in "$DIR/venv/bin/python3" "env PYTHONPATH=$DIR/copy/share/slurm-ddp/python /usr/bin/python3"; do
		[ "$(bare $python -c 'import slurm_ddp; from slurm_ddp._lib import library; print(library().ddp_version().decode())')" = "$VERSION" ]
	done
}

@test "a wheel: modules look for CUDA, cuDNN and NCCL in the nvidia-* wheels beside it" {
	[ -n "${DDP_WHEEL-}" ] || skip 'DDP_WHEEL names no wheel of contrib/package'
	module=$(find "$DIR/venv" -name ddp_mpi.so)
	[ -n "$module" ] || skip 'built without MPI'
	[[ $(readelf -d "$module") == *'[$ORIGIN/../../../nvidia/cu13/lib:'*'/nvidia/nccl/lib]'* ]]
	[[ $(cd "${module%/*}/../../.." && pwd) == */site-packages ]]
}

@test "a wheel: pip uninstall removes every file" {
	"$DIR/venv/bin/pip" --disable-pip-version-check uninstall -y slurm-ddp >>"$DIR/pip.log"
	[ -z "$(find "$DIR/venv" -type f -name '*ddp*')" ]
}
