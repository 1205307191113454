/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - the processes of a step on this node: what they do, which are left, who started this one
 *
 * Processes count only if they have the cluster's name, its slurm.conf and the node's name as this process has them: other clusters on the
 * host have jobs of the same number.
 */
#ifndef DDP_RUN_INSPECT_H
#define DDP_RUN_INSPECT_H

#include <stdbool.h>

/*
 * "ddp-run --gather DIR JOB STEP SECONDS", which nodes.h starts on each node: write what the ranks do, or what the node knows of ranks
 * that are gone, into DIR, whose files facts.h lists. Returns the exit status.
 */
int ddp_evidence_main(int argc, char **argv);

/*
 * "ddp-run --look|--sweep JOB STEP": look for processes of the step; --sweep kills them. Returns the exit status: 0 if there are any,
 * NODES_NO_PROCESS if there are none.
 */
int ddp_evidence_look_main(int argc, char **argv);

/* The name of this node, for Slurm. */
const char *inspect_node(void);

/*
 * The number of processes of [job] that the kernel killed for want of memory, by the job's cgroup. If there are any, write
 * memory-<node>.txt in [dir].
 */
long inspect_memory(const char *dir, const char *job);

/*
 * Whether this process was started by a task of step [step] of job [job], as far as /proc shows it. Variables do not show it: a job that was
 * submitted from inside a step inherits them.
 */
bool evidence_in_step(const char *job, const char *step);

/*
 * The variable by which a launcher other than srun says that this process is one of its ranks; NULL: there is none. A variable that the
 * job's script has too came with it from where the job was submitted.
 */
const char *evidence_launcher(void);

#endif /* DDP_RUN_INSPECT_H */
