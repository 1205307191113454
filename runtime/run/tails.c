/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tails.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/xalloc.h"

enum {
	PIECE = 1024,	 /* bytes of a line that Slurm sends at once */
	TAIL = 16 << 10, /* bytes of a rank that are kept, and half as many more */
	RANKS = 1 << 20,
};

struct tails {
	char *logs;
	bool log_failed;
	struct ddp_text *tail; /* of each rank */
	int count;
	char line[PIECE + 32];
	size_t length;
};

struct tails *tails_create(const char *logs)
{
	struct tails *tails = ddp_xcalloc(1, sizeof(*tails), "tails of output");
	struct ddp_error error;

	tails->logs = ddp_xstrdup(logs, "--logs");
	tails->log_failed = ddp_file_mkdirs(logs, 0777, &error) < 0;
	if (tails->log_failed)
		fprintf(stderr, "ddp-run: --logs: %s\n", error.text);
	return tails;
}

void tails_destroy(struct tails *tails)
{
	if (!tails)
		return;
	for (int i = 0; i < tails->count; i++)
		ddp_text_free(&tails->tail[i]);
	free(tails->tail);
	free(tails->logs);
	free(tails);
}

static struct ddp_text *tail_of(struct tails *tails, int rank)
{
	if (rank >= tails->count) {
		int count = 2 * rank + 16;
		struct ddp_text *more =
			ddp_xcalloc((size_t)count, sizeof(*more), "tails of output");

		if (tails->count)
			memcpy(more, tails->tail, (size_t)tails->count * sizeof(*more));
		free(tails->tail);
		tails->tail = more;
		tails->count = count;
	}
	return &tails->tail[rank];
}

static void log_piece(struct tails *tails, int rank, const char *text, size_t size)
{
	char path[PATH_MAX];
	int fd;

	if (tails->log_failed)
		return;
	snprintf(path, sizeof(path), "%s/rank-%d.log", tails->logs, rank);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0 || ddp_file_write_all(fd, text, size) < 0) {
		fprintf(stderr, "ddp-run: --logs: cannot write %s: %s\n", path, strerror(errno));
		tails->log_failed = true;
	}
	if (fd >= 0)
		close(fd);
}

/* " 3: text"; what is not labelled is sattach's own. */
static void take_line(struct tails *tails, const char *line, size_t size)
{
	struct ddp_text *tail;
	char *end;
	long rank = strtol(line, &end, 10);
	size_t label = (size_t)(end - line) + 2;

	if (end == line || end[0] != ':' || end[1] != ' ' || rank < 0 || rank >= RANKS)
		return;
	/* The line's end behind a whole piece is not the rank's. */
	size -= size - label == PIECE + 1;
	tail = tail_of(tails, (int)rank);
	ddp_text_put(tail, line + label, size - label);
	log_piece(tails, (int)rank, line + label, size - label);
	if (tail->size > TAIL + TAIL / 2) {
		memmove(tail->data, tail->data + tail->size - TAIL, TAIL + 1);
		tail->size = TAIL;
	}
}

void tails_take(struct tails *tails, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (tails->length < sizeof(tails->line) - 2)
			tails->line[tails->length++] = bytes[i];
		if (bytes[i] != '\n')
			continue;
		tails->line[tails->length] = '\0';
		take_line(tails, tails->line, tails->length);
		tails->length = 0;
	}
}

void tails_write(const struct tails *tails, const char *dir)
{
	for (int i = 0; i < tails->count; i++) {
		struct iovec part = {tails->tail[i].data, tails->tail[i].size};
		char path[PATH_MAX + 32];

		if (part.iov_len == 0)
			continue;
		snprintf(path, sizeof(path), "%s/tail-%d.txt", dir, i);
		if (ddp_file_write(path, &part, 1, 0600, false, NULL) < 0)
			return;
	}
}
