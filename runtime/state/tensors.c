/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "header.h"
#include "tensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold the bytes of the memory");

struct ddp_tensors {
	struct ddp_header header;
	char *path;
	int fd;
	size_t size; /* of the file */
	size_t data; /* where the data begins */
	char *map;   /* the whole file */
};

enum { CHUNK_SIZE = 1 << 20 };

/* Returns 0, or -1 with errno set; a file that ends early is ENODATA. */
static int read_at(int fd, char *buffer, size_t size, size_t offset)
{
	while (size > 0) {
		ssize_t got = pread(fd, buffer, size, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			errno = got < 0 ? errno : ENODATA;
			return -1;
		}
		buffer += got;
		size -= (size_t)got;
		offset += (size_t)got;
	}
	return 0;
}

/* Open [path] and learn its size. A pipe or a device is no file to wait for. */
static int open_file(struct ddp_tensors *tensors, const char *path, struct ddp_error *error)
{
	struct stat info;

	tensors->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (tensors->fd < 0 || fstat(tensors->fd, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
	if (!S_ISREG(info.st_mode))
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is not a plain file", path);
	if ((uintmax_t)info.st_size > (uintmax_t)PTRDIFF_MAX)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is too large", path);
	tensors->size = (size_t)info.st_size;
	tensors->path = strdup(path);
	if (!tensors->path)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	return 0;
}

/* How long the header is. */
static int read_length(struct ddp_tensors *tensors, uint64_t *length, struct ddp_error *error)
{
	*length = 0;
	if (tensors->size < DDP_HEADER_START)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: %zu bytes are no safetensors file",
				     tensors->path, tensors->size);
	if (read_at(tensors->fd, (char *)length, sizeof(*length), 0) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", tensors->path);
	if (*length > DDP_HEADER_LIMIT)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: a header of %" PRIu64
				     " bytes, at most %u are allowed: no safetensors file?",
				     tensors->path, *length, DDP_HEADER_LIMIT);
	if (*length > tensors->size - DDP_HEADER_START)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is cut short: a header of %" PRIu64
				     " bytes in a file of %zu",
				     tensors->path, *length, tensors->size);
	return 0;
}

static int read_header(struct ddp_tensors *tensors, struct ddp_error *error)
{
	uint64_t length;
	int status = read_length(tensors, &length, error);
	char *text;

	if (status < 0)
		return status;
	tensors->data = DDP_HEADER_START + (size_t)length;
	text = malloc((size_t)length + 1);
	if (!text)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for its header",
				     tensors->path);
	if (read_at(tensors->fd, text, (size_t)length, DDP_HEADER_START) < 0) {
		free(text);
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", tensors->path);
	}
	return ddp_header_read(&tensors->header, text, (size_t)length,
			       tensors->size - tensors->data, tensors->path, error);
}

static int map_data(struct ddp_tensors *tensors, struct ddp_error *error)
{
	struct ddp_header *header = &tensors->header;
	void *map = mmap(NULL, tensors->size, PROT_READ, MAP_PRIVATE, tensors->fd, 0);

	if (map == MAP_FAILED)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot map %s", tensors->path);
	tensors->map = map;
	for (size_t i = 0; i < header->count; i++)
		if (header->tensors[i].type != DDP_TYPE_COUNT)
			header->tensors[i].data = tensors->map + tensors->data + header->begin[i];
	return 0;
}

int ddp_tensors_open(struct ddp_tensors **tensors, const char *path, struct ddp_error *error)
{
	struct ddp_tensors *file = calloc(1, sizeof(*file));
	int status;

	ddp_error_clear(error);
	*tensors = NULL;
	if (!file)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	status = open_file(file, path, error);
	if (status == 0)
		status = read_header(file, error);
	if (status == 0)
		status = map_data(file, error);
	if (status < 0) {
		ddp_tensors_close(file);
		return status;
	}
	*tensors = file;
	return 0;
}

void ddp_tensors_close(struct ddp_tensors *tensors)
{
	if (!tensors)
		return;
	if (tensors->map)
		munmap(tensors->map, tensors->size);
	if (tensors->fd >= 0)
		close(tensors->fd);
	ddp_header_free(&tensors->header);
	free(tensors->path);
	free(tensors);
}

const struct ddp_tensor *ddp_tensors_list(const struct ddp_tensors *tensors, size_t *count)
{
	*count = tensors->header.count;
	return tensors->header.tensors;
}

const struct ddp_tensor *ddp_tensors_find(const struct ddp_tensors *tensors, const char *name)
{
	return ddp_header_find(&tensors->header, name);
}

const char *ddp_tensors_metadata(const struct ddp_tensors *tensors, const char *key)
{
	return ddp_header_metadata(&tensors->header, key);
}

const char *ddp_tensors_type(const struct ddp_tensors *tensors, const struct ddp_tensor *tensor)
{
	return tensors->header.types[tensor - tensors->header.tensors];
}

/* Put zeros where [chunk], at [offset] in the file, holds digits of the checksum at [digits]. */
static void blank(char *chunk, size_t size, size_t offset, size_t digits)
{
	for (size_t i = digits; i < digits + DDP_CHECKSUM_DIGITS; i++)
		if (i >= offset && i - offset < size)
			chunk[i - offset] = '0';
}

int ddp_tensors_verify(const struct ddp_tensors *tensors, struct ddp_error *error)
{
	const char *value = ddp_tensors_metadata(tensors, DDP_TENSORS_CHECKSUM);
	size_t digits = 0, size;
	char *chunk = malloc(CHUNK_SIZE), sum[DDP_CHECKSUM_DIGITS + 1];
	uint32_t crc = 0;
	int status = 0;

	if (!chunk)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", tensors->path);
	/* A string begins in the header's copy where it begins in the file. */
	if (value)
		digits = DDP_HEADER_START + (size_t)(value - tensors->header.text);
	for (size_t offset = 0; offset < tensors->size; offset += size) {
		size = tensors->size - offset < CHUNK_SIZE ? tensors->size - offset : CHUNK_SIZE;
		if (read_at(tensors->fd, chunk, size, offset) < 0) {
			status = ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s at byte %zu",
						 tensors->path, offset);
			goto out;
		}
		if (value)
			blank(chunk, size, offset, digits);
		crc = ddp_crc32c(crc, chunk, size);
	}
	snprintf(sum, sizeof(sum), "%08" PRIx32, crc);
	if (!value)
		status = 1;
	else if (strcmp(value, sum) != 0)
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "%s is damaged: its checksum is %s, it says %.16s",
				       tensors->path, sum, value);
out:
	free(chunk);
	return status;
}
