/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - output about a training: live line, log, table, HTML page, JSON and TensorBoard files
 *
 * The directory report/ calls base/ and ddp.h's event files. Start reading in report.c. sink.h
 * declares the outputs (sinks).
 *
 * Only rank 0 has a report. All functions except report_open() do nothing for NULL. The trainer
 * reports events. Each sink (terminal, plain lines, JSON lines, TensorBoard, HTML page) formats the
 * events.
 *
 * Lines are written to stdout, the live line and warnings to stderr. If a sink cannot write, for
 * example because the disk is full, one warning is printed on stderr. The sink tries again at the
 * next event, and the training continues.
 *
 * Speed is the number of samples of all ranks per second of training, without evaluation and
 * checkpoints. Accuracies (top1, top5) are fractions from 0 to 1. Values that are not finite are
 * printed as nan or inf, and as null in JSON.
 *
 * An interval is the time between two progress reports, about a second (see throughput.h).
 */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "engine.h"

struct report;

/* File names must stay valid until the report is closed. */
struct report_options {
	/* FILE of --log-json, or "" without it. "-" is stdout, which then has no other lines. */
	const char *json;
	const char *page;   /* FILE of --report, or "" without it */
	const char *events; /* directory of event files, or "" for none */
	bool live;	    /* show the live line on stderr */
	bool quiet;	    /* print only warnings and the final table */
	bool append;	    /* append to the JSON file and the page, because the run is resumed */
	bool finished;	    /* nothing is left to train, so keep the page if it shows the end */
	bool every;	    /* print a line for every interval, not about twenty per epoch */
};

struct report_pair {
	const char *key, *value; /* name and value of a setting, in the order of the option table */
};

/* Location of a rank. */
struct report_place {
	char node[64];
	char device[64]; /* "CPUs 0-1", "GPU 0" */
	int threads;
};

/* Work that a rank has done, in the last interval or in the whole run. */
struct report_work {
	double seconds[ENGINE_PHASES];
	double evaluation; /* seconds in evaluations */
	uint64_t samples;
	uint64_t resident;   /* peak use of memory so far, in bytes */
	uint64_t next_steps; /* number of steps in the next interval; set by rank 0 */
};

struct report_run {
	const char *title; /* text such as "mnist: 1,199,882 parameters, 60,000 drawn digits" */
	const char *command;
	const char *engine; /* "cpu: oneDNN 2.6.3, AVX-512" */
	const char *job;
	int ranks, nodes;
	const struct report_pair *configuration;
	size_t configuration_count;
	unsigned epochs;
	uint64_t steps; /* number of steps in a whole epoch */
	size_t batch;	/* number of samples per step, of all ranks together */
	uint64_t begin; /* number of the step at which this run resumes, or 0 for a new run */
	uint64_t end;	/* number of the step at which this run ends */
	/*
	 * Arrays with an element for each rank. They must stay valid until the report is closed.
	 * [work] has the sums since the start of the run.
	 */
	const struct report_place *places;
	const struct report_work *work;
};

/* An interval, over all ranks. */
struct report_interval {
	unsigned epoch;			/* number of the epoch, from 1 */
	uint64_t step;			/* last step of the interval, counted from 1 in the epoch */
	uint64_t steps;			/* steps of this epoch; a resume can change the batch */
	uint64_t total;			/* last step, counted from the start of the training */
	double position;		/* last step, in epochs since the start of the training */
	double loss, top1;		/* means over the samples of the interval */
	double rate;			/* learning rate */
	double scale;			/* loss scale; 0: none */
	uint64_t samples;		/* samples in the interval */
	double seconds;			/* seconds of training in the interval */
	const struct report_work *work; /* work of each rank; NULL: unknown */
};

struct report_epoch {
	unsigned epoch;
	uint64_t total;	 /* steps since the start of the training */
	double position; /* [total] in epochs; not a whole number if --steps ended an epoch */
	double train_loss, train_top1;
	uint64_t samples; /* 0: this is the result of --evaluate, printed at the end */
	bool evaluated;
	double loss, top1, top5; /* results on the test set */
	uint64_t test_samples;
	double evaluation; /* seconds */
	bool best;
};

struct report_end {
	const char *reason; /* "finished", "stopped by SIGTERM at step 120 of epoch 3" */
	double best_top1;
	unsigned best_epoch;
	double seconds; /* wall time of this run, with evaluations and checkpoints */
	const char *checkpoint, *model; /* paths; NULL: none */
};

/*
 * Opens the sinks that [options] name: creates files and prints the lines about the run. Texts in
 * [run] are read only during the call. Returns 0, DDP_ERR_FILE (a file cannot be written; nothing
 * was opened) or DDP_ERR_MEMORY.
 */
int report_open(struct report **report, const struct report_options *options,
		const struct report_run *run, struct ddp_error *error);
void report_interval(struct report *report, const struct report_interval *interval);

/* Reports the end of an epoch. Must be called after the epoch's last interval was reported. */
void report_epoch(struct report *report, const struct report_epoch *epoch);

/* Adds a line to the log, for example about a checkpoint or a resume. */
void report_log(struct report *report, const char *format, ...) DDP_FORMAT(2, 3);

/* Prints a warning on stderr, even if options.quiet is set, and adds it to the log. */
void report_warn(struct report *report, const char *format, ...) DDP_FORMAT(2, 3);
void report_end(struct report *report, const struct report_end *end);

/*
 * Closes the report. If report_end() was not called before, the page and the JSON file look as
 * after a crash. Returns 0, or the status of the first write error with its text in [error]. That
 * error was already printed.
 */
int report_close(struct report *report, struct ddp_error *error);

#endif /* TRAIN_REPORT_H */
