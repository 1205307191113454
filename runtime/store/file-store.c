/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file-store.c - the method "file": ranks meet in a directory that all nodes see
 *
 * THE PROTOCOL. Rank 0 draws a random number A for its attempt to meet, clears away what lies in
 * the directory, and makes A.ranks/ with a file `hello` in it, in one piece (attempt.h has the
 * names). The other ranks list the directory until they see an attempt, and write their record
 * into it: who they are, a random number of their process, and what they put. Rank 0 gathers
 * the records in a table, which it publishes as one file; a rank takes part from the moment that
 * it reads a table with its own process's number in it. Later fences are the same, in A alone.
 * So for each fence rank 0 reads a record of each rank, each rank lists a short directory a few
 * times and reads what it asks for out of the table: the work of all ranks together grows with
 * their number, not faster. Every file is written under another name, closed and renamed, so
 * that nobody sees half of one. Nothing is ever locked, and nothing is waited for by looking for
 * its name.
 *
 * WHO IS THERE. A rank has always one file at least in A.ranks/: rank 0 its hello, another one
 * the record of its last fence, removed when that of the next is written. What a fence needs is
 * gone after the next: its table is removed when all records of the next are there, since who
 * wrote one has opened the table before. At the end each rank removes its file and then tries
 * to remove A.ranks/, which works for the last one alone; that one removes the rest. Nobody
 * waits for it, and the table of the last fence stays readable for those that have it open.
 *
 * WHAT MAY LIE THERE FROM BEFORE. The directory may be one that earlier attempts used, as a plain
 * srun's name for it comes back with each try; and under the plugin as well, where a step runs
 * two programs one after the other. So whether the directory is our own decides who makes and
 * removes it, and nothing else. At the moment that rank 0 begins, there may be:
 *   - A killed attempt, at any stage. Rank 0 sweeps it. A rank that comes before rank 0 does may
 *     take it for the present one and write a record into it; that is harmless, as nobody
 *     gathers there, and when the new attempt shows, it joins that too. Where the old attempt
 *     has a table or was given up already, and is older than this process, it cannot be the one
 *     to come, and is passed by; where it is younger, this rank is the one that was missed, and
 *     is told so at once. (Ages are those of files, so clocks of nodes do not matter.) A table
 *     of the old attempt cannot name the new process, so it is never taken for the answer.
 *   - An attempt that ends well while its last ranks are slower than the next program's rank 0:
 *     they may not have opened the last table yet. Its rank 0 has taken its hello away: such an
 *     attempt is neither swept nor joined; its last rank removes it.
 *   - The next attempt, while a rank still waits for the table of this one's last fence: rank 0
 *     may be that much faster. A rank that sees a new attempt looks for its table once more
 *     before it joins, so that its record never gets into the next world's table.
 *   - A rank of a killed attempt that still lives. Its attempt is swept under its feet, which it
 *     sees at its next fence, and it is refused. If it gives up its attempt, that is written
 *     under the old number.
 *   - Half-made directories (A.new) and temporary files, which are swept; foreign names, which
 *     are left alone and not looked at.
 *
 * WHAT MAY GO WRONG WHILE THEY MEET.
 *   - Rank 0 dies before it publishes: the others run out of time, name it, and tell whether
 *     anybody else is missing. Another process that takes its place begins a new attempt, which
 *     those that were not in a table yet join.
 *   - Another rank dies before its record is written: rank 0, and every other, names it when
 *     time is out. After it: this fence succeeds, the next one names it, with its node.
 *   - A rank dies and its process begins anew: too late for the attempt, as its table (or the
 *     lack of it) does not name the new process. It is refused, or runs out of time.
 *   - Two jobs use one directory: the later rank 0 sweeps the earlier one's attempt, whose ranks
 *     see that and are refused; records say which job they are of, so none is taken into the
 *     other's table. If they even claim to be the same job, one of two processes of the same
 *     rank finds a table that it joined naming the other, and gives the attempt up.
 *   - The world's size differs, or the release: rank 0 refuses the record, the others the table.
 *   - The directory is removed, read-only or full, a file is damaged: the rank that sees it says
 *     the path and what is wrong, and gives the attempt up where that can still be written: an
 *     empty file will do where there is no room for a text.
 * Whoever gives up links its text to A.abort, so that the first one stands, and every waiting
 * rank sees it in the listing. After that, and after kills, the files stay: srun removes them
 * with the directory, or the next attempt's rank 0 does.
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
#include <time.h>
#include <unistd.h>

