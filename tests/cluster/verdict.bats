# SPDX-License-Identifier: Apache-2.0
# Attempts of ddp-run: variables that their tasks get, files that tasks leave if they fail, and the report that ddp-run writes
# from these files.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2 --conf KillWait=5
	install_runtime
}

teardown_file() { cluster_down; }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
	other_cluster_down
	# slurmd creates a cgroup for each node and does not remove it.
	[ -z "${groups-}" ] || within 60 no_groups
}

no_groups() { find "$groups" -mindepth 1 -maxdepth 1 -name 'slurm_n[12]' -exec rmdir {} +; }

# attempt SRUN_OPTION...: runs srun like ddp-run. $WORK/messages has the lines that the plugin prints for ddp-run.
attempt()
{
	mc sh -c '{ SLURM_DDP_RESTART=1 SLURM_DDP_RESTARTS_MAX=3 SLURM_DDP_RUN_ID=run SLURM_DDP_RUN_FD=9 srun --ddp "$@" 9>&1 >out; } |
		cat >messages; cat out' sh "$@"
}

# --- Variables -------------------------------------------------------------------------

@test "an attempt: tasks and ddp-run get the same step, paths and numbers, and a nested step gets none of them" {
	names="DDP_RESTART TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE DDP_HEARTBEAT"
	given="SLURM_DDP_RESTART SLURM_DDP_RESTARTS_MAX SLURM_DDP_RUN_ID SLURM_DDP_RUN_FD"
	# shellcheck disable=SC2086 # names are words
	out=$(attempt -N2 -n2 "$SHOW" $names $given | sort -n)
	job=$(sed -n 's/^job //p' "$WORK/messages")
	step=$(sed -n 's/^step //p' "$WORK/messages")
	failed=$(sed -n 's/^failed //p' "$WORK/messages")
	rendezvous=$(sed -n 's/^rendezvous //p' "$WORK/messages")
	cluster=$(sed -n s/^ClusterName=//p "$MINICLUSTER_DIR/slurm.conf")
	same "$failed" "$WORK/.ddp/failed-$cluster-$job.$step"
	has "$rendezvous" "^$WORK/.ddp/[^/]*-$job\.$step\.0-[0-9a-f]{16}$"
	for rank in 0 1; do
		echo "$rank@n$((rank + 1)) DDP_RESTART=1 TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_MAX_RESTARTS=3 TORCHELASTIC_RUN_ID=run TORCHELASTIC_ERROR_FILE=$failed/error-$rank.json DDP_HEARTBEAT=$rendezvous/beat-$rank SLURM_DDP_RESTART=UNSET SLURM_DDP_RESTARTS_MAX=UNSET SLURM_DDP_RUN_ID=UNSET SLURM_DDP_RUN_FD=UNSET"
	done >"$TOP/wanted"
	same "$out" "$(<"$TOP/wanted")"
	# After the step, the file with a task's node and process id remains. The rendezvous directory does not.
	same "$(ls "$failed")" "task-0
task-1"
	has "$(cat "$failed"/task-0)" '^n1 [0-9]+$'
	has "$(cat "$failed"/task-1)" '^n2 [0-9]+$'
	[ ! -e "$rendezvous" ]

	# A nested step does not count as an attempt of ddp-run.
	# shellcheck disable=SC2086
	out=$(attempt -N1 -n1 sh -c "srun --overlap -N1 -n1 --ddp $SHOW $names")
	has "$out" "^0@n1 DDP_RESTART=UNSET TORCHELASTIC_RESTART_COUNT=UNSET TORCHELASTIC_MAX_RESTARTS=UNSET TORCHELASTIC_RUN_ID=UNSET TORCHELASTIC_ERROR_FILE=UNSET DDP_HEARTBEAT=UNSET$"
}

@test "a wrong SLURM_DDP_RESTART is refused, and the message names ddp-run" {
	try mc env SLURM_DDP_RESTART=x srun --ddp true
	has "$err" 'ddp: SLURM_DDP_RESTART=x is not a number\. ddp-run sets this variable\. Unset yours\.$'
}

# --- Reports of failures under ddp-run -----------------------------------------------------

@test "a rank that exits is reported with status, node and last lines, the others as followers" {
	# Rank 2 waits for the others, since Slurm ends a rank that has not started yet with SIGKILL.
	run_once -N2 --ntasks-per-node=2 sh -c 'echo rank $RANK begins; touch here.$RANK; [ $RANK = 2 ] || exec sleep 100
		until [ -e here.0 ] && [ -e here.1 ] && [ -e here.3 ]; do sleep 0.1; done
		printf "50%%\r\033[1mlast\007 words\n"; sleep 0.5; exit 7'
	same "$(field kind status first.rank first.node first.how first.code first.follows)" "exit $rc 2 n2 exit 7 False"
	has "$(cat "$dir/task-2")" "^n2 $(field first.pid)$"
	has "$(field first.tail)" "last.* words"
	for rank in 0 1 3; do
		same "$(field ranks.$rank.follows)" True
	done
	has "$text" '^rank 2 on n2, pid [0-9]+, failed first: exit status 7$'
	has "$text" '^    last\? words$'
	has "$text" '^as a result: ranks 0-1,3: '
	has "$text" '^next: stopped'
}

@test "a rank that does not arrive in a collective of libddp is named by the ranks that waited, and by --hang" {
	cc -o "$TOP/late" -x c - -I"$INST/include" -L"$LD_LIBRARY_PATH" -lddp <<'END'
#include <ddp.h>
#include <unistd.h>

int main(void)
{
	struct ddp *ddp;
	float one = 1;

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	for (int i = 0; i < 20; i++) {
		if (i == 10 && ddp_world(ddp)->rank == 3)
			pause();
		if (ddp_all_reduce(ddp, &one, &one, 1, DDP_F32, DDP_MAX) < 0)
			ddp_exit(ddp);
	}
}
END
	DDP_TIMEOUT=10 run_once -N2 --ntasks-per-node=2 "$TOP/late"
	same "$(field first.rank first.node first.why)" "3 n2 other ranks name it"
	same "$(field collectives)" "did not arrive in #12 all-reduce 1 F32 max: rank 3"
	has "$text" '^collectives: did not arrive in #12 all-reduce 1 F32 max: rank 3$'
	has "$text" '^as a result: .*rank 3 on n2'
	has "$text" '^  the last lines of all ranks:$'
	has "$text" '^    ddp\[[0-9]@n[12]\]: .*rank 3 on n2 did not arrive in all-reduce #12 in 10 s'

	# The report is the same if --hang ends the attempt before DDP_TIMEOUT.
	rm -r "$WORK/.ddp"
	run_once --hang 5 -N2 --ntasks-per-node=2 "$TOP/late"
	same "$(field kind first.rank first.state)" "hang 3 S"
	same "$(field first.why)" "it did not arrive in #12 all-reduce 1 F32 max: rank 3"
	has "$text" '^rank 3 on n2, pid [0-9]+: it did not arrive in #12 all-reduce'
}

# NCCL's RAS and PyTorch's flight recorder need GPUs. So rank 0 imitates both with a socket and a named pipe.
@test "a hang is reported with the stopped rank, states, stacks, NCCL's RAS and PyTorch's flight recorder" {
	cat >"$WORK/hang.py" <<'END'
import os, pathlib, signal, socket, threading
rank, pipe = os.environ["RANK"], os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
pathlib.Path(os.environ["DDP_HEARTBEAT"]).touch()
if rank == "0":
    host, port = os.environ["NCCL_RAS_ADDR"].split(":")
    at = socket.create_server((host, int(port)))
    def answer():
        to, _ = at.accept()
        to.sendall(b"asked: " + to.recv(100))
        to.close()
    threading.Thread(target=answer, daemon=True).start()
    os.mkfifo(pipe + rank + ".pipe")
    def dump():
        if os.read(os.open(pipe + rank + ".pipe", os.O_RDONLY), 1):
            open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "w").write("dump")
    threading.Thread(target=dump, daemon=True).start()
if rank == "2":
    os.kill(os.getpid(), signal.SIGSTOP)
signal.pause()
END
	# The program of rank 2 runs below a shell.
	run_once --hang 6 -N2 -n3 sh -c '[ "$RANK" -eq 2 ] || exec "$@"; "$@"; exit' sh /usr/bin/python3 hang.py
	same "$(field kind first.rank first.state first.why)" "hang 2 T it is stopped"
	same "$(field ranks.0.state ranks.1.state)" "S S"
	has "$(field ranks.0.command)" '^/usr/bin/python3 hang.py$'
	same "$(field flight_recorder_dumps ras)" "1 True"
	has "$text" "^PyTorch's flight recorder left 1 dump\. Print them: "
	same "$(<"$dir/ras.txt")" "asked: verbose status"
	has "$text" '^rank 2 on n[12], pid [0-9]+: it is stopped$'
	has "$text" '^  rank 0 on n1, pid [0-9]+: state S in .*, last heartbeat [0-9.]+ s before'
	! command -v gdb >/dev/null || has "$(cat "$dir/stacks-2.txt")" '^Thread 1 '
	has "$(cat "$dir/proc-0.txt")" '^State:.*S'
	within 30 no_jobs
}

