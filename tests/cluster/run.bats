#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run restarts failed attempts, and stops if a restart cannot help. It leaves no processes, and no files except the report.

load lib

options=(--nodes 4 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300)

setup_file()
{
	cluster_up "${options[@]}"
	install -m 755 "$DDP_BUILDDIR"/runtime/run/ddp-run "$DDP_BUILDDIR"/runtime/launch/ddp-exec "$TOP"
	DDP_RUN=$TOP/ddp-run
	# Debuggers take seconds of CPU time for each rank that hangs. verdict.bats and clients/reports.bats read stacks.
	mkdir -m 755 "$TOP/bin"
	printf '#!/bin/sh\nexit 1\n' | tee "$TOP/bin/gdb" >"$TOP/bin/py-spy"
	chmod 755 "$TOP"/bin/*
	export DDP_RUN PATH=$TOP/bin:$PATH
	cat >"$WORK/printed" <<-'END'
		#!/bin/bash
		# printed COUNT PATTERN: waits until job.out has COUNT lines that match. When srun ends a step, it drops output that
		# it has not printed yet, and a task that starts late prints nothing.
		until [ "$(grep -c -- "$2" "${0%/*}/job.out")" -ge "$1" ]; do sleep 0.1; done
	END
	cat >"$WORK/rank.sh" <<-'END'
		# In attempts before number $2, rank 2 does $1 after all ranks have printed a line, and the other ranks sleep until
		# they are ended.
		echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART on $SLURMD_NODENAME $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS"
		[ "$DDP_RESTART" -lt "$2" ] || exit 0
		[ "$RANK" -eq 2 ] || exec sleep 60
		./printed "$WORLD_SIZE" "^rank . of $WORLD_SIZE restart $DDP_RESTART "
		case $1 in
		kill) kill -9 $$ ;;
		segv) kill -SEGV $$ ;;
			exit) echo "rank 2 fails" >&2; exit 3 ;;
		esac
	END
	cat >"$WORK/fail-once.sh" <<-'END'
		# Prints $1, expanded. In the first attempt the ranks fail once both have printed, since a failure ends the other rank.
		eval "echo \"$1\""
		touch "here.$DDP_RESTART.$RANK"
		until [ -e "here.$DDP_RESTART.$((1 - RANK))" ]; do sleep 0.1; done
		sleep 0.5 # without the plugin, srun loses lines that are up to 40 ms old when it ends the step
		exit $((1 - DDP_RESTART))
	END
	chmod 755 "$WORK"/{printed,*.sh}
}

teardown_file() { cluster_down; }

# Restores the plugin, and replaces the cluster after a test that lost a node, because the node's job takes minutes to complete.
teardown()
{
	echo "optional $TOP/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	if [[ -e $WORK/lost ]]; then
		restart_cluster "${options[@]}" || return
	else
		end_jobs
		[[ -z ${conf-} ]] || configure "$conf"
	fi
	! mountpoint -q "$WORK/disk" || umount "$WORK/disk"
	rm -rf "$WORK/lost" "$WORK/disk" "$WORK/elsewhere" "$WORK/.ddp" "$WORK"/*.out "$WORK"/logs "$WORK/bin" "$WORK"/here.* "$WORK"/events.*
}

# batch OPTION...: runs ddp-run in a batch job on 4 nodes. Sets $out to its output and $rc to its exit status. The script writes
# the exit status to a file, because Slurm reports the job's end late if a node was lost.
batch()
{
	printf '#!/bin/bash\n%s "$@"\necho $? >rc.tmp\nmv rc.tmp rc\n' "$DDP_RUN" >"$WORK/job"
	rm -f "$WORK/rc"
	# shellcheck disable=SC2086
	mc sbatch -Q --no-kill -N4 ${BATCH-} -o job.out ./job "$@"
	within 300 test -e "$WORK/rc" || { cat "$WORK/job.out" >&2; return 1; }
	rc=$(<"$WORK/rc")
	out=$(<"$WORK/job.out")
	cp "$WORK/job.out" "$TOP/err"
}

# new_cluster OPTION...: for this test, replaces the cluster by one with these additional options.
new_cluster()
{
	touch "$WORK/lost"
	restart_cluster "${options[@]}" "$@"
}

# configure SETTINGS: for this test, changes a line of slurm.conf. teardown() restores $conf.
configure()
{
	conf=$(grep "^${1%%=*}=" "$MINICLUSTER_DIR/slurm.conf")
	sed -i "s/^${1%%=*}=.*/$1/" "$MINICLUSTER_DIR/slurm.conf"
	"$minicluster" run scontrol reconfigure
}

# report ATTEMPT KEY...: prints values of report.json of this attempt. Attempts count from 0.
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

# Prints for each failed attempt: number, kind, nodes, ranks, what ddp-run did next, and the rank that failed first.
first_failures()
{
	python3 - "$WORK" <<-'END'
		import glob, json, sys
		for name in sorted(glob.glob(sys.argv[1] + "/.ddp/failed-*/report.json")):
		    report = json.load(open(name))
		    first = report["first"]
		    print(report["attempt"], report["kind"], report["nodes"], report["size"], report["next"],
		          first["rank"], first["node"], first["how"], first["code"])
	END
}

@test "a killed rank: the report names it, and a second attempt follows, with the next number" {
	batch bash rank.sh kill 1
	same "$rc" 0
	same "$(grep -c '^rank . of 4 restart 0 on n. 0/3$' <<<"$out")" 4
	same "$(grep -c '^rank . of 4 restart 1 on n. 1/3$' <<<"$out")" 4
	has "$out" '^rank 2 on n3, pid [0-9]+, failed first: killed by SIGKILL$'
	same "$(first_failures)" "0 signal ['n1', 'n2', 'n3', 'n4'] 4 restart 2 n3 signal 9"
	same "$(ls "$WORK/.ddp")" "failed-$(ls "$WORK/.ddp" | sed 's/failed-//')"
	same "$(mc "$DDP_RUN" --explain "$WORK"/.ddp/failed-*)" "$(cat "$WORK"/.ddp/failed-*/report.txt)"
}

@test "a crashed rank is a failure, even if rank 0 then records that it stopped on request" {
	cat >"$WORK/polite.sh" <<-'END'
		[ "$DDP_RESTART" = 0 ] || exit 0
		[ "$RANK" = 0 ] || { until [ -e here.0 ]; do sleep 0.1; done; exit 9; }
		trap 'echo "{\"message\": \"stopped: SIGTERM\"}" >"$TORCHELASTIC_ERROR_FILE"; exit 3' TERM
		touch here.0
		for ((i = 0; i < 600; i++)); do sleep 0.1; done
	END
	batch -N2 -n2 bash polite.sh
	same "$rc" 0
	has "$out" '^next: started again'
	has_not "$out" 'stopped on request'
	has "$out" '^rank 1 on n2, pid [0-9]+, failed first: exit status 9$'
}

@test "with stdin, stdout and stderr closed, a failed program is restarted" {
	printf '#!/bin/bash\nexec %s "$@" <&- >&- 2>&-\n' "$DDP_RUN" >"$WORK/closed"
	chmod 755 "$WORK/closed"
	DDP_RUN=$WORK/closed batch -N2 -n2 bash -c 'touch "here.$DDP_RESTART.$RANK"; [ "$RANK" -eq 0 ] || exit $((1 - DDP_RESTART))'
	same "$rc" 0
	same "$(report 0 kind next)" '"exit" "restart"'
	[ -e "$WORK/here.1.1" ]
}

@test "--restarts and SLURM_DDP_RESTARTS limit the attempts, and the exit status is srun's" {
	batch --restarts 1 -N1 -n1 bash -c 'echo "now $DDP_RESTART"; exit $((5 + DDP_RESTART))'
	same "$rc" 6
	same "$(grep -c '^now ' <<<"$out")" 2
	has "$out" 'the limit of 1 restarts is reached'
	# With only one rank, the last line must be that rank's.
	same "$(grep -A1 '^  its last line:$' <<<"$out" | tail -n 1)" '    now 1'
	SLURM_DDP_RESTARTS=0 batch bash rank.sh segv 9
	same "$(grep -c '^rank 2 of' <<<"$out")" 1
	has "$out" 'failed first: killed by SIGSEGV'
}

@test "three attempts in a row that end at the same point: exit status 93" {
	batch --restarts 9 --report last.json bash rank.sh exit 9
	same "$rc" 93
	same "$(grep -c '^rank 2 of' <<<"$out")" 3
	has "$out" '3 attempts in a row ended at the same point'
	same "$(grep -c '^ddp-run: DDP_CHECKPOINT is not set, so attempts that fail at the same point count as no progress\. ' <<<"$out")" 1
	has "$(cat "$WORK/last.json")" '"attempt": 2,'
}

@test "new checkpoints count as progress; three attempts in a row without one: exit status 93" {
	rm -rf "$WORK/points"; mkdir "$WORK/points"; chmod 777 "$WORK/points"
	DDP_CHECKPOINT=$WORK/points batch --restarts 4 bash -c 'touch "points/$DDP_RESTART"; [ "$DDP_RESTART" -eq 3 ]'
	same "$rc" 0
	DDP_CHECKPOINT=$WORK/points batch --restarts 9 bash -c 'exit $((DDP_RESTART + 1))'
	same "$rc" 93
	has "$out" '3 attempts in a row left no newer checkpoint'
	has_not "$out" 'DDP_CHECKPOINT is not set'
	# Unfinished checkpoints and empty directories do not count as progress. A changed file in a directory does.
	DDP_CHECKPOINT=$WORK/points batch --restarts 9 bash -c 'mkdir "points/step.$DDP_RESTART"; touch "points/step.$DDP_RESTART/state.tmp" "points/.new.$DDP_RESTART"; exit $((DDP_RESTART + 1))'
	same "$rc" 93
	DDP_CHECKPOINT=$WORK/points batch --restarts 4 bash -c 'mkdir -p points/last/0; echo 1 >points/last/0/state; [ "$DDP_RESTART" -eq 3 ]'
	same "$rc" 0
}

