/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch.c - the symbols that Slurm looks for, and nothing else
 *
 * srun, sbatch, salloc, slurmd and slurmstepd all load the plugin and call the same functions;
 * which process it is, is asked here once.
 */
#include "config.h"

#include <stdbool.h>

#include <slurm/slurm_version.h>
#include <slurm/spank.h>

#include "context.h"

SPANK_PLUGIN(ddp, 1);

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* Should init ever fail on a node, the job fails and the node is not drained. */
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

/*
 * How many lines of plugstack.conf name this file, say one there and one in plugstack.conf.d:
 * Slurm then calls each function that often. The first call is the one that counts.
 */
static unsigned lines;

static bool is_echo(unsigned *calls)
{
	return lines > 1 && (*calls)++ % lines > 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	if (lines++ > 0)
		return 0;
	switch (spank_context()) {
	case S_CTX_LOCAL:
		return ddp_srun_init(spank, argc, argv);
	case S_CTX_ALLOCATOR:
		return ddp_allocator_init(spank, argc, argv);
	case S_CTX_REMOTE:
		return ddp_stepd_init(spank, argc, argv);
	case S_CTX_SLURMD:
		return ddp_slurmd_init(argc, argv);
	default:
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)spank;
	(void)argc;
	(void)argv;
	if (is_echo(&calls))
		return 0;
	switch (spank_context()) {
	case S_CTX_LOCAL:
		return ddp_srun_options_read();
	case S_CTX_ALLOCATOR:
		return ddp_allocator_options_read();
	default:
		return 0;
	}
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	return is_echo(&calls) ? 0 : ddp_srun_step_created(spank);
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	return is_echo(&calls) ? 0 : ddp_stepd_user_init(spank);
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	return is_echo(&calls) ? 0 : ddp_stepd_task_init(spank);
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
	(void)spank;
	(void)argc;
	(void)argv;
	if (spank_context() == S_CTX_LOCAL)
		ddp_srun_exit();
	else if (spank_context() == S_CTX_REMOTE)
		ddp_stepd_exit();
	return 0;
}