#include "attempt.h"
#include "base/file.h"

enum {
	TRIES = 20, /* to begin, while others leave */
	NAMED = 16, /* ranks in a message; of the others it says how many */
};

/* Nanoseconds. */
#define FIRST_PAUSE 200000u
#define APART 10000u	    /* between ranks that come at once, about */
#define RECORD_TIME 30000u  /* about what rank 0 needs for a record: before that nobody need look */
#define CLOCK_STEP 20000000 /* by which the clocks of processes and of files go on, at most */
#define PATIENCE \
	200000000u /* from an attempt's end to the next one's hello, or for a lagging server */

/* An attempt that this rank knows of. */
struct candidate {
	uint64_t attempt;
	bool joined; /* this rank's record lies there; else it is not one to meet in */
};

struct file_store {
	struct ddp_store base;
	struct ddp_record mine; /* fence: the next one; attempt: once [accepted] */
	const char *directory;
	bool own;
	bool accepted; /* there is one candidate left, and a table named this process, or we made it */
	bool broken; /* a fence failed */
	struct candidate candidates[DDP_ATTEMPTS];
	int count;
	int64_t delivered; /* the last fence for which this rank's record was written, -1: none */
	uint64_t missed;   /* since when the directory was not there, 0: it is */
	struct ddp_values puts;
	struct ddp_table *table; /* of the last fence */
	char zero[96];		 /* "rank 0 on n1 (process 77)", once its hello was read */
	char passed[160];	 /* why the last candidate that is not one to meet in is none */
	char abort[DDP_ERROR_SIZE];
};

/* A wait that looks at things again and again, less and less often. */
struct pause {
	uint64_t next, longest; /* nanoseconds */
};

static struct file_store *of(struct ddp_store *base)
{
	return (struct file_store *)base;
}

/* --- Waiting ---------------------------------------------------------------------------- */

static struct pause pause_start(uint64_t first, uint32_t size)
{
	/* All ranks together look about 20,000 times a second at most. */
	uint64_t longest = (size > 1000 ? size : 1000) * UINT64_C(50000);

	return (struct pause){first < longest ? first : longest, longest};
}

static int pause_for(struct pause *pause, const struct ddp_watch *watch, struct ddp_error *error)
{
	uint64_t left = pause->next;

	pause->next += pause->next / 2;
	if (pause->next > pause->longest)
		pause->next = pause->longest;
	for (;;) {
		uint64_t piece = left < DDP_WATCH_PERIOD ? left : DDP_WATCH_PERIOD;
		int status = ddp_watch_check(watch, error);

		if (status < 0 || left == 0)
			return status;
		ddp_watch_sleep(watch, piece);
		left -= piece;
		if (left == 0)
			return 0;
	}
}

/* --- Giving up -------------------------------------------------------------------------- */

/* Make [path] a name of [file] unless it is there. The first one to do so stands. */
static void link_first(const char *file, const char *path)
{
	if (link(file, path) < 0 && errno != EEXIST && access(path, F_OK) < 0)
		(void)rename(file, path); /* a file system without links */
}

static void give_up(const struct file_store *store, uint64_t attempt, const char *text)
{
	char file[PATH_MAX], path[PATH_MAX];
	struct ddp_record record = store->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)text, strlen(text)}};
	int fd;

	record.kind = DDP_RECORD_OF_ABORT;
	record.attempt = attempt;
	ddp_record_seal(&record, text, strlen(text));
	ddp_record_encode(&record, head);
	ddp_attempt_path(path, store->directory, attempt, ".abort");
	ddp_attempt_path(file, store->directory, attempt, ".abort.%u", record.rank);
	if (ddp_file_write(file, parts, 2, 0, DDP_ATTEMPT_SYNC, NULL) == 0) {
		link_first(file, path);
		(void)unlink(file);
		return;
	}
	/* A full disk may still have room for a name. */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

static void file_abort(struct ddp_store *base, const char *text)
{
	struct file_store *store = of(base);

	for (int i = 0; i < store->count; i++)
		if (store->candidates[i].joined)
			give_up(store, store->candidates[i].attempt, text);
}