@test "a DDP_CHECKPOINT that this node cannot open: one message, and the points of failure are compared" {
	DDP_CHECKPOINT=s3://bucket/run batch --restarts 3 bash -c 'touch "here.$DDP_RESTART.$RANK"; [ "$RANK" -eq "$DDP_RESTART" ] || exec sleep 61
		until [ "$(ls here."$DDP_RESTART".* | wc -l)" -eq 4 ]; do sleep 0.1; done; exit 3'
	same "$rc" 143
	same "$(grep -c '^ddp-run: cannot open DDP_CHECKPOINT s3://bucket/run on this node: No such file or directory\. Attempts that fail at the same point count as no progress\.$' <<<"$out")" 1
	has "$out" "the limit of 3 restarts is reached$"
}

@test "errors of the command line and missing programs are not retried, and leave no files" {
	batch nosuch-program
	same "$rc" 2
	has "$out" 'error: execve'
	has "$out" '^execve\(\): nosuch-program: No such file or directory$'
	same "$(grep -c '^ddp-run: step [0-9]*\.[0-9]*, attempt . of 4, was not started' <<<"$out")" 1
	has_not "$out" 'also failed'
	batch --hang 9 -o job.out/file -N4 true
	same "$rc" 1
	same "$(grep -c 'Could not open stdout file' <<<"$out")" 2
	has "$out" '^next: stopped, because another attempt would fail in the same way$'
	remove_attempts
	batch --nosuch-option true
	same "$(grep -c 'unrecognized option' <<<"$out")" 1
	batch -n99 true
	same "$(grep -c 'Unable to create step' <<<"$out")" 1
	[ ! -e "$WORK/.ddp" ]
}

@test "a step that every node would refuse is not started again, and no node is replaced" {
	remedy="MASTER_ADDR=n3 of your environment is node n3, but rank 0 runs on n1. Unset MASTER_ADDR, and the address of rank 0's node is set."
	MASTER_ADDR=n3 batch --spare-nodes 1 touch ran
	same "$rc" 1
	same "$(grep '^ddp-run' <<<"$out" | sed -E 's/ [0-9]+\.0 / N.0 /')" "ddp-run: step N.0 was refused, and a restart cannot help: $remedy"
	same "$(report 0 kind status refusal next)" "\"refused\" 1 \"$remedy\" \"stop\""
	MASTER_PORT=x batch touch ran
	same "$rc:$(grep -c '^ddp-run: ' <<<"$out")" 1:1
	batch --ddp-port=x touch ran
	has "$out" 'srun: error: ddp: --ddp-port=x is not a port'
	has_not "$out" '^ddp-run: '
	[ ! -e "$WORK/ran" ]
}

@test "wrong options, a start inside a rank, and --requeue outside a batch job are refused in one line" {
	for wrong in '--restarts x true|--restarts x is not valid\. Give a whole number, at least 0\.' \
		'--hang 5y true|--hang 5y is not valid\. Give seconds, or a number with s, m or h\.' \
		'--min-nodes 0 true|--min-nodes 0 is not valid\. Give a whole number, at least 1\.' \
		'--report none/last.json true|cannot write --report none/last.json: No such file or directory\. Give a file in .*' \
		'--report / true|cannot write --report /: Is a directory\. Give a file in .*' \
		'--logs /proc/x/y true|cannot write --logs /proc/x/y: No such file or directory\. Give a directory in .*' \
		'--max-requeues 5 true|--max-requeues has no effect without --requeue\. Add --requeue\.' \
		'--preflight-slow 0.8 true|--preflight-slow has no effect without --preflight\. Add --preflight\.' \
		'--requeue=1 true|--requeue takes no value\. Remove "=1"\.' '--logs|--logs has no value\. Give --logs DIR\.' \
		'--restarts 1|the program is missing\. Use ddp-run \[OPTION...\] \[SRUN.S OPTION...\] program'; do
		# shellcheck disable=SC2086
		try "$DDP_RUN" ${wrong%|*}
		same "$rc" 2
		same "$out" ''
		has "$err" "^ddp-run: ${wrong#*|}$"
		same "$(wc -l <<<"$err")" 1
	done
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" true
	has "$err" '^ddp-run: SLURM_DDP_RESTARTS -1 is not valid\. Give a whole number, at least 0\.'
	# An invalid SLURM_DDP_RESTARTS that is not used is ignored.
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --help
	has "$out" '^usage: ddp-run'
	try env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --restarts 0 --explain "$WORK"
	same "$rc: $out$err" "1: ddp-run: $WORK has no report that this release can print. Give a directory .ddp/failed-..., or read the report.txt of an older release."
	try mc env SLURM_DDP_RESTARTS=-1 "$DDP_RUN" --restarts 1000000000 -N1 -n1 true
	same "$rc" 0
	try mc env SLURM_CONF=/dev/null "$DDP_RUN" true
	same "$rc" 2
	has "$err" '^srun: fatal: '
	has "$err" '^ddp-run: srun --help failed$'
	for steps in '-n1 true : -n1 true' '--het-group=0,1 true' '--pack-group 0,1 true'; do
		# shellcheck disable=SC2086
		try mc "$DDP_RUN" $steps
		same "$rc" 2
		has "$err" '^ddp-run: srun does not report which rank of a heterogeneous step failed\. Run one component with --het-group=N, or several programs with --multi-prog\.$'
	done
	try mc "$DDP_RUN" -N1 -QQ true
	same "$rc: $err" "2: ddp-run: srun's --quiet, given twice, hides the errors that show which rank failed. Give it once."
	try mc "$DDP_RUN" -N1 --restarts 3 true
	same "$rc $err" "2 ddp-run: --restarts is an option of ddp-run. Give it before srun's options."
	try mc srun -n1 "$DDP_RUN" true
	has "$err" '^ddp-run: this process is already a task of step 0 of job'
	for name in OMPI_COMM_WORLD_RANK PMI_RANK TORCHELASTIC_RUN_ID; do
		try mc salloc -Q -N1 env $name=0 "$DDP_RUN" true
		same "$rc" 2
		has "$err" "^ddp-run: this process is already a rank of another launcher, because $name is set\. Start"
	done
	# A batch job that a rank of MPI submits inherits variables of MPI's launcher. ddp-run must accept it.
	PMI_RANK=0 batch -N1 -n1 true
	same "$rc" 0
	mc srun -Q -n1 --ddp sbatch -Q -W -N1 -o job.out job -N1 -n1 true
	has_not "$(<"$WORK/job.out")" 'already'
	same "$(<"$WORK/rc")" 0
	try mc salloc -Q -N1 "$DDP_RUN" --requeue true
	has "$err" '^ddp-run: Slurm cannot requeue job [0-9]+, because it is not a batch job\.'
	try mc salloc -Q -N1 "$DDP_RUN" --spare-nodes 1 true
	has "$err" '^ddp-run: --spare-nodes 1 would leave none of the 1 nodes of job [0-9]+\. Give at most 0\.$'
	try mc salloc -Q -N1 "$DDP_RUN" --min-nodes 2 touch ran
	same "$rc" 2
	has "$err" '^ddp-run: --min-nodes 2 is more than the 1 nodes of job [0-9]+\. Give at most 1\.$'
	try mc salloc -Q -N2 "$DDP_RUN" --min-nodes 2 -N1 touch ran
	same "$rc" 2
	has "$err" '^ddp-run: --min-nodes 2 is more than the nodes of -N 1\. Give at most 1\.$'
	try mc salloc -Q -N3 "$DDP_RUN" --min-nodes 2 --spare-nodes 2 touch ran
	same "$rc" 2
	has "$err" '^ddp-run: --spare-nodes 2 leaves 1 of the 3 nodes of job [0-9]+, fewer than --min-nodes 2\. Reduce one of the options\.$'
	[ ! -e "$WORK/ran" ]
}

@test "with --spare-nodes and -N each node has as many ranks as --ntasks-per-node of the job" {
	local nodes
	for nodes in '' -N2 '-N2 --ntasks-per-node=2'; do
		within 60 no_jobs
		# shellcheck disable=SC2016,SC2086
		try mc salloc -Q -N3 --ntasks-per-node=2 "$DDP_RUN" --spare-nodes 1 $nodes bash -c 'echo "$LOCAL_RANK of $WORLD_SIZE on $SLURMD_NODENAME"'
		same "$rc" 0
		same "$(sort <<<"$out")" $'0 of 4 on n1\n0 of 4 on n2\n1 of 4 on n1\n1 of 4 on n2'
	done
}

@test "without an allocation ddp-run makes one, and stdin, stdout and stderr pass through unchanged" {
	head -c 300000 /dev/urandom >"$WORK/bytes"
	chmod 644 "$WORK/bytes"
	# shellcheck disable=SC2016
	(cd "$WORK" && as_user timeout 60 "$minicluster" run "$DDP_RUN" -N1 -n1 -J taken bash -c 'cat; echo "$SLURM_JOB_NAME" >&2' \
		<bytes >bytes.out 2>err.out)
	cmp "$WORK/bytes" "$WORK/bytes.out"
	has "$(cat "$WORK/err.out")" '^taken$'
}

