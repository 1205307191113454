/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the part of all ranks but 0: find the attempt, deliver a record, wait for the table
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "meeting.h"

/* About what rank 0 needs for a record, in nanoseconds: before that nobody need look. */
#define RECORD_TIME 30000u
#define FIRST_PAUSE 200000u

/* What the clock of processes and that of files go on by, together, at most. */
#define CLOCK_STEP 20000000

/*
 * Write this rank's record into [attempt].
 * Returns 0; 1 where that is gone, or being swept; DDP_ERR_FILE.
 */
static int deliver(struct ddp_meeting *meeting, uint64_t attempt, struct ddp_error *error)
{
	struct ddp_record record = meeting->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {meeting->puts.body, meeting->puts.size}};
	char path[PATH_MAX];
	int status;

	record.kind = DDP_RECORD_OF_RANK;
	record.attempt = attempt;
	ddp_record_seal(&record, meeting->puts.body, meeting->puts.size);
	ddp_record_encode(&record, head);
	ddp_venue_path(path, meeting->directory, attempt, ".ranks/%u.%u", record.fence,
		       record.rank);
	status = ddp_file_write(path, parts, 2, 0, DDP_VENUE_SYNC, error);
	if (status < 0 && errno != ENOENT && errno != ESTALE)
		return status;
	if (status < 0) {
		ddp_error_clear(error);
		return 1;
	}
	if (meeting->delivered >= 0 && meeting->delivered < record.fence)
		(void)unlink(ddp_venue_path(path, meeting->directory, attempt, ".ranks/%lld.%u",
					    (long long)meeting->delivered, record.rank));
	meeting->delivered = record.fence;
	return 0;
}

/* --- Which attempt ---------------------------------------------------------------------- */

static bool is_known(const struct ddp_meeting *meeting, uint64_t attempt)
{
	for (int i = 0; i < meeting->count; i++)
		if (meeting->candidates[i].attempt == attempt)
			return true;
	return false;
}

static bool has_new(const struct ddp_meeting *meeting, const struct ddp_venue_list *list)
{
	for (int i = 0; i < list->count; i++)
		if (list->attempts[i].ranks && !is_known(meeting, list->attempts[i].number))
			return true;
	return false;
}

/* Those that are no longer there do not come back. */
static void forget_gone(struct ddp_meeting *meeting, const struct ddp_venue_list *list)
{
	int kept = 0;

	for (int i = 0; i < meeting->count; i++) {
		const struct ddp_venue_attempt *entry =
			ddp_venue_find(list, meeting->candidates[i].attempt);

		if (entry)
			meeting->candidates[kept++] = meeting->candidates[i];
	}
	meeting->count = kept;
}

/* When this process last left a rendezvous; that one is not of its time any more. 0: never. */
static _Atomic uint64_t last_left;

void ddp_meeting_left(void)
{
	last_left = ddp_now();
}

/* When this process began, in nanoseconds since boot; 0 where that is not known. */
static uint64_t process_began(void)
{
	unsigned long long began = 0;
	long ticks = sysconf(_SC_CLK_TCK);
	char line[1024] = "";
	const char *end;
	FILE *file = fopen("/proc/self/stat", "re");

	if (!file || ticks <= 0)
		return 0;
	/* The command's name may hold anything; what follows its last ')' is regular. */
	end = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	if (!end || sscanf(end + 1,
			   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %llu",
			   &began) != 1)
		return 0;
	return began * (1000000000u / (uint64_t)ticks);
}

