/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - the plugin in sbatch, salloc and scrontab; options and messages of all processes that
 * load the plugin
 */
#include "config.h"

#include "context.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hide.h"
#include "launch/channel.h"
#include "launch/format.h"
#include "launch/plan.h"

extern char **environ;

/* --- Messages ---------------------------------------------------------------------------- */

/* Large enough for a message with long paths. Longer messages are cut. */
enum { LINE_SIZE = 3 * DDP_PATH_SIZE };

static void __attribute__((format(printf, 2, 0)))
make_line(char line[static LINE_SIZE], const char *format, va_list ap)
{
	char raw[LINE_SIZE];

	vsnprintf(raw, sizeof(raw), format, ap);
	ddp_hide(raw);
	ddp_escape(raw, line, LINE_SIZE);
}

void ddp_say_error(const char *format, ...)
{
	char line[LINE_SIZE];
	va_list ap;

	va_start(ap, format);
	make_line(line, format, ap);
	va_end(ap);
	slurm_error("ddp: %s", line);
}

/*
 * slurm_spank_log() prints the line in srun; on a node, it sends the line to srun. It adds no
 * prefix. On a node, slurm_info() would only write to slurmd's log.
 */
void ddp_say(const char *format, ...)
{
	char line[LINE_SIZE];
	va_list ap;

	va_start(ap, format);
	make_line(line, format, ap);
	va_end(ap);
	slurm_spank_log("ddp: %s", line);
}

/* --- Options ------------------------------------------------------------------------------ */

/* Slurm keeps pointers to the help texts of options, so these buffers must remain valid. */
static char usages[DDP_OPT_COUNT][160];

int ddp_register_options(spank_t spank, spank_opt_cb_f callback)
{
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);
		struct spank_option option = {
			.name = (char *)o->option,
			.arginfo = (char *)o->argument,
			.usage = usages[id],
			.has_arg = o->argument != NULL,
			.val = id,
			.cb = callback,
		};
		spank_err_t rc;

		if (!o->option)
			continue;
		snprintf(usages[id], sizeof(usages[id]), "[ddp] %s", o->help);
		rc = spank_option_register(spank, &option);
		if (rc != ESPANK_SUCCESS) {
			ddp_say_error("cannot register --%s: %s", o->option, spank_strerror(rc));
			return -1;
		}
	}
	return 0;
}

static const char *argument_or_null(const char *argument)
{
	if (!argument || !*argument || strcmp(argument, "(null)") == 0)
		return NULL;
	return argument;
}

/*
 * Check the defaults that the environment sets for options other than --ddp. Called only if --ddp
 * is given, because the defaults have no effect without it.
 */
static int check_defaults(const struct ddp_values *values, struct ddp_message *message)
{
	struct ddp_values scratch = *values;

	return ddp_values_from_env(&scratch, environ, message);
}

int ddp_set_option(struct ddp_values *values, int id, const char *argument)
{
	struct ddp_message message;

	if (id < 0 || id >= DDP_OPT_COUNT)
		return -1;
	if (ddp_values_set(values, (enum ddp_option_id)id, argument_or_null(argument),
			   DDP_FROM_COMMAND, &message) < 0 ||
	    (id == DDP_OPT_DDP && check_defaults(values, &message) < 0)) {
		ddp_say_error("%s", message.text);
		return -1;
	}
	return 0;
}

/* --- sbatch, salloc, scrontab: check the options; Slurm passes them on to each srun ------- */

static struct ddp_values values;

static int on_option(int id, const char *argument, int remote)
{
	return remote ? 0 : ddp_set_option(&values, id, argument);
}

/*
 * If sbatch or salloc runs in a job, remove that job's options. Slurm passes the options of a job
 * to each of its sruns in these variables, and sbatch would pass them on to the new job. The
 * options of this command have not been read yet.
 */
static void remove_outer_options(void)
{
	/* SPANK's prefix and the plugin's name; the option follows, with '_' instead of '-' */
	static const char prefix[] = "SLURM_SPANK__SLURM_SPANK_OPTION_ddp_";
	char name[sizeof(prefix) + 32];

	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const char *option = ddp_option((enum ddp_option_id)id)->option;

		if (!option || ddp_format(name, sizeof(name), "%s%s", prefix, option) < 0)
			continue;
		for (char *c = name; (c = strchr(c, '-'));)
			*c = '_';
		unsetenv(name);
		/* salloc also sets this name without the first prefix */
		unsetenv(name + strlen("SLURM_SPANK_"));
	}
}

int ddp_allocator_init(spank_t spank, int argc, char **argv)
{
	/* With --ddp, srun reports wrong arguments in plugstack.conf. They are not checked here. */
	(void)argc;
	(void)argv;
	remove_outer_options();
	ddp_values_init(&values);
	return ddp_register_options(spank, on_option);
}

void ddp_mark_job(void)
{
	for (size_t i = 0; i < DDP_PLAN_MARKED; i++) {
		const char *name = ddp_variable_info(ddp_plan_marked[i])->name;

		/* Keep the user's value, because the plugin on a node could not restore it. */
		if (!ddp_users_value(environ, name))
			(void)setenv(name, DDP_NOT_LOADED, 1);
	}
	(void)setenv(DDP_CHANNEL_NAME, DDP_NOT_LOADED, 1);
}

int ddp_allocator_options_read(void)
{
	struct ddp_message message;

	/*
	 * If sbatch runs in a step, remove the step's channel, which would be exported to the new
	 * job.
	 */
	unsetenv(DDP_CHANNEL_NAME);
	if (ddp_values_from_env(&values, environ, &message) < 0) {
		ddp_say_error("%s", message.text);
		return -1;
	}
	/*
	 * Only sbatch: its script runs on a node, which may lack the plugin. salloc's shell runs on
	 * this host.
	 */
	if (values.enabled && strcmp(program_invocation_short_name, "sbatch") == 0)
		ddp_mark_job();
	return 0;
}
