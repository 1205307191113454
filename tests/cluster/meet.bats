# SPDX-License-Identifier: Apache-2.0
# The rendezvous of ranks under a real srun, by each method. The program tests/runtime/meet does nothing else.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2
	install -m 755 "$DDP_BUILDDIR/tests/runtime/meet" "$TOP/meet"
	DDP_MODULES=$TOP/modules
	mkdir -m 755 "$DDP_MODULES"
	if [ -f "$DDP_BUILDDIR/runtime/.libs/ddp_pmix.so" ]; then
		install -m 755 "$DDP_BUILDDIR/runtime/.libs/ddp_pmix.so" "$DDP_MODULES"
	fi
	export DDP_MODULES MEET=$TOP/meet
}

teardown_file() { cluster_down; }

teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

# expect_met RANKS METHOD: checks that $out has the line of each rank.
expect_met()
{
	local rank wanted=
	for ((rank = 0; rank < $1; rank++)); do
		wanted+="rank $rank of $1 met by $2"$'\n'
	done
	same "$rc" 0
	same "$(sort <<<"$out")"$'\n' "$wanted"
}

nothing_left() { same "$(ls -A "$WORK")" ""; }

# together SCRIPT OPTION...: runs "meet" with these options on four ranks. Each runs the shell script first, as soon as the tasks of
# all ranks have started.
together()
{
	local script=$1
	shift
	try mc srun -N2 -n4 -K0 --ddp sh -c 'touch "started.$SLURM_PROCID"
		until [ -e started.0 ] && [ -e started.1 ] && [ -e started.2 ] && [ -e started.3 ]; do sleep 0.05; done
		'"$script"'
		exec "$0" "$@"' "$MEET" "$@"
	rm -f "$WORK"/started.*
}

@test "file rendezvous in the directory of srun --ddp" {
	try mc srun -N2 -n4 --ddp "$MEET"
	expect_met 4 file
	nothing_left
}

@test "file rendezvous under plain srun, in a directory that the ranks create and remove" {
	try mc srun -N2 -n5 "$MEET"
	expect_met 5 file
	nothing_left
}

# start_rank RANK OPTION...: starts the program "meet" with the variables of env://, as a user would set them in a shell.
start_rank()
{
	local rank=$1
	shift
	(cd "$WORK" && as_user env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK="$rank" LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost \
		MASTER_PORT=12345 DDP_RENDEZVOUS="$WORK" bash -c '"$@"; exit' - "$MEET" "$@")
}

both_run() { [ "$(pgrep -c -f "^$MEET")" -eq 2 ]; }

start_both_ranks()
{
	start_rank 0 &
	start_rank 1
	wait $!
}

@test "RANK and MASTER_ADDR set by hand in two shells: the ranks meet, also after two earlier ones were killed" {
	local pids
	start_rank 0 3>&- &
	start_rank 1 -w 60000 3>&- &
	within 60 sh -c 'ls "$0"/.ddp/env-*/*.ranks/hello' "$WORK"
	within 60 both_run
	mapfile -t pids < <(pgrep -f "^$MEET")
	kill -9 "${pids[@]}"
	wait
	try start_both_ranks
	expect_met 2 file
	nothing_left
}

@test "two programs in one step, one after the other, each meet" {
	try mc srun -N2 -n4 --ddp sh -c '"$0" && "$0"' "$MEET"
	same "$rc" 0
	same "$(sort <<<"$out" | uniq -c | sort -rn | awk '{ print $1, $3 }' | sort)" $'2 0\n2 1\n2 2\n2 3'
	nothing_left
}

@test "PMIx rendezvous" {
	needs_pmix
	try mc srun -N2 -n4 --mpi=pmix "$MEET" -m pmix
	expect_met 4 pmix
}

@test "PMIx rendezvous if PMIx_Fence_nb reports success at once" {
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
	try mc srun -N2 -n4 --mpi=pmix env LD_PRELOAD="$TOP/at-once.so" "$MEET" -m pmix
	expect_met 4 pmix
}

@test "two programs in one step, one after the other, each meet by PMIx" {
	needs_pmix
	# PMIx's server on a busy node may count a process of the first program as lost in the fence of the second. So the second
	# program starts some time after all processes of the first have ended.
	try mc srun -N2 -n4 --mpi=pmix sh -c '"$0" -m pmix && touch "ended.$SLURM_PROCID"
		until [ -e ended.0 ] && [ -e ended.1 ] && [ -e ended.2 ] && [ -e ended.3 ]; do sleep 0.05; done
		sleep 2 && "$0" -m pmix' "$MEET"
	same "$rc" 0
	same "$(grep -c 'met by pmix' <<<"$out")" 8
}

@test "PMIx: a rank that aborts is reported on its node, and the other node times out" {
	needs_pmix
	try mc srun -N2 -n4 -K0 --mpi=pmix "$MEET" -m pmix -a -t 10
	has "$err" 'rank 0: rank 1 on n1: requested by -a'
	has "$err" 'rank 3: (not all of 4 ranks arrived in 10 s|rank 1 on n1: requested by -a)'
}

@test "PMIx without srun --mpi=pmix is an error" {
	try mc srun -n1 "$MEET" -m pmix
	has "$err" 'PMIX_RANK is not set; srun --mpi=pmix sets it'
}

@test "a rank that aborts the rendezvous is reported by all others" {
	try mc srun -N2 -n4 -K0 --ddp "$MEET" -a
	for rank in 0 2 3; do
		has "$err" "rank $rank: rank 1 on n1: requested by -a"
	done
	nothing_left
}

@test "a late rank is named by the others, and fails itself when it arrives" {
	together '' -w 6000 -t 3
	for rank in 0 2 3; do
		has "$err" "rank $rank: .*1 of 4 ranks did not arrive in 3 s: rank 1"
	done
	# The late rank may take the remaining files for those of an earlier attempt, and wait until its own timeout.
	has "$err" 'rank 1: .*(1 of 4 ranks did not arrive in 3 s: rank 1|rank 0 did not arrive in 3 s)'
	nothing_left
}

@test "a killed rank is named by all others" {
	together '[ "$SLURM_PROCID" != 2 ] || kill -9 $$' -t 3
	for rank in 0 1 3; do
		has "$err" "rank $rank: .*1 of 4 ranks did not arrive in 3 s: rank 2"
	done
	nothing_left
}
