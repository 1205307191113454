/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file-store.c - the rendezvous method "file": ranks meet in a directory that all nodes can access
 *
 * PROTOCOL (meeting.h lists the files).
 *   1. Rank 0 draws a random number A for this meeting, removes old files from the directory, and
 *      creates A.ranks/, which contains a file "hello", by one rename.
 *   2. The other ranks list the directory until they see a meeting. Each rank writes its record
 *      into A.ranks/: its identity, a random number of its process, and the values that it put.
 *   3. Rank 0 reads the records and publishes them as one file, the table. A rank belongs to the
 *      meeting once it has read a table that contains the random number of its process.
 *   4. Later fences repeat steps 2 and 3 in the same meeting.
 * For each fence, rank 0 reads one record per rank. Every other rank lists a short directory a few
 * times, and reads from the table what it needs. So the total work grows linearly with the number
 * of ranks. Every file is written under a temporary name, closed and renamed, so that no rank reads
 * an incomplete file. There are no locks, and no rank waits by opening a name that does not exist
 * yet. A rank that has waited for a second changes the directories that it lists, because an NFS
 * client may keep a listing that misses a file which was created within the same tick of the
 * server's clock.
 *
 * LIFE OF THE FILES. Every rank always has at least one file in A.ranks/. Rank 0 has hello; another
 * rank has the record of its last fence, which it removes once it has written the record of the
 * next fence. A table is removed when all records of the next fence have arrived: a rank opens the
 * table before it writes its next record, so all ranks have opened it. At the end, each rank
 * removes its file and tries to remove A.ranks/. This succeeds for the last rank only, which
 * removes the remaining files. No rank waits for this. The last table stays readable for ranks that
 * have opened it.
 *
 * FILES OF OTHER MEETINGS. The directory may have been used before: under plain srun, every restart
 * of a step has the same name, and a step under the plugin can run two programs one after the
 * other. identity->own decides only which process creates and removes the directory. When rank 0
 * starts, the directory may contain:
 *   - A killed meeting, in any state. Rank 0 sweeps it. A rank that starts before rank 0 may write
 *     its record into the old meeting. This does no harm: no rank 0 reads it there, and the rank
 *     moves to the new meeting when that appears. A rank skips a meeting that has a table or was
 *     aborted, if the meeting is older than the rank's process. If the meeting is younger, it
 *     failed because this rank was missing; the rank joins it, and so reports the same error at
 *     once. (Ages are differences of file timestamps. An NFS server sets all of them. On Lustre and
 *     GPFS each node sets its own, so the nodes' clocks must differ by less than the time between
 *     two meetings.) A table of the old meeting cannot contain the new process's number, so no rank
 *     accepts it.
 *   - A meeting that ended cleanly, but whose last ranks are slower than rank 0 of the next
 *     program: they may not have opened the last table yet. Rank 0 of the ended meeting has removed
 *     its hello. Such a meeting is neither swept nor joined; its last rank removes it.
 *   - The next meeting, while this rank still waits for the table of the current meeting's last
 *     fence. Therefore a rank that sees a new meeting checks for its table once more before it
 *     joins. So its record cannot get into the next meeting's table.
 *   - A rank of a killed meeting that is still running. At its next fence, it finds that its
 *     meeting was removed, and fails. If it aborts, it writes the abort file under the old number.
 *   - Incomplete directories (A.new) and temporary files, which are swept, and files with unknown
 *     names, which are ignored.
 *
 * FAILURES DURING A RENDEZVOUS.
 *   - Rank 0 dies before it publishes the table: the other ranks time out, name rank 0, and report
 *     whether other ranks are missing. If a new process of rank 0 starts, it begins a new meeting.
 *     Ranks that are not yet in a table join that meeting.
 *   - Another rank dies before its record is written: all ranks name it after the timeout. If it
 *     dies later, this fence succeeds, and the next fence names the rank and its node.
 *   - A rank is restarted: its new process is too late for the meeting, because the table has the
 *     old process's number or lacks the rank. The new process fails or times out.
 *   - Two jobs use one directory: the later rank 0 sweeps the earlier meeting, whose ranks notice
 *     this and fail. Records contain a hash of the job's name, so that no record gets into the
 *     other job's table. If both jobs have the same name, two processes have the same rank. One of
 *     them finds the other's number in the table, and aborts.
 *   - The number of ranks or the release differs: rank 0 rejects the record, other ranks reject the
 *     table.
 *   - The directory is removed, read-only or full, or a file is damaged: the rank that notices this
 *     reports the path and the error. It also aborts, if that can still be written; on a full disk,
 *     an empty abort file is enough.
 * A rank aborts by linking a file with its text to A.abort, so that the text of the first rank
 * stays. Every waiting rank sees A.abort in the listing. After an abort or a kill, the files stay
 * until srun removes the directory, or rank 0 of the next meeting sweeps it.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "meeting.h"
