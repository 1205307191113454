/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - the places that a report goes to, for report.c
 *
 * A sink that cannot write returns why; report.c tells it, once.
 */
#ifndef TRAIN_REPORT_SINK_H
#define TRAIN_REPORT_SINK_H

#include "base/text.h"
#include "report.h"

/* --- report.c: what several sinks derive from what they are told, and show alike ------------------------ */

/* Add [beat] to [sum], whose means are of its samples. */
void sink_add(struct report_beat *sum, const struct report_beat *beat);

struct ddp_shown show_loss(double loss);	/* "0.0812", "nan" */
struct ddp_shown show_percent(double fraction); /* "98.03 %" */
struct ddp_shown show_clock(double seconds);	/* "0:42", "1:02:03" */

/* Samples a second; 0 where nothing was measured. */
double sink_speed(const struct report_beat *beat);

/* Seconds that a rank worked, without waiting for others. */
double sink_work(const struct report_work *work);

/* --- live.c: one line of stderr, rewritten in place ------------------------------------- */

struct live;

/* [run] is read until close. NULL is legal below. */
struct live *live_open(const struct report_run *run);
void live_beat(struct live *live, const struct report_beat *beat);

/* How long an evaluation took: a part of the time left. */
void live_epoch(struct live *live, const struct report_epoch *epoch);

/* Take the line away before others write; show it again after. */
void live_hide(struct live *live);
void live_show(struct live *live);
void live_close(struct live *live);

/* --- stream.c: the run as JSON lines ----------------------------------------------------- */

/* Each adds a line. */
void stream_run(struct ddp_text *out, const struct report_run *run);
void stream_beat(struct ddp_text *out, const struct report_run *run,
		 const struct report_beat *beat);
void stream_epoch(struct ddp_text *out, const struct report_epoch *epoch,
		  const struct report_beat *part);
void stream_say(struct ddp_text *out, const char *line, bool warning);

/* [all]: the beats of the run. Without a reason the event is "now": how the run stands. */
void stream_end(struct ddp_text *out, const struct report_run *run, const struct report_end *end,
		const struct report_beat *all);

/* The fields of a beat without its ranks', each after a comma. */
void stream_step(struct ddp_text *out, const struct report_beat *beat);

struct stream; /* the lines in a file */

/* [path] "-": stdout. Returns 0 or DDP_ERR_FILE. */
int stream_open(struct stream **stream, const char *path, bool append, struct ddp_error *error);

/*
 * Write whole [lines] at once, so that a reader never waits for the rest of one.
 * Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY.
 */
int stream_write(struct stream *stream, const struct ddp_text *lines, struct ddp_error *error);
int stream_close(struct stream *stream, struct ddp_error *error);

/* --- page.c: the run as one HTML file that needs nothing else --------------------------- */

struct page;

/*
 * [path] and [run] are read until close. [line] is the stream's of the run. With [append] what the page in the
 * file tells up to [run]'s beginning is kept. NULL is legal below.
 */
struct page *page_open(const char *path, bool append, const struct report_run *run,
		       const struct ddp_text *line);
void page_beat(struct page *page, const struct report_beat *beat);

/* Lines of the stream. */
void page_epoch(struct page *page, const struct ddp_text *line);
void page_say(struct page *page, const struct ddp_text *line);

/*
 * Write the page as a whole, with [line] of the stream at its end, perhaps for the last time.
 * Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY.
 */
int page_write(struct page *page, const struct ddp_text *line, bool last, struct ddp_error *error);
void page_close(struct page *page);

#endif /* TRAIN_REPORT_SINK_H */
