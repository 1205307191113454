/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "devices.h"
#include "unit.h"

#include <stdarg.h>
#include <stdio.h>

#define TWO " CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1 SLURM_GPUS_ON_NODE=2"
#define ONE " CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0 SLURM_GPUS_ON_NODE=1"
#define FOUR " CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3 SLURM_GPUS_ON_NODE=4"
#define SINGLE(n) " SLURMD_TRES_BIND=gpu:single:" #n
#define PER_TASK(n) " SLURMD_TRES_BIND=gres/gpu:per_task:" #n
#define SHARDS_PER_TASK(n) " SLURMD_TRES_BIND=gres/shard:per_task:" #n
#define ON(cuda, global) " CUDA_VISIBLE_DEVICES=" cuda " SLURM_STEP_GPUS=" global

enum { AUTO = DDP_LOCAL_RANK_AUTO, TASK = DDP_LOCAL_RANK_TASK, DEVICE = DDP_LOCAL_RANK_DEVICE };

/*
 * A row of the table: a task, the variables that Slurm set for its step on this node, the variables
 * of the task (NULL: the same), and the expected decision.
 */
static const struct {
	const char *name;
	uint32_t local_id, local_size, shards_per_gpu;
	int mode; /* value of --ddp-local-rank */
	const char *step_env, *task_env;
	const char *want;
} rows[] = {
	/* Requests as on Slurm 22.05, on nodes of 2 GPUs with 4 shards each. */
	{"-n2 --gres=gpu:2, 0", 0, 2, 4, AUTO, TWO, NULL,
	 "2 of 2, device 0, local rank 0, 1 on it, share 1"},
	{"-n2 --gres=gpu:2, 1", 1, 2, 4, AUTO, TWO, NULL,
	 "2 of 2, device 1, local rank 1, 1 on it, share 1"},
	{"-n2 --gpus-per-task=1, 1", 1, 2, 4, AUTO, TWO,
	 ON("1", "1") PER_TASK(1) " SLURM_GPUS_PER_TASK=1",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"-n2 --gpus-per-task=1, 1, devices constrained", 1, 2, 4, AUTO, TWO,
	 ON("0", "1") PER_TASK(1) " SLURM_GPUS_PER_TASK=1",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"-n2 --gres=gpu:2 --gpu-bind=single:1, 0", 0, 2, 4, AUTO, TWO, ON("0", "0") SINGLE(1),
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"-n4 --gres=gpu:2 --gpu-bind=single:2, 0", 0, 4, 4, AUTO, TWO, ON("0", "0") SINGLE(2),
	 "1 of 2, device 0, local rank 0, 2 on it, bound, share 0.5"},
	{"-n4 --gres=gpu:2 --gpu-bind=single:2, 3", 3, 4, 4, AUTO, TWO, ON("1", "1") SINGLE(2),
	 "1 of 2, device 0, local rank 0, 2 on it, bound, share 0.5"},
	{"-n4 --gres=shard:4, 0", 0, 4, 4, AUTO, ONE " SLURM_SHARDS_ON_NODE=4", NULL,
	 "1 of 1, device 0, local rank 0, 4 on it, share 0.25"},
	{"-n2 --gres=shard:1, 1", 1, 2, 4, AUTO, ONE " SLURM_SHARDS_ON_NODE=1", NULL,
	 "1 of 1, device 0, local rank 0, 2 on it, share 0.125"},
	{"-n2 --gres=shard:2 --gpu-bind=single:1, 1", 1, 2, 4, AUTO, ONE " SLURM_SHARDS_ON_NODE=2",
	 "SLURM_SHARDS_ON_NODE=2" SINGLE(1),
	 "1 of 1, device 0, local rank 0, 2 on it, put back CUDA_VISIBLE_DEVICES=0, share 0.25"},
	{"-N2 -n4 --gres=gpu:2, 3+1, 0", 0, 3, 4, AUTO, TWO, NULL,
	 "2 of 2, device 0, local rank 0, 2 on it, in turn, share 0.5"},
	{"-N2 -n4 --gres=gpu:2, 3+1, 1", 1, 3, 4, AUTO, TWO, NULL,
	 "2 of 2, device 1, local rank 1, 1 on it, in turn, share 1"},
	{"-N2 -n2 --gres=shard:32 of 64", 0, 1, 64, AUTO, ONE " SLURM_SHARDS_ON_NODE=32", NULL,
	 "1 of 1, device 0, local rank 0, 1 on it, share 0.5"},

	/* Bindings from the documentation, and bindings of newer Slurm releases. */
	{"--gpus-per-task=2, 1, not constrained (or allow-task-sharing)", 1, 2, 0, AUTO, FOUR,
	 ON("2,3", "2,3") " SLURMD_TRES_BIND=gpu:per_task:2 SLURM_GPUS_PER_TASK=2",
	 "2 of 4, device 0, local rank 0, 1 on it, bound, share 1"},
	{"--gpus-per-task=2, one task", 0, 1, 0, AUTO, TWO,
	 TWO PER_TASK(2) " SLURM_GPUS_PER_TASK=2",
	 "2 of 2, device 0, local rank 0, 1 on it, share 1"},
	{"--gpus-per-task=2 --tres-bind=gres/gpu:none, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURMD_TRES_BIND=gres/gpu:none SLURM_GPUS_PER_TASK=2",
	 "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"--gpus-per-task=a100:2, unbound, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_GPUS_PER_TASK=a100:2", "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"--gpus-per-task=2 of Slurm 23.11, unbound, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_TRES_PER_TASK=cpu:2,gres/gpu:2",
	 "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"--gpus-per-task=2 of Slurm 25.11, unbound, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_TRES_PER_TASK=cpu=2,gres/gpu=2",
	 "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"--gpus-per-task=a100:2 of Slurm 23.11, unbound, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_TRES_PER_TASK=gres/gpu:a100:2",
	 "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"--gpus-per-task=a100:1,v100:1 of Slurm 26.05, unbound, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_TRES_PER_TASK=cpu=2,gres/gpu:a100=1,gres/gpu:v100=1",
	 "4 of 4, device 2, local rank 1, 1 on it, share 1"},
	{"shards and CPUs of each task are no GPUs, 1", 1, 2, 0, AUTO, FOUR,
	 FOUR " SLURM_TRES_PER_TASK=cpu=2,gres/shard=2",
	 "4 of 4, device 1, local rank 1, 1 on it, share 1"},
	{"--gpu-bind=verbose,single:1, 1", 1, 2, 0, AUTO, TWO,
	 ON("1", "1") " SLURMD_TRES_BIND=gpu:verbose,single:1",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"single:1 with more tasks than GPUs, 2", 2, 3, 0, AUTO, TWO, ON("0", "0") SINGLE(1),
	 "1 of 2, device 0, local rank 0, 2 on it, bound, share 0.5"},
	{"single:1 with more tasks than GPUs, 1", 1, 3, 0, AUTO, TWO, ON("1", "1") SINGLE(1),
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"map_gpu:0,1,1, 0", 0, 3, 0, AUTO, TWO, ON("0", "0") " SLURMD_TRES_BIND=gpu:map_gpu:0,1,1",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"map_gpu:0,1,1, 2", 2, 3, 0, AUTO, TWO, ON("1", "1") " SLURMD_TRES_BIND=gpu:map_gpu:0,1,1",
	 "1 of 2, device 0, local rank 0, 2 on it, bound, share 0.5"},
	{"map_gpu:0*3,1, starts again, 4 of 6", 4, 6, 0, AUTO, TWO,
	 ON("0", "0") " SLURMD_TRES_BIND=gpu:map_gpu:0*3,1",
	 "1 of 2, device 0, local rank 0, 5 on it, bound, share 0.2"},
	{"map_gpu without a number", 0, 2, 0, AUTO, TWO,
	 ON("0", "0") " SLURMD_TRES_BIND=gpu:map_gpu:x",
	 "1 of 2, device 0, local rank 0, unknown on it, bound, neighbours not known"},
	{"closest, even", 1, 4, 0, AUTO, TWO, ON("0", "0") " SLURMD_TRES_BIND=gpu:closest",
	 "1 of 2, device 0, local rank 0, 2 on it, bound, share 0.5"},
	{"closest, uneven", 1, 3, 0, AUTO, TWO, ON("0", "0") " SLURMD_TRES_BIND=gpu:closest",
	 "1 of 2, device 0, local rank 0, unknown on it, bound, neighbours not known"},
	{"closest, one task", 0, 1, 0, AUTO, TWO, ON("1", "1") " SLURMD_TRES_BIND=gpu:closest",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"a mask of all devices, beside who knows which, 0", 0, 2, 0, AUTO, TWO,
	 TWO " SLURMD_TRES_BIND=gpu:mask_gpu:0x3,0x1",
	 "2 of 2, device 0, local rank 0, unknown on it, neighbours not known"},
	{"a mask of one device, even, but not known to be", 1, 2, 0, AUTO, TWO,
	 ON("0", "0") " SLURMD_TRES_BIND=gpu:mask_gpu:0x1,0x1",
	 "1 of 2, device 0, local rank 0, unknown on it, bound, neighbours not known"},
	{"a mask of one device, one task", 0, 1, 0, AUTO, TWO,
	 ON("1", "1") " SLURMD_TRES_BIND=gpu:mask_gpu:0x2",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"mask_gpu with two devices each, 3 of 4", 3, 4, 0, AUTO, FOUR,
	 ON("2,3", "2,3") " SLURMD_TRES_BIND=gpu:mask_gpu:0x3,0xc",
	 "2 of 4, device 1, local rank 1, unknown on it, bound, in turn, neighbours not known"},
	{"--tres-per-task=gres/shard:2 on 2 GPUs, 1", 1, 2, 4, AUTO, TWO " SLURM_SHARDS_ON_NODE=4",
	 ON("1", "1") SHARDS_PER_TASK(2) " SLURM_SHARDS_ON_NODE=4",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 0.5"},
	{"--tres-per-task=gres/shard:3, of two GPUs, 0", 0, 2, 4, AUTO,
	 FOUR " SLURM_SHARDS_ON_NODE=6",
	 ON("0,1", "0,1") SHARDS_PER_TASK(3) " SLURM_SHARDS_ON_NODE=6",
	 "2 of 4, device 0, local rank 0, unknown on it, bound, parts not known"},
	{"--tres-per-task=gres/shard:1, three tasks on 2 GPUs", 1, 3, 4, AUTO,
	 TWO " SLURM_SHARDS_ON_NODE=3", ON("0", "0") SHARDS_PER_TASK(1) " SLURM_SHARDS_ON_NODE=3",
	 "1 of 2, device 0, local rank 0, unknown on it, bound, share 0.25"},
	{"--tres-per-task=gres/shard:3 of 4 on the node's only GPU", 0, 1, 4, AUTO,
	 ONE " SLURM_SHARDS_ON_NODE=3", ONE SHARDS_PER_TASK(3) " SLURM_SHARDS_ON_NODE=3",
	 "1 of 1, device 0, local rank 0, 1 on it, share 0.75"},
	{"--tres-per-task=gres/shard:1, shards per GPU not known", 0, 2, 0, AUTO,
	 ONE " SLURM_SHARDS_ON_NODE=2", ONE SHARDS_PER_TASK(1) " SLURM_SHARDS_ON_NODE=2",
	 "1 of 1, device 0, local rank 0, 2 on it, shards per GPU not known"},
	{"a text without a number", 0, 2, 0, AUTO, TWO,
	 ON("0", "0") " SLURMD_TRES_BIND=gpu:single:x",
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"single:0 is no count", 0, 3, 0, AUTO, TWO, ON("0", "0") " SLURMD_TRES_BIND=gpu:single:0",
	 "1 of 2, device 0, local rank 0, unknown on it, bound, neighbours not known"},

	/* Shards on several GPUs, which newer Slurm releases permit. */
	{"4 on 2 GPUs, in even parts for all one knows", 0, 2, 4, AUTO,
	 TWO " SLURM_SHARDS_ON_NODE=4", NULL,
	 "2 of 2, device 0, local rank 0, 1 on it, parts not known"},
	{"8 on 2 GPUs, all of both", 0, 2, 4, AUTO, TWO " SLURM_SHARDS_ON_NODE=8", NULL,
	 "2 of 2, device 0, local rank 0, 1 on it, share 1"},
	{"1 of 3, three tasks", 0, 3, 3, AUTO, ONE " SLURM_SHARDS_ON_NODE=1", NULL,
	 "1 of 1, device 0, local rank 0, 3 on it, share 0.111111"},
	{"more shards than the GPU is said to have, one task", 0, 1, 4, AUTO,
	 ONE " SLURM_SHARDS_ON_NODE=16", NULL, "1 of 1, device 0, local rank 0, 1 on it, share 1"},
	{"more shards than the GPU is said to have, two tasks", 0, 2, 4, AUTO,
	 ONE " SLURM_SHARDS_ON_NODE=16", NULL,
	 "1 of 1, device 0, local rank 0, 2 on it, share 0.5"},
	{"UUID, erased", 0, 2, 4, AUTO,
	 "CUDA_VISIBLE_DEVICES=GPU-1-a SLURM_STEP_GPUS=3 SLURM_SHARDS_ON_NODE=2",
	 "SLURM_SHARDS_ON_NODE=2" SINGLE(1),
	 "1 of 1, device 0, local rank 0, 2 on it, put back CUDA_VISIBLE_DEVICES=GPU-1-a, share 0.25"},
	{"AMD, erased", 0, 2, 4, AUTO,
	 "ROCR_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0 SLURM_SHARDS_ON_NODE=2",
	 "SLURM_SHARDS_ON_NODE=2" SINGLE(1),
	 "1 of 1, device 0, local rank 0, 2 on it, put back ROCR_VISIBLE_DEVICES=0, share 0.25"},
	{"whole GPUs, erased for gpu:none, 1", 1, 2, 4, AUTO, TWO, "SLURMD_TRES_BIND=gpu:none",
	 "2 of 2, device 1, local rank 1, 1 on it, put back CUDA_VISIBLE_DEVICES=0,1, share 1"},
	{"whole GPUs, erased for another reason, are not put back", 1, 2, 0, AUTO, TWO, SINGLE(1),
	 "0 of 2, no device, local rank 1, nothing to share"},

	/* Without a list of devices, with a list that is not of numbers, and with --ddp-local-rank. */
	{"no GRES at all", 0, 1, 0, AUTO, "", NULL,
	 "0 of 0, no device, local rank 0, nothing to share"},
	{"NoDevFiles", 1, 2, 0, AUTO, "CUDA_VISIBLE_DEVICES=NoDevFiles", NULL,
	 "0 of 0, no device, local rank 1, nothing to share"},
	{"empty", 0, 1, 0, AUTO, "CUDA_VISIBLE_DEVICES=", NULL,
	 "0 of 0, no device, local rank 0, nothing to share"},
	{"-1", 0, 1, 0, AUTO, "CUDA_VISIBLE_DEVICES=-1", NULL,
	 "0 of 0, no device, local rank 0, nothing to share"},
	{"CUDA stops at -1", 0, 1, 0, AUTO, "CUDA_VISIBLE_DEVICES=0,-1,1", NULL,
	 "1 of 1, device 0, local rank 0, 1 on it, share 1"},
	{"UUIDs, 1", 1, 2, 0, AUTO, "CUDA_VISIBLE_DEVICES=GPU-8f-1,GPU-9a-2 SLURM_STEP_GPUS=0,1",
	 NULL, "2 of 2, device 1, local rank 1, 1 on it, share 1"},
	{"MIG, bound, 1", 1, 2, 0, AUTO, "CUDA_VISIBLE_DEVICES=MIG-a-1,MIG-b-2 SLURM_STEP_GPUS=0,1",
	 "CUDA_VISIBLE_DEVICES=MIG-b-2 SLURM_STEP_GPUS=1" SINGLE(1),
	 "1 of 2, device 0, local rank 0, 1 on it, bound, share 1"},
	{"MIG by its old name", 0, 1, 0, AUTO, "CUDA_VISIBLE_DEVICES=MIG-GPU-8f-1/7/0", NULL,
	 "1 of 1, device 0, local rank 0, 1 on it, share 1"},
	{"AMD", 1, 2, 0, AUTO, "ROCR_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", NULL,
	 "2 of 2, device 1, local rank 1, 1 on it, share 1"},
	{"Intel", 1, 2, 0, AUTO, "ZE_AFFINITY_MASK=0,1", NULL,
	 "2 of 2, device 1, local rank 1, 1 on it, share 1"},
	{"OpenCL", 1, 2, 0, AUTO, "GPU_DEVICE_ORDINAL=0", NULL,
	 "1 of 1, device 0, local rank 0, 2 on it, share 0.5"},
	{"five tasks on three devices, 4", 4, 5, 0, AUTO, "CUDA_VISIBLE_DEVICES=0,1,2", NULL,
	 "3 of 3, device 1, local rank 1, 2 on it, in turn, share 0.5"},
	{"five tasks on three devices, 2", 2, 5, 0, AUTO, "CUDA_VISIBLE_DEVICES=0,1,2", NULL,
	 "3 of 3, device 2, local rank 2, 1 on it, in turn, share 1"},
	{"task, one device", 2, 3, 0, TASK, ONE, NULL,
	 "1 of 1, device 0, local rank 2, 3 on it, share 0.333333"},
	{"task, bound", 1, 2, 0, TASK, TWO, ON("1", "1") SINGLE(1),
	 "1 of 2, device 0, local rank 1, 1 on it, bound, share 1"},
	{"task, wrapped", 2, 3, 0, TASK, TWO, NULL,
	 "2 of 2, device 0, local rank 2, 2 on it, in turn, share 0.5"},
	{"device, --gpus-per-task=2 unbound", 1, 2, 0, DEVICE, FOUR, FOUR " SLURM_GPUS_PER_TASK=2",
	 "4 of 4, device 2, local rank 2, 1 on it, share 1"},
	{"device, none", 1, 2, 0, DEVICE, "", NULL,
	 "0 of 0, no device, local rank 1, nothing to share"},
};

static char shown[256];

static void __attribute__((format(printf, 1, 2))) show(const char *format, ...)
{
	size_t n = strlen(shown);
	va_list ap;

	va_start(ap, format);
	vsnprintf(shown + n, sizeof(shown) - n, format, ap);
	va_end(ap);
}

static void show_share(const struct ddp_devices *d)
{
	static const char *const reasons[] = {
		[DDP_SHARE_NO_DEVICE] = "nothing to share",
		[DDP_SHARE_NO_CAPACITY] = "shards per GPU not known",
		[DDP_SHARE_NO_PARTS] = "parts not known",
		[DDP_SHARE_NO_NEIGHBOURS] = "neighbours not known",
	};
	char share[16];

	ck_assert_int_eq(d->share_den == 0, d->share_reason != DDP_SHARE_KNOWN);
	if (ddp_share_print(d, share, sizeof(share)) == 0)
		show(", share %s", share);
	else
		show(", %s", reasons[d->share_reason]);
}

/* Returns the decision as one line. */
static const char *show_devices(const struct ddp_devices *d)
{
	shown[0] = '\0';
	show("%u of %u, ", d->visible, d->on_node);
	if (d->device < 0)
		show("no device, local rank %u", d->local_rank);
	else
		show("device %d, local rank %u, ", (int)d->device, d->local_rank);
	if (d->device >= 0 && d->neighbours == 0)
		show("unknown on it");
	else if (d->neighbours > 0)
		show("%u on it", d->neighbours);
	if (d->bound)
		show(", bound");
	if (d->wraps)
		show(", in turn");
	if (d->restore_name)
		show(", put back %s=%s", d->restore_name, d->restore_value);
	show_share(d);
	return shown;
}

TEST_ROWS(test_devices, rows)
{
	struct unit_words step, task;
	const struct ddp_device_facts facts = {
		.step_env = unit_words(&step, rows[_i].step_env),
		.task_env = unit_words(&task,
				       rows[_i].task_env ? rows[_i].task_env : rows[_i].step_env),
		.local_id = rows[_i].local_id,
		.local_size = rows[_i].local_size,
		.shards_per_gpu = rows[_i].shards_per_gpu,
		.mode = (enum ddp_local_rank_mode)rows[_i].mode,
	};
	struct ddp_devices d;

	memset(&d, 0xaa, sizeof(d));
	ddp_devices_decide(&facts, &d);
	unit_text(rows[_i].name, "decision", show_devices(&d), rows[_i].want);
}

/* A random node: its tasks, its GPUs, and either bindings of whole GPUs or shards. */
struct node {
	uint32_t tasks, gpus, shards, capacity; /* shards is 0 if tasks get whole GPUs */
	enum { FREE, BIND_SINGLE, BIND_MAP } bind;
	uint32_t count;	 /* N of gpu:single:N */
	uint32_t map[8]; /* list of gpu:map_gpu */
	uint32_t map_length;
};

static void draw_node(uint64_t *state, struct node *node)
{
	node->tasks = 1 + unit_random(state, 16);
	node->gpus = 1 + unit_random(state, 8);
	node->capacity = 1 + unit_random(state, 64);
	node->shards = 0;
	if (unit_random(state, 3) == 0)
		node->shards = node->gpus == 1 ? 1 + unit_random(state, node->capacity)
					       : node->gpus * node->capacity;
	node->bind = FREE;
	if (node->shards == 0)
		node->bind = unit_random(state, 3);
	node->count = 1 + unit_random(state, 3);
	node->map_length = 1 + unit_random(state, 8);
	for (uint32_t i = 0; i < 8; i++)
		node->map[i] = unit_random(state, node->gpus);
}

static uint32_t gpu_of(const struct node *node, uint32_t id)
{
	if (node->bind == BIND_SINGLE)
		return id / node->count % node->gpus;
	return node->map[id % node->map_length];
}

static void decide_task(const struct node *node, uint32_t id, struct ddp_devices *d)
{
	char list[64] = "CUDA_VISIBLE_DEVICES=", mine[64], bind[64] = "SLURMD_TRES_BIND=gpu:";
	char tokens[64];
	const char *step[] = {list, NULL, NULL};
	const char *task[] = {list, NULL, NULL};
	size_t n;

	for (uint32_t i = 0; i < node->gpus; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), i ? ",%u" : "%u", i);
	if (node->shards) {
		snprintf(tokens, sizeof(tokens), "SLURM_SHARDS_ON_NODE=%u", node->shards);
		step[1] = tokens;
	}
	if (node->bind != FREE) {
		snprintf(mine, sizeof(mine), "CUDA_VISIBLE_DEVICES=%u", gpu_of(node, id));
		task[0] = mine;
		task[1] = bind;
		n = strlen(bind);
		if (node->bind == BIND_SINGLE)
			snprintf(bind + n, sizeof(bind) - n, "single:%u", node->count);
		else
			strcat(bind, "map_gpu:");
		for (uint32_t i = 0; node->bind == BIND_MAP && i < node->map_length; i++)
			snprintf(bind + strlen(bind), sizeof(bind) - strlen(bind), i ? ",%u" : "%u",
				 node->map[i]);
	}
	ddp_devices_decide(&(struct ddp_device_facts){.step_env = unit_env(step),
						      .task_env = unit_env(task),
						      .local_id = id,
						      .local_size = node->tasks,
						      .shards_per_gpu = node->capacity},
			   d);
}

