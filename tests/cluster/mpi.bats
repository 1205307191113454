# SPDX-License-Identifier: Apache-2.0
# MPI as the engine between nodes: the claims of libddp.bats for TCP, and what MPI alone needs.
#
# shellcheck disable=SC2016 # what stands in single quotes is for the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 4
	install_runtime
	cc -Wall -Werror -I"$INST/include" -o "$TOP/endless" "$DDP_SRCDIR/tests/cluster/endless.c" \
		-L"$LD_LIBRARY_PATH" -lddp
	export ENDLESS=$TOP/endless DDP_WIDE=mpi MPI=${DDP_MPI_TYPE-pmix}
	# Everything between "nodes" stays on this host, whichever MPI it is.
	export OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo
	# Ports that no other job of MPI on this host begins with: it tells when a stranger comes.
	export OMPI_MCA_btl_tcp_port_min_v4=$((32000 + $$ % 16 * 1000))
	# Told by each test: not every bats can skip a whole file and take its cluster down.
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

# compile PROGRAM SOURCE...: a program that is linked with MPI and with libddp.
compile()
{
	local mpirun
	mpirun=$(mpirun_here)
	(
		cd "$DDP_SRCDIR/tests/cluster"
		"${mpirun/mpirun/mpicc}" -rdynamic -I"$INST/include" -o "$TOP/$1" "${@:2}" -L"$LD_LIBRARY_PATH" -lddp
	)
}

# try_mc ARGUMENT...: as try mc; once more where MPI itself does not begin, which on a loaded machine is once in some hundred times.
try_mc()
{
	local try
	for try in 1 2 3; do
		DDP_TIMEOUT=30 try mc "$@"
		grep -q 'MPI_Init did not come back in 30 s' <<<"$err" || return 0
	done
}

exact() { grep -c 'GB/s  exact$' <<<"$1"; }

# bats test_tags=release
@test "ddp-info: two nodes and four, uneven ones, ranks that are dealt in turn: sums exact" {
	for layout in '-N2 --ntasks-per-node=2' '-N4 -n4' '-N2 -n3 -m cyclic'; do
		# shellcheck disable=SC2086 # words
		try_mc srun $layout --mpi="$MPI" --ddp ddp-info --max-bytes 1M
		same "$rc" 0
		has "$out" 'started by srun --ddp, met by file, between nodes: mpi$'
		has_not "$out" WRONG
		same "$(exact "$out")" 7
		has_not "$err" '(MPI|PMI)'
	done
}

@test "plain srun, and ranks that meet by PMIx, too" {
	[ "$MPI" = pmix ] || skip "this is not PMIx"
	# Not of libddp's doing: PMIx_Init() and then MPI_Init() are enough.
	! "$(mpirun_here)" --version | grep -q '^mpirun (Open MPI) 5\.' || skip "Open MPI 5 does not begin where PMIx has begun"
	DDP_METHOD=pmix try_mc srun -N2 --ntasks-per-node=2 --mpi="$MPI" ddp-info --max-bytes 64K
	same "$rc" 0
	has "$out" 'started by srun, met by pmix, between nodes: mpi$'
	has_not "$out" WRONG
}

# Gradients go over it from a thread of their own; what it carries is what TCP carries.
@test "ddp-train: the same weights as over TCP, to the bit" {
	for wide in tcp mpi; do
		DDP_WIDE=$wide try_mc srun -N2 --ntasks-per-node=2 --mpi="$MPI" --ddp ddp-train mnist --samples 512 \
			--epochs 1 --seed 3 --save-model "$WORK/$wide.safetensors"
		same "$rc" 0
	done
	cmp "$WORK/tcp.safetensors" "$WORK/mpi.safetensors"
}

@test "ddp-train --virtual-ranks: the same weights over MPI as over TCP, on one rank, two and four" {
	local layout
	train=(ddp-train mnist --samples 256 -e 1 -b 8 --seed 3 --virtual-ranks 4)
	mc srun -N1 -n1 --ddp "${train[@]}" -q -m one
	for wide in tcp mpi; do
		for layout in '-N2 -n2' '-N4 -n4' '-N2 --ntasks-per-node=2'; do
			# shellcheck disable=SC2086 # words
			DDP_WIDE=$wide mc srun $layout --mpi="$MPI" --ddp "${train[@]}" -q -m other
			cmp "$WORK/one" "$WORK/other"
			rm "$WORK/other"
		done
	done
}

