/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tails.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/xalloc.h"

enum {
	TAIL = 8 << 10, /* bytes of a rank that are kept, and half as many more */
	RANKS = 1 << 20,
	OPEN_MOST = 256, /* files */
};

struct tail {
	struct ddp_text text;
	size_t logged; /* bytes of it that are in the rank's file */
	int file;      /* its descriptor and one more; 0: it is not open */
	bool begun;    /* it is there */
};

struct tails {
	pthread_mutex_t lock;
	char *logs;
	bool log_failed;
	struct ddp_text all;
	struct tail *tail; /* of each rank */
	int count, open;
};

struct tails *tails_create(const char *logs)
{
	struct tails *tails = ddp_xcalloc(1, sizeof(*tails), "tails of output");
	struct ddp_error error;

	pthread_mutex_init(&tails->lock, NULL);
	if (!logs)
		return tails;
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
	for (int i = 0; i < tails->count; i++) {
		if (tails->tail[i].file > 0)
			close(tails->tail[i].file - 1);
		ddp_text_free(&tails->tail[i].text);
	}
	ddp_text_free(&tails->all);
	free(tails->tail);
	free(tails->logs);
	pthread_mutex_destroy(&tails->lock);
	free(tails);
}

static struct tail *tail_of(struct tails *tails, int rank)
{
	if (rank >= tails->count) {
		int count = 2 * rank + 16;
		struct tail *more = ddp_xcalloc((size_t)count, sizeof(*more), "tails of output");

		if (tails->count)
			memcpy(more, tails->tail, (size_t)tails->count * sizeof(*more));
		free(tails->tail);
		tails->tail = more;
		tails->count = count;
	}
	return &tails->tail[rank];
}

/* One of an earlier run is begun anew; others than the first so many are opened again and again. */
static int open_log(struct tails *tails, struct tail *tail, const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(path, flags | (tail->begun ? O_APPEND : O_TRUNC), 0666);

	tail->begun = tail->begun || fd >= 0;
	if (fd >= 0 && tails->open < OPEN_MOST) {
		tails->open++;
		tail->file = fd + 1;
	}
	return fd;
}

static void log_tail(struct tails *tails, int rank)
{
	struct tail *tail = &tails->tail[rank];
	size_t from = tail->logged;
	char path[PATH_MAX];
	int fd = tail->file - 1;

	tail->logged = tail->text.size;
	if (!tails->logs || tails->log_failed || from == tail->text.size)
		return;
	snprintf(path, sizeof(path), "%s/rank-%d.log", tails->logs, rank);
	if (fd < 0)
		fd = open_log(tails, tail, path);
	if (fd < 0 || ddp_file_write_all(fd, tail->text.data + from, tail->text.size - from) < 0) {
		fprintf(stderr, "ddp-run: --logs: cannot write %s: %s\n", path, strerror(errno));
		tails->log_failed = true;
	}
	if (fd >= 0 && tail->file == 0)
		close(fd);
}

static bool is_long(const struct ddp_text *text)
{
	return text->size > TAIL + TAIL / 2;
}

/* To whole lines, if they are not too long. */
static void shorten(struct ddp_text *text)
{
	const char *end = text->data + text->size, *from = end - TAIL;
	const char *line = memchr(from, '\n', TAIL / 2);

	from = line ? line + 1 : from;
	text->size = (size_t)(end - from);
	memmove(text->data, from, text->size + 1);
}

void tails_take(struct tails *tails, int rank, const char *bytes, size_t size)
{
	pthread_mutex_lock(&tails->lock);
	ddp_text_put(&tails->all, bytes, size);
	if (is_long(&tails->all))
		shorten(&tails->all);
	if (rank >= 0 && rank < RANKS) {
		struct tail *tail = tail_of(tails, rank);

		ddp_text_put(&tail->text, bytes, size);
		if (is_long(&tail->text)) {
			log_tail(tails, rank);
			shorten(&tail->text);
			tail->logged = tail->text.size;
		}
	}
	pthread_mutex_unlock(&tails->lock);
}

void tails_log(struct tails *tails)
{
	pthread_mutex_lock(&tails->lock);
	for (int i = 0; tails->logs && i < tails->count; i++)
		log_tail(tails, i);
	pthread_mutex_unlock(&tails->lock);
}

int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error)
{
	const struct ddp_text *text = &tails->all;
	char path[PATH_MAX + 32];
	struct iovec part;
	int status = 0;

	pthread_mutex_lock(&tails->lock);
	snprintf(path, sizeof(path), "%s/tail.txt", dir);
	if (rank != TAILS_ALL) {
		text = rank < tails->count ? &tails->tail[rank].text : NULL;
		snprintf(path, sizeof(path), "%s/tail-%d.txt", dir, rank);
	}
	if (text && text->size > 0) {
		part = (struct iovec){text->data, text->size};
		status = ddp_file_write(path, &part, 1, 0600, false, error);
	}
	pthread_mutex_unlock(&tails->lock);
	return status;
}
