/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h - another program is run for what it says, within a limit of time
 */
#ifndef DDP_BASE_COMMAND_H
#define DDP_BASE_COMMAND_H

#include "base/text.h"

struct ddp_command {
	double limit;	       /* seconds until it is sent SIGTERM */
	double grace;	       /* seconds from then until it is killed */
	size_t most;	       /* bytes of what it says that are kept; 0: all */
	bool merged;	       /* standard error is standard output */
	void (*prepare)(void); /* called in the new process first; NULL: nothing is */
};

struct ddp_command_said {
	struct ddp_text out, err;
	int status; /* the exit status, 128 and the signal, or 127 where the program is not there */
	bool timed_out; /* it was ended after so many seconds */
};

/*
 * Run [argv], a list of words that ends with NULL, with nothing on its standard input, in a process group of its own
 * that ends with it at the limit, and with this process. May be called by several threads at once.
 */
void ddp_command_run(char *const argv[], const struct ddp_command *how,
		     struct ddp_command_said *said);
void ddp_command_said_free(struct ddp_command_said *said);

#endif /* DDP_BASE_COMMAND_H */
