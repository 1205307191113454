/* SPDX-License-Identifier: Apache-2.0 */
/*
 * summary.c - one page out of the records of all ranks
 *
 * A rank that wrote no record was killed, or hangs outside of a collective. The collective that
 * most of the others are in is the one that it did not arrive in.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/watch.h"
#include "recorder-private.h"

enum { RECORD_LIMIT = 65536, NAMED = 16 };

struct seen {
	bool there;
	uint64_t sequence; /* of the last collective, 0: none */
	bool waits;	   /* it had not ended well */
	char host[128];
	char last[128]; /* "#17 all-reduce 1000 F32 sum" */
};

/* Take from a record of [text] what the summary needs. */
static void read_record(char *text, struct seen *seen)
{
	char *line, *rest = NULL, *comma;

	seen->there = true;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (sscanf(line, "rank %*d of %*d on %127[^,]", seen->host) == 1)
			continue;
		if (*line != '#')
			continue;
		seen->waits = strstr(line, "not ended") || strstr(line, "failed: ");
		comma = strchr(line, ',');
		if (comma)
			*comma = '\0';
		snprintf(seen->last, sizeof(seen->last), "%s", line);
		seen->sequence = strtoull(line + 1, NULL, 10);
	}
}

/* Read the records of all ranks; returns how many there are. */
static int read_records(const struct ddp_recorder *recorder, struct seen *seen)
{
	char path[PATH_MAX];
	char *text;
	size_t size;
	int there = 0;

	for (int rank = 0; rank < recorder->size; rank++) {
		if (!seen[rank].there) {
			snprintf(path, sizeof(path), "%s/rank-%d", recorder->directory, rank);
			if (ddp_file_read(path, RECORD_LIMIT, &text, &size, NULL) == 0)
				read_record(text, &seen[rank]);
			free(text);
		}
		there += seen[rank].there;
	}
	return there;
}

/* The furthest collective that a rank waits in. */
static const struct seen *furthest(const struct seen *seen, int size)
{
	const struct seen *most = NULL;

	for (int rank = 0; rank < size; rank++)
		if (seen[rank].there && seen[rank].waits &&
		    (!most || seen[rank].sequence > most->sequence))
			most = &seen[rank];
	return most;
}

/*
 * Who did not arrive in [most]: the silent ranks, if there are any, since those behind may have
 * been waiting for them; else those behind.
 */
static bool missing(const struct seen *seen, const struct seen *most, bool silent)
{
	return silent ? !seen->there : seen->sequence < most->sequence;
}

static bool any_silent(const struct seen *seen, int size)
{
	for (int rank = 0; rank < size; rank++)
		if (!seen[rank].there)
			return true;
	return false;
}

/* "rank 3", or "ranks 3, 5" of those that are missing in [most]; returns their number. */
static int name_missing(const struct seen *seen, int size, const struct seen *most, char *text,
			size_t room)
{
	bool silent = any_silent(seen, size);
	size_t used = 0;
	int count = 0;

	text[0] = '\0';
	for (int rank = 0; rank < size; rank++) {
		if (!missing(&seen[rank], most, silent))
			continue;
		if (count++ >= NAMED || used >= room)
			continue;
		used += (size_t)snprintf(text + used, room - used, "%s%d", count > 1 ? ", " : "",
					 rank);
	}
	if (count > NAMED && used < room)
		snprintf(text + used, room - used, " and %d more", count - NAMED);
	return count;
}

static void describe(const struct ddp_recorder *recorder, const struct seen *seen, char *text,
		     size_t room)
{
	const struct seen *most = furthest(seen, recorder->size);
	char names[256];
	int count;

	if (!most) {
		snprintf(text, room, "no rank waits in a collective");
		return;
	}
	count = name_missing(seen, recorder->size, most, names, sizeof(names));
	if (count == 0)
		snprintf(text, room, "all ranks are in %s", most->last);
	else
		snprintf(text, room, "did not arrive in %s: rank%s %s", most->last,
			 count > 1 ? "s" : "", names);
}

static int write_summary(const struct ddp_recorder *recorder, const struct seen *seen,
			 const char *gist)
{
	char path[PATH_MAX];
	struct iovec part;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);
	int status;

	if (!file)
		return DDP_ERR_MEMORY;
	fprintf(file, "job %s, %d ranks\n%s\n\n", recorder->job, recorder->size, gist);
	for (int rank = 0; rank < recorder->size; rank++) {
		if (!seen[rank].there)
			fprintf(file, "rank %d: no record: killed, or busy elsewhere\n", rank);
		else
			fprintf(file, "rank %d on %s: %s %s\n", rank, seen[rank].host,
				seen[rank].waits ? "in" : "after",
				seen[rank].last[0] ? seen[rank].last : "its start");
	}
	if (fclose(file) != 0) {
		free(text);
		return DDP_ERR_MEMORY;
	}
	snprintf(path, sizeof(path), "%s/summary", recorder->directory);
	part = (struct iovec){text, size};
	status = ddp_file_write(path, &part, 1, 0600, false, NULL);
	free(text);
	return status;
}

/* Whether this rank is the one that writes: the first to make the file. */
static bool chosen(const struct ddp_recorder *recorder)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/summary", recorder->directory);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

int ddp_recorder_summary(struct ddp_recorder *recorder, double seconds, char *text, size_t size)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);
	char gist[512];
	struct seen *seen;
	int status;

	if (!recorder || !recorder->directory[0] || !chosen(recorder))
		return 0;
	seen = calloc((size_t)recorder->size, sizeof(*seen));
	if (!seen)
		return 0;
	while (read_records(recorder, seen) < recorder->size && ddp_watch_check(&watch, NULL) == 0)
		ddp_watch_sleep(&watch, DDP_WATCH_PERIOD);
	describe(recorder, seen, gist, sizeof(gist));
	status = write_summary(recorder, seen, gist);
	free(seen);
	if (status < 0)
		return 0;
	snprintf(text, size, "%s; records are in %s", gist, recorder->directory);
	return 1;
}
