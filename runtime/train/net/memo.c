/* SPDX-License-Identifier: Apache-2.0 */
/* memo.c - read and write the cache file of measurements */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "memo.h"

#define TITLE "slurm-ddp algorithms 1\n"

static const char name[] = "/algorithms";

/* maximum bytes of the file: enough for thousands of layer shapes */
enum { LIMIT = 1 << 20 };

/* Composes the path of [file] in the cache directory. */
static bool find_path(const char *file, char path[PATH_MAX])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length;

	if (cache && *cache == '/')
		length = snprintf(path, PATH_MAX, "%s/slurm-ddp%s", cache, file);
	else if (home && *home == '/')
		length = snprintf(path, PATH_MAX, "%s/.cache/slurm-ddp%s", home, file);
	else
		return false;
	return length > 0 && length < PATH_MAX;
}

static void save(const char *text)
{
	char path[PATH_MAX];
	struct iovec part = {(char *)text, strlen(text)};

	if (find_path("", path) && ddp_file_mkdirs(path, 0700, NULL) == 0 && find_path(name, path))
		ddp_file_write(path, &part, 1, 0600, false, NULL);
}

void memo_open(struct memo *memo)
{
	char path[PATH_MAX], *text = NULL;
	size_t size;

	*memo = (struct memo){NULL, false};
	if (!find_path(name, path) || ddp_file_read(path, LIMIT, &text, &size, NULL) != 0)
		return;
	if (strlen(text) == size && strncmp(text, TITLE, strlen(TITLE)) == 0 &&
	    text[size - 1] == '\n')
		memo->text = text;
	else
		free(text);
}

bool memo_find(const struct memo *memo, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);

	for (const char *line = memo->text; line && *line; line = strchr(line, '\n') + 1) {
		const char *from = line + length + 1;
		size_t bytes;

		if (strncmp(line, key, length) != 0 || line[length] != '\t')
			continue;
		bytes = strcspn(from, "\n");
		if (bytes >= size)
			return false;
		memcpy(value, from, bytes);
		value[bytes] = '\0';
		return true;
	}
	return false;
}

void memo_add(struct memo *memo, const char *key, const char *value)
{
	char *text = NULL;
	const char *older = memo->text ? memo->text + strlen(TITLE) : "";
	int size = asprintf(&text, TITLE "%s\t%s\n%s", key, value, older);

	if (size < 0 || size > LIMIT) {
		if (size >= 0)
			free(text);
		return;
	}
	free(memo->text);
	*memo = (struct memo){text, true};
}

void memo_close(struct memo *memo)
{
	if (memo->changed)
		save(memo->text);
	free(memo->text);
	*memo = (struct memo){NULL, false};
}