/* Returns 1 with the text in store->abort, 0 where the file is not there after all. */
static int read_abort(struct file_store *store, uint64_t attempt)
{
	struct ddp_record record;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, attempt, ".abort");
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_ERROR_SIZE * 4, &data, &size, NULL);
	if (status > 0)
		return 0;
	if (status == 0 && ddp_record_decode(&record, data, size, path, NULL) == 0 &&
	    ddp_record_whole(&record, data, size, path, NULL) == 0)
		snprintf(store->abort, sizeof(store->abort), "rank %u on %s: %.900s", record.rank,
			 record.host, data + DDP_RECORD_HEAD);
	else
		snprintf(store->abort, sizeof(store->abort),
			 "a rank gave up and could not write why in %.900s; is the disk full?",
			 path);
	free(data);
	return 1;
}

static int check_aborted(struct file_store *store, const struct ddp_attempts *list,
			 struct ddp_error *error)
{
	for (int i = 0; i < store->count && !*store->abort; i++) {
		const struct candidate *candidate = &store->candidates[i];
		const struct ddp_attempt *entry = ddp_attempts_find(list, candidate->attempt);

		if (candidate->joined && entry && entry->aborted)
			(void)read_abort(store, candidate->attempt);
	}
	return *store->abort ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", store->abort) : 0;
}

static int file_aborted(struct ddp_store *base, char *text, size_t size)
{
	struct file_store *store = of(base);
	struct ddp_attempts list;

	if (!*store->abort && store->count > 0 &&
	    ddp_attempts_list(store->directory, &list, NULL) == 0)
		(void)check_aborted(store, &list, NULL);
	if (!*store->abort)
		return 0;
	if (size > 0)
		snprintf(text, size, "%s", store->abort);
	return 1;
}

/* --- Who is late ------------------------------------------------------------------------ */

static int list_present(const struct file_store *store, uint64_t attempt, uint32_t fence,
			bool *here)
{
	struct dirent *entry;
	char path[PATH_MAX];
	uint32_t at, rank;
	DIR *dir;

	dir = opendir(ddp_attempt_path(path, store->directory, attempt, ".ranks"));
	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "hello") == 0)
			here[0] = true;
		else if (ddp_attempt_parse_rank(entry->d_name, &at, &rank) && at == fence &&
			 rank < store->mine.size)
			here[rank] = true;
	}
	closedir(dir);
	return 0;
}

/* " on n2" where the last fence told it, else "". */
static void add_node(const struct file_store *store, uint32_t rank, char *text, size_t size)
{
	struct ddp_record record;

	*text = '\0';
	if (store->table && ddp_table_get(store->table, (int)rank, &record, NULL, NULL) == 0)
		snprintf(text, size, " on %s", record.host);
}

/* "2 of 8 ranks did not arrive in 30 s: ranks 3, 7"; "" where all are [here]. */
static void name_late(const struct file_store *store, const bool *here, double limit, char *text,
		      size_t size)
{
	uint32_t late = 0, named = 0;
	size_t used;

	for (uint32_t rank = 0; rank < store->mine.size; rank++)
		late += !here[rank];
	*text = '\0';
	if (late == 0)
		return;
	used = (size_t)snprintf(text, size, "%u of %u ranks did not arrive in %g s: rank%s", late,
				store->mine.size, limit, late > 1 ? "s" : "");
	for (uint32_t rank = 0; rank < store->mine.size && named < NAMED; rank++) {
		char node[80];

		if (here[rank])
			continue;
		add_node(store, rank, node, sizeof(node));
		if (used + 100 > size)
			break;
		used += (size_t)snprintf(text + used, size - used, "%s %u%s", named ? "," : "",
					 rank, node);
		named++;
	}
	if (named < late)
		snprintf(text + used, size - used, " and %u more", late - named);
}

/* The one to look at: where a fence succeeded, else the last one that this rank joined. */
static const struct candidate *present_attempt(const struct file_store *store)
{
	for (int i = store->count - 1; i >= 0; i--)
		if (store->candidates[i].joined)
			return &store->candidates[i];
	return NULL;
}

