/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ddp_fail(struct ddp_message *message, const char *format, ...)
{
	va_list ap;

	if (message) {
		va_start(ap, format);
		vsnprintf(message->text, sizeof(message->text), format, ap);
		va_end(ap);
	}
	return -1;
}

int ddp_format(char *buf, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(buf, size, format, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < size)
		return 0;
	if (size > 0)
		buf[0] = '\0';
	return -1;
}

int ddp_parse_number_n(const char *text, size_t length, uint64_t lo, uint64_t hi, uint64_t *value)
{
	uint64_t v = 0;

	if (length == 0)
		return -1;
	for (size_t i = 0; i < length; i++) {
		unsigned digit = (unsigned)((unsigned char)text[i] - '0');

		if (digit > 9 || v > (UINT64_MAX - digit) / 10)
			return -1;
		v = v * 10 + digit;
	}
	if (v < lo || v > hi)
		return -1;
	*value = v;
	return 0;
}

int ddp_parse_number(const char *text, uint64_t lo, uint64_t hi, uint64_t *value)
{
	return text ? ddp_parse_number_n(text, strlen(text), lo, hi, value) : -1;
}

const char *ddp_env_get(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

const char *ddp_env_filled(char *const *env, const char *name)
{
	const char *value = ddp_env_get(env, name);

	return value && *value ? value : NULL;
}
