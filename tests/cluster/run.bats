#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run: what fails is started again, what cannot work is not, and nothing is left behind.

load lib

options=(--nodes 4 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300)

setup_file()
{
	cluster_up "${options[@]}"
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	DDP_RUN=$TOP/ddp-run
	export DDP_RUN
	cat >"$WORK/rank.sh" <<-'END'
		# What rank 2 does, $1, in attempts before number $2, when all have said who they are, and srun has passed that on: in
		# a step that it ends, it drops what is still on its way. So that the others have to be ended, these sleep.
		echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART on $SLURMD_NODENAME $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS"
		[ "$DDP_RESTART" -lt "$2" ] || exit 0
		touch "here.$DDP_RESTART.$RANK"
		[ "$RANK" -eq 2 ] || exec sleep 60
		until [ "$(ls here."$DDP_RESTART".* | wc -l)" -eq "$WORLD_SIZE" ]; do sleep 0.05; done
		sleep 0.5
		case $1 in
		kill) kill -9 $$ ;;
		segv) kill -SEGV $$ ;;
		exit) echo "rank 2 gives up" >&2; exit 3 ;;
		esac
	END
	chmod 755 "$WORK/rank.sh"
}

teardown_file() { cluster_down; }

# A job that lost a node is completing for minutes, and the node is busy: a new cluster has none of either.
teardown()
{
	if [[ -e $WORK/lost ]]; then
		restart_cluster "${options[@]}" || return
	else
		end_jobs
	fi
	! mountpoint -q "$WORK/disk" || umount "$WORK/disk"
	rm -rf "$WORK/lost" "$WORK/disk" "$WORK/elsewhere" "$WORK/.ddp" "$WORK"/*.out "$WORK"/logs "$WORK/bin" "$WORK"/here.* "$WORK"/said.*
}

# A batch job of 4 nodes that runs ddp-run with these arguments: $out is what it said, $rc its exit status. The script
# tells its end: Slurm's own word comes late where a node is lost.
batch()
{
	printf '#!/bin/bash\n%s "$@"\necho $? >rc.tmp\nmv rc.tmp rc\n' "$DDP_RUN" >"$WORK/job"
	rm -f "$WORK/rc"
	# shellcheck disable=SC2086
	mc sbatch -Q --no-kill -N4 ${BATCH-} -o job.out ./job "$@"
	within 120 test -e "$WORK/rc" || { cat "$WORK/job.out" >&2; return 1; }
	rc=$(<"$WORK/rc")
	out=$(<"$WORK/job.out")
	cp "$WORK/job.out" "$TOP/err"
}

# What report.json of attempt $1, from 0, has for each of the other arguments.
report()
{
	local attempt=$1
	shift
	python3 - "$WORK" "$attempt" "$@" <<-'END'
		import glob, json, sys
		for name in glob.glob(sys.argv[1] + "/.ddp/failed-*/report.json"):
		    report = json.load(open(name))
		    if report["attempt"] == int(sys.argv[2]):
		        print(*(json.dumps(report.get(key)) for key in sys.argv[3:]))
	END
}

first()
{
	python3 - "$WORK" <<-'END'
		import glob, json, sys
		for name in sorted(glob.glob(sys.argv[1] + "/.ddp/failed-*/attempt.json")):
		    attempt = json.load(open(name))
		    task = attempt["tasks"][0]
		    print(attempt["attempt"], attempt["kind"], attempt["nodes"], attempt["ranks"], attempt["next"],
		          task["rank"], task["node"], task["how"], task["code"])
	END
}

@test "a rank that is killed: another attempt, with a number of its own, and a report on the first" {
	batch bash rank.sh kill 1
	same "$rc" 0
	same "$(grep -c '^rank . of 4 restart 0 on n. 0/3$' <<<"$out")" 4
	same "$(grep -c '^rank . of 4 restart 1 on n. 1/3$' <<<"$out")" 4
	has "$out" '^rank 2 on n3, pid [0-9]+, failed first: killed by SIGKILL$'
	same "$(first)" "0 signal ['n1', 'n2', 'n3', 'n4'] 4 restart 2 n3 signal 9"
	same "$(ls "$WORK/.ddp")" "failed-$(ls "$WORK/.ddp" | sed 's/failed-//')"
	same "$(mc "$DDP_RUN" --explain "$WORK"/.ddp/failed-*)" "$(cat "$WORK"/.ddp/failed-*/report.txt)"
}

@test "a rank that crashes is a failure, also if rank 0 then records that it stopped on request" {
	cat >"$WORK/polite.sh" <<-'END'
		[ "$DDP_RESTART" = 0 ] || exit 0
		[ "$RANK" = 0 ] || { sleep 1; exit 9; }
		trap 'echo "{\"message\": \"stopped: SIGTERM\"}" >"$TORCHELASTIC_ERROR_FILE"; exit 3' TERM
		for ((i = 0; i < 600; i++)); do sleep 0.1; done
	END
	batch -N2 -n2 bash polite.sh
	same "$rc" 0
	has "$out" '^next: started again'
	has_not "$out" 'stopped on request'
	has "$out" '^rank 1 on n2, pid [0-9]+, failed first: exit status 9$'
}

@test "the number of restarts, also by SLURM_DDP_RESTARTS; the status is srun's" {
	batch --restarts 1 -N1 -n1 bash -c 'echo "now $DDP_RESTART"; exit $((5 + DDP_RESTART))'
	same "$rc" 6
	same "$(grep -c '^now ' <<<"$out")" 2
	has "$out" 'no restart is left of 1'
	# Of one rank it is known whose these are.
	same "$(grep -A1 '^  its last line:$' <<<"$out" | tail -n 1)" '    now 1'
	SLURM_DDP_RESTARTS=0 batch bash rank.sh segv 9
	same "$(grep -c '^rank 2 of' <<<"$out")" 1
	has "$out" 'failed first: killed by SIGSEGV'
}

@test "three attempts that end at one point: exit status 93" {
	batch --restarts 9 --report last.json bash rank.sh exit 9
	same "$rc" 93
	same "$(grep -c '^rank 2 of' <<<"$out")" 3
	has "$out" '3 attempts in a row ended at the same point'
	has "$(cat "$WORK/last.json")" '"attempt": 2,'
}

@test "attempts that leave newer checkpoints are progress, those that leave none are not" {
	rm -rf "$WORK/points"; mkdir "$WORK/points"; chmod 777 "$WORK/points"
	DDP_CHECKPOINT=$WORK/points batch --restarts 4 bash -c 'touch "points/$DDP_RESTART"; [ "$DDP_RESTART" -eq 3 ]'
	same "$rc" 0
	DDP_CHECKPOINT=$WORK/points batch --restarts 9 bash -c 'exit $((DDP_RESTART + 1))'
	same "$rc" 93
	has "$out" '3 attempts in a row left no newer checkpoint'
	# What was not written to its end is none, and neither is a directory; what is written anew in one is.
	DDP_CHECKPOINT=$WORK/points batch --restarts 9 bash -c 'mkdir "points/step.$DDP_RESTART"; touch "points/step.$DDP_RESTART/state.tmp" "points/.new.$DDP_RESTART"; exit $((DDP_RESTART + 1))'
	same "$rc" 93
	DDP_CHECKPOINT=$WORK/points batch --restarts 4 bash -c 'mkdir -p points/last/0; echo 1 >points/last/0/state; [ "$DDP_RESTART" -eq 3 ]'
	same "$rc" 0
}

@test "a DDP_CHECKPOINT that this node does not see: a line says so, and the points of failure count" {
	DDP_CHECKPOINT=s3://bucket/run batch --restarts 3 bash -c '[ "$RANK" -eq "$DDP_RESTART" ] || exec sleep 61; exit 3'
	same "$rc" 143
	same "$(grep -c '^ddp-run: cannot open DDP_CHECKPOINT s3://bucket/run on this node: No such file or directory: progress is judged by where attempts fail$' <<<"$out")" 1
	has "$out" "no restart is left of 3$"
}

