/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "endpoint.h"
#include "frameworks.h"
#include "plan.h"
#include "unit.h"

#include <stdio.h>

#define DIRECTORY "/home/ann/.ddp/big-42.7.1-0123456789abcdef"
#define FAILED "/home/ann/.ddp/failed-42.7.1"

/*
 * The input of one task's plan. scene_init() sets it to rank 1 of 4, on 2 nodes, without devices.
 */
struct scene {
	struct unit_words step_env, task_env;
	struct ddp_channel channel;
	struct ddp_facts facts;
	struct ddp_device_facts devices;
};

static void scene_init(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	strcpy(s->channel.cluster, "big");
	s->channel.job = 42;
	s->channel.step = 7;
	s->channel.attempt = 1;
	strcpy(s->channel.node, "n1");
	strcpy(s->channel.address, "10.0.0.1");
	s->channel.port = 61234;
	strcpy(s->channel.port_from, "computed");
	s->channel.magic = 0xf390917721ec893e;
	strcpy(s->channel.directory, DIRECTORY);
	s->facts.task = (struct ddp_task){
		.rank = 1, .size = 4, .local_rank = 1, .local_size = 2, .node_rank = 0, .nodes = 2};
	s->facts.channel = &s->channel;
	s->facts.host = "n1";
	s->facts.directory_seen = true;
	s->facts.directory_problem = "";
	s->facts.program = "python3";
}

/* Defines a function that changes one thing in a scene. */
#define DIFFER(name, ...)                 \
	static void name(struct scene *s) \
	{                                 \
		__VA_ARGS__;              \
	}

DIFFER(rank0, s->facts.task.rank = s->facts.task.local_rank = 0)
DIFFER(one_per_node, s->facts.task = (struct ddp_task){1, 2, 0, 1, 1, 2, 1})
DIFFER(alone, s->facts.task = (struct ddp_task){0, 1, 0, 1, 0, 1, 0})
DIFFER(uneven_one, s->facts.task = (struct ddp_task){3, 4, 0, 1, 1, 2, 1})

/* Two tasks on this node, in a step with as many nodes as tasks. */
DIFFER(two_of_two, s->facts.task = (struct ddp_task){1, 2, 1, 2, 0, 2, 0})

DIFFER(three_here, s->facts.task = (struct ddp_task){0, 4, 0, 3, 0, 2, 0})

static void no_directory(struct scene *s)
{
	s->facts.directory_seen = false;
	s->facts.directory_problem = "n1 does not have /home/ann/.ddp";
}

DIFFER(odd_directory, strcpy(s->channel.directory, "/home/ann/50%/.ddp/x"))
DIFFER(query_directory, strcpy(s->channel.directory, "/home/ann/what?/.ddp/x"))
DIFFER(split_directory, strcpy(s->channel.directory, "/home/ann/a\nb/.ddp/x"))
DIFFER(launcher_allowed, s->channel.launcher_allowed = 1)
DIFFER(last_port, s->channel.port = 65535)
DIFFER(given_port, strcpy(s->channel.port_from, "--ddp-port"))
DIFFER(reserved, s->channel.reserved_first = 1)

static void attempt_2(struct scene *s)
{
	s->channel.run = 1;
	s->channel.restart = 2;
	s->channel.restarts_max = 3;
	strcpy(s->channel.run_id, "big.42.run");
	strcpy(s->channel.failed, FAILED);
}

DIFFER(attempt_unfailed, attempt_2(s); s->channel.failed[0] = '\0')
DIFFER(attempt_blind, attempt_2(s); no_directory(s))
DIFFER(end_time, s->channel.end_time = 1800000000123)
DIFFER(mask_of_6, s->facts.cpu_mask = 6)
DIFFER(bound_to_1, rank0(s); s->facts.cpu_mask = 1; s->facts.node_cpus = 64)
DIFFER(mask_of_node, s->facts.cpu_mask = 2; s->facts.node_cpus = 2)
DIFFER(torchrun, one_per_node(s); s->channel.torchrun = s->channel.starts_ranks = 1)
DIFFER(torchrun_4, torchrun(s); strcpy(s->channel.nproc, "4"))
DIFFER(torchrun_auto, torchrun(s); strcpy(s->channel.nproc, "auto"))
DIFFER(torchrun_cpu, torchrun(s); strcpy(s->channel.nproc, "cpu"))
DIFFER(capacity_3_alone, one_per_node(s); s->devices.shards_per_gpu = 3)
DIFFER(share_off, s->channel.share = DDP_SHARE_OFF)
DIFFER(share_torch, s->channel.share = DDP_SHARE_TORCH)
DIFFER(capacity_4, s->devices.shards_per_gpu = 4)
DIFFER(capacity_64_one_per_node, one_per_node(s); s->devices.shards_per_gpu = 64)
DIFFER(mps, s->facts.mps = true)
DIFFER(mps_tiny, s->facts.mps = true; s->devices.shards_per_gpu = 1000)
DIFFER(mps_memory, s->facts.mps = true; s->facts.gpu_memory = 81559)
DIFFER(mps_memory_tiny, mps_tiny(s); s->facts.gpu_memory = 100)
DIFFER(memory_alone, s->facts.gpu_memory = 81559)
DIFFER(train, rank0(s); s->facts.program = "ddp-train")
DIFFER(three_on_node_1, s->facts.task = (struct ddp_task){1, 4, 0, 3, 1, 2, 1})
DIFFER(node_2, s->facts.task = (struct ddp_task){2, 4, 0, 2, 1, 2, 1}; s->facts.host = "n2")
DIFFER(first_of_two, s->facts.task = (struct ddp_task){0, 2, 0, 1, 0, 2, 0})
DIFFER(launcher, first_of_two(s); s->channel.starts_ranks = 1)
DIFFER(info, first_of_two(s); s->facts.program = "ddp-info")
DIFFER(verbose_64_cpus, rank0(s); s->channel.verbose = 1; s->facts.node_cpus = 64)
DIFFER(verbose_7_cpus, verbose_64_cpus(s); s->facts.node_cpus = 7)
DIFFER(mode_task, s->devices.mode = DDP_LOCAL_RANK_TASK)

static void long_cluster(struct scene *s)
{
	memset(s->channel.cluster, ';', 255);
	memset(s->channel.address, '%', 255);
	one_per_node(s);
}

/*
 * A row of the table: the environment of the step, in [task_env] the environment of the task if
 * that differs, a function that changes the scene, and the expected plan:
 *     A=1    set          ~A=1   kept, because the user set it      -A   unset
 *     !A     not in the plan
 * [note] is a part of the only note (NULL: no note). [crowd] is a part of the note about NCCL and
 * several ranks on one GPU. This note is the last one, and is printed once per step.
 */
#define NESTED " DDP_JOB=big.42.6 DDP_OURS=MASTER_PORT=5;PET_NNODES=2;OMP_NUM_THREADS=3"
#define ONE " CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0"
#define TWO " CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1"
#define FOUR " CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3"
#define ERASED " SLURM_SHARDS_ON_NODE=2 SLURMD_TRES_BIND=gpu:single:1"
#define BOUND " CUDA_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=1 SLURMD_TRES_BIND=gpu:single:1"
#define HALF ONE " SLURM_SHARDS_ON_NODE=4"