@test "without an allocation: options in every spelling, forty options, --spare-nodes, -D and --jobid" {
	local job
	# shellcheck disable=SC2016,SC2046
	try mc "$DDP_RUN" $(printf -- '--restarts %d ' {1..40}) -lN 1 -n1 --wait=0 bash -c 'echo "$1 of $#"' name one two
	same "$rc" 0
	same "$out" '0: one of 2'
	within 60 no_jobs
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

@test "each attempt reads a file on stdin from its start" {
	echo hello >"$WORK/in"
	# shellcheck disable=SC2016
	(cd "$WORK" && as_user timeout 60 "$minicluster" run "$DDP_RUN" -N1 -n1 bash -c 'read -r a; echo "$DDP_RESTART $a"; exit $((1 - DDP_RESTART))' \
		<in >all.out 2>/dev/null)
	same "$(cat "$WORK/all.out")" $'0 hello\n1 hello'
}

# submit_job SIGNAL STATUS OPTION...: submits a job on two nodes with these options of sbatch. When the ranks receive SIGNAL, they
# exit with STATUS; if STATUS is "stay", they do not exit. In a later attempt or run they succeed. $RUN has options of ddp-run, by
# default --requeue. $LINE is the first line of the script. Scripts in $WORK/bin replace Slurm's commands. scancel.out has the
# arguments of ddp-run's calls of scancel.
submit_job()
{
	local signal=$1 status=$2
	shift 2
	cat >"$WORK/leave.py" <<-'END'
		import os, signal, sys, time
		rank, again = os.environ["RANK"], os.environ.get("SLURM_RESTART_COUNT", "7") != "7" or os.environ["DDP_RESTART"] != "0"
		received = []
		signal.signal(getattr(signal, "SIG" + sys.argv[1]), lambda *_: received.append(1))
		name = "events." + os.environ["SLURM_JOB_ID"]
		def say(*words):
		    with open(name, "a") as file:
		        print(rank, *words, file=file)
		say("again" if again else "up")
		open("up." + rank, "w").close()
		while (not received or sys.argv[2] == "stay") and not again:
		    time.sleep(0.1)
		time.sleep(0.5)
		# srun ends the other rank after the first one has failed
		signal.signal(signal.SIGTERM, signal.SIG_IGN)
		say("received", len(received))
		while len({open(name).read().count(rank + " received") for rank in "01"}) > 1:
		    time.sleep(0.05)
		open("failed", "w").close()
		sys.exit(0 if again else int(sys.argv[2]))
	END
	rm -f "$WORK"/up.? "$WORK/failed"
	replace_command scancel 'echo "$@" >>scancel.out'
	printf '#!/bin/bash\n%s\nPATH=$PWD/bin:$PATH\necho $$ >pid\nexec %s %s python3 leave.py %s %s\n' \
		"${LINE-}" "$DDP_RUN" "${RUN---requeue}" "$signal" "$status" >"$WORK/job"
	mc sbatch --parsable --requeue --open-mode=append -N2 -o job.out "$@" job
}

# replace_command COMMAND SCRIPT: when ddp-run calls COMMAND, the lines of SCRIPT run first. If they do not exit, COMMAND runs.
replace_command()
{
	mkdir -p "$WORK/bin"
	printf '#!/bin/bash\nPATH=${PATH#*:}\n%s\nexec %s "$@"\n' "$2" "$1" >"$WORK/bin/$1"
	chmod 755 "$WORK/bin/$1"
}

# events JOB: prints the lines of the job's ranks. The ranks write these to a file, because srun drops some of the output when
# they end.
events() { sort -u "$WORK/events.$1"; }

are_up() { [ -e "$WORK/up.0" ] && [ -e "$WORK/up.1" ]; }

is_requeued() { mc scontrol show job "$1" | grep -q ' Restarts=1 '; }

# Succeeds if the job has ended and was not requeued.
is_over() { gone "$1" && ! is_requeued "$1"; }

# timeout(1) sends signals this way, and so does "kill 0" in a trap.
@test "SIGTERM to ddp-run and to its process group reaches each rank once; after SIGQUIT srun kills the ranks at once" {
	local job
	job=$(submit_job TERM 7)
	within 60 are_up
	as_user bash -c 'kill -TERM -- "$1" "-$1"' kill "$(<"$WORK/pid")"
	within 60 is_over "$job"
	same "$(events "$job")" $'0 received 1\n0 up\n1 received 1\n1 up'
	same "$(<"$WORK/scancel.out")" "-Q $job.0 --signal=TERM"
	has "$(<"$WORK/job.out")" '^next: stopped, because the program was cancelled$'
	job=$(submit_job QUIT 7)
	within 60 are_up
	as_user kill -QUIT "$(<"$WORK/pid")"
	within 60 is_over "$job"
	same "$(events "$job")" $'0 up\n1 up'
	same "$(wc -l <"$WORK/scancel.out")" 1
	has "$(<"$WORK/job.out")" '^srun: error: n1: task 0: Killed$'
	has "$(<"$WORK/job.out")" '^next: stopped, because the program was cancelled$'
}

# KillWait is 5 s here. After a failure, srun would be killed 10 s later if ranks of the step still ran.
@test "SIGTERM to ddp-run: ranks may take longer than KillWait to end" {
	replace_command scancel 'echo "$@" >>scancel.out'
	{
		within 60 test -e "$WORK/here.0.0" && within 60 test -e "$WORK/here.0.1"
		pkill -TERM -f "^$DDP_RUN -N2"
	} 3>&- &
	PATH=$WORK/bin:$PATH batch -N2 -n2 bash -c 'trap "asked=1" TERM; touch "here.0.$RANK"; until [ "${asked-}" ]; do sleep 0.1; done
		for ((i = 0; i < 160 + 10 * RANK; i++)); do sleep 0.1; done; exit 7'
	wait
	has "$out" '^next: stopped, because the program was cancelled$'
	same "$(sed 's/[0-9]*[.]0/JOB.0/' "$WORK/scancel.out")" '-Q JOB.0 --signal=TERM'
}

@test "SIGUSR1 and SIGUSR2 through the batch script reach the ranks once, and ranks that then fail are not restarted" {
	local job signal
	for signal in USR1 USR2; do
		job=$(RUN='' submit_job $signal 3 -o "$signal.out")
		within 60 are_up
		mc scancel --batch --signal=$signal "$job"
		within 60 is_over "$job"
		same "$(events "$job")" $'0 received 1\n0 up\n1 received 1\n1 up'
		has "$(<"$WORK/$signal.out")" '^next: stopped, because a signal announced the end of the job$'
		has "$(mc scontrol show job "$job")" 'ExitCode=3:0'
	done
}

@test "SIGUSR1 with --requeue: the job is requeued, but not if it succeeds long before its time limit" {
	local job
	job=$(submit_job USR1 3)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	has_not "$(<"$WORK/job.out")" 'started again'
	mc scancel "$job"
	job=$(submit_job USR1 0 -t 25)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	mc scancel "$job"
	job=$(submit_job USR1 0 -t 600 -o good.out)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_over "$job"
	same "$(events "$job")" $'0 received 1\n0 up\n1 received 1\n1 up'
	same "$(<"$WORK/good.out")" ''
}

@test "SIGUSR1 to a batch script without exec, which ends the job: one line says what to write" {
	local job
	printf '#!/bin/bash\n%s --requeue bash -c "touch here.up; exec sleep 61"\n' "$DDP_RUN" >"$WORK/job"
	job=$(mc sbatch --parsable --requeue -o job.out -N1 job)
	within 60 test -e "$WORK/here.up"
	mc scancel --batch --signal=USR1 "$job"
	within 60 gone "$job"
	has "$(<"$WORK/job.out")" "^ddp-run: SIGUSR1 has ended the batch script, and with it job $job\. Start ddp-run with \"exec ddp-run\""
}

# Slurm may send the signal up to a minute early.
@test "sbatch --signal without B: and with --requeue, if ranks exit with 0: a message, and the job is requeued" {
	local job
	job=$(LINE='#SBATCH --signal=USR2@300' submit_job USR2 0 -t 6)
	within 60 are_up
	within 180 is_requeued "$job"
	has "$(<"$WORK/job.out")" '^ddp-run: Slurm sends --signal=USR2@300 to the ranks only,.* Use --signal=B:USR2@300 and'
	has "$(events "$job")" '^1 received 1$'
	mc scancel "$job"
	job=$(SBATCH_SIGNAL=B:USR2@30 LINE='#SBATCH --signal=USR2@300' submit_job USR2 0 -t 5 -o batch.out)
	within 60 are_up
	mc scancel "$job"
	has_not "$(<"$WORK/batch.out")" 'to the ranks only'
}

@test "a program that ends with status 0 well before the signal of sbatch --signal is not requeued" {
	SBATCH_SIGNAL=USR2@300 BATCH='--requeue -t 6' batch --requeue -N1 -n1 bash -c 'echo "requeued ${SLURM_RESTART_COUNT:-0} times"'
	same "$rc" 0
	has "$out" '^ddp-run: Slurm sends --signal=USR2@300 to the ranks only'
	has "$out" '^requeued 0 times$'
	has_not "$out" '^next:'
}

@test "a crash after the time of sbatch --signal, if no rank can have received it, is restarted" {
	# scontrol shows a time limit of 4 minutes, less than the 300 s of --signal.
	replace_command scontrol 'case $* in "-o show job"*) scontrol "$@" | sed "s/TimeLimit=[^ ]*/TimeLimit=00:04:00/"; exit ;; esac'
	SBATCH_SIGNAL=USR2@300 PATH=$WORK/bin:$PATH BATCH='--requeue -t 60' batch --requeue -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	same "$(report 0 kind next)" '"exit" "restart"'
	remove_attempts
	# In a job with such a limit, Slurm would send the signal in the first 30 s.
	replace_command scontrol 'case $* in *"show job"*) scontrol "$@" | sed "s/TimeLimit=[^ ]*/TimeLimit=00:02:00/"; exit ;; esac'
	SBATCH_SIGNAL=USR2@300 PATH=$WORK/bin:$PATH BATCH='--requeue -t 60' batch --requeue -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	has "$out" "^ddp-run: the job's time limit is hardly longer than the time of --signal=USR2@300, so Slurm sends "
	same "$(report 0 kind next)" '"exit" "restart"'
}

@test "--max-requeues: a job without a new checkpoint since its last start is not requeued again" {
	local job
	rm -rf "$WORK/points"; as_user mkdir "$WORK/points"
	export DDP_CHECKPOINT=$WORK/points
	touch -d '2 hours ago' "$WORK/points/old"
	# ddp-run ignores SLURM_RESTART_COUNT, which may come from the job that submitted this one.
	job=$(export SLURM_RESTART_COUNT=7; RUN='--requeue --max-requeues 0' submit_job USR1 3 -t 60)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_over "$job"
	has "$(<"$WORK/job.out")" "^ddp-run: job $job was requeued 0 times, and DDP_CHECKPOINT has no checkpoint from its last run\. The job is not requeued again; see --max-requeues\.$"
	has "$(<"$WORK/job.out")" '^next: stopped, because a signal announced the end of the job$'
	touch "$WORK/points/new"
	job=$(RUN='--requeue --max-requeues 0' submit_job USR1 3 -t 60 -o again.out)
	within 60 are_up
	mc scancel --batch --signal=USR1 "$job"
	within 60 is_requeued "$job"
	mc scancel "$job"
	rm -r "$WORK/points"
	unset DDP_CHECKPOINT
	job=$(RUN='--requeue --max-requeues 0' submit_job USR1 3 -o unset.out)
	within 60 grep -qs "and DDP_CHECKPOINT is not set\. The job is not requeued again" "$WORK/unset.out"
}

# The id of a job array is also the id of its last task.
@test "a task of a job array with --requeue requeues itself only" {
	local job
	cat >"$WORK/job" <<-END
		#!/bin/bash
		echo "\$SLURM_ARRAY_TASK_ID" >>events.array
		if [ "\$SLURM_JOB_ID" = "\$SLURM_ARRAY_JOB_ID" ]; then
			until [ "\$(wc -l <events.array)" -ge 3 ]; do sleep 0.1; done
			PID=\$\$ exec $DDP_RUN --requeue -N1 -n1 bash -c 'kill -USR1 "\$PID"; sleep 61'
		fi
		[ "\$SLURM_ARRAY_TASK_ID" = 1 ] || exec sleep 60.5
	END
	job=$(mc sbatch --parsable --requeue --open-mode=append -a 1-3 -N1 -o job.out job)
	within 120 is_requeued "${job}_3"
	same "$(mc scontrol show job "$job" | grep -o 'Restarts=[0-9]*' | sort)" $'Restarts=0\nRestarts=0\nRestarts=1'
	has "$(<"$WORK/job.out")" "^ddp-run: job ${job}_3 is requeued$"
}

# ddp-run calls scontrol when an attempt has ended. The replaced scontrol sends the signal.
@test "SIGUSR1 between attempts with --requeue: no attempt follows, and the job is requeued" {
	local job
	replace_command scontrol '[ ! -e failed ] || { rm failed; kill -USR1 "$(<pid)"; }'
	job=$(submit_job USR2 3)
	within 60 are_up
	mc scancel -s USR2 "$job"
	within 60 is_requeued "$job"
	has_not "$(<"$WORK/job.out")" 'started again'
}

@test "SIGUSR1 before the first step with --requeue: the job is requeued" {
	local job
	replace_command srun '[ "$1" = --help ] || { kill -USR1 "$(<pid)"; exec sleep 62; }'
	job=$(submit_job USR1 3)
	within 60 is_requeued "$job"
}

@test "SIGTERM when too few nodes are left: the job is not requeued" {
	local job
	replace_command srun '[ "$1" = --help ] || { srun "$@"; echo "srun: error: Node failure on n2" >&2; exit 1; }'
	replace_command scontrol '[ ! -e failed ] || { rm failed; kill -TERM "$(<pid)"; }'
	job=$(submit_job USR2 3)
	within 60 are_up
	mc scancel -s USR2 "$job"
	within 60 is_over "$job"
	has "$(<"$WORK/job.out")" '^next: stopped, because the program was cancelled$'
}

@test "time limit with --requeue: ranks get SIGTERM, and the job is requeued even if they ignore it" {
	local job stays
	job=$(submit_job TERM 0 -t 1)
	stays=$(submit_job TERM stay -t 1 -o stay.out)
	within 300 gone "$job,$stays"
	same "$(events "$job" | sed 's/received 2/received 1/')" $'0 again\n0 received 0\n0 received 1\n0 up\n1 again\n1 received 0\n1 received 1\n1 up'
	same "$(events "$stays")" $'0 again\n0 received 0\n0 up\n1 again\n1 received 0\n1 up'
	# Slurm signals the ranks, once or twice. ddp-run does not.
	[ ! -e "$WORK/scancel.out" ]
	has_not "$(<"$WORK/job.out")" 'started again'
}

# The test prints srun's message about the step's time limit, because Slurm itself takes up to two minutes.
@test "time limit of the step with --requeue: another attempt in the same job" {
	replace_command srun '[ "$1" = --help ] || [ "${SLURM_DDP_RESTART-0}" -ne 0 ] ||
		{ srun "$@"; echo "slurmstepd-n1: error: *** STEP $SLURM_JOB_ID.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 DUE TO TIME LIMIT ***" >&2; exit 1; }'
	PATH=$WORK/bin:$PATH BATCH='--requeue -t 60' batch --requeue -t 1 -N2 -n2 bash -c 'exit $((1 - DDP_RESTART))'
	same "$rc" 0
	has "$out" 'attempt 1 of 4, reached the time limit of its step at'
	same "$(report 0 kind next)" '"steplimit" "restart"'
}

# The replaced scontrol shows the job as Slurm does at its time limit, after the hung ranks were signalled.
@test "time limit during a hang with --requeue: the job is requeued" {
	local job
	replace_command scontrol 'case $* in *"show job"*) [ ! -e failed ] || { scontrol "$@" | sed "s/JobState=RUNNING Reason=None/JobState=COMPLETING Reason=TimeLimit/"; exit; } ;; esac'
	job=$(RUN='--requeue --hang 6 --grace 10' submit_job TERM 3)
	within 60 is_requeued "$job"
	has "$(<"$WORK/job.out")" 'no output and no heartbeat'
	has_not "$(<"$WORK/job.out")" 'started again'
}

@test "scancel of a job with --requeue: it is not requeued" {
	local job
	job=$(submit_job TERM 3)
	within 60 are_up
	mc scancel "$job"
	within 60 is_over "$job"
	same "$(events "$job" | sed 's/received 2/received 1/')" $'0 received 1\n0 up\n1 received 1\n1 up'
	[ ! -e "$WORK/scancel.out" ]
	has_not "$(<"$WORK/job.out")" 'requeued'
}

@test "--requeue in a job that Slurm may not requeue is refused at once" {
	local job
	job=$(submit_job TERM 3 --no-requeue)
	within 60 is_over "$job"
	same "$(<"$WORK/job.out")" "ddp-run: Slurm does not allow a requeue of job $job. Add #SBATCH --requeue."
}

# Slurm sends SIGTERM only to the ranks, and ends the job after GraceTime.
@test "preemption with --requeue: no attempt follows, and the job is requeued" {
	local job status
	new_cluster --conf PreemptType=preempt/partition_prio --conf PreemptMode=REQUEUE
	"$minicluster" run scontrol update PartitionName=main GraceTime=20 OverSubscribe=NO
	"$minicluster" run scontrol create PartitionName=high Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF
	for status in 0 3; do
		job=$(submit_job TERM $status --exclusive -o "$status.out")
		within 60 are_up
		mc sbatch -Q -p high --exclusive -N4 -o /dev/null --wrap true
		within 180 gone "$job"
		same "$(events "$job" | sed 's/received 2/received 1/')" $'0 again\n0 received 0\n0 received 1\n0 up\n1 again\n1 received 0\n1 received 1\n1 up'
		[ ! -e "$WORK/scancel.out" ]
		has "$(<"$WORK/$status.out")" 'was preempted by another job'
		has_not "$(<"$WORK/$status.out")" 'started again'
	done
}

@test "SIGTERM to ddp-run reaches the ranks while a slow debugger reads the stacks of a hang" {
	local job
	replace_command gdb 'touch here.gdb; until [ -e here.read ]; do sleep 0.1; done; exit'
	printf '#!/bin/bash\nPATH=$PWD/bin:$PATH\nexec %s --hang 4 -N2 -n2 bash -c '\''trap "touch here.term.\$RANK; exit 7" TERM; while :; do sleep 0.1; done'\''\n' "$DDP_RUN" >"$WORK/job"
	job=$(mc sbatch --parsable -o job.out -N2 job)
	within 100 test -e "$WORK/here.gdb"
	mc scancel --batch --signal=TERM "$job"
	within 40 test -e "$WORK/here.term.1"
	touch "$WORK/here.read"
	within 100 gone "$job"
	has "$(<"$WORK/job.out")" 'had no output and no heartbeat'
	has "$(<"$WORK/job.out")" '^next: stopped, because '
}

# The hung ranks exit with 0 on SIGTERM, so srun reports no failed rank.
@test "of 68 ranks, the last lines of the rank that is named first are kept" {
	local first
	batch --hang 6 --grace 20 --restarts 0 -O -N4 -n68 bash -c 'echo "I am $RANK"; trap "exit 0" TERM; [ "$RANK" -ne 67 ] || kill -STOP $$; sleep 61 & wait'
	same "$(report 0 kind)" '"hang"'
	first=$(report 0 first | sed 's/.*"rank": \([0-9]*\),.*/\1/')
	same "$(cat "$WORK"/.ddp/failed-*/tail-"$first".txt)" "I am $first"
}

@test "srun is killed: ddp-run ends its ranks and starts another attempt" {
	local option
	# srun refuses --exclusive with --overlap, which the second attempt needs.
	for option in --mpi=none --exclusive; do
		remove_attempts
		rm -f "$WORK"/here.*
		batch --restarts 1 "$option" -N2 -n2 bash -c 'if [ "$DDP_RESTART" -ne 0 ]; then ! ps -o pid= -p "$(cat here.* | paste -sd,)" || echo live on; exit 0; fi
			echo $$ >"here.$RANK"; [ "$RANK" -ne 0 ] || { until [ -s here.1 ]; do sleep 0.1; done; pkill -KILL -f "^srun --ddp .*$1\$"; }; exec sleep 61.4' rank "$WORK"
		same "$option: $rc" "$option: 0"
		has "$out" '^ddp-run: srun was killed, so ddp-run ends step [0-9]+\.0$'
		has_not "$out" 'live on'
		same "$(report 0 kind next)" '"signal" "restart"'
	done
}

@test "-m arbitrary with --spare-nodes: the same nodes again, then a spare for a node that failed first twice" {
	printf '%s\n' n3 n2 n3 >"$WORK/hosts.out"
	DDP_RUN="env SLURM_HOSTFILE=$WORK/hosts.out $DDP_RUN" BATCH=--ntasks-per-node=2 batch --spare-nodes 2 -n3 -m arbitrary bash -c 'echo "rank $RANK restart $DDP_RESTART on $SLURMD_NODENAME"
		[ "$DDP_RESTART" -lt 2 ] || exit 0; [ "$SLURMD_NODENAME" != n3 ] || { ./printed 3 "^rank . restart $DDP_RESTART "; exit $((3 + DDP_RESTART)); }; exec sleep 61.4'
	same "$rc" 0
	same "$(grep '^rank . restart' <<<"$out" | sort -k4n -k2n | cut -d' ' -f 2,4,6 | paste -sd' ')" \
		'0 0 n3 1 0 n2 2 0 n3 0 1 n3 1 1 n2 2 1 n3 0 2 n2 1 2 n2 2 2 n1'
	same "$(grep -c '^next: started again on .* with 3 ranks' <<<"$out")" 2
}

@test "--het-group: one component of a heterogeneous job, with the state of its ranks in a hang and with spare nodes" {
	# shellcheck disable=SC2016
	BATCH='-N1 -n1 -o job.out : -N3 -n3' batch --hang 6 --spare-nodes 1 --het-group=1 bash -c 'echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART on $SLURMD_NODENAME"
		case $DDP_RESTART in 0) [ "$RANK" -ne 1 ] || { ./printed 2 "^rank . of 2 restart 0 "; exit 3; }; exec sleep 61.4 ;; 1) exec sleep 61.4 ;; esac'
	same "$rc" 0
	same "$(grep -A1 '^  its last line:$' <<<"$out" | tail -n 1)" '    rank 1 of 2 restart 0 on n3'
	has "$out" '^  rank 1 on n3, pid [0-9]+: state S '
	has_not "$out" 'cannot find out'
	same "$(grep -c '^rank . of 2 restart . on n[23]$' <<<"$out")" 6
}

