/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - the run as JSON, one object per line, with unrounded numbers
 *
 * --log-json writes all lines. An HTML page (page.c) has the same lines, but adjacent steps can be
 * merged there.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/xalloc.h"
#include "sink.h"

/* --- Values ----------------------------------------------------------------------------- */

static void begin(struct ddp_text *out, const char *event)
{
	struct timespec now;
	struct tm utc;
	char date[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
	ddp_text_add(out, "{\"event\": \"%s\", \"time\": \"%s.%03ldZ\"", event, date,
		     now.tv_nsec / 1000000);
}

static void put_places(struct ddp_text *out, const struct report_run *run)
{
	ddp_put_begin(out, "ranks", '[');
	for (int rank = 0; run->places && rank < run->ranks; rank++) {
		ddp_put_begin(out, NULL, '{');
		ddp_put_count(out, "rank", (uint64_t)rank);
		ddp_put_string(out, "node", run->places[rank].node);
		ddp_put_string(out, "device", run->places[rank].device);
		ddp_put_count(out, "threads", (uint64_t)run->places[rank].threads);
		ddp_text_add(out, "}");
	}
	ddp_text_add(out, "]");
}

static void put_work(struct ddp_text *out, const struct report_work *work, int ranks)
{
	ddp_put_begin(out, "ranks", '[');
	for (int rank = 0; work && rank < ranks; rank++) {
		ddp_put_begin(out, NULL, '{');
		ddp_put_count(out, "rank", (uint64_t)rank);
		ddp_put_number(out, "data", work[rank].seconds[ENGINE_DATA]);
		ddp_put_number(out, "compute", work[rank].seconds[ENGINE_COMPUTE]);
		ddp_put_number(out, "all_reduce", work[rank].seconds[ENGINE_REDUCE]);
		ddp_put_number(out, "evaluation", work[rank].evaluation);
		ddp_put_count(out, "samples", work[rank].samples);
		ddp_put_count(out, "resident", work[rank].resident);
		ddp_text_add(out, "}");
	}
	ddp_text_add(out, "]");
}

/* --- Events ----------------------------------------------------------------------------- */

void stream_run(struct ddp_text *out, const struct report_run *run)
{
	begin(out, "run");
	ddp_put_string(out, "title", run->title);
	ddp_put_string(out, "command", run->command);
	ddp_put_string(out, "engine", run->engine);
	ddp_put_string(out, "job", run->job);
	ddp_put_string(out, "version", PACKAGE_VERSION);
	ddp_put_count(out, "size", (uint64_t)run->ranks);
	ddp_put_count(out, "nodes", (uint64_t)run->nodes);
	ddp_put_count(out, "epochs", run->epochs);
	ddp_put_count(out, "steps", run->steps);
	ddp_put_count(out, "batch", run->batch);
	ddp_put_count(out, "begin", run->begin);
	ddp_put_count(out, "end", run->end);
	ddp_put_begin(out, "configuration", '{');
	for (size_t i = 0; i < run->configuration_count; i++)
		ddp_put_string(out, run->configuration[i].key, run->configuration[i].value);
	ddp_text_add(out, "}");
	put_places(out, run);
	ddp_text_add(out, "}\n");
}

void stream_step(struct ddp_text *out, const struct report_interval *interval)
{
	ddp_put_count(out, "epoch", interval->epoch);
	ddp_put_count(out, "step", interval->step);
	ddp_put_count(out, "total", interval->total);
	ddp_put_number(out, "loss", interval->loss);
	ddp_put_number(out, "top1", interval->top1);
	ddp_put_number(out, "lr", interval->rate);
	if (interval->scale > 0)
		ddp_put_number(out, "scale", interval->scale);
	ddp_put_number(out, "position", interval->position);
	ddp_put_count(out, "samples", interval->samples);
	ddp_put_number(out, "seconds", interval->seconds);
	ddp_put_number(out, "images_per_second", sink_speed(interval));
}

void stream_interval(struct ddp_text *out, const struct report_run *run,
		     const struct report_interval *interval)
{
	begin(out, "step");
	stream_step(out, interval);
	put_work(out, interval->work, run->ranks);
	ddp_text_add(out, "}\n");
}

void stream_epoch(struct ddp_text *out, const struct report_epoch *epoch,
		  const struct report_interval *part)
{
	begin(out, "epoch");
	ddp_put_count(out, "epoch", epoch->epoch);
	ddp_put_count(out, "total", epoch->total);
	ddp_put_number(out, "train_loss", epoch->train_loss);
	ddp_put_number(out, "train_top1", epoch->train_top1);
	ddp_put_number(out, "position", epoch->position);
	ddp_put_count(out, "samples", epoch->samples);
	ddp_put_number(out, "seconds", part->seconds);
	ddp_put_number(out, "images_per_second", sink_speed(part));
	ddp_put_bool(out, "evaluated", epoch->evaluated);
	if (epoch->evaluated) {
		ddp_put_number(out, "test_loss", epoch->loss);
		ddp_put_number(out, "test_top1", epoch->top1);
		ddp_put_number(out, "test_top5", epoch->top5);
		ddp_put_count(out, "test_samples", epoch->test_samples);
		ddp_put_number(out, "evaluation", epoch->evaluation);
		ddp_put_bool(out, "best", epoch->best);
	}
	ddp_text_add(out, "}\n");
}

void stream_log(struct ddp_text *out, const char *line, bool warning)
{
	begin(out, "say");
	ddp_put_string(out, "text", line);
	ddp_put_bool(out, "warning", warning);
	ddp_text_add(out, "}\n");
}

void stream_end(struct ddp_text *out, const struct report_run *run, const struct report_end *end,
		const struct report_interval *all)
{
	begin(out, end->reason ? "end" : "now");
	ddp_put_string(out, "reason", end->reason);
	ddp_put_number(out, "best_top1", end->best_top1);
	ddp_put_count(out, "best_epoch", end->best_epoch);
	ddp_put_number(out, "seconds", end->seconds);
	ddp_put_number(out, "training", all->seconds);
	ddp_put_count(out, "samples", all->samples);
	ddp_put_number(out, "images_per_second", sink_speed(all));
	ddp_put_string(out, "checkpoint", end->checkpoint);
	ddp_put_string(out, "model", end->model);
	put_work(out, run->work, run->ranks);
	ddp_text_add(out, "}\n");
}

/* --- The file --------------------------------------------------------------------------- */

struct stream {
	const char *path;
	int fd;
	off_t size; /* bytes of complete lines in a regular file; -1: another kind of file */
};

/*
 * Removes an incomplete line, which a killed run can leave at the end of the file. Returns -1 with
 * errno set on an error.
 */
static int drop_half_line(int fd, off_t *size)
{
	off_t end = *size;
	char last;

	for (; end > 0; end--) {
		if (pread(fd, &last, 1, end - 1) != 1)
			return -1;
		if (last == '\n')
			break;
	}
	if (end == *size)
		return 0;
	*size = end;
	return ftruncate(fd, end);
}

static int open_file(struct stream *stream, bool append)
{
	struct stat info;
	bool fifo;

	if (strcmp(stream->path, "-") == 0) {
		stream->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return stream->fd;
	}
	/*
	 * A regular file is opened for reading too, to find an incomplete line. A FIFO is opened
	 * for writing only: if this run could also read from the FIFO, writes would block after the
	 * real reader has ended.
	 */
	fifo = stat(stream->path, &info) == 0 && S_ISFIFO(info.st_mode);
	stream->fd = open(stream->path,
			  (fifo ? O_WRONLY | O_NONBLOCK : O_RDWR | O_CREAT | O_APPEND) | O_CLOEXEC,
			  0666);
	if (stream->fd < 0 || fstat(stream->fd, &info) < 0)
		return -1;
	if (fifo)
		return fcntl(stream->fd, F_SETFL, 0);
	if (!S_ISREG(info.st_mode))
		return 0;
	stream->size = append ? info.st_size : 0;
	return append ? drop_half_line(stream->fd, &stream->size) : ftruncate(stream->fd, 0);
}

static int log_error(const struct stream *stream, struct ddp_error *error)
{
	if (errno == ENXIO)
		return ddp_error_set(error, DDP_ERR_FILE,
				     "cannot write the log %s: no process reads this FIFO. Start "
				     "the reader first.",
				     stream->path);
	return ddp_error_errno(error, DDP_ERR_FILE, "cannot write the log %s", stream->path);
}

int stream_open(struct stream **opened, const char *path, bool append, struct ddp_error *error)
{
	struct stream *stream = ddp_xcalloc(1, sizeof(*stream), "a log");
	int status = 0;

	*opened = NULL;
	*stream = (struct stream){.path = path, .fd = -1, .size = -1};
	if (open_file(stream, append) < 0) {
		status = log_error(stream, error);
		stream_close(stream, NULL);
		return status;
	}
	*opened = stream;
	return 0;
}

int stream_write(struct stream *stream, const struct ddp_text *lines, struct ddp_error *error)
{
	int number;

	if (lines->failed)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a line of %s",
				     stream->path);
	if (ddp_file_write_all(stream->fd, lines->data, lines->size) == 0) {
		if (stream->size >= 0)
			stream->size += (off_t)lines->size;
		return 0;
	}
	number = errno;
	if (stream->size >= 0 && ftruncate(stream->fd, stream->size) < 0)
		stream->size = -1;
	errno = number;
	return log_error(stream, error);
}

int stream_close(struct stream *stream, struct ddp_error *error)
{
	int status = 0;

	if (!stream)
		return 0;
	if (stream->fd >= 0 && close(stream->fd) < 0)
		status = log_error(stream, error);
	free(stream);
	return status;
}
