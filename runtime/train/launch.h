/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - ranks without Slurm: for who used DataParallel
 */
#ifndef TRAIN_LAUNCH_H
#define TRAIN_LAUNCH_H

#include "train-options.h"

/*
 * Whether this process is a rank already: started by srun, torchrun or launch_ranks(). "srun -n1"
 * is: one rank, as asked for.
 */
bool launch_is_rank(void);

/* Whether launch_ranks() started it. */
bool launch_is_launched(void);

/*
 * Whether launch_ranks() started this rank without being told how many: the ranks are parts of
 * what would be one process, and share the samples of --batch.
 */
bool launch_shares_batch(void);

/*
 * How many ranks [options] ask for on this machine: 1 needs no launching. Returns -1 after a line
 * on stderr where they contradict who started this process.
 */
int launch_count(const struct options *options);

/* How many CPUs this process may use: 1 at least. */
int launch_cpus(void);

/*
 * How many GPUs of this machine the ranks that [options] ask for by number may use, perhaps less than ranks;
 * 0: none, or ranks were not given by number, and no two have the same GPU.
 */
int launch_gpus(const struct options *options);

/*
 * Run this program [count] times as the ranks of a world on this machine, each with its part of
 * the CPUs and one of [devices] GPUs (0: not known, or none), of its own where there are enough, and wait for
 * all; [shared] is for launch_shares_batch(). Signals are passed on; when a rank fails the others get the time to
 * say why, then they are ended; none is left behind, also where this process is killed, nor a file (where it is
 * killed: not beyond the next launch).
 * Returns the exit status for this process: of the first rank that failed, else 0.
 */
int launch_ranks(int count, int devices, bool shared, char **argv);

#endif /* TRAIN_LAUNCH_H */