@test "SIGTERM or SIGHUP to srun from another process: the report says so" {
	local signal
	for signal in TERM HUP; do
		remove_attempts
		batch -N2 -n2 bash -c '[ "$RANK" -ne 0 ] || { sleep 1; pkill -$1 -f "^srun --ddp .*$2\$"; }; exec sleep 61' rank $signal "$WORK"
		has "$out" '^next: stopped, because srun received SIGTERM or SIGHUP$'
	done
}

# second_ddp_run: sets DDP_RUN to a script that starts two ddp-runs: one on n1, and the test's own.
second_ddp_run()
{
	printf '#!/bin/bash\n%s -N1 -n1 -w n1 bash -c "touch here.beside; until [ -e here.end ]; do sleep 0.2; done" &\n' "$DDP_RUN" >"$WORK/beside"
	# shellcheck disable=SC2016
	printf 'until [ -e here.beside ]; do sleep 0.1; done\n%s "$@"\nrc=$?\ntouch here.end\nwait\nexit $rc\n' "$DDP_RUN" >>"$WORK/beside"
	chmod 755 "$WORK/beside"
	DDP_RUN=$WORK/beside
}

@test "with two ddp-runs in a job, one whose srun is killed restarts on its own node" {
	second_ddp_run
	batch --restarts 1 -N1 -n1 bash -c 'echo "restart $DDP_RESTART on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0
		./printed 1 "^restart 0 "; pkill -KILL -f "^srun --ddp .*$1\$"; exec sleep 61.4' rank "$WORK"
	same "$rc" 0
	same "$(grep '^restart' <<<"$out")" $'restart 0 on n2\nrestart 1 on n2'
	same "$(report 0 next_nodes)" '["n2"]'
}

