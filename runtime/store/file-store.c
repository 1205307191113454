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
 * its name. A rank that waits for a second changes the directories that it lists: a client may keep a listing that
 * misses what was created within one tick of the server's clock.
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
 *     gathers there, and when the new attempt shows, it goes over to that. Where the old attempt
 *     has a table or was given up already, and is older than this process, it cannot be the one
 *     to come, and is passed by; where it is younger, this rank is the one that was missed, and
 *     is told so at once. (Ages are differences of file times. One NFS server sets them all; on Lustre and GPFS each node
 *     sets its own, so the nodes' clocks must differ by less than the time between two attempts.) A table
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
 *     anybody else is missing. Another process that takes its place begins a new attempt, to
 *     which those go over that were not in a table yet.
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
#include <unistd.h>

#include "attempt.h"
#include "base/file.h"
#include "store.h"

enum {
	TRIES = 20, /* to begin, while others leave */
	NAMED = 16, /* ranks in a message; of the others it says how many */
};

/* Nanoseconds. */
#define FIRST_PAUSE 200000u
#define APART 10000u	   /* between ranks that come at once, about */
#define RECORD_TIME 30000u /* about what rank 0 needs for a record: before that nobody need look */
#define CHANGE_PERIOD 1000000000u /* of change_period(), at least */
#define PATIENCE 200000000u	  /* between one attempt and the next, and for a lagging server */

struct file_store {
	struct ddp_store base;
	struct ddp_record mine; /* fence: the next one; attempt: ours, once [joined] */
	const char *directory;
	bool own;
	bool joined;		   /* a file of this rank is in the attempt */
	bool accepted;		   /* a table of it named this process, or we began it */
	bool delivered;		   /* our record of this fence is there */
	struct ddp_attempts known; /* where [ranks] is set: joined once, or passed by */
	uint64_t missed;	   /* since when the directory was not there, 0: it is */
	bool *here;		   /* which ranks were seen at this fence */
	struct iovec *records;	   /* rank 0's: of each rank at this fence */
	uint32_t missing;	   /* rank 0's: how many of them it has not yet */
	struct ddp_table *table;   /* of the last fence */
	char zero[96];		   /* "rank 0 on n1 (process 77)", once its hello was read */
	char passed[160];	   /* why the last attempt that was passed by is not the one */
};

/* --- Waiting ---------------------------------------------------------------------------- */

/* A wait that looks at things again and again, less and less often. */
struct pause {
	uint64_t next, longest; /* nanoseconds */
};

/* The first pause is [first] nanoseconds; the longest one grows with [size], for the server. */
static struct pause pause_start(uint64_t first, uint32_t size)
{
	/* All ranks together look about 20,000 times a second at most. */
	uint64_t longest = (size > 1000 ? size : 1000) * UINT64_C(50000);

	return (struct pause){first < longest ? first : longest, longest};
}

/* Ask [watch], then sleep. Returns what ddp_watch_check() says. */
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

/* --- The files of an attempt ------------------------------------------------------------- */

/*
 * Write [record] as one of [kind] with [body]. Returns 0, or DDP_ERR_FILE with errno.
 *
 * It is not synced. Closing a file is what shows it to other nodes (NFS), and says that the disk
 * is full; none need survive a power failure, and a torn one is refused by its checksum.
 * Thousands of syncs at once would be all that a file system does: with them 64 ranks on ext4
 * needed three times as long to meet.
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

/* What rank 0 said when it began [attempt]. Returns 0; 1 where it is not there; DDP_ERR_x. */
static int read_hello(const struct file_store *store, uint64_t attempt, struct ddp_record *hello)
{
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, attempt, ".ranks/hello");
	status = ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL);
	if (status == 0)
		status = ddp_record_decode(hello, data, size, path, NULL);
	free(data);
	if (status == 0 && (hello->kind != DDP_RECORD_OF_HELLO || hello->attempt != attempt))
		return DDP_ERR_FORMAT;
	return status;
}

/* Write this rank's record. Returns 0; 1 where the attempt is gone, or being swept; DDP_ERR_FILE. */
static int deliver(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_values *values = &store->base.values;
	const struct ddp_record *mine = &store->mine;
	char path[PATH_MAX];
	int status;

	ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/%u.%u", mine->fence,
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
		(void)unlink(ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/%u.%u",
					      mine->fence - 1, mine->rank));
	return 0;
}

