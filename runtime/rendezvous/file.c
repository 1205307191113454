/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - the method "file": ranks meet in a directory that all nodes see
 *
 * THE PROTOCOL. Rank 0 draws a random number A for its attempt to meet, clears away what lies in
 * the directory, and makes A.ranks/ with a file `hello` in it, in one piece (venue.h has the
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

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "meeting.h"

static struct ddp_meeting *of(struct ddp_rendezvous *rendezvous)
{
	return (struct ddp_meeting *)rendezvous;
}

static int file_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (*identity->directory)
		return 1;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED,
		      "no directory that all ranks share is known; srun --ddp gives one");
	return 0;
}

static int file_open(struct ddp_rendezvous **rendezvous, const struct ddp_identity *identity,
		     const struct ddp_log *log, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	struct ddp_meeting *meeting = calloc(1, sizeof(*meeting));
	int status;

	(void)watch; /* nothing waits before the first fence */
	*rendezvous = NULL;
	if (!meeting)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	meeting->base = (struct ddp_rendezvous){&ddp_rendezvous_file, identity, log};
	meeting->directory = identity->directory;
	meeting->own = identity->own;
	meeting->delivered = -1;
	status = ddp_record_init(&meeting->mine, identity, error);
	if (status == 0)
		status = identity->rank == 0
				 ? ddp_meeting_begin(meeting, error)
				 : ddp_venue_make(identity->directory, identity->own, error);
	if (status < 0) {
		free(meeting);
		return status;
	}
	*rendezvous = &meeting->base;
	return 0;
}

static int file_put(struct ddp_rendezvous *rendezvous, const char *key, const void *value,
		    size_t size, struct ddp_error *error)
{
	return ddp_puts_add(&of(rendezvous)->puts, key, value, size, error);
}

static int file_get(struct ddp_rendezvous *rendezvous, int rank, const char *key, void *value,
		    size_t *size, struct ddp_error *error)
{
	struct ddp_meeting *meeting = of(rendezvous);
	struct ddp_record record;
	const uint8_t *body;
	int status;

	if (!meeting->table)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: nothing can be had before the first fence");
	status = ddp_table_get(meeting->table, rank, &record, &body, error);
	if (status < 0)
		return status;
	return ddp_puts_get(body, record.length, rank, key, value, size, error);
}

/* --- Giving up -------------------------------------------------------------------------- */

/* Make [path] a name of [file] unless it is there. The first one to do so stands. */
static void link_first(const char *file, const char *path)
{
	if (link(file, path) < 0 && errno != EEXIST && access(path, F_OK) < 0)
		(void)rename(file, path); /* a file system without links */
}

static void give_up(const struct ddp_meeting *meeting, uint64_t attempt, const char *text)
{
	char file[PATH_MAX], path[PATH_MAX];
	struct ddp_record record = meeting->mine;
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)text, strlen(text)}};
	int fd;

	record.kind = DDP_RECORD_OF_ABORT;
	record.attempt = attempt;
	ddp_record_seal(&record, text, strlen(text));
	ddp_record_encode(&record, head);
	ddp_venue_path(path, meeting->directory, attempt, ".abort");
	ddp_venue_path(file, meeting->directory, attempt, ".abort.%u", record.rank);
	if (ddp_file_write(file, parts, 2, 0, DDP_VENUE_SYNC, NULL) == 0) {
		link_first(file, path);
		(void)unlink(file);
		return;
	}
	/* A full disk may still have room for a name. */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

static void file_abort(struct ddp_rendezvous *rendezvous, const char *text)
{
	struct ddp_meeting *meeting = of(rendezvous);

	for (int i = 0; i < meeting->count; i++)
		if (meeting->candidates[i].joined)
			give_up(meeting, meeting->candidates[i].attempt, text);
}

/* Returns 1 with the text in meeting->abort, 0 where the file is not there after all. */
static int read_abort(struct ddp_meeting *meeting, uint64_t attempt)
{
	struct ddp_record record;
	char path[PATH_MAX];
	size_t size;
	char *data;
	int status;

	ddp_venue_path(path, meeting->directory, attempt, ".abort");
	status = ddp_file_read(path, DDP_RECORD_HEAD + DDP_ERROR_SIZE * 4, &data, &size, NULL);
	if (status > 0)
		return 0;
	if (status == 0 && ddp_record_decode(&record, data, size, path, NULL) == 0 &&
	    ddp_record_whole(&record, data, size, path, NULL) == 0)
		snprintf(meeting->abort, sizeof(meeting->abort), "rank %u on %s: %.900s",
			 record.rank, record.host, data + DDP_RECORD_HEAD);
	else
		snprintf(meeting->abort, sizeof(meeting->abort),
			 "a rank gave up and could not write why in %.900s; is the disk full?",
			 path);
	free(data);
	return 1;
}