# The other ddp-run is stopped after its step has ended, so it has no step, and is killed later.
@test "with two ddp-runs in a job, a node of one between two attempts is no spare of the other, unless its ddp-run is gone" {
	printf '#!/bin/bash\nrun=%s\n' "$DDP_RUN" >"$WORK/beside"
	cat >>"$WORK/beside" <<-'END'
		here() { for ((i = 0; i < 300; i++)); do ! "$@" || return; sleep 0.1; done; }
		has_no_step() { [ -z "$(squeue -hs -j "$SLURM_JOB_ID" -o %j | grep '^bash$')" ]; }
		"$run" -N1 -n1 -w n2 bash -c 'touch here.beside; until [ -e here.stopped ]; do sleep 0.1; done; exit 3' &
		here test -e here.beside
		claims() { ls -l "/proc/$1/fd" | grep -q "/memfd:ddp-run/.*/$2 "; }
		here claims $! n2
		kill -STOP $!
		touch here.stopped
		here has_no_step
		"$run" "$@"
		kill -KILL $!
		"$run" "$@"
	END
	chmod 755 "$WORK/beside"
	DDP_RUN=$WORK/beside batch --spare-nodes 3 -N1 -n1 bash -c 'echo "restart $DDP_RESTART on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 2 ] || exit $((3 + DDP_RESTART))'
	same "$rc" 0
	has "$out" '^ddp-run: other steps and ddp-runs of job [0-9]+ use nodes n2, so these nodes are not used as spares$'
	same "$(grep '^restart 2 on' <<<"$out")" $'restart 2 on n3\nrestart 2 on n2'
}

# claim_as_other_user NODE...: claims these nodes in the job of the ddp-run that has claimed n1, until here.end exists.
claim_as_other_user()
{
	local claim
	within 60 test -e "$WORK/here.0"
	claim=$(find /proc/[0-9]*/fd -lname "/memfd:ddp-run/*/n1 *" -printf '%l\n' 2>/dev/null | head -n 1)
	as_other_user /usr/bin/python3 - "$WORK" "${claim#/memfd:}" "$@" <<-'END'
		import os, sys, time
		prefix = sys.argv[2].rpartition("/")[0]
		files = [os.memfd_create(prefix + "/" + node) for node in sys.argv[3:]]
		os.write(1, b"claimed\n")
		while not os.path.exists(sys.argv[1] + "/here.end"):
		    time.sleep(0.1)
	END
}

@test "a claim of another user keeps no node from a ddp-run" {
	[ "$(id -u)" -eq 0 ] || skip "a second user needs root"
	claim_as_other_user n2 n3 n4 3>&- >"$WORK/here.claimed" &
	batch --spare-nodes 3 -N1 -n1 bash -c 'echo "restart $DDP_RESTART on $SLURMD_NODENAME"; touch here.0; until [ -s here.claimed ]; do sleep 0.1; done
		[ "$DDP_RESTART" -eq 2 ] || exit $((3 + DDP_RESTART))'
	touch "$WORK/here.end"
	wait
	same "$(<"$WORK/here.claimed")" claimed
	same "$rc" 0
	has "$out" '^restart 2 on n2$'
}

# A script replaces srun and sleeps, like an srun that waits for busy nodes.
@test "an srun that gets no step is ended after the time of --hang" {
	printf '#!/bin/sh\n[ "${SLURM_DDP_RESTART-0}" -eq 0 ] || [ "$1" != --ddp ] || exec sleep 62\nexec %s "$@"\n' "$(command -v srun)" >"$WORK/srun"
	chmod 755 "$WORK/srun"
	PATH=$WORK:$PATH batch --restarts 1 --hang 4 -N1 -n1 bash -c 'echo here; exit 3'
	rm "$WORK/srun"
	same "$rc" 137
	has "$out" '^ddp-run: Slurm has started no step for 4 s, so ddp-run ends srun$'
	same "$(grep -c '^here$' <<<"$out")" 1
}

@test "--hang starts again when a rank's program ends" {
	batch --restarts 0 --hang 12 -N2 -n2 bash -c 'echo started; exec sleep $((RANK == 1 ? 9 : 16))'
	same "$rc" 0
	has_not "$out" 'ending it|counts? as output'
}

@test "--hang does not count time in which the job is suspended or ddp-run is stopped" {
	local pid rc=0
	mc salloc -Q -N2 -J waits "$DDP_RUN" --hang 6 bash -c 'for i in {1..10}; do echo $i; sleep 1; done' >"$WORK/waits.out" 2>&1 &
	pid=$!
	within 60 grep -qs '^2$' "$WORK/waits.out"
	"$minicluster" run scontrol suspend "$(mc squeue -h -o %A -n waits)"
	sleep 8
	"$minicluster" run scontrol resume "$(mc squeue -h -o %A -n waits)"
	within 60 grep -q '^4$' "$WORK/waits.out"
	pkill -STOP -f "^$DDP_RUN --hang 6"
	sleep 8
	pkill -CONT -f "^$DDP_RUN --hang 6"
	wait $pid || rc=$?
	same "$(grep -c '^10$' "$WORK/waits.out")" 2
	same "$rc" 0
	has_not "$(<"$WORK/waits.out")" 'ddp-run'
}

# The report of an attempt, and its copy, have the key next_after once the next attempt has started. next_after is that attempt's
# delay.
@test "a rank that fails while others succeed, twice: each report has the failure and the delay of the next attempt" {
	batch --report last.json -N2 -n2 bash -c '[ "$DDP_RESTART" -ne 2 ] || exit 0
		for file in .ddp/failed-*.0/report.json last.json; do
			until [ "$DDP_RESTART" -ne 1 ] || grep -q "\"next_after\": *[0-9]" "$file"; do sleep 0.1; done
		done
		[ "$RANK" -eq 0 ] || exit $((3 + DDP_RESTART))'
	same "$rc" 0
	out=$(first_failures)
	# Slurm 24.11 and later do not use nodes on which the last step is still completing.
	! slurm_at_least 24.11 || out=$(sed 's/n3/n1/; s/n4/n2/g' <<<"$out")
	same "$out" "0 exit ['n1', 'n2'] 2 restart 1 n2 exit 3
1 exit ['n1', 'n2'] 2 restart 1 n2 exit 4"
	read -r ended after <<<"$(report 0 ended next_after)"
	read -r started over <<<"$(report 1 started ended)"
	python3 -c 'import sys; a, b, c, d = map(float, sys.argv[1:]); assert c <= a + b <= d' "$ended" "$after" "$started" "$over"
	same "$(report 1 next_after | grep -c '^[0-9]')" 1
	has "$(<"$WORK/last.json")" '"attempt": 1,'
}

@test "--report to /dev/stderr, a link and a pipe: none is replaced by a file" {
	ln -s there.json "$WORK/link.json"
	as_user mkfifo "$WORK/pipe.json"
	for to in /dev/stderr link.json pipe.json; do
		batch --restarts 0 --report $to -N1 -n1 bash -c 'exit 3'
		same "$rc" 3
		same "$(grep -c '"kind": "exit"' <<<"$out")" $([ $to != /dev/stderr ]; echo $?)
	done
	[ -L /dev/stderr ] && [ -L "$WORK/link.json" ] && [ -p "$WORK/pipe.json" ]
	has "$(<"$WORK/there.json")" '"kind": "exit"'
	has "$out" '^ddp-run: cannot write pipe.json: No such device or address\. Give another file to --report\.$'
	# The file still has the earlier output.
	has "$out" '^ddp-run: step [0-9]+.0, attempt 1 of 1, failed'
	rm "$WORK"/{link,pipe,there}.json
}

