/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - functions that all fuzz targets share */
#ifndef DDP_TESTS_FUZZ_H
#define DDP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Like assert(), but NDEBUG does not disable it. */
#define HOLDS(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
				#condition);                                              \
			abort();                                                          \
		}                                                                         \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Copies the input to a string in a block that has exactly its size, so that a sanitizer detects a
 * read beyond the end.
 */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	HOLDS(text);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Ends [text] at its next newline. Returns the text after it, or NULL. */
static inline char *fuzz_next_line(char *text)
{
	char *end = strchr(text, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	return end + 1;
}

#endif /* DDP_TESTS_FUZZ_H */