@test "what cannot work is not repeated, and leaves nothing" {
	batch nosuch-program
	same "$rc" 2
	same "$(grep -c 'error: execve' <<<"$out")" 4
	has "$out" '^execve\(\): nosuch-program: No such file or directory$'
	has_not "$out" 'also failed'
	batch --hang 9 -o nosuch/file -N4 true
	same "$rc" 1
	same "$(grep -c 'Could not open stdout file' <<<"$out")" 2
	has "$out" '^next: stopped: it would fail in the same way again$'
	rm -rf "$WORK/.ddp"
	batch --nosuch-option true
	same "$(grep -c 'unrecognized option' <<<"$out")" 1
	batch -n99 true
	same "$(grep -c 'Unable to create step' <<<"$out")" 1
	[ ! -e "$WORK/.ddp" ]
}

@test "wrong options are refused in a line that names them" {
	for wrong in '--restarts x true|--restarts x: give a whole number from 0 on' \
		'--hang 5y true|--hang 5y: give seconds, or a number with s, m or h' \
		'--min-nodes 0 true|--min-nodes 0: give a whole number from 1 on' \
		'--requeue=1 true|--requeue takes no value: leave out =1' '--logs|--logs: give a DIR' \
		'--restarts 1|no program is given: ddp-run \[OPTION...\] \[SRUN.S OPTION...\] program'; do
		# shellcheck disable=SC2086
		try "$DDP_RUN" ${wrong%|*}
		same "$rc" 2
		same "$out" ''
		has "$err" "^ddp-run: ${wrong#*|}$"
		same "$(wc -l <<<"$err")" 1
	done
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" true
	has "$err" '^ddp-run: SLURM_DDP_RESTARTS -1: give a whole number'
	# Where it is not asked for it does no harm.
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --help
	has "$out" '^usage: ddp-run'
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --restarts 0 --explain "$WORK"
	has "$out" '^ddp-run: attempt 1'
	try mc env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --restarts 1000000000 -N1 -n1 true
	same "$rc" 0
	for steps in '-n1 true : -n1 true' '--het-group=0,1 true' '--pack-group 0,1 true'; do
		# shellcheck disable=SC2086
		try mc "$DDP_RUN" $steps
		same "$rc" 2
		has "$err" '^ddp-run: srun does not tell which rank of a heterogeneous step fails: use --multi-prog instead, or srun --ddp$'
	done
	try mc "$DDP_RUN" -N1 --restarts 3 true
	same "$rc $err" '2 ddp-run: --restarts: options of ddp-run come before those of srun'
	try mc srun -n1 "$DDP_RUN" true
	has "$err" '^ddp-run: this is a task of step 0 of job'
	for name in OMPI_COMM_WORLD_RANK PMI_RANK TORCHELASTIC_RUN_ID; do
		try mc salloc -Q -N1 env $name=0 "$DDP_RUN" true
		same "$rc" 2
		has "$err" "^ddp-run: this is a rank of another launcher already, as $name says: start"
	done
	# A job that a rank submits inherits its variables.
	PMI_RANK=0 batch -N1 -n1 true
	same "$rc" 0
	mc srun -Q -n1 --ddp sbatch -Q -W -N1 -o job.out job -N1 -n1 true
	has_not "$(<"$WORK/job.out")" 'already'
	same "$(<"$WORK/rc")" 0
	try mc salloc -Q -N1 "$DDP_RUN" --requeue true
	has "$err" '^ddp-run: --requeue: job [0-9]+ is no batch job'
	try mc salloc -Q -N1 "$DDP_RUN" --spare-nodes 1 true
	has "$err" '^ddp-run: --spare-nodes 1: job [0-9]+ has 1 nodes: none would be left$'
}

@test "without an allocation it takes one; stdin, stdout and stderr are srun's, to the byte" {
	head -c 300000 /dev/urandom >"$WORK/bytes"
	chmod 644 "$WORK/bytes"
	# shellcheck disable=SC2016
	(cd "$WORK" && as_user timeout 60 "$minicluster" run "$DDP_RUN" -N1 -n1 -J taken bash -c 'cat; echo "$SLURM_JOB_NAME" >&2' \
		<bytes >bytes.out 2>err.out)
	cmp "$WORK/bytes" "$WORK/bytes.out"
	has "$(cat "$WORK/err.out")" '^taken$'
}

@test "without an allocation: options of each spelling, many of them, and a job that there is" {
	local job
	# shellcheck disable=SC2016,SC2046
	try mc "$DDP_RUN" $(printf -- '--restarts %d ' {1..40}) -lN 1 -n1 --wait=0 bash -c 'echo "$1 of $#"' name one two
	same "$rc" 0
	same "$out" '0: one of 2'
	# shellcheck disable=SC2016
	try mc "$DDP_RUN" --spare-nodes 1 -N2 -n2 bash -c 'echo "$RANK of $WORLD_SIZE: $SLURM_JOB_NODELIST"'
	same "$rc" 0
	same "$(sort <<<"$out")" $'0 of 2: n[1-3]\n1 of 2: n[1-3]'
	as_user mkdir "$WORK/here.sub"
	try mc "$DDP_RUN" -N1 -n1 -D here.sub pwd
	same "$rc $out" "0 $WORK/here.sub"
	mc salloc -Q --no-shell -N2 -J held
	job=$(mc squeue -h -n held -o %A)
	# shellcheck disable=SC2016
	try mc "$DDP_RUN" --jobid="$job" -N1 -n1 bash -c 'echo "$DDP_RESTART in $SLURM_JOB_ID"; exit $((1 - DDP_RESTART))'
	mc scancel "$job"
	same "$rc" 0
	same "$out" "0 in $job
1 in $job"
}

@test "a file on stdin is read anew by each attempt" {
	echo hello >"$WORK/in"
	# shellcheck disable=SC2016
	(cd "$WORK" && as_user timeout 60 "$minicluster" run "$DDP_RUN" -N1 -n1 bash -c 'read -r a; echo "$DDP_RESTART $a"; exit $((1 - DDP_RESTART))' \
		<in >all.out 2>/dev/null)
	same "$(cat "$WORK/all.out")" $'0 hello\n1 hello'
}

# leaves SIGNAL STATUS OPTION...: a batch job of two nodes, with these options of sbatch, whose ranks leave with that status, or
# "stay", when they are told by that signal, and end well when they are started again. $RUN: options of ddp-run. $LINE: the script's
# first line. What stands in $WORK/bin is in the place of Slurm's commands; ddp-run's calls of scancel are told in scancel.out.
leaves()
{
	local signal=$1 status=$2
	shift 2
	cat >"$WORK/leave.py" <<-'END'
		import os, signal, sys, time
		rank, again = os.environ["RANK"], os.environ.get("SLURM_RESTART_COUNT", "7") != "7" or os.environ["DDP_RESTART"] != "0"
		told = []
		signal.signal(getattr(signal, "SIG" + sys.argv[1]), lambda *_: told.append(1))
		name = "said." + os.environ["SLURM_JOB_ID"]
		def say(*words):
		    with open(name, "a") as file:
		        print(rank, *words, file=file)
		say("again" if again else "up")
		open("up." + rank, "w").close()
		while (not told or sys.argv[2] == "stay") and not again:
		    time.sleep(0.1)
		time.sleep(0.5)
		# The first that fails ends the other.
		signal.signal(signal.SIGTERM, signal.SIG_IGN)
		say("told", len(told))
		while len({open(name).read().count(rank + " told") for rank in "01"}) > 1:
		    time.sleep(0.05)
		open("failed", "w").close()
		sys.exit(0 if again else int(sys.argv[2]))
	END
	rm -f "$WORK"/up.? "$WORK/failed"
	instead scancel 'echo "$@" >>scancel.out'
	printf '#!/bin/bash\n%s\nPATH=$PWD/bin:$PATH\necho $$ >pid\nexec %s %s python3 leave.py %s %s\n' \
		"${LINE-}" "$DDP_RUN" "${RUN---requeue}" "$signal" "$status" >"$WORK/job"
	mc sbatch --parsable --requeue --open-mode=append -N2 -o job.out "$@" job
}