@test "srun's --wait: a rank that hangs after another has ended is a failure, even if it exits with 0 on SIGTERM" {
	local how
	for how in 'exec sleep 61' 'trap "exit 0" TERM; sleep 61 & wait'; do
		remove_attempts
		batch --restarts 1 --wait=2 --kill-on-bad-exit=1 -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -eq 1 ] || exit 0; '"$how"
		same "$rc" 0
		same "$(report 0 kind next)" '"exit" "restart"'
		has "$out" '^rank 1 on n2, pid [0-9]+, failed first: ran 2 s longer than another rank$'
	done
}

@test "--kill-on-bad-exit=0: ranks may run on after one has failed, longer than KillWait" {
	batch --restarts 0 --kill-on-bad=0 -N2 -n2 bash -c '[ "$RANK" -eq 0 ] || exit 3; sleep 18; echo through'
	same "$rc" 3
	same "$(grep -c '^through$' <<<"$out")" 1
}

@test "--grace: a rank that ignores SIGTERM is killed after this time, and a warning if Slurm's KillWait is shorter" {
	batch --grace 1 -N2 -n2 bash -c 'trap "" TERM; [ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -eq 0 ] || { until [ -e here.0 ]; do sleep 0.1; done; exit 3; }
		touch here.0; while :; do sleep 1; done'
	same "$rc" 0
	same "$(first_failures)" "0 exit ['n1', 'n2'] 2 restart 1 n2 exit 3"
	has_not "$out" 'KillWait'
	batch --grace 1m --restarts 1 -N1 -n1 bash -c 'exit $((1 - DDP_RESTART))'
	same "$(grep 'KillWait' <<<"$out")" "ddp-run: --grace 1m is longer than Slurm's KillWait. After a rank fails, Slurm kills the others within 5 s."
}

# If srun had to be killed, it would not report the end of the killed rank.
@test "--grace: after a failure, ranks that ignore SIGTERM are killed long before KillWait" {
	configure KillWait=60
	batch --grace 1 --restarts 0 -N2 -n2 bash -c 'trap "" TERM; [ "$RANK" -eq 0 ] || { until [ -e here.0 ]; do sleep 0.1; done; exit 3; }
		touch here.0; while :; do sleep 1; done'
	has "$out" '^srun: error: n1: task 0: Killed$'
	same "$(report 0 kind)" '"exit"'
}

@test "--logs: one file for each rank and attempt, byte by byte, also for ranks that end at once" {
	batch --logs logs bash -c '[ "$DDP_RESTART" -eq 1 ] || { echo "I am $RANK"; ./printed 4 "^I am .$"; exit "$RANK"; }
		printf "%03000d\n%01024d\r%01023d\n\n" "$RANK" 2 3; until [ "$(stat -c %s "logs/attempt-1/rank-$RANK.log" 2>/dev/null)" = 5051 ]; do sleep 0.1; done; printf "to\0err\n" >&2'
	same "$rc" 0
	for rank in 0 1 2 3; do
		printf '%03000d\n%01024d\r%01023d\n\nto\0err\n' $rank 2 3 | sort >"$TOP/wanted"
		sort "$WORK/logs/attempt-1/rank-$rank.log" | cmp - "$TOP/wanted"
	done
	has "$(cat "$WORK"/logs/attempt-0/*)" '^I am 1$'
	# ddp-run ignores an inherited SLURM_RESTART_COUNT.
	SLURM_RESTART_COUNT=7 mc salloc -Q -N2 "$DDP_RUN" --logs again -n2 bash -c 'echo "I am $RANK"' >/dev/null
	same "$(cat "$WORK"/again/attempt-0/rank-1.log)" 'I am 1'
	replace_command scontrol 'case $* in *"show job"*) scontrol "$@" | sed "s/Restarts=[^ ]*/Restarts=2/"; exit ;; esac'
	PATH=$WORK/bin:$PATH mc salloc -Q -N2 "$DDP_RUN" --logs again -n2 bash -c 'echo "back as $RANK"' >/dev/null
	same "$(cat "$WORK"/again/requeue-2/attempt-0/rank-1.log)" 'back as 1'
	rm -r "$WORK/again"
	# srun's output has the same number of bytes. The contents are not compared, because Slurm mixes pieces of long lines.
	same "$(sed '1,/^print this report again/d; /^srun: .* retrying/d; /^srun: Step created/d' "$WORK/job.out" | wc -c)" "$(cat "$WORK"/logs/attempt-1/* | wc -c)"
}

@test "-o FILE: attempts append to the file, and --hang counts heartbeats only" {
	local line='^ddp-run: srun writes output to a file, .*, so --hang 3 counts only heartbeats and '
	batch --hang 3 --restarts 1 -o own.out -N1 -n1 bash -c 'for i in {1..6}; do echo "attempt $DDP_RESTART: $i"; sleep 1; done; exit $((1 - DDP_RESTART))'
	same "$rc" 0
	same "$(wc -l <"$WORK/own.out")" 12
	same "$(grep -cE "$line" <<<"$out")" 1
	has_not "$out" 'no output and no heartbeat'
	remove_attempts
	batch --hang 3 --restarts 1 -e own.out --open-mode truncate -N1 -n1 bash -c 'echo "$DDP_RESTART" >&2; [ "$DDP_RESTART" -eq 0 ] || exit 0; exec sleep 61'
	same "$(report 0 kind next)" '"hang" "restart"'
	has "$out" '^ddp-run: srun writes stderr to a file, .*, so --hang 3 counts only stdout and heartbeats\.'
	same "$(<"$WORK/own.out")" 1
	slurm_at_least 24.11 || return 0
	rm "$WORK/own.out"
	SRUN_OUTPUT=own.out batch --hang 3 --restarts 1 -N2 -n2 bash -c 'echo "$DDP_RESTART"; sleep 5; exit $((1 - DDP_RESTART))'
	same "$rc: $(<"$WORK/own.out")" $'0: 0\n0\n1\n1'
}

@test "srun's labels and output files are unchanged, and --logs with --output, --error or --unbuffered is refused" {
	batch --logs logs -l -n2 bash -c 'echo "I am $RANK"'
	same "$(grep 'I am' "$WORK/job.out" | sort)" $'0: I am 0\n1: I am 1'
	same "$(cat "$WORK"/logs/attempt-0/rank-{0,1}.log)" $'I am 0\nI am 1'
	batch -o own.out -n2 bash -c 'echo "I am $RANK"'
	same "$(sort "$WORK/own.out")" $'I am 0\nI am 1'
	for option in --unbuffered --output=x --error=x; do
		batch --logs logs $option true
		same "$rc" 2
		same "$out" "ddp-run: --logs cannot be combined with srun's ${option%=x}, with which the rank of an output line is unknown. Remove one of the options."
	done
}

@test "a full disk: reports go to TMPDIR, and attempts are still compared" {
	need_root
	mkdir "$WORK/disk" "$WORK/elsewhere"
	chmod 777 "$WORK/elsewhere"
	mount -t tmpfs -o "size=1m,mode=755,uid=$(as_user id -u)" none "$WORK/disk"
	cat >"$WORK/job" <<-END
		#!/bin/bash
		cd disk
		TMPDIR=$WORK/elsewhere $DDP_RUN --restarts 9 --report last.json \\
			bash -c '[ \$RANK -eq 1 ] || exec sleep 60; head -c 2M /dev/zero >big; echo "it is full"; ../printed \$((DDP_RESTART + 1)) "^it is full"; exit 5'
		echo \$? >../rc.tmp
		mv ../rc.tmp ../rc
	END
	rm -f "$WORK/rc"
	mc sbatch -Q --no-kill -N2 -o job.out ./job
	within 300 test -e "$WORK/rc"
	out=$(<"$WORK/job.out")
	same "$(<"$WORK/rc")" 93
	same "$(grep -cE "^ddp-run: cannot write $WORK/disk/\.ddp/failed-[^/]+/.*: No space left on device\. The report is in $WORK/elsewhere/ddp-run-" <<<"$out")" 3
	same "$(grep -c '^rank 1 on n2.*, failed first: exit status 5$' <<<"$out")" 3
	same "$(grep -c '^    it is full$' <<<"$out")" 3
	has "$out" '^next: stopped, because 3 attempts in a row ended at the same point$'
	has "$out" '^ddp-run: cannot write last.json: No space left on device\. Give another file to --report\.$'
	has "$(cat "$WORK"/elsewhere/ddp-run-*.0-*/report.json)" '"next": "restart"'
}

# submitted LINE SBATCH_OPTION VARIABLE: runs ddp-run in a batch script that has LINE, submitted with the option and the variable.
# Sets $out to its output. A script replaces sacct, because before 25.11 only the accounting has sbatch's options.
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
	same "$(sed 's/job [0-9]*/job N/' <<<"$out")" 'ddp-run: job N was submitted without --no-kill, so Slurm ends the whole job if a node is lost, despite --min-nodes and --spare-nodes. Add #SBATCH --no-kill.'
	submitted '' -k ''
	same "$out" ''
	submitted '' --no-kill ''
	same "$out" ''
	submitted '#SBATCH -t 1 --no-kill' '' ''
	same "$out" ''
	submitted '' '' SBATCH_NO_KILL=set
	same "$out" ''
}

# The ranks ignore SIGTERM, so that ddp-run probes the nodes before the step has ended.
ignores_sigterm='trap "" TERM; [ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 1 ] || { sleep 1; exit 3; }; while :; do sleep 1; done'

@test "probes of nodes do not repeat the job's requests for GPUs, tasks and memory, and need no PATH" {
	new_cluster --gpus 2 --cpus 4 --conf SelectTypeParameters=CR_Core_Memory
	need_gpus
	for BATCH in '--gpus=8 --ntasks-per-gpu=1' '-n4 --gpus-per-task=1 --mem=512' \
		'--gres=gpu:2 --ntasks-per-node=1 --cpus-per-task=2 --mem-per-cpu=200 --exclusive' --export=NONE; do
		remove_attempts
		batch /bin/bash -c "$ignores_sigterm"
		same "$BATCH: $rc" "$BATCH: 0"
		has_not "$out" 'answer'
		same "$(report 0 kind)" '"exit"'
	done
}

