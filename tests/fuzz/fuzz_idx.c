/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data set's file of any bytes, plain or gzipped: its header is refused with a text, or says
 * what is there.
 */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "data/archive.h"
#include "data/idx.h"
#include "fuzz.h"

static char path[64];
static int fd = -1;

static struct source *open_bytes(const uint8_t *data, size_t size, struct ddp_error *error)
{
	struct source *source;
	int status;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		HOLDS(fd >= 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	HOLDS(ftruncate(fd, 0) == 0);
	HOLDS(pwrite(fd, data, size, 0) == (ssize_t)size);
	status = source_open(&source, path, error);
	HOLDS(status == 0 || (status == error->status && error->text[0] && !source));
	return source;
}

/* A file whose header was taken has what the header says, or it is told that it has not. */
static void check_idx(const uint8_t *data, size_t size, int dimensions)
{
	struct ddp_error error = {0, ""};
	struct source *source = open_bytes(data, size, &error);
	uint64_t each = dimensions == 3 ? 28 * 28 : 1, header = 4 + 4 * (uint64_t)dimensions;
	uint32_t count;

	if (!source)
		return;
	if (idx_header(source, dimensions, 28, &count, &error) < 0) {
		HOLDS(error.status == DDP_ERR_FORMAT && error.text[0]);
		goto done;
	}
	HOLDS(error.text[0] == '\0' && count > 0 && source_offset(source) == header);
	if (!source_packed(source))
		HOLDS(source_size(source) == header + count * each);
	if (source_read(source, NULL, count * each, "samples", &error) == 0)
		HOLDS(source_offset(source) == header + count * each);
	else
		HOLDS(source_packed(source) && error.text[0]);
done:
	source_close(source);
}

/* An archive is walked to its end, or to where something is wrong with it. */
static void check_archive(const uint8_t *data, size_t size)
{
	struct ddp_error error = {0, ""};
	struct source *source = open_bytes(data, size, &error);
	struct archive_member member;
	int status;

	if (!source)
		return;
	while ((status = archive_next(source, &member, &error)) == 1) {
		uint64_t at = source_offset(source);

		HOLDS(strlen(member.name) < ARCHIVE_NAME && !strchr(member.name, '/'));
		HOLDS((member.bytes + member.padding) % 512 == 0 && member.padding < 512);
		status = source_read(source, NULL, member.bytes, member.name, &error);
		if (status < 0)
			break;
		HOLDS(source_offset(source) == at + member.bytes);
		status = source_read(source, NULL, member.padding, member.name, &error);
		if (status < 0)
			break;
	}
	if (status == 0)
		status = source_drain(source, &error);
	HOLDS(status == 0 || (status == error.status && error.text[0]));
	source_close(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_idx(data, size, 3);
	check_idx(data, size, 1);
	check_archive(data, size);
	return 0;
}