/* The rows omit members that are NULL. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

static const struct row {
	const char *name, *env;
	void (*differ)(struct scene *s);
	const char *want, *note, *task_env, *crowd;
} rows[] = {
	/* --- plain --- */
	{"identity; unknown values are not set", "", NULL,
	 "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2"
	 " NODE_RANK=0 GROUP_RANK=0 GROUP_WORLD_SIZE=2 ROLE_RANK=1"
	 " ROLE_WORLD_SIZE=4 ROLE_NAME=default !DDP_DEVICE !DDP_SHARE"
	 " !DDP_END_TIME !CUDA_VISIBLE_DEVICES"},
	{"variables DDP_*", "", NULL,
	 "DDP_RANK=1 DDP_SIZE=4 DDP_LOCAL_RANK=1 DDP_LOCAL_SIZE=2"
	 " DDP_NODE_RANK=0 DDP_JOB=big.42.7 DDP_ATTEMPT=1 DDP_RENDEZVOUS=" DIRECTORY
	 " DDP_INIT_METHOD=file://" DIRECTORY
	 "/store?rank=1&world_size=4 DDP_INIT_FILE=file://" DIRECTORY "/store"},
	{"end of the job", "", end_time, "DDP_END_TIME=1800000000123"},
	{"values of the maximum length", "", long_cluster, "PET_NNODES=2"},

	/* --- identity --- */
	{"a different value is replaced and reported by rank 0", "RANK=9", rank0, "RANK=0",
	 .note = "RANK=9 of your environment is replaced in each task"},
	{"a different value is not reported by rank 1", "RANK=9", NULL, "RANK=1"},
	{"the same value is not reported", "RANK=0 WORLD_SIZE=4", rank0, "RANK=0 WORLD_SIZE=4"},
	{"the same number, written differently, is not reported", "RANK=00", rank0, "RANK=0"},
	{"an empty value is not reported", "WORLD_SIZE=", rank0, "WORLD_SIZE=4"},
	{"a value that is not a number is reported", "WORLD_SIZE=auto", rank0, "WORLD_SIZE=4",
	 .note = "WORLD_SIZE=auto of your environment"},
	{"values of an outer --ddp step are not reported", "RANK=9" NESTED, rank0, "RANK=0"},
	{"values that a container set are not reported", "", rank0, "RANK=0", .task_env = "RANK=9"},
	{"DDP_* of the environment are replaced without a note", "DDP_RANK=9 DDP_SIZE=9", rank0,
	 "DDP_RANK=0 DDP_SIZE=4"},

	/* --- endpoint --- */
	{"computed", "", NULL,
	 "MASTER_ADDR=10.0.0.1 MASTER_PORT=61234 NCCL_RAS_ADDR=localhost:61235"},
	{"the user's address", "MASTER_ADDR=me", NULL, "~MASTER_ADDR=me MASTER_PORT=61234"},
	{"a loopback in a step of one node", "MASTER_ADDR=localhost", alone,
	 "~MASTER_ADDR=localhost"},
	{"the user's port", "MASTER_PORT=29500", NULL,
	 "MASTER_ADDR=10.0.0.1 ~MASTER_PORT=29500 !NCCL_RAS_ADDR"},
	{"the user's port and --ddp-port", "MASTER_PORT=29500", given_port, "~MASTER_PORT=29500",
	 .note = "--ddp-port is not"},
	{"an empty address or port counts as unset", "MASTER_ADDR= MASTER_PORT=", NULL,
	 "MASTER_ADDR=10.0.0.1 MASTER_PORT=61234"},
	{"an address or port that a container set is replaced", "", NULL,
	 "MASTER_ADDR=10.0.0.1 MASTER_PORT=61234",
	 .task_env = "MASTER_ADDR=localhost MASTER_PORT=1"},
	{"JAX", "", NULL, "JAX_COORDINATOR_ADDRESS=10.0.0.1:61234"},
	{"JAX, the user's address and port", "MASTER_ADDR=fe80::1 MASTER_PORT=5", NULL,
	 "JAX_COORDINATOR_ADDRESS=[fe80::1]:5"},
	{"JAX, the user's own", "JAX_COORDINATOR_ADDRESS=h:1", NULL,
	 "~JAX_COORDINATOR_ADDRESS=h:1"},
	{"JAX, an outer step's",
	 "JAX_COORDINATOR_ADDRESS=h:1 DDP_JOB=a.1.1 DDP_OURS=JAX_COORDINATOR_ADDRESS=h:1", NULL,
	 "JAX_COORDINATOR_ADDRESS=10.0.0.1:61234"},
	{"no port for RAS", "", last_port, "!NCCL_RAS_ADDR"},
	{"the user's NCCL_*", "NCCL_RAS_ADDR=h:1 NCCL_SOCKET_MAGIC=0x1 NCCL_DEBUG=INFO", NULL,
	 "~NCCL_RAS_ADDR=h:1 ~NCCL_SOCKET_MAGIC=0x1 !NCCL_DEBUG"},
	{"reserved by Slurm", "SLURM_STEP_RESV_PORTS=18001-18003", reserved,
	 "MASTER_PORT=18001 NCCL_RAS_ADDR=localhost:18002"},
	{"one port reserved by Slurm", "SLURM_STEP_RESV_PORTS=18001", reserved,
	 "MASTER_PORT=18001 !NCCL_RAS_ADDR"},
	{"reserved, malformed", "SLURM_STEP_RESV_PORTS=x", reserved,
	 "MASTER_PORT=61234 NCCL_RAS_ADDR=localhost:61235"},
	{"reserved, but the port was given", "SLURM_STEP_RESV_PORTS=18001-18003", NULL,
	 "MASTER_PORT=61234 NCCL_RAS_ADDR=localhost:61235"},
	{"reserved, but the user set a port", "MASTER_PORT=29500 SLURM_STEP_RESV_PORTS=18001-18003",
	 reserved, "~MASTER_PORT=29500 !NCCL_RAS_ADDR"},
	{"torchrun follows the user's endpoint", "MASTER_ADDR=me MASTER_PORT=7", one_per_node,
	 "PET_MASTER_ADDR=me PET_MASTER_PORT=7 PET_RDZV_ENDPOINT=me:7"},

	/* --- nested --- */
	{"unchanged values of the outer step are replaced",
	 "MASTER_PORT=5 OMP_NUM_THREADS=3" NESTED, mask_of_6,
	 "MASTER_PORT=61234 OMP_NUM_THREADS=6"},
	{"values that the user changed inside the outer step are kept",
	 "MASTER_PORT=6 OMP_NUM_THREADS=4" NESTED, mask_of_6, "~MASTER_PORT=6 ~OMP_NUM_THREADS=4"},
	{"values that are not in DDP_OURS are the user's", "MASTER_ADDR=me" NESTED, NULL,
	 "~MASTER_ADDR=me"},
	{"PET_* of the outer step are unset", "PET_NNODES=2" NESTED, launcher_allowed,
	 "-PET_NNODES"},
	{"PET_* that the user changed stay", "PET_NNODES=3" NESTED, NULL, "~PET_NNODES=3"},
	{"PET_* that the user set stay", "PET_NNODES=2", NULL, "~PET_NNODES=2"},
	{"stale device, share and end", "DDP_DEVICE=1 DDP_SHARE=0.5 DDP_END_TIME=5", NULL,
	 "-DDP_DEVICE -DDP_SHARE -DDP_END_TIME"},
	{"stale rendezvous", "DDP_RENDEZVOUS=/x DDP_INIT_METHOD=file:///x DDP_INIT_FILE=x",
	 no_directory, "-DDP_RENDEZVOUS -DDP_INIT_METHOD -DDP_INIT_FILE",
	 .note = "n1 does not have /home/ann/.ddp"},
	{"value escaped in DDP_OURS", "MASTER_ADDR=a;b DDP_OURS=MASTER_ADDR=a%3Bb", NULL,
	 "MASTER_ADDR=10.0.0.1"},
	{"SLURM_DDP_STEP is unset", "SLURM_DDP_STEP=v1;job=42", NULL, "-SLURM_DDP_STEP"},
	{"TORCHELASTIC_USE_AGENT_STORE is unset", "TORCHELASTIC_USE_AGENT_STORE=True", NULL,
	 "-TORCHELASTIC_USE_AGENT_STORE"},
	{"TORCHELASTIC_USE_AGENT_STORE is not in the plan if it was not set", "", NULL,
	 "!TORCHELASTIC_USE_AGENT_STORE"},
	{"DDP_OURS lists the values that --ddp set, not the kept ones", "MASTER_ADDR=me", NULL,
	 "DDP_OURS=MASTER_PORT=61234;NCCL_RAS_ADDR=localhost:61235;NCCL_SOCKET_MAGIC=0xf390917721ec893e;"
	 "JAX_COORDINATOR_ADDRESS=me:61234;PET_NNODES=-1%20(torchrun%20needs%20--ntasks-per-node%3D1);OMP_NUM_THREADS=1;"
	 "TORCHELASTIC_RUN_ID=big.42.7"},

	/* --- torchrun --- */
	{"one task on each node", "", one_per_node,
	 "PET_NNODES=2 PET_NODE_RANK=1 !PET_NPROC_PER_NODE PET_MASTER_ADDR=10.0.0.1"
	 " PET_MASTER_PORT=61234 PET_RDZV_BACKEND=static"
	 " PET_RDZV_ENDPOINT=10.0.0.1:61234 PET_RDZV_ID=big.42.7"},
	{"one task on each node, with GPUs", TWO, one_per_node, "PET_NPROC_PER_NODE=2 LOCAL_RANK=0",
	 .note = "1 task has 2 GPUs"},
	{"one task", ONE, alone, "PET_NNODES=1 PET_NODE_RANK=0 PET_NPROC_PER_NODE=1"},
	{"PET_* of the user stay",
	 "PET_NPROC_PER_NODE=8 PET_RDZV_BACKEND=c10d PET_RDZV_ID=mine" TWO, one_per_node,
	 "~PET_NPROC_PER_NODE=8 ~PET_RDZV_BACKEND=c10d ~PET_RDZV_ID=mine PET_NNODES=2",
	 .note = "1 task has 2 GPUs"},
	{"PET_* of an outer step are replaced",
	 "PET_NNODES=2 PET_NODE_RANK=0 DDP_JOB=a.1.1 DDP_OURS=PET_NNODES=2;PET_NODE_RANK=0",
	 one_per_node, "PET_NNODES=2 PET_NODE_RANK=1"},
	{"two tasks on each node", TWO, NULL,
	 "!PET_NODE_RANK !PET_NPROC_PER_NODE !PET_MASTER_ADDR"
	 " !PET_MASTER_PORT !PET_RDZV_BACKEND !PET_RDZV_ENDPOINT !PET_RDZV_ID"},
	{"several tasks on a node, and torchrun in a script", "", NULL,
	 "DDP_OURS=MASTER_ADDR=10.0.0.1;MASTER_PORT=61234;NCCL_RAS_ADDR=localhost:61235;NCCL_SOCKET_MAGIC=0xf390917721ec893e;"
	 "JAX_COORDINATOR_ADDRESS=10.0.0.1:61234;"
	 "PET_NNODES=-1%20(torchrun%20needs%20--ntasks-per-node%3D1);OMP_NUM_THREADS=1;"
	 "TORCHELASTIC_RUN_ID=big.42.7"},
	{"the same with --ddp-launcher=allow", "", launcher_allowed, "!PET_NNODES"},
	{"a stale PET_NODE_RANK", "PET_NODE_RANK=0", one_per_node, "PET_NODE_RANK=1"},
	{"two components on one node", "", two_of_two, "!PET_RDZV_ID"},
	{"one task on this node, three on the other", TWO, uneven_one, "!PET_RDZV_ID",
	 .note = "1 task has 2 GPUs"},

	/* --- threads --- */
	{"CPUs per task", "SLURM_CPUS_PER_TASK=5 SLURM_CPUS_ON_NODE=4", mask_of_6,
	 "OMP_NUM_THREADS=5"},
	{"the CPU mask, smaller than the node", "SLURM_CPUS_ON_NODE=64", mask_of_6,
	 "OMP_NUM_THREADS=6"},
	{"the node's CPUs divided by its tasks", "SLURM_CPUS_ON_NODE=8", mask_of_6,
	 "OMP_NUM_THREADS=4"},
	{"no CPU mask", "SLURM_CPUS_ON_NODE=8", NULL, "OMP_NUM_THREADS=4"},
	{"only the CPU mask is known", "", mask_of_6, "OMP_NUM_THREADS=6"},
	{"more tasks than CPUs", "SLURM_CPUS_ON_NODE=1", mask_of_6, "OMP_NUM_THREADS=1"},
	{"nothing is known", "", NULL, "OMP_NUM_THREADS=1"},
	{"invalid values are ignored", "SLURM_CPUS_PER_TASK=0 SLURM_CPUS_ON_NODE=x", mask_of_6,
	 "OMP_NUM_THREADS=6"},
	{"the user's", "OMP_NUM_THREADS=2 SLURM_CPUS_PER_TASK=5", NULL, "~OMP_NUM_THREADS=2"},
	{"bound to fewer CPUs than the job's --cpus-per-task", "SLURM_CPUS_PER_TASK=8", bound_to_1,
	 "OMP_NUM_THREADS=1",
	 .note = "n1: each task may use 1 CPU, although SLURM_CPUS_PER_TASK is 8. If this is the "
		 "job's --cpus-per-task, repeat it as srun --cpus-per-task=8"},
	{"bound to the whole node, as on a node with more CPUs in Slurm than in the kernel",
	 "SLURM_CPUS_PER_TASK=8", mask_of_node, "OMP_NUM_THREADS=2"},
	{"torchrun with a number of ranks", "SLURM_CPUS_PER_TASK=32", torchrun_4,
	 "OMP_NUM_THREADS=8"},
	{"torchrun with more ranks than CPUs", "SLURM_CPUS_PER_TASK=2", torchrun_4,
	 "OMP_NUM_THREADS=1"},
	{"torchrun, a rank for each GPU", "SLURM_CPUS_PER_TASK=32" TWO, torchrun,
	 "PET_NPROC_PER_NODE=2 OMP_NUM_THREADS=16"},
	{"torchrun, PET_NPROC_PER_NODE of the user", "SLURM_CPUS_PER_TASK=32 PET_NPROC_PER_NODE=8",
	 torchrun, "!PET_NPROC_PER_NODE OMP_NUM_THREADS=4"},
	{"torchrun, one rank", "SLURM_CPUS_PER_TASK=32", torchrun, "OMP_NUM_THREADS=32"},
	{"torchrun --nproc-per-node=auto, GPUs", "SLURM_CPUS_PER_TASK=32" TWO, torchrun_auto,
	 "OMP_NUM_THREADS=16"},
	{"torchrun --nproc-per-node=auto, no GPU", "SLURM_CPUS_PER_TASK=32", torchrun_auto,
	 "OMP_NUM_THREADS=1"},
	{"torchrun --nproc-per-node=cpu", "SLURM_CPUS_PER_TASK=32" TWO, torchrun_cpu,
	 "OMP_NUM_THREADS=1"},
	{"one task for all GPUs, another program", "SLURM_CPUS_PER_TASK=32" TWO, one_per_node,
	 "OMP_NUM_THREADS=32", .note = "1 task has 2 GPUs"},

	/* --- lightning --- */
	{"SLURM_NTASKS_PER_NODE missing", "", NULL, "TORCHELASTIC_RUN_ID=big.42.7"},
	{"SLURM_NTASKS_PER_NODE set", "SLURM_NTASKS_PER_NODE=2", NULL, "!TORCHELASTIC_RUN_ID"},
	{"one task needs no SLURM_NTASKS_PER_NODE", "", alone, "!TORCHELASTIC_RUN_ID"},
	{"a job of salloc -J interactive", "SLURM_NTASKS_PER_NODE=2 SLURM_JOB_NAME=interactive",
	 NULL, "TORCHELASTIC_RUN_ID=big.42.7"},
	{"one task in a job named bash", "SLURM_JOB_NAME=bash", alone,
	 "TORCHELASTIC_RUN_ID=big.42.7"},
	{"a job of another name", "SLURM_NTASKS_PER_NODE=2 SLURM_JOB_NAME=bashful", NULL,
	 "!TORCHELASTIC_RUN_ID"},
	{"the user's", "TORCHELASTIC_RUN_ID=mine", NULL, "~TORCHELASTIC_RUN_ID=mine"},
	{"value of an outer step",
	 "SLURM_NTASKS_PER_NODE=2 TORCHELASTIC_RUN_ID=a.1.1"
	 " DDP_OURS=TORCHELASTIC_RUN_ID=a.1.1",
	 NULL, "-TORCHELASTIC_RUN_ID"},

	/* --- rendezvous --- */
	{"directory missing", "", no_directory,
	 "!DDP_RENDEZVOUS !DDP_INIT_METHOD !DDP_INIT_FILE MASTER_PORT=61234",
	 .note = "no rendezvous directory: n1 does not have /home/ann/.ddp"},
	{"percent sign", "", odd_directory,
	 "DDP_RENDEZVOUS=/home/ann/50%/.ddp/x !DDP_INIT_METHOD !DDP_INIT_FILE",
	 .note = "Choose another directory with --ddp-rdzv=DIR"},
	{"question mark", "", query_directory,
	 "DDP_RENDEZVOUS=/home/ann/what?/.ddp/x !DDP_INIT_METHOD !DDP_INIT_FILE",
	 .note = "/home/ann/what?/.ddp/x has '?', '#', '%'"},
	{"line break", "", split_directory,
	 "DDP_RENDEZVOUS=/home/ann/a\nb/.ddp/x !DDP_INIT_METHOD !DDP_INIT_FILE",
	 .note = "or a line break"},

	/* --- ddp-run --- */
	{"an attempt", "", attempt_2,
	 "DDP_RESTART=2 TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=3 TORCHELASTIC_RUN_ID=big.42.run"
	 " TORCHELASTIC_ERROR_FILE=" FAILED "/error-1.json TORCH_FR_DUMP_TEMP_FILE=" FAILED "/fr-"
	 " TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" DIRECTORY "/pipe- DDP_HEARTBEAT=" DIRECTORY "/beat-1"},
	{"Lightning detects Slurm", "SLURM_NTASKS_PER_NODE=2", attempt_2,
	 "DDP_RESTART=2 !TORCHELASTIC_RUN_ID"},
	{"the user's values",
	 "TORCHELASTIC_ERROR_FILE=/e TORCH_FR_DUMP_TEMP_FILE=/f TORCHELASTIC_RESTART_COUNT=7"
	 " DDP_HEARTBEAT=/h",
	 attempt_2,
	 "~TORCHELASTIC_ERROR_FILE=/e ~TORCH_FR_DUMP_TEMP_FILE=/f ~TORCHELASTIC_RESTART_COUNT=7"
	 " DDP_HEARTBEAT=" DIRECTORY "/beat-1 DDP_RESTART=2"},
	{"no directory for failure records", "", attempt_unfailed,
	 "DDP_RESTART=2 DDP_HEARTBEAT=" DIRECTORY "/beat-1 !TORCHELASTIC_ERROR_FILE"
	 " !TORCH_FR_DUMP_TEMP_FILE"},
	{"no rendezvous directory", "", attempt_blind,
	 "DDP_RESTART=2 TORCHELASTIC_RESTART_COUNT=2 !DDP_HEARTBEAT !TORCHELASTIC_ERROR_FILE"
	 " !TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
	 .note = "no rendezvous directory"},
	{"variables of an attempt are unset in an inner step",
	 "DDP_RESTART=2 DDP_HEARTBEAT=/h TORCHELASTIC_ERROR_FILE=/e TORCHELASTIC_RESTART_COUNT=2"
	 " DDP_OURS=TORCHELASTIC_ERROR_FILE=/e;TORCHELASTIC_RESTART_COUNT=2",
	 NULL, "-DDP_RESTART -DDP_HEARTBEAT -TORCHELASTIC_ERROR_FILE -TORCHELASTIC_RESTART_COUNT"},
	{"without ddp-run", "", NULL,
	 "!DDP_RESTART !DDP_HEARTBEAT !TORCHELASTIC_RESTART_COUNT !TORCHELASTIC_MAX_RESTARTS"
	 " !TORCHELASTIC_ERROR_FILE !TORCH_FR_DUMP_TEMP_FILE"},

	/* --- devices --- */
	{"two tasks on two", TWO, NULL,
	 "LOCAL_RANK=1 DDP_LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1"
	 " !XLA_PYTHON_CLIENT_MEM_FRACTION !CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	 " !PYTORCH_CUDA_ALLOC_CONF !CUDA_VISIBLE_DEVICES"},
	{"two tasks on four", FOUR, rank0, "LOCAL_RANK=0 DDP_DEVICE=0",
	 .note = "n1: 2 tasks do not use all 4 GPUs. Use --ntasks-per-node=4."},
	{"two tasks on four, task 1: task 0 prints the note", FOUR, NULL, "LOCAL_RANK=1"},
	{"two tasks on four, node 2: node 1 prints the note",
	 FOUR " SLURM_STEP_TASKS_PER_NODE=2(x2)", node_2, "LOCAL_RANK=0"},
	{"two tasks on four, node 2: node 1 has four", FOUR " SLURM_STEP_TASKS_PER_NODE=4,2",
	 node_2, "LOCAL_RANK=0",
	 .note = "n2: 2 tasks do not use all 4 GPUs. Use --ntasks-per-node=4."},
	{"two tasks on four, node 2: node 1 may run torchrun",
	 FOUR " SLURM_STEP_TASKS_PER_NODE=1,2", node_2, "LOCAL_RANK=0",
	 .note = "n2: 2 tasks do not use all 4 GPUs"},
	{"two tasks on four, as requested", FOUR " SLURM_GPUS_PER_TASK=2", rank0, "DDP_DEVICE=0"},
	{"two tasks on shards of four", FOUR " SLURM_SHARDS_ON_NODE=16", rank0, "DDP_DEVICE=0",
	 .note = "shards_per_gpu=N"},
	{"one task on four, torchrun or the like", FOUR, launcher, "PET_NPROC_PER_NODE=4"},
	{"one task on four, ddp-info", FOUR, info, "PET_NPROC_PER_NODE=4"},
	{"one task on four", FOUR, first_of_two, "PET_NPROC_PER_NODE=4",
	 .note = "n1: 1 task has 4 GPUs. Use --ntasks-per-node=4, unless the task starts a process "
		 "for each"},
	{"few CPUs", TWO, verbose_64_cpus, "OMP_NUM_THREADS=1",
	 .note = "n1: each rank with a GPU has 1 CPU, of 64 on the node. Use --cpus-per-task=8 to give"},
	{"few CPUs on a small node", TWO " SLURM_CPUS_PER_TASK=2", verbose_7_cpus,
	 "OMP_NUM_THREADS=2",
	 .note = "n1: each rank with a GPU has 2 CPUs, of 7 on the node. Use --cpus-per-task=3 to give"},
	{"few CPUs, the node has no more", TWO " SLURM_CPUS_PER_TASK=3", verbose_7_cpus, ""},
	{"enough CPUs", TWO " SLURM_CPUS_PER_TASK=4", verbose_64_cpus, ""},
	{"few CPUs, no GPU", "", verbose_64_cpus, ""},
	{"bound", TWO, NULL,
	 "LOCAL_RANK=0 DDP_LOCAL_RANK=1 DDP_DEVICE=0 DDP_SHARE=1 !CUDA_VISIBLE_DEVICES",
	 .note = "--gpus-per-node=2 --gpu-bind=none to keep them", .task_env = BOUND},
	{"bound, with shards: the note does not advise whole GPUs", TWO " SLURM_SHARDS_ON_NODE=8",
	 capacity_4, "LOCAL_RANK=0 DDP_LOCAL_RANK=1", .note = ". Use --gres=shard:8 to keep them.",
	 .task_env = BOUND " SLURM_SHARDS_ON_NODE=8"},
	{"bound, one task here: no peer to lose", TWO, one_per_node, "LOCAL_RANK=0",
	 .note = "1 task has 2 GPUs", .task_env = BOUND},
	{"bound, LOCAL_RANK as requested", TWO, mode_task, "LOCAL_RANK=1 DDP_DEVICE=0",
	 .note = "peer-to-peer", .task_env = BOUND},
	{"three on two", TWO, three_here,
	 "LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5",
	 .note = "n1: 3 tasks share 2 devices in turn. Use --ntasks-per-node=2 to give",
	 .crowd = "n1: 3 ranks share GPUs 0,1, more than one on a GPU, and "},
	{"CUDA_VISIBLE_DEVICES removed by Slurm is restored", ONE " SLURM_SHARDS_ON_NODE=2",
	 capacity_4, "CUDA_VISIBLE_DEVICES=0 DDP_DEVICE=0 LOCAL_RANK=0 DDP_SHARE=0.25",
	 .task_env = ERASED},

	/* --- shares --- */
	{"half of one GPU", HALF, capacity_4,
	 "DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5"
	 " !PYTORCH_CUDA_ALLOC_CONF !CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"},
	{"two nodes, one rank each, 32 of 64", ONE " SLURM_SHARDS_ON_NODE=32",
	 capacity_64_one_per_node, "DDP_SHARE=0.5 LOCAL_RANK=0 PET_NPROC_PER_NODE=1"},
	{"two tasks on a whole GPU", ONE, NULL, "DDP_SHARE=0.5"},
	{"off", ONE, share_off, "!DDP_SHARE !XLA_PYTHON_CLIENT_MEM_FRACTION DDP_DEVICE=0"},
	{"off unsets the share of an outer step", ONE " DDP_SHARE=0.5", share_off, "-DDP_SHARE"},
	{"torch", ONE, share_torch,
	 "DDP_SHARE=0.5 PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5"},
	{"torch, a whole GPU each", TWO, share_torch, "DDP_SHARE=1 !PYTORCH_CUDA_ALLOC_CONF"},
	{"MPS", ONE, mps, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"},
	{"MPS, a whole GPU each", TWO, mps, "!CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"},
	{"MPS, never 0", ONE " SLURM_SHARDS_ON_NODE=1", mps_tiny,
	 "DDP_SHARE=0.0005 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1"
	 " CUPY_GPU_MEMORY_LIMIT=0.05% !CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"},
	{"MPS, half of the memory, rounded down", ONE, mps_memory,
	 "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40779M CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"},
	{"MPS, memory never 0", ONE " SLURM_SHARDS_ON_NODE=1", mps_memory_tiny,
	 "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1M"},
	{"MPS, the user's memory", ONE " CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G", mps_memory,
	 "~CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"},
	{"memory known, no MPS", ONE, memory_alone, "!CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"},
	{"frameworks of which no version rejects the variable", ONE " SLURM_SHARDS_ON_NODE=1",
	 capacity_3_alone,
	 "DDP_SHARE=0.333333 XLA_PYTHON_CLIENT_MEM_FRACTION=0.333333"
	 " CUPY_GPU_MEMORY_LIMIT=33.3333% TF_FORCE_GPU_ALLOW_GROWTH=true"
	 " FLAGS_fraction_of_gpu_memory_to_use=0.333333 !PYTORCH_CUDA_ALLOC_CONF"},
	{"each value of the user is kept, the others are set",
	 ONE " CUPY_GPU_MEMORY_LIMIT=90% TF_FORCE_GPU_ALLOW_GROWTH=false", NULL,
	 "~CUPY_GPU_MEMORY_LIMIT=90% ~TF_FORCE_GPU_ALLOW_GROWTH=false"
	 " FLAGS_fraction_of_gpu_memory_to_use=0.5"},
	{"JAX, new name set by the user: both names are an error",
	 ONE " XLA_CLIENT_MEM_FRACTION=.9", NULL,
	 "!XLA_PYTHON_CLIENT_MEM_FRACTION CUPY_GPU_MEMORY_LIMIT=50%"},
	{"PyTorch, new name set by the user", ONE " PYTORCH_ALLOC_CONF=expandable_segments:True",
	 share_torch, "!PYTORCH_CUDA_ALLOC_CONF DDP_SHARE=0.5"},
	{"PyTorch, AMD's name set by the user",
	 ONE " PYTORCH_HIP_ALLOC_CONF=expandable_segments:True", share_torch,
	 "!PYTORCH_CUDA_ALLOC_CONF"},
	{"the user's values",
	 ONE " XLA_PYTHON_CLIENT_MEM_FRACTION=.9 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70", mps,
	 "DDP_SHARE=0.5 ~XLA_PYTHON_CLIENT_MEM_FRACTION=.9"
	 " ~CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70"},
	{"the user's allocator", ONE " PYTORCH_CUDA_ALLOC_CONF=x:1", share_torch,
	 "~PYTORCH_CUDA_ALLOC_CONF=x:1"},
	{"number of shards per GPU unknown", HALF, NULL, "!DDP_SHARE", .note = "shards_per_gpu=N"},
	{"shards of two GPUs", TWO " SLURM_SHARDS_ON_NODE=3", capacity_4, "!DDP_SHARE",
	 .note = "divided among 2 GPUs"},
	{"shards per task", ONE " SLURM_SHARDS_ON_NODE=4 SLURMD_TRES_BIND=gres/shard:per_task:2",
	 capacity_4, "DDP_SHARE=0.5"},

	/* One note per step about NCCL and several ranks on one GPU. */
	{"two ranks on one GPU", ONE, rank0, "DDP_SHARE=0.5",
	 .crowd = "n1: 2 ranks share GPU 0, and "},
	{"two ranks on one GPU, rank 1: rank 0 prints the note", ONE, NULL, "DDP_SHARE=0.5"},
	{"one GPU per rank", TWO, rank0, "DDP_SHARE=1"},
	{"one rank on a part of a GPU", ONE " SLURM_SHARDS_ON_NODE=32", capacity_64_one_per_node,
	 "DDP_SHARE=0.5"},
	{"ddp-train does not use NCCL on shared GPUs", ONE, train, "DDP_SHARE=0.5"},
	{"no note if the user set NCCL_MULTI_RANK_GPU_ENABLE", ONE " NCCL_MULTI_RANK_GPU_ENABLE=1",
	 rank0, "!NCCL_MULTI_RANK_GPU_ENABLE"},
	{"two ranks on one GPU, share unknown", HALF, rank0, "!DDP_SHARE",
	 .note = "shards_per_gpu=N", .crowd = "n1: 2 ranks share GPU 0, and "},
	{"second node, the first has as many tasks", ONE " SLURM_STEP_TASKS_PER_NODE=3(x2)",
	 three_on_node_1, "LOCAL_WORLD_SIZE=3"},
	{"second node, the first has one task", ONE " SLURM_STEP_TASKS_PER_NODE=1,3",
	 three_on_node_1, "LOCAL_WORLD_SIZE=3", .crowd = "n1: 3 ranks share GPU 0, and "},
	{"second node, tasks per node unknown", ONE, three_on_node_1, "LOCAL_WORLD_SIZE=3"},
	{"a GPU named by UUID", "CUDA_VISIBLE_DEVICES=MIG-8f2c", rank0, "DDP_SHARE=0.5",
	 .crowd = "n1: 2 ranks share GPU MIG-8f2c, and "},

	/* --- warnings --- */
	{"different numbers of tasks per node", "SLURM_STEP_TASKS_PER_NODE=3,1", three_here,
	 "LOCAL_WORLD_SIZE=3", .note = "different numbers of tasks (3,1)"},
	{"different numbers of tasks per node, rank 3: rank 0 prints the note",
	 "SLURM_STEP_TASKS_PER_NODE=3,1", uneven_one, "LOCAL_WORLD_SIZE=1"},
	{"even", "SLURM_STEP_TASKS_PER_NODE=2(x2)", rank0, "LOCAL_WORLD_SIZE=2"},
	{"invalid SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE=x", rank0,
	 "LOCAL_WORLD_SIZE=2"},
};

static void row_plan(const struct row *row, struct scene *s, struct ddp_plan *plan)
{
	struct ddp_message message = {""};

	scene_init(s);
	if (row->differ)
		row->differ(s);
	s->facts.step_env = s->devices.step_env = unit_words(&s->step_env, row->env);
	s->facts.task_env = s->devices.task_env =
		unit_words(&s->task_env, row->task_env ? row->task_env : row->env);
	s->devices.local_id = s->facts.task.local_rank;
	s->devices.local_size = s->facts.task.local_size;
	s->devices.node_id = s->facts.task.node_id;
	ddp_devices_decide(&s->devices, &s->facts.devices);
	memset(plan, 0, sizeof(*plan));
	ck_assert_msg(ddp_plan_make(&s->facts, plan, &message) == 0, "%s: %s", row->name,
		      message.text);
}

static void check_want(const char *row, const struct ddp_plan *plan, const char *want)
{
	static const char marks[] = "~-!";
	const char *mark = strchr(marks, *want), *equals;
	const struct ddp_change *c;
	char name[64];

	want += mark != NULL;
	equals = strchr(want, '=');
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(want, "="), want);
	c = ddp_plan_find(plan, name);
	if (mark && *mark == '!') {
		ck_assert_msg(!c, "%s: %s is in the plan: %s", row, name,
			      c && c->value ? c->value : "unset");
		return;
	}
	ck_assert_msg(c, "%s: %s is not in the plan", row, name);
	unit_number(row, name, c->action,
		    !mark	   ? DDP_ACTION_SET
		    : *mark == '~' ? DDP_ACTION_KEEP
				   : DDP_ACTION_UNSET);
	unit_text(row, name, c->value, equals ? equals + 1 : NULL);
}