/* Where the table of this fence is, open it in place of the last. Returns 1, 0 or DDP_ERR_x. */
static int open_table(struct file_store *store, struct ddp_error *error)
{
	struct ddp_table *table;
	char path[PATH_MAX];
	int status;

	ddp_attempt_path(path, store->directory, store->mine.attempt, ".table.%u",
			 store->mine.fence);
	status = ddp_table_open(&table, path, &store->mine, error);
	if (status != 0)
		return status < 0 ? status : 0;
	ddp_table_close(store->table);
	store->table = table;
	store->accepted = true;
	return 1;
}

/* Give up, at best effort; the first one to do so stands. */
static void file_abort(struct ddp_store *base, const char *text)
{
	const struct file_store *store = (struct file_store *)base;
	const struct ddp_record *mine = &store->mine;
	char file[PATH_MAX], path[PATH_MAX];
	int fd;

	if (!store->joined)
		return;
	ddp_attempt_path(path, store->directory, mine->attempt, ".abort");
	ddp_attempt_path(file, store->directory, mine->attempt, ".abort.%u", mine->rank);
	if (write_record(file, *mine, DDP_RECORD_OF_ABORT, text, strlen(text), NULL) == 0) {
		if (link(file, path) < 0 && errno != EEXIST && access(path, F_OK) < 0)
			(void)rename(file, path); /* a file system without links */
		(void)unlink(file);
		return;
	}
	/* A full disk may still have room for a name. */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* Put who gave up, and why, into base.abort; nothing if that is not there after all. */
static void read_abort(struct file_store *store)
{
	char path[PATH_MAX], *text = store->base.abort;
	struct ddp_record record;
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, store->mine.attempt, ".abort");
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_ERROR_SIZE * 4, &data, &size, NULL);
	if (status > 0)
		return;
	if (status == 0 && ddp_record_read(&record, NULL, data, size, path, NULL) == 0)
		snprintf(text, DDP_ERROR_SIZE, "rank %u on %s: %.900s", record.rank, record.host,
			 data + DDP_RECORD_HEAD);
	else
		snprintf(text, DDP_ERROR_SIZE,
			 "a rank gave up and could not write why in %.900s; is the disk full?",
			 path);
	free(data);
}

/* Whether our attempt was given up, by [list]. Returns 0, or DDP_ERR_ABORTED with who and why. */
static int check_aborted(struct file_store *store, const struct ddp_attempts *list,
			 struct ddp_error *error)
{
	const struct ddp_attempt *entry = ddp_attempts_find(list, store->mine.attempt);
	const char *text = store->base.abort;

	if (!*text && store->joined && entry && entry->aborted)
		read_abort(store);
	return *text ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", text) : 0;
}

static void file_hear_abort(struct ddp_store *base)
{
	struct file_store *store = (struct file_store *)base;
	struct ddp_attempts list;

	if (store->joined && ddp_attempts_list(store->directory, &list, NULL) == 0)
		(void)check_aborted(store, &list, NULL);
}

/* --- Who is late, what is gone ------------------------------------------------------------ */

/* Note in store->here who has a file for this fence. Returns 0, or -1 if that cannot be seen. */
static int list_here(struct file_store *store)
{
	struct dirent *entry;
	char path[PATH_MAX];
	uint32_t fence, rank;
	DIR *dir = opendir(ddp_attempt_path(path, store->directory, store->mine.attempt, ".ranks"));

	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "hello") == 0)
			store->here[0] = true;
		else if (ddp_attempt_parse_rank(entry->d_name, &fence, &rank) &&
			 fence == store->mine.fence && rank < store->mine.size)
			store->here[rank] = true;
	}
	closedir(dir);
	return 0;
}

/*
 * "2 of 8 ranks did not arrive in 30 s: ranks 3, 7", with their nodes where the last fence told
 * them; "" where all are here.
 */