/* Returns the share that is printed, in millionths. */
static uint64_t millionths(const struct ddp_devices *d)
{
	char text[16] = "", digits[8] = "000000";
	uint64_t value;

	if (ddp_share_print(d, text, sizeof(text)) < 0)
		return 0;
	if (strcmp(text, "1") == 0)
		return 1000000;
	ck_assert(strncmp(text, "0.", 2) == 0 && strlen(text) <= 8);
	memcpy(digits, text + 2, strlen(text + 2));
	ck_assert_int_eq(ddp_parse_number(digits, 1, 999999, &value), 0);
	return value;
}

/*
 * The shares of a GPU add up to at most 1, and on most GPUs to about 1. If several tasks share a
 * GPU, crowd_first is set for exactly one task, task 0.
 */
TEST(test_sum)
{
	uint64_t state = 0x5eed;
	int filled = 0;

	for (int i = 0; i < 4000; i++) {
		uint64_t sum[8] = {0}, tasks[8] = {0}, most = 0;
		bool crowd = false;
		struct node node;

		draw_node(&state, &node);
		for (uint32_t id = 0; id < node.tasks; id++) {
			struct ddp_devices d;
			uint32_t gpu;

			decide_task(&node, id, &d);
			ck_assert_int_ge(d.device, 0);
			ck_assert_int_lt(d.device, d.visible);
			gpu = node.bind == FREE ? (uint32_t)d.device : gpu_of(&node, id);
			sum[gpu] += millionths(&d);
			most = ++tasks[gpu] > most ? tasks[gpu] : most;
			crowd |= d.crowd_first;
			ck_assert(!d.crowd_first || id == 0);
		}
		ck_assert_int_eq(crowd, most > 1);
		for (uint32_t g = 0; g < node.gpus; g++) {
			ck_assert_msg(
				sum[g] <= 1000000,
				"%u tasks, %u GPUs, %u shards of %u, binding %d: GPU %u has %llu",
				node.tasks, node.gpus, node.shards, node.capacity, (int)node.bind,
				g, (unsigned long long)sum[g]);
			filled += sum[g] > 999980;
		}
	}
	ck_assert_int_gt(filled, 2000);
}