# instead COMMAND SCRIPT: what is done before, or by, ddp-run's calls of it.
instead()
{
	mkdir -p "$WORK/bin"
	printf '#!/bin/bash\nPATH=${PATH#*:}\n%s\nexec %s "$@"\n' "$2" "$1" >"$WORK/bin/$1"
	chmod 755 "$WORK/bin/$1"
}

# What ranks of job $1 did, in files: of what they print at their end srun drops some.
said() { sort -u "$WORK/said.$1"; }

are_up() { [ -e "$WORK/up.0" ] && [ -e "$WORK/up.1" ]; }

is_requeued() { mc scontrol show job "$1" | grep -q ' Restarts=1 '; }

# The job has ended, and was not given back.
is_over() { gone "$1" && ! is_requeued "$1"; }

@test "SIGTERM to ddp-run reaches each rank once, and there is no other attempt" {
	local job
	job=$(leaves TERM 7)
	within 60 are_up
	mc scancel --batch --signal=TERM "$job"
	within 60 is_over "$job"
	same "$(said "$job")" $'0 told 1\n0 up\n1 told 1\n1 up'
	same "$(<"$WORK/scancel.out")" "-Q $job.0 --signal=TERM"
	has "$(<"$WORK/job.out")" '^next: stopped: it was told to end$'
	has "$(mc scontrol show job "$job")" 'ExitCode=7:0'
}

# As from timeout(1), and from "kill 0" in a trap.
@test "SIGTERM to ddp-run and to its process group reaches each rank once" {
	local job
	job=$(leaves TERM 7)
	within 60 are_up
	as_user bash -c 'kill -TERM "$1"; kill -TERM -- "-$1"' kill "$(<"$WORK/pid")"
	within 60 is_over "$job"
	same "$(said "$job")" $'0 told 1\n0 up\n1 told 1\n1 up'
	same "$(<"$WORK/scancel.out")" "-Q $job.0 --signal=TERM"
	has "$(<"$WORK/job.out")" '^next: stopped: it was told to end$'
}

# KillWait is 5 s here, and srun is killed 10 s later if ranks of a step that failed are still there.
@test "SIGTERM to ddp-run: ranks that need longer than KillWait to end have the time" {
	instead scancel 'echo "$@" >>scancel.out'
	{
		within 60 test -e "$WORK/here.0.0" && within 60 test -e "$WORK/here.0.1"
		pkill -TERM -f "^$DDP_RUN -N2"
	} 3>&- &
	PATH=$WORK/bin:$PATH batch -N2 -n2 bash -c 'trap "asked=1" TERM; touch "here.0.$RANK"; until [ "${asked-}" ]; do sleep 0.1; done
		for ((i = 0; i < 180 + 30 * RANK; i++)); do sleep 0.1; done; exit 7'
	wait
	has "$out" '^next: stopped: it was told to end$'
	same "$(sed 's/[0-9]*[.]0/JOB.0/' "$WORK/scancel.out")" '-Q JOB.0 --signal=TERM'
}

@test "SIGUSR1 and SIGUSR2 by way of the batch script, to the ranks once; those that fail then are not started again" {
	local job signal
	for signal in USR1 USR2; do
		job=$(RUN='' leaves $signal 3 -o "$signal.out")
		within 60 are_up
		mc scancel --batch --signal=$signal "$job"
		within 60 is_over "$job"
		same "$(said "$job")" $'0 told 1\n0 up\n1 told 1\n1 up'
		has "$(<"$WORK/$signal.out")" '^next: stopped: a signal warned it of its end$'
		has "$(mc scontrol show job "$job")" 'ExitCode=3:0'
	done
}

@test "SIGUSR1, with --requeue: the job goes on later, but not one that ends well long before its time limit" {
	local job
	job=$(leaves USR1 3)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	has_not "$(<"$WORK/job.out")" 'started again'
	mc scancel "$job"
	job=$(leaves USR1 0 -t 25)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	mc scancel "$job"
	job=$(leaves USR1 0 -t 600 -o good.out)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_over "$job"
	same "$(said "$job")" $'0 told 1\n0 up\n1 told 1\n1 up'
	same "$(<"$WORK/good.out")" ''
}

# Slurm sends it up to a minute early.
@test "sbatch's --signal without B:, which ranks answer with exit status 0, with --requeue: a line says so, and the job is requeued" {
	local job
	job=$(LINE='#SBATCH --signal=USR2@300' leaves USR2 0 -t 6)
	within 60 are_up
	within 110 is_requeued "$job"
	has "$(<"$WORK/job.out")" '^ddp-run: Slurm sends --signal=USR2@300 to the ranks alone,.* with --signal=B:USR2@300 and'
	has "$(said "$job")" '^1 told 1$'
	mc scancel "$job"
	job=$(SBATCH_SIGNAL=B:USR2@30 LINE='#SBATCH --signal=USR2@300' leaves USR2 0 -t 5 -o batch.out)
	within 60 are_up
	mc scancel "$job"
	has_not "$(<"$WORK/batch.out")" 'ranks alone'
}

@test "sbatch's --signal, at a time before the attempt or the job began: a crash is not taken for ended by it" {
	# 4 minutes are left of an hour, as Slurm would say later.
	instead scontrol 'case $* in "-o show job"*) scontrol "$@" | sed "s/TimeLimit=[^ ]*/TimeLimit=00:04:00/"; exit ;; esac'
	SBATCH_SIGNAL=USR2@300 PATH=$WORK/bin:$PATH BATCH='--requeue -t 60' batch --requeue -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	same "$(report 0 kind next)" '"exit" "restart"'
	rm -rf "$WORK/.ddp"
	SBATCH_SIGNAL=USR2@300 BATCH='--requeue -t 2' batch --requeue -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	has "$out" '^ddp-run: Slurm sends --signal=USR2@300 when the job starts, whose time limit is not longer: '
	same "$(report 0 kind next)" '"exit" "restart"'
}

@test "a job that was requeued often, without a checkpoint from its last run, is not requeued again" {
	local job
	rm -rf "$WORK/points"; as_user mkdir "$WORK/points"
	export DDP_CHECKPOINT=$WORK/points
	touch -d '2 hours ago' "$WORK/points/old"
	# A requeued job that submits another hands its own count to it.
	job=$(export SLURM_RESTART_COUNT=7; RUN='--requeue --max-requeues 0' leaves USR1 3 -t 60)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_over "$job"
	has "$(<"$WORK/job.out")" "^ddp-run: job $job was requeued 0 times, and DDP_CHECKPOINT has no checkpoint from the last time that it ran: it is not requeued again, see --max-requeues$"
	has "$(<"$WORK/job.out")" '^next: stopped: a signal warned it of its end$'
	touch "$WORK/points/new"
	job=$(RUN='--requeue --max-requeues 0' leaves USR1 3 -t 60 -o again.out)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	mc scancel "$job"
	rm -r "$WORK/points"
	unset DDP_CHECKPOINT
	job=$(RUN='--requeue --max-requeues 0' leaves USR1 3 -o unset.out)
	within 60 grep -qs "and DDP_CHECKPOINT is not set: it is not requeued again" "$WORK/unset.out"
}

# The number of the array is the number of this task, too.
@test "a task of a job array, with --requeue: no other task of the array is requeued" {
	local job
	cat >"$WORK/job" <<-END
		#!/bin/bash
		echo "\$SLURM_ARRAY_TASK_ID" >>said.array
		if [ "\$SLURM_JOB_ID" = "\$SLURM_ARRAY_JOB_ID" ]; then
			until [ "\$(wc -l <said.array)" -ge 3 ]; do sleep 0.1; done
			PID=\$\$ exec $DDP_RUN --requeue -N1 -n1 bash -c 'kill -USR1 "\$PID"; sleep 61'
		fi
		[ "\$SLURM_ARRAY_TASK_ID" = 1 ] || exec sleep 60.5
	END
	job=$(mc sbatch --parsable --requeue --open-mode=append -a 1-3 -N1 -o job.out job)
	within 90 is_requeued "${job}_3"
	same "$(mc scontrol show job "$job" | grep -o 'Restarts=[0-9]*' | sort)" $'Restarts=0\nRestarts=0\nRestarts=1'
	has "$(<"$WORK/job.out")" "^ddp-run: job ${job}_3 is given back to Slurm$"
}

