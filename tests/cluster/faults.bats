#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Faults at random moments of a training under ddp-run. Each training must finish, with weights that are bit-equal to those of a
# training without faults. A run has some faults of each kind; with DDP_LONG it has more than a hundred.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

options=(--nodes 4 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300)
training=(ddp-train mnist --samples 1920 -e 6 -b 4 --seed 3 --virtual-ranks 12 -q)

setup_file()
{
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	cluster_up "${options[@]}"
	install_runtime
	# A busy machine needs minutes for a training.
	export MC_SECONDS=600
	: >"$TOP/stopped"
	mc srun -N1 -n1 --ddp "${training[@]}" -m undisturbed
}

teardown_file() { cluster_down; }

setup() { RANDOM=$((${DDP_SEED:-$$} % 32768)); }

# Replaces the cluster, since Slurm keeps a lost node busy for minutes. Stopped slurmstepds are killed, because minicluster cannot
# stop them.
reset_cluster()
{
	xargs -r kill -9 <"$TOP/stopped" 2>/dev/null || true
	restart_cluster "${options[@]}" || return
	rm -rf "$WORK"/{state,model,rc,job.out,.ddp}
	: >"$TOP/stopped"
}

teardown()
{
	[ -n "$BATS_TEST_COMPLETED" ] || { cat "$TOP/faults"; tail -n 40 "$WORK/job.out"; } >&3
	reset_cluster
}

has_ended() { [ -e "$WORK/rc" ]; }

has_ranks() { has_ended || [ -n "$(ranks)" ]; }
has_newer_attempt() { has_ended || ranks | awk -v attempt="$1" '$3 > attempt { found = 1 } END { exit !found }'; }
has_saved() { has_ended || find "$WORK/state" -name 'checkpoint-*.safetensors' -newer "$TOP/fault" 2>/dev/null | grep -q .; }

parent() { ps -o ppid= "$1" | tr -d ' '; }

# fault KIND: applies a fault to a random rank or to the daemons of its node, and appends it to $TOP/faults. Fails if there is no
# rank.
fault()
{
	local kind=$1 pid rank attempt node
	read -r pid rank attempt node < <(ranks | shuf -n 1 --random-source=<(yes $RANDOM)) || return
	case $kind in
	rank) kill -9 "$pid" ;;
	stop) kill -STOP "$pid" ;;
	stepd) kill -9 "$(parent "$pid")" ;;
	stepd-stop)
		parent "$pid" >>"$TOP/stopped"
		kill -STOP "$(parent "$pid")"
		kill -9 "$pid"
		;;
	slurmd-stop)
		kill -STOP "$(cat "$MINICLUSTER_DIR/slurmd-$node.pid")"
		(sleep 15; kill -CONT "$(cat "$MINICLUSTER_DIR/slurmd-$node.pid")") 3>&- &
		kill -9 "$pid"
		;;
	slurmd) kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-$node.pid")" "$pid" ;;
	node)
		kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-$node.pid")" "$(parent "$pid")" "$pid"
		;;
	esac 2>/dev/null || return
	touch "$TOP/fault"
	echo "$(date +%T) $kind: rank $rank of attempt $attempt on $node" >>"$TOP/faults"
	last=$attempt
}

submit()
{
	: >"$TOP/faults"
	touch "$TOP/fault"
	printf '#!/bin/bash\nexport DDP_CHECKPOINT=state\nddp-run --restarts 99 --hang 10 --min-nodes 1 %s -c state --checkpoint-steps 2 -m model\necho $? >rc.tmp\nmv rc.tmp rc\n' \
		"${training[*]}" >"$WORK/job"
	mc sbatch -Q --no-kill -N4 -o job.out job
}

# survives KIND...: trains with these faults, one after the other. A fault may come while ddp-run still handles the previous one.
# Up to three of the four nodes can be lost. The training may finish before the last faults, but two thirds of the faults must
# have happened.
survives()
{
	local kind last=-1 unsaved=0
	submit
	for kind; do
		((RANDOM % 4 == 0)) || within 300 has_newer_attempt "$last"
		sleep "$((RANDOM % 2)).$((RANDOM % 10))"
		# ddp-run stops after three successive attempts without a new checkpoint.
		if has_saved; then
			unsaved=0
		elif ((unsaved == 0)); then
			unsaved=1
		else
			within 300 has_saved
			unsaved=0
		fi
		within 300 has_ranks
		! has_ended || break
		fault "$kind" || true
	done
	within 300 has_ended
	cat "$TOP/faults" >&3
	[ "$(wc -l <"$TOP/faults")" -ge $((($# * 2 + 2) / 3)) ]
	same "$(<"$WORK/rc")" 0
	cmp "$WORK/undisturbed" "$WORK/model"
	check_reports
}

# Checks the reports of attempts whose only fault was a killed rank. They must name this rank as the first to fail, with its
# signal. Attempts with a node that did not answer are left out: a slurmd stopped in the attempt before is a second fault.
check_reports()
{
	python3 - "$WORK" "$TOP/faults" <<-'END'
		import collections, glob, json, re, sys
		reported = {}
		for name in glob.glob(sys.argv[1] + "/.ddp/failed-*/report.json"):
		    report = json.load(open(name))
		    reported[report["attempt"]] = report
		faults = collections.defaultdict(list)
		for line in open(sys.argv[2]):
		    kind, rank, attempt = re.search(r" (\S+): rank (\d+) of attempt (\d+)", line).groups()
		    faults[int(attempt)].append((kind, int(rank)))
		for attempt, injected in faults.items():
		    if injected == [("rank", injected[0][1])] and not any(n["silent"] for n in reported[attempt]["nodes_concerned"]):
		        first = reported[attempt]["first"]
		        assert (first["rank"], first["signal"]) == (injected[0][1], "SIGKILL"), (attempt, injected, first)
	END
}

# Trains with one fault of each kind, in random order.
survives_all()
{
	local kinds
	mapfile -t kinds < <(shuf -e rank stop stepd stepd-stop slurmd-stop slurmd node --random-source=<(yes "$RANDOM"))
	survives "${kinds[@]}"
}

@test "a slurmstepd killed as its rank starts: the next attempt starts, though Slurm never ends the step" {
	submit
	within 300 has_ranks
	fault stepd
	within 300 has_newer_attempt 0
	within 300 has_ended
	same "$(<"$WORK/rc")" 0
	cmp "$WORK/undisturbed" "$WORK/model"
}

@test "a training survives one fault of each kind, with bit-equal weights" { survives_all; }

@test "trainings survive a hundred faults, with bit-equal weights" {
	[ -n "${DDP_LONG-}" ] || skip "takes half an hour: DDP_LONG=1"
	for _ in {1..17}; do
		survives_all
		reset_cluster
	done
}