static void check_wants(const char *row, const struct ddp_plan *plan, const char *wants)
{
	struct unit_words words;

	for (char **want = unit_words(&words, wants); *want; want++)
		check_want(row, plan, *want);
}

static const struct ddp_variable_info *in_table(const char *name)
{
	for (int v = 0; v < DDP_VAR_COUNT; v++)
		if (strcmp(ddp_variable_info((enum ddp_variable)v)->name, name) == 0)
			return ddp_variable_info((enum ddp_variable)v);
	return NULL;
}

/*
 * Checks the three variables that a plan may set although contract.def does not have them. Each one
 * needs a condition.
 */
static void check_outside(const struct row *row, const struct scene *s, const struct ddp_change *c)
{
	if (strcmp(c->name, "CUDA_VISIBLE_DEVICES") == 0) {
		ck_assert(c->action == DDP_ACTION_SET && s->facts.devices.restore_name);
		ck_assert_ptr_null(ddp_env_get(s->facts.task_env, c->name));
		return;
	}
	ck_assert_msg(strcmp(c->name, "TORCHELASTIC_USE_AGENT_STORE") == 0 ||
			      strcmp(c->name, "SLURM_DDP_STEP") == 0,
		      "%s: %s is touched", row->name, c->name);
	ck_assert(c->action == DDP_ACTION_UNSET);
}