#include "store.h"

enum {
	TRIES = 20, /* maximum number of attempts in begin() */
	/* number of missing ranks that a message lists; it only counts further ones */
	NAMED = 16,
};

/* Times in nanoseconds. */
#define FIRST_PAUSE 200000u
#define ARRIVAL_GAP 10000u /* assumed time between the arrivals of two successive records */
/* longest time that a listing is assumed to take; if it took longer, the process was suspended */
#define LISTING_MOST 1000000000u
#define RECORD_TIME 30000u	  /* estimated time that rank 0 needs to read one record */
#define CHANGE_PERIOD 1000000000u /* minimum of change_period() */

/* Time after which a missing directory is an error, in seconds. */
#define LAG_LIMIT 0.2

struct file_store {
	struct ddp_store base;
	/* this process's record for the next fence; its [meeting] is valid if [joined] is true */
	struct ddp_record mine;
	const char *directory;
	bool own;
	bool joined;	/* this process has a file in the meeting */
	bool accepted;	/* this process is rank 0, or is contained in a table */
	bool delivered; /* this process has written its record for the next fence */
	/* meetings of earlier listings; [ranks] of an entry is set if it was joined or skipped */
	struct ddp_meetings known;
	bool is_missing;	 /* the directory was not found at the last poll */
	struct ddp_watch lag;	 /* time limit for [is_missing] */
	bool *arrived;		 /* for each rank, whether its record for this fence was seen */
	struct iovec *records;	 /* record of each rank for this fence (used by rank 0) */
	uint32_t missing;	 /* number of records that rank 0 has not read yet */
	struct ddp_table *table; /* table of the last fence */
	/* name of rank 0, such as "rank 0 on n1 (process 77)", from its hello */
	char rank0[96];
	/* text for an error: why the last skipped meeting is not this rank's meeting */
	char skipped[160];
};

/* --- Waiting ---------------------------------------------------------------------------- */

/* State of the pauses of a polling loop. Each pause is longer than the pause before. */
struct pause {
	/* length of the next pause, and of the longest pause, in nanoseconds */
	uint64_t next, longest;
};

/*
 * Returns the state of pauses before the first pause, which takes [first] nanoseconds. The length
 * of the longest pause is proportional to [size], to limit the server's load.
 */
static struct pause pause_start(uint64_t first, uint32_t size)
{
	/* All ranks together poll at most 20,000 times per second. */
	uint64_t longest = (size > 1000 ? size : 1000) * UINT64_C(50000);

	return (struct pause){first < longest ? first : longest, longest};
}

/*
 * Sleep for the next pause, and check [watch] meanwhile. Returns the result of ddp_watch_check().
 */
static int pause_for(struct pause *pause, const struct ddp_watch *watch, struct ddp_error *error)
{
	uint64_t left = pause->next;

	pause->next += pause->next / 2;
	if (pause->next > pause->longest)
		pause->next = pause->longest;
	while (left > 0) {
		uint64_t piece = left < DDP_WATCH_PERIOD ? left : DDP_WATCH_PERIOD;
		int status = ddp_watch_check(watch, error);

		if (status < 0)
			return status;
		ddp_watch_sleep(watch, piece);
		left -= piece;
	}
	return 0;
}

/* --- The files of a meeting ------------------------------------------------------------- */

/*
 * Write a file that contains [record], with its kind set to [kind], and [body]. Returns 0, or
 * DDP_ERR_FILE with errno set.
 *
 * The file is not synced. On NFS, close() makes it visible to other nodes and reports a full disk.
 * No record needs to survive a power failure, and an incomplete record fails its checksum. With
 * syncs, 64 ranks on ext4 needed three times as long to meet.
 */
static int write_record(const char *path, struct ddp_record record, enum ddp_record_kind kind,
			const void *body, size_t size, struct ddp_error *error)
{
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)body, size}};

	record.kind = kind;
	ddp_record_seal(&record, body, size);
	ddp_record_encode(&record, head);
	return ddp_file_write(path, parts, 2, 0, false, error);
}

/* Read the hello of [meeting]. Returns 0; 1 if the hello does not exist; or DDP_ERR_x. */
static int read_hello(const struct file_store *store, uint64_t meeting, struct ddp_record *hello)
{
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_meeting_path(path, store->directory, meeting, ".ranks/hello");
	status = ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL);
	if (status == 0)
		status = ddp_record_decode(hello, data, size, path, NULL);
	free(data);
	if (status == 0 && (hello->kind != DDP_RECORD_OF_HELLO || hello->meeting != meeting))
		return DDP_ERR_FORMAT;
	return status;
}

