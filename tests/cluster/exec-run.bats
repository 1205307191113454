# SPDX-License-Identifier: Apache-2.0
# ddp-run on a Slurm without the plugin: ddp-run starts ddp-exec, which starts the program. Everything else is as in run.bats.
# shellcheck disable=SC2016,SC2154

load lib

setup_file()
{
	cluster_up --plugstack none --nodes 3 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300
	install -m 755 "$DDP_BUILDDIR"/runtime/run/ddp-run "$DDP_BUILDDIR"/runtime/launch/ddp-exec "$TOP"
	export DDP_RUN=$TOP/ddp-run
	cat >"$WORK/rank.sh" <<-'END'
		# In the first attempt rank 1 does $1 when all ranks have started, and the other ranks sleep. The ranks print dots while
		# they wait, so that --hang does not end the attempt too early.
		echo "rank $RANK of $WORLD_SIZE restart $DDP_RESTART on $SLURMD_NODENAME $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS"
		[ "$DDP_RESTART" -eq 0 ] || exit 0
		touch "here.$RANK"
		until [ "$(ls here.* | wc -l)" -eq "$WORLD_SIZE" ]; do echo .; sleep 0.1; done
		[ "$RANK" -eq 1 ] || exec sleep 61
		sleep 0.5
		case $1 in
		kill) kill -9 $$ ;;
		stop) touch "$DDP_HEARTBEAT"; kill -STOP $$ ;;
		lose) until [ -e done.lost ]; do echo .; sleep 0.1; done; exec sleep 61 ;;
		esac
	END
	cat >"$WORK/fail-once.sh" <<-'END'
		# Prints $1, expanded. In the first attempt the ranks fail once both have printed, since a failure ends the other rank.
		eval "echo \"$1\""
		touch "here.$DDP_RESTART.$RANK"
		until [ -e "here.$DDP_RESTART.$((1 - RANK))" ]; do sleep 0.1; done
		exit $((1 - DDP_RESTART))
	END
	chmod 755 "$WORK"/*.sh
}

teardown_file() { cluster_down; }

teardown()
{
	[ -e "$WORK/lost" ] || end_jobs
	rm -rf "$WORK"/{.ddp,state} "$WORK"/{here,done}.* "$WORK"/*.out
}

# batch OPTION...: runs ddp-run in a batch job on 3 nodes. Sets $out to the job's output and $rc to ddp-run's exit status.
batch()
{
	printf '#!/bin/bash\n"%s" "$@"\necho $? >rc.tmp\nmv rc.tmp rc\n' "$DDP_RUN" >"$WORK/job"
	rm -f "$WORK/rc"
	mc sbatch -Q --no-kill -N3 -o job.out ./job "$@"
	within 300 test -e "$WORK/rc" || { cat "$WORK/job.out" >&2; return 1; }
	rc=$(<"$WORK/rc") out=$(<"$WORK/job.out")
	cp "$WORK/job.out" "$TOP/err"
}

# ranks SIZE ATTEMPT: prints the number of ranks that started in this attempt.
ranks() { grep -c "^rank . of $1 restart $2 on n. $2/3\$" <<<"$out"; }

# Checks that .ddp has the report and no other files.
expect_only_report() { has "$(ls -A "$WORK/.ddp")" '^failed-mini[0-9]+-[0-9]+\.0$' && same "$(find "$WORK/.ddp" -mindepth 1 -maxdepth 1 | wc -l)" 1; }

# bats test_tags=release
@test "a killed rank is named in the report, and a second attempt follows" {
	batch bash rank.sh kill
	same "$rc:$(ranks 3 0):$(ranks 3 1)" 0:3:3
	has "$out" '^rank 1 on n2, pid [0-9]+, failed first: killed by SIGKILL$'
	has "$out" '^next: started again'
	expect_only_report
	same "$(mc "$DDP_RUN" --explain "$WORK"/.ddp/failed-*)" "$(cat "$WORK"/.ddp/failed-*/report.txt)"
}

