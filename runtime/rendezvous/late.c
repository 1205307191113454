/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c - what keeps ranks from meeting, in words
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "meeting.h"

enum { NAMED = 16 }; /* ranks in a message; of the others it says how many */

/* Between an attempt's end and the hello of the one in its place, and for a lagging server. */
#define PATIENCE 200000000u /* nanoseconds */

/* --- Who is late ------------------------------------------------------------------------ */

int ddp_meeting_present(const struct ddp_meeting *meeting, uint64_t attempt, uint32_t fence,
			bool *here)
{
	struct dirent *entry;
	char path[PATH_MAX];
	uint32_t at, rank;
	DIR *dir;

	dir = opendir(ddp_venue_path(path, meeting->directory, attempt, ".ranks"));
	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "hello") == 0)
			here[0] = true;
		else if (ddp_venue_parse_rank(entry->d_name, &at, &rank) && at == fence &&
			 rank < meeting->mine.size)
			here[rank] = true;
	}
	closedir(dir);
	return 0;
}

/* " on n2" where the last fence told it, else "". */
static void add_node(const struct ddp_meeting *meeting, uint32_t rank, char *text, size_t size)
{
	struct ddp_record record;

	*text = '\0';
	if (meeting->table && ddp_table_get(meeting->table, (int)rank, &record, NULL, NULL) == 0)
		snprintf(text, size, " on %s", record.host);
}

/* "2 of 8 ranks did not arrive in 30 s: ranks 3, 7"; "" where all are [here]. */
static void name_late(const struct ddp_meeting *meeting, const bool *here, double limit, char *text,
		      size_t size)
{
	uint32_t late = 0, named = 0;
	size_t used;

	for (uint32_t rank = 0; rank < meeting->mine.size; rank++)
		late += !here[rank];
	*text = '\0';
	if (late == 0)
		return;
	used = (size_t)snprintf(text, size, "%u of %u ranks did not arrive in %g s: rank%s", late,
				meeting->mine.size, limit, late > 1 ? "s" : "");
	for (uint32_t rank = 0; rank < meeting->mine.size && named < NAMED; rank++) {
		char node[80];

		if (here[rank])
			continue;
		add_node(meeting, rank, node, sizeof(node));
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
static const struct ddp_candidate *present_attempt(const struct ddp_meeting *meeting)
{
	for (int i = meeting->count - 1; i >= 0; i--)
		if (meeting->candidates[i].joined)
			return &meeting->candidates[i];
	return NULL;
}

int ddp_meeting_late(struct ddp_meeting *meeting, const bool *here, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	const struct ddp_candidate *attempt = present_attempt(meeting);
	const struct ddp_record *mine = &meeting->mine;
	char late[DDP_ERROR_SIZE / 2];
	bool *seen;

	if (!attempt)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank 0 did not arrive in %g s%s%s (rendezvous %.400s)",
				     watch->limit, *meeting->passed ? "; " : "", meeting->passed,
				     meeting->directory);
	if (here) {
		name_late(meeting, here, watch->limit, late, sizeof(late));
		return ddp_error_set(error, DDP_ERR_TIMEOUT, "%s (rendezvous %.400s)", late,
				     meeting->directory);
	}
	seen = calloc(mine->size, sizeof(*seen));
	*late = '\0';
	if (seen && ddp_meeting_present(meeting, attempt->attempt, mine->fence, seen) == 0)
		name_late(meeting, seen, watch->limit, late, sizeof(late));
	free(seen);
	if (*late)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "%s; %s waits for them or is gone (rendezvous %.400s)", late,
				     meeting->zero, meeting->directory);
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "%s did not publish what the ranks put in %g s (rendezvous %.400s)",
			     meeting->zero, watch->limit, meeting->directory);
}

/* --- What is gone ----------------------------------------------------------------------- */

/* Whose attempt [entry] is, if it is not ours and alive. */
static bool read_other(const struct ddp_meeting *meeting, const struct ddp_venue_attempt *entry,
		       struct ddp_record *hello)
{
	char path[PATH_MAX];
	bool found = false;
	size_t size;
	char *data;

	if (entry->number == meeting->mine.attempt || !entry->ranks)
		return false;
	ddp_venue_path(path, meeting->directory, entry->number, ".ranks/hello");
	if (ddp_file_read(path, DDP_RECORD_HEAD, &data, &size, NULL) == 0)
		found = ddp_record_decode(hello, data, size, path, NULL) == 0;
	free(data);
	return found;
}

int ddp_meeting_missing(struct ddp_meeting *meeting, struct ddp_error *error)
{
	struct ddp_venue_list list;
	struct ddp_record hello;

	if (ddp_venue_list(meeting->directory, &list, NULL) != 0)
		list.count = 0;
	for (int i = 0; i < list.count; i++)
		if (read_other(meeting, &list.attempts[i], &hello))
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "another process (%u on %s) has begun as rank 0 in "
					     "%s and removed what was there; do two jobs use it?",
					     hello.pid, hello.host, meeting->directory);
	if (meeting->missed == 0)
		meeting->missed = ddp_now();
	if (ddp_now() - meeting->missed < PATIENCE)
		return 0;
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s/%016" PRIx64 ".ranks was removed while the ranks were using it",
			     meeting->directory, meeting->mine.attempt);
}