/* Write this process's record. Returns 0; 1 if the meeting was removed; DDP_ERR_FILE. */
static int deliver(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_values *values = &store->base.values;
	const struct ddp_record *mine = &store->mine;
	char path[PATH_MAX];
	int status;

	ddp_meeting_path(path, store->directory, mine->meeting, ".ranks/%u.%u", mine->fence,
			 mine->rank);
	status = write_record(path, *mine, DDP_RECORD_OF_RANK, values->body, values->size, error);
	if (status < 0 && (errno == ENOENT || errno == ESTALE)) {
		ddp_error_clear(error);
		return 1;
	}
	if (status < 0)
		return status;
	store->delivered = true;
	if (mine->fence > 0)
		(void)unlink(ddp_meeting_path(path, store->directory, mine->meeting, ".ranks/%u.%u",
					      mine->fence - 1, mine->rank));
	return 0;
}

/*
 * If the table of this fence exists, open it, and close the previous table. Returns 1 if the table
 * exists, 0 if it does not, or DDP_ERR_x.
 */
static int open_table(struct file_store *store, struct ddp_error *error)
{
	struct ddp_table *table;
	char path[PATH_MAX];
	int status;

	ddp_meeting_path(path, store->directory, store->mine.meeting, ".table.%u",
			 store->mine.fence);
	status = ddp_table_open(&table, path, &store->mine, error);
	if (status != 0)
		return status < 0 ? status : 0;
	ddp_table_close(store->table);
	store->table = table;
	store->accepted = true;
	return 1;
}

/* Try to abort the meeting. If another rank aborted it first, that rank's text stays. */
static void file_abort(struct ddp_store *base, const char *text)
{
	const struct file_store *store = (struct file_store *)base;
	const struct ddp_record *mine = &store->mine;
	char file[PATH_MAX], path[PATH_MAX];
	int fd;

	if (!store->joined)
		return;
	ddp_meeting_path(path, store->directory, mine->meeting, ".abort");
	ddp_meeting_path(file, store->directory, mine->meeting, ".abort.%u", mine->rank);
	if (write_record(file, *mine, DDP_RECORD_OF_ABORT, text, strlen(text), NULL) == 0) {
		if (link(file, path) < 0 && errno != EEXIST && access(path, F_OK) < 0)
			(void)rename(file, path); /* for file systems without hard links */
		(void)unlink(file);
		return;
	}
	/* A full disk may still have space for an empty file. */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* If the file A.abort exists, copy its text to base.abort. */
static void read_abort(struct file_store *store)
{
	char path[PATH_MAX], *text = store->base.abort;
	struct ddp_record record;
	size_t size;
	char *data;
	int status;

	ddp_meeting_path(path, store->directory, store->mine.meeting, ".abort");
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_ERROR_SIZE * 4, &data, &size, NULL);
	if (status > 0)
		return;
	if (status == 0 && ddp_record_read(&record, NULL, data, size, path, NULL) == 0)
		snprintf(text, DDP_ERROR_SIZE, "rank %u on %s: %.900s", record.rank, record.host,
			 data + DDP_RECORD_HEAD);
	else
		snprintf(text, DDP_ERROR_SIZE,
			 "a rank aborted, and could not write the reason to %.900s. Check whether "
			 "the disk is full.",
			 path);
	free(data);
}

/*
 * If [list] shows that the meeting was aborted, returns DDP_ERR_ABORTED with the text of the rank
 * that aborted it. Otherwise returns 0.
 */
static int check_aborted(struct file_store *store, const struct ddp_meetings *list,
			 struct ddp_error *error)
{
	const struct ddp_meeting *entry = ddp_meetings_find(list, store->mine.meeting);
	const char *text = store->base.abort;

	if (!*text && store->joined && entry && entry->aborted)
		read_abort(store);
	return *text ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", text) : 0;
}

static void file_poll_abort(struct ddp_store *base)
{
	struct file_store *store = (struct file_store *)base;
	struct ddp_meetings list;

	if (store->joined && ddp_meetings_list(store->directory, &list, NULL) == 0)
		(void)check_aborted(store, &list, NULL);
}

/* --- Missing ranks and removed files ------------------------------------------------------ */

/*
 * Set store->arrived for each rank that has written a record for this fence. Returns 0, or -1 if
 * the records cannot be listed.
 */
static int list_arrived(struct file_store *store)
{
	struct dirent *entry;
	char path[PATH_MAX];
	uint32_t fence, rank;
	DIR *dir = opendir(ddp_meeting_path(path, store->directory, store->mine.meeting, ".ranks"));

	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "hello") == 0)
			store->arrived[0] = true;
		else if (ddp_meeting_parse_rank(entry->d_name, &fence, &rank) &&
			 fence == store->mine.fence && rank < store->mine.size)
			store->arrived[rank] = true;
	}
	closedir(dir);
	return 0;
}

