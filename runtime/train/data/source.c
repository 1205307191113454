/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#define ZLIB_CONST
#include <zlib.h>
#endif

#include "base/xalloc.h"
#include "source.h"

/* --- Gzipped files ------------------------------------------------------------------------- */

#ifdef HAVE_ZLIB

enum { CHUNK = 1 << 30, SCRATCH = 1 << 16, GZIP_ALONE = 16 };

static int unpack_begin(struct source *source, struct ddp_error *error)
{
	source->gzipped = ddp_xcalloc(1, sizeof(*source->gzipped), source->path);
	source->gzipped->next_in = source->map;
	if (inflateInit2(source->gzipped, GZIP_ALONE + MAX_WBITS) == Z_OK)
		return 0;
	return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to unpack %s", source->path);
}

static void unpack_end(struct source *source)
{
	if (source->gzipped)
		inflateEnd(source->gzipped);
	free(source->gzipped);
}

/* Offset of zlib's next input byte. */
static size_t packed_offset(const struct source *source)
{
	return (size_t)(source->gzipped->next_in - source->map);
}

static int unpack_failed(const struct source *source, int status, struct ddp_error *error)
{
	const z_stream *stream = source->gzipped;
	const char *why = stream->msg ? stream->msg : "invalid data";

	if (status == Z_MEM_ERROR)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to unpack %s", source->path);
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s is damaged at byte %zu of the gzipped file: %s; fetch it again",
			     source->path, packed_offset(source),
			     status == Z_BUF_ERROR ? "it was cut off" : why);
}

/*
 * Continues with the next gzip member. A file may have several members (from pigz or cat), and
 * zeros after the last one. Returns Z_OK, Z_STREAM_END at the end of the file, or Z_DATA_ERROR if
 * other data follows.
 */
static int unpack_next(struct source *source)
{
	const uint8_t *at = source->gzipped->next_in, *end = source->map + source->size;

	if (end - at >= 2 && at[0] == 0x1f && at[1] == 0x8b)
		return inflateReset(source->gzipped);
	while (at < end && *at == 0)
		at++;
	return at == end ? Z_STREAM_END : Z_DATA_ERROR;
}

/* source_read_some() for a gzipped file. Only zeros may follow the last member. */
static int64_t unpack(struct source *source, uint8_t *to, uint64_t bytes, struct ddp_error *error)
{
	z_stream *stream = source->gzipped;
	uint8_t scratch[SCRATCH];
	uint64_t done = 0;
	int status = Z_OK;

	while (done < bytes && status == Z_OK) {
		uint64_t most = to ? CHUNK : SCRATCH, left = source->size - packed_offset(source);

		stream->next_out = to ? to + done : scratch;
		stream->avail_out = (uInt)(bytes - done < most ? bytes - done : most);
		stream->avail_in = (uInt)(left < CHUNK ? left : CHUNK);
		most = stream->avail_out;
		status = inflate(stream, Z_NO_FLUSH);
		if (status != Z_OK && status != Z_STREAM_END)
			return unpack_failed(source, status, error);
		done += most - stream->avail_out;
		if (status == Z_STREAM_END)
			status = unpack_next(source);
	}
	if (status != Z_DATA_ERROR)
		return (int64_t)done;
	return ddp_error_set(
		error, DDP_ERR_FORMAT,
		"%s: continues after byte %zu of the gzipped file, expected its end there",
		source->path, packed_offset(source));
}

#else /* !HAVE_ZLIB */

static int unpack_begin(struct source *source, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "%s is gzipped, and this ddp-train was built without zlib: unpack it, "
			     "or build with zlib (Debian: zlib1g-dev)",
			     source->path);
}

static void unpack_end(struct source *source)
{
	(void)source;
}

static int64_t unpack(struct source *source, uint8_t *to, uint64_t bytes, struct ddp_error *error)
{
	(void)to;
	(void)bytes;
	return unpack_begin(source, error);
}

#endif

/* --- Opening ------------------------------------------------------------------------------- */

static int map_file(struct source *source, struct ddp_error *error)
{
	/* Without O_NONBLOCK, opening a FIFO would wait for a writer. */
	int fd = open(source->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), status = 0;
	struct stat info;

	if (fd < 0 || fstat(fd, &info) < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "%s", source->path);
		goto done;
	}
	if (!S_ISREG(info.st_mode) || info.st_size < 4) {
		status = ddp_error_set(error, DDP_ERR_FORMAT, "%s: %s", source->path,
				       S_ISREG(info.st_mode) ? "ends before byte 4: it has no data"
							     : "not a file");
		goto done;
	}
	source->size = (uint64_t)info.st_size;
	source->map = mmap(NULL, source->size, PROT_READ, MAP_SHARED, fd, 0);
	if (source->map == MAP_FAILED) {
		source->map = NULL;
		status = ddp_error_errno(error, DDP_ERR_FILE, "%s: mapping it", source->path);
		goto done;
	}
	madvise(source->map, source->size, MADV_WILLNEED);
