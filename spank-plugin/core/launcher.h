/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.h - programs that start the real ranks themselves
 *
 * mpirun inside a batch job runs "srun orted": that step has one daemon per node and no ranks,
 * and it inherits #SBATCH --ddp all the same.
 */
#ifndef DDP_CORE_LAUNCHER_H
#define DDP_CORE_LAUNCHER_H

#include <stdbool.h>

/*
 * Tell whether [program], a name or a path, is such a daemon.
 * Returns true or false.
 */
bool ddp_is_launcher(const char *program);

/*
 * Tell whether [program], a name or a path, comes with slurm-ddp and sums what ranks on one GPU
 * have without NCCL.
 * Returns true or false.
 */
bool ddp_is_ours(const char *program);

#endif /* DDP_CORE_LAUNCHER_H */
