/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "share.h"

#include <string.h>

static bool wanted(const struct ddp_facts *facts, enum ddp_framework_when when)
{
	switch (when) {
	case DDP_WHEN_SHARED:
		return true;
	case DDP_WHEN_TORCH:
		return facts->channel->share == DDP_SHARE_TORCH;
	case DDP_WHEN_MPS:
		return facts->mps;
	}
	return false;
}

/* Did the user say it by one of [names], between which are blanks? */
static bool said_otherwise(char *const *env, const char *names)
{
	char name[64];

	for (size_t n; *names; names += n + (names[n] == ' ')) {
		n = strcspn(names, " ");
		if (ddp_format(name, sizeof(name), "%.*s", (int)n, names) == 0 &&
		    ddp_users_value(env, name))
			return true;
	}
	return false;
}

/* At least 1: to a limit of 0, programs and MPS give another meaning. */
static unsigned long long part_of(const struct ddp_devices *dev, uint64_t whole)
{
	uint64_t part = whole * dev->share_num / dev->share_den;

	return part ? part : 1;
}

static int print_percent(const struct ddp_devices *dev, char *buf, size_t size)
{
	unsigned long long millionths = part_of(dev, 1000000);
	char *end;

	if (ddp_format(buf, size, "%llu.%04llu", millionths / 10000, millionths % 10000) < 0)
		return -1;
	for (end = buf + strlen(buf); end[-1] == '0'; end--)
		end[-1] = '\0';
	end -= end[-1] == '.';
	return ddp_format(end, size - (size_t)(end - buf), "%%");
}

/* Returns 0, or -1 where there is nothing to say. */
static int print(const struct ddp_facts *facts, const struct ddp_framework *row, char *buf,
		 size_t size)
{
	const struct ddp_devices *dev = &facts->devices;
	char fraction[32];

	switch (row->form) {
	case DDP_FORM_FRACTION:
		if (ddp_share_print(dev, fraction, sizeof(fraction)) < 0)
			return -1;
		return ddp_format(buf, size, "%s%s", row->text, fraction);
	case DDP_FORM_PERCENT:
		return print_percent(dev, buf, size);
	case DDP_FORM_WORD:
		return ddp_format(buf, size, "%s", row->text);
	case DDP_FORM_THREADS:
		return ddp_format(buf, size, "%llu", part_of(dev, 100));
	case DDP_FORM_MEGABYTES:
		if (facts->gpu_memory == 0 || dev->device < 0)
			return -1;
		return ddp_format(buf, size, "%lld=%lluM", (long long)dev->device,
				  part_of(dev, facts->gpu_memory));
	}
	return -1;
}

size_t ddp_share_settings(const struct ddp_facts *facts, struct ddp_share_setting *settings)
{
	static const char *const why[] = {"DDP_SHARE", "--ddp-share=torch", "DDP_SHARE, under MPS"};
	const struct ddp_devices *dev = &facts->devices;
	size_t n = 0;

	if (facts->channel->share == DDP_SHARE_OFF || dev->share_num >= dev->share_den)
		return 0;
	for (int i = 0; i < DDP_FRAMEWORK_COUNT; i++) {
		const struct ddp_framework *row = ddp_framework(i);
		struct ddp_share_setting *s = &settings[n];

		*s = (struct ddp_share_setting){.variable = row->variable, .why = why[row->when]};
		if (wanted(facts, row->when) && !said_otherwise(facts->task_env, row->unless) &&
		    print(facts, row, s->value, sizeof(s->value)) == 0)
			n++;
	}
	return n;
}
