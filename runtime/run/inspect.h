/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - find and inspect the processes of a step on this node
 *
 * Only processes with the same cluster name, slurm.conf and node name as this process count: other
 * clusters on the host have jobs with the same numbers.
 */
#ifndef DDP_RUN_INSPECT_H
#define DDP_RUN_INSPECT_H

#include <stdbool.h>

/*
 * "ddp-run --gather DIR JOB STEP SECONDS", which ddp_evidence_gather() starts on each node: write
 * the state of the ranks, or what the node knows about ranks that are gone, to DIR (files:
 * facts.h). Returns the exit status.
 */
int ddp_evidence_main(int argc, char **argv);

/*
 * "ddp-run --look|--sweep JOB STEP": find processes of the step; --sweep kills them. Returns the
 * exit status: 0 if there are any, NODES_NO_PROCESS if there are none.
 */
int ddp_evidence_look_main(int argc, char **argv);

/* Returns Slurm's name of this node. */
const char *inspect_node(void);

/*
 * Returns the number of processes of [job] that the kernel killed for lack of memory, counted by
 * the job's cgroup. If there are any, writes memory-<node>.txt to [dir].
 */
long inspect_memory(const char *dir, const char *job);

/*
 * Whether this process was started by a task of step [step] of job [job], according to /proc.
 * Environment variables do not show that: a job that was submitted from inside a step inherits
 * them.
 */
bool evidence_in_step(const char *job, const char *step);

/*
 * Returns the variable by which a launcher other than srun marks this process as one of its ranks;
 * NULL: there is none. A variable that the job script has, too, was inherited from where the job
 * was submitted, and does not count.
 */
const char *evidence_launcher(void);

#endif /* DDP_RUN_INSPECT_H */
