/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - what the fuzz targets share
 */
#ifndef DDP_TESTS_FUZZ_H
#define DDP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As assert, whatever NDEBUG says. */
#define HOLDS(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
				#condition);                                              \
			abort();                                                          \
		}                                                                         \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input as a string in a block of just its size, so that reading past its end is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	HOLDS(text);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Cut [text] at its next line break. Returns what follows, or NULL. */
static inline char *fuzz_next_line(char *text)
{
	char *end = strchr(text, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	return end + 1;
}

#endif /* DDP_TESTS_FUZZ_H */
