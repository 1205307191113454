# SPDX-License-Identifier: Apache-2.0
# Each form of the plugin's line in plugstack.conf: optional, required, and with arguments. Also a plugin that is missing, that
# was built for another Slurm release, or that is installed only on the submit host or only on the nodes.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	# Two GPUs cannot divide 7 shards evenly, and Slurm reserves no ports. So the plugin needs shards_per_gpu= and ports=.
	cluster_up --nodes 2 --gpus 2 --shards 7 --conf MpiParams=
	cp "$MINICLUSTER_DIR/plugstack.conf" "$TOP/plugstack.conf"
	# A second slurm.conf, whose plugstack.conf applies to srun only.
	sed "s|^PlugStackConfig=.*|PlugStackConfig=$TOP/submit-plugstack.conf|" "$MINICLUSTER_DIR/slurm.conf" >"$TOP/submit.conf"
}

teardown_file() { cluster_down; }

teardown()
{
	cp "$TOP/plugstack.conf" "$MINICLUSTER_DIR/plugstack.conf"
	rm -rf "${WORK:?}"/* "$WORK"/.ddp "$TOP"/p-* "$TOP"/plugstack.conf.d
}

# plugstack LINE...: writes plugstack.conf. submit_plugstack LINE...: writes a plugstack.conf that only commands run by submit
# read.
plugstack() { printf '%s\n' "$@" >"$MINICLUSTER_DIR/plugstack.conf"; }
submit_plugstack() { printf '%s\n' "$@" >"$TOP/submit-plugstack.conf"; }
submit() { mc env SLURM_CONF="$TOP/submit.conf" "$@"; }
count_lines() { grep -c "$2" <<<"$1" || true; }

# Waits, because a node is idle only after it has reported that the last job ended.
nodes_are_idle() { within 60 all_nodes_are_idle; }
all_nodes_are_idle() { same "$(mc sinfo -h -N -o '%N %t %E' | sort)" "n1 idle none
n2 idle none"; }

# Checks that srun and sbatch without --ddp work, and that the plugin sets and prints nothing.
plain_works()
{
	try mc srun -N2 sh -c 'echo "${RANK-UNSET} ${DDP_ERROR-UNSET}"'
	same "$rc:$err" "0:"
	same "$out" "UNSET UNSET
UNSET UNSET"
	try mc sbatch -W -o job.out --wrap 'echo batch; srun echo step; srun -N1 false; echo "status $?"'
	same "$rc:$err" "0:"
	same "$(not_waiting <"$WORK/job.out" | grep -v '^srun: error: n.: task 0: Exited with exit code 1$')" "batch
step
status 1"
	within 60 no_jobs
	nodes_are_idle
}

expect_ranks() { same "$(sort <<<"$out")" "0@n1 RANK=0 WORLD_SIZE=2 DDP_ERROR=UNSET
1@n2 RANK=1 WORLD_SIZE=2 DDP_ERROR=UNSET"; }

refusal=(RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT)
unset_all="RANK=UNSET WORLD_SIZE=UNSET LOCAL_RANK=UNSET MASTER_ADDR=UNSET MASTER_PORT=UNSET"

# --- arguments -------------------------------------------------------------------------

@test "required: a plain srun and a --ddp step work" {
	plugstack "required $TOP/ddp.so"
	plain_works
	try mc srun -N2 --ddp "$SHOW" RANK WORLD_SIZE DDP_ERROR
	same "$rc:$err" "0:"
	expect_ranks
}

@test "a wrong argument, optional: no effect without --ddp; with it one message and DDP_ERROR instead of ranks" {
	for argument in nonsense nonsense=1 ports=abc ports ports= 'rdzv=a?b' master_suffix=a/b local_rank=x share=x shards_per_gpu=0 shards_per_gpu=x; do
		plugstack "optional $TOP/ddp.so $argument"
		try mc srun -N2 true
		same "$rc:$out:$err" "0::"
		try mc srun -N2 --ddp "$SHOW" "${refusal[@]}"
		same "$rc" 0
		same "$(sort <<<"$out")" "0@n1 $unset_all
1@n2 $unset_all"
		same "$(wc -l <<<"$err")" 1
		has "$err" "^srun: error: ddp: disabled, since its line in plugstack.conf on this host is wrong: .*${argument%%=*}.*; tell your administrator$"
	done
	plain_works
	try mc srun --ddp sh -c 'echo "$DDP_ERROR"'
	same "srun: error: ddp: $out" "$err"
	try mc env SLURM_DDP=1 srun "$SHOW" RANK
	same "${out#*@n? }" RANK=UNSET
	same "$(wc -l <<<"$err")" 1
}

@test "a wrong argument, required: no effect without --ddp; with it one message and a failed srun" {
	plugstack "required $TOP/ddp.so nonsense=1"
	plain_works
	try mc srun -N2 --ddp touch ran
	same "$rc:$out" "1:"
	same "$(count_lines "$err" 'error: ddp:')" 1
	has "$err" '^srun: error: ddp: disabled, since its line in plugstack.conf on this host is wrong: there is no argument "nonsense=1"; .*; tell your administrator$'
	[ ! -e "$WORK/ran" ]
	try mc sbatch -W -o job.out --ddp --wrap 'srun -N1 touch ran; echo "status $?"'
	same "$rc" 0
	same "$(tail -n 1 "$WORK/job.out")" "status 1"
	[ ! -e "$WORK/ran" ]
	within 60 no_jobs
	nodes_are_idle
}

# precedence ARGUMENT VARIABLE OPTION EXPECTED SRUN_OPTIONS VARIABLES VALUES: sets a value in plugstack.conf, then another one in
# the environment, then a third one on the command line. Each must override the previous one. EXPECTED and VALUES are separated by
# "|".
precedence()
{
	local name=$1 variable=$2 option=$3 expected=$4 step=$5 variables=$6
	local -a want values
	IFS='|' read -r -a want <<<"$expected"
	IFS='|' read -r -a values <<<"$7"
	plugstack "optional $TOP/ddp.so $name=${values[0]}"
	# shellcheck disable=SC2086
	{
		try mc srun $step --ddp "$SHOW" $variables
		same "$rc:$err" "0:"
		has "$out" "^${want[0]}$"
		try mc env "$variable=${values[1]}" srun $step --ddp "$SHOW" $variables
		same "$rc:$err" "0:"
		has "$out" "^${want[1]}$"
		try mc env "$variable=${values[1]}" srun $step --ddp "$option=${values[2]}" "$SHOW" $variables
		same "$rc:$err" "0:"
		has "$out" "^${want[2]}$"
	}
}

@test "rdzv= in plugstack.conf is overridden by the environment, and that by the command line" {
	precedence rdzv SLURM_DDP_RDZV --ddp-rdzv \
		"0@n. DDP_RENDEZVOUS=$WORK/a/\.ddp/.*|0@n. DDP_RENDEZVOUS=$WORK/b/\.ddp/.*|0@n. DDP_RENDEZVOUS=$WORK/c/\.ddp/.*" \
		-N1 DDP_RENDEZVOUS "$WORK/a|$WORK/b|$WORK/c"
}

@test "master_suffix= in plugstack.conf is overridden by the environment, and that by the command line" {
	precedence master_suffix SLURM_DDP_MASTER_SUFFIX --ddp-master-suffix \
		"0@n2 MASTER_ADDR=n2-a|0@n2 MASTER_ADDR=n2-b|0@n2 MASTER_ADDR=n2-c" "-w n2" MASTER_ADDR "-a|-b|-c"
}

# NCCL_MULTI_RANK_GPU_ENABLE=1 suppresses the warning about two ranks on one GPU.
@test "local_rank= in plugstack.conf is overridden by the environment, and that by the command line" {
	NCCL_MULTI_RANK_GPU_ENABLE=1 precedence local_rank SLURM_DDP_LOCAL_RANK --ddp-local-rank \
		"1@n1 LOCAL_RANK=1|1@n1 LOCAL_RANK=0|1@n1 LOCAL_RANK=1" "-w n1 -n2 --gres=gpu:1" LOCAL_RANK "task|device|task"
}

@test "share= in plugstack.conf is overridden by the environment, and that by the command line" {
	NCCL_MULTI_RANK_GPU_ENABLE=1 precedence share SLURM_DDP_SHARE --ddp-share \
		"1@n1 DDP_SHARE=UNSET PYTORCH_CUDA_ALLOC_CONF=UNSET|1@n1 DDP_SHARE=0\.5 PYTORCH_CUDA_ALLOC_CONF=UNSET|1@n1 DDP_SHARE=0\.5 PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0\.5" \
		"-w n1 -n2 --gres=gpu:1" "DDP_SHARE PYTORCH_CUDA_ALLOC_CONF" "off|auto|torch"
}

@test "ports= in plugstack.conf is overridden by SLURM_DDP_PORT, --ddp-port and MASTER_PORT" {
	plugstack "optional $TOP/ddp.so ports=61000-61001"
	try mc srun -N2 --ddp "$SHOW" MASTER_PORT
	same "$rc:$err" "0:"
	same "$(sort <<<"$out")" "0@n1 MASTER_PORT=61000
1@n2 MASTER_PORT=61000"
	try mc env SLURM_DDP_PORT=62000-62001 srun --ddp "$SHOW" MASTER_PORT
	same "$rc:$err" "0:"
	same "${out#*@n? }" MASTER_PORT=62000
	try mc env SLURM_DDP_PORT=62000 srun --ddp --ddp-port=63001 "$SHOW" MASTER_PORT
	same "$rc:$err" "0:"
	same "${out#*@n? }" MASTER_PORT=63001
	try mc env MASTER_PORT=63003 SLURM_DDP_PORT=62000 srun --ddp "$SHOW" MASTER_PORT
	same "$rc" 0
	same "${out#*@n? }" MASTER_PORT=63003
	same "$err" "ddp: MASTER_PORT=63003 of your environment is used, --ddp-port is not"
}

@test "shards_per_gpu= is used if Slurm's configuration does not have the number" {
	try mc srun --gres=shard:1 --ddp "$SHOW" DDP_DEVICE DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION
	same "$rc" 0
	same "${out#*@n? }" "DDP_DEVICE=0 DDP_SHARE=UNSET XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET"
	has "$err" "^ddp: how many shards a GPU of n[12] has is not known, DDP_SHARE stays unset; the administrator can say it with shards_per_gpu=N in plugstack.conf$"
	same "$(count_lines "$err" ddp:)" 1
	plugstack "optional $TOP/ddp.so shards_per_gpu=4"
	NCCL_MULTI_RANK_GPU_ENABLE=1 try mc srun -N1 -n2 --gres=shard:2 --ddp "$SHOW" DDP_SHARE
	same "$rc:$err" "0:"
	same "$(sort <<<"$out" | sed 's/@n./@n/')" "0@n DDP_SHARE=0.25
1@n DDP_SHARE=0.25"
}

@test "plugstack.conf line with several arguments, blanks, tabs and a comment" {
	plugstack "# the site's" "optional   $TOP/ddp.so  master_suffix=-ib	ports=61000-61001   # more"
	try mc srun -w n1 --ddp "$SHOW" MASTER_ADDR MASTER_PORT
	same "$rc:$err" "0:"
	same "$out" "0@n1 MASTER_ADDR=n1-ib MASTER_PORT=61000"
}

@test "the zz-ddp.conf of the build works through an include line" {
	mkdir "$TOP/plugstack.conf.d"
	sed -E "s|^(optional) [^ ]*/ddp.so$|\1 $TOP/ddp.so|" "$DDP_BUILDDIR/spank-plugin/zz-ddp.conf" >"$TOP/plugstack.conf.d/zz-ddp.conf"
	grep -qx "optional $TOP/ddp.so" "$TOP/plugstack.conf.d/zz-ddp.conf"
	plugstack "include $TOP/plugstack.conf.d/*.conf"
	plain_works
	try mc srun -N2 --ddp "$SHOW" RANK WORLD_SIZE DDP_ERROR
	same "$rc:$err" "0:"
	expect_ranks
	# Without the include line, --ddp is an unknown option.
	plugstack ""
	try mc srun --ddp true
	[ "$rc" -ne 0 ]
	has "$err" "unrecognized option '--ddp'"
}

