/* SPDX-License-Identifier: Apache-2.0 */
/* step-choices.c - choose the directory, the secrets and the port of a step */
#include "config.h"

#include "step-choices.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "plan.h"
#include "rendezvous.h"
#include "starter.h"
#include "task.h"

enum {
	PORTS_TRIED = 100, /* if so many ports are in use, the first is chosen, and rank 0 fails */
	STRIDE = 997,	   /* distance to the next port tried; parallel steps try different ports */
};

/* --- The directory ----------------------------------------------------------------------- */

int ddp_step_read_run(struct ddp_channel *channel, char *const *env, struct ddp_message *message)
{
	const struct {
		const char *name;
		uint32_t *value;
	} numbers[] = {{DDP_RUN_RESTART, &channel->restart},
		       {DDP_RUN_RESTARTS_MAX, &channel->restarts_max}};
	const char *id = ddp_env_filled(env, DDP_RUN_ID);
	uint64_t number;
	int rv = 0;

	for (size_t i = 0; rv == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const char *text = ddp_env_filled(env, numbers[i].name);

		if (!text)
			continue;
		if (ddp_parse_number(text, 0, UINT32_MAX, &number) < 0)
			rv = ddp_fail(message,
				      "%s=%.100s is not a number. ddp-run sets this "
				      "variable. Unset yours.",
				      numbers[i].name, text);
		channel->run = 1;
		*numbers[i].value = (uint32_t)number;
	}
	if (id && ddp_format(channel->run_id, sizeof(channel->run_id), "%s", id) < 0)
		rv = ddp_fail(message,
			      DDP_RUN_ID "=%.100s... is too long. ddp-run sets this variable. "
					 "Unset yours.",
			      id);
	return rv;
}

void ddp_step_drop_run(void)
{
	static const char *const names[] = {DDP_RUN_RESTART, DDP_RUN_RESTARTS_MAX, DDP_RUN_ID,
					    DDP_RUN_FD, DDP_RUN_FILE};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

int ddp_step_draw_secrets(struct ddp_channel *ch)
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		return -1;
	ch->magic = random[1] | 1;
	return ddp_format(ch->nonce, sizeof(ch->nonce), "%016llx", (unsigned long long)random[0]);
}

/*
 * Choose the directory if the user did not. It is the working directory or, if that cannot be used,
 * the home directory. For example, other users could replace .ddp in a project directory to which
 * its group can write. If neither can be used, a later check reports that.
 */
static const char *choose_default(const char *cwd, const char *home)
{
	struct ddp_message message;

	if (!home || *home != '/' || ddp_rendezvous_usable(cwd, &message) == 0 ||
	    ddp_rendezvous_usable(home, &message) < 0)
		return cwd;
	return home;
}

int ddp_step_choose_base(struct ddp_channel *ch, const char *wanted, const char *home,
			 struct ddp_message *message)
{
	char cwd[DDP_PATH_SIZE / 2];

	ch->base_asked = *wanted != '\0';
	if (*wanted == '/')
		return ddp_format(ch->base, sizeof(ch->base), "%s", wanted);
	if (!getcwd(cwd, sizeof(cwd))) {
		if (*wanted)
			return ddp_fail(message,
					"the working directory is not known (%s). Give --ddp-rdzv "
					"an absolute path.",
					strerror(errno));
		ch->base[0] = '\0';
		return 0;
	}
	if (*wanted && strpbrk(cwd, "?#%"))
		return ddp_fail(message,
				"the working directory %s has '?', '#' or '%%' in it, which a "
				"rendezvous URL cannot contain. Give --ddp-rdzv an absolute path "
				"without them.",
				cwd);
	if (!*wanted)
		return ddp_format(ch->base, sizeof(ch->base), "%s", choose_default(cwd, home));
	return ddp_format(ch->base, sizeof(ch->base), "%s/%s", cwd, wanted);
}

void ddp_step_find_user(struct ddp_channel *ch, const char *wanted)
{
	const struct passwd *pw = strstr(wanted, "%u") ? getpwuid(geteuid()) : NULL;

	if (!pw || ddp_format(ch->user, sizeof(ch->user), "%s", pw->pw_name) < 0)
		(void)ddp_format(ch->user, sizeof(ch->user), "%u", geteuid());
}

/* --- The program --------------------------------------------------------------------------- */

void ddp_step_read_program(struct ddp_channel *ch, char *const *argv)
{
	const char *nproc = ddp_starter_nproc(argv);

	ch->standalone = ddp_starter_is_standalone(argv);
	ch->starts_ranks = ddp_starter_starts_ranks(argv);
	ch->torchrun = nproc != NULL;
	if (!nproc || ddp_format(ch->nproc, sizeof(ch->nproc), "%s", nproc) < 0)
		ch->nproc[0] = '\0';
}

/* --- The port ----------------------------------------------------------------------------- */

/* The kernel's range for outgoing connections, which a listener should avoid. */
static struct ddp_port_range ephemeral_range(void)
{
	struct ddp_port_range range = {32768, 60999};
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	unsigned lo, hi;

	if (file) {
		if (fscanf(file, "%u %u", &lo, &hi) == 2 && lo <= hi)
			range = (struct ddp_port_range){lo, hi};
		fclose(file);
	}
	return range;
}

/*
 * Compute a port in [range] from the step's numbers. Steps of other jobs on the node can compute
 * the same port. With [skip_used], continue to the next port that is not in use, if there is one.
 */
static uint32_t compute_port(const struct ddp_channel *ch, struct ddp_port_range range,
			     bool skip_used)
{
	struct ddp_port_range ephemeral = ephemeral_range();
	uint64_t index = ddp_job_hash(ch->cluster, ch->job, ch->attempt) + ch->step;
	uint32_t first = ddp_port_compute(range, ephemeral, index), port = first;

	for (unsigned i = 1; skip_used && i <= PORTS_TRIED; i++) {
		if (!ddp_task_port_in_use(port))
			return port;
		port = ddp_port_compute(range, ephemeral, index + i * STRIDE);
		if (port == first)
			break;
	}
	return first;
}

void ddp_step_choose_port(struct ddp_channel *ch, const struct ddp_values *values,
			  bool on_rank0s_node)
{
	bool is_given = values->source[DDP_OPT_PORT] != DDP_FROM_DEFAULT;

	ch->port = compute_port(ch, is_given ? values->ports : values->site_ports, on_rank0s_node);
	ch->reserved_first = !is_given;
	(void)ddp_format(ch->port_from, sizeof(ch->port_from), "%s",
			 is_given ? "--ddp-port" : "computed");
}