# As ddp-run asks Slurm of the job when an attempt has ended.
@test "SIGUSR1 between attempts: no other begins, and with --requeue the job goes on later" {
	local job
	instead scontrol '[ ! -e failed ] || { rm failed; kill -USR1 "$(<pid)"; }'
	job=$(leaves USR2 3)
	within 60 are_up
	mc scancel -s USR2 "$job"
	within 60 is_requeued "$job"
	has_not "$(<"$WORK/job.out")" 'started again'
}

@test "SIGUSR1 before there is a step: the same" {
	local job
	instead srun '[ "$1" = --help ] || { kill -USR1 "$(<pid)"; exec sleep 62; }'
	job=$(leaves USR1 3)
	within 60 is_requeued "$job"
}

@test "SIGTERM when too few nodes are left: the job is not requeued" {
	local job
	instead srun '[ "$1" = --help ] || { srun "$@"; echo "srun: error: Node failure on n2" >&2; exit 1; }'
	instead scontrol '[ ! -e failed ] || { rm failed; kill -TERM "$(<pid)"; }'
	job=$(leaves USR2 3)
	within 60 are_up
	mc scancel -s USR2 "$job"
	within 60 is_over "$job"
	has "$(<"$WORK/job.out")" '^next: stopped: it was told to end$'
}

@test "scancel of the step: it is not started again" {
	batch bash -c 'sleep 1; [ "$RANK" -ne 0 ] || scancel "$SLURM_JOB_ID.$SLURM_STEP_ID"; sleep 60'
	[ "$rc" -ne 0 ]
	has_not "$out" 'started again'
	has "$out" 'next: stopped: it was told to end'
}

@test "the end of the time limit, with --requeue: SIGTERM, and the job goes on later, also where ranks ignore it" {
	local job stays
	job=$(leaves TERM 0 -t 1)
	stays=$(leaves TERM stay -t 1 -o stay.out)
	MC_SECONDS=200 within 190 gone "$job,$stays"
	same "$(said "$job" | sed 's/told 2/told 1/')" $'0 again\n0 told 0\n0 told 1\n0 up\n1 again\n1 told 0\n1 told 1\n1 up'
	same "$(said "$stays")" $'0 again\n0 told 0\n0 up\n1 again\n1 told 0\n1 up'
	# Slurm tells the ranks, once or twice, and ddp-run does not.
	[ ! -e "$WORK/scancel.out" ]
	has_not "$(<"$WORK/job.out")" 'started again'
}

# As srun says at the limit, which takes a minute or two.
@test "the time limit of the step, with --requeue: another attempt, and the job is not requeued" {
	instead srun '[ "$1" = --help ] || [ "${SLURM_DDP_RESTART-0}" -ne 0 ] ||
		{ srun "$@"; echo "slurmstepd-n1: error: *** STEP $SLURM_JOB_ID.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 DUE TO TIME LIMIT ***" >&2; exit 1; }'
	PATH=$WORK/bin:$PATH BATCH='--requeue -t 60' batch --requeue -t 1 -N2 -n2 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	has "$out" 'attempt 1 of 4, reached the time limit of its step at'
	same "$(report 0 kind next)" '"steplimit" "restart"'
}

# As Slurm would say at the time limit, when ranks that hang have been told to end.
@test "the end of the time limit in a hang, with --requeue: the job goes on later" {
	local job
	instead scontrol 'case $* in *"show job"*) [ ! -e failed ] || { scontrol "$@" | sed "s/JobState=RUNNING Reason=None/JobState=COMPLETING Reason=TimeLimit/"; exit; } ;; esac'
	job=$(RUN='--requeue --hang 2 --grace 10' leaves TERM 3)
	within 60 is_requeued "$job"
	has "$(<"$WORK/job.out")" 'nothing has moved'
	has_not "$(<"$WORK/job.out")" 'started again'
}

# Slurm's word on the time is not waited for.
@test "a rank that fails shortly before the time limit, with --requeue: the job goes on later" {
	local job
	instead scontrol 'case $* in *"show job"*) scontrol "$@" | sed "s/TimeLimit=[^ ]*/TimeLimit=00:00:00/"; exit ;; esac'
	job=$(leaves USR2 3)
	within 60 are_up
	mc scancel -s USR2 "$job"
	within 60 is_requeued "$job"
	has "$(<"$WORK/job.out")" "^next: given back to Slurm: -?[0-9]+ s are left of the job's time$"
}

@test "scancel of a job with --requeue: it is not requeued" {
	local job
	job=$(leaves TERM 3)
	within 60 are_up
	mc scancel "$job"
	within 60 is_over "$job"
	same "$(said "$job" | sed 's/told 2/told 1/')" $'0 told 1\n0 up\n1 told 1\n1 up'
	[ ! -e "$WORK/scancel.out" ]
	has_not "$(<"$WORK/job.out")" 'given back'
}

@test "--requeue of a job that may not be requeued is refused at once" {
	local job
	job=$(leaves TERM 3 --no-requeue)
	within 60 is_over "$job"
	same "$(<"$WORK/job.out")" "ddp-run: --requeue: Slurm may not requeue job $job: add #SBATCH --requeue"
}

# Slurm sends SIGTERM to the ranks alone, and ends the job when the grace time is over.
@test "preemption by a higher partition: nothing is started again, and the job goes on later" {
	local job status
	again --conf PreemptType=preempt/partition_prio --conf PreemptMode=REQUEUE
	"$minicluster" run scontrol update PartitionName=main GraceTime=20 OverSubscribe=NO
	"$minicluster" run scontrol create PartitionName=high Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF
	for status in 0 3; do
		job=$(leaves TERM $status --exclusive -o "$status.out")
		within 60 are_up
		mc srun -Q -p high --exclusive -N4 true
		within 90 gone "$job"
		same "$(said "$job" | sed 's/told 2/told 1/')" $'0 again\n0 told 0\n0 told 1\n0 up\n1 again\n1 told 0\n1 told 1\n1 up'
		[ ! -e "$WORK/scancel.out" ]
		has "$(<"$WORK/$status.out")" 'made room for another job'
		has_not "$(<"$WORK/$status.out")" 'started again'
	done
}

@test "a rank that is stopped: a hang, with evidence, and another attempt" {
	batch --hang 3 --grace 1 -n2 -N2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -eq 0 ] || kill -STOP $$; sleep 61'
	same "$rc" 0
	has "$out" '^ddp-run: nothing has moved in step [0-9]+.0 for [0-9]+ s: ending it$'
	same "$(report 0 kind next)" '"hang" "restart"'
	ls "$WORK"/.ddp/failed-*/proc-1.txt
}

# Ranks that hang end well when they are told to, and srun tells of none.
@test "of many ranks the last lines of the one that stands out are kept" {
	local first
	batch --hang 3 --grace 20 --restarts 0 -O -N4 -n68 bash -c 'echo "I am $RANK"; trap "exit 0" TERM; [ "$RANK" -ne 67 ] || kill -STOP $$; sleep 61 & wait'
	same "$(report 0 kind)" '"hang"'
	first=$(report 0 first | sed 's/.*"rank": \([0-9]*\),.*/\1/')
	same "$(cat "$WORK"/.ddp/failed-*/tail-"$first".txt)" "I am $first"
}

@test "a hang whose ranks end well when they are told to is no success" {
	batch --hang 3 --restarts 0 -N2 -n2 bash -c 'trap "exit 0" TERM; sleep 61 & wait'
	same "$(report 0 kind status)" '"hang" 0'
	same "$rc" 1
}