@test "a job with a total number of GPUs: each attempt has its part for each node" {
	local restart
	new_cluster --gpus 2 --cpus 4
	need_gpus
	BATCH='--gpus=8 --ntasks-per-node=2' batch --restarts 1 --spare-nodes 1 bash -c 'echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART: $CUDA_VISIBLE_DEVICES"
		[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 0 ] || { ./printed 6 "^rank . of 6 restart 0:"; pkill -KILL -f "^srun --ddp .*$1\$"; }; exec sleep 61.4' rank "$WORK"
	same "$rc" 0
	for restart in 0 1; do
		same "$(grep -c "^rank . of 6 restart $restart: 0,1\$" <<<"$out")" 6
	done
}

@test "a rank fails while slurmctld does not answer: no node is blamed, and the next attempt has all nodes" {
	[ "$(id -u)" -eq 0 ] || skip "to stop slurmctld needs root"
	{
		for rank in 0 1 2 3; do
			within 60 test -e "$WORK/here.0.$rank"
		done
		kill -STOP "$(<"$MINICLUSTER_DIR/slurmctld.pid")"
		touch "$WORK/here.away"
		within 60 grep -q 'cannot find out' "$WORK/job.out" || true
		kill -CONT "$(<"$MINICLUSTER_DIR/slurmctld.pid")"
	} 3>&- &
	batch bash -c 'echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART"; [ "$DDP_RESTART" -eq 0 ] || exit 0; trap "" TERM; touch "here.0.$RANK"
		until [ -e here.away ]; do sleep 0.1; done; [ "$RANK" -ne 1 ] || exit 3; for i in {1..60}; do sleep 1; done'
	wait
	same "$rc" 0
	# From Slurm 26.05 on, srun gets the news of the failed rank only after slurmctld answers again.
	slurm_at_least 26.05 || has "$out" '^ddp-run: cannot find out whether n1,n2,n3,n4 answer: Slurm does not answer$'
	has_not "$out" '^ddp-run: node '
	same "$(grep -c '^rank . of 4 restart 1$' <<<"$out")" 4
}

@test "ranks that clear their environment are still found, so their nodes are not lost and a hang has their state" {
	configure KillWait=20
	batch -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 0 ] || { until [ -e here.hidden ]; do sleep 0.1; done; exit 3; }
		exec env -i bash -c "trap \"\" TERM; touch here.hidden; for i in {1..12}; do sleep 1; done; exit 4"'
	same "$rc" 0
	same "$(report 0 kind)" '"exit"'
	has_not "$out" 'Force|Killed'
	remove_attempts
	batch --hang 5 -N2 -n2 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; exec env -i LANG=C sleep 61'
	same "$rc" 0
	same "$(sed -n 's/^state //p' "$WORK"/.ddp/failed-*/proc-*.txt)" $'S\nS'
}

# fail_calls COMMAND PATTERN TIMES: makes the first TIMES calls of COMMAND fail whose arguments match PATTERN.
fail_calls()
{
	mkdir -p "$WORK/bin"
	rm -f "$WORK"/here.failed.*
	cat >"$WORK/bin/$1" <<-END
		#!/bin/bash
		if [[ " \$* " == *"$2"* ]] && (($3 > 0)); then
			for i in {1..$3}; do
				! (set -C; : >"$WORK/here.failed.\$i") 2>/dev/null || { echo "$1: error: no answer" >&2; exit 1; }
			done
		fi
		exec $(command -v "$1") "\$@"
	END
	chmod 755 "$WORK/bin/$1"
}

@test "scontrol show step fails at first: the step's nodes are queried again" {
	fail_calls scontrol ' show step ' 2
	PATH=$WORK/bin:$PATH batch bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; until [ -e here.failed.2 ]; do sleep 0.1; done; sleep 6; [ "$RANK" -ne 2 ] || exit 3; sleep 61'
	same "$rc" 0
	same "$(first_failures)" "0 exit ['n1', 'n2', 'n3', 'n4'] 4 restart 2 n3 exit 3"
}

@test "scontrol show step always fails: another attempt starts" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmstepd needs root"
	touch "$WORK/lost"
	fail_calls scontrol ' show step ' 99
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

# Slurm never ends a step whose slurmstepd was killed. minicluster's credentials of steps expire after 10 s.
@test "a node that answers the launch too late is named, and the next attempt does not wait for the end of the step" {
	[ "$(id -u)" -eq 0 ] || skip "to stop a slurmd needs root"
	touch "$WORK/lost"
	slurmd=$(<"$MINICLUSTER_DIR/slurmd-n3.pid")
	{
		within 60 test -e "$WORK/here.job"
		kill -STOP "$slurmd"
		touch "$WORK/here.go"
		within 60 test -s "$WORK/here.stepd"
		sleep 12
		kill -9 "$(<"$WORK/here.stepd")"
		kill -CONT "$slurmd"
	} 3>&- &
	printf '#!/bin/bash\ntouch here.job; until [ -e here.go ]; do sleep 0.1; done; exec %s "$@"\n' "$DDP_RUN" >"$WORK/here.run"
	chmod 755 "$WORK/here.run"
	DDP_RUN=./here.run batch --hang 60 --restarts 1 bash -c '[ "$DDP_RESTART" -eq 0 ] || exit 0; [ "$RANK" -ne 1 ] || echo $PPID >here.stepd; exec sleep 61'
	wait
	has "$out" 'Task launch for .* failed on node n3: Job credential expired'
	same "$rc" 0
	same "$(report 0 kind next)" '"node" "restart"'
	has "$out" '^rank 2 on n3 was not started: srun reports "Job credential expired"$'
}

@test "a step that Slurm refuses after an earlier one ran is tried again" {
	fail_calls srun ' --ddp ' 2
	touch "$WORK"/here.failed.{1,2}
	PATH=$WORK/bin:$PATH batch --restarts 2 bash -c '[ "$DDP_RESTART" -ne 0 ] || { rm -f here.failed.1; exit 3; }; echo "restart $DDP_RESTART"'
	same "$rc" 0
	same "$(grep -c '^restart 2$' <<<"$out")" 4
	has "$out" '^ddp-run: the step was refused; ddp-run tries again in 10 s$'
}

# sleeping TIME: prints the process ids of this cluster's tasks that run "sleep TIME".
sleeping()
{
	local pid
	for pid in $(pgrep -f "^sleep $1"); do
		! grep -qzxF "SLURM_CONF=$MINICLUSTER_DIR/slurm.conf" "/proc/$pid/environ" 2>/dev/null || echo "$pid"
	done
}

# lose PATTERN: kills slurmd, slurmstepd and the task of the nodes whose names match.
lose()
{
	local node=$1 pid pids=''
	for pid in $(sleeping 61); do
		! tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURMD_NODENAME=$node" || pids+=" $pid $(ps -o ppid= "$pid")"
	done
	pkill -KILL -f "^slurmd .*$MINICLUSTER_DIR/.* -N $node$" || true
	# shellcheck disable=SC2086 # numbers
	kill -9 $pids
}

# Makes ranks print lines until their node is lost. Without these, --hang would end the attempt earlier.
awake='(until [ -e "here.lost.$DDP_RESTART" ]; do echo; sleep 0.5; done) & exec sleep'

none_sleeps() { [ -z "$(sleeping "61\.$1")" ]; }

sleep_there() { [ "$(sleeping "$2" | wc -l)" -ge "$1" ]; }

# lose_on RANKS NODE [ATTEMPT]: waits until this number of ranks sleeps in this attempt, and then loses the node.
lose_on()
{
	within 100 sleep_there "$1" "61${3+\.$3}"
	lose "$2"
	touch "$WORK/here.lost.${3-0}"
}

# bats test_tags=lost
@test "two lost nodes are detected by the probe, and training continues on the others with as many ranks each" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 8 'n[34]' &
	BATCH='--ntasks-per-node=2' batch --hang 8 --min-nodes 2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	has "$out" '^ddp-run: node n3 does not answer$'
	has "$out" '^ddp-run: node n4 does not answer$'
	same "$(grep -c '^rank . of 4 on n[12]$' <<<"$out")" 4
	same "$(report 0 kind next next_nodes next_ranks)" '"node" "restart" ["n1", "n2"] 4'
	# Slurm 24.11 may number the nodes in another order.
	has "$out" '^rank [0-7] on n[34](, pid [0-9]+)?, failed first: '
	has "$out" '^also failed: rank [0-7] on n[34](, pid [0-9]+)?: '
}

# Slurm never noticed that n3 was lost, and n3 came back before the second node was lost.
# bats test_tags=lost
@test "a node is lost, then another, then the first again: each attempt has the nodes that are left" {
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
	done >"$TOP/reports"
	same "$(<"$TOP/reports")" '"node" ["n1", "n2", "n4"]
"node" ["n1", "n4", "n3"]
"node" ["n1", "n4"]'
}

# bats test_tags=lost
@test "nodes that -w excludes are not used as spares" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	lose_on 2 n3 &
	batch --hang 8 --min-nodes 1 -w n2,n3 -N2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	same "$(report 0 kind next_nodes next_ranks)" '"node" ["n2"] 1'
}