/*
 * Write a text such as "2 of 8 ranks did not arrive in 30 s: ranks 3, 7" to [text]. It also names
 * these ranks' nodes if the last table contains them. If all ranks have arrived, writes "".
 */
static void format_missing(const struct file_store *store, double limit, char *text,
			   size_t capacity)
{
	uint32_t size = store->mine.size, late = 0, named = 0;
	size_t used;

	for (uint32_t rank = 0; rank < size; rank++)
		late += !store->arrived[rank];
	*text = '\0';
	if (late == 0)
		return;
	used = (size_t)snprintf(text, capacity, "%u of %u ranks did not arrive in %g s: rank%s",
				late, size, limit, late > 1 ? "s" : "");
	for (uint32_t rank = 0; rank < size && named < NAMED && used + 100 <= capacity; rank++) {
		struct ddp_record record;
		const uint8_t *body;

		if (store->arrived[rank])
			continue;
		used += (size_t)snprintf(text + used, capacity - used, "%s %u", named ? "," : "",
					 rank);
		if (store->table &&
		    ddp_table_get(store->table, (int)rank, &record, &body, NULL) == 0)
			used += (size_t)snprintf(text + used, capacity - used, " on %s",
						 record.host);
		named++;
	}
	if (named < late)
		snprintf(text + used, capacity - used, " and %u more", late - named);
}

static int set_timeout_error(struct file_store *store, double limit, struct ddp_error *error)
{
	char late[DDP_ERROR_SIZE / 2] = "";

	if (!store->joined)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank 0 did not arrive in %g s%s (rendezvous %.400s)", limit,
				     store->skipped, store->directory);
	if (store->mine.rank == 0 || list_arrived(store) == 0)
		format_missing(store, limit, late, sizeof(late));
	if (store->mine.rank == 0)
		return ddp_error_set(error, DDP_ERR_TIMEOUT, "%s (rendezvous %.400s)", late,
				     store->directory);
	if (*late)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "%s. %s still waits for the missing ranks, or has ended "
				     "(rendezvous %.400s)",
				     late, store->rank0, store->directory);
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "%s did not publish the table within %g s (rendezvous %.400s)",
			     store->rank0, limit, store->directory);
}

/*
 * Handle the case that the meeting or the rendezvous directory is missing.
 * Returns DDP_ERR_MISMATCH if another rank 0 has replaced the meeting; DDP_ERR_FILE if the
 * directory has been missing for LAG_LIMIT; else 0, since the file system may lag.
 */
static int check_missing(struct file_store *store, struct ddp_error *error)
{
	struct ddp_meetings list;
	struct ddp_record hello;

	if (ddp_meetings_list(store->directory, &list, NULL) != 0)
		list.count = 0;
	for (int i = 0; i < list.count; i++)
		if (list.meetings[i].ranks && list.meetings[i].number != store->mine.meeting &&
		    read_hello(store, list.meetings[i].number, &hello) == 0)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "another process (%u on %s) has started as rank 0 in "
					     "%s and removed the files there. Give each job its "
					     "own directory.",
					     hello.pid, hello.host, store->directory);
	if (!store->is_missing)
		store->lag = ddp_watch_start(LAG_LIMIT, NULL, NULL);
	store->is_missing = true;
	if (ddp_watch_check(&store->lag, NULL) == 0)
		return 0;
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s/%016" PRIx64 ".ranks was removed while the ranks were using it",
			     store->directory, store->mine.meeting);
}

/* --- Rank 0: start a meeting ------------------------------------------------------------- */