@test "srun is killed: its ranks are ended, and then there is another attempt" {
	batch --restarts 1 -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || { ! pgrep -f "^sleep 61.4" || echo live on; exit 0; }
		[ "$RANK" -ne 0 ] || { sleep 1; pkill -KILL -f "^srun --ddp .*$1\$"; }; exec sleep 61.4' rank "$WORK"
	same "$rc" 0
	has "$out" '^ddp-run: srun was killed: ending step [0-9]+\.0$'
	has_not "$out" 'live on'
	same "$(report 0 kind next)" '"signal" "restart"'
}

@test "srun receives SIGTERM or SIGHUP from somebody else: the report says so" {
	local signal
	for signal in TERM HUP; do
		rm -rf "$WORK/.ddp"
		batch -N2 -n2 bash -c '[ "$RANK" -ne 0 ] || { sleep 1; pkill -$1 -f "^srun --ddp .*$2\$"; }; exec sleep 61' rank $signal "$WORK"
		has "$out" '^next: stopped: srun received SIGTERM or SIGHUP$'
	done
}

# Sets DDP_RUN to a script that starts ddp-run beside another ddp-run, which is on n1.
beside()
{
	printf '#!/bin/bash\n%s -N1 -n1 -w n1 bash -c "touch here.beside; until [ -e here.end ]; do sleep 0.2; done" &\n' "$DDP_RUN" >"$WORK/beside"
	# shellcheck disable=SC2016
	printf 'until [ -e here.beside ]; do sleep 0.1; done\n%s "$@"\nrc=$?\ntouch here.end\nwait\nexit $rc\n' "$DDP_RUN" >>"$WORK/beside"
	chmod 755 "$WORK/beside"
	DDP_RUN=$WORK/beside
}

@test "one of two ddp-runs in a job has its srun killed: it continues on its own node" {
	beside
	batch --restarts 1 -N1 -n1 bash -c 'echo "restart $DDP_RESTART on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0
		sleep 1; pkill -KILL -f "^srun --ddp .*$1\$"; exec sleep 61.4' rank "$WORK"
	same "$rc" 0
	same "$(grep '^restart' <<<"$out")" $'restart 0 on n2\nrestart 1 on n2'
	same "$(report 0 next_nodes)" '["n2"]'
}

# An srun that waits for busy nodes is one that sleeps here.
@test "no step for the next attempt: srun is ended after the time of --hang" {
	printf '#!/bin/sh\n[ "${SLURM_DDP_RESTART-0}" -eq 0 ] || [ "$1" != --ddp ] || exec sleep 62\nexec %s "$@"\n' "$(command -v srun)" >"$WORK/srun"
	chmod 755 "$WORK/srun"
	PATH=$WORK:$PATH batch --restarts 1 --hang 4 -N1 -n1 bash -c 'echo here; exit 3'
	rm "$WORK/srun"
	same "$rc" 137
	has "$out" '^ddp-run: Slurm has started no step for 4 s: ending srun$'
	same "$(grep -c '^here$' <<<"$out")" 1
}

@test "--hang: a job that is suspended, and a ddp-run that is stopped, do not hang" {
	local pid rc=0
	mc salloc -Q -N2 -J waits "$DDP_RUN" --hang 8 bash -c 'for i in {1..14}; do echo $i; sleep 1; done' >"$WORK/waits.out" 2>&1 &
	pid=$!
	within 30 grep -qs '^2$' "$WORK/waits.out"
	"$minicluster" run scontrol suspend "$(mc squeue -h -o %A -n waits)"
	sleep 11
	"$minicluster" run scontrol resume "$(mc squeue -h -o %A -n waits)"
	within 30 grep -q '^4$' "$WORK/waits.out"
	pkill -STOP -f "^$DDP_RUN --hang 8"
	sleep 11
	pkill -CONT -f "^$DDP_RUN --hang 8"
	wait $pid || rc=$?
	same "$(tail -n 1 "$WORK/waits.out")" 14
	same "$rc" 0
	has_not "$(<"$WORK/waits.out")" 'ddp-run'
}

# After how long the next attempt begins is in the report, and in the copy, before it is over.
@test "ranks that end well beside one that does not, and one that fails again as it starts" {
	batch --report last.json -N2 -n2 bash -c '[ "$DDP_RESTART" -ne 2 ] || exit 0
		for file in .ddp/failed-*.0/report.json last.json; do
			until [ "$DDP_RESTART" -ne 1 ] || grep -q "\"next_after\": *[0-9]" "$file"; do sleep 0.1; done
		done
		[ "$RANK" -eq 0 ] || exit $((3 + DDP_RESTART))'
	same "$rc" 0
	out=$(first)
	# Later ones do not take nodes on which the last step is still completing.
	! slurm_at_least 24.11 || out=$(sed 's/n3/n1/; s/n4/n2/g' <<<"$out")
	same "$out" "0 exit ['n1', 'n2'] 2 restart 1 n2 exit 3
1 exit ['n1', 'n2'] 2 restart 1 n2 exit 4"
	read -r ended after <<<"$(report 0 ended next_after)"
	read -r started over <<<"$(report 1 started ended)"
	python3 -c 'import sys; a, b, c, d = map(float, sys.argv[1:]); assert c <= a + b <= d' "$ended" "$after" "$started" "$over"
	same "$(report 1 next_after | grep -c '^[0-9]')" 1
	has "$(<"$WORK/last.json")" '"attempt": 1,'
}

@test "--report: what is no file, as /dev/stderr and a link, stays what it is" {
	ln -s there.json "$WORK/link.json"
	as_user mkfifo "$WORK/pipe.json"
	for to in /dev/stderr link.json pipe.json; do
		batch --restarts 0 --report $to -N1 -n1 bash -c 'exit 3'
		same "$rc" 3
		same "$(grep -c '"kind": "exit"' <<<"$out")" $([ $to != /dev/stderr ]; echo $?)
	done
	[ -L /dev/stderr ] && [ -L "$WORK/link.json" ] && [ -p "$WORK/pipe.json" ]
	has "$(<"$WORK/there.json")" '"kind": "exit"'
	has "$out" '^ddp-run: --report pipe.json: cannot write pipe.json: No such device or address$'
	# What was said before is still there.
	has "$out" '^ddp-run: step [0-9]+.0, attempt 1 of 1, failed'
	rm "$WORK"/{link,pipe,there}.json
}

@test "a program of one rank whose own step loses a node or is cancelled: only its exit status counts" {
	instead scontrol 'scontrol "$@"; rc=$?; touch here.asked; exit $rc'
	PATH=$WORK/bin:$PATH batch -N1 -n1 bash -c 'until [ -e here.asked ]; do sleep 0.1; done; sleep 1; echo "srun: error: Node failure on n9" >&2; sleep 18'
	same "$rc" 0
	has "$out" 'Node failure on n9'
	has_not "$out" 'ddp-run'
	batch --restarts 1 -N1 -n1 bash -c 'echo "srun: Job step aborted: Waiting up to 7 seconds for job step to finish." >&2; exit 4'
	same "$rc" 4
	has "$out" 'no restart is left of 1$'
	batch -u -N2 -n2 bash -c 'sleep 1; [ "$RANK" -ne 0 ] || scancel "$SLURM_JOB_ID.$SLURM_STEP_ID"; sleep 60'
	has "$out" 'next: stopped: it was told to end'
}

@test "srun's --wait: a rank that hangs after another has ended is a failure, also if it ends well on SIGTERM" {
	local how
	for how in 'exec sleep 61' 'trap "exit 0" TERM; sleep 61 & wait'; do
		rm -rf "$WORK/.ddp"
		batch --restarts 1 --wait=2 --kill-on-bad-exit=1 -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -eq 1 ] || exit 0; '"$how"
		same "$rc" 0
		same "$(report 0 kind next)" '"exit" "restart"'
		has "$out" '^rank 1 on n2, pid [0-9]+, failed first: ran 2 s longer than another rank$'
	done
}

@test "--kill-on-bad-exit=0: where a rank fails the others go on, longer than Slurm would wait for them to end" {
	batch --restarts 0 --kill-on-bad=0 -N2 -n2 bash -c '[ "$RANK" -eq 0 ] || exit 3; sleep 18; echo through'
	same "$rc" 3
	same "$(grep -c '^through$' <<<"$out")" 1
}

