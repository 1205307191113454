/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - forward srun's output, and parse srun's messages in it. Keep the last part of the
 * output for the report, and all of it for --logs.
 */
#ifndef DDP_RUN_RELAY_H
#define DDP_RUN_RELAY_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "srun-output.h"

/* --- The last output of each rank. Several threads may call these at once. ----------------- */

struct tails;

/* With [logs], also write all output to files in that directory; NULL: do not write files. */
struct tails *tails_create(const char *logs);
void tails_destroy(struct tails *tails);

enum { TAILS_ALL = -1 };

/*
 * Add [size] bytes of output of [rank], which is TAILS_ALL if the rank is unknown. [stream] is 0
 * for stdout and 1 for stderr.
 */
void tails_add(struct tails *tails, int rank, int stream, const char *bytes, size_t size);

/* Write to the files of --logs all output that was added since the last call. */
void tails_log(struct tails *tails);

/*
 * Add to [out] the last output of [rank]. If this does not contain the error that ended the rank's
 * program, also add this error. With TAILS_ALL, add the last output of all ranks.
 */
void tails_text(struct tails *tails, int rank, struct ddp_text *out);

/*
 * Write the text of tails_text() to tail-<rank>.txt or tail.txt in [dir], unless it is empty.
 * Returns 0 or an error of ddp_file_write().
 */
int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error);

/* A rank that printed a traceback of Python. */
struct raised_rank {
	int rank;
	double at;	   /* time of the traceback, as returned by ddp_seconds() */
	double checked_at; /* time of the last check after [at], or [at] before the first check */
	bool uncaught;	   /* PyTorch's hook for uncaught exceptions printed the traceback */
	bool printed;	   /* the rank has printed more since [at] */
	bool active;	   /* the rank has printed more since [checked_at] */
};

/*
 * Find the ranks whose last traceback and last check are not later than [until]. Returns their
 * number and sets [ranks], which the caller frees with free().
 */
size_t tails_raised(struct tails *tails, double until, struct raised_rank **ranks);

/*
 * Record that [rank] was checked at [time]. If the rank needs no further check, [time] is INFINITY.
 * Does nothing if the rank has printed another traceback since.
 */
void tails_set_checked(struct tails *tails, const struct raised_rank *rank, double time);

/* --- Forwarding ---------------------------------------------------------------------------- */

/* How ddp-run finds out which rank wrote a line of srun's output. */
enum output {
	OUTPUT_LABELLED,    /* srun labels the lines for ddp-run, which removes the labels */
	OUTPUT_KEEP_LABELS, /* the user requested labels, which are kept */
	OUTPUT_ONE_RANK,    /* all output belongs to rank 0 */
	OUTPUT_MIXED,	    /* the ranks are unknown, because their output is mixed */
	OUTPUT_TERMINAL,    /* srun uses the terminal (--pty), so ddp-run reads no output */
};

struct relay {
	/* Set by the caller. */
	enum output output;
	struct tails *tails;
	struct srun_said *said;

	/* Times as returned by ddp_seconds(). */
	_Atomic double active_at; /* time of the last output of the step */
	/* time of srun's first message that a rank or a node failed; 0: none yet */
	_Atomic double failed_at;

	atomic_bool srun_ended; /* the threads end after reading what is left in the pipes */
	struct relay_stream {
		struct relay *relay;
		pthread_t thread;
		bool started;
		int from, to;
		struct srun_labels labels;
		double date; /* time at which the bytes arrived */
		char *plain; /* the bytes without labels */
		size_t size;
		bool unfinished; /* a rank wrote the last bytes, without a newline */
	} stream[2];
};

/* Start a thread for each of srun's streams [from]. relay_end() closes the streams. */
void relay_start(struct relay *relay, const int from[2]);

/* After srun has ended: forward the remaining output, and wait for the threads. */
void relay_end(struct relay *relay);

#endif /* DDP_RUN_RELAY_H */