/* Create A.ranks with a hello in it. Returns 0, or DDP_ERR_FILE with errno set. */
static int make_ranks(const struct file_store *store, struct ddp_error *error)
{
	uint64_t meeting = store->mine.meeting;
	char fresh[PATH_MAX], path[PATH_MAX];
	int status, number;

	ddp_meeting_path(fresh, store->directory, meeting, ".new");
	if (mkdir(fresh, 0700) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make %s", fresh);
	ddp_meeting_path(path, store->directory, meeting, ".new/hello");
	status = write_record(path, store->mine, DDP_RECORD_OF_HELLO, NULL, 0, error);
	if (status < 0) {
		number = errno;
		(void)rmdir(fresh);
		errno = number;
		return status;
	}
	ddp_meeting_path(path, store->directory, meeting, ".ranks");
	if (rename(fresh, path) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot rename %s to %s", fresh, path);
	return 0;
}

/* Remove old files from the directory, and start a meeting. Returns 0 or DDP_ERR_x. */
static int begin(struct file_store *store, struct ddp_error *error)
{
	int status = DDP_ERR_FILE;

	store->mine.meeting = store->mine.process;
	/*
	 * Retry, because the last rank of an earlier meeting may remove the directory while this
	 * rank uses it.
	 */
	for (int i = 0; i < TRIES && status < 0; i++) {
		status = ddp_meetings_directory(store->directory, store->own, error);
		if (status < 0)
			return status;
		ddp_meetings_sweep(store->directory);
		status = make_ranks(store, error);
		if (status < 0 && errno != ENOENT)
			return status;
	}
	if (status < 0)
		return status;
	ddp_error_clear(error);
	store->joined = store->accepted = true;
	return 0;
}

/* --- Rank 0: read all records, publish the table ------------------------------------------ */

/*
 * Try to read [rank]'s record. Returns 1 if it was read, 0 if it does not exist yet, or DDP_ERR_x.
 */
static int read_record(struct file_store *store, uint32_t rank, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	struct ddp_record record;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_meeting_path(path, store->directory, mine->meeting, ".ranks/%u.%u", mine->fence, rank);
	ddp_watch_block(); /* allow 30 s of awake time for reading this record */
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_RECORD_BODY, &data, &size, error);
	ddp_watch_unblock();
	if (status != 0)
		return status < 0 ? status : 0;
	status = ddp_record_read(&record, mine, data, size, path, error);
	if (status == 0 &&
	    (record.kind != DDP_RECORD_OF_RANK || record.meeting != mine->meeting ||
	     record.fence != mine->fence || record.rank != rank || rank >= mine->size))
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "%s is not the record of rank %u at fence %u of this "
				       "meeting",
				       path, rank, mine->fence);
	if (status < 0) {
		free(data);
		return status;
	}
	store->records[rank] = (struct iovec){data, size};
	store->arrived[rank] = true;
	return 1;
}

/*
 * If the file [name] in A.ranks is a record that is still missing, read it. Returns 1 if a record
 * was read, 0 if not, or DDP_ERR_x.
 */
static int read_named_record(struct file_store *store, const char *name, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	uint32_t fence, rank;

	if (!ddp_meeting_parse_rank(name, &fence, &rank) || rank == 0)
		return 0;
	if (fence == mine->fence && (rank >= mine->size || !store->arrived[rank]))
		return read_record(store, rank, error);
	/*
	 * No running process can have a record of this fence: a process removes a record once it
	 * has written its next record.
	 */
	if (rank < mine->size && (uint64_t)fence + 2 < mine->fence)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u was restarted at fence %u, while the others are at "
				     "fence %u",
				     rank, fence, mine->fence);
	return 0;
}

/*
 * Read all records that have arrived since the last call. Returns how many were read, or DDP_ERR_x.
 */
static int read_new_records(struct file_store *store, struct ddp_error *error)
{
	struct ddp_meetings list;
	struct dirent *entry;
	char path[PATH_MAX];
	int status = ddp_meetings_list(store->directory, &list, error), count = 0;
	DIR *dir;

	if (status == 0)
		status = check_aborted(store, &list, error);
	if (status < 0)
		return status;
	ddp_meeting_path(path, store->directory, store->mine.meeting, ".ranks");
	dir = status == 0 ? opendir(path) : NULL;
	if (!dir && (status > 0 || errno == ENOENT || errno == ESTALE))
		return check_missing(store, error);
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot list %s", path);
	store->is_missing = false;
	while (status >= 0 && (entry = readdir(dir)))
		if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN) {
			status = read_named_record(store, entry->d_name, error);
			count += status > 0;
		}
	closedir(dir);
	return status < 0 ? status : count;
}

/* Write the table of this fence, and open it. Returns 1 or DDP_ERR_x. */
static int publish(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	char path[PATH_MAX];
	struct iovec part;
	int status;

	part.iov_base = ddp_table_encode(mine, store->records, &part.iov_len);
	if (!part.iov_base)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the records of %u ranks",
				     mine->size);
	ddp_meeting_path(path, store->directory, mine->meeting, ".table.%u", mine->fence);
	status = ddp_file_write(path, &part, 1, 0, false, error);
	free(part.iov_base);
	if (status == 0)
		status = open_table(store, error);
	if (status == 0)
		return ddp_error_set(error, DDP_ERR_FILE, "%s was removed at once", path);
	if (status > 0 && mine->fence > 0)
		(void)unlink(ddp_meeting_path(path, store->directory, mine->meeting, ".table.%u",
					      mine->fence - 1));
	return status;
}

static int encode_own_record(struct file_store *store, struct ddp_error *error)
{
	struct iovec *own = &store->records[0];

	own->iov_base = ddp_values_encode(&store->base.values, &store->mine, &own->iov_len);
	if (!own->iov_base)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the record of rank 0");
	store->arrived[0] = true;
	store->missing = store->mine.size - 1;
	return 0;
}