@test "steps that the program starts itself: what their srun says is not of ours" {
	batch --restarts 1 -N1 -n1 bash -c '[ "$DDP_RESTART" -eq 1 ] || { srun --overlap -N1 -n1 bash -c "exit 3"; srun --overlap -N1 -n1 nosuch; sleep 18; }
		echo through; exit 7'
	same "$rc" 7
	has "$out" '^srun: error: n.: task 0: Exited with exit code 3$'
	has "$out" 'execve\(\): nosuch'
	same "$(grep -c 'failed first: exit status 7$' <<<"$out")" 2
	same "$(grep -c '^through$' <<<"$out")" 2
}

@test "--grace: a program that does not listen to SIGTERM is killed" {
	batch --grace 1 -N2 -n2 bash -c 'trap "" TERM; [ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -eq 0 ] || exit 3; while :; do sleep 1; done'
	same "$rc" 0
	same "$(first)" "0 exit ['n1', 'n2'] 2 restart 1 n2 exit 3"
	has_not "$out" 'KillWait'
	batch --grace 1m --restarts 1 -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$(grep 'KillWait' <<<"$out")" 'ddp-run: --grace 1m: where a rank fails Slurm kills the others after its KillWait of 5 s'
}

@test "--logs: a file of each rank and attempt, to the byte, also of ranks that end at once" {
	batch --logs logs bash -c '[ "$DDP_RESTART" -eq 1 ] || { echo "I am $RANK"; sleep 0.5; exit "$RANK"; }
		printf "%03000d\n%01024d\r%01023d\n\n" "$RANK" 2 3; sleep 0.5; printf "to\0err\n" >&2'
	same "$rc" 0
	for rank in 0 1 2 3; do
		printf '%03000d\n%01024d\r%01023d\n\nto\0err\n' $rank 2 3 | sort >"$TOP/wanted"
		sort "$WORK/logs/attempt-1/rank-$rank.log" | cmp - "$TOP/wanted"
	done
	has "$(cat "$WORK"/logs/attempt-0/*)" '^I am 1$'
	# A requeued job that submits another hands its own count to it.
	SLURM_RESTART_COUNT=7 mc salloc -Q -N2 "$DDP_RUN" --logs again -n2 bash -c 'echo "I am $RANK"' >/dev/null
	same "$(cat "$WORK"/again/attempt-0/rank-1.log)" 'I am 1'
	instead scontrol 'case $* in *"show job"*) scontrol "$@" | sed "s/Restarts=[^ ]*/Restarts=2/"; exit ;; esac'
	PATH=$WORK/bin:$PATH mc salloc -Q -N2 "$DDP_RUN" --logs again -n2 bash -c 'echo "back as $RANK"' >/dev/null
	same "$(cat "$WORK"/again/requeue-2/attempt-0/rank-1.log)" 'back as 1'
	rm -r "$WORK/again"
	# On their way all bytes are as the ranks wrote them, too; of long lines Slurm mixes pieces.
	same "$(sed '1,/^all of it/d' "$WORK/job.out" | wc -c)" "$(cat "$WORK"/logs/attempt-1/* | wc -c)"
}

@test "-o FILE: attempts append to it, and only a heartbeat shows that ranks hang" {
	local line='^ddp-run: --hang 3: srun writes output to a file, .* only heartbeats count, '
	batch --hang 3 --restarts 1 -o own.out -N1 -n1 bash -c 'for i in {1..9}; do echo "attempt $DDP_RESTART: $i"; sleep 1; done; exit $((1 - DDP_RESTART))'
	same "$rc" 0
	same "$(wc -l <"$WORK/own.out")" 18
	same "$(grep -cE "$line" <<<"$out")" 1
	has_not "$out" 'nothing has moved'
	rm -rf "$WORK/.ddp"
	batch --hang 3 --restarts 1 -e own.out --open-mode truncate -N1 -n1 bash -c 'echo "$DDP_RESTART" >&2; [ "$DDP_RESTART" -eq 0 ] || exit 0; exec sleep 61'
	same "$(report 0 kind next)" '"hang" "restart"'
	has "$out" '^ddp-run: --hang 3: srun writes stderr to a file, .* only stdout and heartbeats count'
	same "$(<"$WORK/own.out")" 1
}

@test "labels and files of srun's own are left as they are, and then --logs cannot be had" {
	batch --logs logs -l -n2 bash -c 'echo "I am $RANK"'
	same "$(grep 'I am' "$WORK/job.out" | sort)" $'0: I am 0\n1: I am 1'
	same "$(cat "$WORK"/logs/attempt-0/rank-{0,1}.log)" $'I am 0\nI am 1'
	batch -o own.out -n2 bash -c 'echo "I am $RANK"'
	same "$(sort "$WORK/own.out")" $'I am 0\nI am 1'
	for option in --unbuffered --output=x --error=x; do
		batch --logs logs $option true
		same "$rc" 2
		same "$out" "ddp-run: --logs logs: with srun's ${option%=x} nothing tells whose output is whose: leave one of them out"
	done
}

@test "a full disk: what is known goes to another, and attempts are still compared" {
	need_root
	mkdir "$WORK/disk" "$WORK/elsewhere"
	chmod 777 "$WORK/elsewhere"
	mount -t tmpfs -o "size=1m,mode=755,uid=$(as_user id -u)" none "$WORK/disk"
	cat >"$WORK/job" <<-END
		#!/bin/bash
		cd disk
		TMPDIR=$WORK/elsewhere $DDP_RUN --restarts 9 --report last.json \\
			bash -c '[ \$RANK -eq 1 ] || exec sleep 60; head -c 2M /dev/zero >big; echo "it is full"; sleep 0.5; exit 5'
		echo \$? >../rc.tmp
		mv ../rc.tmp ../rc
	END
	rm -f "$WORK/rc"
	mc sbatch -Q --no-kill -N2 -o job.out ./job
	within 120 test -e "$WORK/rc"
	out=$(<"$WORK/job.out")
	same "$(<"$WORK/rc")" 93
	same "$(grep -cE "^ddp-run: cannot write $WORK/disk/\.ddp/failed-[^/]+/.*: No space left on device: the report goes to $WORK/elsewhere/ddp-run-" <<<"$out")" 3
	same "$(grep -c '^rank 1 on n2.*, failed first: exit status 5$' <<<"$out")" 3
	same "$(grep -c '^    it is full$' <<<"$out")" 3
	has "$out" '^next: stopped: 3 attempts in a row ended at the same point$'
	has "$out" '^ddp-run: --report last.json: cannot write last.json: No space left on device$'
	has "$(cat "$WORK"/elsewhere/ddp-run-*.0-*/report.json)" '"next": "restart"'
}

# submitted LINE OPTION VARIABLE: $out is what ddp-run says in a batch script with that line, which sbatch started with
# that option. A Slurm before 25.11 tells of the latter by its accounting, and there is none here.
submitted()
{
	printf '#!/bin/bash\n%s\n%s --min-nodes 1 true\ntouch rc\n' "$1" "$DDP_RUN" >"$WORK/job"
	printf '#!/bin/sh\necho "/usr/bin/sbatch -Q -N1 -o job.out %s ./job"\n' "$2" >"$WORK/sacct"
	chmod 755 "$WORK/sacct"
	rm -f "$WORK/rc"
	# shellcheck disable=SC2086
	mc env PATH="$WORK:$PATH" $3 sbatch -Q -N1 -o job.out $2 ./job
	within 60 test -e "$WORK/rc"
	rm "$WORK/sacct"
	out=$(<"$WORK/job.out")
}

@test "--min-nodes in a job without --no-kill: one line says what to add" {
	submitted '#SBATCH --comment=--no-kill' '' ''
	same "$(sed 's/job [0-9]*/job N/' <<<"$out")" 'ddp-run: job N was submitted without --no-kill: when it loses a node Slurm ends all of it, and neither --min-nodes nor --spare-nodes helps: add #SBATCH --no-kill'
	submitted '' -k ''
	same "$out" ''
	submitted '' --no-kill ''
	same "$out" ''
	submitted '#SBATCH -t 1 --no-kill' '' ''
	same "$out" ''
	submitted '' '' SBATCH_NO_KILL=set
	same "$out" ''
}

