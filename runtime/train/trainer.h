/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.h - one training from its options to its end
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "options.h"

/* Stopped early, on a signal or before the job's time ended; a checkpoint is written. */
enum { TRAINER_STOPPED = 3 };

/*
 * Train as rank of [ddp]. Collective.
 * Returns an exit status: 0, TRAINER_STOPPED, or ddp_exit_status() of what was told on stderr.
 */
int trainer_run(struct ddp *ddp, const struct options *options);

#endif /* TRAIN_TRAINER_H */
