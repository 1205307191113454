/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec-options.h - the command line of ddp-exec: the options of srun --ddp, and those of exec-options.def
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

struct exec_option_row {
	const char *name, *help, *manual;
};

extern const struct exec_option_row exec_option_rows[EXEC_OPTION_COUNT];

struct exec_options {
	struct ddp_values values;
	bool given[EXEC_OPTION_COUNT];
	char **program; /* with its arguments; ended by NULL */
};

/* Whether option [id] of srun is one of ddp-exec, too. --ddp and --no-ddp are not. */
bool exec_option_shared(enum ddp_option_id id);

/*
 * Read [argv], and the defaults of options in [env].
 * Returns 0, or -1 with a message.
 */
int exec_options_parse(struct exec_options *options, char **argv, char *const *env,
		       struct ddp_message *message);

/* Print --help. */
void exec_options_print_help(void);

#endif /* DDP_EXEC_EXEC_OPTIONS_H */
