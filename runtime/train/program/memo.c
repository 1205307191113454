/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "memo.h"

#define TITLE "slurm-ddp algorithms 1\n"

static const char name[] = "algorithms";

/* More than thousands of shapes need. */
enum { LIMIT = 1 << 20 };

static bool find_directory(char *path, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length;

	if (cache && *cache == '/')
		length = snprintf(path, size, "%s/slurm-ddp", cache);
	else if (home && *home == '/')
		length = snprintf(path, size, "%s/.cache/slurm-ddp", home);
	else
		return false;
	return length > 0 && (size_t)length < size;
}

static bool find_file(const char *file, char *path, size_t size)
{
	if (!find_directory(path, size - strlen(file) - 1))
		return false;
	strcat(strcat(path, "/"), file);
	return true;
}

static bool read_file(const char *file, char **text, size_t *size)
{
	char path[PATH_MAX];

	return find_file(file, path, sizeof(path)) &&
	       ddp_file_read(path, LIMIT, text, size, NULL) == 0;
}

static void write_file(const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	struct iovec part = {text, size};

	if (find_directory(path, sizeof(path)) && ddp_file_mkdirs(path, 0700, NULL) == 0 &&
	    find_file(file, path, sizeof(path)))
		ddp_file_write(path, &part, 1, 0600, false, NULL);
}

void memo_open(struct memo *memo)
{
	*memo = (struct memo){NULL, 0, false};
	if (!read_file(name, &memo->text, &memo->size)) {
		*memo = (struct memo){NULL, 0, false};
		return;
	}
	if (strncmp(memo->text, TITLE, strlen(TITLE)) == 0 && strlen(memo->text) == memo->size &&
	    memo->text[memo->size - 1] == '\n')
		return;
	free(memo->text);
	*memo = (struct memo){NULL, 0, false};
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
	const char *before = memo->text ? memo->text : TITLE;
	char *text = NULL;
	int size = asprintf(&text, "%s%s\t%s\n", before, key, value);

	if (size < 0 || size > LIMIT) {
		if (size >= 0)
			free(text);
		return;
	}
	free(memo->text);
	*memo = (struct memo){text, (size_t)size, true};
}

void memo_close(struct memo *memo)
{
	if (memo->changed)
		write_file(name, memo->text, memo->size);
	free(memo->text);
	*memo = (struct memo){NULL, 0, false};
}

char *memo_load(const char *file)
{
	char *text = NULL;
	size_t size;

	if (!read_file(file, &text, &size))
		return NULL;
	if (strlen(text) == size)
		return text;
	free(text);
	return NULL;
}

void memo_save(const char *file, const char *text)
{
	write_file(file, (char *)text, strlen(text));
}