static int say_late(struct file_store *store, const bool *here, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	const struct candidate *attempt = present_attempt(store);
	const struct ddp_record *mine = &store->mine;
	char late[DDP_ERROR_SIZE / 2];
	bool *seen;

	if (!attempt)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank 0 did not arrive in %g s%s%s (rendezvous %.400s)",
				     watch->limit, *store->passed ? "; " : "", store->passed,
				     store->directory);
	if (here) {
		name_late(store, here, watch->limit, late, sizeof(late));
		return ddp_error_set(error, DDP_ERR_TIMEOUT, "%s (rendezvous %.400s)", late,
				     store->directory);
	}
	seen = calloc(mine->size, sizeof(*seen));
	*late = '\0';
	if (seen && list_present(store, attempt->attempt, mine->fence, seen) == 0)
		name_late(store, seen, watch->limit, late, sizeof(late));
	free(seen);
	if (*late)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "%s; %s waits for them or is gone (rendezvous %.400s)", late,
				     store->zero, store->directory);
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "%s did not publish what the ranks put in %g s (rendezvous %.400s)",
			     store->zero, watch->limit, store->directory);
}

/* --- What is gone ----------------------------------------------------------------------- */

/* Whose attempt [entry] is, if it is not ours and alive. */
static bool read_other(const struct file_store *store, const struct ddp_attempt *entry,
		       struct ddp_record *hello)
{
	char path[PATH_MAX];
	bool found = false;
	size_t size;
	char *data;

	if (entry->number == store->mine.attempt || !entry->ranks)
		return false;
	ddp_attempt_path(path, store->directory, entry->number, ".ranks/hello");
	if (ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL) == 0)
		found = ddp_record_decode(hello, data, size, path, NULL) == 0;
	free(data);
	return found;
}

static int check_missing(struct file_store *store, struct ddp_error *error)
{
	struct ddp_attempts list;
	struct ddp_record hello;

	if (ddp_attempts_list(store->directory, &list, NULL) != 0)
		list.count = 0;
	for (int i = 0; i < list.count; i++)
		if (read_other(store, &list.attempts[i], &hello))
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "another process (%u on %s) has begun as rank 0 in "
					     "%s and removed what was there; do two jobs use it?",
					     hello.pid, hello.host, store->directory);
	if (store->missed == 0)
		store->missed = ddp_now();
	if (ddp_now() - store->missed < PATIENCE)
		return 0;
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s/%016" PRIx64 ".ranks was removed while the ranks were using it",
			     store->directory, store->mine.attempt);
}

/* --- Rank 0: begin an attempt ---------------------------------------------------------------------- */

/*
 * Make A.ranks with a hello in it.
 * Returns 0, or DDP_ERR_FILE with errno ENOENT where it is worth another try.
 */
static int make_attempt(struct file_store *store, struct ddp_error *error)
{
	char fresh[PATH_MAX], path[PATH_MAX];
	struct ddp_record *mine = &store->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec part = {head, sizeof(head)};
	int status;

	ddp_attempt_path(fresh, store->directory, mine->attempt, ".new");
	if (mkdir(fresh, 0700) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make %s", fresh);
	mine->kind = DDP_RECORD_OF_HELLO;
	ddp_record_seal(mine, NULL, 0);
	ddp_record_encode(mine, head);
	ddp_attempt_path(path, store->directory, mine->attempt, ".new/hello");
	status = ddp_file_write(path, &part, 1, 0, DDP_ATTEMPT_SYNC, error);
	if (status < 0) {
		int number = errno;

		(void)rmdir(fresh);
		errno = number;
		return status;
	}
	ddp_attempt_path(path, store->directory, mine->attempt, ".ranks");
	if (rename(fresh, path) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot rename %s to %s", fresh, path);
	return 0;
}

static int begin(struct file_store *store, struct ddp_error *error)
{
	int status = DDP_ERR_FILE;

	store->mine.attempt = store->mine.process;
	/* The last rank of an earlier attempt may be removing the directory at this moment. */
	for (int i = 0; i < TRIES && status < 0; i++) {
		status = ddp_attempts_directory(store->directory, store->own, error);
		if (status < 0)
			return status;
		ddp_attempts_sweep(store->directory);
		status = make_attempt(store, error);
		if (status < 0 && errno != ENOENT)
			return status;
	}
	if (status < 0)
		return status;
	ddp_error_clear(error);
	store->candidates[0] = (struct candidate){store->mine.attempt, true};
	store->count = 1;
	store->accepted = true;
	return 0;
}

/* --- Rank 0: read all records, publish the table -------------------------------------------------------------------------- */

struct gathering {
	struct file_store *store;
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
					     gathering->store->mine.size);
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
	const struct file_store *store = gathering->store;
	struct ddp_record own = store->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {store->puts.body, store->puts.size}};

	own.kind = DDP_RECORD_OF_RANK;
	ddp_record_seal(&own, store->puts.body, store->puts.size);
	ddp_record_encode(&own, head);
	return append(gathering, 0, parts, 2, error);
}