# --- A plugin that cannot be loaded ------------------------------------------------------

@test "a missing plugin, optional: srun works and prints a message; --ddp is unknown" {
	plugstack "optional $TOP/p-none.so"
	try mc srun -N2 hostname
	same "$rc" 0
	same "$(wc -l <<<"$out")" 2
	# Slurm 25.11 does not print this message.
	has_not "$(grep -v p-none.so <<<"$err" || true)" .
	try mc srun --ddp touch ran
	[ "$rc" -ne 0 ]
	has "$err" "srun: unrecognized option '--ddp'"
	[ ! -e "$WORK/ran" ]
	nodes_are_idle
}

@test "a missing plugin, required: every srun of that host fails" {
	plugstack "required $TOP/p-none.so"
	for ddp in "" --ddp; do
		# shellcheck disable=SC2086
		try mc srun $ddp touch ran
		same "$rc:$out" "1:"
		has "$err" "srun: error: .*p-none.so"
		[ ! -e "$WORK/ran" ]
	done
	nodes_are_idle
}

# Slurm drains the node before it loads the plugin. spank-ddp(8) warns of this.
@test "a missing plugin on a node, required: a plain batch job drains the node" {
	plugstack "required $TOP/p-none.so"
	submit_plugstack ""
	try submit sbatch --parsable -w n1 --no-requeue -o job.out --wrap 'touch ran'
	same "$rc" 0
	job=$out
	within 60 drained n1
	[ ! -e "$WORK/ran" ]
	cp "$TOP/plugstack.conf" "$MINICLUSTER_DIR/plugstack.conf"
	mc scancel "$job" || true
	within 60 resumed n1
	within 60 no_jobs
	# Slurm 24.11 keeps the drain reason until the node's next job.
	mc srun -w n1 true
	within 60 no_jobs
	nodes_are_idle
}

