/* SPDX-License-Identifier: Apache-2.0 */
/* options-complain.c - one line about a wrong command line, with the nearest name */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "options-table.h"

bool options_silent(void)
{
	static const char *const names[] = {"DDP_RANK", "RANK", "SLURM_PROCID"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *rank = getenv(names[i]);

		if (rank && *rank)
			return strcmp(rank, "0") != 0;
	}
	return false;
}

bool options_complain(const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (options_silent())
		return false;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "ddp-train: %s\n", text);
	return false;
}

enum { NAME_SIZE = 32 };

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Letters to insert, remove, change or swap with their neighbour to make [b] of [a]. */
static int distance(const char *a, const char *b)
{
	int rows[3][NAME_SIZE + 1], *above = rows[0], *row = rows[1], *upper = rows[2];
	int width = (int)strlen(b);

	for (int j = 0; j <= width; j++)
		above[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		row[0] = i;
		for (int j = 1; j <= width; j++) {
			row[j] = least(above[j], row[j - 1]) + 1;
			row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], upper[j - 2] + 1);
		}
		int *free_row = upper;

		upper = above;
		above = row;
		row = free_row;
	}
	return above[width];
}

const char *options_nearest(const char *text, size_t length, const char *(*name)(size_t),
			    size_t count)
{
	char word[NAME_SIZE];
	const char *found = NULL;
	int best = (int)length / 3 + 1;

	if (length >= sizeof(word))
		return NULL;
	memcpy(word, text, length);
	word[length] = '\0';
	for (size_t i = 0; i < count; i++) {
		int far = distance(word, name(i));

		if (far < best || (far == best && !found)) {
			best = far;
			found = name(i);
		}
	}
	return found;
}
