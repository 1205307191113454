/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h - srun's output: passed on, searched for srun's messages, its end kept for the report, and all of it for --logs
 */
#ifndef DDP_RUN_RELAY_H
#define DDP_RUN_RELAY_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "srun-output.h"

/* --- The last output of each rank. Several threads may call these at once. ----------------------- */

struct tails;

/* Write all output to files in directory [logs] as well; NULL: do not. */
struct tails *tails_create(const char *logs);
void tails_destroy(struct tails *tails);

enum { TAILS_ALL = -1 };

/* Add [size] bytes of [rank]; TAILS_ALL: the rank is not known. */
void tails_add(struct tails *tails, int rank, const char *bytes, size_t size);

/* Write to the files what was added. */
void tails_log(struct tails *tails);

/*
 * Write tail-<rank>.txt in [dir], if [rank] printed something; TAILS_ALL: tail.txt, with the output of all. Returns 0, or what
 * ddp_file_write() does.
 */
int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error);

/* --- Passing it on ------------------------------------------------------------------------------- */

/* What srun's output contains, and how the rank that wrote it is known. */
enum output {
	OUTPUT_LABELLED,    /* labels, which are removed */
	OUTPUT_KEEP_LABELS, /* labels that the user requested */
	OUTPUT_ONE_RANK,    /* the output of rank 0 */
	OUTPUT_MIXED,	    /* the output of all ranks: the rank is not known */
	OUTPUT_TERMINAL,    /* nothing: srun uses the terminal (--pty) */
};

struct relay {
	/* Set by the caller. */
	enum output output;
	struct tails *tails;
	struct srun_said *said;

	/* Times of ddp_seconds(). */
	_Atomic double active_at; /* of the last output */
	_Atomic double failed_at; /* of srun's first message that a rank or node failed; 0: none */

	atomic_bool srun_ended; /* read what the pipes still contain, and end */
	struct relay_stream {
		struct relay *relay;
		pthread_t thread;
		bool started;
		int from, to;
		struct srun_labels labels;
		double date; /* when the bytes came */
		char *plain; /* the bytes without labels */
		size_t size;
	} stream[2];
};

/* Start a thread for each of srun's streams [from], which relay_end() closes. */
void relay_start(struct relay *relay, const int from[2]);

/* After srun has ended: pass the rest on, and wait for the threads. */
void relay_end(struct relay *relay);

#endif /* DDP_RUN_RELAY_H */
