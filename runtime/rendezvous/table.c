/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "table.h"
#include "venue.h"

/* What is read at once, so that a rank that asks for its neighbours reads them together. */
enum { AHEAD = 8192 };

/* A piece of the file in memory. */
struct window {
	uint8_t *data;
	size_t room, size;
	uint64_t offset;
};

struct ddp_table {
	int fd;
	char *path;
	uint64_t size; /* of the file */
	struct ddp_record head;
	struct window index, records;
};

/* --- Writing ---------------------------------------------------------------------------- */

int ddp_table_write(const char *path, const struct ddp_record *head, const struct ddp_index *index,
		    const uint8_t *records, size_t size, struct ddp_error *error)
{
	size_t used = DDP_RECORD_HEAD + (size_t)head->size * DDP_INDEX_ENTRY;
	uint8_t *file = malloc(used + size);
	struct ddp_record own = *head;
	struct iovec part = {file, used + size};
	int status;

	if (!file)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %s", path);
	own.kind = DDP_RECORD_OF_ALL;
	own.length = used + size - DDP_RECORD_HEAD;
	own.check = 0;
	ddp_record_encode(&own, file);
	for (uint32_t rank = 0; rank < head->size; rank++) {
		const struct ddp_index entry = {used, index[rank].size};

		ddp_index_encode(&entry, head->attempt, rank,
				 file + DDP_RECORD_HEAD + (size_t)rank * DDP_INDEX_ENTRY);
		memcpy(file + used, records + index[rank].offset, index[rank].size);
		used += index[rank].size;
	}
	status = ddp_file_write(path, &part, 1, 0, DDP_VENUE_SYNC, error);
	free(file);
	return status;
}

/* --- Reading ---------------------------------------------------------------------------- */

/* Returns 0, or DDP_ERR_x. */
static int read_at(struct ddp_table *table, uint8_t *data, size_t size, uint64_t offset,
		   struct ddp_error *error)
{
	while (size > 0) {
		ssize_t got = pread(table->fd, data, size, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", table->path);
		if (got == 0)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: damaged, it ends before its %llu bytes",
					     table->path, (unsigned long long)table->size);
		data += got;
		size -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

/* Have [size] bytes from [offset] on, which lie within the file, in [window]. */
static int fetch(struct ddp_table *table, struct window *window, uint64_t offset, size_t size,
		 const uint8_t **data, struct ddp_error *error)
{
	size_t want = size > AHEAD ? size : AHEAD;
	int status;

	if (offset < window->offset || offset + size > window->offset + window->size) {
		window->size = 0;
		if (want > table->size - offset)
			want = (size_t)(table->size - offset);
		if (want > window->room) {
			uint8_t *more = realloc(window->data, want);

			if (!more)
				return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to read %s",
						     table->path);
			window->data = more;
			window->room = want;
		}
		status = read_at(table, window->data, want, offset, error);
		if (status < 0)
			return status;
		window->offset = offset;
		window->size = want;
	}
	*data = window->data + (offset - window->offset);
	return 0;
}

int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error)
{
	const struct ddp_record *head = &table->head;
	struct ddp_index index;
	const uint8_t *data;
	char name[96];
	int status;

	if (rank < 0 || (uint32_t)rank >= head->size)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: there is no rank %d of %u", rank, head->size);
	status = fetch(table, &table->index, DDP_RECORD_HEAD + (uint64_t)rank * DDP_INDEX_ENTRY,
		       DDP_INDEX_ENTRY, &data, error);
	if (status == 0)
		status = ddp_index_decode(&index, head->attempt, (uint32_t)rank, table->size, data,
					  table->path, error);
	if (status == 0)
		status = fetch(table, &table->records, index.offset, index.size, &data, error);
	if (status < 0)
		return status;
	snprintf(name, sizeof(name), "the record of rank %d in the table of fence %u", rank,
		 head->fence);
	status = ddp_record_decode(record, data, index.size, name, error);
	if (status == 0)
		status = ddp_record_whole(record, data, index.size, name, error);
	if (status < 0)
		return status;
	if (record->kind != DDP_RECORD_OF_RANK || record->attempt != head->attempt ||
	    record->fence != head->fence || record->rank != (uint32_t)rank)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: not what it should be",
				     table->path);
	if (body)
		*body = data + DDP_RECORD_HEAD;
	return 0;
}

/* The head is what we wait for, and the index and our own record are there. */
static int check(struct ddp_table *table, const struct ddp_record *mine, struct ddp_error *error)
{
	struct ddp_record *head = &table->head, own;
	const uint8_t *data;
	int status;

	if (table->size < DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: damaged, it has %llu bytes",
				     table->path, (unsigned long long)table->size);
	status = fetch(table, &table->index, 0, DDP_RECORD_HEAD, &data, error);
	if (status == 0)
		status = ddp_record_decode(head, data, DDP_RECORD_HEAD, table->path, error);
	if (status == 0)
		status = ddp_record_match(head, mine, error);
	if (status < 0)
		return status;
	if (head->kind != DDP_RECORD_OF_ALL || head->attempt != mine->attempt ||
	    head->fence != mine->fence || head->rank != 0 ||
	    table->size - DDP_RECORD_HEAD < (uint64_t)head->size * DDP_INDEX_ENTRY ||
	    head->length != table->size - DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: damaged, or not the table of fence %u", table->path,
				     mine->fence);
	status = ddp_table_get(table, (int)mine->rank, &own, NULL, error);
	if (status == 0 && own.process != mine->process)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "two processes say that they are rank %u: %u on %s and %u on "
				     "%s; do two jobs use %s?",
				     mine->rank, own.pid, own.host, mine->pid, mine->host,
				     table->path);
	return status;
}

int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error)
{
	struct ddp_table *new = calloc(1, sizeof(*new));
	struct stat info;
	int status;

	*table = NULL;
	if (!new || !(new->path = strdup(path))) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to read %s", path);
	}
	new->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (new->fd < 0 || fstat(new->fd, &info) < 0) {
		status = errno == ENOENT || errno == ESTALE
				 ? 1
				 : ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
		goto error;
	}
	new->size = (uint64_t)info.st_size;
	status = check(new, mine, error);
	if (status < 0)
		goto error;
	*table = new;
	return 0;
error:
	ddp_table_close(new);
	return status;
}

void ddp_table_close(struct ddp_table *table)
{
	if (!table)
		return;
	if (table->fd >= 0)
		close(table->fd);
	free(table->index.data);
	free(table->records.data);
	free(table->path);
	free(table);
}