static void free_records(struct file_store *store)
{
	for (uint32_t rank = 0; store->records && rank < store->mine.size; rank++) {
		free(store->records[rank].iov_base);
		store->records[rank] = (struct iovec){NULL, 0};
	}
}

/* On rank 0, poll once for records. Returns 1 if the fence is complete, else 0, or DDP_ERR_x. */
static int gather(struct file_store *store, struct pause *pause, struct ddp_error *error)
{
	uint64_t began = ddp_now(), took;
	int count = read_new_records(store, error);

	if (count < 0)
		return count;
	store->missing -= (uint32_t)count;
	if (store->missing == 0)
		return publish(store, error);
	took = ddp_now() - began;
	/*
	 * A listing of many files is expensive. Therefore wait until more records have probably
	 * arrived, and twice as long as a listing takes.
	 */
	if (count > 0)
		pause->next = FIRST_PAUSE + store->missing * (uint64_t)ARRIVAL_GAP;
	if (took > LISTING_MOST)
		took = LISTING_MOST;
	if (pause->next < 2 * took)
		pause->next = 2 * took;
	return 0;
}

/* --- Other ranks: join a meeting, wait for the table --------------------------------------- */

/*
 * Time of ddp_now() at which this process last completed a fence or closed a store, or 0 if it has
 * done neither. This process must not join the meeting of that store again, neither in a later
 * store nor with a second handle.
 */
static _Atomic uint64_t last_left;

static void set_skipped(struct file_store *store, const char *what, const struct ddp_record *hello)
{
	snprintf(store->skipped, sizeof(store->skipped),
		 ". This rank found only the files of %s rank 0, process %u on %s", what,
		 hello->pid, hello->host);
}

/*
 * Check whether this rank should join [entry], a new meeting.
 * Returns 1 if it should, or 0 if it should not. Returns -1 if this is unknown, because hello is
 * not visible yet, or because rank 0 has left the meeting cleanly.
 */
static int check_meeting(struct file_store *store, const struct ddp_meeting *entry)
{
	struct ddp_record hello;
	int status = read_hello(store, entry->number, &hello);

	if (status > 0)
		return -1;
	if (status < 0) {
		snprintf(store->skipped, sizeof(store->skipped),
			 ". The first file of a meeting is damaged");
		return 0;
	}
	if (hello.job != store->mine.job) {
		set_skipped(store, "another job's", &hello);
		return 0;
	}
	/*
	 * If a meeting has a table or was aborted, and started before this process, it belongs to
	 * an earlier program.
	 */
	if ((entry->table >= 0 || entry->aborted) &&
	    !ddp_meeting_is_younger(store->directory, entry->number, store->mine.process,
				    last_left)) {
		set_skipped(store, "an earlier meeting's", &hello);
		return 0;
	}
	snprintf(store->rank0, sizeof(store->rank0), "rank 0 on %s (process %u)", hello.host,
		 hello.pid);
	return 1;
}

/* Returns whether [entry] is a meeting that this rank has not yet checked. */
static bool is_new(const struct file_store *store, const struct ddp_meeting *entry)
{
	const struct ddp_meeting *known = ddp_meetings_find(&store->known, entry->number);

	return entry->ranks && !(known && known->ranks);
}

/*
 * Write this rank's record into [meeting], and remove this rank's record from the meeting that it
 * had joined before.
 * Returns 0; 1 if [meeting] no longer exists; or DDP_ERR_FILE.
 */
static int join_meeting(struct file_store *store, uint64_t meeting, struct ddp_error *error)
{
	struct ddp_record *mine = &store->mine;
	uint64_t old = mine->meeting;
	bool joined = store->joined;
	char path[PATH_MAX];
	int status;

	/*
	 * Set [meeting] and [joined] before writing the record. Then, if writing fails, the error
	 * can be published to the other ranks of the meeting.
	 */
	mine->meeting = meeting;
	store->joined = true;
	status = deliver(store, error);
	if (status > 0) {
		mine->meeting = old;
		store->joined = joined;
	} else if (status == 0 && joined) {
		(void)unlink(ddp_meeting_path(path, store->directory, old, ".ranks/%u.%u",
					      mine->fence, mine->rank));
		ddp_meetings_leave(store->directory, true, old, 0);
	}
	return status;
}

/*
 * If [list] contains the table of this fence, open the table. Returns 1 if the fence is complete, 0
 * if it is not, or DDP_ERR_x.
 */
static int open_listed_table(struct file_store *store, const struct ddp_meetings *list,
			     struct ddp_error *error)
{
	const struct ddp_meeting *entry = ddp_meetings_find(list, store->mine.meeting);
	int status = check_aborted(store, list, error);

	if (status < 0 || !store->joined || !entry || entry->table < store->mine.fence)
		return status;
	return open_table(store, error);
}