/* Checks rules that hold for every plan. */
static void check_sane(const struct row *row, const struct scene *s, const struct ddp_plan *plan)
{
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];

		ck_assert_msg(ddp_plan_find(plan, c->name) == c, "%s: %s twice", row->name,
			      c->name);
		ck_assert(c->why && *c->why);
		ck_assert_int_eq(!c->value, c->action == DDP_ACTION_UNSET);
		if (c->action == DDP_ACTION_UNSET)
			ck_assert_msg(ddp_env_get(s->facts.task_env, c->name),
				      "%s: %s is not there", row->name, c->name);
		if (c->action == DDP_ACTION_KEEP)
			unit_text(row->name, c->name, c->value,
				  ddp_env_get(s->facts.task_env, c->name));
		if (!in_table(c->name))
			check_outside(row, s, c);
	}
	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const struct ddp_variable_info *info = ddp_variable_info((enum ddp_variable)v);
		const struct ddp_change *c = ddp_plan_find(plan, info->name);

		if (info->kind == DDP_KIND_IDENTITY)
			ck_assert(c && c->action == DDP_ACTION_SET);
		if (info->kind == DDP_KIND_OURS && ddp_env_get(s->facts.task_env, info->name))
			ck_assert(c && c->action != DDP_ACTION_KEEP);
	}
}