@test "with a read-only working directory the failure report is in the home directory" {
	need_root
	as_user mkdir -m 755 "$WORK/home"
	mkdir -m 755 "$TOP/closed"
	try mc env HOME="$WORK/home" sh -c 'cd "$0" && exec salloc -Q --no-kill -w n1 -N1 -n2 "$@"' "$TOP/closed" "$DDP_RUN" \
		sh -c 'echo $DDP_RESTART; [ $DDP_RESTART -gt 0 ] || [ $RANK -ne 1 ] || kill -9 $$; sleep 1'
	same "$rc" 0
	has_not "$err" 'cannot report|has no directory'
	has "$err" '^rank 1 on n1, pid [0-9]+, failed first: killed by SIGKILL$'
	has "$(ls "$WORK/home/.ddp")" '^failed-mini[0-9]+-[0-9]+\.0$'
	rm -rf "$WORK/home" "$TOP/closed"
}

@test "a stopped rank is detected as a hang and named, and a second attempt follows" {
	batch --hang 6 bash rank.sh stop
	same "$rc:$(ranks 3 0):$(ranks 3 1)" 0:3:3
	has "$out" '^ddp-run: step [0-9]+\.0 has had no output and no heartbeat for [0-9]+ s: ending it$'
	has "$out" '^rank 1 on n2, pid [0-9]+: it is stopped$'
	expect_only_report
}

@test "plugin options are passed to ddp-exec, and each attempt has another port" {
	batch -N2 -n2 --ddp-master-suffix=.fast --ddp-port 61000-65000 bash fail-once.sh '$DDP_RESTART $MASTER_ADDR $MASTER_PORT'
	same "$rc" 0
	same "$(grep -c '^0 n1\.fast 6[0-9]*$' <<<"$out"):$(grep -c '^1 n1\.fast 6[0-9]*$' <<<"$out")" 2:2
	same "$(grep '^[01] n1\.fast' <<<"$out" | cut -d ' ' -f 3 | sort -u | wc -l)" 2
}

@test "SIGTERM to ddp-run reaches each rank once, and no attempt follows" {
	# srun sends a signal, too, once a rank has failed. So each rank first waits until all ranks have received the signal.
	cat >"$WORK/term.sh" <<-'END'
		trap 'echo SIGTERM >>"here.$RANK"' TERM
		echo up >>"here.$RANK"
		until [ "$(grep -l SIGTERM here.? | wc -l)" -eq 3 ]; do sleep 0.1; done
		sleep 0.5
		trap '' TERM
		touch "done.$RANK"
		until [ "$(ls done.? | wc -l)" -eq 3 ]; do sleep 0.1; done
		exit 3
	END
	printf '#!/bin/bash\nexec %s bash term.sh\n' "$DDP_RUN" >"$WORK/job"
	id=$(mc sbatch --parsable -N3 -o term.out job)
	within 60 sh -c '[ "$(cat "$0"/here.? | wc -l)" -eq 3 ]' "$WORK"
	mc scancel --batch --signal=TERM "$id"
	within 60 gone "$id"
	same "$(cat "$WORK"/here.? | sort | uniq -c | xargs)" "3 SIGTERM 3 up"
}

@test "a missing program is not retried" {
	batch nosuch-program
	same "$rc" 127
	has "$out" '^execve\(\): nosuch-program: No such file or directory$'
	has "$out" '^next: stopped: it would fail in the same way again$'
	# srun may end other ranks before they have tried to start it.
	has "$out" '^ddp-exec: n[123]: cannot start nosuch-program: No such file or directory$'
}

@test "an error of ddp-exec is in the report" {
	port=$(mc scontrol show config | awk '$1 == "SlurmctldPort" { print $3 }')
	export MASTER_PORT=$port TMPDIR=$WORK
	batch --restarts 0 -N2 -n2 true
	unset MASTER_PORT TMPDIR
	same "$rc" 1
	has "$out" '^rank . on n., failed first: exit status 1$'
	has "$out" "^    ddp-exec: port $port of n1, where rank 0 runs, is in use by a process of user [0-9]+\. Unset MASTER_PORT, and a free port is chosen\.$"
}

@test "a step that every node would refuse is not started again" {
	MASTER_PORT=x batch -N2 -n2 touch ran
	same "$rc:$(grep -c '^ddp-run: step [0-9]*\.0 was refused, and a restart cannot help: MASTER_PORT=x of your environment' <<<"$out")" 1:1
	batch -N2 -n2 --ddp-share=most touch ran
	same "$rc:$(grep -c '^ddp-run: step [0-9]*\.0 was refused, and a restart cannot help: --ddp-share=most: choose one of' <<<"$out")" 2:1
	same "$(grep -c '^ddp-run' <<<"$out")" 1
	[ ! -e "$WORK/ran" ]
}