# The program's MPI is begun once, goes on after libddp has left, and is ended by the program.
@test "a program that uses MPI itself" {
	compile mpi-guest mpi-guest.c
	try_mc srun -N2 -n3 -m cyclic --mpi="$MPI" --ddp "$TOP/mpi-guest"
	same "$rc" 0
	same "$(grep -cx 'libddp: 3' <<<"$out") $(grep -cx 'MPI: 3' <<<"$out") $(wc -l <<<"$out")" '6 3 9'
	try mc srun -N2 -n2 --mpi="$MPI" --ddp "$TOP/mpi-guest" plain
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[[01]@n[12]\]: MPI was begun without threads: call MPI_Init_thread'
}

@test "without a launcher of MPI: refused in a line with the remedy" {
	try mc srun -N2 -n2 --ddp --mpi=none ddp-info
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[0@n1\]: .*MPI was not started for the 2 ranks of the job but for 1: begin it with srun --mpi='
}

@test "a rank that does not come: the others end when the time is over" {
	DDP_TIMEOUT=5 try mc srun -N2 -n2 --ddp --mpi="$MPI" --kill-on-bad-exit=0 \
		sh -c 'if [ "$SLURM_PROCID" = 1 ]; then sleep 12; else exec ddp-info; fi'
	[ "$rc" -ne 0 ]
	has "$err" '^ddp\[0@n1\]: MPI_Init did not come back in 5 s: not all ranks called it'
}

# --- Failure --------------------------------------------------------------------------

all_up() { [ "$(find "$WORK" -name 'up-*' -size +0 | wc -l)" -eq 4 ]; }

up_or_over() { all_up || ! kill -0 $! 2>/dev/null; }

# endless LAYOUT... COMMAND...: four ranks are up. On a loaded machine MPI_Init may take longer than DDP_TIMEOUT: then again.
endless()
{
	local try
	for try in 1 2 3 4 5; do
		end_jobs # of a try in vain
		rm -rf "$WORK"/up-* "$WORK"/.ddp
		background env -C "$WORK" timeout -k 5 100 "$minicluster" run srun --mpi="$MPI" --kill-on-bad-exit=0 --ddp "$@" >"$TOP/said" 2>&1
		within 60 up_or_over || true
		all_up && return
		echo "try $try: $(<"$TOP/said")" >&2
	done
	return 1
}

ended() { ! pgrep -f "^$ENDLESS" >/dev/null; }

# end SIGNAL VICTIM LAYOUT...: of four ranks one gets the signal; the others end, and leave no directory.
end()
{
	endless "${@:3}" "$ENDLESS" || return
	kill "-$1" "$(<"$WORK/up-$2")"
	[ "$1" = KILL ] || within 30 grep -qE '^ddp\[[0-9]@' "$TOP/said"
	kill -9 "$(<"$WORK/up-$2")" || true
	within 20 ended || return
	wait || true
	same "$(find "$WORK/.ddp" -maxdepth 1 -mindepth 1 -not -name 'failed-*' | wc -l)" 0
}

# ends SIGNAL VICTIM LAYOUT...: and one of them says, and records, of whom.
ends()
{
	end "$@" || return
	has "$(<"$TOP/said")" "^ddp\\[[0-9]@n[1-4]\\]: .*rank $2 on n[1-4]" &&
		has "$(cat "$WORK"/.ddp/failed-*/rank-*)" "rank $2 on n[1-4]"
}

# Failures are MPI's: whether a rank can still report the lost one depends on the MPI.
# bats test_tags=release
@test "a rank killed in an all-reduce ends the others, on two nodes and on four" {
	export DDP_TIMEOUT=5
	end KILL 3 -N2 --ntasks-per-node=2
	end KILL 3 -N4 -n4
}

# On a loaded machine a rank that runs may be as late as the stopped one: so up to three times.
@test "a rank is stopped: named when DDP_TIMEOUT is over, on two nodes and on four" {
	export DDP_TIMEOUT=3
	for layout in '-N2 --ntasks-per-node=2' '-N4 -n4'; do
		# shellcheck disable=SC2086 # words
		ends STOP 2 $layout || ends STOP 2 $layout || ends STOP 2 $layout
	done
}
