/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starter.h - programs that people put between srun and their training
 *
 * torchrun, "accelerate launch" and deepspeed start ranks themselves, and a shell waits for commands. In some
 * steps each task of theirs then trains a world of its own, ends well, and nobody notices. Pure.
 */
#ifndef DDP_CORE_STARTER_H
#define DDP_CORE_STARTER_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

enum ddp_verdict {
	DDP_VERDICT_FINE,
	DDP_VERDICT_TELL,   /* what will happen, and what to write */
	DDP_VERDICT_REFUSE, /* the ranks that were asked for would not be one world */
};

/*
 * What becomes of the program [argv] in a step of [tasks] tasks on [nodes] nodes, where [env] is the user's and ddp-run
 * starts the step again [restarts] times, 0 without ddp-run.
 * Returns the verdict, with one line in [message] unless it is DDP_VERDICT_FINE.
 */
enum ddp_verdict ddp_starter_judge(char *const *argv, char *const *env, uint32_t tasks,
				   uint32_t nodes, uint32_t restarts, struct ddp_message *message);

/* Whether [argv] is torchrun --standalone: then a variable that names other nodes makes it wait for them. */
bool ddp_starter_is_standalone(char *const *argv);

#endif /* DDP_CORE_STARTER_H */
