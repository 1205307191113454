# SPDX-License-Identifier: Apache-2.0
# libddp and ddp-info as users run them: installed, found with pkg-config, and started by srun.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	# With KillWait, a rank has time to write its record on a busy host.
	cluster_up --nodes 4 --conf KillWait=20
	install_runtime
	PKG_CONFIG_PATH=$(dirname "$(find "$INST" -name ddp.pc)")
	export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR=$TOP/inst
	for program in "$DDP_SRCDIR/job-templates/hello-ddp.c" "$DDP_SRCDIR/tests/cluster/endless.c"; do
		# shellcheck disable=SC2046 # flags are words
		cc -Wall -Werror -o "$TOP/$(basename "$program" .c)" "$program" $(pkg-config --cflags --libs ddp)
	done
	export HELLO=$TOP/hello-ddp ENDLESS=$TOP/endless
}

teardown_file() { cluster_down; }

# Prints the shared memory segments of libddp.
shared_memory() { find /dev/shm -name '*ddp*' -user "$(as_user id -un)"; }

setup() { shm=$(shared_memory); }

teardown()
{
	end_jobs
	same "$(shared_memory)" "$shm"
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# rows OUTPUT: prints the rows of ddp-info's table as "rank node local", without values that differ between runs.
rows() { awk '$1 ~ /^[0-9]+$/ && $3 ~ /\// { print $1, $2, $3 }' <<<"$1"; }

exact() { grep -c 'GB/s  exact$' <<<"$1"; }

# --- ddp-info -------------------------------------------------------------------------

# bats test_tags=release
@test "ddp-info under srun --ddp on two nodes: file rendezvous, TCP between nodes, exact sums" {
	try mc srun -N2 --ntasks-per-node=2 --ddp ddp-info --max-bytes 1M
	same "$rc" 0
	has "$out" '4 ranks on 2 nodes, started by srun --ddp or ddp-exec, rendezvous by file, between nodes: tcp$'
	same "$(rows "$out")" "0 n1 0/2
1 n1 1/2
2 n2 0/2
3 n2 1/2"
	has_not "$out" WRONG
	same "$(exact "$out")" 7
}

@test "ddp-info on four nodes, one rank each: the ranks of the other nodes reach rank 0's endpoint" {
	try mc srun -N4 -n4 --ddp ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" '4 ranks on 4 nodes'
	has_not "$out" WRONG
	same "$(awk '$3 ~ /\// { print $NF }' <<<"$out" | sort | uniq -c | tr -s ' ')" " 1 -
 3 yes"
	# An address of no host: n2 tries to connect. In some networks a gateway answers for every address.
	MASTER_ADDR=240.0.0.1 try mc srun -N2 --ddp ddp-info --no-test
	same "$rc" 0
	has "$out" '^ +1  n2 .* (NO|yes)$'
}

# Prints the rows of ddp-info --json as "rank:node:node_rank:endpoint_reached".
node_ranks()
{
	/usr/bin/python3 -c 'import json, sys
for row in json.load(sys.stdin)["ranks"]:
	print(row["rank"], row["node"], row["node_rank"], row["endpoint_reached"], sep=":")' <<<"$out"
}

@test "ddp-info with -m arbitrary: node ranks follow the ranks, and the first rank of every other node tries the endpoint" {
	printf '%s\n' n3 n3 n1 n2 n2 | as_user tee "$WORK/hosts" >/dev/null
	SLURM_HOSTFILE=$WORK/hosts try mc srun -n5 -m arbitrary --ddp ddp-info --json --no-test
	same "$rc" 0
	same "$(node_ranks)" "0:n3:0:None
1:n3:0:None
2:n1:1:True
3:n2:2:True
4:n2:2:None"
	SLURM_HOSTFILE=$WORK/hosts try mc srun -n5 -m arbitrary ddp-info --json --no-test
	same "$rc" 0
	same "$(node_ranks)" "0:n3:0:None
1:n3:0:None
2:n1:1:None
3:n2:2:None
4:n2:2:None"
}

@test "an interface in DDP_SOCKET_IFNAME that one rank does not have ends all ranks at once" {
	DDP_TIMEOUT=60 try mc srun -N2 -n2 --kill-on-bad-exit=0 --ddp \
		sh -c 'if [ "$RANK" = 1 ]; then export DDP_SOCKET_IFNAME=nowhere9; fi; exec ddp-info'
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[1@n2\]: DDP_SOCKET_IFNAME=nowhere9 selects no interface that has an address\. Choose from '
	has "$err" '^ddp\[0@n1\]: .*DDP_SOCKET_IFNAME=nowhere9 selects no interface'
	has_not "$err" 'in 60 s'
}

@test "two programs in one step, one after the other, each meet" {
	try mc srun -N2 -n4 --ddp sh -c 'ddp-info --no-test && ddp-info --no-test'
	same "$rc:$(grep -c '4 ranks on 2 nodes, .* rendezvous by file' <<<"$out"):$(ls -A "$WORK")" 0:2:
}

@test "ddp-info under plain srun: file rendezvous without the plugin, and no file remains" {
	try mc srun -N2 --ntasks-per-node=2 ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" '4 ranks on 2 nodes, started by srun, rendezvous by file'
	has_not "$out" WRONG
	[ ! -e "$WORK/.ddp" ]
}

@test "DDP_METHOD=pmix: ranks meet by PMIx without the plugin; without srun --mpi=pmix it is an error with the remedy" {
	needs_pmix
	DDP_METHOD=pmix try mc srun -N2 --ntasks-per-node=2 --mpi=pmix ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'started by srun, rendezvous by pmix'
	has_not "$out" WRONG
	DDP_METHOD=pmix try mc srun -N2 -n2 --ddp ddp-info
	[ "$rc" -ne 0 ]
	has "$err" 'mpi=pmix'
}

@test "PMIx: ranks meet if PMIx_Fence_nb reports success at once" {
	needs_pmix
	cc -shared -fPIC -Wall -Werror -o "$TOP/at-once.so" -x c - <<'END'
#include <dlfcn.h>
#include <unistd.h>
static volatile int done, status;
static void end(int rc, void *data)
{
	(void)data;
	status = rc;
	done = 1;
}
int PMIx_Fence_nb(const void *procs, size_t n, const void *info, size_t m, void *f, void *data)
{
	int (*real)(const void *, size_t, const void *, size_t, void (*)(int, void *), void *) =
		dlsym(dlopen("libpmix.so.2", RTLD_LAZY), "PMIx_Fence_nb");
	int rc = real(procs, n, info, m, end, NULL);
	while (rc == 0 && !done)
		usleep(1000);
	done = 0;
	return rc || status ? -1 : -157; /* PMIX_ERROR, PMIX_OPERATION_SUCCEEDED */
}
END
	DDP_METHOD=pmix try mc srun -N2 -n4 --mpi=pmix env LD_PRELOAD="$TOP/at-once.so" ddp-info --no-test
	same "$rc" 0
	has "$out" '4 ranks on 2 nodes, started by srun, rendezvous by pmix'
}

@test "two programs in one step, one after the other, each meet by PMIx" {
	needs_pmix
	# PMIx's server on a busy node may count a process of the first program as lost in the fence of the second. So the second
	# program starts some time after all processes of the first have ended.
	DDP_METHOD=pmix try mc srun -N2 -n4 --mpi=pmix sh -c 'ddp-info --no-test && touch "ended.$SLURM_PROCID"
		until [ -e ended.0 ] && [ -e ended.1 ] && [ -e ended.2 ] && [ -e ended.3 ]; do sleep 0.05; done
		sleep 2 && ddp-info --no-test'
	same "$rc:$(grep -c 'rendezvous by pmix' <<<"$out")" 0:2
}

@test "PMIx: a rank that fails is named on its node, and the other node learns of it or times out" {
	needs_pmix
	DDP_METHOD=pmix DDP_TIMEOUT=10 try mc srun -N2 -n4 -K0 --mpi=pmix \
		sh -c 'if [ "$SLURM_PROCID" = 1 ]; then export DDP_SOCKET_IFNAME=nowhere9; fi; exec ddp-info'
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[0@n1\]: .*rank 1 .*DDP_SOCKET_IFNAME=nowhere9 selects no interface'
	has "$err" '^ddp\[3@n2\]: .*(not all of 4 ranks arrived in 10 s|DDP_SOCKET_IFNAME=nowhere9)'
}

# bats test_tags=release
@test "a batch script with --ddp is a single rank; its srun starts a world of all tasks" {
	cat >"$WORK/job" <<-'END'
		#!/bin/bash
		#SBATCH -N2 --ntasks-per-node=1 --ddp
		ddp-info --no-test
		srun ddp-info --no-test
	END
	batch "$WORK/job"
	has "$out" ': 1 rank on 1 node, started by single'
	has "$out" ': 2 ranks on 2 nodes, started by srun --ddp'
}

@test "six concurrent steps of a job, with and without --ddp, are separate worlds" {
	cat >"$WORK/job" <<-'END'
		#!/bin/bash
		#SBATCH -N2 --ntasks-per-node=2 --overcommit
		for i in 1 2 3; do
			srun --overlap -N2 --ntasks-per-node=2 --ddp ddp-info --max-bytes 64K >out-$i &
			srun --overlap -N2 --ntasks-per-node=2 ddp-info --max-bytes 64K >out-plain-$i &
		done
		wait
	END
	batch "$WORK/job"
	for i in 1 2 3 plain-1 plain-2 plain-3; do
		has "$(<"$WORK/out-$i")" '4 ranks on 2 nodes'
		has_not "$(<"$WORK/out-$i")" WRONG
		same "$(exact "$(<"$WORK/out-$i")")" 5
	done
}

@test "ddp-info --strict has exit status 3 if there are warnings" {
	try mc srun -N2 -n3 --ddp ddp-info --no-test --strict
	same "$rc" 3
	try mc srun -N2 -n3 --ddp ddp-info --no-test
	same "$rc" 0
}

@test "ddp-info refuses wrong arguments in one line" {
	try mc srun -n1 --ddp ddp-info --max-bytes 3
	same "$rc" 2
	has "$err" '^ddp-info: --max-bytes 3 is not valid\. Give 4 to 1G\.$'
	try mc srun -n1 --ddp ddp-info extra
	same "$rc" 2
	has "$err" '^ddp-info: unexpected argument extra$'
	try mc srun -n1 --ddp ddp-info --no-test --device
	same "$rc" 2
	has "$err" '^ddp-info: --device needs the test\. Remove --no-test\.$'
}

# --- hello-ddp ------------------------------------------------------------------------

@test "hello-ddp trains on two nodes, and resumes from its checkpoint with another number of ranks" {
	try mc srun -N2 --ntasks-per-node=2 --ddp "$HELLO"
	same "$rc" 0
	has "$out" '^epoch 4: loss 0\.00.*, y = (2\.9|3\.0)[0-9]*x \+ (0\.9|1\.0)'
	same "$(find "$WORK/hello-checkpoints" -type f | wc -l)" 2
	rm "$(find "$WORK/hello-checkpoints" -type f | sort | tail -n 1)"
	try mc srun -N1 -n1 --ddp "$HELLO"
	same "$rc" 0
	has "$out" '^continuing after epoch 3 of hello-checkpoints$'
	same "$(grep -c '^epoch' <<<"$out")" 1
	has "$out" '^epoch 4: '
}

# --- Failure --------------------------------------------------------------------------

all_up() { [ "$(find "$WORK" -name 'up-*' -size +0 | wc -l)" -eq "$1" ]; }

# endless SRUN_OPTION...: starts the program in the background on n1 and n2, and waits until its four ranks call all-reduce. The
# ranks start it together, since they wait for each other for DDP_TIMEOUT only. $TOP/output has its output.
endless()
{
	rm -rf "$WORK"/{started,up}-* "$WORK"/.ddp
	background env -C "$WORK" timeout -k 5 100 "$minicluster" run srun -w 'n[1-2]' -N2 --ntasks-per-node=2 \
		--kill-on-bad-exit=0 "$@" sh -c 'touch "started-$SLURM_PROCID"
			until [ -e started-0 ] && [ -e started-1 ] && [ -e started-2 ] && [ -e started-3 ]; do sleep 0.05; done
			exec "$0"' "$ENDLESS" >"$TOP/output" 2>&1
	within 60 all_up 4
}

have_ended() { ! pgrep -f "^$ENDLESS" >/dev/null; }

@test "a rank killed in an all-reduce ends the others, which name it and leave records" {
	endless --ddp
	kill -9 "$(<"$WORK/up-3")"
	within 60 have_ended
	wait || true
	for rank in 0 1 2; do
		has "$(<"$TOP/output")" "^ddp\[$rank@n[12]\]: .*rank 3 on n2"
	done
	same "$(find "$WORK"/.ddp/failed-* -name 'rank-*' | wc -l)" 3
	same "$(find "$WORK/.ddp" -maxdepth 1 -mindepth 1 | wc -l)" 1
}
