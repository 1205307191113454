/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_options.c - values of options, from a command line, the environment and plugstack.conf
 *
 * The first byte of the input selects the option and the source. The following lines are values of
 * the option, which are set one after another. Then the same lines are the environment.
 */
#include "config.h"

#include "core/format.h"
#include "fuzz.h"
#include "options.h"

/* Checks what must hold for values that were set in any way. */
static void check_values(const struct ddp_values *v)
{
	struct ddp_message message;

	HOLDS(memchr(v->directory, '\0', sizeof(v->directory)));
	HOLDS(memchr(v->suffix, '\0', sizeof(v->suffix)));
	HOLDS(!*v->directory || ddp_template_check(v->directory, "", &message) == 0);
	HOLDS(!*v->suffix || ddp_suffix_check(v->suffix, "", &message) == 0);
	HOLDS(v->ports.lo <= v->ports.hi && v->ports.hi <= 65535);
	HOLDS(v->ports.lo > 0 || v->ports.hi == 0);
	HOLDS(v->site_ports.lo > 0 && v->site_ports.lo <= v->site_ports.hi);
	HOLDS(v->site_ports.hi <= 65535);
	HOLDS(v->local_rank <= DDP_LOCAL_RANK_DEVICE);
	HOLDS(v->share <= DDP_SHARE_TORCH);
}

static const char *name_under(enum ddp_option_id id, enum ddp_source source)
{
	const struct ddp_option *o = ddp_option(id);

	return source == DDP_FROM_PLUGSTACK	? o->plugstack
	       : source == DDP_FROM_ENVIRONMENT ? o->environment
						: o->option;
}

/* Sets a value. Checks what the header promises for success and for failure. */
static void set(struct ddp_values *values, enum ddp_option_id id, const char *text,
		enum ddp_source source)
{
	enum ddp_option_id slot = id == DDP_OPT_NO_DDP ? DDP_OPT_DDP : id;
	const struct ddp_values before = *values;
	struct ddp_message message = {""};
	int rc = ddp_values_set(values, id, text, source, &message);

	HOLDS(rc == 0 || rc == -1);
	check_values(values);
	if (rc < 0) {
		HOLDS(memcmp(values, &before, sizeof(before)) == 0);
		HOLDS(strstr(message.text, name_under(id, source)));
		return;
	}
	HOLDS(message.text[0] == '\0');
	HOLDS(values->source[slot] ==
	      (source > before.source[slot] ? source : before.source[slot]));
	if (source < before.source[slot])
		HOLDS(memcmp(values, &before, sizeof(before)) == 0);
}

static void set_from_env(struct ddp_values *values, char *const *env)
{
	struct ddp_message message = {""};
	int rc = ddp_values_from_env(values, env, &message);

	HOLDS(rc == 0 || (rc == -1 && message.text[0] != '\0'));
	/* Without --ddp, only an invalid SLURM_DDP can be an error. */
	HOLDS(rc == 0 || values->enabled || strstr(message.text, "SLURM_DDP="));
	check_values(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ddp_values values;
	enum { LINES = 8 };
	char *env[LINES + 1] = {NULL};
	enum ddp_option_id id;
	enum ddp_source source;
	char *text, *next;

	if (size == 0)
		return 0;
	id = (enum ddp_option_id)(data[0] % DDP_OPT_COUNT);
	source = (enum ddp_source)(1 + data[0] / DDP_OPT_COUNT % 3);
	memset(&values, 0, sizeof(values));
	ddp_values_init(&values);
	check_values(&values);
	text = fuzz_text(data + 1, size - 1);
	next = text;
	for (int i = 0; i < LINES && next; i++) {
		env[i] = next;
		next = fuzz_next_line(next);
		if (name_under(id, source))
			set(&values, id, env[i], source);
		source = (enum ddp_source)(1 + source % 3);
	}
	set_from_env(&values, env);
	ddp_values_init(&values);
	set_from_env(&values, env);
	free(text);
	return 0;
}