# start_like_rank ASSIGNMENT...: starts a process with a rank's environment, in which the arguments change variables. Sets $pid to
# its process id.
start_like_rank()
{
	background env SLURM_CLUSTER_NAME=c SLURM_CONF=/c.conf SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURMD_NODENAME=n1 env "$@" sleep 600
	pid=$!
	within 60 grep -qx sleep "/proc/$pid/comm"
}

@test "ddp-run does not touch processes of another cluster, job, step or node on the same host" {
	on_n1() { as_user env SLURM_CLUSTER_NAME=c SLURM_CONF=/c.conf SLURMD_NODENAME=n1 ddp-run "$1" 77 0; }
	others=()
	for other in SLURM_CLUSTER_NAME=d SLURM_CONF=/d.conf -uSLURM_CONF SLURMD_NODENAME=n2 SLURM_STEP_ID=1 SLURM_JOB_ID=78; do
		start_like_rank "$other"
		others+=("$pid")
	done
	try on_n1 --sweep
	same "$rc" 3
	start_like_rank SLURM_PROCID=1
	try on_n1 --look
	same "$rc" 0
	try on_n1 --sweep
	same "$rc" 0
	rc=0
	wait "$pid" || rc=$?
	same "$rc" 137
	try on_n1 --look
	same "$rc" 3
	kill "${others[@]}" # fails if one of these processes was killed
}

