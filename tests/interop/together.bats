# SPDX-License-Identifier: Apache-2.0
# Several worlds run at the same time on the same nodes. Their ports must differ, and no message may
# reach another world.
# DDP_ROUNDS is the number of rounds [1]. DDP_SEED selects the computed ports [1]. The same seed
# gives the same ports, so do not run this file twice at the same time on one machine.

load ../cluster/lib
load torch

teardown() { [ -z "${TOP-}" ] || cluster_down; }

rounds=${DDP_ROUNDS:-1}
seed=${DDP_SEED:-1}

# Prints a separate line in bats' output.
note() { printf '# %s\n' "$*" >&3; }

meet="srun --exact -N2 -n2 --ddp --kill-on-bad-exit=1 $PYTHON"

# Runs two steps of one job, and a step of another job, at the same time on both nodes. Each world
# must be complete, and each must have its own port.
at_once()
{
	local i meeting steps step
	for ((i = 0; i < rounds; i++)); do
		meeting=$(as_user mktemp -d "$TOP/tmp/meet.XXXXXX")
		step="$meet $PY/meet.py $meeting"
		mc salloc -Q -N2 --ntasks-per-node=2 bash -c \
			"$step $((i * 1000)) a b c & $step $((i * 1000 + 1000000)) b a c && wait \$!" \
			>"$TOP/steps.out" 2>"$TOP/steps.err" &
		steps=$!
		# shellcheck disable=SC2086 # words
		if ! mc $step $((i * 1000 + 2000000)) c a b >"$TOP/c.out" 2>"$TOP/c.err" || ! wait "$steps"; then
			wait
			cat "$TOP"/{steps,c}.err >&2
			return 1
		fi
		output=$(cat "$TOP/steps.out" "$TOP/c.out")
		note "$(sort <<<"$output" | paste -sd ' ')"
		same "$(grep -oE '^[abc] world 2 at ' <<<"$output" | sort | tr -d '\n')" \
			"a world 2 at b world 2 at c world 2 at " || return 1
		same "$(grep -oE '[^ ]+$' <<<"$output" | sort -u | wc -l)" 3 || return 1
	done
}

reserved_up() { torch_up --nodes 2 --gpus 0; }

# Starts a cluster without MpiParams, on which Slurm reserves no ports. So each port is computed
# from the names of cluster, job and step, and the same seed gives the same ports.
computed_up()
{
	note "seed $seed: cluster seed$seed, ports 30000-32766"
	torch_up --nodes 2 --gpus 0 --conf MpiParams= --conf "ClusterName=seed$seed" \
		--plugin-args ports=30000-32766
}

@test "two steps of one job and a step of another at the same time: ports reserved by Slurm" {
	reserved_up
	at_once
	tidy
}

@test "two steps of one job and a step of another at the same time: ports computed" {
	computed_up
	at_once
	has_not "$(grep -oE ':[0-9]+$' <<<"$output")" ':([^3]|3[^0-2])'
	tidy
}