static void name_late(const struct file_store *store, double limit, char *text, size_t room)
{
	uint32_t size = store->mine.size, late = 0, named = 0;
	size_t used;

	for (uint32_t rank = 0; rank < size; rank++)
		late += !store->here[rank];
	*text = '\0';
	if (late == 0)
		return;
	used = (size_t)snprintf(text, room, "%u of %u ranks did not arrive in %g s: rank%s", late,
				size, limit, late > 1 ? "s" : "");
	for (uint32_t rank = 0; rank < size && named < NAMED && used + 100 <= room; rank++) {
		struct ddp_record record;
		const uint8_t *body;

		if (store->here[rank])
			continue;
		used += (size_t)snprintf(text + used, room - used, "%s %u", named ? "," : "", rank);
		if (store->table &&
		    ddp_table_get(store->table, (int)rank, &record, &body, NULL) == 0)
			used += (size_t)snprintf(text + used, room - used, " on %s", record.host);
		named++;
	}
	if (named < late)
		snprintf(text + used, room - used, " and %u more", late - named);
}

/* Say in [error] that the time is over, and for whom. Returns DDP_ERR_TIMEOUT. */
static int say_late(struct file_store *store, double limit, struct ddp_error *error)
{
	char late[DDP_ERROR_SIZE / 2] = "";

	if (!store->joined)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank 0 did not arrive in %g s%s%s (rendezvous %.400s)", limit,
				     *store->passed ? "; " : "", store->passed, store->directory);
	if (store->mine.rank == 0 || list_here(store) == 0)
		name_late(store, limit, late, sizeof(late));
	if (store->mine.rank == 0)
		return ddp_error_set(error, DDP_ERR_TIMEOUT, "%s (rendezvous %.400s)", late,
				     store->directory);
	if (*late)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "%s; %s waits for them or is gone (rendezvous %.400s)", late,
				     store->zero, store->directory);
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "%s did not publish what the ranks put in %g s (rendezvous %.400s)",
			     store->zero, limit, store->directory);
}

/*
 * The attempt's directory, or all of them, was not there.
 * Returns DDP_ERR_MISMATCH where another rank 0 took its place; else 0, as this may be a file
 * system that lags, and DDP_ERR_FILE when it has been so for a while.
 */
static int check_missing(struct file_store *store, struct ddp_error *error)
{
	struct ddp_attempts list;
	struct ddp_record hello;

	if (ddp_attempts_list(store->directory, &list, NULL) != 0)
		list.count = 0;
	for (int i = 0; i < list.count; i++)
		if (list.attempts[i].ranks && list.attempts[i].number != store->mine.attempt &&
		    read_hello(store, list.attempts[i].number, &hello) == 0)
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

/* --- Rank 0: begin an attempt ------------------------------------------------------------- */

/* Make A.ranks with a hello in it. Returns 0, or DDP_ERR_FILE with errno. */
static int make_ranks(const struct file_store *store, struct ddp_error *error)
{
	uint64_t attempt = store->mine.attempt;
	char fresh[PATH_MAX], path[PATH_MAX];
	int status, number;

	ddp_attempt_path(fresh, store->directory, attempt, ".new");
	if (mkdir(fresh, 0700) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make %s", fresh);
	ddp_attempt_path(path, store->directory, attempt, ".new/hello");
	status = write_record(path, store->mine, DDP_RECORD_OF_HELLO, NULL, 0, error);
	if (status < 0) {
		number = errno;
		(void)rmdir(fresh);
		errno = number;
		return status;
	}
	ddp_attempt_path(path, store->directory, attempt, ".ranks");
	if (rename(fresh, path) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot rename %s to %s", fresh, path);
	return 0;
}

/* Clear away and begin. Returns 0 or DDP_ERR_x. */
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

/* Returns 1 when [rank]'s record was taken, 0 where it cannot be had yet, or DDP_ERR_x. */
static int take(struct file_store *store, uint32_t rank, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	struct ddp_record record;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/%u.%u", mine->fence, rank);
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_RECORD_BODY, &data, &size, error);
	if (status != 0)
		return status < 0 ? status : 0;
	status = ddp_record_read(&record, mine, data, size, path, error);
	if (status == 0 &&
	    (record.kind != DDP_RECORD_OF_RANK || record.attempt != mine->attempt ||
	     record.fence != mine->fence || record.rank != rank || rank >= mine->size))
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "%s: not the record of rank %u at fence %u of this attempt",
				       path, rank, mine->fence);
	if (status < 0) {
		free(data);
		return status;
	}
	store->records[rank] = (struct iovec){data, size};
	store->here[rank] = true;
	return 1;
}

/* A name in A.ranks. Returns 1 when a record was taken, 0, or DDP_ERR_x. */
static int take_name(struct file_store *store, const char *name, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	uint32_t fence, rank;

	if (!ddp_attempt_parse_rank(name, &fence, &rank) || rank == 0)
		return 0;
	if (fence == mine->fence && (rank >= mine->size || !store->here[rank]))
		return take(store, rank, error);
	/* Before a process writes for a fence, it removes its file of the one before the last. */
	if (rank < mine->size && (uint64_t)fence + 2 < mine->fence)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u began anew, with fence %u, while the others are at "
				     "fence %u",
				     rank, fence, mine->fence);
	return 0;
}

