/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous.h - the step's directory on shared storage
 *
 * srun creates and removes the directory as the user, and also removes directories of earlier
 * steps. The nodes only check the directory. Every access to the file system is relative to an open
 * directory and follows no link. So a user who can write to a parent directory cannot redirect the
 * access. contract.h describes the layout.
 */
#ifndef DDP_RENDEZVOUS_H
#define DDP_RENDEZVOUS_H

#include <stdbool.h>

#include "channel.h"

/*
 * The directories that srun created, so that it removes no others. If there are none, parent is -1
 * and the other members are zeros.
 */
struct ddp_rendezvous {
	int parent; /* descriptor of <base>/.ddp */
	char base[DDP_PATH_SIZE];
	unsigned made;		  /* number of components at the end of [base] that srun created */
	char name[DDP_PATH_SIZE]; /* name of the step's directory in [parent] */
};

/*
 * Check, without creating anything, whether ddp_rendezvous_make() below [base] can succeed.
 * Returns 0, or -1 with a message.
 */
int ddp_rendezvous_usable(const char *base, struct ddp_message *message);

/*
 * Create .ddp in the existing directory [base], and check that this user can write to it.
 * Returns 0, or -1 with a message.
 */
int ddp_rendezvous_make_parent(const char *base, struct ddp_message *message);

/*
 * Create the directory with the absolute path [base], .ddp in it, and the step's directory in that.
 * Set [channel]->directory to the step's directory, and write [channel] there as the step's record.
 * Under ddp-run, also create the directory for failure records and set [channel]->failed. If that
 * fails, [channel]->failed is "", and ddp-run's report has less detail.
 * Returns 0. On an error, removes everything that was created, and returns -1 with a message.
 */
int ddp_rendezvous_make(struct ddp_rendezvous *rdzv, const char *base, struct ddp_channel *channel,
			struct ddp_message *message);

/*
 * In a task: write a record to [failed] that this process on [node] is [rank]. Errors are ignored.
 */
void ddp_rendezvous_enlist(const char *failed, uint32_t rank, const char *node);

/* Remove the step's directory, and the directories created above it if they are empty. */
void ddp_rendezvous_remove(struct ddp_rendezvous *rdzv);

/*
 * Remove directories that earlier steps of this user on this cluster left in the same .ddp.
 * Candidates are steps whose srun on this host has ended, steps older than a day, and steps that
 * ddp-exec set up; a candidate is removed if [ended] returns true for it. [ended] is called at most
 * four times, within half a second. A directory without a record is removed after a day. A
 * directory whose record cannot be read or is from another release is kept.
 */
void ddp_rendezvous_sweep(const struct ddp_rendezvous *rdzv, const struct ddp_channel *channel,
			  bool (*ended)(uint32_t job, uint32_t step));

/*
 * On a node: check that the srun with [nonce] created [directory], and that the user can write to
 * it. Waits up to two seconds, because a file system may show changes late.
 * Returns 0, or -1 with a message that names the path and the reason.
 */
int ddp_rendezvous_check(const char *directory, const char *nonce, struct ddp_message *message);

/*
 * Returns the time at which process [pid] of this host started, in clock ticks since boot, or 0 if
 * the process does not exist.
 */
uint64_t ddp_process_began(uint32_t pid);

#endif /* DDP_RENDEZVOUS_H */
