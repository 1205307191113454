/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch.c - the slurm_spank_* functions, which Slurm looks up by name
 *
 * srun, sbatch, salloc, slurmd and slurmstepd load the plugin and call the same functions. Only
 * this file distinguishes between these processes.
 */
#include "config.h"

#include <stdbool.h>

#include <slurm/slurm_version.h>
#include <slurm/spank.h>

#include "context.h"

SPANK_PLUGIN(ddp, 1);

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* If slurm_spank_init() fails on a node, Slurm fails the job and does not drain the node. */
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

/*
 * Number of lines that name the plugin in plugstack.conf and its includes. Slurm calls each
 * function once for each of these lines, and only the first call has an effect.
 */
static unsigned line_count;

static bool is_repeated_call(unsigned *calls)
{
	return line_count > 1 && (*calls)++ % line_count > 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	if (line_count++ > 0)
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
	if (is_repeated_call(&calls))
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
	return is_repeated_call(&calls) ? 0 : ddp_srun_step_created(spank);
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	return is_repeated_call(&calls) ? 0 : ddp_stepd_user_init(spank);
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	return is_repeated_call(&calls) ? 0 : ddp_stepd_task_init(spank);
}

int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
	static unsigned calls;

	(void)argc;
	(void)argv;
	if (!is_repeated_call(&calls))
		ddp_stepd_task_exit(spank);
	return 0;
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