# again OPTION...: a cluster with these options besides, for this test.
again()
{
	touch "$WORK/lost"
	restart_cluster "${options[@]}" "$@"
}

# What ranks do that have to be killed, so that nodes are asked before the step is over.
stubborn='trap "" TERM; [ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 1 ] || { sleep 1; exit 3; }; while :; do sleep 1; done'

@test "what the job asks for is not asked for again as nodes are asked whether they answer" {
	again --gpus 2 --cpus 4 --conf SelectTypeParameters=CR_Core_Memory
	need_gpus
	for BATCH in '--gpus=8 --ntasks-per-gpu=1' '-G 8 -n4' '--gres=gpu:2 --ntasks-per-node=2' '-n4 --gpus-per-task=1 --mem=512' \
		'-n4 --cpus-per-task=2 --mem-per-cpu=200 --exclusive'; do
		rm -rf "$WORK/.ddp"
		batch bash -c "$stubborn"
		same "$BATCH: $rc" "$BATCH: 0"
		has_not "$out" 'answer'
		same "$(report 0 kind)" '"exit"'
	done
}

@test "slurmctld does not answer as a rank fails: no node is blamed, and the next attempt has all of them" {
	[ "$(id -u)" -eq 0 ] || skip "to stop slurmctld needs root"
	{
		within 60 test -e "$WORK/here.0.3"
		kill -STOP "$(<"$MINICLUSTER_DIR/slurmctld.pid")"
		touch "$WORK/here.away"
		within 60 grep -q 'is not known' "$WORK/job.out" || true
		kill -CONT "$(<"$MINICLUSTER_DIR/slurmctld.pid")"
	} 3>&- &
	batch bash -c 'echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART"; [ "$DDP_RESTART" -eq 0 ] || exit 0; trap "" TERM; touch "here.0.$RANK"
		until [ -e here.away ]; do sleep 0.1; done; [ "$RANK" -ne 1 ] || exit 3; for i in {1..60}; do sleep 1; done'
	wait
	same "$rc" 0
	# From 26.05 on srun is told of the rank once slurmctld is back.
	slurm_at_least 26.05 || has "$out" '^ddp-run: whether n1,n2,n3,n4 answer is not known: Slurm does not answer$'
	has_not "$out" '^ddp-run: node '
	same "$(grep -c '^rank . of 4 restart 1$' <<<"$out")" 4
}

@test "ranks that hide their environment are there all the same" {
	again --conf KillWait=20
	batch -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 0 ] || { until [ -e here.hidden ]; do sleep 0.1; done; exit 3; }
		exec env -i bash -c "trap \"\" TERM; touch here.hidden; for i in {1..12}; do sleep 1; done; exit 4"'
	same "$rc" 0
	same "$(report 0 kind)" '"exit"'
	has_not "$out" 'Force|Killed'
	rm -rf "$WORK/.ddp"
	batch --hang 3 -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; exec env -i LANG=C sleep 61'
	same "$rc" 0
	same "$(sed -n 's/^state //p' "$WORK"/.ddp/failed-*/proc-*.txt)" $'S\nS'
}

# deaf COMMAND PATTERN TIMES: of the job's calls of COMMAND whose words match PATTERN so many fail, from the first on.
deaf()
{
	mkdir -p "$WORK/bin"
	rm -f "$WORK"/here.deaf.*
	cat >"$WORK/bin/$1" <<-END
		#!/bin/bash
		if [[ " \$* " == *"$2"* ]] && (($3 > 0)); then
			for i in {1..$3}; do
				! (set -C; : >"$WORK/here.deaf.\$i") 2>/dev/null || { echo "$1: error: no answer" >&2; exit 1; }
			done
		fi
		exec $(command -v "$1") "\$@"
	END
	chmod 755 "$WORK/bin/$1"
}

@test "Slurm does not say at first which nodes a step has: it is asked again" {
	deaf scontrol ' show step ' 2
	PATH=$WORK/bin:$PATH batch bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; sleep 6; [ "$RANK" -ne 2 ] || exit 3; sleep 61'
	same "$rc" 0
	same "$(first)" "0 exit ['n1', 'n2', 'n3', 'n4'] 4 restart 2 n3 exit 3"
}

@test "Slurm never says which nodes a step has: another attempt begins all the same" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmstepd needs root"
	touch "$WORK/lost"
	deaf scontrol ' show step ' 99
	{
		within 60 test -s "$WORK/here.stepd"
		kill -9 "$(<"$WORK/here.stepd")"
		touch "$WORK/here.killed"
	} 3>&- &
	PATH=$WORK/bin:$PATH batch --grace 1 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 2 ] || echo $PPID >here.stepd
		until [ -e here.killed ]; do sleep 0.1; done; [ "$RANK" -ne 2 ] || kill -9 $$; exit 3'
	wait
	same "$rc" 0
	same "$(report 0 kind next)" '"node" "restart"'
}

