/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source.h"
#include "unpack.h"

enum { SCRATCH = 1 << 16 };

struct source {
	char *path;
	uint8_t *map;
	size_t size; /* of the file */
	uint64_t at;
	struct unpack *unpack; /* NULL: plain */
};

/* --- Opening ------------------------------------------------------------------------------- */

static int map_file(struct source *source, struct ddp_error *error)
{
	int fd = open(source->path, O_RDONLY | O_CLOEXEC);
	struct stat info;
	int status = 0;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 1;
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
	source->size = (size_t)info.st_size;
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
	struct source *new = calloc(1, sizeof(*new));
	int status;

	*source = NULL;
	if (!new || !(new->path = strdup(path))) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to open %s", path);
	}
	status = map_file(new, error);
	if (status == 0 && new->map[0] == 0x1f && new->map[1] == 0x8b)
		status = unpack_create(&new->unpack, new->path, new->map, new->size, error);
	if (status != 0) {
		source_close(new);
		return status;
	}
	*source = new;
	return 0;
}

void source_close(struct source *source)
{
	if (!source)
		return;
	unpack_destroy(source->unpack);
	if (source->map)
		munmap(source->map, source->size);
	free(source->path);
	free(source);
}

/* --- Facts --------------------------------------------------------------------------------- */

const char *source_path(const struct source *source)
{
	return source->path;
}

bool source_packed(const struct source *source)
{
	return source->unpack != NULL;
}

const uint8_t *source_bytes(const struct source *source)
{
	return source->map;
}

uint64_t source_size(const struct source *source)
{
	return source->size;
}

uint64_t source_offset(const struct source *source)
{
	return source->at;
}

/* --- Reading ------------------------------------------------------------------------------- */

/* Up to [bytes] more, at least one unless there are none. Returns how many, or an error. */
static int64_t take_some(struct source *source, void *to, size_t bytes, struct ddp_error *error)
{
	size_t left = source->size - (size_t)source->at;

	if (source->unpack)
		return unpack_read(source->unpack, to, bytes, error);
	if (bytes > left)
		bytes = left;
	memcpy(to, source->map + source->at, bytes);
	return (int64_t)bytes;
}

int64_t source_take(struct source *source, void *to, uint64_t bytes, struct ddp_error *error)
{
	uint8_t scratch[SCRATCH], *next = to ? to : scratch;
	uint64_t done = 0;
	int64_t got;

	while (done < bytes) {
		uint64_t want = bytes - done;

		if (!to && want > SCRATCH)
			want = SCRATCH;
		got = take_some(source, next, want, error);
		if (got < 0)
			return got;
		if (got == 0)
			break;
		source->at += (uint64_t)got;
		done += (uint64_t)got;
		next += to ? got : 0;
	}
	return (int64_t)done;
}

int source_read(struct source *source, void *to, uint64_t bytes, const char *what,
		struct ddp_error *error)
{
	uint64_t begin = source->at;
	int64_t got = source_take(source, to, bytes, error);

	if (got < 0)
		return (int)got;
	if ((uint64_t)got == bytes)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 "%s, expected %" PRIu64
			     ": %s from byte %" PRIu64 " on",
			     source->path, source->at, source->unpack ? " unpacked" : "",
			     begin + bytes, what, begin);
}

int source_drain(struct source *source, struct ddp_error *error)
{
	int64_t got = source_take(source, NULL, UINT64_MAX, error);

	return got < 0 ? (int)got : 0;
}

int source_finish(struct source *source, struct ddp_error *error)
{
	uint64_t at = source->at;
	uint8_t byte;
	int64_t got = source_take(source, &byte, 1, error);

	if (got <= 0)
		return (int)got;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: goes on after byte %" PRIu64 "%s, expected its end there",
			     source->path, at, source->unpack ? " unpacked" : "");
}
