#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train --virtual-ranks under ddp-run: a training that loses nodes continues on the remaining nodes, and its weights are
# bit-equal to those of a training without losses.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

# SlurmdTimeout is long, so that Slurm does not detect a lost node during the test.
options=(--nodes 4 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300)

setup_file()
{
	cluster_up "${options[@]}"
	install_runtime
	# A busy machine needs minutes for a training.
	export MC_SECONDS=600
}

teardown_file() { cluster_down; }

setup() { [ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"; }

teardown()
{
	[ -n "$BATS_TEST_COMPLETED" ] || cat "$WORK/job.out" >&2
	restart_cluster "${options[@]}" || return
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# victim ATTEMPT: prints the process id and the node of rank 2 in this attempt.
victim() { ranks | awk -v attempt="$1" '$2 == 2 && $3 == attempt { print $1, $4; found = 1 } END { exit !found }'; }

has_newer() { find "$WORK/state" -name 'checkpoint-*.safetensors' -newer "$TOP/started" 2>/dev/null | grep -q .; }

# lose_in ATTEMPT: waits until this attempt has written a checkpoint. Then kills rank 2, and slurmstepd and slurmd of its node.
lose_in()
{
	local pid node
	within 300 victim "$1" >/dev/null
	touch "$TOP/started"
	within 300 has_newer
	read -r pid node < <(victim "$1")
	pkill -KILL -f "^slurmd .*$MINICLUSTER_DIR/.* -N $node$"
	kill -9 "$(ps -o ppid= "$pid" | tr -d ' ')" "$pid"
	echo "$node" >>"$TOP/lost"
}

# survives LOST OPTION...: trains twice: with one rank, and on four nodes, of which LOST nodes are killed one after the other. The
# weights must be the same.
survives()
{
	local lost=$1 attempt
	shift
	: >"$TOP/lost"
	mc srun -N1 -n1 --ddp ddp-train "$@" --virtual-ranks 12 -q -m undisturbed
	printf '#!/bin/bash\nexec ddp-run --hang 60 --min-nodes 2 ddp-train %s --virtual-ranks 12 -q -c state --checkpoint-steps 2 -m model\n' "$*" \
		>"$WORK/job"
	mc sbatch -Q -W --no-kill -N4 -o job.out job &
	local job=$!
	for ((attempt = 0; attempt < lost; attempt++)); do
		lose_in "$attempt"
	done
	wait "$job"
	same "$(wc -l <"$TOP/lost")" "$lost"
	for node in $(<"$TOP/lost"); do
		has "$(<"$WORK/job.out")" "node $node does not answer"
	done
	same "$(sed -n 's/.*"next_ranks": \([0-9]\).*/\1/p' "$WORK"/.ddp/failed-*/report.json | sort -r)" "$(seq 3 -1 $((4 - lost)))"
	cmp "$WORK/undisturbed" "$WORK/model"
}

@test "mnist on four nodes, then three; after a requeue, as two are too few, on four again: the same weights" {
	: >"$TOP/lost"
	mc srun -N1 -n1 --ddp ddp-train mnist --samples 960 -e 4 -b 4 --seed 3 --virtual-ranks 12 -q -m undisturbed
	cat >"$WORK/job" <<-'END'
		#!/bin/bash
		ddp-run --requeue --hang 60 --min-nodes 3 sh -c 'echo "started by $WORLD_SIZE"; exec ddp-train "$@"' - \
			mnist --samples 960 -e 4 -b 4 --seed 3 --virtual-ranks 12 -q -c state --checkpoint-steps 2 -m model && echo "well done"
	END
	mc sbatch -Q --requeue --no-kill --open-mode=append -N4 -o job.out job
	lose_in 0
	lose_in 1
	within 300 grep -q 'is requeued$' "$WORK/job.out"
	for node in $(<"$TOP/lost"); do
		start_slurmd "$node"
	done
	within 300 grep -q '^well done$' "$WORK/job.out"
	# slurmctld could not deliver the signals for step 0 of the first run to the lost nodes. They may end step 0 of the second
	# run.
	same "$(grep '^started by ' "$WORK/job.out" | uniq)" $'started by 4\nstarted by 3\nstarted by 4'
	cmp "$WORK/undisturbed" "$WORK/model"
}

# MNIST tests dropout. ResNet-18 tests augmentation and BatchNorm.
@test "mnist on four nodes, then three: the same weights" { survives 1 mnist --samples 960 -e 4 -b 4 --seed 3; }

@test "ResNet-18 on four nodes, then three, then two: the same weights" { survives 2 cifar --samples 120 -e 2 -b 2 --seed 3; }