int ddp_meeting_aborted(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
			struct ddp_error *error)
{
	for (int i = 0; i < meeting->count && !*meeting->abort; i++) {
		const struct ddp_candidate *candidate = &meeting->candidates[i];
		const struct ddp_venue_attempt *entry = ddp_venue_find(list, candidate->attempt);

		if (candidate->joined && entry && entry->aborted)
			(void)read_abort(meeting, candidate->attempt);
	}
	return *meeting->abort ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", meeting->abort) : 0;
}

static int file_aborted(struct ddp_rendezvous *rendezvous, char *text, size_t size)
{
	struct ddp_meeting *meeting = of(rendezvous);
	struct ddp_venue_list list;

	if (!*meeting->abort && meeting->count > 0 &&
	    ddp_venue_list(meeting->directory, &list, NULL) == 0)
		(void)ddp_meeting_aborted(meeting, &list, NULL);
	if (!*meeting->abort)
		return 0;
	if (size > 0)
		snprintf(text, size, "%s", meeting->abort);
	return 1;
}

/* --- Fences ----------------------------------------------------------------------------- */

static int file_fence(struct ddp_rendezvous *rendezvous, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct ddp_meeting *meeting = of(rendezvous);
	struct ddp_error local;
	int status;

	if (!error)
		error = &local;
	if (meeting->broken)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: no fence is possible after one that failed");
	ddp_error_clear(error);
	meeting->missed = 0;
	status = meeting->mine.rank == 0 ? ddp_meeting_gather(meeting, watch, error)
					 : ddp_meeting_join(meeting, watch, error);
	if (status < 0) {
		meeting->broken = true;
		if (status != DDP_ERR_ABORTED)
			file_abort(rendezvous, error->text);
		return status;
	}
	meeting->mine.fence++;
	ddp_puts_clear(&meeting->puts);
	return 0;
}

struct ddp_pause ddp_pause_start(uint64_t first, uint32_t size)
{
	/* All ranks together look about 20,000 times a second at most. */
	uint64_t longest = (size > 1000 ? size : 1000) * UINT64_C(50000);

	return (struct ddp_pause){first < longest ? first : longest, longest};
}

int ddp_pause(struct ddp_pause *pause, const struct ddp_watch *watch, struct ddp_error *error)
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

/* --- The end ---------------------------------------------------------------------------- */

static void leave(const struct ddp_meeting *meeting, uint64_t attempt)
{
	const struct ddp_record *mine = &meeting->mine;
	char path[PATH_MAX];

	if (mine->rank == 0)
		ddp_venue_path(path, meeting->directory, attempt, ".ranks/hello");
	else
		ddp_venue_path(path, meeting->directory, attempt, ".ranks/%lld.%u",
			       (long long)meeting->delivered, mine->rank);
	(void)unlink(path);
	ddp_venue_leave(meeting->directory, meeting->own, attempt,
			mine->fence > 0 ? mine->fence - 1 : 0);
}

static void file_close(struct ddp_rendezvous *rendezvous, bool clean)
{
	struct ddp_meeting *meeting = of(rendezvous);

	ddp_table_close(meeting->table);
	ddp_puts_clear(&meeting->puts);
	for (int i = 0; clean && i < meeting->count; i++)
		if (meeting->candidates[i].joined)
			leave(meeting, meeting->candidates[i].attempt);
	ddp_meeting_left();
	free(meeting);
}

const struct ddp_rendezvous_method ddp_rendezvous_file = {
	.head = {DDP_MODULE_MAGIC, DDP_RENDEZVOUS_VERSION, sizeof(struct ddp_rendezvous_method),
		 "rendezvous", "file", PACKAGE_VERSION},
	.probe = file_probe,
	.open = file_open,
	.put = file_put,
	.fence = file_fence,
	.get = file_get,
	.abort = file_abort,
	.aborted = file_aborted,
	.close = file_close,
};