/* Whether [data] is [rank]'s record for this fence. Returns 0 or DDP_ERR_x. */
static int check_record(const struct ddp_record *mine, uint32_t rank, const void *data, size_t size,
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
	const struct file_store *store = gathering->store;
	const struct ddp_record *mine = &store->mine;
	char path[PATH_MAX];
	struct iovec part;
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/%u.%u", mine->fence, rank);
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_RECORD_BODY, &data, &size, error);
	if (status != 0)
		return status < 0 ? status : 0;
	status = check_record(mine, rank, data, size, path, error);
	part = (struct iovec){data, size};
	if (status == 0)
		status = append(gathering, rank, &part, 1, error);
	free(data);
	return status;
}

/* A name in A.ranks. Returns 0 or DDP_ERR_x. */
static int note_name(struct gathering *gathering, const char *name, struct ddp_error *error)
{
	const struct ddp_record *mine = &gathering->store->mine;
	uint32_t fence, rank;

	if (!ddp_attempt_parse_rank(name, &fence, &rank) || rank == 0)
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
	const struct file_store *store = gathering->store;
	struct dirent *entry;
	char path[PATH_MAX];
	int status = 0;
	DIR *dir;

	ddp_attempt_path(path, store->directory, store->mine.attempt, ".ranks");
	dir = opendir(path);
	if (!dir && (errno == ENOENT || errno == ESTALE))
		return 1;
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot list %s", path);
	while (status == 0 && (entry = readdir(dir)))
		if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN)
			status = note_name(gathering, entry->d_name, error);
	closedir(dir);
	return status;
}

/* Look once for what is new. Returns 0 or DDP_ERR_x. */
static int look_at_all(struct gathering *gathering, struct ddp_error *error)
{
	struct file_store *store = gathering->store;
	struct ddp_attempts list;
	int status = ddp_attempts_list(store->directory, &list, error);

	if (status == 0)
		status = check_aborted(store, &list, error);
	if (status == 0)
		status = look_at_ranks(gathering, error);
	if (status > 0)
		return check_missing(store, error);
	store->missed = 0;
	return status;
}

