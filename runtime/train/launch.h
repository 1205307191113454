/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - start of ranks on this machine, without Slurm
 */
#ifndef TRAIN_LAUNCH_H
#define TRAIN_LAUNCH_H

#include "train-options.h"

/*
 * Whether this process is a rank that srun, torchrun or launch_ranks() has started. "srun -n1"
 * starts one rank.
 */
bool launch_is_rank(void);

/* Whether launch_ranks() started this process. */
bool launch_is_launched(void);

/*
 * Whether launch_ranks() started this process, and the user gave no number of ranks. Then --batch
 * is the batch of all ranks together.
 */
bool launch_shares_batch(void);

/*
 * Number of ranks that [options] request on this machine; 1: no launch. Returns -1 after an error
 * message if [options] conflict with the launcher that started this process.
 */
int launch_count(const struct options *options);

/* Number of CPUs that this process may use, at least 1. */
int launch_cpus(void);

/*
 * Number of this machine's GPUs if [options] give the number of ranks; there can be fewer GPUs than
 * ranks. 0: no GPU is used, or [options] leave the number of ranks to the launcher, which then
 * starts one rank per GPU.
 */
int launch_gpus(const struct options *options);

/*
 * Runs this program [count] times as the ranks of a world on this machine, and waits for all of
 * them. Each rank gets a part of the CPUs and one of [devices] GPUs. [devices] is 0 if the number
 * of GPUs is unknown or there are none. If there are fewer GPUs than ranks, ranks share GPUs. If
 * [shared] is set, launch_shares_batch() returns true in the ranks.
 *
 * Signals are passed on to the ranks. If a rank fails, the other ranks get 10 s to report the
 * failure and are then killed. No rank outlives this process, even if this process is killed. In
 * that case, the rendezvous directory is not removed.
 *
 * Returns the exit status for this process: that of the first rank that failed, or 0.
 */
int launch_ranks(int count, int devices, bool shared, char **argv);

#endif /* TRAIN_LAUNCH_H */
