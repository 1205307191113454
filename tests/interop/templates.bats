# SPDX-License-Identifier: Apache-2.0
# The job templates, submitted as a user would: from a copy in a separate directory or, for PyTorch,
# with the examples in the installation's directory.
#
# shellcheck disable=SC2154 # rc and err come from try

load ../cluster/lib
load torch

setup_file()
{
	torch_up --nodes 3 --cpus 8 --gpus 2 --shards 8
	mkdir -m 755 "$WORK/job-templates"
	cp "$DDP_SRCDIR"/job-templates/*.job "$WORK/job-templates"
	"$DDP_BUILDDIR/libtool" --quiet --mode=install install -m 755 \
		"$DDP_BUILDDIR/job-templates/ddp-ranks" "$DDP_BUILDDIR/runtime/run/ddp-run" "$WORK/job-templates/"
	install -m 755 -d "$TOP/prefix/bin"
	install -m 755 "$WORK"/job-templates/ddp-r* "$TOP/prefix/bin"
	[ "$(id -u)" -ne 0 ] || chown -R nobody "$WORK/job-templates"
	make -C "$DDP_BUILDDIR/job-templates" install-data \
		jobtemplatedir="$TOP/prefix/share/slurm-ddp/job-templates" >"$TOP/install.log" 2>&1
	INSTALLED=$TOP/prefix/share/slurm-ddp/job-templates
	export INSTALLED
}

teardown_file() { cluster_down; }

teardown()
{
	end_jobs
	rm -f "$WORK"/*.out "$WORK"/*.pt
	# The steps leave only the job's output.
	same "$(ls -A "$WORK")" job-templates
}

# submit [OPTION...] TEMPLATE [ARGUMENT...]: submits a job, waits until it has ended, and returns
# its exit status. Sets $output to its output. (sbatch --wait polls at growing intervals.)
submit()
{
	local id deadline=$((SECONDS + MC_SECONDS)) job=''
	id=$(mc sbatch --parsable "$@") || return 1
	until [[ $job =~ JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL) ]]; do
		((SECONDS < deadline)) || { echo "not ended in $MC_SECONDS s: $job" >&2; return 1; }
		sleep 0.1
		job=$(mc scontrol show job "$id")
	done
	output=$(cat "$WORK"/*-"$id".out)
	[[ $job =~ ExitCode=0:0 ]] && return 0
	printf 'job %s failed:\n%s\n' "$id" "$output" >&2
	[[ $job =~ ExitCode=([1-9][0-9]*):0 ]] && return "${BASH_REMATCH[1]}"
	return 1
}

# Prints the table of ranks with single spaces, and without the endpoint, which has an address and a
# port.
table()
{
	has_not "$(tail -n +3 <<<"$output" | grep -vE ' 127\.0\.0\.1:[1-9][0-9]{3,4}$')" .
	sed -E '1s/^[^:]*/JOB/; 2,$s/ *[^ ]+$//; s/^ +//; s/ +/ /g' <<<"$output"
}

@test "ddp.job" {
	submit job-templates/ddp.job ddp-ranks
	same "$(table)" "JOB: 2 ranks on 2 nodes
rank node local rank device share
0 n1 0 - -
1 n2 0 - -"
}

@test "ddp.job by bash, in an allocation without --cpus-per-task" {
	try mc salloc -N2 bash job-templates/ddp.job ddp-ranks
	same "$rc" 0
	has "$out" '2 ranks on 2 nodes'
}

@test "elastic.job with --gres=gpu:2: a rank for each GPU" {
	submit --nodes=3 --gres=gpu:2 job-templates/elastic.job sh -c 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $OMP_NUM_THREADS"'
	same "$(sort <<<"$output")" "0 4 0 2
1 4 1 2
2 4 0 2
3 4 1 2"
}

@test "ddp.job with --gres=gpu:2: a rank for each GPU" {
	submit --gres=gpu:2 job-templates/ddp.job ddp-ranks
	same "$(table)" "JOB: 4 ranks on 2 nodes
rank node local rank device share
0 n1 0 0 1
1 n1 1 1 1
2 n2 0 0 1
3 n2 1 1 1"
}

@test "ddp.job with --gres=gpu:2 --ntasks-per-node=1: the number of ranks that the user requests" {
	submit --gres=gpu:2 --ntasks-per-node=1 job-templates/ddp.job ddp-ranks
	has "$output" '2 ranks on 2 nodes'
}

@test "ddp.job with fewer cores than GPUs: the message names the missing option" {
	local status=0
	submit --gres=gpu:2 --cpus-per-task=1 job-templates/ddp.job ddp-ranks 2>/dev/null || status=$?
	same "$status" 1
	same "$output" 'ddp: 2 ranks and 1 cores on a node; submit with --cpus-per-task=8'
}

