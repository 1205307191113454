/* SPDX-License-Identifier: Apache-2.0 */
/* step-choices.h - choices for a step, which both the plugin in srun and ddp-exec on rank 0 make */
#ifndef DDP_STEP_CHOICES_H
#define DDP_STEP_CHOICES_H

#include "channel.h"
#include "options.h"

/*
 * Read the numbers of restarts and the run's id, which ddp-run set in [env].
 * Returns 0, or -1 with a message.
 */
int ddp_step_read_run(struct ddp_channel *channel, char *const *env, struct ddp_message *message);

/* Remove ddp-run's variables from the environment, so that no task or other srun uses them. */
void ddp_step_drop_run(void);

/*
 * Draw two random numbers, [channel]->nonce and [channel]->magic. They must not be the same,
 * because NCCL sends [magic] unencrypted.
 * Returns 0, or -1 with errno.
 */
int ddp_step_draw_secrets(struct ddp_channel *channel);

/*
 * Set [channel]->base and [channel]->base_asked. [base] is the absolute path, with placeholders, in
 * which .ddp and the rendezvous directory are created. [wanted] is the value of --ddp-rdzv, or "".
 * [home] is the user's home directory, or NULL.
 * Returns 0, or -1 with a message. [channel]->base is "" if [wanted] is "" and the working
 * directory is unknown.
 */
int ddp_step_choose_base(struct ddp_channel *channel, const char *wanted, const char *home,
			 struct ddp_message *message);

/*
 * Set [channel]->user, the text for %u in [wanted]. If [wanted] has no %u, this is the user's
 * number, because a query for the name may need a server.
 */
void ddp_step_find_user(struct ddp_channel *channel, const char *wanted);

/*
 * Choose the port from the range of --ddp-port or of plugstack.conf. With [on_rank0s_node], this
 * process runs on the node where rank 0 will listen, so that ports in use can be skipped.
 */
void ddp_step_choose_port(struct ddp_channel *channel, const struct ddp_values *values,
			  bool on_rank0s_node);

/* Set the members of [channel] that describe [argv], the program of the tasks. */
void ddp_step_read_program(struct ddp_channel *channel, char *const *argv);

#endif /* DDP_STEP_CHOICES_H */
