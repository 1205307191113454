# SPDX-License-Identifier: Apache-2.0
# Build and installation scripts of contrib/, with stubs in place of compilers; errors of configure
# and make install; the shell completion. The tests build nothing. They need $DDP_BUILDDIR.
#
# shellcheck disable=SC2154 # status, output and lines come from run

setup()
{
	SRC=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	DDP_BUILDDIR=${DDP_BUILDDIR:-$SRC}
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-scripts.XXXXXX")
	# A source tree without git, as from an archive.
	TREE=$DIR/tree
	mkdir -p "$TREE/contrib" "$DIR/bin" "$DIR/out"
	chmod 755 "$DIR"
	cp -r "$SRC"/contrib/{minicluster,package,package.d,quickstart} "$TREE/contrib"
	cp "$SRC/configure.ac" "$TREE"
	PATH=$DIR/bin:$PATH
}

teardown() { rm -rf "$DIR"; }

# stub NAME <SCRIPT: creates a command NAME in a directory that is first in PATH.
stub()
{
	{ echo '#!/bin/bash' && cat; } >"$DIR/bin/$1"
	chmod 755 "$DIR/bin/$1"
}

stub_deb()
{
	stub dh </dev/null
	stub dpkg-buildpackage <<-'END'
		[[ ! -e config.status && ! -e built.o && ! -e .git ]] || exit 1
		grep ^Maintainer debian/control
		eval "printf '<%s>\n' $DDP_CONFIGURE"
		touch ../slurm-ddp_1_amd64.{deb,buildinfo,changes}
	END
}

# Creates the user's own files in the directory of --output.
users_files()
{
	mkdir -p "$DIR/out/rpm" "$DIR/out/slurm-ddp-0.1.0"
	touch "$DIR/out"/{other_1_amd64.deb,other-1.x86_64.rpm,slurm-ddp-0.1.0.tar.gz,rpm/kept,slurm-ddp-0.1.0/kept}
	find "$DIR/out" | sort >"$DIR/before"
}

@test "package deb: other files in --output are kept, a maintainer with & and an option with a blank are passed on unchanged" {
	stub_deb
	users_files
	# --output is relative to the caller's directory.
	cd "$DIR"
	run env DEBFULLNAME='A & B' DEBEMAIL=a@b "$TREE/contrib/package" deb --output out -- 'CFLAGS=-O2 -g' --with-pmix
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = 'Maintainer: A & B <a@b>' ]
	[ "${lines[1]} ${lines[2]}" = '<CFLAGS=-O2 -g> <--with-pmix>' ]
	[ "${lines[-1]}" = "$DIR/out/slurm-ddp_1_amd64.deb" ]
	find "$DIR/out" | grep -v '/slurm-ddp_1_amd64\.[a-z]*$' | sort | diff "$DIR/before" -
}

@test "package deb: if git refuses to list the files, its reason is printed, and .git is not packed" {
	stub_deb
	mkdir "$TREE/.git"
	stub git <<<'echo "fatal: detected dubious ownership in repository" >&2; exit 128'
	run "$TREE/contrib/package" deb --output "$DIR/out"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "package: git cannot list the sources, so all files in $TREE are copied: fatal: detected dubious ownership in repository" ]
}

@test "package: a path with a space is refused before the build" {
	stub_deb
	run "$TREE/contrib/package" deb --output "$DIR/a b"
	[ "$status" -eq 1 ]
	[ "$output" = "package: cannot build in '$DIR/a b': give a path without blanks, quotes and parentheses with --output" ]
	[ ! -e "$DIR/a b" ]
}

