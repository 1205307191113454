/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec-options.h - parse the options of ddp-exec: those of srun --ddp, and those in
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

struct exec_option_row {
	const char *name, *help, *manual;
};

extern const struct exec_option_row exec_option_rows[EXEC_OPTION_COUNT];

struct exec_options {
	struct ddp_values values;
	bool given[EXEC_OPTION_COUNT];
	char **program; /* NULL-terminated, with its arguments */
};

/* Whether option [id] of srun is also one of ddp-exec. --ddp and --no-ddp are not. */
bool exec_option_shared(enum ddp_option_id id);

/* Parse [argv], and defaults of options in [env]. Returns 0, or -1 with a message. */
int exec_options_parse(struct exec_options *options, char **argv, char *const *env,
		       struct ddp_message *message);

/* Print --help. */
void exec_options_print_help(void);

#endif /* DDP_EXEC_EXEC_OPTIONS_H */
