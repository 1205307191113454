/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - find and inspect the processes of a step on this node
 *
 * Other clusters on this host may have jobs with the same numbers. Therefore a process counts only
 * if its cluster name, slurm.conf and node name are those of this process.
 */
#ifndef DDP_RUN_INSPECT_H
#define DDP_RUN_INSPECT_H

#include <dirent.h>
#include <stdbool.h>

/*
 * Returns the next number in a directory of processes or threads. At the end of the directory,
 * closes it and returns 0.
 */
long inspect_next_number(DIR *dir);

/*
 * "ddp-run --gather DIR JOB STEP SECONDS", which nodes_gather() starts on each node. Writes the
 * state of the ranks to DIR and, for ranks that are gone, what this node knows about them (facts.h
 * lists the files). Returns the exit status.
 */
int inspect_gather_main(char **argv);

/*
 * "ddp-run --look JOB STEP" and "ddp-run --sweep JOB STEP": find the processes of the step; --sweep
 * kills them. Returns the exit status: 0 if there are processes, NODES_NO_PROCESS if there are none.
 */
int inspect_look_main(char **argv);

/*
 * "ddp-run --programs JOB STEP RANKS SECONDS", which nodes_find_programs() starts on each node:
 * prints a line for each rank's program. Returns the exit status.
 */
int inspect_programs_main(char **argv);

/* Returns Slurm's name of this node. */
const char *inspect_node(void);

/*
 * Returns the number of processes of [job] that the kernel killed for lack of memory, from the
 * job's cgroup. If it is not 0, writes memory-<node>.txt to [dir].
 */
long inspect_memory(const char *dir, const char *job);

/*
 * Whether a task of step [step] of job [job] started this process, according to /proc. Environment
 * variables do not show that, because a job that was submitted from inside a step inherits them.
 */
bool inspect_in_step(const char *job, const char *step);

/*
 * Returns the variable by which a launcher other than srun marks this process as one of its ranks;
 * NULL: none. A variable that the job script also has does not count, because it was inherited from
 * the place where the job was submitted.
 */
const char *inspect_launcher(void);

#endif /* DDP_RUN_INSPECT_H */
