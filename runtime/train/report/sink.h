/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - internal interface of the outputs (sinks) of report.c
 *
 * If a sink cannot write, it returns an error, which report.c prints once.
 */
#ifndef TRAIN_REPORT_SINK_H
#define TRAIN_REPORT_SINK_H

#include "base/text.h"
#include "report.h"

/* --- sink.c: sums and rates of intervals; formatting of numbers -------------------------- */

/* Adds [interval] to [sum]. Means are weighted by the number of samples. */
void sink_add(struct report_interval *sum, const struct report_interval *interval);

struct ddp_shown show_loss(double loss);	/* "0.0812", "nan" */
struct ddp_shown show_percent(double fraction); /* "98.03 %" */
struct ddp_shown show_seconds(double seconds);	/* "0.9 s", "4 min 05 s", "2 h 07 min" */
struct ddp_shown show_clock(double seconds);	/* "0:42", "1:02:03" */

/* Samples per second; 0 if nothing was measured. */
double sink_speed(const struct report_interval *interval);

/* Seconds of a rank's own work, without waiting for other ranks. */
double sink_work(const struct report_work *work);

/* --- live.c: a line on stderr that is rewritten in place -------------------------------- */

struct live;

/* [run] must stay valid until live_close(). The other functions accept NULL as [live]. */
struct live *live_open(const struct report_run *run);
void live_interval(struct live *live, const struct report_interval *interval);

/* Records how long an evaluation took, for the estimate of the remaining time. */
void live_epoch(struct live *live, const struct report_epoch *epoch);

/*
 * live_hide() removes the line, so that other output can be printed. live_show() prints it again.
 */
void live_hide(struct live *live);
void live_show(struct live *live);
void live_close(struct live *live);

/* --- stream.c: the run as JSON lines ----------------------------------------------------- */

/* Each of these functions adds one line to [out]. */
void stream_run(struct ddp_text *out, const struct report_run *run);
void stream_interval(struct ddp_text *out, const struct report_run *run,
		     const struct report_interval *interval);
void stream_epoch(struct ddp_text *out, const struct report_epoch *epoch,
		  const struct report_interval *part);
void stream_log(struct ddp_text *out, const char *line, bool warning);

/*
 * [all] is the sum of the run's intervals. Without end->reason the event is "now": the current
 * state of an unfinished run.
 */
void stream_end(struct ddp_text *out, const struct report_run *run, const struct report_end *end,
		const struct report_interval *all);

/* Adds the fields of an interval except those per rank. Each field starts with a comma. */
void stream_step(struct ddp_text *out, const struct report_interval *interval);

struct stream; /* writes lines to a file */

/* Opens [path]; "-": stdout. Returns 0 or DDP_ERR_FILE. */
int stream_open(struct stream **stream, const char *path, bool append, struct ddp_error *error);

/*
 * Writes complete [lines] in one call, so that a reader gets whole lines. Returns 0, DDP_ERR_FILE
 * or DDP_ERR_MEMORY.
 */
int stream_write(struct stream *stream, const struct ddp_text *lines, struct ddp_error *error);
int stream_close(struct stream *stream, struct ddp_error *error);

/* --- page.c: the run as one self-contained HTML file ------------------------------------ */

struct page;

/* Whether the file [path] is a page that shows the end of a finished training. */
bool page_is_finished(const char *path);

/*
 * page_open() creates the page. [path] and [run] must stay valid until page_close(). [line] is the
 * output of stream_run(). With [append], keeps the data of an existing page up to the step at which
 * [run] resumes. The other functions accept NULL as [page].
 */
struct page *page_open(const char *path, bool append, const struct report_run *run,
		       const struct ddp_text *line);
void page_interval(struct page *page, const struct report_interval *interval);

/* Add a line of the stream. */
void page_epoch(struct page *page, const struct ddp_text *line);
void page_log(struct page *page, const struct ddp_text *line);

/*
 * Writes the whole page. [line] is the output of stream_end() and the last line of the data. [last]
 * is set if no further write follows. Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY.
 */
int page_write(struct page *page, const struct ddp_text *line, bool last, struct ddp_error *error);
void page_close(struct page *page);

#endif /* TRAIN_REPORT_SINK_H */