# Sets $at to the directory of the memory controller of cgroup v1. Skips the test if it cannot limit memory there.
need_memory_groups()
{
	at=/sys/fs/cgroup/memory
	[ "$(id -u)" -eq 0 ] && [ -w $at/cgroup.procs ] || skip "no memory controller of cgroup v1 that this user may use"
	[ "$(wc -l </proc/swaps)" -eq 1 ] || skip "there is swap, into which the test would grow"
}

@test "processes that the kernel killed for lack of memory are counted from the job's cgroup" {
	need_memory_groups
	group=$at/ddp-test.$$/job_77
	mkdir -p "$group/step_0" "$TOP/memory"
	echo 30000000 >"$group/memory.limit_in_bytes"
	inside() { sh -c 'echo $$ >"$0/step_0/cgroup.procs"; exec "$@"' "$group" "$@"; }
	try inside /usr/bin/python3 -c 'bytearray(200000000)'
	same "$rc" 137
	SLURMD_NODENAME=n1 inside ddp-run --gather "$TOP/memory" 77 0 5
	within 60 rmdir "$group/step_0" "$group" "${group%/*}"
	same "$(cat "$TOP/memory/memory-n1.txt")" "oom_kill 1"
}

@test "out of memory under Slurm's limit, of a rank or of its child: reported as such, and the next attempt has all memory" {
	need_memory_groups
	! compgen -G "$at/slurm_n[12]" || skip "a slurmd of somebody else has nodes in $at"
	other_cluster --nodes 2 --gpus 0 --conf TaskPlugin=task/cgroup --conf SelectTypeParameters=CR_Core_Memory
	printf '%s\n' CgroupPlugin=cgroup/v1 ConstrainRAMSpace=yes ConstrainSwapSpace=yes AllowedSwapSpace=0 \
		>"$MINICLUSTER_DIR/cgroup.conf"
	groups=$at
	slurmd_n2 :
	for how in 'bytearray(200000000)' 'child = subprocess.run([sys.executable, "-c", "bytearray(200000000)"]); sys.exit(child.returncode < 0)'; do
		cat >"$WORK/grow.py" <<-END
			import os, subprocess, sys, time
			if os.environ["DDP_RESTART"] == "0":
			    if os.environ["RANK"] == "1":
			        $how
			    time.sleep(60)
		END
		try mc salloc -Q --no-kill -N2 --mem=60 ddp-run -n2 /usr/bin/python3 grow.py
		same "$rc" 0
		dir=$(find "$WORK/.ddp" -maxdepth 1 -name 'failed-*')
		same "$(field attempt first.rank first.node first.how)" "0 1 n2 oom"
		has "$(<"$dir/report.txt")" '^rank 1 on n2, pid [0-9]+, failed first: killed for lack of memory$'
		rm -r "$WORK/.ddp"
	done
}
