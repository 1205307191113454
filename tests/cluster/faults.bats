#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Faults at random moments of a training under ddp-run: it ends well each time, with the weights of one that nobody
# disturbed, to the bit. A few of each kind; a hundred in all with DDP_LONG.
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
	# What the user has in a home directory is not looked at.
	export XDG_CACHE_HOME=$WORK/.cache
	: >"$TOP/stopped"
	mc srun -N1 -n1 --ddp "${training[@]}" -m undisturbed
}

teardown_file() { cluster_down; }

setup() { RANDOM=$((${DDP_SEED:-$$} % 32768)); }

# A slurmstepd that was stopped is in nobody's way but ours, and for Slurm a lost node is busy for minutes.
begin_again()
{
	xargs -r kill -9 <"$TOP/stopped" 2>/dev/null || true
	restart_cluster "${options[@]}" || return
	rm -rf "$WORK"/{state,model,rc,job.out,.ddp}
	: >"$TOP/stopped"
}

teardown()
{
	[ -n "$BATS_TEST_COMPLETED" ] || cat "$TOP/faults" "$WORK/job.out" >&3
	begin_again
}

over() { [ -e "$WORK/rc" ]; }

is_there() { over || [ -n "$(ranks)" ]; }
is_newer() { over || ranks | awk -v attempt="$1" '$3 > attempt { found = 1 } END { exit !found }'; }
has_saved() { over || find "$WORK/state" -name 'checkpoint-*.safetensors' -newer "$TOP/fault" 2>/dev/null | grep -q .; }

parent() { ps -o ppid= "$1" | tr -d ' '; }

# fault KIND: to one of the ranks by chance, or its daemons; what it was goes into $TOP/faults. Fails where nobody is there.
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
	printf '#!/bin/bash\nexport DDP_CHECKPOINT=state\nddp-run --restarts 99 --hang 3 --min-nodes 1 %s -c state --checkpoint-steps 2 -m model\necho $? >rc.tmp\nmv rc.tmp rc\n' \
		"${training[*]}" >"$WORK/job"
	mc sbatch -Q --no-kill -N4 -o job.out job
}

# Three kinds may take three of the four nodes.
#
# survives KIND...: a training with these faults, some of them while the one before is being dealt with. It may be over before
# the last of them; most must have happened.
survives()
{
	local kind last=-1 unsaved=0
	submit
	for kind; do
		((RANDOM % 4 == 0)) || within 90 is_newer "$last"
		sleep "$((RANDOM % 2)).$((RANDOM % 10))"
		# Attempts that leave no newer checkpoint are no progress, and the third in a row is the last.
		if has_saved; then
			unsaved=0
		elif ((unsaved == 0)); then
			unsaved=1
		else
			within 90 has_saved
			unsaved=0
		fi
		within 90 is_there
		! over || break
		fault "$kind" || true
	done
	within 120 over
	cat "$TOP/faults" >&3
	[ "$(wc -l <"$TOP/faults")" -ge $((($# * 2 + 2) / 3)) ]
	same "$(<"$WORK/rc")" 0
	cmp "$WORK/undisturbed" "$WORK/model"
	blamed
}

# A rank that was killed, and nothing else in its attempt, is the one that the report names first, with its signal.
blamed()
{
	python3 - "$WORK" "$TOP/faults" <<-'END'
		import collections, glob, json, re, sys
		told = {}
		for name in glob.glob(sys.argv[1] + "/.ddp/failed-*/report.json"):
		    report = json.load(open(name))
		    told[report["attempt"]] = report["first"]
		faults = collections.defaultdict(list)
		for line in open(sys.argv[2]):
		    kind, rank, attempt = re.search(r" (\S+): rank (\d+) of attempt (\d+)", line).groups()
		    faults[int(attempt)].append((kind, int(rank)))
		for attempt, of in faults.items():
		    if of == [("rank", of[0][1])]:
		        first = told[attempt]
		        assert (first["rank"], first["signal"]) == (of[0][1], "SIGKILL"), (attempt, of, first)
	END
}

# A training with one fault of each kind, in an order by chance.
survives_all()
{
	local kinds
	mapfile -t kinds < <(shuf -e rank stop stepd stepd-stop slurmd-stop slurmd node --random-source=<(yes "$RANDOM"))
	survives "${kinds[@]}"
}

@test "a slurmstepd is killed as its rank begins, which Slurm never takes for over: the next attempt does not wait for that" {
	submit
	within 90 is_there
	fault stepd
	within 90 is_newer 0
	within 120 over
	same "$(<"$WORK/rc")" 0
	cmp "$WORK/undisturbed" "$WORK/model"
}

@test "one of each kind" { survives_all; }

@test "a hundred" {
	[ -n "${DDP_LONG-}" ] || skip "takes half an hour: DDP_LONG=1"
	for _ in {1..17}; do
		survives_all
		begin_again
	done
}