/* Look once for what is new. Returns how many records were taken, or DDP_ERR_x. */
static int take_new(struct file_store *store, struct ddp_error *error)
{
	struct ddp_attempts list;
	struct dirent *entry;
	char path[PATH_MAX];
	int status = ddp_attempts_list(store->directory, &list, error), taken = 0;
	DIR *dir;

	if (status == 0)
		status = check_aborted(store, &list, error);
	if (status < 0)
		return status;
	ddp_attempt_path(path, store->directory, store->mine.attempt, ".ranks");
	dir = status == 0 ? opendir(path) : NULL;
	if (!dir && (status > 0 || errno == ENOENT || errno == ESTALE))
		return check_missing(store, error);
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot list %s", path);
	store->missed = 0;
	while (status >= 0 && (entry = readdir(dir)))
		if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN) {
			status = take_name(store, entry->d_name, error);
			taken += status > 0;
		}
	closedir(dir);
	return status < 0 ? status : taken;
}

/* Make the table. Returns 1 or DDP_ERR_x. */
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
	ddp_attempt_path(path, store->directory, mine->attempt, ".table.%u", mine->fence);
	status = ddp_file_write(path, &part, 1, 0, false, error);
	free(part.iov_base);
	if (status == 0)
		status = open_table(store, error);
	if (status == 0)
		return ddp_error_set(error, DDP_ERR_FILE, "%s was removed at once", path);
	if (status > 0 && mine->fence > 0)
		(void)unlink(ddp_attempt_path(path, store->directory, mine->attempt, ".table.%u",
					      mine->fence - 1));
	return status;
}

/* Rank 0's own record, the first. */
static int take_own(struct file_store *store, struct ddp_error *error)
{
	struct iovec *own = &store->records[0];

	own->iov_base = ddp_values_encode(&store->base.values, &store->mine, &own->iov_len);
	if (!own->iov_base)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the record of rank 0");
	store->here[0] = true;
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

/* Look once. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int gather(struct file_store *store, struct pause *pause, struct ddp_error *error)
{
	uint64_t began = ddp_now(), took;
	int taken = take_new(store, error);

	if (taken < 0)
		return taken;
	store->missing -= (uint32_t)taken;
	if (store->missing == 0)
		return publish(store, error);
	took = ddp_now() - began;
	/* A long listing is not for every moment: let some come, and rest twice as long. */
	if (taken > 0)
		pause->next = FIRST_PAUSE + store->missing * (uint64_t)APART;
	if (pause->next < 2 * took)
		pause->next = 2 * took;
	return 0;
}

/* --- The others: join an attempt, wait for the table ---------------------------------------- */

/* When this process last left a store; that one is not of its time any more. 0: never. */
static _Atomic uint64_t last_left;

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
	int status = read_hello(store, entry->number, &hello);

	if (status > 0)
		return -1;
	if (status < 0) {
		snprintf(store->passed, sizeof(store->passed), "its hello is damaged");
		return 0;
	}
	if (hello.job != store->mine.job) {
		pass(store, "another job's", &hello);
		return 0;
	}
	/* What began before us, and is beyond its beginning, is not for us. */
	if ((entry->table >= 0 || entry->aborted) &&
	    !ddp_attempt_is_younger(store->directory, entry->number, store->mine.process,
				    last_left)) {
		pass(store, "an earlier attempt's", &hello);
		return 0;
	}
	snprintf(store->zero, sizeof(store->zero), "rank 0 on %s (process %u)", hello.host,
		 hello.pid);
	return 1;
}

