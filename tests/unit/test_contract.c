/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "endpoint.h"
#include "frameworks.h"
#include "plan.h"
#include "unit.h"

#include <stdio.h>

#define DIRECTORY "/home/ann/.ddp/big-42.7.1-0123456789abcdef"

/* All that a task's plan is made of; a scene starts as rank 1 of 4 on 2 nodes, without devices. */
struct scene {
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
	s->channel.complete = 1;
	strcpy(s->channel.node, "n1");
	strcpy(s->channel.address, "10.0.0.1");
	s->channel.port = 61234;
	strcpy(s->channel.port_from, "computed");
	s->channel.ras_port = 61235;
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

/* What differs from the plain scene. */

static void rank0(struct scene *s)
{
	s->facts.task.rank = s->facts.task.local_rank = 0;
}

static void one_per_node(struct scene *s)
{
	s->facts.task = (struct ddp_task){1, 2, 0, 1, 1, 2, 1};
}

static void alone(struct scene *s)
{
	s->facts.task = (struct ddp_task){0, 1, 0, 1, 0, 1, 0};
}

static void uneven_one(struct scene *s)
{
	s->facts.task = (struct ddp_task){3, 4, 0, 1, 1, 2, 1};
}

/* As many nodes as tasks are counted, and yet two tasks are here. */
static void two_of_two(struct scene *s)
{
	s->facts.task = (struct ddp_task){1, 2, 1, 2, 0, 2, 0};
}

/* The one task of a second component: counted over both, as Slurm does. */
static void component(struct scene *s)
{
	s->facts.task = (struct ddp_task){2, 3, 0, 1, 1, 2, 1};
}

static void three_here(struct scene *s)
{
	s->facts.task = (struct ddp_task){0, 4, 0, 3, 0, 2, 0};
}

static void no_directory(struct scene *s)
{
	s->facts.directory_seen = false;
	s->facts.directory_problem = "n1 does not have /home/ann/.ddp";
}

static void odd_directory(struct scene *s)
{
	strcpy(s->channel.directory, "/home/ann/50%/.ddp/x");
}

static void query_directory(struct scene *s)
{
	strcpy(s->channel.directory, "/home/ann/what?/.ddp/x");
}

static void split_directory(struct scene *s)
{
	strcpy(s->channel.directory, "/home/ann/a\nb/.ddp/x");
}

static void no_ras(struct scene *s)
{
	s->channel.ras_port = 0;
}

static void reserved(struct scene *s)
{
	s->channel.reserved_first = 1;
}

static void end_time(struct scene *s)
{
	s->channel.end_time = 1800000000123;
}

static void mask_of_6(struct scene *s)
{
	s->facts.cpu_mask = 6;
}

static void capacity_3_alone(struct scene *s)
{
	one_per_node(s);
	s->devices.shards_per_gpu = 3;
}

static void share_off(struct scene *s)
{
	s->channel.share = DDP_SHARE_OFF;
}

static void share_torch(struct scene *s)
{
	s->channel.share = DDP_SHARE_TORCH;
}

static void parts_3_2(struct scene *s)
{
	s->devices.parts = "3/4+2/4";
}

static void capacity_4(struct scene *s)
{
	s->devices.shards_per_gpu = 4;
}

static void capacity_64_one_per_node(struct scene *s)
{
	one_per_node(s);
	s->devices.shards_per_gpu = 64;
}

static void mps(struct scene *s)
{
	s->facts.mps = true;
}

static void mps_tiny(struct scene *s)
{
	s->facts.mps = true;
	s->devices.shards_per_gpu = 1000;
}

static void mps_memory(struct scene *s)
{
	s->facts.mps = true;
	s->facts.gpu_memory = 81559;
}

static void mps_memory_tiny(struct scene *s)
{
	mps_tiny(s);
	s->facts.gpu_memory = 100;
}

static void memory_alone(struct scene *s)
{
	s->facts.gpu_memory = 81559;
}

static void train(struct scene *s)
{
	rank0(s);
	s->facts.program = "ddp-train";
}

static void three_on_node_1(struct scene *s)
{
	s->facts.task = (struct ddp_task){1, 4, 0, 3, 1, 2, 1};
}

static void mode_task(struct scene *s)
{
	s->devices.mode = DDP_LOCAL_RANK_TASK;
}

static void long_cluster(struct scene *s)
{
	memset(s->channel.cluster, ';', 255);
	memset(s->channel.address, '%', 255);
	one_per_node(s);
}

/*
 * A row: the environment of the step (and of the task, where that differs), what else is
 * different, and what must be in the plan:
 *     A=1    set          ~A=1   kept, the user's      -A   unset         !A   not mentioned
 * and a piece of the only note; NULL: there is none. [crowd] is a piece of a last one, of which there
 * is one a step, about NCCL.
 */
struct row {
	const char *name;
	const char *env[8];
	void (*differ)(struct scene *s);
	const char *want[18];
	const char *note;
	const char *task_env[8];
	const char *crowd;
};

#define NESTED "DDP_JOB=big.42.6", "DDP_OURS=MASTER_PORT=5;PET_NNODES=2;OMP_NUM_THREADS=3"
#define ONE "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=0"
#define TWO "CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=0,1"

static const struct row plain[] = {
	{.name = "identity, and nothing that is not known",
	 .want = {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "NODE_RANK=0",
		  "GROUP_RANK=0", "GROUP_WORLD_SIZE=2", "ROLE_RANK=1", "ROLE_WORLD_SIZE=4",
		  "ROLE_NAME=default", "!DDP_DEVICE", "!DDP_SHARE", "!DDP_END_TIME", "!DDP_ERROR",
		  "!CUDA_VISIBLE_DEVICES", "!PET_NNODES"}},
	{.name = "our own names",
	 .want = {"DDP_RANK=1", "DDP_SIZE=4", "DDP_LOCAL_RANK=1", "DDP_LOCAL_SIZE=2",
		  "DDP_NODE_RANK=0", "DDP_JOB=big.42.7", "DDP_ATTEMPT=1",
		  "DDP_RENDEZVOUS=" DIRECTORY,
		  "DDP_INIT_METHOD=file://" DIRECTORY "/store?rank=1&world_size=4",
		  "DDP_INIT_FILE=file://" DIRECTORY "/store"}},
	{.name = "a component of a heterogeneous step",
	 .differ = component,
	 .want = {"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "NODE_RANK=1",
		  "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "ROLE_RANK=2", "ROLE_WORLD_SIZE=3",
		  "DDP_RANK=2", "DDP_SIZE=3",
		  "DDP_INIT_METHOD=file://" DIRECTORY "/store?rank=2&world_size=3", "!PET_NNODES"}},
	{.name = "end of the job", .differ = end_time, .want = {"DDP_END_TIME=1800000000123"}},
	{.name = "values that cannot be longer", .differ = long_cluster, .want = {"PET_NNODES=2"}},
};

static const struct row identity[] = {
	{.name = "a differing value is replaced, and said once",
	 .env = {"RANK=9"},
	 .differ = rank0,
	 .want = {"RANK=0"},
	 .note = "RANK=9 of your environment is replaced: --ddp sets it to 0"},
	{.name = "by rank 0 alone", .env = {"RANK=9"}, .want = {"RANK=1"}},
	{.name = "the same value is no news",
	 .env = {"RANK=0", "WORLD_SIZE=4"},
	 .differ = rank0,
	 .want = {"RANK=0", "WORLD_SIZE=4"}},
	{.name = "the same number neither",
	 .env = {"RANK=00"},
	 .differ = rank0,
	 .want = {"RANK=0"}},
	{.name = "empty is nothing",
	 .env = {"WORLD_SIZE="},
	 .differ = rank0,
	 .want = {"WORLD_SIZE=4"}},
	{.name = "no number",
	 .env = {"WORLD_SIZE=auto"},
	 .differ = rank0,
	 .want = {"WORLD_SIZE=4"},
	 .note = "WORLD_SIZE=auto of your environment"},
	{.name = "of an outer --ddp step",
	 .env = {"RANK=9", NESTED},
	 .differ = rank0,
	 .want = {"RANK=0"}},
	{.name = "what a container put there is not yours",
	 .differ = rank0,
	 .want = {"RANK=0"},
	 .task_env = {"RANK=9"}},
	{.name = "our names are replaced in silence",
	 .env = {"DDP_RANK=9", "DDP_SIZE=9"},
	 .differ = rank0,
	 .want = {"DDP_RANK=0", "DDP_SIZE=4"}},
};

static const struct row endpoint[] = {
	{.name = "computed",
	 .want = {"MASTER_ADDR=10.0.0.1", "MASTER_PORT=61234", "NCCL_RAS_ADDR=localhost:61235"}},
	{.name = "the user's address",
	 .env = {"MASTER_ADDR=me"},
	 .want = {"~MASTER_ADDR=me", "MASTER_PORT=61234"}},
	{.name = "the user's port",
	 .env = {"MASTER_PORT=29500"},
	 .want = {"MASTER_ADDR=10.0.0.1", "~MASTER_PORT=29500"}},
	{.name = "empty is not the user's",
	 .env = {"MASTER_ADDR=", "MASTER_PORT="},
	 .want = {"MASTER_ADDR=10.0.0.1", "MASTER_PORT=61234"}},
	{.name = "what a container put there is not the user's",
	 .want = {"MASTER_ADDR=10.0.0.1", "MASTER_PORT=61234"},
	 .task_env = {"MASTER_ADDR=localhost", "MASTER_PORT=1"}},
	{.name = "JAX", .want = {"JAX_COORDINATOR_ADDRESS=10.0.0.1:61234"}},
	{.name = "JAX, the user's address and port",
	 .env = {"MASTER_ADDR=fe80::1", "MASTER_PORT=5"},
	 .want = {"JAX_COORDINATOR_ADDRESS=[fe80::1]:5"}},
	{.name = "JAX, the user's own",
	 .env = {"JAX_COORDINATOR_ADDRESS=h:1"},
	 .want = {"~JAX_COORDINATOR_ADDRESS=h:1"}},
	{.name = "JAX, an outer step's",
	 .env = {"JAX_COORDINATOR_ADDRESS=h:1", "DDP_JOB=a.1.1",
		 "DDP_OURS=JAX_COORDINATOR_ADDRESS=h:1"},
	 .want = {"JAX_COORDINATOR_ADDRESS=10.0.0.1:61234"}},
	{.name = "no port for RAS", .differ = no_ras, .want = {"!NCCL_RAS_ADDR"}},
	{.name = "the user's NCCL_*",
	 .env = {"NCCL_RAS_ADDR=h:1", "NCCL_SOCKET_MAGIC=0x1", "NCCL_DEBUG=INFO"},
	 .want = {"~NCCL_RAS_ADDR=h:1", "~NCCL_SOCKET_MAGIC=0x1", "!NCCL_DEBUG"}},
	{.name = "reserved by Slurm",
	 .differ = reserved,
	 .task_env = {"SLURM_STEP_RESV_PORTS=18001-18003"},
	 .want = {"MASTER_PORT=18001", "NCCL_RAS_ADDR=localhost:18002"}},
	{.name = "one reserved by Slurm",
	 .differ = reserved,
	 .task_env = {"SLURM_STEP_RESV_PORTS=18001"},
	 .want = {"MASTER_PORT=18001", "!NCCL_RAS_ADDR"}},
	{.name = "reserved, malformed",
	 .differ = reserved,
	 .task_env = {"SLURM_STEP_RESV_PORTS=x"},
	 .want = {"MASTER_PORT=61234", "NCCL_RAS_ADDR=localhost:61235"}},
	{.name = "reserved, and srun knew better",
	 .task_env = {"SLURM_STEP_RESV_PORTS=18001-18003"},
	 .want = {"MASTER_PORT=61234", "NCCL_RAS_ADDR=localhost:61235"}},
	{.name = "reserved, and the user's",
	 .env = {"MASTER_PORT=29500"},
	 .differ = reserved,
	 .task_env = {"MASTER_PORT=29500", "SLURM_STEP_RESV_PORTS=18001-18003"},
	 .want = {"~MASTER_PORT=29500"}},
	{.name = "torchrun follows the user's endpoint",
	 .env = {"MASTER_ADDR=me", "MASTER_PORT=7"},
	 .differ = one_per_node,
	 .want = {"PET_MASTER_ADDR=me", "PET_MASTER_PORT=7", "PET_RDZV_ENDPOINT=me:7"}},
};

static const struct row nested[] = {
	{.name = "inherited values are ours",
	 .env = {"MASTER_PORT=5", "OMP_NUM_THREADS=3", NESTED},
	 .differ = mask_of_6,
	 .want = {"MASTER_PORT=61234", "OMP_NUM_THREADS=6"}},
	{.name = "changed in between, they are the user's",
	 .env = {"MASTER_PORT=6", "OMP_NUM_THREADS=4", NESTED},
	 .differ = mask_of_6,
	 .want = {"~MASTER_PORT=6", "~OMP_NUM_THREADS=4"}},
	{.name = "not on the list, they always were",
	 .env = {"MASTER_ADDR=me", NESTED},
	 .want = {"~MASTER_ADDR=me"}},
	{.name = "stale PET_* are swept", .env = {"PET_NNODES=2", NESTED}, .want = {"-PET_NNODES"}},
	{.name = "PET_* that the user changed stay",
	 .env = {"PET_NNODES=3", NESTED},
	 .want = {"!PET_NNODES"}},
	{.name = "the user's own PET_* stay", .env = {"PET_NNODES=2"}, .want = {"!PET_NNODES"}},
	{.name = "stale error", .env = {"DDP_ERROR=no port"}, .want = {"-DDP_ERROR"}},
	{.name = "stale device, share and end",
	 .env = {"DDP_DEVICE=1", "DDP_SHARE=0.5", "DDP_END_TIME=5"},
	 .want = {"-DDP_DEVICE", "-DDP_SHARE", "-DDP_END_TIME"}},
	{.name = "stale rendezvous",
	 .env = {"DDP_RENDEZVOUS=/x", "DDP_INIT_METHOD=file:///x", "DDP_INIT_FILE=x"},
	 .differ = no_directory,
	 .want = {"-DDP_RENDEZVOUS", "-DDP_INIT_METHOD", "-DDP_INIT_FILE"},
	 .note = "n1 does not have /home/ann/.ddp"},
	{.name = "escaped on the list",
	 .env = {"MASTER_ADDR=a b", "DDP_OURS=MASTER_ADDR=a%20b"},
	 .want = {"MASTER_ADDR=10.0.0.1"}},
	{.name = "the channel ends here",
	 .env = {"SLURM_DDP_STEP=v1;job=42"},
	 .want = {"-SLURM_DDP_STEP"}},
	{.name = "no agent serves this step",
	 .env = {"TORCHELASTIC_USE_AGENT_STORE=True"},
	 .want = {"-TORCHELASTIC_USE_AGENT_STORE"}},
	{.name = "nor is it mentioned without", .want = {"!TORCHELASTIC_USE_AGENT_STORE"}},
	{.name = "the list names what was chosen, and nothing kept",
	 .env = {"MASTER_ADDR=me"},
	 .differ = no_ras,
	 .want = {"DDP_OURS=MASTER_PORT=61234;NCCL_SOCKET_MAGIC=0xf390917721ec893e;"
		  "JAX_COORDINATOR_ADDRESS=me:61234;OMP_NUM_THREADS=1;"
		  "TORCHELASTIC_RUN_ID=big.42.7"}},
};

static const struct row torchrun[] = {
	{.name = "one task on each node",
	 .differ = one_per_node,
	 .want = {"PET_NNODES=2", "PET_NODE_RANK=1", "!PET_NPROC_PER_NODE",
		  "PET_MASTER_ADDR=10.0.0.1", "PET_MASTER_PORT=61234", "PET_RDZV_BACKEND=static",
		  "PET_RDZV_ENDPOINT=10.0.0.1:61234", "PET_RDZV_ID=big.42.7"}},
	{.name = "with its devices",
	 .env = {TWO},
	 .differ = one_per_node,
	 .want = {"PET_NPROC_PER_NODE=2", "LOCAL_RANK=0"}},
	{.name = "one task in all",
	 .env = {ONE},
	 .differ = alone,
	 .want = {"PET_NNODES=1", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=1"}},
	{.name = "the user's stay",
	 .env = {"PET_NPROC_PER_NODE=8", "PET_RDZV_BACKEND=c10d", "PET_RDZV_ID=mine", TWO},
	 .differ = one_per_node,
	 .want = {"~PET_NPROC_PER_NODE=8", "~PET_RDZV_BACKEND=c10d", "~PET_RDZV_ID=mine",
		  "PET_NNODES=2"}},
	{.name = "ours of an outer step do not",
	 .env = {"PET_NNODES=2", "PET_NODE_RANK=0", "DDP_JOB=a.1.1",
		 "DDP_OURS=PET_NNODES=2;PET_NODE_RANK=0"},
	 .differ = one_per_node,
	 .want = {"PET_NNODES=2", "PET_NODE_RANK=1"}},
	{.name = "two tasks on each node",
	 .env = {TWO},
	 .want = {"!PET_NNODES", "!PET_NODE_RANK", "!PET_NPROC_PER_NODE", "!PET_MASTER_ADDR",
		  "!PET_MASTER_PORT", "!PET_RDZV_BACKEND", "!PET_RDZV_ENDPOINT", "!PET_RDZV_ID"}},
	{.name = "two components on one node",
	 .differ = two_of_two,
	 .want = {"!PET_NNODES", "!PET_RDZV_ID"}},
	{.name = "one task here, three there",
	 .env = {TWO},
	 .differ = uneven_one,
	 .want = {"!PET_NNODES", "!PET_RDZV_ID"}},
};

static const struct row threads[] = {
	{.name = "CPUs per task",
	 .env = {"SLURM_CPUS_PER_TASK=5", "SLURM_CPUS_ON_NODE=4"},
	 .differ = mask_of_6,
	 .want = {"OMP_NUM_THREADS=5"}},
	{.name = "the mask",
	 .env = {"SLURM_CPUS_ON_NODE=64"},
	 .differ = mask_of_6,
	 .want = {"OMP_NUM_THREADS=6"}},
	{.name = "the node's CPUs over its tasks",
	 .env = {"SLURM_CPUS_ON_NODE=8"},
	 .differ = mask_of_6,
	 .want = {"OMP_NUM_THREADS=4"}},
	{.name = "without a mask", .env = {"SLURM_CPUS_ON_NODE=8"}, .want = {"OMP_NUM_THREADS=4"}},
	{.name = "the mask alone", .differ = mask_of_6, .want = {"OMP_NUM_THREADS=6"}},
	{.name = "more tasks than CPUs",
	 .env = {"SLURM_CPUS_ON_NODE=1"},
	 .differ = mask_of_6,
	 .want = {"OMP_NUM_THREADS=1"}},
	{.name = "nothing is known", .want = {"OMP_NUM_THREADS=1"}},
	{.name = "nonsense is nothing",
	 .env = {"SLURM_CPUS_PER_TASK=0", "SLURM_CPUS_ON_NODE=x"},
	 .differ = mask_of_6,
	 .want = {"OMP_NUM_THREADS=6"}},
	{.name = "the user's",
	 .env = {"OMP_NUM_THREADS=2", "SLURM_CPUS_PER_TASK=5"},
	 .want = {"~OMP_NUM_THREADS=2"}},
};

static const struct row lightning[] = {
	{.name = "missing", .want = {"TORCHELASTIC_RUN_ID=big.42.7"}},
	{.name = "there", .env = {"SLURM_NTASKS_PER_NODE=2"}, .want = {"!TORCHELASTIC_RUN_ID"}},
	{.name = "one task needs none", .differ = alone, .want = {"!TORCHELASTIC_RUN_ID"}},
	{.name = "the user's",
	 .env = {"TORCHELASTIC_RUN_ID=mine"},
	 .want = {"~TORCHELASTIC_RUN_ID=mine"}},
	{.name = "ours of an outer step",
	 .env = {"SLURM_NTASKS_PER_NODE=2", "TORCHELASTIC_RUN_ID=a.1.1",
		 "DDP_OURS=TORCHELASTIC_RUN_ID=a.1.1"},
	 .want = {"-TORCHELASTIC_RUN_ID"}},
};

static const struct row rendezvous[] = {
	{.name = "not there",
	 .differ = no_directory,
	 .want = {"!DDP_RENDEZVOUS", "!DDP_INIT_METHOD", "!DDP_INIT_FILE", "MASTER_PORT=61234"},
	 .note = "no rendezvous directory: n1 does not have /home/ann/.ddp"},
	{.name = "per cent",
	 .differ = odd_directory,
	 .want = {"DDP_RENDEZVOUS=/home/ann/50%/.ddp/x", "!DDP_INIT_METHOD", "!DDP_INIT_FILE"},
	 .note = "choose another directory with --ddp-rdzv=DIR"},
	{.name = "question mark",
	 .differ = query_directory,
	 .want = {"DDP_RENDEZVOUS=/home/ann/what?/.ddp/x", "!DDP_INIT_METHOD", "!DDP_INIT_FILE"},
	 .note = "/home/ann/what?/.ddp/x has '?', '#', '%'"},
	{.name = "line break",
	 .differ = split_directory,
	 .want = {"DDP_RENDEZVOUS=/home/ann/a\nb/.ddp/x", "!DDP_INIT_METHOD", "!DDP_INIT_FILE"},
	 .note = "or a line break"},
};

#define ERASED "SLURM_SHARDS_ON_NODE=2", "SLURMD_TRES_BIND=gpu:single:1"
#define BOUND "CUDA_VISIBLE_DEVICES=1", "SLURM_STEP_GPUS=1", "SLURMD_TRES_BIND=gpu:single:1"

static const struct row devices[] = {
	{.name = "two tasks on two",
	 .env = {TWO},
	 .want = {"LOCAL_RANK=1", "DDP_LOCAL_RANK=1", "DDP_DEVICE=1", "DDP_SHARE=1",
		  "!XLA_PYTHON_CLIENT_MEM_FRACTION", "!CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
		  "!PYTORCH_CUDA_ALLOC_CONF", "!CUDA_VISIBLE_DEVICES"}},
	{.name = "bound",
	 .env = {TWO},
	 .want = {"LOCAL_RANK=0", "DDP_LOCAL_RANK=1", "DDP_DEVICE=0", "DDP_SHARE=1",
		  "!CUDA_VISIBLE_DEVICES"},
	 .note = "--gpus-per-node=2 --gpu-bind=none keeps them",
	 .task_env = {BOUND}},
	{.name = "bound, one task here: no peer to lose",
	 .env = {TWO},
	 .differ = one_per_node,
	 .want = {"LOCAL_RANK=0"},
	 .task_env = {BOUND}},
	{.name = "bound, LOCAL_RANK by wish",
	 .env = {TWO},
	 .differ = mode_task,
	 .want = {"LOCAL_RANK=1", "DDP_DEVICE=0"},
	 .note = "peer-to-peer",
	 .task_env = {BOUND}},
	{.name = "three on two",
	 .env = {TWO},
	 .differ = three_here,
	 .want = {"LOCAL_RANK=0", "DDP_DEVICE=0", "DDP_SHARE=0.5",
		  "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5"},
	 .note = "n1: 3 tasks on 2 devices",
	 .crowd = "n1: 3 ranks on GPUs 0,1, more than one on a GPU: "},
	{.name = "erased by Slurm, put back",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=2"},
	 .differ = capacity_4,
	 .want = {"CUDA_VISIBLE_DEVICES=0", "DDP_DEVICE=0", "LOCAL_RANK=0", "DDP_SHARE=0.25"},
	 .task_env = {ERASED}},
};

#define HALF ONE, "SLURM_SHARDS_ON_NODE=4"

static const struct row shares[] = {
	{.name = "half of one GPU",
	 .env = {HALF},
	 .differ = capacity_4,
	 .want = {"DDP_SHARE=0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5", "!PYTORCH_CUDA_ALLOC_CONF",
		  "!CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}},
	{.name = "two nodes, one rank each, 32 of 64",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=32"},
	 .differ = capacity_64_one_per_node,
	 .want = {"DDP_SHARE=0.5", "LOCAL_RANK=0", "PET_NPROC_PER_NODE=1"}},
	{.name = "two tasks on a whole GPU", .env = {ONE}, .want = {"DDP_SHARE=0.5"}},
	{.name = "off",
	 .env = {ONE},
	 .differ = share_off,
	 .want = {"!DDP_SHARE", "!XLA_PYTHON_CLIENT_MEM_FRACTION", "DDP_DEVICE=0"}},
	{.name = "off sweeps an outer step's",
	 .env = {ONE, "DDP_SHARE=0.5"},
	 .differ = share_off,
	 .want = {"-DDP_SHARE"}},
	{.name = "torch",
	 .env = {ONE},
	 .differ = share_torch,
	 .want = {"DDP_SHARE=0.5", "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5"}},
	{.name = "torch, a whole GPU each",
	 .env = {TWO},
	 .differ = share_torch,
	 .want = {"DDP_SHARE=1", "!PYTORCH_CUDA_ALLOC_CONF"}},
	{.name = "MPS",
	 .env = {ONE},
	 .differ = mps,
	 .want = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"}},
	{.name = "MPS, a whole GPU each",
	 .env = {TWO},
	 .differ = mps,
	 .want = {"!CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}},
	{.name = "MPS, never 0",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=1"},
	 .differ = mps_tiny,
	 .want = {"DDP_SHARE=0.0005", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1",
		  "CUPY_GPU_MEMORY_LIMIT=0.05%", "!CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}},
	{.name = "MPS, half of the memory, rounded down",
	 .env = {ONE},
	 .differ = mps_memory,
	 .want = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40779M",
		  "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"}},
	{.name = "MPS, memory never 0",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=1"},
	 .differ = mps_memory_tiny,
	 .want = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1M"}},
	{.name = "MPS, the user's memory",
	 .env = {ONE, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"},
	 .differ = mps_memory,
	 .want = {"~CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G",
		  "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"}},
	{.name = "memory is known, no MPS",
	 .env = {ONE},
	 .differ = memory_alone,
	 .want = {"!CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}},
	{.name = "every framework that no version of which stops",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=1"},
	 .differ = capacity_3_alone,
	 .want = {"DDP_SHARE=0.333333", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.333333",
		  "CUPY_GPU_MEMORY_LIMIT=33.3333%", "TF_FORCE_GPU_ALLOW_GROWTH=true",
		  "FLAGS_fraction_of_gpu_memory_to_use=0.333333", "!PYTORCH_CUDA_ALLOC_CONF"}},
	{.name = "what the user said stays, each by itself",
	 .env = {ONE, "CUPY_GPU_MEMORY_LIMIT=90%", "TF_FORCE_GPU_ALLOW_GROWTH=false"},
	 .want = {"~CUPY_GPU_MEMORY_LIMIT=90%", "~TF_FORCE_GPU_ALLOW_GROWTH=false",
		  "FLAGS_fraction_of_gpu_memory_to_use=0.5"}},
	{.name = "JAX, by its new name: both are an error",
	 .env = {ONE, "XLA_CLIENT_MEM_FRACTION=.9"},
	 .want = {"!XLA_PYTHON_CLIENT_MEM_FRACTION", "CUPY_GPU_MEMORY_LIMIT=50%"}},
	{.name = "PyTorch, by its new name",
	 .env = {ONE, "PYTORCH_ALLOC_CONF=expandable_segments:True"},
	 .differ = share_torch,
	 .want = {"!PYTORCH_CUDA_ALLOC_CONF", "DDP_SHARE=0.5"}},
	{.name = "PyTorch, by AMD's name",
	 .env = {ONE, "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"},
	 .differ = share_torch,
	 .want = {"!PYTORCH_CUDA_ALLOC_CONF"}},
	{.name = "the user's",
	 .env = {ONE, "XLA_PYTHON_CLIENT_MEM_FRACTION=.9", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70"},
	 .differ = mps,
	 .want = {"DDP_SHARE=0.5", "~XLA_PYTHON_CLIENT_MEM_FRACTION=.9",
		  "~CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70"}},
	{.name = "the user's allocator",
	 .env = {ONE, "PYTORCH_CUDA_ALLOC_CONF=x:1"},
	 .differ = share_torch,
	 .want = {"~PYTORCH_CUDA_ALLOC_CONF=x:1"}},
	{.name = "shards of a GPU not known",
	 .env = {HALF},
	 .want = {"!DDP_SHARE"},
	 .note = "shards_per_gpu=N"},
	{.name = "shards of two GPUs",
	 .env = {TWO, "SLURM_SHARDS_ON_NODE=3"},
	 .differ = capacity_4,
	 .want = {"!DDP_SHARE"},
	 .note = "each of its 2 GPUs has is not known"},
	{.name = "shards on two GPUs, in parts",
	 .env = {TWO, "SLURM_SHARDS_ON_NODE=5"},
	 .differ = parts_3_2,
	 .want = {"DDP_SHARE=0.5"}},
	{.name = "shards of each task's own",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=4", "SLURMD_TRES_BIND=gres/shard:per_task:2"},
	 .differ = capacity_4,
	 .want = {"DDP_SHARE=0.5"}},
};

/* NCCL and several ranks on a GPU: one line a step. */
static const struct row crowds[] = {
	{.name = "two on one",
	 .env = {ONE},
	 .differ = rank0,
	 .want = {"DDP_SHARE=0.5"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{.name = "said by the first alone", .env = {ONE}, .want = {"DDP_SHARE=0.5"}},
	{.name = "a GPU each", .env = {TWO}, .differ = rank0, .want = {"DDP_SHARE=1"}},
	{.name = "one rank on a part of a GPU",
	 .env = {ONE, "SLURM_SHARDS_ON_NODE=32"},
	 .differ = capacity_64_one_per_node,
	 .want = {"DDP_SHARE=0.5"}},
	{.name = "ddp-train does without NCCL there",
	 .env = {ONE},
	 .differ = train,
	 .want = {"DDP_SHARE=0.5"}},
	{.name = "who has NCCL's switch knows",
	 .env = {ONE, "NCCL_MULTI_RANK_GPU_ENABLE=1"},
	 .differ = rank0,
	 .want = {"!NCCL_MULTI_RANK_GPU_ENABLE"}},
	{.name = "no share is known, and yet they share",
	 .env = {HALF},
	 .differ = rank0,
	 .want = {"!DDP_SHARE"},
	 .note = "shards_per_gpu=N",
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{.name = "a later node, where the first has as many",
	 .env = {ONE, "SLURM_STEP_TASKS_PER_NODE=3(x2)"},
	 .differ = three_on_node_1,
	 .want = {"LOCAL_WORLD_SIZE=3"}},
	{.name = "a later node, where the first has one",
	 .env = {ONE, "SLURM_STEP_TASKS_PER_NODE=1,3"},
	 .differ = three_on_node_1,
	 .want = {"LOCAL_WORLD_SIZE=3"},
	 .crowd = "n1: 3 ranks on GPU 0: "},
	{.name = "a later node, and nobody knows",
	 .env = {ONE},
	 .differ = three_on_node_1,
	 .want = {"LOCAL_WORLD_SIZE=3"}},
	{.name = "a name for a number",
	 .env = {"CUDA_VISIBLE_DEVICES=MIG-8f2c"},
	 .differ = rank0,
	 .want = {"DDP_SHARE=0.5"},
	 .crowd = "n1: 2 ranks on GPU MIG-8f2c: "},
};

static const struct row warnings[] = {
	{.name = "uneven",
	 .env = {"SLURM_STEP_TASKS_PER_NODE=3,1"},
	 .differ = three_here,
	 .want = {"LOCAL_WORLD_SIZE=3"},
	 .note = "different numbers of tasks (3,1)"},
	{.name = "uneven, said by rank 0 alone",
	 .env = {"SLURM_STEP_TASKS_PER_NODE=3,1"},
	 .differ = uneven_one,
	 .want = {"LOCAL_WORLD_SIZE=1"}},
	{.name = "even",
	 .env = {"SLURM_STEP_TASKS_PER_NODE=2(x2)"},
	 .differ = rank0,
	 .want = {"LOCAL_WORLD_SIZE=2"}},
	{.name = "unreadable is not uneven",
	 .env = {"SLURM_STEP_TASKS_PER_NODE=x"},
	 .differ = rank0,
	 .want = {"LOCAL_WORLD_SIZE=2"}},
};

static char *const *task_env(const struct row *row)
{
	return unit_env(row->task_env[0] ? row->task_env : row->env);
}

static void row_plan(const struct row *row, struct scene *s, struct ddp_plan *plan)
{
	struct ddp_message message = {""};

	scene_init(s);
	if (row->differ)
		row->differ(s);
	s->facts.step_env = s->devices.step_env = unit_env(row->env);
	s->facts.task_env = s->devices.task_env = task_env(row);
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

static const struct ddp_variable_info *in_table(const char *name)
{
	for (int v = 0; v < DDP_VAR_COUNT; v++)
		if (strcmp(ddp_variable_info((enum ddp_variable)v)->name, name) == 0)
			return ddp_variable_info((enum ddp_variable)v);
	return NULL;
}

/* What is touched beside the table: three names, each for its one reason. */
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

/* What holds for any plan. */
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

/* An inner step, started with all that this task has, finds nothing in it that is the user's. */
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

/* What will happen and what to do, in one line. */
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
	for (const char *const *want = row->want; *want; want++)
		check_want(row->name, &plan, *want);
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

#define TEST_OF(table)                 \
	TEST_ROWS(test_##table, table) \
	{                              \
		check_row(&table[_i]); \
	}

TEST_OF(plain)
TEST_OF(identity)
TEST_OF(endpoint)
TEST_OF(nested)
TEST_OF(torchrun)
TEST_OF(threads)
TEST_OF(lightning)
TEST_OF(rendezvous)
TEST_OF(devices)
TEST_OF(shares)
TEST_OF(crowds)
TEST_OF(warnings)

static const struct {
	const struct row *rows;
	int n;
} tables[] = {
#define TABLE(t)           \
	{                  \
		t, ROWS(t) \
	}
	TABLE(plain),	 TABLE(identity), TABLE(endpoint),  TABLE(nested),
	TABLE(torchrun), TABLE(threads),  TABLE(lightning), TABLE(rendezvous),
	TABLE(devices),	 TABLE(shares),	  TABLE(crowds),    TABLE(warnings),
#undef TABLE
};

static void mark_set(const struct ddp_plan *plan, bool *set)
{
	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const char *name = ddp_variable_info((enum ddp_variable)v)->name;
		const struct ddp_change *c = ddp_plan_find(plan, name);

		set[v] |= c && c->action == DDP_ACTION_SET;
	}
}

/* No row of contract.def is dead. */
TEST(test_every_variable)
{
	bool set[DDP_VAR_COUNT] = {false};
	const char *const none[] = {NULL};
	struct ddp_plan plan;
	struct scene s;

	for (int t = 0; t < ROWS(tables); t++)
		for (int i = 0; i < tables[t].n; i++) {
			row_plan(&tables[t].rows[i], &s, &plan);
			mark_set(&plan, set);
			ddp_plan_clear(&plan);
		}
	ck_assert(!set[DDP_VAR_DDP_ERROR]);
	ck_assert_int_eq(ddp_plan_refuse(unit_env(none), "why", &plan), 0);
	mark_set(&plan, set);
	ddp_plan_clear(&plan);
	for (int v = 0; v < DDP_VAR_COUNT; v++)
		ck_assert_msg(set[v], "%s is never set",
			      ddp_variable_info((enum ddp_variable)v)->name);
}

/* The examples of the manual are what is set: a share of 0.25 of a GPU with 80 GiB. */
TEST_LOOP(test_examples, 0, DDP_FRAMEWORK_COUNT)
{
	static const char *const env[] = {ONE, "SLURM_SHARDS_ON_NODE=2", NULL};
	const struct ddp_framework *row = ddp_framework(_i);
	const struct row what = {.name = row->name};
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
		unit_env(env);
	ddp_devices_decide(&s.devices, &s.facts.devices);
	ck_assert_int_eq(ddp_plan_make(&s.facts, &plan, &(struct ddp_message){""}), 0);
	change = ddp_plan_find(&plan, ddp_variable_info(row->variable)->name);
	unit_text(row->name, "value", change ? change->value : NULL, row->example);
	ck_assert_int_eq(ddp_variable_info(row->variable)->kind, DDP_KIND_POLITE);
	ck_assert(*row->since && *row->help);
	ddp_plan_clear(&plan);
}

/* Names that belong to others; setting them would break those. */
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

/* Everything that can be wrong at once: each is said, by whom it should be. */
TEST(test_notes)
{
	static const char *const env[] = {"RANK=9", "LOCAL_RANK=9", "SLURM_STEP_TASKS_PER_NODE=3,1",
					  TWO, NULL};
	struct ddp_message message = {""};
	int step = 0, node = 0;
	struct ddp_plan plan;
	struct scene s;

	scene_init(&s);
	three_here(&s);
	no_directory(&s);
	s.facts.step_env = s.facts.task_env = unit_env(env);
	s.devices = (struct ddp_device_facts){
		.step_env = unit_env(env), .task_env = unit_env(env), .local_size = 3};
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

static const struct {
	const char *name;
	const char *env[12];
	const char *want[12];
	size_t changes;
} refusals[] = {
	{"nothing inherited", {"HOME=/"}, {"DDP_ERROR=no luck", "!RANK", "!SLURM_DDP_STEP"}, 1},
	{"what would make a world of one",
	 {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=n1", "MASTER_PORT=1", "HOME=/"},
	 {"DDP_ERROR=no luck", "-RANK", "-WORLD_SIZE", "-LOCAL_RANK", "-MASTER_ADDR",
	  "-MASTER_PORT", "!HOME"},
	 6},
	{"ours of an outer step",
	 {"DDP_RANK=0", "DDP_SIZE=1", "DDP_INIT_METHOD=x", "DDP_INIT_FILE=x", "DDP_RENDEZVOUS=x",
	  "SLURM_DDP_STEP=v1"},
	 {"DDP_ERROR=no luck", "-DDP_RANK", "-DDP_SIZE", "-DDP_INIT_METHOD", "-DDP_INIT_FILE",
	  "-DDP_RENDEZVOUS", "-SLURM_DDP_STEP"},
	 7},
	{"an older error", {"DDP_ERROR=old"}, {"DDP_ERROR=no luck"}, 1},
};

TEST_ROWS(test_refuse, refusals)
{
	struct ddp_plan plan;

	ck_assert_int_eq(ddp_plan_refuse(unit_env(refusals[_i].env), "no luck", &plan), 0);
	for (const char *const *want = refusals[_i].want; *want; want++)
		check_want(refusals[_i].name, &plan, *want);
	ck_assert_uint_eq(plan.n_changes, refusals[_i].changes);
	ck_assert_uint_eq(plan.n_notes, 0);
	ddp_plan_clear(&plan);
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
	{"another is ours", {"MASTER_PORT=1", "DDP_OURS=XMASTER_PORT=1;MASTER_PORTS=1"}, "1"},
	{"ours among others", {"MASTER_PORT=1", "DDP_OURS=A=2;MASTER_PORT=1;B=3"}, NULL},
	{"ours, empty", {"MASTER_PORT=1", "DDP_OURS="}, "1"},
	{"ours, spoilt", {"MASTER_PORT=1", "DDP_OURS=MASTER_PORT=%"}, "1"},
};

TEST_ROWS(test_users, values)
{
	unit_text(values[_i].name, "value",
		  ddp_users_value(unit_env(values[_i].env), "MASTER_PORT"), values[_i].users);
}

UNIT_MAIN("contract", NULL)