/*
 * Join the new meetings in [list], one after the other, and stay in the last one. Returns the same
 * as open_listed_table().
 *
 * A new meeting may already belong to the next program: since the last poll, rank 0 may have
 * published the current table, left, and started again. Rank 0 does so in this order. So if this
 * rank lists the directory again after it has seen the new meeting, the second listing certainly
 * contains the current table.
 */
static int join_new_meetings(struct file_store *store, struct ddp_meetings *list,
			     struct ddp_error *error)
{
	struct ddp_meetings again;
	bool any = false;
	int status = 0;

	if (!ddp_meetings_find(list, store->mine.meeting))
		store->joined = false;
	for (int i = 0; i < list->count; i++)
		any = any || is_new(store, &list->meetings[i]);
	if (any && store->joined) {
		status = ddp_meetings_list(store->directory, &again, error);
		if (status > 0)
			return 0;
		if (status == 0)
			status = open_listed_table(store, &again, error);
	}
	for (int i = 0; i < list->count && status == 0; i++) {
		struct ddp_meeting *entry = &list->meetings[i];
		int joinable = is_new(store, entry) ? check_meeting(store, entry) : 0;

		if (joinable > 0)
			status = join_meeting(store, entry->number, error);
		/* Check or join this meeting again at the next poll. */
		if (joinable < 0 || status > 0) {
			entry->ranks = false;
			status = 0;
		}
	}
	store->known = *list;
	return status;
}

/* Poll once for the table. Returns 1 if the fence is complete, 0 if it is not, or DDP_ERR_x. */
static int poll_table(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_meeting *entry;
	struct ddp_meetings list;
	int status = ddp_meetings_list(store->directory, &list, error);

	if (status > 0 && !store->own && !store->accepted) {
		/*
		 * The ranks of an earlier meeting have removed the directory, so create it again.
		 * On NFS, this also refreshes the listing that this client keeps.
		 */
		store->joined = false;
		return ddp_meetings_directory(store->directory, false, error);
	}
	if (status > 0)
		return check_missing(store, error);
	if (status == 0)
		status = open_listed_table(store, &list, error);
	if (status != 0)
		return status;
	if (!store->accepted)
		return join_new_meetings(store, &list, error);
	entry = ddp_meetings_find(&list, store->mine.meeting);
	status = !entry || !entry->ranks;
	if (status == 0 && !store->delivered)
		status = deliver(store, error);
	if (status > 0)
		return check_missing(store, error);
	store->is_missing = false;
	return status;
}

/* On other ranks, poll once for a meeting and for its table. Returns the same as gather(). */
static int join(struct file_store *store, struct pause *pause, struct ddp_error *error)
{
	uint32_t size = store->mine.size;
	bool before = store->delivered;
	int status = poll_table(store, error);

	/* Rank 0 needs time to read all records, so start with a longer pause. */
	if (status == 0 && store->delivered && !before)
		*pause = pause_start(FIRST_PAUSE + size * (uint64_t)RECORD_TIME, size);
	return status;
}

/* --- The method ------------------------------------------------------------------------- */

static int file_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (*identity->directory)
		return 1;
	ddp_error_set(
		error, DDP_ERR_UNSUPPORTED, "%s",
		identity->source == DDP_SOURCE_PLUGIN
			? "srun --ddp gave this task no directory. If it printed a line \"no "
			  "rendezvous directory\", remove the cause in that line. Else mount the "
			  "working directory in the container (pyxis --container-mounts, podman "
			  "-v, Apptainer or Charliecloud -b), or give another with --ddp-rdzv=DIR"
			: "no directory is known that all ranks share. Start the program with "
			  "srun --ddp, which makes one");
	return 0;
}

static void leave(const struct file_store *store)
{
	const struct ddp_record *mine = &store->mine;
	uint32_t last = mine->fence > 0 ? mine->fence - 1 : 0;
	char path[PATH_MAX];

	if (mine->rank == 0) {
		ddp_meetings_remove_sockets(store->directory, mine->meeting);
		ddp_meeting_path(path, store->directory, mine->meeting, ".ranks/hello");
	} else {
		ddp_meeting_path(path, store->directory, mine->meeting, ".ranks/%u.%u",
				 store->delivered ? mine->fence : last, mine->rank);
	}
	(void)unlink(path);
	ddp_meetings_leave(store->directory, store->own, mine->meeting, last);
}

static void destroy(struct file_store *store)
{
	if (!store)
		return;
	ddp_table_close(store->table);
	free(store->arrived);
	free(store->records);
	free(store);
}

static void file_close(struct ddp_store *base, bool clean)
{
	struct file_store *store = (struct file_store *)base;

	/*
	 * Close the table before it is removed: if a file is removed while it is open, NFS keeps it
	 * in the directory under another name (.nfs*).
	 */
	ddp_table_close(store->table);
	store->table = NULL;
	if (clean && store->joined)
		leave(store);
	last_left = ddp_now();
	destroy(store);
}