/*
 * Starts an --ddp step inside this task, with its environment. The step must not treat values that
 * this plan set as the user's.
 */
static void check_inner(const struct row *row, const struct ddp_plan *plan)
{
	char list[DDP_CHANNEL_SIZE];
	const char *env[] = {list, NULL, NULL};

	snprintf(list, sizeof(list), "DDP_OURS=%s", ddp_plan_find(plan, "DDP_OURS")->value);
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		const struct ddp_variable_info *info = in_table(c->name);
		char text[2 * DDP_PATH_SIZE];
		const char *users;

		if (c->action == DDP_ACTION_UNSET || !info || info->kind == DDP_KIND_IDENTITY ||
		    info->kind == DDP_KIND_OURS)
			continue;
		snprintf(text, sizeof(text), "%s=%s", c->name, c->value);
		env[1] = text;
		users = ddp_users_value(unit_env(env), c->name);
		unit_text(row->name, c->name, users,
			  c->action == DDP_ACTION_KEEP ? c->value : NULL);
	}
}

/* The note has the effect, the remedies and the NCCL version, on one line. */
static void check_crowd(const struct row *row, const struct ddp_note *note)
{
	const char *const pieces[] = {row->crowd,
				      "Duplicate GPU detected",
				      "gloo",
				      "NCCL 2.30",
				      "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0",
				      NULL};

	unit_pieces(row->name, note->text, pieces);
	ck_assert_ptr_null(strchr(note->text, '\n'));
	ck_assert_int_eq(note->speaker, DDP_SPEAKER_NODE);
}

