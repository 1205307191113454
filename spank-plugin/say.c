/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "say.h"

#include <stdarg.h>
#include <stdio.h>

#include <slurm/spank.h>

#include "core/text.h"

/* Paths are long; what does not fit is cut, a message is better than none. */
enum { LINE_SIZE = 3 * DDP_PATH_SIZE };

void ddp_say_error(const char *format, ...)
{
	char line[LINE_SIZE];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	slurm_error("ddp: %s", line);
}

/*
 * slurm_info of a node stays in slurmd's log; slurm_spank_log is printed in srun and sent to it
 * from the nodes, without a prefix of its own.
 */
void ddp_say(const char *format, ...)
{
	char line[LINE_SIZE];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	slurm_spank_log("ddp: %s", line);
}