int ddp_store_make_directory(const struct ddp_identity *identity, struct ddp_error *error)
{
	return ddp_meetings_directory(identity->directory, identity->own, error);
}

/* Open the store. Does not wait for other ranks. */
static int file_open(struct ddp_store **base, const struct ddp_identity *identity,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct file_store *store = calloc(1, sizeof(*store));
	size_t size = (size_t)identity->size;
	int status;

	(void)watch;
	if (!store || !(store->arrived = calloc(size, sizeof(*store->arrived))) ||
	    (identity->rank == 0 && !(store->records = calloc(size, sizeof(*store->records))))) {
		destroy(store);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	}
	store->directory = identity->directory;
	store->own = identity->own;
	status = ddp_record_init(&store->mine, identity, error);
	if (status == 0 && identity->rank == 0)
		status = begin(store, error);
	else if (status == 0)
		status = ddp_store_make_directory(identity, error);
	if (status < 0)
		destroy(store);
	else
		*base = &store->base;
	return status;
}

/*
 * Returns the time after which change_listed() changes the directories again, in nanoseconds.
 * Together, the ranks other than 0 change a directory at most 200 times a second. Rank 0 changes
 * the directories once a second, since only rank 0 lists ".ranks".
 */
static uint64_t change_period(const struct file_store *store)
{
	uint64_t period = store->mine.size * UINT64_C(5000000);

	return store->mine.rank > 0 && period > CHANGE_PERIOD ? period : CHANGE_PERIOD;
}

/*
 * If the time [due] has come, change the directories that this rank lists, and set the next time. A
 * rank that waits for rank 0 writes a byte, since rank 0 cannot report that the disk is full.
 * Returns 0, or DDP_ERR_FILE if the disk is full.
 */
static int change_listed(const struct file_store *store, uint64_t *due, struct ddp_error *error)
{
	const struct iovec byte = {(void *)(uintptr_t) "", 1};
	uint64_t now = ddp_now();
	char name[DDP_NAME_SIZE], path[PATH_MAX];
	bool is_full;

	if (now < *due)
		return 0;
	*due = now + change_period(store);
	if (!store->joined) {
		ddp_meeting_path(path, store->directory, store->mine.process, ".now");
		is_full = ddp_file_write(path, &byte, 1, 0, false, error) < 0 &&
			  (errno == ENOSPC || errno == EDQUOT);
		(void)unlink(path);
		if (is_full)
			return DDP_ERR_FILE;
		ddp_error_clear(error);
		return 0;
	}
	snprintf(name, sizeof(name), "%016" PRIx64 ".now", store->mine.process);
	ddp_file_change_directory(store->directory, name);
	if (store->mine.rank == 0)
		ddp_file_change_directory(ddp_meeting_path(path, store->directory,
							   store->mine.meeting, ".ranks"),
					  name);
	return 0;
}

static int file_fence(struct ddp_store *base, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct file_store *store = (struct file_store *)base;
	struct pause pause = pause_start(FIRST_PAUSE, store->mine.size);
	uint64_t due = ddp_now() + change_period(store);
	bool is_rank0 = store->mine.rank == 0;
	int status;

	store->is_missing = false;
	memset(store->arrived, 0, store->mine.size * sizeof(*store->arrived));
	status = is_rank0 ? encode_own_record(store, error) : 0;
	while (status == 0) {
		status = is_rank0 ? gather(store, &pause, error) : join(store, &pause, error);
		if (status == 0)
			status = pause_for(&pause, watch, error);
		if (status == 0)
			status = change_listed(store, &due, error);
	}
	/* Poll once more after the timeout: ranks may have arrived during the last pause. */
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		status = is_rank0 ? gather(store, &pause, error) : join(store, &pause, error);
	if (status == 0)
		status = set_timeout_error(store, watch->limit, error);
	free_records(store);
	if (status < 0)
		return status;
	store->delivered = false;
	store->mine.fence++;
	last_left = ddp_now();
	return 0;
}

static int file_read(struct ddp_store *base, int rank, const uint8_t **body, size_t *length,
		     struct ddp_error *error)
{
	struct ddp_record record;
	int status = ddp_table_get(((struct file_store *)base)->table, rank, &record, body, error);

	if (status == 0)
		*length = record.length;
	return status;
}

const struct ddp_store_method ddp_store_file = {
	.head = {DDP_MODULE_MAGIC, DDP_STORE_VERSION, sizeof(struct ddp_store_method), "store",
		 "file", PACKAGE_VERSION},
	.probe = file_probe,
	.open = file_open,
	.fence = file_fence,
	.read = file_read,
	.abort = file_abort,
	.poll_abort = file_poll_abort,
	.close = file_close,
};