static void check_row(const struct row *row)
{
	struct ddp_plan plan;
	struct scene s;

	row_plan(row, &s, &plan);
	check_wants(row->name, &plan, row->want);
	unit_number(row->name, "number of notes", (int64_t)plan.n_notes,
		    (row->note != NULL) + (row->crowd != NULL));
	if (row->note)
		ck_assert_msg(strstr(plan.notes[0].text, row->note), "%s: %s", row->name,
			      plan.notes[0].text);
	if (row->crowd)
		check_crowd(row, &plan.notes[plan.n_notes - 1]);
	check_sane(row, &s, &plan);
	check_inner(row, &plan);
	ddp_plan_clear(&plan);
	ck_assert_uint_eq(plan.n_changes + plan.n_notes, 0);
	ddp_plan_clear(&plan);
}

TEST_ROWS(test_plan, rows)
{
	check_row(&rows[_i]);
}

static void mark_set(const struct ddp_plan *plan, bool *set)
{
	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const char *name = ddp_variable_info((enum ddp_variable)v)->name;
		const struct ddp_change *c = ddp_plan_find(plan, name);

		set[v] |= c && c->action == DDP_ACTION_SET;
	}
}

/* Each variable of contract.def is set by at least one row. */
TEST(test_every_variable)
{
	bool set[DDP_VAR_COUNT] = {false};
	struct ddp_plan plan;
	struct scene s;

	for (int i = 0; i < ROWS(rows); i++) {
		row_plan(&rows[i], &s, &plan);
		mark_set(&plan, set);
		ddp_plan_clear(&plan);
	}
	for (int v = 0; v < DDP_VAR_COUNT; v++)
		ck_assert_msg(set[v], "%s is never set",
			      ddp_variable_info((enum ddp_variable)v)->name);
}

