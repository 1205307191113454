/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task_init_cost N - run task_init N times in one node's slurmstepd, to count its instructions
 *
 *     DDP_PLUGIN=.../ddp.so valgrind --tool=callgrind --toggle-collect=fake_task_init \
 *         --callgrind-out-file=/dev/null ./task_init_cost 100
 *
 * This command counts the instructions of task_init and the functions that it calls. To get the
 * cost of one task, run the command with two values of N, and divide the difference of the counts
 * by the difference of N.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_slurm.h"

/* The symbol that --toggle-collect names. */
int fake_task_init(struct spank_handle *node);

int __attribute__((noinline)) fake_task_init(struct spank_handle *node)
{
	return fake_hook(node, "task_init");
}

static int run(struct fake_step *step, unsigned long times)
{
	struct spank_handle *node = fake_node_begin(step, 0, "n1");
	char **given;
	int rc = 0;

	fake_node_task(step, node, 0); /* the first call also resolves symbols */
	fake_env_free(node->env);
	node->env = NULL;
	given = fake_env_copy(step->launched[0]);
	fake_env_apply(&given,
		       "SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=2 "
		       "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURMD_NODENAME=n1 "
		       "CUDA_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3");
	node->task = 1;
	node->local_tasks = 4;
	for (unsigned long i = 0; i < times && rc == 0; i++) {
		node->env = fake_env_copy(given);
		rc = fake_task_init(node);
		if (rc == 0 && !fake_env_get(node->env, "RANK"))
			rc = -1;
		fake_env_free(node->env);
		node->env = NULL;
	}
	fake_env_free(given);
	fake_node_end(node);
	return rc;
}

int main(int argc, char **argv)
{
	unsigned long times = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	char base[] = "/tmp/ddp-cost-XXXXXX";
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1,2,3 n2:4,5,6,7"}}};
	int rc;

	if (times == 0) {
		fputs("usage: task_init_cost N\n", stderr);
		return EXIT_FAILURE;
	}
	if (!mkdtemp(base) || chdir(base) < 0)
		return EXIT_FAILURE;
	rc = fake_srun(&step);
	if (rc == 0)
		rc = run(&step, times);
	fake_srun_exit(&step);
	fake_step_clear(&step);
	if (chdir("/") < 0 || rmdir(base) < 0)
		rc = -1;
	printf("%lu times task_init: %s%s\n", times, rc == 0 ? "done" : "failed",
	       fake_transcript());
	fake_forget();
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
