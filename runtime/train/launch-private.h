/* SPDX-License-Identifier: Apache-2.0 */
/* launch-private.h - what launch.c stands on */
#ifndef TRAIN_LAUNCH_PRIVATE_H
#define TRAIN_LAUNCH_PRIVATE_H

#include <limits.h>
#include <stdbool.h>

/* --- CPUs (launch-cpus.c) ----------------------------------------------------------------- */

/* How many CPUs this process may use: 1 at least. */
int launch_cpus(void);

/*
 * From here on use part [rank] of [count] of these CPUs alone, whole cores where there are enough;
 * with more ranks than CPUs, some share one. Where that fails, nothing changes.
 */
void launch_bind(int rank, int count);

/* --- GPUs (launch-devices.c) -------------------------------------------------------------- */

/* How many GPUs, or slices of such, ranks on this machine may use. No device is opened. */
int launch_devices(void);

/*
 * In a rank before it is run: of MIG slices in CUDA_VISIBLE_DEVICES it sees its own alone, since a
 * process can use but one; other lists stay, and the rank's own is the one of its local rank.
 */
void launch_show_device(int rank);

/* What of each GPU this process may have (DDP_SHARE), 1: all. Returns false after a line on stderr: it is no part. */
bool launch_knows_share(double *share);

/*
 * In a rank before it is run, which is one of [count] on [devices] GPUs (0: not known, or none): where others
 * have the same one it gets, of [share], which is theirs together, a part as large as theirs.
 */
void launch_share_device(int rank, int count, int devices, double share);

/* --- The directory where the ranks meet (launch-directory.c) -------------------------------- */

struct launch_directory {
	char path[PATH_MAX];
	int lock; /* held as long as the launcher lives */
};

/*
 * Make one below TMPDIR or /tmp, and remove those of launchers that were killed.
 * Returns 0, or -1 after a line on stderr.
 */
int launch_directory_create(struct launch_directory *directory);
void launch_directory_destroy(struct launch_directory *directory);

#endif /* TRAIN_LAUNCH_PRIVATE_H */
