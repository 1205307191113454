/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.c - rank 0's part: begin an attempt, read all records, publish the table
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "meeting.h"

enum { TRIES = 20 };

/* In nanoseconds; ranks that come at once come about so far apart. */
#define FIRST_PAUSE 200000u
#define APART 10000u

/* --- The beginning ---------------------------------------------------------------------- */

/*
 * Make A.ranks with a hello in it.
 * Returns 0, or DDP_ERR_FILE with errno ENOENT where it is worth another try.
 */
static int make_attempt(struct ddp_meeting *meeting, struct ddp_error *error)
{
	char fresh[PATH_MAX], path[PATH_MAX];
	struct ddp_record *mine = &meeting->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec part = {head, sizeof(head)};
	int status;

	ddp_venue_path(fresh, meeting->directory, mine->attempt, ".new");
	if (mkdir(fresh, 0700) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make %s", fresh);
	mine->kind = DDP_RECORD_OF_HELLO;
	ddp_record_seal(mine, NULL, 0);
	ddp_record_encode(mine, head);
	ddp_venue_path(path, meeting->directory, mine->attempt, ".new/hello");
	status = ddp_file_write(path, &part, 1, 0, DDP_VENUE_SYNC, error);
	if (status < 0) {
		int number = errno;

		(void)rmdir(fresh);
		errno = number;
		return status;
	}
	ddp_venue_path(path, meeting->directory, mine->attempt, ".ranks");
	if (rename(fresh, path) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot rename %s to %s", fresh, path);
	return 0;
}

int ddp_meeting_begin(struct ddp_meeting *meeting, struct ddp_error *error)
{
	int status = DDP_ERR_FILE;

	meeting->mine.attempt = meeting->mine.process;
	/* The last rank of an earlier attempt may be removing the directory at this moment. */
	for (int i = 0; i < TRIES && status < 0; i++) {
		status = ddp_venue_make(meeting->directory, meeting->own, error);
		if (status < 0)
			return status;
		ddp_venue_sweep(meeting->directory);
		status = make_attempt(meeting, error);
		if (status < 0 && errno != ENOENT)
			return status;
	}
	if (status < 0)
		return status;
	ddp_error_clear(error);
	meeting->candidates[0] = (struct ddp_candidate){meeting->mine.attempt, true};
	meeting->count = 1;
	meeting->accepted = true;
	return 0;
}

/* --- Gathering -------------------------------------------------------------------------- */

struct gathering {
	struct ddp_meeting *meeting;
	struct ddp_index *index; /* of each rank; size 0: not here yet */
	bool *here;
	uint8_t *records;
	size_t size, room;
	uint32_t count;
};

static int append(struct gathering *gathering, uint32_t rank, const struct iovec *parts, int count,
		  struct ddp_error *error)
{
	struct ddp_index *index = &gathering->index[rank];
	size_t more = 0;

	for (int i = 0; i < count; i++)
		more += parts[i].iov_len;
	if (more > gathering->room - gathering->size) {
		size_t room = 2 * gathering->room + more;
		uint8_t *records = realloc(gathering->records, room);

		if (!records)
			return ddp_error_set(error, DDP_ERR_MEMORY,
					     "no memory to gather the records of %u ranks",
					     gathering->meeting->mine.size);
		gathering->records = records;
		gathering->room = room;
	}
	*index = (struct ddp_index){gathering->size, (uint32_t)more};
	for (int i = 0; i < count; i++) {
		if (parts[i].iov_len > 0)
			memcpy(gathering->records + gathering->size, parts[i].iov_base,
			       parts[i].iov_len);
		gathering->size += parts[i].iov_len;
	}
	gathering->here[rank] = true;
	gathering->count++;
	return 0;
}

static int append_own(struct gathering *gathering, struct ddp_error *error)
{
	const struct ddp_meeting *meeting = gathering->meeting;
	struct ddp_record own = meeting->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {meeting->puts.body, meeting->puts.size}};

	own.kind = DDP_RECORD_OF_RANK;
	ddp_record_seal(&own, meeting->puts.body, meeting->puts.size);
	ddp_record_encode(&own, head);
	return append(gathering, 0, parts, 2, error);
}

/* Whether [data] is [rank]'s record for this fence. Returns 0 or DDP_ERR_x. */
static int check(const struct ddp_record *mine, uint32_t rank, const void *data, size_t size,
		 const char *path, struct ddp_error *error)
{
	struct ddp_record record;
	int status = ddp_record_decode(&record, data, size, path, error);

	if (status == 0)
		status = ddp_record_match(&record, mine, error);
	if (status == 0)
		status = ddp_record_whole(&record, data, size, path, error);
	if (status < 0)
		return status;
	if (record.kind != DDP_RECORD_OF_RANK || record.attempt != mine->attempt ||
	    record.fence != mine->fence || record.rank != rank || rank >= mine->size ||
	    record.length > DDP_RECORD_BODY)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: not the record of rank %u at fence %u of this attempt",
				     path, rank, mine->fence);
	return 0;
}