/*
 * The manual's examples must be the variables that a plan sets for a share of 0.25 of a GPU with 80
 * GiB.
 */
TEST_LOOP(test_examples, 0, DDP_FRAMEWORK_COUNT)
{
	const struct ddp_framework *row = ddp_framework(_i);
	const struct row what = {.name = row->name, .env = ""};
	const struct ddp_change *change;
	struct ddp_plan plan;
	struct scene s;

	row_plan(&what, &s, &plan);
	ddp_plan_clear(&plan);
	s.channel.share = DDP_SHARE_TORCH;
	s.facts.mps = true;
	s.facts.gpu_memory = 81920;
	s.devices.shards_per_gpu = 4;
	s.facts.step_env = s.facts.task_env = s.devices.step_env = s.devices.task_env =
		unit_words(&s.step_env, ONE " SLURM_SHARDS_ON_NODE=2");
	ddp_devices_decide(&s.devices, &s.facts.devices);
	ck_assert_int_eq(ddp_plan_make(&s.facts, &plan, &(struct ddp_message){""}), 0);
	change = ddp_plan_find(&plan, ddp_variable_info(row->variable)->name);
	unit_text(row->name, "value", change ? change->value : NULL, row->example);
	ck_assert_int_eq(ddp_variable_info(row->variable)->kind, DDP_KIND_POLITE);
	ck_assert(*row->since && *row->help);
	ddp_plan_clear(&plan);
}