# bats test_tags=lost
@test "nodes before --relative are not used as spares" {
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
@test "a node that does not answer at a restart is named, and used again if too few nodes are left and it answers later" {
	local slurmd
	[ "$(id -u)" -eq 0 ] || skip "to stop a slurmd needs root"
	touch "$WORK/lost"
	slurmd=$(pgrep -f "^slurmd .*$MINICLUSTER_DIR/.* -N n4$")
	{
		within 100 sleep_there 4 61
		kill -STOP "$slurmd"
		# shellcheck disable=SC2046 # numbers
		kill -9 $(sleeping 61)
		within 100 grep -q '^ddp-run: node n4 does not answer$' "$WORK/job.out" || true
		sleep 4
		kill -CONT "$slurmd"
	} 3>&- &
	batch --hang 8 bash -c '[ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	wait
	same "$rc" 0
	has "$out" '^rank [0-3] on n4 was not started: node n4 does not answer$'
	has "$out" '^ddp-run: node n4 answers now$'
	same "$(report 1 kind next_nodes)" '"node" ["n1", "n2", "n3", "n4"]'
}

# bats test_tags=lost
@test "a spare replaces a drained node, and a node whose rank failed first in two attempts in a row" {
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
	remove_attempts
	batch --spare-nodes 2 bash -c '[ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	has "$out" '^ddp-run: node n2 is replaced: its ranks failed first in two attempts in a row$'
	same "$(report 0 next_nodes) $(report 1 next_nodes)" '["n1", "n2"] ["n1", "n3"]'
	remove_attempts
	batch -r 1 -N2 -n2 bash -c '[ "$DDP_RESTART" -lt 2 ] || exit 0; [ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); exec sleep 61'
	same "$rc" 0
}

# bats test_tags=lost
@test "a node with another step of the job that runs on every node can be a spare" {
	printf '#!/bin/bash\nfor i in 1 2 3 4; do srun --overlap -N1 -n1 -w n$i sleep 63 & done\n' >"$WORK/watched"
	# shellcheck disable=SC2016
	printf 'until [ "$(squeue -hs -j "$SLURM_JOB_ID" -o %%j | grep -c "^sleep$")" -eq 4 ]; do sleep 0.1; done\n%s "$@"\nrc=$?\nscancel "$SLURM_JOB_ID".{0..3}\nwait\nexit $rc\n' "$DDP_RUN" >>"$WORK/watched"
	chmod 755 "$WORK/watched"
	# The node of rank 1 in the first attempt is bad. Slurm 24.11 may choose any nodes for that attempt.
	# shellcheck disable=SC2016
	DDP_RUN=$WORK/watched batch --spare-nodes 2 bash -c '[ "$RANK.$DDP_RESTART" != 1.0 ] || echo "$SLURMD_NODENAME" >bad
		! grep -qsx "$SLURMD_NODENAME" bad || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	has "$(report 0 next_nodes)" "\"$(cat "$WORK/bad")\""
	has_not "$(report 1 next_nodes)" "\"$(cat "$WORK/bad")\""
	has_not "$out" 'other steps'
}

# Uses a new cluster: slurmd_n2 waits for an idle node, and sinfo shows n2 as mixed for up to a minute after the last job.
# bats test_tags=lost
@test "a node that does not have the program is replaced by a spare" {
	need_root
	new_cluster
	mkdir "$WORK/local"
	printf '#!/bin/bash\necho "rank $RANK on $SLURMD_NODENAME"\n[ "$DDP_RESTART" -gt 0 ] || exec sleep 61\n' >"$WORK/local/program"
	chmod 755 "$WORK/local/program"
	slurmd_n2 "mount -t tmpfs none '$WORK/local'"
	batch --spare-nodes 1 local/program
	same "$rc" 0
	has "$out" '^ddp-run: the program cannot be started on n2$'
	same "$(report 0 kind next_nodes)" '"node" ["n1", "n3", "n4"]'
	batch -N4 local/program
	has "$out" '^next: stopped, because another attempt would fail in the same way$'
	rm -r "$WORK/local"
}

# The second attempt has the same nodes as the first, and in the third one n3 replaces n2.
# bats test_tags=lost
@test "a step that two nodes refuse for the same reason is not started again" {
	need_root
	new_cluster
	as_user mkdir "$WORK/here.rdzv"
	for node in n2 n3; do
		slurmd_in $node "mount -t tmpfs -o mode=755,uid=$(as_user id -u) none '$WORK/here.rdzv'"
	done
	batch --restarts 9 --spare-nodes 2 -N2 -n2 --ddp-rdzv="$WORK/here.rdzv" true
	same "$rc" 1
	same "$(grep -c '^next: started again' <<<"$out")" 2
	has "$out" '^ddp-run: step [0-9]+\.2 was refused, and a restart cannot help: ddp: .*node n3 does not see .*\. Give a directory that all nodes share with --ddp-rdzv=DIR\.$'
}

# --- Without the plugin ----------------------------------------------------------------------

# For this test, Slurm does not load the plugin. So ddp-run starts ddp-exec, which starts the program.
without_plugin() { : >"$MINICLUSTER_DIR/plugstack.conf"; }

# bats test_tags=release
@test "without the plugin: a killed rank is named in the report, and a second attempt follows" {
	without_plugin
	batch bash rank.sh kill 1
	same "$rc:$(grep -c '^rank . of 4 restart 0 on n. 0/3$' <<<"$out"):$(grep -c '^rank . of 4 restart 1 on n. 1/3$' <<<"$out")" 0:4:4
	has "$out" '^rank 2 on n3, pid [0-9]+, failed first: killed by SIGKILL$'
	has "$out" '^next: started again'
	same "$(ls -A "$WORK/.ddp" | sed 's/mini[0-9]*-[0-9]*/C-J/')" failed-C-J.0
	same "$(mc "$DDP_RUN" --explain "$WORK"/.ddp/failed-*)" "$(cat "$WORK"/.ddp/failed-*/report.txt)"
}

@test "without the plugin: with a read-only working directory the failure report is in the home directory" {
	need_root
	without_plugin
	as_user mkdir -m 755 "$WORK/elsewhere"
	mkdir -m 755 "$TOP/closed"
	try mc env HOME="$WORK/elsewhere" sh -c 'cd "$0" && exec salloc -Q --no-kill -w n1 -N1 -n2 "$@"' "$TOP/closed" "$DDP_RUN" \
		sh -c 'echo $DDP_RESTART; [ $DDP_RESTART -gt 0 ] || [ $RANK -ne 1 ] || kill -9 $$; sleep 1'
	rmdir "$TOP/closed"
	same "$rc" 0
	has_not "$err" 'cannot report|has no directory'
	has "$err" '^rank 1 on n1, pid [0-9]+, failed first: killed by SIGKILL$'
	has "$(ls "$WORK/elsewhere/.ddp")" '^failed-mini[0-9]+-[0-9]+\.0$'
}

@test "without the plugin: its options are passed to ddp-exec, and each attempt has another port" {
	without_plugin
	batch -N2 -n2 --ddp-master-suffix=.fast --ddp-port 61000-65000 bash fail-once.sh '$DDP_RESTART $MASTER_ADDR $MASTER_PORT'
	same "$rc" 0
	same "$(grep -c '^0 n1\.fast 6[0-9]*$' <<<"$out"):$(grep -c '^1 n1\.fast 6[0-9]*$' <<<"$out")" 2:2
	same "$(grep '^[01] n1\.fast' <<<"$out" | cut -d ' ' -f 3 | sort -u | wc -l)" 2
}

@test "without the plugin: a missing program is not retried, and an error of ddp-exec is in the report" {
	local port
	without_plugin
	batch nosuch-program
	same "$rc" 127
	has "$out" '^execve\(\): nosuch-program: No such file or directory$'
	has "$out" '^next: stopped, because another attempt would fail in the same way$'
	# srun may end other ranks before they have tried to start it.
	has "$out" '^ddp-exec: n[1-4]: cannot start nosuch-program: No such file or directory$'
	remove_attempts
	port=$(mc scontrol show config | awk '$1 == "SlurmctldPort" { print $3 }')
	MASTER_PORT=$port TMPDIR=$WORK batch --restarts 0 -N2 -n2 true
	same "$rc" 1
	has "$out" '^rank . on n., failed first: exit status 1$'
	has "$out" "^    ddp-exec: port $port of n1, where rank 0 runs, is in use by a process of user [0-9]+\. Unset MASTER_PORT, and a free port is chosen\.$"
}

@test "without the plugin: a step that every node would refuse is not started again" {
	without_plugin
	MASTER_PORT=x batch -N2 -n2 touch ran
	same "$rc:$(grep -c '^ddp-run: step [0-9]*\.0 was refused, and a restart cannot help: MASTER_PORT=x of your environment' <<<"$out")" 1:1
	batch -N2 -n2 --ddp-share=most touch ran
	same "$rc:$(grep -c '^ddp-run: step [0-9]*\.0 was refused, and a restart cannot help: --ddp-share=most is not valid. Choose one of' <<<"$out")" 2:1
	same "$(grep -c '^ddp-run' <<<"$out")" 1
	[ ! -e "$WORK/ran" ]
}

@test "without the plugin: --multi-prog, --ddp, and a missing ddp-exec are refused in one line" {
	without_plugin
	try mc salloc -Q -n1 "$DDP_RUN" --multi-prog programs
	same "$rc:$err" "2:ddp-run: --multi-prog needs srun --ddp, and this srun has no --ddp. Start one program that reads its rank from RANK."
	try mc salloc -Q -n1 "$DDP_RUN" --ddp true
	same "$rc:$err" "2:ddp-run: this srun has no --ddp, so ddp-run starts ddp-exec instead. Remove --ddp."
	install -m 755 "$DDP_RUN" "$WORK/here.run"
	try mc salloc -Q -n1 "$WORK/here.run" true
	same "$rc:$err" "2:ddp-run: srun has no --ddp, and $WORK/ddp-exec does not exist. Install ddp-exec beside ddp-run, or the plugin of slurm-ddp."
}

@test "without the plugin: attempts that end at once: their nodes are known, and a node that fails twice is replaced" {
	without_plugin
	batch --spare-nodes 2 bash -c '[ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	has "$out" '^ddp-run: node n2 is replaced: its ranks failed first in two attempts in a row$'
}

@test "without the plugin and a rendezvous directory: ddp-run still finds the step and restarts it" {
	without_plugin
	# ddp-run refuses this working directory, because others can write to it. There is no home directory that could be used
	# instead.
	mkdir -m 777 "$WORK/elsewhere"
	chmod 777 "$WORK/elsewhere"
	MASTER_ADDR=localhost USER_HOME=/nonexistent TMPDIR=$WORK/elsewhere \
		batch -N2 -n2 --chdir=elsewhere bash ../fail-once.sh '$RANK at $DDP_RESTART, ${DDP_RENDEZVOUS-none}'
	same "$rc" 0
	has "$out" '^ddp-run: step [0-9]+\.0, attempt 1 of 4, failed at '
	same "$(grep -c '^[01] at [01], none$' <<<"$out")" 4
}

# bats test_tags=release, lost
@test "without the plugin: a lost node is detected by the probe, and training continues on the others" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	without_plugin
	touch "$WORK/lost"
	lose_on 4 n3 &
	batch --hang 8 --min-nodes 2 bash -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ "$DDP_RESTART" -eq 0 ] || exit 0; '"$awake 61"
	wait
	same "$rc" 0
	has "$out" '^ddp-run: node n3 does not answer$'
	same "$(grep -c '^rank . of 3 on n[124]$' <<<"$out")" 3
}
