/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c - threads that forward srun's output, and storage for the last output of each rank */
#include "config.h"

#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"

/* In seconds. Output that arrives this soon after a traceback belongs to it. */
#define SAME_OUTPUT 2.0

enum {
	TAIL = 8
	       << 10, /* bytes of a rank's output that are kept; up to half as many more may be buffered */
	RANKS = 1 << 20,  /* maximum number of ranks */
	OPEN_MOST = 256,  /* maximum number of open files */
	LINE_SIZE = 1024, /* bytes of a line that are parsed, and a final '\0' */
};

/* The errors that a rank prints. */
struct errors {
	/*
	 * stdout and stderr are parsed separately, because a line of one stream can arrive between
	 * lines of a traceback in the other
	 */
	struct {
		struct rank_error error;
		char line[LINE_SIZE]; /* the incomplete line */
		size_t length;
	} stream[2];
	struct rank_error last;
	/* times of the last error, the last traceback, and the last output; 0: none */
	double error_at, raised_at, active_at;
	double checked_at; /* see struct raised_rank */
};

struct tail {
	struct ddp_text text;
	struct errors *errors; /* NULL: no output */
	size_t logged;	       /* bytes of the text that are already in the rank's file */
	int file;	       /* descriptor plus 1; 0: not open */
	bool created;
};

struct tails {
	pthread_mutex_t lock;
	char *logs;
	bool log_failed;
	struct ddp_text all;
	struct tail *tail; /* one for each rank */
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
		fprintf(stderr, "ddp-run: %s. Give another directory to --logs.\n", error.text);
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
		free(tails->tail[i].errors);
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

/*
 * Open the rank's log file. The first time, truncate the file, which may be from an earlier run. If
 * OPEN_MOST files are open already, the caller must close the file after writing to it.
 */
static int open_log(struct tails *tails, struct tail *tail, const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(path, flags | (tail->created ? O_APPEND : O_TRUNC), 0666);

	tail->created = tail->created || fd >= 0;
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
		fprintf(stderr,
			"ddp-run: cannot write %s: %s. No more output is written to --logs.\n",
			path, strerror(errno));
		tails->log_failed = true;
	}
	if (fd >= 0 && tail->file == 0)
		close(fd);
}

static bool is_long(const struct ddp_text *text)
{
	return text->size > TAIL + TAIL / 2;
}

/* Shorten [text] to its last TAIL bytes. If possible, begin at a line. */
static void shorten(struct ddp_text *text)
{
	const char *end = text->data + text->size, *from = end - TAIL;
	const char *line = memchr(from, '\n', TAIL / 2);

	from = line ? line + 1 : from;
	text->size = (size_t)(end - from);
	memmove(text->data, from, text->size + 1);
}

static bool has_printed_since(const struct errors *errors, double at)
{
	return errors->active_at > at + SAME_OUTPUT;
}

/* Keep the beginning of a long error, but the end of other lines, such as a progress bar. */
static void make_space(const struct rank_error *error, char *line, size_t *length)
{
	enum { HALF = LINE_SIZE / 2 };
	struct pattern_part part[PATTERN_PARTS];

	if (*length < LINE_SIZE - 1 || error->state > ERROR_EXPECTED ||
	    pattern_find(PATTERN_OUTPUT, line, *length, part) != LINE_OTHER)
		return;
	*length -= HALF;
	memmove(line, line + HALF, *length);
}

/* Parse the next [size] bytes of a rank's stream; [stream] is 0 for stdout and 1 for stderr. */
static void find_error(struct tail *tail, int stream, const char *bytes, size_t size)
{
	struct errors *errors = tail->errors;

	if (!errors) {
		errors = tail->errors = ddp_xcalloc(1, sizeof(*errors), "tails of output");
		errors->last.prefix = errors->stream[0].error.prefix =
			errors->stream[1].error.prefix = -1;
	}
	errors->active_at = ddp_seconds();
	for (size_t i = 0; i < size; i++) {
		struct rank_error *error = &errors->stream[stream].error;
		char *line = errors->stream[stream].line;
		size_t *length = &errors->stream[stream].length;

		if (bytes[i] != '\n') {
			make_space(error, line, length);
			if (*length < LINE_SIZE - 1)
				line[(*length)++] = bytes[i] ? bytes[i] : '?';
			continue;
		}
		line[*length] = '\0';
		*length = 0;
		if (!rank_error_parse(error, -1, line) ||
		    (errors->last.prefix >= 0 && error->prefix < 0))
			continue;
		errors->last = *error;
		errors->error_at = errors->active_at;
		if (error->printed_by == LINE_TRACEBACK)
			errors->raised_at = errors->checked_at = errors->active_at;
	}
}

