/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - a log that programs read: an object a line, numbers in full */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "sink.h"

struct json_log {
	char *path;
	int fd;
	off_t size; /* bytes of whole lines in a regular file; -1: of another kind */
	struct text line;
};

/* --- Values ----------------------------------------------------------------------------- */

static void json_begin(struct json_log *log, const char *event)
{
	struct timespec now;
	struct tm utc;
	char date[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
	text_clear(&log->line);
	text_add(&log->line, "{\"event\": \"%s\", \"time\": \"%s.%03ldZ\"", event, date,
		 now.tv_nsec / 1000000);
}

static void json_number(struct json_log *log, const char *key, double number)
{
	text_add(&log->line, ", \"%s\": ", key);
	text_json_number(&log->line, number);
}

static void json_count(struct json_log *log, const char *key, uint64_t count)
{
	text_add(&log->line, ", \"%s\": %llu", key, (unsigned long long)count);
}

static void json_string(struct json_log *log, const char *key, const char *string)
{
	text_add(&log->line, ", \"%s\": ", key);
	if (string)
		text_json(&log->line, string);
	else
		text_add(&log->line, "null");
}

static void json_bool(struct json_log *log, const char *key, bool value)
{
	text_add(&log->line, ", \"%s\": %s", key, value ? "true" : "false");
}

static void json_places(struct json_log *log, const struct report_rank *ranks, int count)
{
	text_add(&log->line, ", \"ranks\": [");
	for (int rank = 0; ranks && rank < count; rank++) {
		text_add(&log->line, "%s{\"rank\": %d", rank ? ", " : "", rank);
		json_string(log, "node", ranks[rank].node);
		json_string(log, "device", ranks[rank].device);
		json_count(log, "threads", (uint64_t)ranks[rank].threads);
		text_add(&log->line, "}");
	}
	text_add(&log->line, "]");
}

static void json_work(struct json_log *log, const struct report_rank *ranks, int count)
{
	text_add(&log->line, ", \"ranks\": [");
	for (int rank = 0; ranks && rank < count; rank++) {
		const struct report_rank *one = &ranks[rank];

		text_add(&log->line, "%s{\"rank\": %d", rank ? ", " : "", rank);
		json_number(log, "data", one->seconds[ENGINE_DATA]);
		json_number(log, "compute", one->seconds[ENGINE_COMPUTE]);
		json_number(log, "all_reduce", one->seconds[ENGINE_REDUCE]);
		json_number(log, "evaluation", one->evaluation);
		json_count(log, "samples", one->samples);
		json_count(log, "resident", one->resident);
		text_add(&log->line, "}");
	}
	text_add(&log->line, "]");
}

/* --- The file --------------------------------------------------------------------------- */

/* A run that was killed may have left half a line: it goes. Returns -1 with errno set. */
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

static int open_file(struct json_log *log, const char *path, bool append)
{
	struct stat info;

	if (strcmp(path, "-") == 0) {
		log->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return log->fd;
	}
	/* Readable too, to look for half a line. */
	log->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (log->fd < 0 || fstat(log->fd, &info) < 0)
		return -1;
	if (!S_ISREG(info.st_mode))
		return 0;
	log->size = append ? info.st_size : 0;
	return append ? drop_half_line(log->fd, &log->size) : ftruncate(log->fd, 0);
}

int json_log_open(struct json_log **log, const char *path, bool append, struct ddp_error *error)
{
	int status;

	*log = calloc(1, sizeof(**log));
	if (*log)
		(*log)->path = strdup(path);
	if (!*log || !(*log)->path) {
		free(*log);
		*log = NULL;
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the log %s", path);
	}
	(*log)->size = -1;
	(*log)->fd = -1;
	if (open_file(*log, path, append) >= 0)
		return 0;
	status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write the log %s", path);
	json_log_close(*log, NULL);
	*log = NULL;
	return status;
}

/* End the line and write it at once, so that a reader never waits for the rest of one. */
static int json_finish(struct json_log *log, struct ddp_error *error)
{
	struct text *line = &log->line;
	int number;

	text_add(line, "}\n");
	if (line->failed)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a line of %s",
				     log->path);
	if (ddp_file_write_all(log->fd, line->data, line->size) == 0) {
		if (log->size >= 0)
			log->size += (off_t)line->size;
		return 0;
	}
	number = errno;
	if (log->size >= 0 && ftruncate(log->fd, log->size) < 0)
		log->size = -1;
	errno = number;
	return ddp_error_errno(error, DDP_ERR_FILE, "cannot write the log %s", log->path);
}