drained() { has "$(mc sinfo -h -N -n "$1" -o %T)" 'drain' 2>/dev/null; }

resumed()
{
	"$minicluster" run scontrol update nodename="$1" state=resume 2>/dev/null || true
	[ "$(mc sinfo -h -N -n "$1" -o %T)" = idle ]
}

# Installs a plugin for another Slurm release. Slurm checks the release first.
another_release()
{
	spank_plugin p-old <<-'C'
		#include <slurm/slurm_version.h>
		#include <slurm/spank.h>
		#undef SLURM_VERSION_NUMBER
		#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(20, 2, 7)
		SPANK_PLUGIN(ddp, 1)
	C
}

@test "a plugin for another release, optional: srun works and prints a message; --ddp is unknown" {
	another_release
	plugstack "optional $TOP/p-old.so"
	try mc srun -N2 hostname
	same "$rc" 0
	same "$(wc -l <<<"$out")" 2
	has "$err" "srun: error: .*p-old.so.*Incompatible plugin version|Incompatible Slurm plugin .*p-old.so version \(20.02.7\)"
	try mc srun --ddp touch ran
	[ "$rc" -ne 0 ]
	has "$err" "srun: unrecognized option '--ddp'"
	[ ! -e "$WORK/ran" ]
	nodes_are_idle
}