static const struct {
	const char *gres;
	uint32_t shards_per_gpu;
	bool has_shards;
} texts[] = {
	{"gpu:4,shard:64", 16, true},
	{"gpu:a100:4(S:0-1),shard:64", 16, true},
	{"gpu:a100:4(S:0-1),shard:a100:64(S:0-1)", 16, true},
	{"shard:64(S:0,1),gpu:4(S:0,1)", 16, true},
	{"gpu:a100:2(S:0),gpu:v100:2(S:1),shard:a100:8(S:0),shard:v100:8(S:1)", 4, true},
	{"gpu:1,shard:1K", 1024, true},
	{"gpu:2,shard:1M", 524288, true},
	{"gpu:2,shard:2K(S:0-1)", 1024, true},
	{"gpu:4,shard:66", 0, true},
	{"gpu:4", 0, false},
	{"gpu:4,mps:400", 0, false},
	{"gpu:2,mps:200,shard:8", 4, true},
	{"shard:64", 0, true},
	{"gpu:0,shard:8", 0, true},
	{"gpu:4,shard:0", 0, true},
	{"gpu:4,shard:2", 0, true},
	{"gpu:x,shard:8", 0, true},
	{"gpu:4,shard:x", 0, true},
	{"gpus:4,shards:8", 0, false},
	{"xgpu:4,xshard:8", 0, false},
	{"gres:gpu:2,gres:shard:8", 4, true},
	{"gres/gpu:2,gres/shard:8", 4, true},
	{"gres/shard=2", 0, true},
	{"shard", 0, true},
	{"gpu,shard", 0, true},
	{"gres:shard", 0, true},
	{"gpu:2(S:0-1,gpu:4,shard:8", 0, false},
	{"gpu:2),shard:8", 0, true},
	{"gpu:4(IDX:0-3),shard:8(0/2,1/2,2/2,3/2)", 2, true},
	{"gpu:1,shard:4294967295", 4294967295, true},
	{"gpu:1,shard:4294967296", 0, true},
	{"gpu:1,shard:4294967295K", 0, true},
	{"(null)", 0, false},
	{"", 0, false},
	{",", 0, false},
	{NULL, 0, false},
};

TEST_ROWS(test_gres, texts)
{
	const char *gres = texts[_i].gres, *name = gres ? gres : "NULL";

	unit_number(name, "shards of a GPU", ddp_gres_shards_per_gpu(gres),
		    texts[_i].shards_per_gpu);
	unit_number(name, "has shards", ddp_gres_has_shards(gres), texts[_i].has_shards);
}

UNIT_MAIN("devices", NULL)