static int wait_for_all(struct gathering *gathering, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct file_store *store = gathering->store;
	uint32_t size = store->mine.size;
	struct pause pause = pause_start(FIRST_PAUSE, size);
	int status;

	for (;;) {
		uint64_t began = ddp_now(), took;
		uint32_t before = gathering->count;

		status = look_at_all(gathering, error);
		if (status < 0 || gathering->count == size)
			return status;
		took = ddp_now() - began;
		/* A long listing is not for every moment: let some come, and rest twice as long. */
		if (gathering->count > before)
			pause.next = FIRST_PAUSE + (size - gathering->count) * (uint64_t)APART;
		if (pause.next < 2 * took)
			pause.next = 2 * took;
		status = pause_for(&pause, watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			return say_late(store, gathering->here, watch, error);
		if (status < 0)
			return status;
	}
}

static int publish(struct gathering *gathering, struct ddp_error *error)
{
	struct file_store *store = gathering->store;
	const struct ddp_record *mine = &store->mine;
	struct ddp_table *table;
	char path[PATH_MAX];
	int status;

	ddp_attempt_path(path, store->directory, mine->attempt, ".table.%u", mine->fence);
	status = ddp_table_write(path, mine, gathering->index, gathering->records, gathering->size,
				 error);
	if (status == 0)
		status = ddp_table_open(&table, path, mine, error);
	if (status > 0)
		return ddp_error_set(error, DDP_ERR_FILE, "%s was removed at once", path);
	if (status < 0)
		return status;
	ddp_table_close(store->table);
	store->table = table;
	if (mine->fence > 0)
		(void)unlink(ddp_attempt_path(path, store->directory, mine->attempt, ".table.%u",
					      mine->fence - 1));
	return 0;
}

static int gather(struct file_store *store, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct gathering gathering = {.store = store};
	uint32_t size = store->mine.size;
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

/* --- The others: deliver a record ------------------------------------------------------- */

/*
 * Write this rank's record into [attempt].
 * Returns 0; 1 where that is gone, or being swept; DDP_ERR_FILE.
 */
static int deliver(struct file_store *store, uint64_t attempt, struct ddp_error *error)
{
	struct ddp_record record = store->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {store->puts.body, store->puts.size}};
	char path[PATH_MAX];
	int status;

	record.kind = DDP_RECORD_OF_RANK;
	record.attempt = attempt;
	ddp_record_seal(&record, store->puts.body, store->puts.size);
	ddp_record_encode(&record, head);
	ddp_attempt_path(path, store->directory, attempt, ".ranks/%u.%u", record.fence,
			 record.rank);
	status = ddp_file_write(path, parts, 2, 0, DDP_ATTEMPT_SYNC, error);
	if (status < 0 && errno != ENOENT && errno != ESTALE)
		return status;
	if (status < 0) {
		ddp_error_clear(error);
		return 1;
	}
	if (store->delivered >= 0 && store->delivered < record.fence)
		(void)unlink(ddp_attempt_path(path, store->directory, attempt, ".ranks/%lld.%u",
					      (long long)store->delivered, record.rank));
	store->delivered = record.fence;
	return 0;
}

/* --- The others: which attempt ---------------------------------------------------------------------- */

static bool is_known(const struct file_store *store, uint64_t attempt)
{
	for (int i = 0; i < store->count; i++)
		if (store->candidates[i].attempt == attempt)
			return true;
	return false;
}

static bool has_new(const struct file_store *store, const struct ddp_attempts *list)
{
	for (int i = 0; i < list->count; i++)
		if (list->attempts[i].ranks && !is_known(store, list->attempts[i].number))
			return true;
	return false;
}

/* Those that are no longer there do not come back. */
static void forget_gone(struct file_store *store, const struct ddp_attempts *list)
{
	int kept = 0;

	for (int i = 0; i < store->count; i++) {
		const struct ddp_attempt *entry =
			ddp_attempts_find(list, store->candidates[i].attempt);

		if (entry)
			store->candidates[kept++] = store->candidates[i];
	}
	store->count = kept;
}

/* When this process last left a rendezvous; that one is not of its time any more. 0: never. */
static _Atomic uint64_t last_left;

static void note_left(void)
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
static bool is_of_our_time(const struct file_store *store, uint64_t attempt)
{
	char path[PATH_MAX];
	struct stat hello, now;
	bool known;

	ddp_attempt_path(path, store->directory, attempt, ".ranks/hello");
	if (stat(path, &hello) < 0)
		return false;
	ddp_attempt_path(path, store->directory, store->mine.process, ".now");
	known = ddp_file_write(path, NULL, 0, 0, false, NULL) == 0 && stat(path, &now) == 0;
	(void)unlink(path);
	/* A file system that keeps whole seconds cannot tell. */
	known = known && (now.st_mtim.tv_nsec != 0 || hello.st_mtim.tv_nsec != 0);
	return known && modified(&now) - modified(&hello) < age();
}

static void pass(struct file_store *store, const char *what, const struct ddp_record *hello)
{
	snprintf(store->passed, sizeof(store->passed), "%s rank 0, process %u on %s, is there",
		 what, hello->pid, hello->host);
}

/*
 * Whether [entry], seen for the first time, is one to meet in.
 * Returns 1; 0 if not; -1 if that is not to be seen yet, or its rank 0 has left in peace.
 */
static int judge(struct file_store *store, const struct ddp_attempt *entry)
{
	struct ddp_record hello;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, entry->number, ".ranks/hello");
	status = ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL);
	if (status > 0)
		return -1;
	if (status == 0)
		status = ddp_record_decode(&hello, data, size, path, NULL);
	free(data);
	if (status < 0 || hello.kind != DDP_RECORD_OF_HELLO || hello.attempt != entry->number) {
		snprintf(store->passed, sizeof(store->passed), "its hello is damaged");
		return 0;
	}
	if (hello.job != store->mine.job) {
		pass(store, "another job's", &hello);
		return 0;
	}
	/* What began before us, and is beyond its beginning, is not for us. */
	if ((entry->table >= 0 || entry->aborted) && !is_of_our_time(store, entry->number)) {
		pass(store, "an earlier attempt's", &hello);
		return 0;
	}
	snprintf(store->zero, sizeof(store->zero), "rank 0 on %s (process %u)", hello.host,
		 hello.pid);
	return 1;
}

