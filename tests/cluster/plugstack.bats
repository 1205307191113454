# SPDX-License-Identifier: Apache-2.0
# The plugin's line in plugstack.conf: optional, required, with arguments, twice, and only on the submit host or on the nodes.
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
	rm -rf "${WORK:?}"/* "$WORK"/.ddp "$TOP"/plugstack.conf.d
}

# plugstack LINE...: writes plugstack.conf. submit_plugstack LINE...: writes a plugstack.conf that only commands run by submit
# read.
plugstack() { printf '%s\n' "$@" >"$MINICLUSTER_DIR/plugstack.conf"; }
submit_plugstack() { printf '%s\n' "$@" >"$TOP/submit-plugstack.conf"; }
submit() { mc env SLURM_CONF="$TOP/submit.conf" "$@"; }

# Waits, because a node is idle only after it has reported that the last job ended.
nodes_are_idle() { within 60 all_nodes_are_idle; }
all_nodes_are_idle() { same "$(mc sinfo -h -N -o '%N %t %E' | sort)" "n1 idle none
n2 idle none"; }

# Checks that srun and sbatch without --ddp work, and that the plugin sets and prints nothing.
plain_works()
{
	try mc srun -N2 sh -c 'echo "${RANK-UNSET}"'
	same "$rc:$out:$err" "0:UNSET
UNSET:"
	try mc sbatch -W -o job.out --wrap 'echo batch; srun echo step; srun -N1 false; echo "status $?"'
	same "$rc:$err" "0:"
	same "$(not_waiting <"$WORK/job.out" | grep -v '^srun: error: n.: task 0: Exited with exit code 1$')" "batch
step
status 1"
	within 60 no_jobs
	nodes_are_idle
}

# ranks SRUN_OPTION...: runs a step on both nodes, and checks that each task is a rank.
ranks()
{
	try mc srun -N2 --ddp "$@" "$SHOW" RANK WORLD_SIZE
	same "$rc:$(sort <<<"$out")" "0:0@n1 RANK=0 WORLD_SIZE=2
1@n2 RANK=1 WORLD_SIZE=2"
}

# refused SRUN_OPTION...: runs a step on both nodes, whose tasks must not start. Sets err to the messages.
refused()
{
	try "$@" touch ran
	[ "$rc" -ne 0 ]
	[ ! -e "$WORK/ran" ]
	err=$(grep -v 'srun: \(error: n\|Job step\|launch/\)\|CANCELLED' <<<"$err")
}

wrong="error: ddp: the plugin is disabled, because its line in plugstack.conf on this host is wrong\. Report this to your administrator: \"nonsense=1\" is not an argument of ddp.so"
wrong_here="error: ddp: the plugin is disabled, because its line in plugstack.conf on this node is wrong: \"nonsense=1\" is not an argument of ddp.so"

# --- Arguments -------------------------------------------------------------------------

@test "required, and the zz-ddp.conf of the build through an include line: plain and --ddp steps work" {
	plugstack "required $TOP/ddp.so"
	ranks
	same "$err" ""
	mkdir "$TOP/plugstack.conf.d"
	sed -E "s|^(optional) [^ ]*/ddp.so$|\1 $TOP/ddp.so|" "$DDP_BUILDDIR/spank-plugin/zz-ddp.conf" >"$TOP/plugstack.conf.d/zz-ddp.conf"
	grep -qx "optional $TOP/ddp.so" "$TOP/plugstack.conf.d/zz-ddp.conf"
	plugstack "include $TOP/plugstack.conf.d/*.conf"
	plain_works
	ranks
	same "$err" ""
	# Without the include line, --ddp is an unknown option.
	plugstack ""
	try mc srun --ddp true
	[ "$rc" -ne 0 ]
	has "$err" "unrecognized option '--ddp'"
}

@test "a wrong argument: no effect without --ddp; with it one message, and no task starts" {
	plugstack "optional $TOP/ddp.so nonsense=1"
	plain_works
	refused mc srun -N2 --ddp
	has "$err" "^srun: $wrong"
	same "$(wc -l <<<"$err")" 1
	plugstack "required $TOP/ddp.so nonsense=1"
	try mc srun -N2 --ddp touch ran
	same "$rc:$out:$(count_lines "$err" 'error: ddp:')" "1::1"
	has "$err" "$wrong"
	try mc sbatch -W -o job.out --ddp --wrap 'srun -N1 touch ran; echo "status $?"'
	same "$rc" 0
	same "$(tail -n 1 "$WORK/job.out")" "status 1"
	[ ! -e "$WORK/ran" ]
	within 60 no_jobs
	nodes_are_idle
}