@test "a plugin for another release, required: every srun of that host fails" {
	another_release
	plugstack "required $TOP/p-old.so"
	for ddp in "" --ddp; do
		# shellcheck disable=SC2086
		try mc srun $ddp touch ran
		same "$rc:$out" "1:"
		has "$err" "Incompatible Slurm plugin .*p-old.so version \(20.02.7\)"
		[ ! -e "$WORK/ran" ]
	done
	nodes_are_idle
}

@test "a plugin missing or for another release on a node, required: slurmd does not start" {
	another_release
	local pid name
	pid=$(<"$MINICLUSTER_DIR/slurmd-n2.pid")
	kill "$pid"
	within 60 test ! -e "/proc/$pid"
	for name in p-none p-old; do
		plugstack "required $TOP/$name.so"
		: >"$MINICLUSTER_DIR/log/slurmd-n2.log"
		try start_slurmd n2 -D
		[ "$rc" -ne 0 ] && [ "$rc" -ne 124 ]
		has "$(<"$MINICLUSTER_DIR/log/slurmd-n2.log")" "Failed to load plugin .*/$name\.so"
		has "$(<"$MINICLUSTER_DIR/log/slurmd-n2.log")" 'slurmd initialization failed$'
	done
	cp "$TOP/plugstack.conf" "$MINICLUSTER_DIR/plugstack.conf"
	start_slurmd n2
	within 60 n2_answers
	within 60 no_jobs
	nodes_are_idle
}

