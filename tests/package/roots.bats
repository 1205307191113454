# SPDX-License-Identifier: Apache-2.0
# Packages of each format, installed in a directory of their own and removed. The packages are in the
# directories deb, rpm, tarball and wheel of $DDP_PACKAGES, where contrib/check has made them.
#
# shellcheck disable=SC2154 # status and output come from run

setup()
{
	[ -n "${DDP_PACKAGES-}" ] || skip "contrib/check package runs it"
	SRC=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	VERSION=$(sed -n 's/^AC_INIT(\[slurm-ddp\], \[\([^]]*\)\].*/\1/p' "$SRC/configure.ac")
	ROOT=$(mktemp -d "${TMPDIR:-/tmp}/ddp-root.XXXXXX")
	CONF=$ROOT/etc/slurm/plugstack.conf.d/zz-ddp.conf
	# Package managers set owners, so without root they run in a user namespace.
	as_root=()
	[ "$(id -u)" -eq 0 ] || as_root=(unshare -r)
}

teardown() { [ -z "${ROOT-}" ] || rm -rf "$ROOT"; }

# needs KIND: skips the test if there is no package of this format.
needs() { compgen -G "$DDP_PACKAGES/$1/*.$2" >/dev/null || skip "there is no $1"; }

# prints_version BIN LIB: runs ddp-info of directory BIN with libddp of directory LIB.
prints_version()
{
	[ "$(env -i PATH="$PATH" LD_LIBRARY_PATH="$2" "$1/ddp-info" --version)" = "ddp-info $VERSION" ]
}

# imports DIRECTORY [LIB]: imports slurm_ddp, which loads libddp of its wheel or of directory LIB.
imports()
{
	[ "$(env -i PATH="$PATH" PYTHONPATH="$1" LD_LIBRARY_PATH="${2-}" /usr/bin/python3 -Bc '
import slurm_ddp
from slurm_ddp._lib import library
print(library().ddp_version().decode())')" = "$VERSION" ]
}

# in_root OPTION...: runs dpkg on $ROOT. The packages that ours need are not there.
in_root()
{
	"${as_root[@]}" dpkg --root="$ROOT" --force-script-chrootless --force-depends "$@" </dev/null
}

@test "deb: installed, upgraded with the administrator's file, removed, purged" {
	needs deb deb
	local deb lib
	mkdir -p "$ROOT"/var/lib/dpkg/{info,updates} "$ROOT/later" "$ROOT/etc/slurm"
	touch "$ROOT"/var/lib/dpkg/{status,available}
	# A last line without a newline counts.
	printf 'include /etc/slurm/plugstack.conf.d/*' >"$ROOT/etc/slurm/plugstack.conf"
	run in_root -i "$DDP_PACKAGES"/deb/*.deb
	[ "$status" -eq 0 ]
	[[ $output != *'has the line'* ]]
	[ -z "$(find "$ROOT"/{etc,usr} -type d ! -perm 755)" ]
	lib=$(dirname "$ROOT"/usr/lib/*/libddp.so.1)
	prints_version "$ROOT/usr/bin" "$lib"
	imports "$ROOT/usr/lib/python3/dist-packages" "$lib"

	echo '# the administrator was here' >>"$CONF"
	cp "$CONF" "$ROOT/conf"
	for deb in "$DDP_PACKAGES"/deb/slurm-ddp_*.deb; do
		dpkg-deb -R "$deb" "$ROOT/tree"
		sed -i '/^Version: /s/$/.later/' "$ROOT/tree/DEBIAN/control"
		"${as_root[@]}" dpkg-deb -Znone -b "$ROOT/tree" "$ROOT/later" >/dev/null
	done
	run in_root -i "$ROOT"/later/*.deb
	[ "$status" -eq 0 ]
	cmp "$CONF" "$ROOT/conf"

	in_root -r slurm-ddp >/dev/null
	[ ! -e "$CONF" ]
	in_root -i "$ROOT"/later/*.deb >/dev/null
	cmp "$CONF" "$ROOT/conf"
	rm -r "$ROOT/tree"
	in_root -P slurm-ddp slurm-ddp-tools python3-slurm-ddp libddp-dev libddp1 >/dev/null
	[ -z "$(find "$ROOT"/{etc,usr} -name '*ddp*')" ]
}

@test "rpm: installed, removed" {
	needs rpm rpm
	local rpm=("${as_root[@]}" rpm --root "$ROOT" --dbpath /db --nodeps --noscripts)
	"${rpm[@]}" -i "$DDP_PACKAGES"/rpm/*.rpm
	[ -z "$(find "$ROOT"/{etc,usr} -type d ! -perm 755)" ]
	prints_version "$ROOT/usr/bin" "$ROOT$(rpm --eval %_libdir)"
	"${rpm[@]}" -e slurm-ddp slurm-ddp-tools python3-slurm-ddp libddp-devel libddp
	[ -z "$(find "$ROOT"/{etc,usr} -name '*ddp*')" ]
}

@test "tarball: unpacked" {
	needs tarball tar.gz
	(umask 077 && tar -C "$ROOT" -xzf "$DDP_PACKAGES"/tarball/*.tar.gz)
	tar -tvzf "$DDP_PACKAGES"/tarball/*.tar.gz >"$ROOT/list"
	[ "$(grep -c ^d "$ROOT/list")" -eq "$(grep -c '^drwxr-xr-x ' "$ROOT/list")" ]
	prints_version "$ROOT"/slurm-ddp-*/bin ''
	imports "$(echo "$ROOT"/slurm-ddp-*/share/slurm-ddp/python)"
}

@test "wheel: installed with pip install --target" {
	needs wheel whl
	python3 -m pip --version >/dev/null 2>&1 || skip "pip is not installed"
	python3 -m pip --disable-pip-version-check --quiet install --no-index --root-user-action ignore --target "$ROOT/site" "$DDP_PACKAGES"/wheel/*.whl
	[ "$(PYTHONPATH=$ROOT/site "$ROOT/site/bin/ddp-info" --version)" = "ddp-info $VERSION" ]
	imports "$ROOT/site"
}
