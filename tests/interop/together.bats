# SPDX-License-Identifier: Apache-2.0
# Worlds at the same time on the same nodes: no collision of ports, no message astray.
# DDP_ROUNDS says how often (1), DDP_SEED which ports are computed (1): with one seed they are
# always the same, so do not run this file twice at once on one machine.

load ../cluster/lib
load torch

teardown() { [ -z "${TOP-}" ] || cluster_down; }

rounds=${DDP_ROUNDS:-1}
seed=${DDP_SEED:-1}

# What bats prints on its own lines, passed or failed.
note() { printf '# %s\n' "$*" >&3; }

meet="srun --exact -N2 -n2 --ddp --kill-on-bad-exit=1 $PYTHON"

# Two steps of one job and a step of another, all on both nodes: each world is complete, at a port of its own.
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

# Without MpiParams Slurm reserves nothing, so each port follows from the names of cluster, job
# and step: the same seed gives the same ports.
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
