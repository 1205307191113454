/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - the places that a report goes to, for report.c
 *
 * A sink that cannot write returns why; report.c tells it, once.
 */
#ifndef TRAIN_REPORT_SINK_H
#define TRAIN_REPORT_SINK_H

#include "report.h"
#include "text.h"

/* --- What several sinks derive from what they are told ---------------------------------- */

/* Samples a second; 0 where nothing was measured. */
static inline double sink_speed(uint64_t samples, double seconds)
{
	return seconds > 0 ? (double)samples / seconds : 0;
}

/* Seconds that [rank] worked, without waiting for others. */
static inline double sink_work(const struct report_rank *rank)
{
	return rank->seconds[ENGINE_DATA] + rank->seconds[ENGINE_COMPUTE];
}

/* The step at which the training ends. */
static inline uint64_t sink_last_step(const struct report_run *run)
{
	uint64_t all = run->epochs * run->steps;

	return run->limit && run->limit < all ? run->limit : all;
}

/*
 * The rank that takes longest by [work], a time of each rank; [excess] is by how much it takes
 * longer than the others do on average. Returns -1 if there is nothing to compare.
 */
int sink_slowest(const double *work, int count, double *excess);

/* --- The screen: live line, plain lines, table ------------------------------------------ */

struct live; /* one line of stderr, rewritten in place */

/* [wanted] as report_options.live. Returns 0 with NULL in [live] if there is to be none. */
int live_open(struct live **live, int wanted, const struct report_run *run);
void live_beat(struct live *live, const struct report_beat *beat);

/* How long an evaluation took: a part of the time left. */
void live_epoch(struct live *live, const struct report_epoch *epoch);

/* Take the line away before others write; show it again after. */
void live_hide(struct live *live);
void live_show(struct live *live);
void live_close(struct live *live);

void lines_run(struct text *out, const struct report_run *run);
void lines_beat(struct text *out, const struct report_run *run, const struct report_beat *beat);
void lines_epoch(struct text *out, const struct report_epoch *epoch);

/* Who did what, and where the results are: the last lines of a run. */
void table_end(struct text *out, const struct report_run *run, const struct report_options *options,
	       const struct report_end *end);

/* --- Files ------------------------------------------------------------------------------ */

struct json_log; /* an object a line */

/* [path] "-": stdout. Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY. */
int json_log_open(struct json_log **log, const char *path, bool append, struct ddp_error *error);

/* Each returns 0, or DDP_ERR_FILE if the line could not be written. NULL is legal. */
int json_log_run(struct json_log *log, const struct report_run *run, struct ddp_error *error);
int json_log_beat(struct json_log *log, const struct report_run *run,
		  const struct report_beat *beat, struct ddp_error *error);
int json_log_epoch(struct json_log *log, const struct report_epoch *epoch, struct ddp_error *error);
int json_log_say(struct json_log *log, const char *line, bool warning, struct ddp_error *error);
int json_log_end(struct json_log *log, const struct report_run *run, const struct report_end *end,
		 struct ddp_error *error);
int json_log_close(struct json_log *log, struct ddp_error *error);

void points_beat(struct ddp_events *events, const struct report_run *run,
		 const struct report_beat *beat);
void points_epoch(struct ddp_events *events, const struct report_epoch *epoch);

#endif /* TRAIN_REPORT_SINK_H */
