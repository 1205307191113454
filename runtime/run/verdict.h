/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - what went wrong in an attempt: its evidence and the one report
 *
 * All of it lies in the attempt's failure directory, <base>/.ddp/failed-<cluster>-<job>.<step>/, whose files facts.h lists: what the
 * plugin, libddp and frameworks left there, what ddp-run knows, and what is gathered here. Texts of ranks are
 * shown without the control characters that are in them.
 */
#ifndef DDP_RUN_VERDICT_H
#define DDP_RUN_VERDICT_H

#include <stdio.h>

#include "base/error.h"

/*
 * Judge the attempt that [dir] is about, write report.txt and report.json there and print the first on [screen], NULL:
 * nowhere. Slurm is asked about the nodes concerned, for five seconds at most, unless it was before. To be called
 * again, which is cheap, when attempt.json has more in it.
 * Returns 0, or DDP_ERR_FILE, DDP_ERR_MEMORY; what could be told was printed all the same.
 */
int ddp_verdict_write(const char *dir, FILE *screen, struct ddp_error *error);

/* Print the report on [dir] again, as ddp-run --explain: nobody is asked and nothing is written. Returns as above. */
int ddp_verdict_explain(const char *dir, FILE *screen, struct ddp_error *error);

/*
 * Where the attempt ended, in a line of [size] bytes at most: two attempts that have the same ended at the same point. It
 * is the first rank that failed, how, and its message, with "#" for numbers in that; "" where no rank stands out. [node] of
 * [node_size] bytes is that rank's; "": not known. NULL and 0: do not return it.
 */
int ddp_verdict_point(const char *dir, char *point, size_t size, char *node, size_t node_size,
		      struct ddp_error *error);

/*
 * While the ranks of step [job].[step] still are there: look at all of them on [nodes], names with commas between, by
 * one srun --overlap, for [limit] seconds at most; also after they are gone, for what the nodes know. What they
 * find goes into [dir].
 * Returns 0, or DDP_ERR_SYSTEM, DDP_ERR_TIMEOUT where some node did not answer; the others have then.
 */
int ddp_evidence_gather(const char *dir, const char *job, const char *step, const char *nodes,
			double limit, struct ddp_error *error);

/* What srun starts on each node for that: "ddp-run --gather DIR JOB STEP SECONDS". Returns the exit status. */
int ddp_evidence_main(int argc, char **argv);

/*
 * The same to see whether there are processes of a step, and with --sweep to kill them: "ddp-run --look|--sweep JOB
 * STEP". All three take only what has the cluster's name, its slurm.conf and the node's name as they have them: other
 * clusters on the host have jobs of the same number. Returns the exit status: 0 where there are, 3 where there are none.
 */
int ddp_evidence_look_main(int argc, char **argv);

/* Remove [dir] of an attempt that ended well, and the .ddp that it is in if that is empty then. */
void ddp_evidence_discard(const char *dir);

#endif /* DDP_RUN_VERDICT_H */
