# SPDX-License-Identifier: Apache-2.0
# The life of Debian packages: they are installed, used on a private Slurm, upgraded, removed and
# purged. Each test continues from the state that the previous test left.
#
# The tests change the system. So contrib/check runs them only in root folders, with DDP_DEBS set to
# the directory that has contrib/package's packages.
#
# shellcheck disable=SC2046,SC2086 # lists
# shellcheck disable=SC2154 # rc, out and err come from try

load ../cluster/lib

readonly names='slurm-ddp libddp1 libddp-dev python3-slurm-ddp slurm-ddp-tools'
readonly conf=/etc/slurm/plugstack.conf.d/zz-ddp.conf

setup_file()
{
	[ -n "${DDP_DEBS-}" ] || skip "contrib/check package runs it, in a folder of Debian"
	TOP=$(mktemp -d "${TMPDIR:-/tmp}/ddp-test.XXXXXX")
	WORK=$TOP/work
	MINICLUSTER_DIR=$TOP/cluster
	chmod 755 "$TOP"
	ln -s /usr/bin/minicluster "$TOP/minicluster" # lib expects it there
	mkdir "$WORK"
	chown nobody "$WORK"
	export TOP WORK MINICLUSTER_DIR DDP_SOCKET_IFNAME=lo
	purge_packages
	rm -f /etc/slurm/plugstack.conf
}

teardown_file()
{
	rm -f /etc/slurm/plugstack.conf
	purge_packages
	rm -rf "$TOP"
}

purge_packages() { dpkg --purge $names >"$TOP/apt.log" 2>&1; }

setup() { [ -n "${DDP_DEBS-}" ] || skip "not here"; }

teardown() { [ ! -e "$MINICLUSTER_DIR" ] || "$minicluster" down >/dev/null; }

apt() { apt-get -o Dpkg::Use-Pty=0 "$1" -y --no-install-recommends "${@:2}"; }

version() { dpkg-query -W -f '${db:Status-Status} ${Version}' "$1"; }

# Starts a cluster whose /etc/slurm/plugstack.conf has the line that the package's message asks for.
cluster_with_line()
{
	minicluster up --nodes 2 --plugstack none --conf PlugStackConfig=/etc/slurm/plugstack.conf >"$TOP/up.log" 2>&1 || {
		cat "$TOP/up.log" >&2
		return 1
	}
}

works()
{
	cluster_with_line
	try mc srun -N2 --ntasks-per-node=2 --ddp ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'started by srun --ddp or ddp-exec, rendezvous by file, between nodes: tcp$'
	has_not "$out" WRONG
	try mc srun -N2 --ntasks-per-node=2 --ddp ddp-train mnist --samples 256 --epochs 1
	same "$rc" 0
	same "$err" ''
	minicluster down >/dev/null
}

@test "installed: plugstack.conf is not changed, and the line that it needs is printed" {
	# manpages contains ddp(7), on a protocol of AppleTalk.
	try apt install manpages "$DDP_DEBS"/*.deb
	same "$rc" 0
	has "$out" '^slurm-ddp: srun --ddp works once /etc/slurm/plugstack.conf has the line$'
	[ ! -e /etc/slurm/plugstack.conf ]
	grep -A 1 'has the line$' <<<"$out" | sed -n 's/^    //p' >/etc/slurm/plugstack.conf
	try apt install --reinstall "$DDP_DEBS"/slurm-ddp_*.deb
	same "$rc" 0
	has_not "$out" 'has the line$'
}

@test "used: srun --ddp, ddp-info and ddp-train on a private Slurm" {
	works
}

@test "a program compiles and links with the installed files" {
	cc -Wall -Werror -o "$TOP/program" "$DDP_SRCDIR/job-templates/hello-ddp.c" $(pkg-config --cflags --libs ddp)
	has "$(ldd "$TOP/program")" ' => /(usr/)?lib/.*/libddp\.so'
}

# Builds the same packages with a higher version, to test an upgrade.
later()
{
	local deb
	mkdir "$TOP/later"
	for deb in "$DDP_DEBS"/*.deb; do
		dpkg-deb -R "$deb" "$TOP/tree"
		sed -i -E "/^(Version|Depends): /s/$1([+)]|\$)/$1.later\1/" "$TOP/tree/DEBIAN/control"
		dpkg-deb -b "$TOP/tree" "$TOP/later/${deb##*/}"
		rm -r "$TOP/tree"
	done
}

@test "upgraded: the administrator's changes to zz-ddp.conf are kept" {
	local before
	before=$(version libddp1)
	later "${before#* }" >"$TOP/later.log"
	echo '# the administrator was here' >>$conf
	cp $conf "$TOP/conf"
	try apt install "$TOP"/later/*.deb
	same "$rc" 0
	same "$(version libddp1)" "$before.later"
	cmp $conf "$TOP/conf"
	works
}

# A plugin for another Slurm release cannot be loaded. With "required" it would stop every srun.
@test "an upgrade of Slurm removes the plugin for the older release" {
	local holder
	holder=$(dpkg-query -W -f '${Depends}' slurm-ddp | grep -oE '[a-z-]+ \(<<' | cut -d ' ' -f 1)
	mkdir -p "$TOP/slurm/DEBIAN"
	printf '%s\n' "Package: $holder" 'Version: 99.01.1-1' "Architecture: $(dpkg --print-architecture)" \
		'Maintainer: nobody <nobody@localhost>' 'Description: a later Slurm' >"$TOP/slurm/DEBIAN/control"
	dpkg-deb -b "$TOP/slurm" "$TOP/slurm.deb" >/dev/null
	try apt install --simulate "$TOP/slurm.deb"
	has "$out" "^Inst $holder .*99\.01\.1"
	has "$out" '^Remv slurm-ddp '
}

@test "removed: srun works without the plugin; installed again: with the administrator's changes" {
	try apt remove slurm-ddp
	same "$rc" 0
	[ ! -e $conf ]
	cmp $conf.dpkg-remove "$TOP/conf"
	cluster_with_line
	try mc srun -N2 hostname
	same "$rc:$(wc -l <<<"$out"):$err" 0:2:
	minicluster down >/dev/null
	apt install "$TOP"/later/*.deb >"$TOP/apt.log" 2>&1
	cmp $conf "$TOP/conf"
	[ ! -e $conf.dpkg-remove ]
	works
}

@test "purged: no file is left" {
	apt purge $names >"$TOP/apt.log" 2>&1
	same "$(find /etc /usr /var \( -name 'ddp*' -o -name '*[!a]ddp*' \) -not -path '/var/log/*' -not -path '/var/lib/dpkg/info/*' -not -path '/usr/share/man/man7/ddp.7.gz' -not -path '/usr/lib/python3/dist-packages/torch/*')" ''
	same "$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | grep ddp)" ''
}