/*
 * Add the last error that [rank] printed, unless it is found in the tail. It is not found if it is
 * longer than the tail, if later output has displaced it, or if lines of the other stream are
 * between its lines. An error is not added if the rank continued to print output after it.
 */
static void put_error(struct ddp_text *out, const struct tail *tail, int rank)
{
	const struct errors *errors = tail->errors;
	const struct rank_error *error = &errors->last;
	struct rank_error found;
	char prefix[32] = "";

	rank_error_find(&found, tail->text.data, -1);
	if (strncmp(found.text, error->text, strlen(error->text)) == 0 ||
	    (!found.text[0] && error->prefix < 0 && has_printed_since(errors, errors->error_at)))
		return;
	if (error->prefix >= 0)
		snprintf(prefix, sizeof(prefix), "[rank%d]: ", error->prefix);
	ddp_text_add(out, "%s", out->data[out->size - 1] == '\n' ? "" : "\n");
	if (error->printed_by == LINE_TRACEBACK)
		ddp_text_add(out, "%sTraceback (most recent call last):\n  ...\n%s%s\n", prefix,
			     prefix, error->text);
	else if (error->printed_by == LINE_CPP)
		ddp_text_add(out, "  what():  %s\n", error->text);
	else
		ddp_text_add(out, "ddp[%d@]: %s\n", rank, error->text);
}

