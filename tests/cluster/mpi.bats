# SPDX-License-Identifier: Apache-2.0
# MPI as the engine between nodes: the tests that libddp.bats has for TCP, and tests of MPI's own behaviour.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 4
	install_runtime
	cc -Wall -Werror -I"$INST/include" -o "$TOP/endless" "$DDP_SRCDIR/tests/cluster/endless.c" \
		-L"$LD_LIBRARY_PATH" -lddp
	export ENDLESS=$TOP/endless DDP_WIDE=mpi MPI=${DDP_MPI_TYPE-pmix}
	# All traffic between nodes stays on this host, with any MPI.
	export OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo
	# Ports that no other MPI job on this host uses: Open MPI prints a message if an unknown peer connects.
	export OMPI_MCA_btl_tcp_port_min_v4=$((32000 + $$ % 16 * 1000))
	# setup() skips the tests for this reason. Some versions of bats cannot skip a whole file and still call teardown_file().
	export LACKING=''
	mc srun --mpi=list 2>&1 | grep -q "$MPI" || LACKING="this Slurm has no $MPI"
	[ -e "$DDP_MODULES/ddp_mpi.so" ] || LACKING="built without MPI"
}

teardown_file() { cluster_down; }

setup() { [ -z "$LACKING" ] || skip "$LACKING"; }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

mpirun_here() { sed -n 's/^MPIRUN = \([^ ]*\).*/\1/p' "$DDP_BUILDDIR/tests/runtime/Makefile"; }

# compile PROGRAM SOURCE...: compiles a program that uses MPI and libddp.
compile()
{
	local mpirun
	mpirun=$(mpirun_here)
	(
		cd "$DDP_SRCDIR/tests/cluster"
		"${mpirun/mpirun/mpicc}" -rdynamic -I"$INST/include" -o "$TOP/$1" "${@:2}" -L"$LD_LIBRARY_PATH" -lddp
	)
}

# try_mc ARGUMENT...: like try mc. If MPI_Init hangs, tries again: on a loaded machine this happens in one of some hundred runs.
try_mc()
{
	local try
	for try in 1 2 3; do
		DDP_TIMEOUT=30 try mc "$@"
		grep -q 'MPI_Init did not return within 30 s' <<<"$err" || return 0
	done
}

exact() { grep -c 'GB/s  exact$' <<<"$1"; }

# bats test_tags=release
@test "ddp-info on two and four nodes, with uneven and cyclic ranks: exact sums over MPI" {
	for layout in '-N2 --ntasks-per-node=2' '-N4 -n4' '-N2 -n3 -m cyclic'; do
		# shellcheck disable=SC2086 # words
		try_mc srun $layout --mpi="$MPI" --ddp ddp-info --max-bytes 1M
		same "$rc" 0
		has "$out" 'started by srun --ddp or ddp-exec, rendezvous by file, between nodes: mpi$'
		has_not "$out" WRONG
		same "$(exact "$out")" 7
		has_not "$err" '(MPI|PMI)'
	done
}

@test "under plain srun with DDP_METHOD=pmix: exact sums over MPI" {
	[ "$MPI" = pmix ] || skip "this is not PMIx"
	# This error is Open MPI's own: a program that calls PMIx_Init() and then MPI_Init() fails without libddp too.
	! "$(mpirun_here)" --version | grep -q '^mpirun (Open MPI) 5\.' || skip "Open MPI 5 does not begin where PMIx has begun"
	DDP_METHOD=pmix try_mc srun -N2 --ntasks-per-node=2 --mpi="$MPI" ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'started by srun, rendezvous by pmix, between nodes: mpi$'
	has_not "$out" WRONG
}

# In this test a communication thread calls MPI.
@test "ddp-train has bit-equal weights over MPI and TCP" {
	for wide in tcp mpi; do
		DDP_WIDE=$wide try_mc srun -N2 --ntasks-per-node=2 --mpi="$MPI" --ddp ddp-train mnist --samples 512 \
			--epochs 1 --seed 3 --save-model "$WORK/$wide.safetensors"
		same "$rc" 0
	done
	cmp "$WORK/tcp.safetensors" "$WORK/mpi.safetensors"
}

@test "ddp-train --virtual-ranks has bit-equal weights over MPI on four nodes and on one rank" {
	train=(ddp-train mnist --samples 256 -e 1 -b 8 --seed 3 --virtual-ranks 4)
	mc srun -N1 -n1 --ddp "${train[@]}" -q -m one
	try_mc srun -N4 -n4 --mpi="$MPI" --ddp "${train[@]}" -q -m four
	same "$rc" 0
	cmp "$WORK/one" "$WORK/four"
}

@test "a program that uses MPI itself: libddp uses its MPI without ending it, and refuses MPI_Init without threads" {
	compile mpi-program mpi-program.c
	try_mc srun -N2 -n3 -m cyclic --mpi="$MPI" --ddp "$TOP/mpi-program"
	same "$rc" 0
	same "$(grep -cx 'libddp: 3' <<<"$out") $(grep -cx 'MPI: 3' <<<"$out") $(wc -l <<<"$out")" '6 3 9'
	try mc srun -N2 -n2 --mpi="$MPI" --ddp "$TOP/mpi-program" plain
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[[01]@n[1-4]\]: MPI was initialized without thread support\. Call MPI_Init_thread'
}

@test "without an MPI launcher ranks fail with the remedy" {
	try mc srun -N2 -n2 --ddp --mpi=none ddp-info
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[0@n1\]: .*the job has 2 ranks, but MPI was started for 1\. Start the job with srun --mpi='
}

