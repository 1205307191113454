/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>

#include "idx.h"

enum { IDX_BYTES = 0x08, IDX_DIMENSIONS = 3 };

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/* A plain file says what it has, and has that. */
static int check_size(const struct source *source, uint64_t header, uint64_t count, uint64_t bytes,
		      struct ddp_error *error)
{
	uint64_t expected = header + count * bytes;

	if (source_packed(source) || source_size(source) == expected)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 ", expected %" PRIu64 ": %" PRIu64
			     " samples of %" PRIu64 " bytes after %" PRIu64,
			     source_path(source), source_size(source), expected, count, bytes,
			     header);
}

int idx_header(struct source *source, int dimensions, uint32_t side, uint32_t *count,
	       struct ddp_error *error)
{
	uint8_t header[4 * (1 + IDX_DIMENSIONS)];
	uint32_t magic = IDX_BYTES << 8 | (uint32_t)dimensions;
	uint64_t size = 4 * (1 + (uint64_t)dimensions), bytes = 1;
	int status = source_read(source, header, size, "the header of an IDX file", error);

	if (status < 0)
		return status;
	if (big_endian(header) != magic)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte 0: magic number %08" PRIx32 ", expected %08" PRIx32
				     ": IDX, bytes in %d dimension%s",
				     source_path(source), big_endian(header), magic, dimensions,
				     dimensions == 1 ? "" : "s");
	for (int i = 1; i < dimensions; i++) {
		uint32_t found = big_endian(header + 4 + 4 * i);

		if (found != side)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: byte %d: images are %" PRIu32
					     " pixels %s, expected %" PRIu32,
					     source_path(source), 4 + 4 * i, found,
					     i == 1 ? "high" : "wide", side);
		bytes *= side;
	}
	*count = big_endian(header + 4);
	if (*count == 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte 4: no samples, expected one at least",
				     source_path(source));
	return check_size(source, size, *count, bytes, error);
}
