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

@test "ddp-info with -m cyclic and different numbers of ranks: exact sums and a warning" {
	try mc srun -N2 -n3 --ddp -m cyclic ddp-info --max-bytes 64K
	same "$rc" 0
	same "$(rows "$out")" "0 n1 0/2
1 n2 0/1
2 n1 1/2"
	has "$out" '^warning: n1 has 2 ranks and n2 has 1'
	has_not "$out" WRONG
}

@test "ddp-info on one node needs no engine" {
	DDP_MODULES=/nonexistent try mc srun -N1 -n2 --ddp ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'between nodes: none$'
	has_not "$out" WRONG
}

@test "a missing engine module is an error that names it" {
	DDP_WIDE=mpi DDP_MODULES=/nonexistent DDP_TIMEOUT=20 try mc srun -N2 -n2 --ddp ddp-info
	[ "$rc" -ne 0 ]
	has "$err" 'no engine mpi: .*/nonexistent/ddp_mpi.so'
}

@test "DDP_WIDE=ucx is refused, with tcp and mpi as the choices" {
	DDP_WIDE=ucx DDP_TIMEOUT=20 try mc srun -N2 -n2 --ddp ddp-info
	[ "$rc" -ne 0 ]
	has "$err" 'DDP_WIDE=ucx: must be one of tcp, mpi'
}

@test "an interface in DDP_SOCKET_IFNAME that one rank does not have ends all ranks at once" {
	DDP_TIMEOUT=60 try mc srun -N2 -n2 --kill-on-bad-exit=0 --ddp \
		sh -c 'if [ "$RANK" = 1 ]; then export DDP_SOCKET_IFNAME=nowhere9; fi; exec ddp-info'
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[1@n2\]: DDP_SOCKET_IFNAME=nowhere9 selects no interface; those with an address are '
	has "$err" '^ddp\[0@n1\]: .*DDP_SOCKET_IFNAME=nowhere9 selects no interface'
	has_not "$err" 'in 60 s'
}

@test "ddp-info under plain srun: file rendezvous without the plugin, and no file remains" {
	try mc srun -N2 --ntasks-per-node=2 ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" '4 ranks on 2 nodes, started by srun, rendezvous by file'
	has_not "$out" WRONG
	[ ! -e "$WORK/.ddp" ]
}

@test "DDP_METHOD=pmix: ranks meet by PMIx without the plugin" {
	needs_pmix
	DDP_METHOD=pmix try mc srun -N2 --ntasks-per-node=2 --mpi=pmix ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'started by srun, rendezvous by pmix'
	has_not "$out" WRONG
}

@test "DDP_METHOD=pmix without PMIx is an error with the remedy" {
	DDP_METHOD=pmix try mc srun -N2 -n2 --ddp ddp-info
	[ "$rc" -ne 0 ]
	has "$err" 'mpi=pmix'
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

@test "ddp-info --json is valid JSON with one object for each rank" {
	try mc srun -N2 -n2 --ddp ddp-info --json --max-bytes 4K
	same "$rc" 0
	same "$(/usr/bin/python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["size"], d["nodes"], d["wide"], [r["node"] for r in d["ranks"]],
      [t["wrong_elements"] for t in d["selftest"]], d["ranks"][1]["endpoint_reached"],
      d["ranks"][1]["transport"].split(":")[0])' <<<"$out")" \
		"2 2 tcp ['n1', 'n2'] [0, 0, 0, 0] True TCP (lo, 127.0.0.1"
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
	has "$err" '^ddp-info: invalid --max-bytes 3: use 4 to 1G$'
	try mc srun -n1 --ddp ddp-info extra
	same "$rc" 2
	has "$err" '^ddp-info: unexpected argument extra$'
	try mc srun -n1 --ddp ddp-info --no-test --device
	same "$rc" 2
	has "$err" '^ddp-info: --device needs the test: remove --no-test$'
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
	for victim in 0 3; do
		endless --ddp
		kill -9 "$(<"$WORK/up-$victim")"
		within 60 have_ended
		wait || true
		for rank in 0 1 2 3; do
			[ "$rank" -eq "$victim" ] ||
				has "$(<"$TOP/output")" "^ddp\[$rank@n[12]\]: .*rank $victim on n[12]"
		done
		same "$(find "$WORK"/.ddp/failed-* -name 'rank-*' | wc -l)" 3
		same "$(find "$WORK/.ddp" -maxdepth 1 -mindepth 1 | wc -l)" 1
	done
}

# others_name_stopped_rank: checks that the other ranks end and name rank 2, which is stopped.
others_name_stopped_rank()
{
	local rank
	endless --ddp || return
	kill -STOP "$(<"$WORK/up-2")"
	within 60 grep -q 'ddp\[3@n2\]: ' "$TOP/output"
	kill -9 "$(<"$WORK/up-2")"
	within 60 have_ended || return
	wait || true
	for rank in 0 1 3; do
		has "$(<"$TOP/output")" "^ddp\[$rank@n[12]\]: .*rank 2 on n2" || return
	done
}

# Tries again, because a loaded machine can delay another rank for a second, and then the ranks name that one.
@test "a rank stopped in an all-reduce is named by the others after DDP_TIMEOUT" {
	export DDP_TIMEOUT=3
	others_name_stopped_rank || others_name_stopped_rank || others_name_stopped_rank
}

@test "on scancel each rank leaves a record" {
	endless --ddp --job-name=endless
	mc scancel --name=endless
	within 60 have_ended
	wait || true
	# A rank may detect that another rank has ended before its own signal arrives. Then its record has that instead of the
	# signal.
	has "$(cat "$WORK"/.ddp/failed-*/rank-*)" SIGTERM
	same "$(find "$WORK"/.ddp/failed-* -name 'rank-*' | wc -l)" 4
}

@test "if the rendezvous directory is removed while ranks start, they fail with a message and do not hang" {
	cat >"$WORK/remove" <<-'END'
		#!/bin/bash
		if [ "$SLURM_PROCID" = 1 ]; then
			# The node of rank 0 makes the directory.
			until [ -d "$DDP_RENDEZVOUS" ]; do sleep 0.1; done
			rm -rf "$DDP_RENDEZVOUS"
		fi
		exec ddp-info --no-test
	END
	chmod +x "$WORK/remove"
	DDP_TIMEOUT=5 try mc srun -N2 -n2 --ddp --kill-on-bad-exit=0 "$WORK/remove"
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[1@n2\]: '
}
