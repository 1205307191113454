/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - table of the options of srun --ddp, and parsing of their values */
#include "config.h"

#include "options.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "format.h"

enum kind { FLAG, DIRECTORY, PORTS, SUFFIX, LOCAL_RANK, SHARE, LAUNCHER, COUNT, MEMORY };

static const struct ddp_option options[DDP_OPT_COUNT] = {
#define DDP_OPTION(id, option, argument, environment, plugstack, kind, help, manual) \
	{option, argument, environment, plugstack, help, manual},
#include "options.def"
#undef DDP_OPTION
};

static const enum kind kinds[DDP_OPT_COUNT] = {
#define DDP_OPTION(id, option, argument, environment, plugstack, kind, help, manual) kind,
#include "options.def"
#undef DDP_OPTION
};

const struct ddp_option *ddp_option(enum ddp_option_id id)
{
	return &options[id];
}

void ddp_values_init(struct ddp_values *values)
{
	memset(values, 0, sizeof(*values));
	values->site_ports = DDP_PORTS_DEFAULT;
}

static int parse_flag(const char *text, const char *what, bool *flag, struct ddp_message *message)
{
	static const char *const words[2][4] = {{"0", "no", "off", "false"},
						{"1", "yes", "on", "true"}};

	for (int value = 0; value < 2; value++)
		for (int i = 0; i < 4; i++)
			if (strcasecmp(text, words[value][i]) == 0) {
				*flag = value;
				return 0;
			}
	return ddp_fail(message, "%s=%.100s is neither 1 nor 0", what, text);
}

/* Find [text] among the words "a|b|c", and set [place] to its index. */
static int parse_word(const char *text, const char *what, const char *words, int *place,
		      struct ddp_message *message)
{
	size_t n = strlen(text);
	int i = 0;

	for (const char *p = words; *p; i++) {
		size_t length = strcspn(p, "|");

		if (length == n && memcmp(p, text, n) == 0) {
			*place = i;
			return 0;
		}
		p += length;
		p += *p == '|';
	}
	return ddp_fail(message, "%s=%.100s is not valid. Choose one of %s.", what, text, words);
}

/* Parse an amount of memory such as "80G" or "81559M", and convert it to MiB. */
static int parse_memory(const char *text, const char *what, uint64_t *memory,
			struct ddp_message *message)
{
	size_t n = strlen(text);
	uint64_t unit = n && text[n - 1] == 'G' ? 1024 : 1, number;

	if (n < 2 || (text[n - 1] != 'M' && text[n - 1] != 'G') ||
	    ddp_parse_number_n(text, n - 1, 1, UINT32_MAX / unit, &number) < 0)
		return ddp_fail(message,
				"%s=%.100s is not an amount of memory such as 80G or 81559M", what,
				text);
	*memory = number * unit;
	return 0;
}

/* Parse [text] as a value of option [id]. [what] names the option in messages. */
static int parse(struct ddp_values *values, enum ddp_option_id id, const char *text,
		 const char *what, struct ddp_message *message)
{
	const char *words = options[id].argument;
	bool flag = true;
	uint64_t count;
	int place = 0;

	if ((kinds[id] == LOCAL_RANK || kinds[id] == SHARE || kinds[id] == LAUNCHER) &&
	    parse_word(text, what, words, &place, message) < 0)
		return -1;

	switch (kinds[id]) {
	case FLAG:
		if (text && parse_flag(text, what, &flag, message) < 0)
			return -1;
		if (id == DDP_OPT_VERBOSE)
			values->verbose = flag;
		else
			values->enabled = id == DDP_OPT_NO_DDP ? !flag : flag;
		return 0;
	case DIRECTORY:
		if (ddp_template_check(text, what, message) < 0)
			return -1;
		return ddp_format(values->directory, sizeof(values->directory), "%s", text);
	case PORTS:
		return ddp_ports_parse(text, what,
				       id == DDP_OPT_PORTS ? &values->site_ports : &values->ports,
				       message);
	case SUFFIX:
		if (ddp_suffix_check(text, what, message) < 0)
			return -1;
		return ddp_format(values->suffix, sizeof(values->suffix), "%s", text);
	case LOCAL_RANK:
		values->local_rank = (enum ddp_local_rank_mode)place;
		return 0;
	case SHARE:
		values->share = (enum ddp_share_mode)place;
		return 0;
	case LAUNCHER:
		values->launcher_allowed = place == 1;
		return 0;
	case COUNT:
		if (ddp_parse_number(text, 1, UINT32_MAX, &count) < 0)
			return ddp_fail(message, "%s=%.100s is not a number from 1 up", what, text);
		values->shards_per_gpu = (uint32_t)count;
		return 0;
	case MEMORY:
		return parse_memory(text, what, &values->gpu_memory, message);
	}
	return -1;
}

static const char *name_of(enum ddp_option_id id, enum ddp_source source, char *buf, size_t size)
{
	if (source == DDP_FROM_ENVIRONMENT)
		return options[id].environment;
	if (source == DDP_FROM_PLUGSTACK)
		return options[id].plugstack;
	snprintf(buf, size, "--%s", options[id].option);
	return buf;
}

int ddp_values_set(struct ddp_values *values, enum ddp_option_id id, const char *text,
		   enum ddp_source source, struct ddp_message *message)
{
	/* --no-ddp sets the value of --ddp, so both store their source in the place of --ddp. */
	enum ddp_option_id slot = id == DDP_OPT_NO_DDP ? DDP_OPT_DDP : id;
	struct ddp_values scratch;
	char buf[64];
	const char *what = name_of(id, source, buf, sizeof(buf));

	if (options[id].argument && (!text || !*text))
		return ddp_fail(message, "%s needs a value (%s)", what, options[id].argument);
	/* Parse the value even if it will be overridden, so that mistakes in it are reported. */
	scratch = *values;
	if (parse(&scratch, id, text, what, message) < 0)
		return -1;
	if (source < values->source[slot])
		return 0;
	*values = scratch;
	values->source[slot] = source;
	return 0;
}

int ddp_values_from_env(struct ddp_values *values, char *const *env, struct ddp_message *message)
{
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const char *name = options[id].environment;
		const char *text = name ? ddp_env_filled(env, name) : NULL;

		/* An invalid default does not affect a step without --ddp. */
		if (text &&
		    ddp_values_set(values, (enum ddp_option_id)id, text, DDP_FROM_ENVIRONMENT,
				   message) < 0 &&
		    (id == DDP_OPT_DDP || values->enabled))
			return -1;
	}
	return 0;
}

static int set_argument(struct ddp_values *values, const char *argument,
			struct ddp_message *message)
{
	size_t n = strcspn(argument, "=");

	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const char *name = options[id].plugstack;

		if (name && strlen(name) == n && strncmp(name, argument, n) == 0)
			return ddp_values_set(values, (enum ddp_option_id)id,
					      argument[n] ? argument + n + 1 : NULL,
					      DDP_FROM_PLUGSTACK, message);
	}
	return ddp_fail(message, "\"%.100s\" is not an argument of ddp.so. See spank-ddp(8).",
			argument);
}

int ddp_values_from_plugstack(struct ddp_values *values, int argc, char *const *argv,
			      struct ddp_message *message)
{
	for (int i = 0; i < argc; i++)
		if (set_argument(values, argv[i], message) < 0)
			return -1;
	return 0;
}
