/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_plugstack.c - the plugin's arguments in plugstack.conf. Each line of the input is an
 * argument
 */
#include "config.h"

#include "fuzz.h"
#include "options.h"

enum { ARGUMENTS = 16 };

static bool is_known(const char *argument)
{
	size_t n = strcspn(argument, "=");

	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const char *name = ddp_option((enum ddp_option_id)id)->plugstack;

		if (name && strlen(name) == n && memcmp(name, argument, n) == 0)
			return true;
	}
	return false;
}

/* plugstack.conf cannot enable --ddp, and cannot set options that only users may set. */
static void check_values(const struct ddp_values *v)
{
	HOLDS(!v->enabled && !v->verbose);
	HOLDS(v->ports.lo == 0 && v->ports.hi == 0);
	HOLDS(v->site_ports.lo > 0 && v->site_ports.lo <= v->site_ports.hi);
	HOLDS(v->site_ports.hi <= 65535);
	HOLDS(!strpbrk(v->directory, "?#\n"));
	HOLDS(v->local_rank <= DDP_LOCAL_RANK_DEVICE && v->share <= DDP_SHARE_TORCH);
	for (int id = 0; id < DDP_OPT_COUNT; id++)
		HOLDS(v->source[id] <= DDP_FROM_PLUGSTACK);
}

/*
 * Arguments that are parsed one by one have the same effect as arguments that are parsed together.
 */
static void check_one_by_one(const struct ddp_values *together, int rc, int argc, char *const *argv)
{
	static struct ddp_values alone;
	struct ddp_message message;
	int i = 0;

	memset(&alone, 0, sizeof(alone));
	ddp_values_init(&alone);
	while (i < argc && ddp_values_from_plugstack(&alone, 1, argv + i, &message) == 0)
		HOLDS(is_known(argv[i++]));
	HOLDS((i < argc) == (rc < 0));
	HOLDS(memcmp(&alone, together, sizeof(alone)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ddp_values values;
	struct ddp_message message = {""};
	char *argv[ARGUMENTS + 1] = {NULL};
	char *text = fuzz_text(data, size), *next = text;
	int argc = 0, rc;

	while (argc < ARGUMENTS && next) {
		argv[argc++] = next;
		next = fuzz_next_line(next);
	}
	memset(&values, 0, sizeof(values));
	ddp_values_init(&values);
	rc = ddp_values_from_plugstack(&values, argc, argv, &message);
	HOLDS(rc == 0 || rc == -1);
	HOLDS((rc < 0) == (message.text[0] != '\0'));
	check_values(&values);
	check_one_by_one(&values, rc, argc, argv);
	free(text);
	return 0;
}
