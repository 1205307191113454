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

# A script for the batch: two steps of one job, both on both nodes.
write_steps()
{
	cat >"$TOP/two-steps" <<'END'
#!/bin/bash
# two-steps DIR VALUE
export SLURM_DDP=1
run() { srun --exact -N2 -n2 --kill-on-bad-exit=1 "$PYTHON" "$PY/meet.py" "$@"; }
run "$1" a b "$2" & first=$!
run "$1" b a $(($2 + 1000000)) & second=$!
wait "$first"; first=$?
wait "$second" && exit "$first"
END
	chmod 755 "$TOP/two-steps"
}

# The two worlds are there, each complete, at two different ports.
apart()
{
	has "$1" '^a world 2 at '
	has "$1" '^b world 2 at '
	same "$(grep -c ' world ' <<<"$1")" 2
	same "$(grep -oE '[^ ]+$' <<<"$1" | sort -u | wc -l)" 2
}

two_steps()
{
	local i meeting
	write_steps
	for ((i = 0; i < rounds; i++)); do
		meeting=$(as_user mktemp -d "$TOP/tmp/meet.XXXXXX")
		output=$(mc salloc -Q -N2 --ntasks-per-node=2 "$TOP/two-steps" "$meeting" $((i * 1000)) \
			2>"$TOP/err") || { cat "$TOP/err" >&2; echo "$output" >&2; return 1; }
		note "$(sort <<<"$output" | paste -sd ' ')"
		apart "$output" || return 1
	done
}

two_jobs()
{
	local i meeting first second
	for ((i = 0; i < rounds; i++)); do
		meeting=$(as_user mktemp -d "$TOP/tmp/meet.XXXXXX")
		mc srun -N2 -n2 --ddp --kill-on-bad-exit=1 "$PYTHON" "$PY/meet.py" \
			"$meeting" a b $((i * 1000)) >"$TOP/a.out" 2>"$TOP/a.err" &
		first=$!
		mc srun -N2 -n2 --ddp --kill-on-bad-exit=1 "$PYTHON" "$PY/meet.py" \
			"$meeting" b a $((i * 1000 + 1000000)) >"$TOP/b.out" 2>"$TOP/b.err" &
		second=$!
		if ! wait "$first" || ! wait "$second"; then
			wait
			cat "$TOP"/[ab].err >&2
			return 1
		fi
		output=$(cat "$TOP/a.out" "$TOP/b.out")
		note "$(paste -sd ' ' <<<"$output")"
		apart "$output" || return 1
	done
}

reserved_up() { torch_up --nodes 2 --gpus 0; }

# Without MpiParams Slurm reserves nothing, so each port follows from the names of cluster, job
# and step: the same seed gives the same ports.
computed_up()
{
	note "seed $seed: cluster seed$seed, ports 64000-64999"
	torch_up --nodes 2 --gpus 0 --conf MpiParams= --conf "ClusterName=seed$seed" \
		--plugin-args ports=64000-64999
}

in_range() { has_not "$(grep -oE ':[0-9]+$' <<<"$output")" ':(6[0-35-9]|[1-57-9])'; }

@test "two steps of one job, and two jobs, at the same time: ports reserved by Slurm" {
	reserved_up
	two_steps
	two_jobs
	tidy
}

@test "two steps of one job, and two jobs, at the same time: ports computed" {
	computed_up
	two_steps
	in_range
	two_jobs
	in_range
	tidy
}
