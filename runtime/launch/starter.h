/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starter.h - recognize programs that users put between srun and their training program
 *
 * torchrun, "accelerate launch", deepspeed and mpirun start ranks themselves; srun starts a step; a
 * shell waits for commands. If each task runs such a program, the step can hang. Or each task
 * trains a separate world, and the mistake is not noticed. These functions do no I/O.
 */
#ifndef DDP_STARTER_H
#define DDP_STARTER_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

enum ddp_verdict {
	DDP_VERDICT_FINE,
	DDP_VERDICT_TELL,   /* print what will happen, and what to write instead */
	DDP_VERDICT_REFUSE, /* the requested ranks would not form one world, or would not start */
};

/*
 * Check the program [argv] in a step of [tasks] tasks on [nodes] nodes. [env] is the user's
 * environment. [restarts] is the number of times that ddp-run may restart the step, 0 without
 * ddp-run.
 * Returns the verdict, with one line in [message] unless it is DDP_VERDICT_FINE.
 */
enum ddp_verdict ddp_starter_judge(char *const *argv, char *const *env, uint32_t tasks,
				   uint32_t nodes, uint32_t restarts, struct ddp_message *message);

/*
 * Whether [argv] is torchrun --standalone, which would wait for other nodes if a variable named
 * them.
 */
bool ddp_starter_is_standalone(char *const *argv);

/* Whether [argv] is torchrun, "accelerate launch" or deepspeed. They can start a rank for each GPU. */
bool ddp_starter_starts_ranks(char *const *argv);

/*
 * Returns the value of --nproc-per-node if [argv] is torchrun, "" if the option is missing, and NULL
 * if [argv] is another program.
 */
const char *ddp_starter_nproc(char *const *argv);

/*
 * Returns whether [program], a name or a path, is a daemon that starts ranks itself. For example,
 * mpirun in a batch job runs "srun orted", a step with one daemon per node. Its tasks are no ranks,
 * although the step inherits #SBATCH --ddp.
 */
bool ddp_is_launcher(const char *program);

/*
 * Returns whether [program], a name or a path, is part of slurm-ddp. Such a program does not need
 * NCCL if ranks share a GPU.
 */
bool ddp_is_ours(const char *program);

#endif /* DDP_STARTER_H */
