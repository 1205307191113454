/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - forward srun's output, parse srun's messages in it, and keep the output: its last part
 * for the report, and all of it for --logs
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
 * Add [size] bytes of output of [rank]; TAILS_ALL: rank unknown. [stream] is 0 for stdout and 1 for
 * stderr.
 */
void tails_add(struct tails *tails, int rank, int stream, const char *bytes, size_t size);

/* Write the output that was added since the last call to the files of --logs. */
void tails_log(struct tails *tails);

/*
 * Add to [out] the end of the output of [rank] and, unless it contains the error that ended its
 * program, that error. With TAILS_ALL, add the last output from all ranks.
 */
void tails_text(struct tails *tails, int rank, struct ddp_text *out);

/*
 * Write the text of tails_text(), if there is any, to tail-<rank>.txt or tail.txt in [dir]. Returns 0
 * or an error of ddp_file_write().
 */
int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error);

/* A rank that printed a traceback of Python. */
struct raised_rank {
	int rank;
	double at;	   /* time of the traceback, as returned by ddp_seconds() */
	double checked_at; /* time of the last check since [at]; [at] if there was none */
	bool uncaught;	   /* PyTorch's hook for uncaught exceptions printed it */
	bool printed;	   /* the rank has printed more since [at] */
	bool active;	   /* the rank has printed more since [checked_at] */
};

/*
 * Find the ranks whose last traceback and last check were at time [until] or earlier. Returns their
 * number and [ranks], to be freed with free().
 */
size_t tails_raised(struct tails *tails, double until, struct raised_rank **ranks);

/*
 * Set the time of the last check of [rank], unless the rank has printed another traceback since.
 * [time] is INFINITY if the rank needs no further check.
 */
void tails_set_checked(struct tails *tails, const struct raised_rank *rank, double time);

/* --- Forwarding ---------------------------------------------------------------------------- */

/* How ddp-run finds the rank that wrote a line of srun's output. */
enum output {
	OUTPUT_LABELLED,    /* by srun's labels, which are removed */
	OUTPUT_KEEP_LABELS, /* by labels that the user requested, which are kept */
	OUTPUT_ONE_RANK,    /* all output belongs to rank 0 */
	OUTPUT_MIXED,	    /* unknown: the output of all ranks is mixed */
	OUTPUT_TERMINAL,    /* there is no output to read: srun uses the terminal (--pty) */
};

struct relay {
	/* Set by the caller. */
	enum output output;
	struct tails *tails;
	struct srun_said *said;

	/* Times as returned by ddp_seconds(). */
	_Atomic double active_at; /* time of the last output */
	/* time of srun's first message about a failed rank or node; 0: none */
	_Atomic double failed_at;

	atomic_bool srun_ended; /* the threads read what is left in the pipes, and end */
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
