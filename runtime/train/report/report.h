/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - what people see of a training: a live line, a log, a table, a page, curves
 *
 * Rank 0 alone has a report; NULL is legal in all functions but open. The trainer tells what
 * happened; each sink (terminal, plain lines, JSON lines, TensorBoard, HTML page) shows it in its
 * own way.
 *
 * Lines go to stdout, the live line and warnings to stderr. A sink that cannot write (a full disk)
 * tells so once, on stderr, and tries on; training is never stopped by it.
 *
 * One rate is told everywhere: samples of all ranks by seconds of training, which evaluation and
 * checkpoints are left out of. Shares of right answers (top1, top5) are fractions, 0 to 1. What is
 * not finite is shown as nan or inf, and is null in JSON.
 */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "engine.h"

struct report;

/* Names of files are read until the report is closed. */
struct report_options {
	const char *json;   /* --log-json FILE, "-": stdout instead of lines; "": none */
	const char *page;   /* --report FILE; "": none */
	const char *events; /* directory of event files; "": none */
	bool live;	    /* a live line on stderr */
	bool quiet;	    /* no lines but warnings and the last table, no live line */
	bool append;	    /* a run that goes on: the JSON file and the page are added to */
	bool every;	    /* a line for each beat; else about twenty an epoch */
};

struct report_pair {
	const char *key, *value; /* configuration, in the order of the table of options */
};

/* Where a rank is. */
struct report_place {
	char node[64];
	char device[64]; /* "CPUs 0-1", "GPU 0" */
	int threads;
};

/* What a rank did, since the last beat or in the whole run. */
struct report_work {
	double seconds[ENGINE_PHASES];
	double evaluation; /* seconds of it */
	uint64_t samples;
	uint64_t resident; /* bytes, at most so far */
};

struct report_run {
	const char *title;   /* "mnist: 1,199,882 parameters, 60,000 drawn digits" */
	const char *command; /* the command line */
	const char *engine;  /* "cpu: oneDNN 2.6.3, AVX-512" */
	const char *job;
	int ranks, nodes;
	const struct report_pair *configuration;
	size_t configuration_count;
	unsigned epochs;
	uint64_t steps; /* of an epoch */
	size_t batch;	/* of all ranks */
	uint64_t begin; /* step at which this run goes on, 0: new */
	uint64_t end;	/* step at which it is over */
	/* Of each rank: read until the report is closed. What it did is since the run began. */
	const struct report_place *places;
	const struct report_work *work;
};

/* Since the last beat, over all ranks. */
struct report_beat {
	unsigned epoch;			/* from 1 */
	uint64_t step;			/* in the epoch, from 1 */
	uint64_t total;			/* since the beginning of the training */
	double loss, top1;		/* means over the samples since the last beat */
	double rate;			/* learning rate */
	double scale;			/* loss scale, 0: none */
	uint64_t samples;		/* since the last beat */
	double seconds;			/* of training, since the last beat */
	const struct report_work *work; /* of each rank; NULL: not known */
};

struct report_epoch {
	unsigned epoch;
	uint64_t total; /* steps since the beginning */
	double train_loss, train_top1;
	uint64_t samples; /* 0: nothing was trained */
	bool evaluated;
	double loss, top1, top5; /* of the test set */
	uint64_t test_samples;
	double evaluation; /* seconds */
	bool best;
};

struct report_end {
	const char *reason; /* "finished", "stopped by SIGTERM at step 120 of epoch 3" */
	double best_top1;
	unsigned best_epoch;
	double seconds; /* wall time of this run, evaluation and checkpoints included */
	const char *checkpoint, *model; /* paths; NULL: none */
};

/*
 * Begin all that [options] ask for: files are made, the lines about the run are printed. Texts of
 * [run] are read here alone.
 * Returns 0, or DDP_ERR_FILE (a file cannot be written; nothing was begun) or DDP_ERR_MEMORY.
 */
int report_open(struct report **report, const struct report_options *options,
		const struct report_run *run, struct ddp_error *error);
void report_beat(struct report *report, const struct report_beat *beat);

/* After the epoch's last beat. */
void report_epoch(struct report *report, const struct report_epoch *epoch);

/* A line of the log: checkpoint written, going on from, engine's choices. */
void report_say(struct report *report, const char *format, ...) DDP_FORMAT(2, 3);

/* A warning: one line on stderr, quiet or not, and in the log like those of report_say(). */
void report_warn(struct report *report, const char *format, ...) DDP_FORMAT(2, 3);
void report_end(struct report *report, const struct report_end *end);

/*
 * Without report_end() before, the page and the JSON file stay without an end, as after a crash.
 * Returns 0, or what could not be written, in [error]: it was also told at once.
 */
int report_close(struct report *report, struct ddp_error *error);

#endif /* TRAIN_REPORT_H */
