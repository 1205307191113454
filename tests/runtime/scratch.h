/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - temporary directory of a test program, removed at the end even if a test failed */
#ifndef DDP_TESTS_SCRATCH_H
#define DDP_TESTS_SCRATCH_H

#include "unit.h"

static char scratch_directory[256];
static pid_t scratch_owner;

static inline void scratch_down(void)
{
	if (getpid() == scratch_owner)
		unit_remove(scratch_directory);
}

static inline void scratch_up(void)
{
	unit_directory(scratch_directory, sizeof(scratch_directory));
	scratch_owner = getpid();
}

/* Returns the path of [name] in the directory. The path is valid for the next seven calls. */
static inline const char *scratch(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch_directory, name);
	return path;
}

static inline const char *scratch_file(const char *name, const void *data, size_t size)
{
	const char *path = scratch(name);
	FILE *file = fopen(path, "w");

	ck_assert_msg(file && (size == 0 || fwrite(data, size, 1, file) == 1), "%s", path);
	ck_assert_int_eq(fclose(file), 0);
	return path;
}

/* Reads the file [path] and appends a NUL. The caller frees the result. */
static inline char *scratch_read(const char *path, size_t *size)
{
	FILE *file = fopen(path, "r");
	struct stat info;
	char *data;

	ck_assert_msg(file && fstat(fileno(file), &info) == 0, "%s", path);
	*size = (size_t)info.st_size;
	data = calloc(*size + 1, 1);
	ck_assert(data && fread(data, 1, *size, file) == *size);
	fclose(file);
	return data;
}

/* Creates one directory for all tests of [tcase]. */
static inline void scratch_use(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, scratch_up, scratch_down);
}

#endif /* DDP_TESTS_SCRATCH_H */