/* Join the attempts of [list] that are new. Returns 0 or DDP_ERR_FILE. */
static int find_new(struct file_store *store, const struct ddp_attempts *list,
		    struct ddp_error *error)
{
	for (int i = 0; i < list->count && store->count < DDP_ATTEMPTS; i++) {
		const struct ddp_attempt *entry = &list->attempts[i];
		int good, status = 0;

		if (!entry->ranks || is_known(store, entry->number))
			continue;
		good = judge(store, entry);
		if (good < 0)
			continue;
		/* Where the record cannot be written, that can be told to those who are there. */
		store->candidates[store->count++] = (struct candidate){entry->number, good > 0};
		if (good > 0)
			status = deliver(store, entry->number, error);
		if (status < 0)
			return status;
		if (status > 0)
			store->count--;
	}
	return 0;
}

/* Take this rank's record out of [attempt] again, and what is left if it was the last one. */
static void withdraw(const struct file_store *store, uint64_t attempt)
{
	char path[PATH_MAX];

	(void)unlink(ddp_attempt_path(path, store->directory, attempt, ".ranks/%u.%u",
				      store->mine.fence, store->mine.rank));
	ddp_attempts_leave(store->directory, true, attempt, 0);
}

static void accept(struct file_store *store, uint64_t attempt)
{
	for (int i = 0; i < store->count; i++)
		if (store->candidates[i].joined && store->candidates[i].attempt != attempt)
			withdraw(store, store->candidates[i].attempt);
	store->candidates[0] = (struct candidate){attempt, true};
	store->count = 1;
	store->mine.attempt = attempt;
	store->accepted = true;
}

/* --- The others: wait for the table -------------------------------------------------------------------------- */

/* Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look_for_table(struct file_store *store, const struct ddp_attempts *list,
			  struct ddp_error *error)
{
	for (int i = 0; i < store->count; i++) {
		const struct candidate *candidate = &store->candidates[i];
		const struct ddp_attempt *entry = ddp_attempts_find(list, candidate->attempt);
		struct ddp_record mine = store->mine;
		struct ddp_table *table;
		char path[PATH_MAX];
		int status;

		if (!candidate->joined || !entry || entry->table < mine.fence)
			continue;
		mine.attempt = candidate->attempt;
		ddp_attempt_path(path, store->directory, mine.attempt, ".table.%u", mine.fence);
		status = ddp_table_open(&table, path, &mine, error);
		if (status < 0)
			return status;
		if (status > 0)
			continue;
		ddp_table_close(store->table);
		store->table = table;
		accept(store, mine.attempt);
		return 1;
	}
	return 0;
}

/* The directory is not there. Returns 0 or DDP_ERR_x. */
static int no_directory(struct file_store *store, struct ddp_error *error)
{
	if (store->own || store->accepted)
		return check_missing(store, error);
	/* Who left an earlier attempt removed it; making it is what shows it on NFS, too. */
	store->count = 0;
	return ddp_attempts_directory(store->directory, false, error);
}

/* What ends the wait. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look_at(struct file_store *store, const struct ddp_attempts *list,
		   struct ddp_error *error)
{
	int status = check_aborted(store, list, error);

	return status < 0 ? status : look_for_table(store, list, error);
}

/*
 * Join what is new in [list]. Returns as look_at().
 *
 * The new attempt may be that of the next world already: rank 0 has published this one's table,
 * left, and begun again, all since we looked for the table. It did so in this order, so a
 * listing that begins after the new attempt was seen has that table for sure.
 */
static int look_for_new(struct file_store *store, const struct ddp_attempts *list,
			struct ddp_error *error)
{
	struct ddp_attempts again;
	int status = 0;

	forget_gone(store, list);
	if (store->count > 0 && has_new(store, list)) {
		status = ddp_attempts_list(store->directory, &again, error);
		if (status == 0)
			status = look_at(store, &again, error);
		else if (status > 0)
			return 0;
	}
	return status != 0 ? status : find_new(store, list, error);
}