@test "an installation that is not in PATH: ddp.job finds its programs" {
	submit --chdir=/ --output="$WORK/%x-%j.out" "$INSTALLED/ddp.job" ddp-ranks
	has "$output" '2 ranks on 2 nodes'
}

@test "a template that was copied alone runs the example of the installation in PATH" {
	mkdir "$WORK/alone"
	cp "$INSTALLED/torch-ddp.job" "$WORK/alone"
	[ "$(id -u)" -ne 0 ] || chown -R nobody "$WORK/alone"
	PATH=$TOP/prefix/bin:$PATH submit --nodes=1 --gres=gpu:1 alone/torch-ddp.job
	rm -r "$WORK/alone"
	has "$output" '^ok world=1 sum=0$'
}

@test "ddp-shard.job with two ranks on each GPU" {
	submit --gres=shard:4 --ntasks-per-node=2 job-templates/ddp-shard.job ddp-ranks
	same "$(table)" "JOB: 4 ranks on 2 nodes
rank node local rank device share
0 n1 0 0 0.5
1 n1 1 0 0.5
2 n2 0 0 0.5
3 n2 1 0 0.5"
}

@test "ddp-shard.job with unmodified PyTorch, four ranks on one GPU: gloo" {
	submit --nodes=1 --gres=shard:4 --ntasks-per-node=4 job-templates/ddp-shard.job \
		"$PYTHON" "$INSTALLED/torch-ddp.py" --backend gloo --epochs 1
	has "$output" '^epoch 0: loss '
	has "$output" '^ok world=4 sum=6$'
}

# on_cpus TEMPLATE OPTION...: copies TEMPLATE and edits the copy for nodes without GPUs, as the
# template's comment describes. Prints the copy's path.
on_cpus()
{
	local copy=$INSTALLED/cpu-${1##*/}
	sed "s/^#SBATCH --cpus-per-gpu=.*/#SBATCH ${*:2}/" "$1" >"$copy"
	grep -q "^#SBATCH ${*:2}\$" "$copy"
	echo "$copy"
}

@test "torch-ddp.job" {
	submit --gres=gpu:2 "$INSTALLED/torch-ddp.job"
	has "$output" '^epoch 2: loss 0\.[0-9]+, accuracy (9[0-9]\.[0-9]|100\.0) %$'
	has "$output" '^ok world=4 sum=6$'
	test -s "$WORK/torch-ddp.pt"
}

@test "torch-ddp.py writes its checkpoint through a link, and refuses a FIFO" {
	local run=(srun -n1 --ddp "$PYTHON" "$INSTALLED/torch-ddp.py" --backend gloo --epochs 1 --checkpoint)
	as_user ln -s target.pt "$WORK/link.pt"
	try mc "${run[@]}" link.pt
	same "$rc" 0
	[ -L "$WORK/link.pt" ]
	[ -s "$WORK/target.pt" ]
	as_user mkfifo "$WORK/fifo.pt"
	try mc "${run[@]}" fifo.pt
	same "$rc" 2
	has "$err" 'error: --checkpoint fifo.pt is not a file$'
	[ -p "$WORK/fifo.pt" ]
}

@test "torch-ddp.job with a program and its arguments" {
	submit "$(on_cpus "$INSTALLED/torch-ddp.job" --ntasks-per-node=2 --cpus-per-task=1)" -c 'import os, sys; print(os.environ["RANK"], sys.argv[1:])' \
		--epochs 1
	same "$(sort <<<"$output")" "0 ['--epochs', '1']
1 ['--epochs', '1']
2 ['--epochs', '1']
3 ['--epochs', '1']"
}

@test "torch-file.job" {
	submit --gres=gpu:2 "$INSTALLED/torch-file.job"
	has "$output" '^form method: loss 0\.0'
	has "$output" '^form file: loss 0\.0'
	same "$(grep -cx 'ok world=4 sum=6' <<<"$output")" 2
}

@test "torch-spawn.job" {
	submit "$(on_cpus "$INSTALLED/torch-spawn.job" --cpus-per-task=4)"
	threads=$(getconf _NPROCESSORS_ONLN)
	threads=$((threads < 4 ? 1 : 2))
	has "$output" "^2 nodes, 2 ranks on each, $threads threads in each: loss 0\.0"
	has "$output" '^ok world=4 sum=6$'
}

@test "torchrun.job with --gres=gpu:2" {
	torchrun_works
	submit --gres=gpu:2 "$INSTALLED/torchrun.job"
	has "$output" '^ok world=4 sum=6$'
}
