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
 * Draw two random numbers, [channel]->nonce and [channel]->magic. They differ because NCCL sends
 * magic unencrypted.
 * Returns 0, or -1 with errno.
 */
int ddp_step_draw_secrets(struct ddp_channel *channel);

/*
 * Set [channel]->base, the absolute path (with placeholders) below which the rendezvous directory
 * is created, and [channel]->base_asked. [wanted] is the value of --ddp-rdzv, "" for none; [home]
 * is the user's home, or NULL.
 * Returns 0, or -1 with a message. [channel]->base is "" if [wanted] is "" and the working
 * directory is unknown.
 */
int ddp_step_choose_base(struct ddp_channel *channel, const char *wanted, const char *home,
			 struct ddp_message *message);

/*
 * Set [channel]->user, which replaces %u in [wanted]. If [wanted] has no %u, set it to the user's
 * number, since finding a name may query a server.
 */
void ddp_step_find_user(struct ddp_channel *channel, const char *wanted);

/*
 * Compute the port from the range of --ddp-port or of plugstack.conf. With [on_rank0s_node], this
 * process runs where rank 0 will listen, so ports in use are skipped.
 */
void ddp_step_choose_port(struct ddp_channel *channel, const struct ddp_values *values,
			  bool on_rank0s_node);

/* Set the fields of [channel] about [argv], the program of the tasks. */
void ddp_step_read_program(struct ddp_channel *channel, char *const *argv);

#endif /* DDP_STEP_CHOICES_H */