@test "--multi-prog, --ddp, and a missing ddp-exec are refused in one line" {
	try mc salloc -Q -n1 "$DDP_RUN" --multi-prog programs
	same "$rc:$err" "2:ddp-run: --multi-prog needs srun --ddp, which this srun does not have: start one program that chooses its task by RANK"
	try mc salloc -Q -n1 "$DDP_RUN" --ddp true
	same "$rc:$err" "2:ddp-run: remove --ddp: this srun does not have it, and ddp-run starts ddp-exec instead"
	mkdir "$TOP/alone"
	install -m 755 "$DDP_RUN" "$TOP/alone"
	try mc salloc -Q -n1 "$TOP/alone/ddp-run" true
	same "$rc:$err" "2:ddp-run: srun has no --ddp, and $TOP/alone/ddp-exec does not exist: install ddp-exec beside ddp-run, or the plugin of slurm-ddp"
}

has_checkpoint() { [ -n "$(find "$WORK/state" -name '*.safetensors' 2>/dev/null)" ]; }

@test "ddp-train: a killed rank is named, and training resumes from the checkpoint" {
	install_runtime
	DDP_RUN=$INST/bin/ddp-run
	(
		within 300 has_checkpoint
		read -r _ pid < <(cat "$WORK"/.ddp/failed-*/task-1)
		kill -9 "$pid"
	) 3>&- &
	batch -N2 -n2 ddp-train mnist --epochs 3 --samples 6000 --checkpoint state --checkpoint-steps 10
	wait
	same "$rc" 0
	# The words after the comma follow if srun reports the end of rank 0 more than a second earlier.
	has "$out" '^rank 1 on n2, pid [0-9]+, failed first: killed by SIGKILL(, other ranks name it)?$'
	has "$out" '^next: started again'
}

@test "attempts that end at once: their nodes are known, and a node that fails twice is replaced" {
	batch --spare-nodes 1 bash -c '[ "$SLURMD_NODENAME" != n2 ] || exit $((3 + DDP_RESTART)); [ "$DDP_RESTART" -lt 2 ] || exit 0; exec sleep 61'
	same "$rc" 0
	has "$out" '^ddp-run: node n2 is replaced: its ranks failed first in two attempts in a row$'
}

@test "ranks without a rendezvous directory: ddp-run still finds the step and restarts it" {
	# ddp-run refuses this working directory, because others can write to it. There is no home directory that could be used
	# instead.
	mkdir -m 777 "$WORK/open"
	chmod 777 "$WORK/open"
	export MASTER_ADDR=localhost USER_HOME=/nonexistent TMPDIR=$WORK/open
	batch -N2 -n2 --chdir=open bash ../fail-once.sh '$RANK at $DDP_RESTART, ${DDP_RENDEZVOUS-none}'
	unset MASTER_ADDR USER_HOME TMPDIR
	rm -r "$WORK/open"
	same "$rc" 0
	has "$out" '^ddp-run: step [0-9]+\.0, attempt 1 of 4, failed at '
	same "$(grep -c '^[01] at [01], none$' <<<"$out")" 4
}

# This is the last test, because a job that has lost a node stays in state completing for minutes.
# bats test_tags=release
@test "a lost node is detected by the probe, and training continues on the others" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	touch "$WORK/lost"
	(
		within 60 sh -c '[ "$(ls "$0"/here.* | wc -l)" -eq 3 ]' "$WORK"
		read -r _ pid < <(cat "$WORK"/.ddp/failed-*/task-2)
		stepd=$(ps -o ppid= "$pid")
		kill -9 "$(<"$MINICLUSTER_DIR/slurmd-n3.pid")" "${stepd// /}" "$pid"
		touch "$WORK/done.lost"
	) >/dev/null 3>&- &
	batch --hang 6 --min-nodes 2 bash rank.sh lose
	wait
	same "$rc" 0
	has "$out" '^ddp-run: node n3 does not answer$'
	same "$(ranks 3 0):$(ranks 2 1)" 3:2
}