/* Whether [entry] is an attempt that this rank has not looked at yet. */
static bool is_new(const struct file_store *store, const struct ddp_attempt *entry)
{
	const struct ddp_attempt *known = ddp_attempts_find(&store->known, entry->number);

	return entry->ranks && !(known && known->ranks);
}

/*
 * Put this rank's record into [attempt], and take it out of the one where it was.
 * Returns 0; 1 where [attempt] is gone already; DDP_ERR_FILE.
 */
static int go_over(struct file_store *store, uint64_t attempt, struct ddp_error *error)
{
	struct ddp_record *mine = &store->mine;
	uint64_t old = mine->attempt;
	bool joined = store->joined;
	char path[PATH_MAX];
	int status;

	/* Where the record cannot be written, that can be told to those who are there. */
	mine->attempt = attempt;
	store->joined = true;
	status = deliver(store, error);
	if (status > 0) {
		mine->attempt = old;
		store->joined = joined;
	} else if (status == 0 && joined) {
		(void)unlink(ddp_attempt_path(path, store->directory, old, ".ranks/%u.%u",
					      mine->fence, mine->rank));
		ddp_attempts_leave(store->directory, true, old, 0);
	}
	return status;
}

/* Take the table, if [list] has it. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int take_table(struct file_store *store, const struct ddp_attempts *list,
		      struct ddp_error *error)
{
	const struct ddp_attempt *entry = ddp_attempts_find(list, store->mine.attempt);
	int status = check_aborted(store, list, error);

	if (status < 0 || !store->joined || !entry || entry->table < store->mine.fence)
		return status;
	return open_table(store, error);
}

/*
 * Go over to what is new in [list]. Returns as take_table().
 *
 * The new attempt may be that of the next world already: rank 0 has published this one's table,
 * left, and begun again, all since we looked for the table. It did so in this order, so a
 * listing that begins after the new attempt was seen has that table for sure.
 */
static int take_attempts(struct file_store *store, struct ddp_attempts *list,
			 struct ddp_error *error)
{
	struct ddp_attempts again;
	bool any = false;
	int status = 0;

	if (!ddp_attempts_find(list, store->mine.attempt))
		store->joined = false;
	for (int i = 0; i < list->count; i++)
		any = any || is_new(store, &list->attempts[i]);
	if (any && store->joined) {
		status = ddp_attempts_list(store->directory, &again, error);
		if (status > 0)
			return 0;
		if (status == 0)
			status = take_table(store, &again, error);
	}
	for (int i = 0; i < list->count && status == 0; i++) {
		struct ddp_attempt *entry = &list->attempts[i];
		int good = is_new(store, entry) ? judge(store, entry) : 0;

		if (good > 0)
			status = go_over(store, entry->number, error);
		/* What is not to be seen, or gone again, is looked at the next time. */
		if (good < 0 || status > 0) {
			entry->ranks = false;
			status = 0;
		}
	}
	store->known = *list;
	return status;
}

/* Look once. Returns 1 when the fence is over, 0 when not, or DDP_ERR_x. */
static int look_for_table(struct file_store *store, struct ddp_error *error)
{
	const struct ddp_attempt *entry;
	struct ddp_attempts list;
	int status = ddp_attempts_list(store->directory, &list, error);

	if (status > 0 && !store->own && !store->accepted) {
		/* Who left an earlier attempt removed it; making it is what shows it on NFS, too. */
		store->joined = false;
		return ddp_attempts_directory(store->directory, false, error);
	}
	if (status > 0)
		return check_missing(store, error);
	if (status == 0)
		status = take_table(store, &list, error);
	if (status != 0)
		return status;
	if (!store->accepted)
		return take_attempts(store, &list, error);
	entry = ddp_attempts_find(&list, store->mine.attempt);
	status = !entry || !entry->ranks;
	if (status == 0 && !store->delivered)
		status = deliver(store, error);
	if (status > 0)
		return check_missing(store, error);
	store->missed = 0;
	return status;
}