/* Variables of MPI, PMI, Horovod, Slurm and NCCL that --ddp must never set. */
TEST(test_never)
{
	static const char *const never[] = {"OMPI_",	"PMI",	  "NCCL_COMM_ID",
					    "HOROVOD_", "SLURM_", "TORCHELASTIC_USE_AGENT_STORE"};

	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const struct ddp_variable_info *info = ddp_variable_info((enum ddp_variable)v);

		ck_assert(*info->text);
		for (int i = 0; i < ROWS(never); i++)
			ck_assert(strncmp(info->name, never[i], strlen(never[i])) != 0);
		ck_assert_int_eq(strncmp(info->name, "DDP_", 4) == 0, info->kind == DDP_KIND_OURS);
		ck_assert_int_eq(strncmp(info->name, "PET_", 4) == 0,
				 info->kind == DDP_KIND_TORCHRUN);
	}
}

/*
 * All notes at once. Each node prints the notes about itself. Other notes are printed once per
 * step.
 */
TEST(test_notes)
{
	char **env;
	struct ddp_message message = {""};
	int step = 0, node = 0;
	struct ddp_plan plan;
	struct scene s;

	scene_init(&s);
	three_here(&s);
	no_directory(&s);
	env = unit_words(&s.step_env, "RANK=9 LOCAL_RANK=9 SLURM_STEP_TASKS_PER_NODE=3,1" TWO);
	s.facts.step_env = s.facts.task_env = env;
	s.devices = (struct ddp_device_facts){.step_env = env, .task_env = env, .local_size = 3};
	ddp_devices_decide(&s.devices, &s.facts.devices);
	ck_assert_int_eq(ddp_plan_make(&s.facts, &plan, &message), 0);
	ck_assert_uint_eq(plan.n_notes, 6);
	for (size_t i = 0; i < plan.n_notes; i++) {
		bool of_node = strncmp(plan.notes[i].text, "n1: 3 ", 6) == 0;

		ck_assert_int_eq(of_node, plan.notes[i].speaker == DDP_SPEAKER_NODE);
		step += plan.notes[i].speaker == DDP_SPEAKER_STEP;
		node += plan.notes[i].speaker == DDP_SPEAKER_NODE;
	}
	ck_assert_int_eq(step, 4);
	ck_assert_int_eq(node, 2);
	ddp_plan_clear(&plan);
}

/* [node] is the node of rank 0 in a step on n[1-3], whose address is 10.0.0.1. */
static const struct {
	const char *name, *env;
	uint32_t nodes;
	const char *pieces; /* of the message; NULL: no error */
} checks[] = {
	{"nothing set", "", 3, NULL},
	{"another store", "MASTER_ADDR=store.example.org MASTER_PORT=1", 3, NULL},
	{"rank 0's node", "MASTER_ADDR=n1", 3, NULL},
	{"rank 0's node with its domain", "MASTER_ADDR=n1.example.org", 3, NULL},
	{"the address that --ddp sets", "MASTER_ADDR=10.0.0.1", 3, NULL},
	{"another node", "MASTER_ADDR=n2", 3,
	 DDP_USAGE_ERROR
	 "|MASTER_ADDR=n2 of your environment is node n2|runs on n1|Unset MASTER_ADDR"},
	{"another node with its domain", "MASTER_ADDR=N3.example.org", 3, "is node n3"},
	{"no node of the step", "MASTER_ADDR=n4", 3, NULL},
	{"a loopback, several nodes", "MASTER_ADDR=localhost", 3,
	 "MASTER_ADDR=localhost|each of the 3 nodes|Unset MASTER_ADDR"},
	{"a numeric loopback", "MASTER_ADDR=127.0.1.1", 3, "MASTER_ADDR=127.0.1.1"},
	{"another node of the job", "MASTER_ADDR=n9", 3, "is node n9"},
	{"with a port", "MASTER_ADDR=n1:29500", 3, "MASTER_ADDR=n1:29500|not the name or address"},
	{"a list", "MASTER_ADDR=n[1-2]", 3, "MASTER_ADDR=n[1-2]"},
	{"a URL", "MASTER_ADDR=tcp://n1", 3, "MASTER_ADDR=tcp://n1"},
	{"IPv6", "MASTER_ADDR=fe80::1", 3, NULL},
	{"a loopback in upper case", "MASTER_ADDR=LOCALHOST", 3, "MASTER_ADDR=LOCALHOST"},
	{"any address", "MASTER_ADDR=0.0.0.0", 3, "MASTER_ADDR=0.0.0.0"},
	{"a loopback, one node", "MASTER_ADDR=localhost", 1, NULL},
	{"an outer step's address", "MASTER_ADDR=n2 DDP_OURS=MASTER_ADDR=n2", 3, NULL},
	{"no number", "MASTER_PORT=abc", 3, "MASTER_PORT=abc|1 to 65535|Unset it"},
	{"zero", "MASTER_PORT=0", 3, "MASTER_PORT=0"},
	{"too large", "MASTER_PORT=65536", 3, "MASTER_PORT=65536"},
	{"the largest", "MASTER_PORT=65535", 3, NULL},
};

TEST_ROWS(test_check, checks)
{
	struct ddp_message message = {""};
	const char *const list[] = {"SLURM_STEP_NODELIST=n[1-3]", "SLURM_JOB_NODELIST=n[1-3,9]",
				    NULL};
	struct unit_words env;
	struct scene s;

	scene_init(&s);
	s.facts.task.nodes = checks[_i].nodes;
	s.facts.step_env = unit_words(&env, checks[_i].env);
	s.facts.task_env = unit_env(list);
	unit_number(checks[_i].name, "return",
		    ddp_endpoint_check(&s.channel, s.facts.step_env, s.facts.task_env,
				       s.facts.task.nodes, &message),
		    checks[_i].pieces ? -1 : 0);
	unit_has(checks[_i].name, message.text, checks[_i].pieces);
}

static const struct {
	const char *name;
	const char *env[3];
	const char *users;
} values[] = {
	{"none", {NULL}, NULL},
	{"the user's", {"MASTER_PORT=1"}, "1"},
	{"empty", {"MASTER_PORT="}, NULL},
	{"ours", {"MASTER_PORT=1", "DDP_OURS=MASTER_PORT=1"}, NULL},
	{"ours, changed", {"MASTER_PORT=2", "DDP_OURS=MASTER_PORT=1"}, "2"},
	{"only similar names are in the list",
	 {"MASTER_PORT=1", "DDP_OURS=XMASTER_PORT=1;MASTER_PORTS=1"},
	 "1"},
	{"ours, with other names in the list",
	 {"MASTER_PORT=1", "DDP_OURS=A=2;MASTER_PORT=1;B=3"},
	 NULL},
	{"ours, escaped", {"MASTER_PORT=a b", "DDP_OURS=MASTER_PORT=a%20b"}, NULL},
	{"ours, empty", {"MASTER_PORT=1", "DDP_OURS="}, "1"},
	{"ours, invalid escape", {"MASTER_PORT=1", "DDP_OURS=MASTER_PORT=%"}, "1"},
};

TEST_ROWS(test_users, values)
{
	unit_text(values[_i].name, "value",
		  ddp_users_value(unit_env(values[_i].env), "MASTER_PORT"), values[_i].users);
}

UNIT_MAIN("contract", NULL)