# --- Different lines for srun and slurmd ---------------------------------------------------

@test "a wrong argument on the nodes only, optional: one message for each node, and DDP_ERROR instead of ranks" {
	submit_plugstack "optional $TOP/ddp.so"
	plugstack "optional $TOP/ddp.so nonsense=1"
	try submit srun -N2 true
	same "$rc:$out:$err" "0::"
	try submit srun -N2 -n4 --ddp "$SHOW" "${refusal[@]}"
	same "$rc" 0
	same "$(sed 's/.*@n. //' <<<"$out" | sort -u)" "$unset_all"
	same "$(wc -l <<<"$out")" 4
	for node in n1 n2; do
		has "$err" "^slurmstepd-$node: error: ddp: disabled, since its line in plugstack.conf on this node is wrong: there is no argument \"nonsense=1\"; "
	done
	same "$(wc -l <<<"$err")" 2
	try submit srun -w n1 --ddp sh -c 'echo "$DDP_ERROR"; ls -A'
	same "slurmstepd-n1: error: ddp: $(head -n 1 <<<"$out")" "$err"
	# Only the directory that srun created is in $WORK, and srun removes it.
	same "$(tail -n +2 <<<"$out")" .ddp
	same "$(ls -A "$WORK")" ""
	nodes_are_idle
}

@test "a wrong argument on the nodes only, required: no task runs, and the nodes stay up" {
	submit_plugstack "required $TOP/ddp.so"
	plugstack "required $TOP/ddp.so nonsense=1"
	try submit srun -N2 true
	same "$rc:$out:$err" "0::"
	try submit srun -N2 -n4 --ddp touch ran
	same "$rc:$out" "1:"
	for node in n1 n2; do
		same "$(grep -c "^slurmstepd-$node: error: ddp: disabled, since its line in plugstack.conf on this node is wrong: " <<<"$err")" 1
	done
	[ ! -e "$WORK/ran" ]
	same "$(ls -A "$WORK")" ""
	nodes_are_idle
}

@test "a wrong argument on the nodes, required, in a batch job: the --ddp step fails, the job and the nodes do not" {
	plugstack "required $TOP/ddp.so nonsense=1"
	submit_plugstack "required $TOP/ddp.so"
	try mc sbatch -W -N2 -o job.out --wrap "export SLURM_CONF=$TOP/submit.conf
srun -N2 --ddp touch ran; echo \"status \$?\"; srun -N1 -n1 echo after"
	same "$rc" 0
	same "$(not_waiting <"$WORK/job.out" | tail -n 2)" "status 1
after"
	[ ! -e "$WORK/ran" ]
	within 60 no_jobs
	nodes_are_idle
}

