/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the table of options, and their values
 *
 * The table does not depend on SPANK, so that the plugin, ddp-exec, the tests and the fuzzers can
 * use it.
 */
#ifndef DDP_OPTIONS_H
#define DDP_OPTIONS_H

#include <stdbool.h>

#include "devices.h"
#include "endpoint.h"
#include "format.h"

enum ddp_option_id {
#define DDP_OPTION(id, option, argument, environment, plugstack, kind, help, manual) DDP_OPT_##id,
#include "options.def"
#undef DDP_OPTION
	DDP_OPT_COUNT
};

struct ddp_option {
	const char *option, *argument, *environment, *plugstack;
	const char *help, *manual;
};

/* Sources of a value, in increasing precedence. */
enum ddp_source { DDP_FROM_DEFAULT, DDP_FROM_PLUGSTACK, DDP_FROM_ENVIRONMENT, DDP_FROM_COMMAND };

/* Values of all options, parsed and checked. All defaults except [site_ports] are zeros. */
struct ddp_values {
	enum ddp_source source[DDP_OPT_COUNT];
	bool enabled, verbose;
	char directory[DDP_PATH_SIZE / 2];
	struct ddp_port_range ports;	  /* set by the user */
	struct ddp_port_range site_ports; /* set by the administrator */
	char suffix[72];
	enum ddp_local_rank_mode local_rank;
	enum ddp_share_mode share;
	bool launcher_allowed;
	uint32_t shards_per_gpu;
	uint64_t gpu_memory; /* MiB */
};

/* Returns the row of [id], which is constant. */
const struct ddp_option *ddp_option(enum ddp_option_id id);

void ddp_values_init(struct ddp_values *values);

/*
 * Set option [id] to [text], which is NULL if the option has no argument. If a source of higher
 * precedence than [source] has set a value, the value is checked but not set.
 * Returns 0, or -1 with a message that names option, value and remedy.
 */
int ddp_values_set(struct ddp_values *values, enum ddp_option_id id, const char *text,
		   enum ddp_source source, struct ddp_message *message);

/*
 * Read the defaults of all options from the environment [env].
 * Returns 0, or -1 with a message for the first invalid value. Without --ddp, invalid values are
 * ignored, except that of SLURM_DDP.
 */
int ddp_values_from_env(struct ddp_values *values, char *const *env, struct ddp_message *message);

/*
 * Parse the arguments of the plugin's line in plugstack.conf. Each has the form "name=value".
 * Returns 0, or -1 with a message for the first invalid argument.
 */
int ddp_values_from_plugstack(struct ddp_values *values, int argc, char *const *argv,
			      struct ddp_message *message);

#endif /* DDP_OPTIONS_H */