@test "a rank that does not start makes the others fail after DDP_TIMEOUT" {
	DDP_TIMEOUT=5 try mc srun -N2 -n2 --ddp --mpi="$MPI" --kill-on-bad-exit=0 sh -c '
		if [ "$SLURM_PROCID" = 0 ]; then
			ddp-info || rc=$?
			touch ended
			exit "${rc-0}"
		fi
		until [ -e ended ]; do sleep 0.1; done'
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[0@n1\]: MPI_Init did not return within 5 s, because not all ranks called it'
}

# If a rank that refuses receives a longer message than its own, MPI may have written beyond the buffer, and the rank ends in the call.
@test "a collective with wrong arguments: the world continues if all ranks refuse it, and ends with a mismatch if one does" {
	local name layout=-N4
	cc -Wall -Werror -I"$INST/include" -o "$TOP/refusal" "$DDP_SRCDIR/tests/cluster/refusal.c" -L"$LD_LIBRARY_PATH" -lddp
	for name in ddp_all_reduce ddp_broadcast ddp_all_gather; do
		try_mc srun $layout -n4 --mpi="$MPI" --kill-on-bad-exit=0 --ddp "$TOP/refusal" "$name"
		same "$(cd "$WORK" && echo refused-*)" "refused-0 refused-1 refused-2 refused-3"
		rm "$WORK"/refused-*
		same "$rc" 87
		has_not "$err" ': tasks? .*: (Killed|Exited with exit code ([^8]|8[^7]))'
		has "$err" "^ddp\\[[0-3]@n[1-4]\\]: .*($name \\(refused|does not match|sent more than its peer expects)"
		layout=-N2
	done
}

# --- Failure --------------------------------------------------------------------------

all_up() { [ "$(find "$WORK" -name 'up-*' -size +0 | wc -l)" -eq 4 ]; }

up_or_ended() { all_up || ! kill -0 $! 2>/dev/null; }

# endless LAYOUT... COMMAND...: starts four ranks. If MPI_Init takes longer than DDP_TIMEOUT, as on a loaded machine, tries again with
# twice the time.
endless()
{
	local try
	for try in 1 2 3 4; do
		end_jobs # jobs of a try that failed
		rm -rf "$WORK"/up-* "$WORK"/.ddp
		background env -C "$WORK" timeout -k 5 900 "$minicluster" run srun --mpi="$MPI" --kill-on-bad-exit=0 --ddp "$@" >"$TOP/output" 2>&1
		within 60 up_or_ended || true
		all_up && return
		echo "try $try: $(<"$TOP/output")" >&2
		DDP_TIMEOUT=$((2 * DDP_TIMEOUT))
	done
	return 1
}

have_ended() { ! pgrep -f "^$ENDLESS" >/dev/null; }

# Prints what the ranks have printed, and where each of their threads is.
show_ranks()
{
	local pid
	printf 'DDP_TIMEOUT=%s, output:\n%s\n' "$DDP_TIMEOUT" "$(<"$TOP/output")" >&2
	for pid in $(pgrep -f "^$ENDLESS"); do
		ps -L -o pid,lwp,stat,time,wchan:24 -p "$pid" >&2
		gdb -p "$pid" -batch -ex 'thread apply all bt' 2>/dev/null | grep -E '^(#|Thread)' >&2 || true
	done
}

# ranks_end: waits until no rank runs. A rank may need twice DDP_TIMEOUT, which endless may have raised, and may get half of a CPU.
ranks_end()
{
	within $((60 + 4 * DDP_TIMEOUT)) have_ended && return
	show_ranks
	return 1
}

# signal_rank SIGNAL RANK LAYOUT...: starts four ranks and sends one of them the signal. The other ranks must end, and the
# rendezvous directory must be removed.
signal_rank()
{
	endless "${@:3}" "$ENDLESS" || return
	kill "-$1" "$(<"$WORK/up-$2")"
	[ "$1" = KILL ] || within $((60 + 4 * DDP_TIMEOUT)) grep -qE '^ddp\[[0-9]@' "$TOP/output"
	kill -9 "$(<"$WORK/up-$2")" || true
	ranks_end || return
	wait || true
	same "$(find "$WORK/.ddp" -maxdepth 1 -mindepth 1 -not -name 'failed-*' | wc -l)" 0
}

# signal_named_rank SIGNAL RANK LAYOUT...: like signal_rank. In addition, another rank's output and record must name the rank.
signal_named_rank()
{
	signal_rank "$@" || return
	has "$(<"$TOP/output")" "^ddp\\[[0-9]@n[1-4]\\]: .*rank $2 on n[1-4]" &&
		has "$(cat "$WORK"/.ddp/failed-*/rank-*)" "rank $2 on n[1-4]"
}

# The MPI library decides whether a rank can report the lost rank before MPI ends it. So the message is not checked.
# bats test_tags=release
@test "a rank killed in an all-reduce ends the others" {
	export DDP_TIMEOUT=5
	signal_rank KILL 3 -N2 --ntasks-per-node=2
}

# Tries again, because on a loaded machine another rank may be as late as the stopped one.
@test "a rank stopped in an all-reduce is named after DDP_TIMEOUT" {
	export DDP_TIMEOUT=3
	signal_named_rank STOP 2 -N4 -n4 || signal_named_rank STOP 2 -N4 -n4 || signal_named_rank STOP 2 -N4 -n4
}