/* As gather(). */
static int join(struct file_store *store, struct pause *pause, struct ddp_error *error)
{
	uint32_t size = store->mine.size;
	bool before = store->delivered;
	int status = look_for_table(store, error);

	/* Once the record is there, rank 0 needs its time for all of them. */
	if (status == 0 && store->delivered && !before)
		*pause = pause_start(FIRST_PAUSE + size * (uint64_t)RECORD_TIME, size);
	return status;
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

static void leave(const struct file_store *store)
{
	const struct ddp_record *mine = &store->mine;
	uint32_t last = mine->fence > 0 ? mine->fence - 1 : 0;
	char path[PATH_MAX];

	if (mine->rank == 0)
		ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/hello");
	else
		ddp_attempt_path(path, store->directory, mine->attempt, ".ranks/%u.%u",
				 store->delivered ? mine->fence : last, mine->rank);
	(void)unlink(path);
	ddp_attempts_leave(store->directory, store->own, mine->attempt, last);
}

static void destroy(struct file_store *store)
{
	if (!store)
		return;
	ddp_table_close(store->table);
	free(store->here);
	free(store->records);
	free(store);
}

static void file_close(struct ddp_store *base, bool clean)
{
	struct file_store *store = (struct file_store *)base;

	/* Before it is removed: of an open file NFS would keep a name in the directory. */
	ddp_table_close(store->table);
	store->table = NULL;
	if (clean && store->joined)
		leave(store);
	last_left = ddp_now();
	destroy(store);
}

/* Nothing waits before the first fence. */
static int file_open(struct ddp_store **base, const struct ddp_identity *identity,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct file_store *store = calloc(1, sizeof(*store));
	size_t size = (size_t)identity->size;
	int status;

	(void)watch;
	if (!store || !(store->here = calloc(size, sizeof(*store->here))) ||
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
		status = ddp_attempts_directory(identity->directory, identity->own, error);
	if (status < 0)
		destroy(store);
	else
		*base = &store->base;
	return status;
}

/*
 * Nanoseconds between two changes by this rank. All ranks but rank 0 make at most 200 a second
 * together. Rank 0 makes one a second in a world of any size: no other rank lists ".ranks".
 */
static uint64_t change_period(const struct file_store *store)
{
	uint64_t period = store->mine.size * UINT64_C(5000000);

	return store->mine.rank > 0 && period > CHANGE_PERIOD ? period : CHANGE_PERIOD;
}

/* If [due] has come, change the directories that this rank lists, and set the next time. */
static void change_listed(const struct file_store *store, uint64_t *due)
{
	uint64_t now = ddp_now();
	char name[DDP_NAME_SIZE], path[PATH_MAX];

	if (now < *due)
		return;
	*due = now + change_period(store);
	snprintf(name, sizeof(name), "%016" PRIx64 ".now", store->mine.process);
	ddp_file_change_directory(store->directory, name);
	if (store->mine.rank == 0)
		ddp_file_change_directory(ddp_attempt_path(path, store->directory,
							   store->mine.attempt, ".ranks"),
					  name);
}

static int file_fence(struct ddp_store *base, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct file_store *store = (struct file_store *)base;
	struct pause pause = pause_start(FIRST_PAUSE, store->mine.size);
	uint64_t due = ddp_now() + change_period(store);
	bool zero = store->mine.rank == 0;
	int status;

	store->missed = 0;
	memset(store->here, 0, store->mine.size * sizeof(*store->here));
	status = zero ? take_own(store, error) : 0;
	while (status == 0) {
		status = zero ? gather(store, &pause, error) : join(store, &pause, error);
		if (status == 0)
			status = pause_for(&pause, watch, error);
		if (status == 0)
			change_listed(store, &due);
	}
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		say_late(store, watch->limit, error);
	free_records(store);
	if (status < 0)
		return status;
	store->delivered = false;
	store->mine.fence++;
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
	.hear_abort = file_hear_abort,
	.close = file_close,
};
