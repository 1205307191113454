/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "archive.h"

enum { BLOCK = 512, NAME = 100, SIZE_AT = 124, SIZE = 12, SUM_AT = 148, SUM = 8, KIND_AT = 156 };

/* Octal digits, after blanks and before a blank or zero. Returns -1 where it is something else. */
static int64_t octal(const char *field, int width)
{
	int64_t value = 0;
	int i = 0, begin;

	while (i < width && field[i] == ' ')
		i++;
	for (begin = i; i < width && field[i] >= '0' && field[i] <= '7'; i++)
		value = value * 8 + (field[i] - '0');
	if (i == begin || (i < width && field[i] != ' ' && field[i] != '\0'))
		return -1;
	return value;
}

/* Of all bytes, those of the sum itself taken for blanks. */
static int64_t sum_of(const char *block)
{
	int64_t sum = 0;

	for (int i = 0; i < BLOCK; i++)
		sum += i >= SUM_AT && i < SUM_AT + SUM ? ' ' : (uint8_t)block[i];
	return sum;
}

static bool blank(const char *block)
{
	for (int i = 0; i < BLOCK; i++)
		if (block[i])
			return false;
	return true;
}

static void copy_name(struct archive_member *member, const char *field)
{
	char name[NAME + 1];
	const char *slash;

	memcpy(name, field, NAME);
	name[NAME] = '\0';
	slash = strrchr(name, '/');
	strcpy(member->name, slash ? slash + 1 : name);
}

int archive_next(struct source *source, struct archive_member *member, struct ddp_error *error)
{
	uint64_t at = source_offset(source);
	char block[BLOCK];
	int64_t sum, bytes;
	int status = source_read(source, block, sizeof(block), "a header of the archive", error);

	if (status < 0)
		return status;
	if (blank(block))
		return 0;
	sum = octal(block + SUM_AT, SUM);
	if (sum != sum_of(block))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %" PRIu64 ": a header with checksum %" PRId64
				     ", expected %" PRId64 ": no tar archive, or damaged",
				     source_path(source), at + SUM_AT, sum, sum_of(block));
	bytes = octal(block + SIZE_AT, SIZE);
	if (bytes < 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %" PRIu64 ": a member's size is not in octal digits",
				     source_path(source), at + SIZE_AT);
	copy_name(member, block);
	member->file = block[KIND_AT] == '0' || block[KIND_AT] == '\0';
	member->bytes = (uint64_t)bytes;
	member->padding = (BLOCK - member->bytes % BLOCK) % BLOCK;
	return 1;
}
