# SPDX-License-Identifier: Apache-2.0
#
# Scripts of contrib/ that build and install, with stub tools in place of compilers: nothing is built here.
#
# shellcheck disable=SC2154 # status, output and lines come from run

setup()
{
	SRC=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-scripts.XXXXXX")
	# A tree without git, as an archive has it.
	TREE=$DIR/tree
	mkdir -p "$TREE/contrib" "$DIR/bin" "$DIR/out"
	cp -r "$SRC"/contrib/{package,package.d,quickstart} "$TREE/contrib"
	cp "$SRC/configure.ac" "$TREE"
	PATH=$DIR/bin:$PATH
}

teardown() { rm -rf "$DIR"; }

# stub NAME <SCRIPT: a command NAME, first in PATH.
stub()
{
	{ echo '#!/bin/bash' && cat; } >"$DIR/bin/$1"
	chmod 755 "$DIR/bin/$1"
}

stub_deb()
{
	stub dh </dev/null
	stub dpkg-buildpackage <<-'END'
		[[ ! -e config.status && ! -e built.o ]] || exit 1
		touch ../slurm-ddp_1_amd64.{deb,buildinfo,changes}
	END
}

# Files of a user, in the directory that --output names.
users_files()
{
	mkdir -p "$DIR/out/rpm" "$DIR/out/slurm-ddp-0.1.0"
	touch "$DIR/out"/{other_1_amd64.deb,other-1.x86_64.rpm,slurm-ddp-0.1.0.tar.gz,rpm/kept,slurm-ddp-0.1.0/kept}
	find "$DIR/out" | sort >"$DIR/before"
}

@test "package deb: files in the output directory that it did not make are kept" {
	stub_deb
	users_files
	run "$TREE/contrib/package" deb --output "$DIR/out"
	[ "$status" -eq 0 ]
	[ "$output" = "$DIR/out/slurm-ddp_1_amd64.deb" ]
	find "$DIR/out" | grep -v '/slurm-ddp_1_amd64\.[a-z]*$' | sort | diff "$DIR/before" -
}

@test "package rpm: files in the output directory that it did not make are kept" {
	stub rpm </dev/null
	stub rpmbuild <<-'END'
		for word; do
			[[ $word != _topdir* ]] || top=${word#* }
		done
		mkdir -p "$top/RPMS/x86_64" && touch "$top/RPMS/x86_64/slurm-ddp-1.x86_64.rpm"
	END
	stub cc <<<'echo 1444096' # SLURM_VERSION_NUMBER
	users_files
	run env CC=cc "$TREE/contrib/package" rpm --output "$DIR/out"
	[ "$status" -eq 0 ]
	[ "$output" = "$DIR/out/slurm-ddp-1.x86_64.rpm" ]
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
