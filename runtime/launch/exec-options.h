/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec-options.h - parse the options of ddp-exec: the options of srun --ddp, and the options in
 * exec-options.def
 */
#ifndef DDP_EXEC_EXEC_OPTIONS_H
#define DDP_EXEC_EXEC_OPTIONS_H

#include "options.h"

enum exec_option_id {
#define EXEC_OPTION(id, ...) EXEC_OPTION_##id,
#include "exec-options.def"
#undef EXEC_OPTION
	EXEC_OPTION_COUNT
};

struct exec_options {
	struct ddp_values values;
	bool given[EXEC_OPTION_COUNT];
	char **program; /* the program and its arguments, NULL-terminated */
};

/* Parse [argv], and the options' defaults in [env]. Returns 0, or -1 with a message. */
int exec_options_parse(struct exec_options *options, char **argv, char *const *env,
		       struct ddp_message *message);

void exec_options_print_help(void);

#endif /* DDP_EXEC_EXEC_OPTIONS_H */