@test "package rpm: other files in the output directory are kept" {
	stub rpm </dev/null
	stub rpmbuild <<-'END'
		for word; do
			[[ $word != _topdir* ]] || top=${word#* }
			[[ $word != ddp_configure* ]] || echo "$word"
		done
		mkdir -p "$top/RPMS/x86_64" && touch "$top/RPMS/x86_64/slurm-ddp-1.x86_64.rpm"
	END
	stub cc <<<'echo 1444096' # SLURM_VERSION_NUMBER
	users_files
	run env CC=cc "$TREE/contrib/package" rpm --output "$DIR/out" -- 'CFLAGS=-O2 -g'
	[ "$status" -eq 0 ]
	[ "$output" = "ddp_configure 'CFLAGS=-O2 -g'%{nil}
$DIR/out/slurm-ddp-1.x86_64.rpm" ]
	find "$DIR/out" | grep -v '/slurm-ddp-1\.x86_64\.rpm$' | sort | diff "$DIR/before" -
}

@test "package deb: a tree that was built in place is packaged without its products" {
	stub_deb
	touch "$TREE/config.status" "$TREE/built.o"
	printf 'distclean:\n\trm -f config.status built.o Makefile\n' >"$TREE/Makefile"
	run "$TREE/contrib/package" deb --output "$DIR/out"
	[ "$status" -eq 0 ]
	[ -e "$TREE/built.o" ]
}

@test "package tarball, wheel: a failed build prints the path of its log and keeps the files in the output directory" {
	printf '#!/bin/sh\necho "$CFLAGS"\necho no compiler >&2\nexit 1\n' >"$TREE/configure"
	chmod 755 "$TREE/configure"
	users_files
	for kind in tarball wheel; do
		run "$TREE/contrib/package" $kind --output "$DIR/out"
		[ "$status" -eq 1 ]
		[[ $output == "package: the build failed, see $DIR/out/build."*/log ]]
		grep -qx 'no compiler' "${output##* }"
		# The random name of the scratch directory does not get into the programs.
		grep -qE '^-g -O2 -ffile-prefix-map=[^ ]*/build\.[^ ]*=\.$' "${output##* }"
		rm -r "$DIR"/out/build.*
		find "$DIR/out" | sort | diff "$DIR/before" -
	done
}

@test "package --target: a malformed system, a deb and a missing ziglang are refused before the build" {
	stub python3 <<<'exit 1'
	users_files
	for arguments in 'wheel --target x86_64' 'deb --target x86_64-linux-gnu.2.28' 'wheel --cuda --target x86_64-linux-gnu.2.28'; do
		# shellcheck disable=SC2086 # words
		run "$TREE/contrib/package" $arguments --output "$DIR/out"
		[ "$status" -eq 2 ]
	done
	run "$TREE/contrib/package" wheel --target x86_64-linux-gnu.2.28 --output "$DIR/out"
	[ "$status" -eq 1 ]
	[ "$output" = 'package: --target needs ziglang; type: python3 -m venv build/zig && build/zig/bin/pip install ziglang' ]
	find "$DIR/out" | sort | diff "$DIR/before" -
}

@test "quickstart: a path with a space, or one too long for Slurm, is refused before the build" {
	mv "$TREE" "$DIR/a b"
	run "$DIR/a b/contrib/quickstart"
	[ "$status" -eq 1 ]
	[ "$output" = "quickstart: cannot build in '$DIR/a b': move the clone to a path without blanks, quotes and parentheses" ]
	[ ! -e "$DIR/a b/build" ]
	mv "$DIR/a b" "$DIR/a(1)"
	run "$DIR/a(1)/contrib/quickstart"
	[ "$status" -eq 1 ]
	[[ $output == "quickstart: cannot build in '$DIR/a(1)': "* ]]
	mv "$DIR/a(1)" "$TREE"
	long=$DIR/$(printf '%060d' 0)
	mkdir "$long"
	TMPDIR=$long run "$TREE/contrib/quickstart"
	[ "$status" -eq 1 ]
	[[ $output == "quickstart: the private Slurm cannot be in TMPDIR, '$long'; set TMPDIR to "*" characters: "* ]]
	[ -z "$(ls "$long")" ]
	[ ! -e "$TREE/build" ]
}

@test "quickstart: a clone that this user cannot write in is named" {
	chmod 555 "$TREE"
	user=()
	[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	run "${user[@]}" "$TREE/contrib/quickstart" --install build
	chmod 755 "$TREE"
	[ "$status" -eq 1 ]
	[[ $output == "quickstart: cannot make build/: "*" cannot write in $TREE; use a clone of your own" ]]
}

@test "quickstart: a second run in the same clone is refused, and the first one's log is kept" {
	mkdir "$TREE/build"
	echo first >"$TREE/build/quickstart.log"
	run flock "$TREE/build/quickstart.log" "$TREE/contrib/quickstart" --install build
	[ "$status" -eq 1 ]
	[ "$output" = "quickstart: another quickstart is running in $TREE: wait until it has ended" ]
	[ "$(cat "$TREE/build/quickstart.log")" = first ]
}

@test "quickstart --install: an unknown group is refused, and nothing is installed" {
	printf '[build]\nbash\n' >"$TREE/contrib/packages"
	run "$TREE/contrib/quickstart" --install build typo
	[ "$status" -eq 1 ]
	[ "$output" = "quickstart: contrib/packages has no group 'typo'" ]
}

# Stubs replace configure, make and minicluster. quickstart ends because the cluster does not start.
@test "quickstart: a clone that was moved after a build is built again" {
	printf '[build]\nbash\n[run]\nbash\n[engines]\nbash\n' >"$TREE/contrib/packages"
	printf '#!/bin/sh\ntest "$1" = status || echo "minicluster $1" >>%s/calls; exit 1\n' "$DIR" >"$TREE/contrib/minicluster"
	printf '#!/bin/sh\npwd | sed "s/^/abs_top_builddir = /" >Makefile; echo configure >>%s/calls\n' "$DIR" >"$TREE/configure"
	stub make <<-END
		echo "make \$*" >>$DIR/calls
		mkdir -p build/spank-plugin/.libs && touch build/spank-plugin/.libs/ddp.so
	END
	chmod 755 "$TREE"/{configure,contrib/minicluster}
	mkdir "$TREE/build"
	touch -d yesterday "$TREE/configure.ac"
	touch "$TREE/Makefile.in" "$TREE/build/config.status"
	echo "abs_top_builddir = $DIR/original/build" >"$TREE/build/Makefile"
	TMPDIR=$DIR run "$TREE/contrib/quickstart"
	[[ $output == *"'contrib/minicluster up --dir "*"' failed with status 1; "* ]]
	# No cluster was started, so none is stopped.
	[[ $output != *"did not go down"* ]]
	diff "$DIR/calls" - <<-END
		configure
		make -C build clean
		make -C build -j $(nproc)
		minicluster up
	END
}

@test "check: as root, other users cannot enter the clone during the run" {
	[ "$(id -u)" -eq 0 ] || skip 'not root'
	cp "$SRC/contrib/check" "$TREE/contrib"
	printf '#!/bin/sh\nstat -c %%a . >%s/mode\nexit 1\n' "$DIR" >"$TREE/contrib/quickstart"
	chmod 750 "$TREE"
	run env -u CHECK_ON "$TREE/contrib/check" style
	[ "$status" -eq 1 ]
	[ "$output" = "until the end of this run only root can enter $TREE (mode 0700, then 750 again)" ]
	[ "$(cat "$DIR/mode") $(stat -c %a "$TREE")" = '700 750' ]
}

# install_plugin [VARIABLE=VALUE]...: runs make install for the plugin, with the same directories for each build.
install_plugin()
{
	flock "$DDP_BUILDDIR/Makefile" make -k -C "$DDP_BUILDDIR/spank-plugin" install DESTDIR="$DIR/dest" "$@"
}

@test "make install: an interrupted copy leaves the old ddp.so and zz-ddp.conf" {
	install_plugin
	stub half <<-'END'
		[[ -d ${!#} ]] || head -c 100 "${@: -2:1}" >"${!#}"
		exit 1
	END
	run install_plugin INSTALL="$DIR/bin/half" INSTALL_PROGRAM="$DIR/bin/half" INSTALL_DATA="$DIR/bin/half"
	[ "$status" -ne 0 ]
	cmp "$DDP_BUILDDIR/spank-plugin/.libs/ddp.so" "$(find "$DIR/dest" -name ddp.so)"
	cmp "$DDP_BUILDDIR/spank-plugin/zz-ddp.conf" "$(find "$DIR/dest" -name zz-ddp.conf)"
}

@test "make install: with umask 077 every user can enter the directories" {
	(umask 077 && install_plugin)
	[ -z "$(find "$DIR/dest" -type d ! -perm 755)" ]
}

# dpkg and rpm ask about an edited file, or stop, if the new version's file differs from the old one's.
@test "zz-ddp.conf contains no version" {
	sed -n -E 's/^(VERSION|SLURM_VERSION|SLURM_MAJOR_MINOR) = //p' "$DDP_BUILDDIR/spank-plugin/Makefile" >"$DIR/versions"
	[ "$(wc -l <"$DIR/versions")" -eq 3 ]
	[ -z "$(grep -v SPDX "$DDP_BUILDDIR/spank-plugin/zz-ddp.conf" | grep -F -f "$DIR/versions")" ]
}

@test "make install: a DESTDIR with a space is refused before anything is installed" {
	run make -s -C "$DDP_BUILDDIR" install DESTDIR="$DIR/a b"
	[ "$status" -eq 2 ]
	[ "${lines[0]}" = "DESTDIR '$DIR/a b' has a blank, which libtool does not support" ]
	[ ! -e "$DIR/a b" ]
}

# refused MESSAGE OPTION...: checks that configure fails with this message before it searches for a
# compiler.
refused()
{
	cd "$DIR/out"
	run "$SRC/configure" "${@:2}"
	[ "$status" -eq 1 ]
	[[ $output == *"configure: error: $1"* ]]
	[[ $output != *gcc* ]]
}

@test "configure: a relative directory is refused" {
	refused '--with-plugstackdir=etc/x: give an absolute directory' --with-plugstackdir=etc/x
	refused '--with-slurm-plugindir=lib: give an absolute directory' --with-slurm-plugindir=lib
	refused '--with-bash-completion-dir=etc: give an absolute directory' --with-bash-completion-dir=etc
}

@test "configure: a missing pkg-config is named" {
	mkdir "$DIR/tools"
	ln -s /usr/bin/* "$DIR/tools"
	rm "$DIR/tools"/*pkg-config
	PATH=$DIR/tools PKG_CONFIG='' refused 'pkg-config not found, ' --with-pmix
}

@test "configure: an NCCL that is too old is named in one line" {
	local prefix=$DIR/cuda line
	mkdir -p "$prefix"/{bin,include,lib}
	printf '#!/bin/sh\n' >"$prefix/bin/nvcc"
	chmod 755 "$prefix/bin/nvcc"
	printf '#define CUDART_VERSION 12060\nint cudaRuntimeGetVersion(int *);\n' >"$prefix/include/cuda_runtime_api.h"
	printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 23\n#define NCCL_PATCH 4\nint ncclGetVersion(int *);\n' >"$prefix/include/nccl.h"
	echo 'int cudaRuntimeGetVersion(int *v) { return *v = 0; }' | cc -shared -o "$prefix/lib/libcudart.so" -x c -
	echo 'int ncclGetVersion(int *v) { return *v = 0; }' | cc -shared -o "$prefix/lib/libnccl.so" -x c -
	cd "$DIR/out"
	run "$SRC/configure" --without-mpi --without-pmix --without-onednn --without-cudnn --with-cuda="$prefix" --with-nccl="$prefix"
	[ "$status" -eq 1 ]
	line="NCCL 2.24.3 or newer ($prefix/include/nccl.h is of 2.23.4) not found"
	[[ $output == *"checking for NCCL... no: $line"$'\n'*"configure: error: --with-nccl=$prefix: $line under"* ]]
}

@test "shell completion of a command with its path" {
	run bash -c 'source "$1"
		_srun() { COMPREPLY=(--nodes); }
		__load_completion() { complete -F _srun srun; }
		COMP_WORDS=(/usr/bin/srun --nod) COMP_CWORD=1
		_ddp_complete /usr/bin/srun --nod /usr/bin/srun
		echo "${COMPREPLY[@]}"' - "$DDP_BUILDDIR/spank-plugin/slurm-ddp.bash"
	[ "$status" -eq 0 ]
	[ "$output" = --nodes ]
}
