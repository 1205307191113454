/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocator.c - sbatch and salloc only take the options: Slurm hands them on to every srun of
 * the job, and sets up nothing for the batch script itself.
 */
#include "config.h"

#include <stdlib.h>

#include "context.h"
#include "core/channel.h"
#include "say.h"

extern char **environ;

static struct ddp_values values;

static int take(int id, const char *argument, int remote)
{
	return remote ? 0 : ddp_take_option(&values, id, argument);
}

int ddp_allocator_init(spank_t spank, int argc, char **argv)
{
	/* A wrong argument is told by srun, to those who ask for --ddp. */
	(void)argc;
	(void)argv;
	ddp_values_init(&values);
	return ddp_register_options(spank, take);
}

int ddp_allocator_options_read(void)
{
	struct ddp_message message;

	/* sbatch from inside a step exports its environment: that step's plan is not this job's. */
	unsetenv(DDP_CHANNEL_NAME);
	if (ddp_values_from_env(&values, environ, &message) < 0) {
		ddp_say_error("%s", message.text);
		return -1;
	}
	return 0;
}