@test "a wrong argument at srun only: one message, and DDP_ERROR instead of ranks" {
	submit_plugstack "optional $TOP/ddp.so nonsense=1"
	try submit srun -N2 --ddp "$SHOW" "${refusal[@]}"
	same "$rc" 0
	same "$(sort <<<"$out")" "0@n1 $unset_all
1@n2 $unset_all"
	same "$(wc -l <<<"$err")" 1
	has "$err" "^srun: error: ddp: disabled, since its line in plugstack.conf on this host"
}

# Slurm 22.05 passes the option to slurmd, which ignores it and writes only to its own log. The plugin does not run on the node,
# so it cannot set DDP_ERROR. A program can detect this case by SLURM_DDP_STEP, which srun set.
@test "the plugin at srun only: tasks get SLURM_DDP_STEP and nothing else" {
	submit_plugstack "optional $TOP/ddp.so"
	plugstack ""
	try submit srun -N2 --ddp "$SHOW" "${refusal[@]}" DDP_RANK DDP_ERROR
	same "$rc" 0
	same "$(sort <<<"$out")" "0@n1 $unset_all DDP_RANK=UNSET DDP_ERROR=UNSET
1@n2 $unset_all DDP_RANK=UNSET DDP_ERROR=UNSET"
	try submit srun -N1 --ddp sh -c 'echo "${SLURM_DDP_STEP%%;*}"; ls -A'
	same "$rc" 0
	same "$out" "v1
.ddp"
	same "$(ls -A "$WORK")" ""
	nodes_are_idle
}

@test "the plugin on the nodes only: --ddp is unknown, and SLURM_DDP=1 has no effect" {
	submit_plugstack ""
	try submit srun --ddp touch ran
	[ "$rc" -ne 0 ]
	has "$err" "srun: unrecognized option '--ddp'"
	[ ! -e "$WORK/ran" ]
	try submit env SLURM_DDP=1 srun -N2 "$SHOW" RANK DDP_RANK DDP_ERROR
	same "$rc:$err" "0:"
	same "$(sort <<<"$out")" "0@n1 RANK=UNSET DDP_RANK=UNSET DDP_ERROR=UNSET
1@n2 RANK=UNSET DDP_RANK=UNSET DDP_ERROR=UNSET"
}

# The job's option reaches the nodes only through an srun that has the plugin.
@test "sbatch --ddp with an srun that has no plugin: tasks get no variables" {
	submit_plugstack ""
	try mc sbatch -W -N2 -o job.out --ddp --wrap "export SLURM_CONF=$TOP/submit.conf
srun -N2 $SHOW ${refusal[*]} DDP_ERROR"
	same "$rc" 0
	same "$(not_waiting <"$WORK/job.out" | sort)" "0@n1 $unset_all DDP_ERROR=UNSET
1@n2 $unset_all DDP_ERROR=UNSET"
	nodes_are_idle
}

@test "the plugin's line twice: everything is done and printed once" {
	plugstack "optional $TOP/ddp.so" "optional $TOP/ddp.so"
	plain_works
	try mc srun -N2 --ddp --ddp-rdzv=%n --ddp-verbose "$SHOW" RANK WORLD_SIZE DDP_ERROR
	same "$rc" 0
	expect_ranks
	same "$(count_lines "$err" "ddp: rank 0 on n1: set RANK=0 ")" 1
	same "$(count_lines "$err" "ddp: rank 1 of 2 ")" 1
	has_not "$err" error
	# If the default directory is not writable, there is only one warning.
	chmod 555 "$WORK"
	try mc srun -N2 --ddp "$SHOW" RANK WORLD_SIZE DDP_ERROR
	chmod 755 "$WORK"
	same "$rc" 0
	expect_ranks
	same "$(count_lines "$err" ddp:)" 1
}
