/* SPDX-License-Identifier: Apache-2.0 */
/* step-choices.h - choices for a step that the plugin in srun and rank 0's ddp-exec make in the same way */
#ifndef DDP_STEP_CHOICES_H
#define DDP_STEP_CHOICES_H

#include "core/channel.h"
#include "options.h"

/*
 * Read the numbers of restarts and the run's id, which ddp-run set in [env].
 * Returns 0, or -1 with a message.
 */
int ddp_step_read_run(struct ddp_channel *channel, char *const *env, struct ddp_message *message);

/* Remove ddp-run's variables from the environment, so that no task or other srun uses them. */
void ddp_step_drop_run(void);

/*
 * Draw nonce and magic, two numbers, since NCCL sends its own one unencrypted.
 * Returns 0, or -1 with errno.
 */
int ddp_step_draw_secrets(struct ddp_channel *channel);

/*
 * Set base and base_asked: the directory below which the rendezvous is created, absolute, with
 * placeholders. [wanted] is the value of --ddp-rdzv, "" for none; [home] is the user's home, or
 * NULL.
 * Returns 0, or -1 with a message. base is "" if the working directory is unknown and [wanted] is
 * "".
 */
int ddp_step_choose_base(struct ddp_channel *channel, const char *wanted, const char *home,
			 struct ddp_message *message);

/*
 * Set the user's name for %u in [wanted]. Without %u it is the number, since a lookup may query a
 * server.
 */
void ddp_step_find_user(struct ddp_channel *channel, const char *wanted);

/*
 * Check that the user's MASTER_PORT in [env] is a port; otherwise rank 0 would fail much later.
 * Returns 0, or -1 with a message.
 */
int ddp_step_check_port(char *const *env, struct ddp_message *message);

void ddp_step_set_port(struct ddp_channel *channel, uint32_t port, uint32_t ras_port,
		       const char *from);

/*
 * Set the port: the user's MASTER_PORT in [env], else one of --ddp-port, else a computed one.
 * Returns true if a port reserved by Slurm takes precedence.
 */
bool ddp_step_choose_port(struct ddp_channel *channel, const struct ddp_values *values,
			  char *const *env, void (*say)(const char *format, ...));

#endif /* DDP_STEP_CHOICES_H */