/* Look once. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_attempt *entry;
	struct ddp_attempts list;
	int status = ddp_attempts_list(store->directory, &list, error);

	if (status != 0)
		return status < 0 ? status : no_directory(store, error);
	status = look_at(store, &list, error);
	if (status != 0)
		return status;
	if (!store->accepted)
		return look_for_new(store, &list, error);
	entry = ddp_attempts_find(&list, store->mine.attempt);
	status = !entry || !entry->ranks;
	if (status == 0 && store->delivered < store->mine.fence)
		status = deliver(store, store->mine.attempt, error);
	if (status > 0)
		return check_missing(store, error);
	store->missed = 0;
	return status;
}

static int join(struct file_store *store, const struct ddp_watch *watch, struct ddp_error *error)
{
	uint64_t reading = store->mine.size * (uint64_t)RECORD_TIME;
	struct pause pause = pause_start(FIRST_PAUSE, store->mine.size);
	bool waits = false;
	int status;

	for (;;) {
		status = look(store, error);
		if (status != 0)
			return status < 0 ? status : 0;
		/* Once the record is there, rank 0 needs its time for all of them. */
		if (!waits && store->delivered == store->mine.fence) {
			pause = pause_start(FIRST_PAUSE + reading, store->mine.size);
			waits = true;
		}
		status = pause_for(&pause, watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			return say_late(store, NULL, watch, error);
		if (status < 0)
			return status;
	}
}

/* --- The method ------------------------------------------------------------------------- */

static int file_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (*identity->directory)
		return 1;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED,
		      "no directory that all ranks share is known; srun --ddp gives one");
	return 0;
}

static int file_open(struct ddp_store **base, const struct ddp_identity *identity,
		     const struct ddp_log *log, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	struct file_store *store = calloc(1, sizeof(*store));
	int status;

	(void)watch; /* nothing waits before the first fence */
	*base = NULL;
	if (!store)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	store->base = (struct ddp_store){&ddp_store_file, identity, log};
	store->directory = identity->directory;
	store->own = identity->own;
	store->delivered = -1;
	status = ddp_record_init(&store->mine, identity, error);
	if (status == 0)
		status = identity->rank == 0 ? begin(store, error)
					     : ddp_attempts_directory(identity->directory,
								      identity->own, error);
	if (status < 0) {
		free(store);
		return status;
	}
	*base = &store->base;
	return 0;
}

static int file_put(struct ddp_store *base, const char *key, const void *value, size_t size,
		    struct ddp_error *error)
{
	return ddp_values_put(&of(base)->puts, key, value, size, error);
}

static int file_get(struct ddp_store *base, int rank, const char *key, void *value, size_t *size,
		    struct ddp_error *error)
{
	struct file_store *store = of(base);
	struct ddp_record record;
	const uint8_t *body;
	int status;

	if (!store->table)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: nothing can be had before the first fence");
	status = ddp_table_get(store->table, rank, &record, &body, error);
	if (status < 0)
		return status;
	return ddp_values_get(body, record.length, rank, key, value, size, error);
}

static int file_fence(struct ddp_store *base, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct file_store *store = of(base);
	struct ddp_error local;
	int status;

	if (!error)
		error = &local;
	if (store->broken)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: no fence is possible after one that failed");
	ddp_error_clear(error);
	store->missed = 0;
	status = store->mine.rank == 0 ? gather(store, watch, error) : join(store, watch, error);
	if (status < 0) {
		store->broken = true;
		if (status != DDP_ERR_ABORTED)
			file_abort(base, error->text);
		return status;
	}
	store->mine.fence++;
	ddp_values_clear(&store->puts);
	return 0;
}

/* --- The end ---------------------------------------------------------------------------- */

static void leave(const struct file_store *store, uint64_t attempt)
{
	const struct ddp_record *mine = &store->mine;
	char path[PATH_MAX];

	if (mine->rank == 0)
		ddp_attempt_path(path, store->directory, attempt, ".ranks/hello");
	else
		ddp_attempt_path(path, store->directory, attempt, ".ranks/%lld.%u",
				 (long long)store->delivered, mine->rank);
	(void)unlink(path);
	ddp_attempts_leave(store->directory, store->own, attempt,
			   mine->fence > 0 ? mine->fence - 1 : 0);
}

static void file_close(struct ddp_store *base, bool clean)
{
	struct file_store *store = of(base);

	ddp_table_close(store->table);
	ddp_values_clear(&store->puts);
	for (int i = 0; clean && i < store->count; i++)
		if (store->candidates[i].joined)
			leave(store, store->candidates[i].attempt);
	note_left();
	free(store);
}

const struct ddp_store_method ddp_store_file = {
	.head = {DDP_MODULE_MAGIC, DDP_STORE_VERSION, sizeof(struct ddp_store_method), "store",
		 "file", PACKAGE_VERSION},
	.probe = file_probe,
	.open = file_open,
	.put = file_put,
	.fence = file_fence,
	.get = file_get,
	.abort = file_abort,
	.aborted = file_aborted,
	.close = file_close,
};