int json_log_close(struct json_log *log, struct ddp_error *error)
{
	int status = 0;

	if (!log)
		return 0;
	if (log->fd >= 0 && close(log->fd) < 0)
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write the log %s", log->path);
	text_free(&log->line);
	free(log->path);
	free(log);
	return status;
}

/* --- Events ----------------------------------------------------------------------------- */

int json_log_run(struct json_log *log, const struct report_run *run, struct ddp_error *error)
{
	if (!log)
		return 0;
	json_begin(log, "run");
	json_string(log, "title", run->title);
	json_string(log, "engine", run->engine);
	json_string(log, "job", run->job);
	json_string(log, "version", PACKAGE_VERSION);
	json_count(log, "size", (uint64_t)run->ranks);
	json_count(log, "nodes", (uint64_t)run->nodes);
	json_count(log, "epochs", run->epochs);
	json_count(log, "steps", run->steps);
	json_count(log, "batch", run->batch);
	json_count(log, "begin", run->begin);
	json_count(log, "end", sink_last_step(run));
	text_add(&log->line, ", \"configuration\": {");
	for (size_t i = 0; i < run->configuration_count; i++) {
		text_add(&log->line, "%s", i ? ", " : "");
		text_json(&log->line, run->configuration[i].key);
		text_add(&log->line, ": ");
		text_json(&log->line, run->configuration[i].value);
	}
	text_add(&log->line, "}");
	json_places(log, run->table, run->ranks);
	return json_finish(log, error);
}

int json_log_beat(struct json_log *log, const struct report_run *run,
		  const struct report_beat *beat, struct ddp_error *error)
{
	if (!log)
		return 0;
	json_begin(log, "step");
	json_count(log, "epoch", beat->epoch);
	json_count(log, "step", beat->step);
	json_count(log, "total", beat->total);
	json_number(log, "loss", beat->loss);
	json_number(log, "top1", beat->top1);
	json_number(log, "lr", beat->rate);
	if (beat->scale > 0)
		json_number(log, "scale", beat->scale);
	json_count(log, "samples", beat->samples);
	json_number(log, "seconds", beat->seconds);
	json_number(log, "images_per_second", sink_speed(beat->samples, beat->seconds));
	json_work(log, beat->ranks, run->ranks);
	return json_finish(log, error);
}

int json_log_epoch(struct json_log *log, const struct report_epoch *epoch, struct ddp_error *error)
{
	if (!log)
		return 0;
	json_begin(log, "epoch");
	json_count(log, "epoch", epoch->epoch);
	json_count(log, "total", epoch->total);
	json_number(log, "train_loss", epoch->train_loss);
	json_number(log, "train_top1", epoch->train_top1);
	json_count(log, "samples", epoch->samples);
	json_number(log, "seconds", epoch->seconds);
	json_bool(log, "evaluated", epoch->evaluated);
	if (epoch->evaluated) {
		json_number(log, "test_loss", epoch->loss);
		json_number(log, "test_top1", epoch->top1);
		json_number(log, "test_top5", epoch->top5);
		json_count(log, "test_samples", epoch->test_samples);
		json_number(log, "evaluation", epoch->evaluation);
		json_bool(log, "best", epoch->best);
	}
	return json_finish(log, error);
}

int json_log_say(struct json_log *log, const char *line, bool warning, struct ddp_error *error)
{
	if (!log)
		return 0;
	json_begin(log, "say");
	json_string(log, "text", line);
	json_bool(log, "warning", warning);
	return json_finish(log, error);
}

int json_log_end(struct json_log *log, const struct report_run *run, const struct report_end *end,
		 struct ddp_error *error)
{
	if (!log)
		return 0;
	json_begin(log, "end");
	json_string(log, "reason", end->reason);
	json_number(log, "best_top1", end->best_top1);
	json_count(log, "best_epoch", end->best_epoch);
	json_number(log, "seconds", end->seconds);
	json_count(log, "samples", end->samples);
	json_number(log, "images_per_second", sink_speed(end->samples, end->seconds));
	json_string(log, "checkpoint", end->checkpoint);
	json_string(log, "model", end->model);
	json_work(log, end->ranks, run->ranks);
	return json_finish(log, error);
}
