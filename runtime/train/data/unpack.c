/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "unpack.h"

#ifdef HAVE_ZLIB

#define ZLIB_CONST
#include <zlib.h>

enum { CHUNK = 1 << 30, GZIP_ALONE = 16 };

struct unpack {
	const char *path;
	const uint8_t *data;
	size_t size;
	z_stream stream; /* next_in is where it is in the file */
	bool ended;
};

int unpack_create(struct unpack **unpack, const char *path, const uint8_t *data, size_t size,
		  struct ddp_error *error)
{
	struct unpack *new = calloc(1, sizeof(*new));

	*unpack = NULL;
	if (!new || inflateInit2(&new->stream, GZIP_ALONE + MAX_WBITS) != Z_OK) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to unpack %s", path);
	}
	new->path = path;
	new->data = data;
	new->size = size;
	new->stream.next_in = data;
	*unpack = new;
	return 0;
}

void unpack_destroy(struct unpack *unpack)
{
	if (!unpack)
		return;
	inflateEnd(&unpack->stream);
	free(unpack);
}

static size_t offset_of(const struct unpack *unpack)
{
	return (size_t)(unpack->stream.next_in - unpack->data);
}

/* A sum that differs is told with both; zlib has read that of the file and counted its own. */
static int damaged(const struct unpack *unpack, struct ddp_error *error)
{
	const z_stream *stream = &unpack->stream;
	const char *why = stream->msg ? stream->msg : "it makes no sense";
	size_t offset = offset_of(unpack);

	if (strcmp(why, "incorrect data check") == 0 && offset >= 4) {
		const uint8_t *sum = stream->next_in - 4;

		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %zu of the gzipped file: checksum "
				     "%02x%02x%02x%02x, but what was unpacked has %08lx",
				     unpack->path, offset - 4, sum[3], sum[2], sum[1], sum[0],
				     stream->adler);
	}
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: damaged at byte %zu of the gzipped file: %s", unpack->path,
			     offset, why);
}

/* The stream has ended well: so must the file. */
static int end(struct unpack *unpack, struct ddp_error *error)
{
	unpack->ended = true;
	if (offset_of(unpack) == unpack->size)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_FORMAT,
		"%s: goes on after byte %zu of the gzipped file, expected its end there",
		unpack->path, offset_of(unpack));
}

int64_t unpack_read(struct unpack *unpack, void *to, size_t bytes, struct ddp_error *error)
{
	z_stream *stream = &unpack->stream;
	uInt room = (uInt)(bytes < CHUNK ? bytes : CHUNK);
	int status;

	stream->next_out = to;
	stream->avail_out = room;
	while (!unpack->ended && stream->avail_out == room) {
		size_t left = unpack->size - offset_of(unpack);

		stream->avail_in = (uInt)(left < CHUNK ? left : CHUNK);
		status = inflate(stream, Z_NO_FLUSH);
		if (status == Z_STREAM_END)
			status = end(unpack, error);
		else if (status == Z_OK || (status == Z_BUF_ERROR && left > 0))
			status = 0;
		else if (status == Z_BUF_ERROR)
			status = ddp_error_set(error, DDP_ERR_FORMAT,
					       "%s: ends at byte %zu of the gzipped file, in the "
					       "middle of its data: it was cut off",
					       unpack->path, unpack->size);
		else if (status == Z_MEM_ERROR)
			status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory to unpack %s",
					       unpack->path);
		else
			status = damaged(unpack, error);
		if (status < 0)
			return status;
	}
	return (int64_t)(room - stream->avail_out);
}

#else /* !HAVE_ZLIB */

int unpack_create(struct unpack **unpack, const char *path, const uint8_t *data, size_t size,
		  struct ddp_error *error)
{
	(void)data;
	(void)size;
	*unpack = NULL;
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "%s is gzipped, and this ddp-train was built without zlib: unpack it, "
			     "or build with zlib (Debian: zlib1g-dev)",
			     path);
}

void unpack_destroy(struct unpack *unpack)
{
	(void)unpack;
}

int64_t unpack_read(struct unpack *unpack, void *to, size_t bytes, struct ddp_error *error)
{
	(void)unpack;
	(void)to;
	(void)bytes;
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "built without zlib");
}

#endif
