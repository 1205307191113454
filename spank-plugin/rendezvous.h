/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous.h - the step's directory on shared storage
 *
 * srun makes it, looks after it and removes it, all as the user; the nodes only look. Every
 * step is taken relative to an open directory and follows no link, so nobody who can write
 * beside it can lead us elsewhere. The layout is described in contract.h.
 */
#ifndef DDP_RENDEZVOUS_H
#define DDP_RENDEZVOUS_H

#include <stdbool.h>

#include "core/channel.h"

/* What srun made, so that it can remove just that. Zeros, with parent -1, are "nothing". */
struct ddp_rendezvous {
	int parent; /* <base>/.ddp, open */
	char base[DDP_PATH_SIZE];
	unsigned made;		  /* how many components at the end of [base] we made */
	char name[DDP_PATH_SIZE]; /* of the step's directory in [parent] */
};

/*
 * Tell, without making anything, whether ddp_rendezvous_make below [base] could work.
 * Returns 0, or -1 with a message.
 */
int ddp_rendezvous_usable(const char *base, struct ddp_message *message);

/*
 * Make [base] (absolute; missing components are made), .ddp and the step's directory, set
 * [channel]->directory and write the record that [channel] then is. Under ddp-run also make the empty directory for
 * what goes wrong and set [channel]->failed: "" where that cannot be made, for then only a report is the poorer.
 * Returns 0, or -1 with a message and nothing left behind.
 */
int ddp_rendezvous_make(struct ddp_rendezvous *rdzv, const char *base, struct ddp_channel *channel,
			struct ddp_message *message);

/* In a task: say in [failed] that [rank] is this process on [node], if that can be written. */
void ddp_rendezvous_enlist(const char *failed, uint32_t rank, const char *node);

/* Remove the step's directory, and what was made above it if that is empty now. */
void ddp_rendezvous_remove(struct ddp_rendezvous *rdzv);

/*
 * Remove what earlier steps of this user on this cluster left beside ours: those whose srun is
 * gone from this host, or that are older than a day, if [ended] confirms it of their record. It is
 * asked four times at most, and not after half a second. A directory without a record is removed after a day; one
 * whose record cannot be read, or is of another release, stays.
 */
void ddp_rendezvous_sweep(const struct ddp_rendezvous *rdzv, const struct ddp_channel *channel,
			  bool (*ended)(uint32_t job, uint32_t step));

/*
 * On a node: check that [directory] is the one that the srun with [nonce] made, and that the user may write in it.
 * Waits up to two seconds for a file system that lags.
 * Returns 0, or -1 with a message that names path and reason.
 */
int ddp_rendezvous_check(const char *directory, const char *nonce, struct ddp_message *message);

/*
 * On a node of a later heterogeneous component: find the step's record below [base] by its
 * nonce. Waits up to two seconds.
 * Returns 0 with the record in [channel], or -1 with a message.
 */
int ddp_rendezvous_find(const char *base, const char *nonce, struct ddp_channel *channel,
			struct ddp_message *message);

/*
 * When process [pid] of this host began, in the kernel's clock ticks since boot.
 * Returns 0 where there is no such process.
 */
uint64_t ddp_process_began(uint32_t pid);

#endif /* DDP_RENDEZVOUS_H */
