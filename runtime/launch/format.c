/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - format bounded strings, parse numbers, read variables, expand templates of paths */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hide.h"
#include "format.h"

int ddp_fail(struct ddp_message *message, const char *format, ...)
{
	va_list ap;

	if (message) {
		va_start(ap, format);
		vsnprintf(message->text, sizeof(message->text), format, ap);
		va_end(ap);
		ddp_hide(message->text);
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

void ddp_escape(const char *text, char *buf, size_t size)
{
	size_t used = 0;

	for (const unsigned char *p = (const unsigned char *)text; *p && used + 5 <= size; p++) {
		if (*p >= ' ' && *p != 0x7f)
			buf[used++] = (char)*p;
		else
			used += (size_t)sprintf(buf + used, "\\x%02x", *p);
	}
	if (size > 0)
		buf[used] = '\0';
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

/* --- Template of --ddp-rdzv -------------------------------------------------------------- */

static bool is_placeholder(char c)
{
	return c != '\0' && strchr("jsun", c);
}

int ddp_template_check(const char *template, const char *what, struct ddp_message *message)
{
	if (*template == '\0')
		return ddp_fail(message, "%s is empty. Give a directory that all nodes share.",
				what);
	if (strlen(template) >= DDP_PATH_SIZE / 2)
		return ddp_fail(message, "%s is longer than %d characters", what,
				DDP_PATH_SIZE / 2 - 1);
	for (const char *p = template; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return ddp_fail(message, "%s has a control character in it", what);
		if (*p == '?' || *p == '#')
			return ddp_fail(message,
					"%s=%.200s contains '%c', which cannot be part of a "
					"rendezvous URL. Choose another directory.",
					what, template, *p);
		/* No shell expands an #SBATCH line, plugstack.conf, or the '~' of --ddp-rdzv=~/DIR. */
		if (*p == '$' || (*p == '~' && p == template))
			return ddp_fail(message,
					"%s=%.200s contains '%c', which is not expanded. Write "
					"the path, with %%u for the user's name and %%j for the "
					"job id.",
					what, template, *p);
		if (*p == '%' && !is_placeholder(*++p))
			return ddp_fail(
				message,
				"%s=%.200s has an unknown '%%'. Write %%j (job), %%s (step), "
				"%%u (user) or %%n (rank 0's node).",
				what, template);
	}
	return 0;
}

void ddp_template_fixed(const char *template, char *path, size_t size)
{
	const char *percent = strchr(template, '%');
	size_t n = strlen(template);

	if (percent)
		for (n = (size_t)(percent - template); n > 1 && template[n - 1] != '/'; n--)
			;
	while (n > 1 && template[n - 1] == '/')
		n--;
	snprintf(path, size, "%.*s", (int)n, template);
}

static const char *value_of(char c, const struct ddp_template_values *values)
{
	switch (c) {
	case 'j':
		return values->job;
	case 's':
		return values->step;
	case 'u':
		return values->user;
	case 'n':
		return values->node;
	default:
		return NULL;
	}
}

int ddp_template_expand(const char *template, const struct ddp_template_values *values, char *path,
			size_t size, struct ddp_message *message)
{
	size_t used = 0;

	for (const char *p = template; *p; p++) {
		const char *piece = p;
		size_t n = 1;

		if (*p == '%') {
			piece = value_of(*++p, values);
			if (!piece)
				return ddp_fail(message, "the value of %%%.1s in %s is not known",
						p, template);
			n = strlen(piece);
		}
		if (used + n >= size)
			return ddp_fail(message, "the path that %s expands to is too long",
					template);
		memcpy(path + used, piece, n);
		used += n;
	}
	if (used >= size)
		return ddp_fail(message, "the path that %s expands to is too long", template);
	path[used] = '\0';
	return 0;
}

bool ddp_path_fits_url(const char *path)
{
	return !strpbrk(path, "?#%\t\r\n");
}
