/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - read and check the variables of settings.def */
#include "config.h"

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

const char *ddp_getenv(const char *name, ...)
{
	const char *value = NULL;
	va_list more;

	va_start(more, name);
	for (; name && !(value && *value); name = va_arg(more, const char *))
		value = getenv(name);
	va_end(more);
	return value && *value ? value : NULL;
}

static const struct {
	const char *name, *value;
} settings[DDP_SETTING_COUNT] = {
#define DDP_SETTING(name, value, text) {#name, value},
#include "settings.def"
#undef DDP_SETTING
};

const char *ddp_setting_get(enum ddp_setting setting)
{
	const char *value = ddp_getenv(settings[setting].name, NULL);

	return value ? value : settings[setting].value;
}

/* Parse a decimal number. The decimal point is always ".", also if the locale has another. */
static bool read_decimal(const char *text, double *value)
{
	locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	char *end = NULL;

	*value = 0;
	if (!plain)
		return false;
	if (strspn(text, "0123456789.eE+-") == strlen(text))
		*value = strtod_l(text, &end, plain);
	freelocale(plain);
	return end && end != text && !*end;
}

int ddp_setting_seconds(enum ddp_setting setting, double *seconds, struct ddp_error *error)
{
	const char *text = ddp_setting_get(setting);
	double value;

	if (!read_decimal(text, &value) || !(value > 0) || value > 1e9)
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "%s=%s is not a number of seconds above 0",
				     settings[setting].name, text);
	*seconds = value;
	return 0;
}

int ddp_setting_word(enum ddp_setting setting, const char *const *words, int *index,
		     struct ddp_error *error)
{
	const char *text = ddp_setting_get(setting);
	char list[256] = "";
	size_t used = 0;

	*index = -1;
	if (!*text)
		return 0;
	for (int i = 0; words[i]; i++) {
		if (strcmp(words[i], text) == 0) {
			*index = i;
			return 0;
		}
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 i ? ", " : "", words[i]);
	}
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT, "%s=%s is not one of %s",
			     settings[setting].name, text, list);
}
