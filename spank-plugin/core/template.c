/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "template.h"

#include <string.h>

static bool is_placeholder(char c)
{
	return c != '\0' && strchr("jsun", c);
}

int ddp_template_check(const char *template, const char *what, struct ddp_message *message)
{
	if (*template == '\0')
		return ddp_fail(message, "%s is empty; give a directory that all nodes share",
				what);
	if (strlen(template) >= DDP_PATH_SIZE / 2)
		return ddp_fail(message, "%s is longer than %d characters", what,
				DDP_PATH_SIZE / 2 - 1);
	for (const char *p = template; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return ddp_fail(message, "%s has a control character in it", what);
		if (*p == '?' || *p == '#')
			return ddp_fail(message,
					"%s=%.200s: '%c' cannot be part of a rendezvous URL; "
					"choose another directory",
					what, template, *p);
		if (*p == '%' && !is_placeholder(*++p))
			return ddp_fail(message,
					"%s=%.200s: '%%' stands only before j (job), s (step), "
					"u (user) or n (rank 0's node)",
					what, template);
	}
	return 0;
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
				return ddp_fail(message, "%%%.1s in %s is not known here", p,
						template);
			n = strlen(piece);
		}
		if (used + n >= size)
			return ddp_fail(message, "the path of %s is too long", template);
		memcpy(path + used, piece, n);
		used += n;
	}
	if (used >= size)
		return ddp_fail(message, "the path of %s is too long", template);
	path[used] = '\0';
	return 0;
}

bool ddp_path_fits_url(const char *path)
{
	return !strpbrk(path, "?#%\t\r\n");
}
