/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "spank_test.h"

/* A GPU node's step as Slurm describes it, in rows that several tests need. */
#define TWO_GPUS "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1 SLURM_GPUS_ON_NODE=2"
#define ONE_GPU "CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0 SLURM_GPUS_ON_NODE=1"
#define ERASED "-CUDA_VISIBLE_DEVICES -SLURM_STEP_GPUS -SLURM_GPUS_ON_NODE "

/* For steps on n1 unless the layout says otherwise; [want] is by rank, the last for the rest. */
static const struct {
	const char *name;
	const char *layout; /* NULL: "n1:0,1" */
	const char *step_env, *task_env[4];
	const char *gres, *gres2; /* of n1 and n2 */
	const char *options, *conf;
	const char *want[4];
	const char *said;
	const char *crowd; /* ranks that share a GPU: NCCL will refuse, said once */
	const char *program;
} rows[] = {
	{"no GRES", .want = {"LOCAL_RANK=0 -DDP_DEVICE -DDP_SHARE", "LOCAL_RANK=1 -DDP_DEVICE"}},
	{"a GPU each", .step_env = TWO_GPUS,
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1",
		  "LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"}},
	{"more GPUs than tasks", .step_env = "CUDA_VISIBLE_DEVICES=0,1,2,3",
	 .want = {"DDP_DEVICE=0 LOCAL_RANK=0", "DDP_DEVICE=1 LOCAL_RANK=1"}},
	{"more tasks than GPUs", "n1:0,1,2,3", TWO_GPUS,
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 DDP_LOCAL_RANK=0",
		  "LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=0.5 DDP_LOCAL_RANK=1",
		  "LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 DDP_LOCAL_RANK=2",
		  "LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=0.5 DDP_LOCAL_RANK=3"},
	 .said = "n1: 4 tasks on 2 devices",
	 .crowd = "n1: 4 ranks on GPUs 0,1, more than one on a GPU"},
	{"more tasks, unevenly", "n1:0,1,2", TWO_GPUS,
	 .want = {"LOCAL_RANK=0 DDP_SHARE=0.5", "LOCAL_RANK=1 DDP_SHARE=1",
		  "LOCAL_RANK=0 DDP_SHARE=0.5"},
	 .said = "n1: 3 tasks on 2 devices",
	 .crowd = "n1: 3 ranks on GPUs 0,1, more than one on a GPU"},
	{"gpus-per-task",
	 NULL,
	 TWO_GPUS " SLURMD_TRES_BIND=gres/gpu:per_task:1 SLURM_GPUS_PER_TASK=1",
	 {"CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0", "CUDA_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=1"},
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 DDP_LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=0",
		  "LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 DDP_LOCAL_RANK=1 CUDA_VISIBLE_DEVICES=1"},
	 .said = "peer-to-peer"},
	{"gpus-per-task, device cgroup",
	 NULL,
	 TWO_GPUS " SLURMD_TRES_BIND=gpu:per_task:1",
	 {"CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0", "CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=1"},
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1"},
	 .said = "--gpu-bind=none"},
	{"two GPUs a task",
	 NULL,
	 "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3 SLURMD_TRES_BIND=gres/gpu:per_task:2 "
	 "SLURM_GPUS_PER_TASK=2",
	 {"CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=2,3"},
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1"},
	 .said = "peer-to-peer"},
	{"two GPUs a task, not bound", NULL,
	 "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3 SLURM_GPUS_PER_TASK=a100:2",
	 .want = {"DDP_DEVICE=0", "DDP_DEVICE=2"}},
	{"gpu-bind=single:2",
	 "n1:0,1,2,3",
	 TWO_GPUS " SLURMD_TRES_BIND=gpu:single:2",
	 {"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1",
	  "CUDA_VISIBLE_DEVICES=1"},
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5"},
	 .said = "peer-to-peer",
	 .crowd = "n1: 4 ranks on GPUs 0,1, more than one on a GPU"},
	{"gpu-bind=map_gpu",
	 "n1:0,1,2",
	 TWO_GPUS " SLURMD_TRES_BIND=gpu:map_gpu:0,1,1",
	 {"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=1"},
	 .want = {"DDP_SHARE=1", "DDP_SHARE=0.5"},
	 .said = "peer-to-peer",
	 .crowd = "n1: 3 ranks on GPUs 0,1"},
	{"names", .step_env = "CUDA_VISIBLE_DEVICES=GPU-11aa,GPU-22bb",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=1",
		  "DDP_DEVICE=1 CUDA_VISIBLE_DEVICES=GPU-11aa,GPU-22bb"}},
	{"MIG names", .step_env = "CUDA_VISIBLE_DEVICES=MIG-GPU-11aa/1/0,MIG-5c6d",
	 .want = {"DDP_DEVICE=0", "DDP_DEVICE=1 LOCAL_RANK=1"}},
	{"AMD", .step_env = "ROCR_VISIBLE_DEVICES=0,1", .want = {"DDP_DEVICE=0", "DDP_DEVICE=1"}},
	{"Intel", .step_env = "ZE_AFFINITY_MASK=0,1", .want = {"DDP_DEVICE=0", "DDP_DEVICE=1"}},
	{"no device files", .step_env = "CUDA_VISIBLE_DEVICES=NoDevFiles",
	 .want = {"-DDP_DEVICE -DDP_SHARE"}},
	{"local-rank=task", .step_env = ONE_GPU, .options = "--ddp --ddp-local-rank=task",
	 .want = {"LOCAL_RANK=0 DDP_DEVICE=0", "LOCAL_RANK=1 DDP_DEVICE=0 DDP_SHARE=0.5"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"local-rank=device", .step_env = ONE_GPU, .options = "--ddp", .conf = "local_rank=device",
	 .want = {"LOCAL_RANK=0", "LOCAL_RANK=0 DDP_LOCAL_RANK=1"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	/* shards: n1 has two GPUs with four shards each */
	{"shards", "n1:0,1,2,3", ONE_GPU " SLURM_SHARDS_ON_NODE=4", .gres = "gpu:2,shard:8",
	 .want = {"DDP_SHARE=0.25 DDP_DEVICE=0 LOCAL_RANK=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.25 "
		  "-PYTORCH_CUDA_ALLOC_CONF -CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"},
	 .crowd = "n1: 4 ranks on GPU 0: "},
	{"fewer shards than tasks", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=1",
	 .gres = "gpu:2,shard:8", .want = {"DDP_SHARE=0.125"}, .crowd = "n1: 2 ranks on GPU 0: "},
	{"the whole GPU", "n1:0", ONE_GPU " SLURM_SHARDS_ON_NODE=4",
	 .gres = "gpu:a100:2(S:0-1),shard:a100:8",
	 .want = {"DDP_SHARE=1 -XLA_PYTHON_CLIENT_MEM_FRACTION"}},
	{"thirds", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2", .gres = "gpu:1,shard:3",
	 .want = {"DDP_SHARE=0.333333"}, .crowd = "n1: 2 ranks on GPU 0: "},
	{"a rank on each of two nodes", "n1:0 n2:1", ONE_GPU " SLURM_SHARDS_ON_NODE=32",
	 .gres = "gpu:1,shard:64", .gres2 = "gpu:1,shard:64",
	 .want = {"DDP_SHARE=0.5 PET_NPROC_PER_NODE=1"}},
	{"nodes that differ", "n1:0 n2:1", ONE_GPU " SLURM_SHARDS_ON_NODE=2",
	 .gres = "gpu:1,shard:4", .gres2 = "gpu:1,shard:8",
	 .want = {"DDP_SHARE=0.5", "DDP_SHARE=0.25"}},
	{"erased by gpu-bind",
	 NULL,
	 ONE_GPU " SLURM_SHARDS_ON_NODE=2",
	 {ERASED "SLURMD_TRES_BIND=gpu:single:1", ERASED "SLURMD_TRES_BIND=gpu:single:1"},
	 "gpu:2,shard:8",
	 .want = {"CUDA_VISIBLE_DEVICES=0 DDP_DEVICE=0 LOCAL_RANK=0 DDP_SHARE=0.25"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"erased, AMD",
	 "n1:0",
	 "ROCR_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=1 SLURM_SHARDS_ON_NODE=2",
	 {"-ROCR_VISIBLE_DEVICES SLURMD_TRES_BIND=gpu:closest"},
	 "gpu:2,shard:8",
	 .want = {"ROCR_VISIBLE_DEVICES=1 DDP_DEVICE=0 DDP_SHARE=0.5"}},
	{"shards on two GPUs", "n1:0,1,2,3", TWO_GPUS " SLURM_SHARDS_ON_NODE=4",
	 .gres = "gpu:2,shard:8",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25", "DDP_DEVICE=1 DDP_SHARE=0.25", "DDP_DEVICE=0",
		  "DDP_DEVICE=1"},
	 .said = "4 tasks on 2 devices", .crowd = "n1: 4 ranks on GPUs 0,1"},
	{"shards of each task",
	 NULL,
	 TWO_GPUS " SLURM_SHARDS_ON_NODE=4 SLURMD_TRES_BIND=gres/shard:per_task:2",
	 {"CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0", "CUDA_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=1"},
	 "gpu:2,shard:8",
	 .want = {"DDP_DEVICE=0 LOCAL_RANK=0 DDP_SHARE=0.5"},
	 .said = "peer-to-peer"},
	{"shards of each task on one GPU", NULL,
	 ONE_GPU " SLURM_SHARDS_ON_NODE=2 SLURMD_TRES_BIND=gres/shard:per_task:1",
	 .gres = "gpu:2,shard:8", .want = {"DDP_DEVICE=0 DDP_SHARE=0.25"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"shards that do not divide", NULL, TWO_GPUS " SLURM_SHARDS_ON_NODE=3",
	 .gres = "gpu:2,shard:8", .want = {"-DDP_SHARE DDP_DEVICE=0", "-DDP_SHARE DDP_DEVICE=1"},
	 .said = "do not divide"},
	{"no capacity", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2",
	 .want = {"-DDP_SHARE DDP_DEVICE=0"}, .said = "shards_per_gpu=N",
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"capacity that does not divide", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2",
	 .gres = "gpu:2,shard:7", .want = {"-DDP_SHARE"}, .said = "shards_per_gpu=N",
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"capacity by plugstack", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2", .gres = "gpu:2,shard:7",
	 .conf = "shards_per_gpu=4", .want = {"DDP_SHARE=0.25"}, .crowd = "n1: 2 ranks on GPU 0: "},
	{"share=off", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2", .gres = "gpu:1,shard:4",
	 .options = "--ddp --ddp-share=off",
	 .want = {"-DDP_SHARE -XLA_PYTHON_CLIENT_MEM_FRACTION DDP_DEVICE=0"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"share=torch", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2", .gres = "gpu:1,shard:4",
	 .options = "--ddp --ddp-share=torch",
	 .want = {"DDP_SHARE=0.25 PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.25"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"MPS", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2 CUDA_MPS_PIPE_DIRECTORY=mps",
	 .gres = "gpu:1,shard:4", .want = {"DDP_SHARE=0.25 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"MPS, the user's", NULL,
	 ONE_GPU
	 " SLURM_SHARDS_ON_NODE=2 CUDA_MPS_PIPE_DIRECTORY=mps CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7",
	 .gres = "gpu:1,shard:4", .want = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"MPS, no share", "n1:0", ONE_GPU " CUDA_MPS_PIPE_DIRECTORY=mps",
	 .want = {"DDP_SHARE=1 -CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}},
	{"MPS, no daemon", NULL, ONE_GPU " CUDA_MPS_PIPE_DIRECTORY=nowhere",
	 .want = {"DDP_SHARE=0.5 -CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"},
	 .crowd = "n1: 2 ranks on GPU 0: "},

	/* several GPUs' shards in one step (MULTIPLE_SHARING_GRES_PJ, Slurm 23.11): no 22.05 gives them */
	{"eight ranks on the shards of four GPUs", "n1:0,1,2,3,4,5,6,7",
	 "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3 SLURM_SHARDS_ON_NODE=16",
	 .gres = "gpu:4,shard:32",
	 .want = {"DDP_SHARE=0.25 DDP_DEVICE=0", "DDP_SHARE=0.25 DDP_DEVICE=1",
		  "DDP_SHARE=0.25 DDP_DEVICE=2", "DDP_SHARE=0.25"},
	 .said = "n1: 8 tasks on 4 devices",
	 .crowd = "n1: 8 ranks on GPUs 0,1,2,3, more than one on a GPU: "},
	{"two of four GPUs, by Slurm's numbers", "n1:0,1,2,3",
	 "CUDA_VISIBLE_DEVICES=1,3 SLURM_STEP_GPUS=1,3 SLURM_SHARDS_ON_NODE=8",
	 .gres = "gpu:4,shard:32",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=1,3", "DDP_DEVICE=1",
		  "DDP_DEVICE=0", "DDP_DEVICE=1"},
	 .said = "n1: 4 tasks on 2 devices", .crowd = "n1: 4 ranks on GPUs 1,3, "},
	{"two of four GPUs, devices constrained", NULL,
	 "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=2,3 SLURM_SHARDS_ON_NODE=4",
	 .gres = "gpu:4,shard:32",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25", "DDP_DEVICE=1 DDP_SHARE=0.25"}},
	{"one rank on the shards of two GPUs uses the first", "n1:0",
	 TWO_GPUS " SLURM_SHARDS_ON_NODE=8", .gres = "gpu:2,shard:16",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.5"}},
	{"three ranks on the shards of two GPUs", "n1:0,1,2", TWO_GPUS " SLURM_SHARDS_ON_NODE=8",
	 .gres = "gpu:2,shard:16",
	 .want = {"DDP_SHARE=0.25 DDP_DEVICE=0", "DDP_SHARE=0.5 DDP_DEVICE=1",
		  "DDP_SHARE=0.25 DDP_DEVICE=0"},
	 .said = "n1: 3 tasks on 2 devices", .crowd = "n1: 3 ranks on GPUs 0,1, "},
	{"shards of each task, two tasks on the first GPU",
	 "n1:0,1,2",
	 TWO_GPUS " SLURM_SHARDS_ON_NODE=6 SLURMD_TRES_BIND=gres/shard:per_task:2",
	 {"CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0", "CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0",
	  "CUDA_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=1"},
	 "gpu:2,shard:16",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25 LOCAL_RANK=0"},
	 .said = "peer-to-peer",
	 .crowd = "n1: 3 ranks on GPUs 0,1, "},
	{"shards of a task on two GPUs", "n1:0",
	 TWO_GPUS " SLURM_SHARDS_ON_NODE=4 SLURMD_TRES_BIND=gres/shard:per_task:4",
	 .gres = "gpu:2,shard:16", .want = {"DDP_DEVICE=0 DDP_SHARE=0.25"}},
	{"erased, two GPUs",
	 "n1:0,1,2,3",
	 TWO_GPUS " SLURM_SHARDS_ON_NODE=4",
	 {ERASED "SLURMD_TRES_BIND=gpu:closest", ERASED "SLURMD_TRES_BIND=gpu:closest",
	  ERASED "SLURMD_TRES_BIND=gpu:closest", ERASED "SLURMD_TRES_BIND=gpu:closest"},
	 "gpu:2,shard:8",
	 .want = {"CUDA_VISIBLE_DEVICES=0,1 DDP_DEVICE=0 DDP_SHARE=0.25", "DDP_DEVICE=1",
		  "DDP_DEVICE=0", "DDP_DEVICE=1"},
	 .said = "n1: 4 tasks on 2 devices",
	 .crowd = "n1: 4 ranks on GPUs 0,1, "},
	{"a GPU by its UUID (Flags=env_uuid)", NULL,
	 "CUDA_VISIBLE_DEVICES=GPU-11aa-22 SLURM_STEP_GPUS=1 SLURM_SHARDS_ON_NODE=2",
	 .gres = "gpu:2,shard:8",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=GPU-11aa-22"},
	 .crowd = "n1: 2 ranks on GPU 1: "},
	{"two GPUs by their UUIDs, erased",
	 NULL,
	 "CUDA_VISIBLE_DEVICES=GPU-11aa,GPU-22bb SLURM_STEP_GPUS=0,1 SLURM_SHARDS_ON_NODE=4",
	 {ERASED "SLURMD_TRES_BIND=gpu:single:1", ERASED "SLURMD_TRES_BIND=gpu:single:1"},
	 "gpu:2,shard:8",
	 .want = {"CUDA_VISIBLE_DEVICES=GPU-11aa,GPU-22bb DDP_DEVICE=0 DDP_SHARE=0.5",
		  "DDP_DEVICE=1 DDP_SHARE=0.5"}},
	{"a MIG slice", NULL,
	 "CUDA_VISIBLE_DEVICES=MIG-5c6d-7e SLURM_STEP_GPUS=3 SLURM_SHARDS_ON_NODE=2",
	 .gres = "gpu:1g.10gb:7,shard:28",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=MIG-5c6d-7e"},
	 .crowd = "n1: 2 ranks on GPU 3: "},
	{"MIG slices, one each", NULL,
	 "CUDA_VISIBLE_DEVICES=MIG-5c6d,MIG-GPU-11aa/1/0 SLURM_STEP_GPUS=0,1 SLURM_SHARDS_ON_NODE=8",
	 .gres = "gpu:1g.10gb:7,shard:28",
	 .want = {"DDP_DEVICE=0 DDP_SHARE=1", "DDP_DEVICE=1 DDP_SHARE=1"}},

	/* the line about NCCL: once a step, and not to who does without it */
	{"two nodes that share", "n1:0,1 n2:2,3", ONE_GPU " SLURM_SHARDS_ON_NODE=2",
	 .gres = "gpu:1,shard:4", .gres2 = "gpu:1,shard:4", .want = {"DDP_SHARE=0.25"},
	 .crowd = "n1: 2 ranks on GPU 0: "},
	{"3 ranks and 1", "n1:0,1,2 n2:3", ONE_GPU " SLURM_SHARDS_ON_NODE=3",
	 .gres = "gpu:1,shard:4", .gres2 = "gpu:1,shard:4",
	 .want = {"DDP_SHARE=0.25", NULL, NULL, "DDP_SHARE=0.75"},
	 .said = "different numbers of tasks", .crowd = "n1: 3 ranks on GPU 0: "},
	{"1 rank and 3", "n1:0 n2:1,2,3", ONE_GPU " SLURM_SHARDS_ON_NODE=3",
	 .gres = "gpu:1,shard:4", .gres2 = "gpu:1,shard:4",
	 .want = {"DDP_SHARE=0.75", "DDP_SHARE=0.25"}, .said = "different numbers of tasks",
	 .crowd = "n2: 3 ranks on GPU 0: "},
	{"ddp-train", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2", .gres = "gpu:1,shard:4",
	 .want = {"DDP_SHARE=0.25"}, .program = "/opt/ddp/bin/ddp-train"},
	{"NCCL's own switch", NULL, ONE_GPU " SLURM_SHARDS_ON_NODE=2 NCCL_MULTI_RANK_GPU_ENABLE=1",
	 .gres = "gpu:1,shard:4",
	 .want = {"DDP_SHARE=0.25 NCCL_MULTI_RANK_GPU_ENABLE=1 -NCCL_NVLS_ENABLE"}},

	/* what frameworks are told */
	{"new names of the user's", "n1:0",
	 ONE_GPU
	 " SLURM_SHARDS_ON_NODE=1 XLA_CLIENT_MEM_FRACTION=.5 PYTORCH_ALLOC_CONF=backend:native",
	 .gres = "gpu:1,shard:3", .options = "--ddp --ddp-share=torch",
	 .want = {"-XLA_PYTHON_CLIENT_MEM_FRACTION -PYTORCH_CUDA_ALLOC_CONF "
		  "CUPY_GPU_MEMORY_LIMIT=33.3333% TF_FORCE_GPU_ALLOW_GROWTH=true "
		  "FLAGS_fraction_of_gpu_memory_to_use=0.333333"}},
	{"MPS, and the memory of this node's GPUs", "n1:0",
	 ONE_GPU " SLURM_SHARDS_ON_NODE=1 CUDA_MPS_PIPE_DIRECTORY=mps", .gres = "gpu:1,shard:3",
	 .conf = "gpu_memory=81559M",
	 .want = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=27186M CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33"}},
	{"the memory, and no MPS", "n1:0", ONE_GPU " SLURM_SHARDS_ON_NODE=1",
	 .gres = "gpu:1,shard:3", .conf = "gpu_memory=81559M",
	 .want = {"-CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}},
};

static void expect_wants(int i, const struct fake_step *step)
{
	for (uint32_t r = 0; r < fake_ranks(step); r++) {
		uint32_t w = r < 4 ? r : 3;

		while (w > 0 && !rows[i].want[w])
			w--;
		expect_vars(rows[i].name, step, r, rows[i].want[w]);
		expect_vars(rows[i].name, step, r, "MASTER_ADDR=n1 -DDP_ERROR -NCCL_COMM_ID");
	}
}

START_TEST(test_row)
{
	const char *row = rows[_i].name;
	struct fake_step step = {
		.options = rows[_i].options ? rows[_i].options : "--ddp",
		.srun_conf = rows[_i].conf,
		.stepd_conf = rows[_i].conf,
		.program = rows[_i].program,
		.components = {{.layout = rows[_i].layout ? rows[_i].layout : "n1:0,1",
				.step_env = rows[_i].step_env}},
	};

	memcpy(step.components[0].task_env, rows[_i].task_env, sizeof(rows[_i].task_env));
	fake_slurmctld.nodes[0] = (struct fake_node_record){"n1", "n1", rows[_i].gres};
	fake_slurmctld.nodes[1] = (struct fake_node_record){"n2", "n2", rows[_i].gres2};
	if (rows[_i].step_env && strstr(rows[_i].step_env, "SHARDS"))
		fake_slurmctld.tres_per_node = "gres:shard:2";
	ck_assert(mkdir("mps", 0700) == 0 && mkfifo("mps/control", 0600) == 0);
	ck_assert_msg(fake_run(&step) == 0, "%s: refused%s", row, fake_transcript());
	expect_wants(_i, &step);
	if (rows[_i].said)
		expect_said(row, FAKE_LOG, rows[_i].said, 1);
	if (rows[_i].crowd)
		expect_said(row, FAKE_LOG, rows[_i].crowd, 1);
	expect_said(row, FAKE_LOG, "Duplicate GPU detected", rows[_i].crowd != NULL);
	expect_said(row, FAKE_ANY, "", (rows[_i].said ? 1U : 0U) + (rows[_i].crowd ? 1U : 0U));
	fake_step_clear(&step);
}
END_TEST

/* What lies in the place of a daemon's pipe. */
enum pipe_kind { FIFO, SOCKET, LEFT, FILE_ };

static const struct {
	const char *name;
	enum pipe_kind kind;
	bool of_another;
	bool serves;
} pipes[] = {
	{"a FIFO", FIFO, false, true},
	{"a socket", SOCKET, false, true},
	{"a socket that nobody listens on", LEFT, false, false},
	{"no pipe", FILE_, false, false},
	{"another user's", FIFO, true, false},
	{"another user's socket", SOCKET, true, false},
};

/* Returns the socket, or -1. */
static int make_pipe(const char *path, enum pipe_kind kind)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = -1;

	if (kind == FIFO) {
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	} else if (kind == FILE_) {
		write_text(path, "");
	} else {
		strcpy(address.sun_path, path);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		ck_assert_int_eq(listen(fd, 1), 0);
	}
	if (kind == LEFT) {
		close(fd);
		fd = -1;
	}
	return fd;
}

START_TEST(test_pipe)
{
	struct fake_step step = {
		.options = "--ddp",
		.components = {{"n1:0", .step_env = ONE_GPU " SLURM_SHARDS_ON_NODE=2 "
							    "CUDA_MPS_PIPE_DIRECTORY=mps"}},
	};
	int fd;

	fake_slurmctld.nodes[0] = (struct fake_node_record){"n1", "n1", "gpu:1,shard:4"};
	fake_slurmctld.tres_per_node = "gres:shard:2";
	ck_assert_int_eq(mkdir("mps", 0755), 0);
	fd = make_pipe("mps/control", pipes[_i].kind);
	/* Only root can give a file to somebody else. */
	if (pipes[_i].of_another && chown("mps/control", 12345, (gid_t)-1) < 0)
		return;
	ck_assert_int_eq(fake_run(&step), 0);
	expect_var(pipes[_i].name, &step, 0, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
		   pipes[_i].serves ? "50" : NULL);
	expect_var(pipes[_i].name, &step, 0, "DDP_SHARE", "0.5");
	if (fd >= 0)
		close(fd);
	fake_step_clear(&step);
}
END_TEST

/* The capacity is asked for where the step has shards, and once for a large step. */
START_TEST(test_questions)
{
	struct fake_step step = {
		.options = "--ddp",
		.components = {{"n1:0 n2:1 n3:2 n4:3 n5:4",
				.step_env = ONE_GPU " SLURM_SHARDS_ON_NODE=2"}},
	};

	fake_slurmctld.tres_per_node = "gres:gpu:1";
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 0);
	ck_assert_uint_le(fake_slurmctld.asked.node, 1);
	fake_step_clear(&step);
	fake_slurmctld.tres_per_node = "gres:shard:2";
	for (int i = 0; i < 5; i++)
		fake_slurmctld.nodes[i] =
			(struct fake_node_record){&"n1\0n2\0n3\0n4\0n5"[3 * i], NULL,
						  i == 3 ? "gpu:1,shard:8" : "gpu:1,shard:4"};
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 1);
	ck_assert_uint_le(fake_slurmctld.asked.node, 2);
	for (uint32_t r = 0; r < 5; r++)
		expect_var("five nodes", &step, r, "DDP_SHARE", r == 3 ? "0.25" : "0.5");
	fake_step_clear(&step);
}
END_TEST

static void fill(TCase *tcase)
{
	SPANK_ROWS(tcase, test_row, rows);
	SPANK_ROWS(tcase, test_pipe, pipes);
	tcase_add_test(tcase, test_questions);
}

int main(void)
{
	return spank_run("devices", fill);
}