done:
	if (fd >= 0)
		close(fd);
	return status;
}

int source_open(struct source **source, const char *path, struct ddp_error *error)
{
	struct source *new = ddp_xcalloc(1, sizeof(*new), path);
	int status;

	*source = NULL;
	new->path = ddp_xstrdup(path, path);
	status = map_file(new, error);
	if (status == 0 && new->map[0] == 0x1f && new->map[1] == 0x8b)
		status = unpack_begin(new, error);
	if (status == 0)
		*source = new;
	else
		source_close(new);
	return status;
}

void source_close(struct source *source)
{
	if (!source)
		return;
	unpack_end(source);
	if (source->map)
		munmap(source->map, source->size);
	free(source->path);
	free(source);
}

/* --- Reading ------------------------------------------------------------------------------- */

int64_t source_read_some(struct source *source, void *to, uint64_t bytes, struct ddp_error *error)
{
	uint64_t left = source->size - source->at;
	int64_t got;

	if (source->gzipped) {
		got = unpack(source, to, bytes, error);
	} else {
		got = (int64_t)(bytes < left ? bytes : left);
		if (to)
			memcpy(to, source->map + source->at, (size_t)got);
	}
	if (got > 0)
		source->at += (uint64_t)got;
	return got;
}

int source_read(struct source *source, void *to, uint64_t bytes, const char *what,
		struct ddp_error *error)
{
	uint64_t begin = source->at;
	int64_t got = source_read_some(source, to, bytes, error);

	if (got < 0)
		return (int)got;
	if ((uint64_t)got == bytes)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 "%s, expected %" PRIu64
			     ": %s from byte %" PRIu64 " on",
			     source->path, source->at, source->gzipped ? " unpacked" : "",
			     begin + bytes, what, begin);
}

int source_finish(struct source *source, struct ddp_error *error)
{
	uint64_t at = source->at;
	uint8_t byte;
	int64_t got = source_read_some(source, &byte, 1, error);

	if (got <= 0)
		return (int)got;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: continues after byte %" PRIu64 "%s, expected its end there",
			     source->path, at, source->gzipped ? " unpacked" : "");
}

/* --- Archives ------------------------------------------------------------------------------ */

enum { BLOCK = 512, NAME = 100, SIZE_AT = 124, SIZE = 12, SUM_AT = 148, SUM = 8, KIND_AT = 156 };

/*
 * Parses an octal number that may be preceded by blanks and must end at a blank, a zero byte or the
 * field's end. Returns -1 on a syntax error.
 */
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

int source_member(struct source *source, struct source_member *member, struct ddp_error *error)
{
	static const char blank[BLOCK];
	uint64_t at = source->at;
	char block[BLOCK + 1], *slash;
	int64_t sum = 0, bytes;
	int status = source_read(source, block, BLOCK, "a header of the archive", error);

	if (status < 0)
		return status;
	if (memcmp(block, blank, BLOCK) == 0)
		return 0;
	/* The checksum is the sum of the header's bytes, with blanks in place of the checksum. */
	for (int i = 0; i < BLOCK; i++)
		sum += i >= SUM_AT && i < SUM_AT + SUM ? ' ' : (uint8_t)block[i];
	if (octal(block + SUM_AT, SUM) != sum)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %" PRIu64 ": a header with checksum %" PRId64
				     ", expected %" PRId64 ": no tar archive, or damaged",
				     source->path, at + SUM_AT, octal(block + SUM_AT, SUM), sum);
	bytes = octal(block + SIZE_AT, SIZE);
	if (bytes < 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %" PRIu64 ": a member's size is not in octal digits",
				     source->path, at + SIZE_AT);
	member->file = block[KIND_AT] == '0' || block[KIND_AT] == '\0';
	member->bytes = (uint64_t)bytes;
	member->padding = (BLOCK - member->bytes % BLOCK) % BLOCK;
	block[NAME] = '\0';
	slash = strrchr(block, '/');
	strcpy(member->name, slash ? slash + 1 : block);
	return 1;
}