void tails_add(struct tails *tails, int rank, int stream, const char *bytes, size_t size)
{
	pthread_mutex_lock(&tails->lock);
	ddp_text_put(&tails->all, bytes, size);
	if (is_long(&tails->all))
		shorten(&tails->all);
	if (rank >= 0 && rank < RANKS) {
		struct tail *tail = tail_of(tails, rank);

		find_error(tail, stream, bytes, size);
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

void tails_text(struct tails *tails, int rank, struct ddp_text *out)
{
	pthread_mutex_lock(&tails->lock);
	if (rank == TAILS_ALL) {
		ddp_text_put(out, tails->all.data, tails->all.size);
	} else if (rank < tails->count && tails->tail[rank].text.size > 0) {
		ddp_text_put(out, tails->tail[rank].text.data, tails->tail[rank].text.size);
		put_error(out, &tails->tail[rank], rank);
	}
	pthread_mutex_unlock(&tails->lock);
}

int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error)
{
	struct ddp_text out = {.data = NULL};
	char name[32] = "tail.txt";
	int status = 0;

	if (rank != TAILS_ALL)
		snprintf(name, sizeof(name), "tail-%d.txt", rank);
	tails_text(tails, rank, &out);
	if (out.size > 0)
		status = ddp_file_write_text(dir, name, &out, error);
	ddp_text_free(&out);
	return status;
}

size_t tails_raised(struct tails *tails, double until, struct raised_rank **ranks)
{
	size_t count = 0;

	pthread_mutex_lock(&tails->lock);
	*ranks = ddp_xcalloc((size_t)tails->count + 1, sizeof(**ranks), "ranks with exceptions");
	for (int i = 0; i < tails->count; i++) {
		const struct errors *errors = tails->tail[i].errors;

		if (errors && errors->raised_at > 0 && errors->checked_at <= until)
			(*ranks)[count++] = (struct raised_rank){
				.rank = i,
				.at = errors->raised_at,
				.checked_at = errors->checked_at,
				.uncaught = errors->last.prefix >= 0,
				.printed = has_printed_since(errors, errors->raised_at),
				.active = has_printed_since(errors, errors->checked_at)};
	}
	pthread_mutex_unlock(&tails->lock);
	return count;
}

void tails_set_checked(struct tails *tails, const struct raised_rank *rank, double time)
{
	struct errors *errors;

	pthread_mutex_lock(&tails->lock);
	errors = tails->tail[rank->rank].errors;
	if (errors->raised_at == rank->at)
		errors->checked_at = time;
	pthread_mutex_unlock(&tails->lock);
}

/* --- Forwarding ---------------------------------------------------------------------------- */

/* Add bytes that [rank] wrote; -1: srun wrote them, or the rank is unknown. */
static void read_bytes(void *data, int rank, const char *bytes, size_t size)
{
	struct relay_stream *stream = data;
	struct relay *relay = stream->relay;

	/*
	 * Begin a message of srun on a new line. srun ended the rank's unfinished line with a
	 * newline, which was removed together with the label.
	 */
	if (stream->unfinished && rank < 0 && relay->output == OUTPUT_LABELLED) {
		stream->plain[stream->size++] = '\n';
		tails_add(relay->tails, TAILS_ALL, stream->to - 1, "\n", 1);
	}
	stream->unfinished = rank >= 0 && bytes[size - 1] != '\n';
	memcpy(stream->plain + stream->size, bytes, size);
	stream->size += size;
	tails_add(relay->tails, rank, stream->to - 1, bytes, size);
	/* Without labels, messages of srun are mixed with the output of rank 0. */
	if (stream->to == STDERR_FILENO)
		srun_parse_messages(relay->said, relay->output == OUTPUT_ONE_RANK ? -1 : rank,
				    bytes, size, stream->date);
}

static void check_failure(struct relay *relay)
{
	const struct srun_said *said = relay->said;
	bool task_ends_step = !said->mixed && !said->stays;

	if (relay->failed_at == 0 &&
	    (said->ending || srun_lost_node(said) || (task_ends_step && said->count > 0)))
		relay->failed_at = ddp_seconds();
}

/*
 * Each stream has its own thread, because a write blocks if the reader of ddp-run's output is slow.
 */
static void *relay_stream(void *data)
{
	struct relay_stream *stream = data;
	struct relay *relay = stream->relay;
	enum output output = relay->output;
	static _Thread_local char bytes[1 << 16], plain[sizeof(bytes) + sizeof(stream->labels)];
	bool writable = true;

	stream->plain = plain;
	for (;;) {
		struct pollfd wait = {.fd = stream->from, .events = POLLIN};
		bool over = relay->srun_ended;
		ssize_t n;

		/* A process that outlives srun may keep the pipe open. */
		if (poll(&wait, 1, over ? 0 : 100) == 0) {
			if (over)
				break;
			continue;
		}
		n = read(stream->from, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		relay->active_at = ddp_seconds();
		stream->date = ddp_date(NULL);
		stream->size = 0;
		if (output == OUTPUT_LABELLED || output == OUTPUT_KEEP_LABELS)
			srun_unlabel(&stream->labels, bytes, (size_t)n, read_bytes, stream);
		else
			read_bytes(stream, output == OUTPUT_ONE_RANK ? 0 : TAILS_ALL, bytes,
				   (size_t)n);
		tails_log(relay->tails);
		writable = writable &&
			   (output == OUTPUT_LABELLED
				    ? ddp_file_write_all(stream->to, plain, stream->size)
				    : ddp_file_write_all(stream->to, bytes, (size_t)n)) >= 0;
		if (stream->to == STDERR_FILENO)
			check_failure(relay);
	}
	return NULL;
}

void relay_start(struct relay *relay, const int from[2])
{
	for (int i = 0; i < 2; i++) {
		struct relay_stream *stream = &relay->stream[i];

		*stream = (struct relay_stream){.relay = relay, .from = from[i], .to = i + 1};
		stream->started = pthread_create(&stream->thread, NULL, relay_stream, stream) == 0;
		if (!stream->started)
			fprintf(stderr, "ddp-run: cannot start a thread for output: %s\n",
				strerror(errno));
	}
}

void relay_end(struct relay *relay)
{
	relay->srun_ended = true;
	for (int i = 0; i < 2; i++) {
		if (relay->stream[i].started)
			pthread_join(relay->stream[i].thread, NULL);
		if (relay->stream[i].relay)
			close(relay->stream[i].from);
	}
}