# bats test_tags=release
@test "arguments, with blanks, tabs and a comment: SLURM_DDP_x in the environment, and options, have priority over them" {
	plugstack "# the site's" "optional   $TOP/ddp.so  master_suffix=-ib	ports=61000-61001 local_rank=task share=off   # more"
	try mc srun -w n1 -n2 --gres=gpu:1 --ddp "$SHOW" MASTER_ADDR MASTER_PORT LOCAL_RANK DDP_SHARE
	same "$(sort <<<"$out")" "0@n1 MASTER_ADDR=n1-ib MASTER_PORT=61000 LOCAL_RANK=0 DDP_SHARE=UNSET
1@n1 MASTER_ADDR=n1-ib MASTER_PORT=61000 LOCAL_RANK=1 DDP_SHARE=UNSET"
	SLURM_DDP_MASTER_SUFFIX=.env SLURM_DDP_PORT=62000 try mc srun -w n1 --ddp --ddp-port=63001 "$SHOW" MASTER_ADDR MASTER_PORT
	same "$rc:$out:$err" "0:0@n1 MASTER_ADDR=n1.env MASTER_PORT=63001:"
	# Slurm reserves no ports in this cluster, so that one is computed.
	plugstack "optional $TOP/ddp.so"
	try mc srun -w n1 --ddp "$SHOW" MASTER_PORT SLURM_STEP_RESV_PORTS
	has "$out" "^0@n1 MASTER_PORT=6(1...|[2-4]...|5[0-4]..|55[0-3].) SLURM_STEP_RESV_PORTS=UNSET$"
}

@test "shards_per_gpu= is used if Slurm's configuration does not have the number" {
	try mc srun --gres=shard:1 --ddp "$SHOW" DDP_DEVICE DDP_SHARE
	same "$rc:${out#*@n? }" "0:DDP_DEVICE=0 DDP_SHARE=UNSET"
	has "$err" "^ddp: DDP_SHARE stays unset, because the number of shards of a GPU on n[12] is not known\. Ask the administrator for shards_per_gpu=N in plugstack\.conf\.$"
	plugstack "optional $TOP/ddp.so shards_per_gpu=4"
	try mc srun -N1 --gres=shard:2 --ddp "$SHOW" DDP_SHARE
	same "$rc:${out#*@n? }:$err" "0:DDP_SHARE=0.5:"
}

@test "slurmd starts with a wrong argument, which it logs" {
	local pid log=$MINICLUSTER_DIR/log/slurmd-n2.log
	pid=$(<"$MINICLUSTER_DIR/slurmd-n2.pid")
	kill "$pid"
	within 60 test ! -e "/proc/$pid"
	plugstack "required $TOP/ddp.so nonsense=1"
	: >"$log"
	start_slurmd n2
	within 60 node_answers n2
	same "$(count_lines "$(<"$log")" 'error: ddp: the plugin is disabled, because its line in plugstack.conf is wrong: "nonsense=1" is not an argument')" 1
	within 60 no_jobs
	nodes_are_idle
}

# --- Different lines for srun and slurmd ---------------------------------------------------

@test "a wrong argument on the nodes only: a message of a node, and no task starts; the job and the nodes stay up" {
	submit_plugstack "optional $TOP/ddp.so"
	plugstack "optional $TOP/ddp.so nonsense=1"
	try submit srun -N2 true
	same "$rc:$out:$err" "0::"
	refused submit srun -N2 --ddp
	has "$err" "^slurmstepd-n[12]: $wrong_here"
	plugstack "required $TOP/ddp.so nonsense=1"
	submit_plugstack "required $TOP/ddp.so"
	try mc sbatch -W -N2 -n4 -o job.out --wrap "export SLURM_CONF=$TOP/submit.conf
srun -N2 --ddp touch ran; echo \"status \$?\"; srun -N1 -n1 echo after"
	same "$rc" 0
	out=$(not_waiting <"$WORK/job.out")
	has "$out" "^status [1-9]"
	has "$out" "^after$"
	has "$out" "^slurmstepd-n[12]: $wrong_here"
	same "$(ls -A "$WORK")" job.out
	within 60 no_jobs
	nodes_are_idle
}

# The job's option reaches the nodes only through an srun that has the plugin.
@test "the plugin on the nodes only: --ddp of srun is unknown, and --ddp of sbatch and SLURM_DDP=1 have no effect" {
	submit_plugstack ""
	try submit srun --ddp touch ran
	[ "$rc" -ne 0 ]
	has "$err" "srun: unrecognized option '--ddp'"
	[ ! -e "$WORK/ran" ]
	try mc sbatch -W -N2 -o job.out --ddp --wrap "export SLURM_CONF=$TOP/submit.conf SLURM_DDP=1; srun -N2 $SHOW RANK MASTER_PORT"
	same "$rc:$(not_waiting <"$WORK/job.out" | sort)" "0:0@n1 RANK=UNSET MASTER_PORT=UNSET
1@n2 RANK=UNSET MASTER_PORT=UNSET"
	nodes_are_idle
}

@test "the plugin's line twice: everything is done and printed once" {
	plugstack "optional $TOP/ddp.so" "optional $TOP/ddp.so"
	plain_works
	ranks --ddp-rdzv=%n --ddp-verbose
	same "$(count_lines "$err" "ddp: rank 0 on n1: set RANK=0 ")" 1
	same "$(count_lines "$err" "ddp: rank 1 of 2 ")" 1
	has_not "$err" error
	# If the default directory is not writable, there is only one warning.
	chmod 555 "$WORK"
	ranks
	chmod 755 "$WORK"
	same "$(count_lines "$err" ddp:)" 1
}