has_unread()
{
	local inode
	for inode in $(readlink "/proc/$1"/fd/* | sed -n 's/^socket:\[\(.*\)\]$/\1/p'); do
		awk -v inode="$inode" '$10 == inode && $5 !~ /:0*$/ { found = 1 } END { exit !found }' /proc/net/tcp && return
	done
	return 1
}

# A slurmstepd that dies with something from srun unread resets the connection: srun then ends the step itself.
@test "srun loses a slurmstepd and ends the step: no user did, and another attempt begins" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmstepd needs root"
	touch "$WORK/lost"
	mkfifo -m 666 "$WORK/here.input"
	{
		exec 4<>"$WORK/here.input"
		echo begin >&4
		within 60 test -s "$WORK/here.stepd"
		stepd=$(<"$WORK/here.stepd")
		kill -STOP "$stepd"
		echo unread >&4
		within 20 has_unread "$stepd" || touch "$WORK/here.nothing"
		kill -9 "$stepd"
		within 60 test -e "$WORK/rc"
	} 3>&- &
	BATCH='--input here.input' batch --grace 1 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 2 ] || { read -r; echo $PPID >here.stepd; exec sleep 61; }
		for i in {1..40}; do echo "$i"; sleep 1; done; exit 3'
	wait
	same "$rc" 0
	[ ! -e "$WORK/here.nothing" ] || skip "srun did not pass on a line that it was given"
	has "$out" 'io error with slurmstepd'
	same "$(report 0 kind next)" '"node" "restart"'
	has "$out" '^rank 2 on n3'
}

@test "a step is refused after one that ran: it is tried again" {
	deaf srun ' --ddp ' 2
	touch "$WORK"/here.deaf.{1,2}
	PATH=$WORK/bin:$PATH batch --restarts 2 bash -c '[ "$DDP_RESTART" -ne 0 ] || { rm -f here.deaf.1; exit 3; }; echo "restart $DDP_RESTART"'
	same "$rc" 0
	same "$(grep -c '^restart 2$' <<<"$out")" 4
	has "$out" '^ddp-run: the step was refused: it is tried again in 10 s$'
}

# sleeping TIME: the tasks that do, of this cluster alone.
sleeping()
{
	local pid
	for pid in $(pgrep -f "^sleep $1"); do
		! grep -qzxF "SLURM_CONF=$MINICLUSTER_DIR/slurm.conf" "/proc/$pid/environ" 2>/dev/null || echo "$pid"
	done
}

# kill -9 of slurmd, slurmstepd and task of a node, or of those that a pattern names, and of nothing else.
lose()
{
	local node=$1 pid parent
	for pid in $(sleeping 61); do
		tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURMD_NODENAME=$node" || continue
		parent=$(ps -o ppid= "$pid")
		pkill -KILL -f "^slurmd .*$MINICLUSTER_DIR/.* -N $node$" || true
		kill -9 "${parent// /}" "$pid"
	done
}

# What ranks do whose node will be lost: print a line now and then until it is, so that --hang ends no attempt before.
awake='(until [ -e "here.lost.$DDP_RESTART" ]; do echo; sleep 0.5; done) & exec sleep'

none_sleeps() { [ -z "$(sleeping "61\.$1")" ]; }

# lose_on RANKS NODE [ATTEMPT]: lose it once so many ranks sleep, in that attempt.
lose_on()
{
	for _ in {1..300}; do
		[ "$(sleeping "61${3+\.$3}" | wc -l)" -lt "$1" ] || break
		sleep 0.1
	done
	lose "$2"
	touch "$WORK/here.lost.${3-0}"
}

# bats test_tags=lost
@test "a node is lost: noticed by the probe, and fewer nodes go on with as many ranks each" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 8 n3 &
	BATCH='--ntasks-per-node=2' batch --hang 8 --min-nodes 2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	has "$out" '^ddp-run: node n3 does not answer$'
	same "$(grep -c '^rank . of 6 on n[124]$' <<<"$out")" 6
	same "$(report 0 kind next next_nodes next_ranks)" '"node" "restart" ["n1", "n2", "n4"] 6'
}

# bats test_tags=lost
@test "two nodes are lost at once" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 4 'n[24]' &
	batch --hang 8 --min-nodes 2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(grep -c '^rank . of 2 on n[13]$' <<<"$out")" 2
	same "$(report 0 kind next next_nodes next_ranks)" '"node" "restart" ["n1", "n3"] 2'
}

# It has come back meanwhile, and Slurm never knew that it was away.
# bats test_tags=lost
@test "a node is lost, and another, and the first again" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	{
		lose_on 4 n3 0
		within 60 none_sleeps 0
		start_slurmd n3
		lose_on 3 n2 1
		lose_on 3 n3 2
	} 3>&- &
	batch --hang 8 --min-nodes 2 bash -c '[ "$DDP_RESTART" -lt 3 ] || exit 0; '"$awake 61."'$DDP_RESTART'
	wait
	same "$rc" 0
	for attempt in 0 1 2; do
		report $attempt kind next_nodes
	done >"$TOP/told"
	same "$(<"$TOP/told")" '"node" ["n1", "n2", "n4"]
"node" ["n1", "n4", "n3"]
"node" ["n1", "n4"]'
}

# bats test_tags=lost
@test "a node is lost: a spare takes its place" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 3 n2 &
	batch --hang 8 --spare-nodes 1 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(grep -c '^rank . of 3 on n[134]$' <<<"$out")" 5
	same "$(report 0 kind next_nodes)" '"node" ["n1", "n3", "n4"]'
}

# bats test_tags=lost
@test "a node is lost: a node that -w leaves out, and one of another ddp-run, is no spare" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	beside
	lose_on 2 n3 &
	batch --hang 8 --min-nodes 1 -w n2,n3 -N2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(report 0 kind next_nodes next_ranks)" '"node" ["n2"] 1'
	again
	rm -rf "$WORK/.ddp" "$WORK"/here.*
	lose_on 2 n2 &
	batch --hang 8 -N2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(report 0 kind next_nodes)" '"node" ["n3", "n4"]'
	has "$out" '^ddp-run: other steps of job [0-9]+ run on n1: not used as spares$'
}

# bats test_tags=lost
@test "a node is lost: a node before --relative is no spare" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 2 n3 &
	batch --hang 8 -r 1 -N2 -n2 bash -c 'echo "rank $RANK on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(report 0 kind next_nodes)" '"node" ["n2", "n4"]'
	has "$out" '^rank 1 on n4$'
}

# bats test_tags=lost
@test "a node is lost, and none may be missing: exit status 94" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 4 n4 &
	batch --hang 8 bash -c "$awake 61"
	wait
	same "$rc" 94
	has "$out" 'next: stopped: 3 nodes are left, and 4 are needed'
}

# bats test_tags=lost
@test "a spare replaces a node that is drained, and a node whose rank fails first in two attempts in a row" {
	{
		within 60 test -e "$WORK/here.0.1"
		"$minicluster" run scontrol update NodeName=n2 State=DRAIN Reason='GPU XID 79'
		touch "$WORK/here.drained"
	} 3>&- &
	batch --spare-nodes 2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; touch "here.0.$RANK"; until [ -e here.drained ]; do sleep 0.1; done; [ "$RANK" -eq 0 ] || exit 3; sleep 61'
	wait
	"$minicluster" run scontrol update NodeName=n2 State=RESUME
	same "$rc" 0
	has "$out" '^ddp-run: node n2 is replaced: Slurm has drained it$'
	same "$(report 0 kind next_nodes)" '"exit" ["n1", "n3"]'
	rm -rf "$WORK/.ddp"
	batch --spare-nodes 2 bash -c '[ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	has "$out" '^ddp-run: node n2 is replaced: its ranks failed first in two attempts in a row$'
	same "$(report 0 next_nodes) $(report 1 next_nodes)" '["n1", "n2"] ["n1", "n3"]'
	rm -rf "$WORK/.ddp"
	batch -r 1 -N2 -n2 bash -c '[ "$DDP_RESTART" -lt 2 ] || exit 0; [ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); exec sleep 61'
	same "$rc" 0
}

# bats test_tags=lost
@test "a step on each node that watches it: a node that only such a step uses is a spare" {
	printf '#!/bin/bash\nfor i in 1 2 3 4; do srun --overlap -N1 -n1 -w n$i sleep 63 & done\n' >"$WORK/watched"
	# shellcheck disable=SC2016
	printf 'until [ "$(squeue -hs -j "$SLURM_JOB_ID" -o %%j | grep -c "^sleep$")" -eq 4 ]; do sleep 0.1; done\n%s "$@"\nrc=$?\nscancel "$SLURM_JOB_ID".{0..3}\nwait\nexit $rc\n' "$DDP_RUN" >>"$WORK/watched"
	chmod 755 "$WORK/watched"
	DDP_RUN=$WORK/watched batch --spare-nodes 2 bash -c '[ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	same "$(report 1 next_nodes)" '["n1", "n3"]'
	has_not "$out" 'other steps'
}

# On a new cluster: after a job of another test, sinfo calls an idle node mixed for up to a minute, and slurmd_n2 waits for it.
# bats test_tags=lost
@test "a node that does not have the program: a spare takes its place" {
	need_root
	again
	mkdir "$WORK/local"
	printf '#!/bin/bash\necho "rank $RANK on $SLURMD_NODENAME"\n[ "$DDP_RESTART" -gt 0 ] || exec sleep 61\n' >"$WORK/local/program"
	chmod 755 "$WORK/local/program"
	slurmd_n2 "mount -t tmpfs none '$WORK/local'"
	batch --spare-nodes 1 local/program
	same "$rc" 0
	has "$out" '^ddp-run: the program cannot be started on n2$'
	same "$(report 0 kind next_nodes)" '"node" ["n1", "n3", "n4"]'
	batch -N4 local/program
	has "$out" '^next: stopped: it would fail in the same way again$'
	rm -r "$WORK/local"
}

# bats test_tags=lost
@test "slurmd is killed and nothing else of its node: the next attempt finds out, and a spare takes its place" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	{
		within 60 test -e "$WORK/here.0.2"
		kill -9 "$(<"$MINICLUSTER_DIR/slurmd-n3.pid")"
		touch "$WORK/here.gone"
	} 3>&- &
	batch --spare-nodes 1 bash -c 'echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART on $SLURMD_NODENAME"; [ "$SLURMD_NODENAME" != n4 ] || exec sleep 1; [ "$DDP_RESTART" -eq 0 ] || exec sleep 2; touch "here.0.$RANK"
		until [ -e here.gone ]; do sleep 0.1; done; exit 3'
	wait
	same "$rc" 0
	# Later releases see for themselves that n3 is gone.
	grep -q '^rank 2 of 3 restart 1 on n4$' <<<"$out" && return
	has "$out" '^ddp-run: node n3 does not answer$'
	has "$out" '^rank 2 of 3 restart 2 on n4$'
}
