/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - run another program with a time limit and capture its output */
#ifndef DDP_BASE_COMMAND_H
#define DDP_BASE_COMMAND_H

#include "base/text.h"

struct ddp_command {
	double limit; /* seconds until SIGTERM */
	double grace; /* seconds between SIGTERM and SIGKILL after the time limit */
	size_t most;  /* maximum bytes captured from each stream, or 0 for no limit */
	bool merged;  /* standard error goes to the same pipe as standard output */
	/* called in the child before the program starts; may be NULL */
	void (*prepare)(void);
};

struct ddp_command_said {
	struct ddp_text out, err;
	int status; /* exit status, 128 + signal, or 127 if the program was not found */
	bool timed_out;
};

/*
 * Run the program [argv], a NULL-terminated list, with an empty standard input, in its own process
 * group. The process group is ended at the time limit, or when this process ends. Thread safe.
 */
void ddp_command_run(char *const argv[], const struct ddp_command *how,
		     struct ddp_command_said *result);
void ddp_command_said_free(struct ddp_command_said *result);

#endif /* DDP_BASE_COMMAND_H */