/* For how long at least this process is what it is: a rank that looks for its world. */
static int64_t age(void)
{
	uint64_t began = process_began(), left = last_left, whole, since;
	struct timespec now;

	if (began == 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	whole = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - began;
	since = left ? ddp_now() - left : whole;
	return (int64_t)(since < whole ? since : whole) - CLOCK_STEP;
}

static int64_t modified(const struct stat *info)
{
	return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/*
 * Whether [attempt] began after this process did, by the clock of the file system: then it is
 * the one that this process was started for, or a later one.
 */
static bool is_of_our_time(const struct ddp_meeting *meeting, uint64_t attempt)
{
	char path[PATH_MAX];
	struct stat hello, now;
	bool known;

	ddp_venue_path(path, meeting->directory, attempt, ".ranks/hello");
	if (stat(path, &hello) < 0)
		return false;
	ddp_venue_path(path, meeting->directory, meeting->mine.process, ".now");
	known = ddp_file_write(path, NULL, 0, 0, false, NULL) == 0 && stat(path, &now) == 0;
	(void)unlink(path);
	/* A file system that keeps whole seconds cannot tell. */
	known = known && (now.st_mtim.tv_nsec != 0 || hello.st_mtim.tv_nsec != 0);
	return known && modified(&now) - modified(&hello) < age();
}

static void pass(struct ddp_meeting *meeting, const char *what, const struct ddp_record *hello)
{
	snprintf(meeting->passed, sizeof(meeting->passed), "%s rank 0, process %u on %s, is there",
		 what, hello->pid, hello->host);
}

/*
 * Whether [entry], seen for the first time, is one to meet in.
 * Returns 1; 0 if not; -1 if that is not to be seen yet, or its rank 0 has left in peace.
 */
static int judge(struct ddp_meeting *meeting, const struct ddp_venue_attempt *entry)
{
	struct ddp_record hello;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_venue_path(path, meeting->directory, entry->number, ".ranks/hello");
	status = ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL);
	if (status > 0)
		return -1;
	if (status == 0)
		status = ddp_record_decode(&hello, data, size, path, NULL);
	free(data);
	if (status < 0 || hello.kind != DDP_RECORD_OF_HELLO || hello.attempt != entry->number) {
		snprintf(meeting->passed, sizeof(meeting->passed), "its hello is damaged");
		return 0;
	}
	if (hello.job != meeting->mine.job) {
		pass(meeting, "another job's", &hello);
		return 0;
	}
	/* What began before us, and is beyond its beginning, is not for us. */
	if ((entry->table >= 0 || entry->aborted) && !is_of_our_time(meeting, entry->number)) {
		pass(meeting, "an earlier attempt's", &hello);
		return 0;
	}
	snprintf(meeting->zero, sizeof(meeting->zero), "rank 0 on %s (process %u)", hello.host,
		 hello.pid);
	return 1;
}

/* Join the attempts of [list] that are new. Returns 0 or DDP_ERR_FILE. */
static int find_new(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
		    struct ddp_error *error)
{
	for (int i = 0; i < list->count && meeting->count < DDP_VENUE_ATTEMPTS; i++) {
		const struct ddp_venue_attempt *entry = &list->attempts[i];
		int good, status = 0;

		if (!entry->ranks || is_known(meeting, entry->number))
			continue;
		good = judge(meeting, entry);
		if (good < 0)
			continue;
		/* Where the record cannot be written, that can be told to those who are there. */
		meeting->candidates[meeting->count++] =
			(struct ddp_candidate){entry->number, good > 0};
		if (good > 0)
			status = deliver(meeting, entry->number, error);
		if (status < 0)
			return status;
		if (status > 0)
			meeting->count--;
	}
	return 0;
}

/* Take this rank's record out of [attempt] again, and what is left if it was the last one. */
static void withdraw(const struct ddp_meeting *meeting, uint64_t attempt)
{
	char path[PATH_MAX];

	(void)unlink(ddp_venue_path(path, meeting->directory, attempt, ".ranks/%u.%u",
				    meeting->mine.fence, meeting->mine.rank));
	ddp_venue_leave(meeting->directory, true, attempt, 0);
}

static void accept(struct ddp_meeting *meeting, uint64_t attempt)
{
	for (int i = 0; i < meeting->count; i++)
		if (meeting->candidates[i].joined && meeting->candidates[i].attempt != attempt)
			withdraw(meeting, meeting->candidates[i].attempt);
	meeting->candidates[0] = (struct ddp_candidate){attempt, true};
	meeting->count = 1;
	meeting->mine.attempt = attempt;
	meeting->accepted = true;
}

/* --- The table -------------------------------------------------------------------------- */

/* Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look_for_table(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
			  struct ddp_error *error)
{
	for (int i = 0; i < meeting->count; i++) {
		const struct ddp_candidate *candidate = &meeting->candidates[i];
		const struct ddp_venue_attempt *entry = ddp_venue_find(list, candidate->attempt);
		struct ddp_record mine = meeting->mine;
		struct ddp_table *table;
		char path[PATH_MAX];
		int status;

		if (!candidate->joined || !entry || entry->table < mine.fence)
			continue;
		mine.attempt = candidate->attempt;
		ddp_venue_path(path, meeting->directory, mine.attempt, ".table.%u", mine.fence);
		status = ddp_table_open(&table, path, &mine, error);
		if (status < 0)
			return status;
		if (status > 0)
			continue;
		ddp_table_close(meeting->table);
		meeting->table = table;
		accept(meeting, mine.attempt);
		return 1;
	}
	return 0;
}

/* The directory is not there. Returns 0 or DDP_ERR_x. */
static int no_directory(struct ddp_meeting *meeting, struct ddp_error *error)
{
	if (meeting->own || meeting->accepted)
		return ddp_meeting_missing(meeting, error);
	/* Who left an earlier attempt removed it; making it is what shows it on NFS, too. */
	meeting->count = 0;
	return ddp_venue_make(meeting->directory, false, error);
}

/* What ends the wait. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look_at(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
		   struct ddp_error *error)
{
	int status = ddp_meeting_aborted(meeting, list, error);

	return status < 0 ? status : look_for_table(meeting, list, error);
}

/*
 * Join what is new in [list]. Returns as look_at().
 *
 * The new attempt may be that of the next world already: rank 0 has published this one's table,
 * left, and begun again, all since we looked for the table. It did so in this order, so a
 * listing that begins after the new attempt was seen has that table for sure.
 */
static int look_for_new(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
			struct ddp_error *error)
{
	struct ddp_venue_list again;
	int status = 0;

	forget_gone(meeting, list);
	if (meeting->count > 0 && has_new(meeting, list)) {
		status = ddp_venue_list(meeting->directory, &again, error);
		if (status == 0)
			status = look_at(meeting, &again, error);
		else if (status > 0)
			return 0;
	}
	return status != 0 ? status : find_new(meeting, list, error);
}

/* Look once. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look(struct ddp_meeting *meeting, struct ddp_error *error)
{
	const struct ddp_venue_attempt *entry;
	struct ddp_venue_list list;
	int status = ddp_venue_list(meeting->directory, &list, error);

	if (status != 0)
		return status < 0 ? status : no_directory(meeting, error);
	status = look_at(meeting, &list, error);
	if (status != 0)
		return status;
	if (!meeting->accepted)
		return look_for_new(meeting, &list, error);
	entry = ddp_venue_find(&list, meeting->mine.attempt);
	status = !entry || !entry->ranks;
	if (status == 0 && meeting->delivered < meeting->mine.fence)
		status = deliver(meeting, meeting->mine.attempt, error);
	if (status > 0)
		return ddp_meeting_missing(meeting, error);
	meeting->missed = 0;
	return status;
}

int ddp_meeting_join(struct ddp_meeting *meeting, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	uint64_t reading = meeting->mine.size * (uint64_t)RECORD_TIME;
	struct ddp_pause pause = ddp_pause_start(FIRST_PAUSE, meeting->mine.size);
	bool waits = false;
	int status;

	for (;;) {
		status = look(meeting, error);
		if (status != 0)
			return status < 0 ? status : 0;
		/* Once the record is there, rank 0 needs its time for all of them. */
		if (!waits && meeting->delivered == meeting->mine.fence) {
			pause = ddp_pause_start(FIRST_PAUSE + reading, meeting->mine.size);
			waits = true;
		}
		status = ddp_pause(&pause, watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			return ddp_meeting_late(meeting, NULL, watch, error);
		if (status < 0)
			return status;
	}
}