/* Returns 0, also where the file cannot be had yet, or DDP_ERR_x. */
static int take(struct gathering *gathering, uint32_t rank, struct ddp_error *error)
{
	const struct ddp_meeting *meeting = gathering->meeting;
	const struct ddp_record *mine = &meeting->mine;
	char path[PATH_MAX];
	struct iovec part;
	size_t size;
	char *data;
	int status;

	ddp_venue_path(path, meeting->directory, mine->attempt, ".ranks/%u.%u", mine->fence, rank);
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_RECORD_BODY, &data, &size, error);
	if (status != 0)
		return status < 0 ? status : 0;
	status = check(mine, rank, data, size, path, error);
	part = (struct iovec){data, size};
	if (status == 0)
		status = append(gathering, rank, &part, 1, error);
	free(data);
	return status;
}

/* A name in A.ranks. Returns 0 or DDP_ERR_x. */
static int note(struct gathering *gathering, const char *name, struct ddp_error *error)
{
	const struct ddp_record *mine = &gathering->meeting->mine;
	uint32_t fence, rank;

	if (!ddp_venue_parse_rank(name, &fence, &rank) || rank == 0)
		return 0;
	if (fence == mine->fence && (rank >= mine->size || !gathering->here[rank]))
		return take(gathering, rank, error);
	/* Before a process writes for a fence, it removes its file of the one before the last. */
	if (rank < mine->size && (uint64_t)fence + 2 < mine->fence)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u began anew, with fence %u, while the others are at "
				     "fence %u",
				     rank, fence, mine->fence);
	return 0;
}

/* Read what is there. Returns 1 if it was not the directory, 0, or DDP_ERR_x. */
static int look_at_ranks(struct gathering *gathering, struct ddp_error *error)
{
	const struct ddp_meeting *meeting = gathering->meeting;
	struct dirent *entry;
	char path[PATH_MAX];
	int status = 0;
	DIR *dir;

	ddp_venue_path(path, meeting->directory, meeting->mine.attempt, ".ranks");
	dir = opendir(path);
	if (!dir && (errno == ENOENT || errno == ESTALE))
		return 1;
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot list %s", path);
	while (status == 0 && (entry = readdir(dir)))
		if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN)
			status = note(gathering, entry->d_name, error);
	closedir(dir);
	return status;
}

/* Look once for what is new. Returns 0 or DDP_ERR_x. */
static int look(struct gathering *gathering, struct ddp_error *error)
{
	struct ddp_meeting *meeting = gathering->meeting;
	struct ddp_venue_list list;
	int status = ddp_venue_list(meeting->directory, &list, error);

	if (status == 0)
		status = ddp_meeting_aborted(meeting, &list, error);
	if (status == 0)
		status = look_at_ranks(gathering, error);
	if (status > 0)
		return ddp_meeting_missing(meeting, error);
	meeting->missed = 0;
	return status;
}

static int wait_for_all(struct gathering *gathering, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct ddp_meeting *meeting = gathering->meeting;
	uint32_t size = meeting->mine.size;
	struct ddp_pause pause = ddp_pause_start(FIRST_PAUSE, size);
	int status;

	for (;;) {
		uint64_t began = ddp_now(), took;
		uint32_t before = gathering->count;

		status = look(gathering, error);
		if (status < 0 || gathering->count == size)
			return status;
		took = ddp_now() - began;
		/* A long listing is not for every moment: let some come, and rest twice as long. */
		if (gathering->count > before)
			pause.next = FIRST_PAUSE + (size - gathering->count) * (uint64_t)APART;
		if (pause.next < 2 * took)
			pause.next = 2 * took;
		status = ddp_pause(&pause, watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			return ddp_meeting_late(meeting, gathering->here, watch, error);
		if (status < 0)
			return status;
	}
}

static int publish(struct gathering *gathering, struct ddp_error *error)
{
	struct ddp_meeting *meeting = gathering->meeting;
	const struct ddp_record *mine = &meeting->mine;
	struct ddp_table *table;
	char path[PATH_MAX];
	int status;

	ddp_venue_path(path, meeting->directory, mine->attempt, ".table.%u", mine->fence);
	status = ddp_table_write(path, mine, gathering->index, gathering->records, gathering->size,
				 error);
	if (status == 0)
		status = ddp_table_open(&table, path, mine, error);
	if (status > 0)
		return ddp_error_set(error, DDP_ERR_FILE, "%s was removed at once", path);
	if (status < 0)
		return status;
	ddp_table_close(meeting->table);
	meeting->table = table;
	if (mine->fence > 0)
		(void)unlink(ddp_venue_path(path, meeting->directory, mine->attempt, ".table.%u",
					    mine->fence - 1));
	return 0;
}

int ddp_meeting_gather(struct ddp_meeting *meeting, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	struct gathering gathering = {.meeting = meeting};
	uint32_t size = meeting->mine.size;
	int status = DDP_ERR_MEMORY;

	gathering.index = calloc(size, sizeof(*gathering.index));
	gathering.here = calloc(size, sizeof(*gathering.here));
	if (!gathering.index || !gathering.here) {
		ddp_error_set(error, status, "no memory to gather the records of %u ranks", size);
		goto out;
	}
	status = append_own(&gathering, error);
	if (status == 0)
		status = wait_for_all(&gathering, watch, error);
	if (status == 0)
		status = publish(&gathering, error);
out:
	free(gathering.index);
	free(gathering.here);
	free(gathering.records);
	return status;
}
