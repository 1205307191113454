/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing.h - file descriptors from rank to rank
 *
 * Memory of a GPU is exported as a file descriptor that only SCM_RIGHTS can move. The leader listens on a
 * socket without a name in any file system, whose random name the others were told. Both ends look
 * who the other is (SO_PEERCRED): a process of another user gets and gives nothing. One connection
 * carries one letter; what is no letter ends its connection and harms no other.
 */
#ifndef DDP_DEVICE_PASSING_H
#define DDP_DEVICE_PASSING_H

#include <stddef.h>

#include "base/watch.h"

enum { DDP_PASSING_NAME = 48, DDP_PASSING_BYTES = 256 };

/* The leader's end. */
struct ddp_passing;

/* What goes with a descriptor. */
struct ddp_passing_letter {
	int32_t member; /* of the sender */
	int32_t number; /* of the thing that is passed, of the caller's choice */
	uint32_t bytes; /* of [room] that count */
	unsigned char room[DDP_PASSING_BYTES]; /* for a handle that is no descriptor, or nothing */
};

/*
 * The leader: begin to listen.
 * Returns 0 with [passing] and its [name] for the others; DDP_ERR_SYSTEM or DDP_ERR_MEMORY.
 */
int ddp_passing_listen(struct ddp_passing **passing, char name[DDP_PASSING_NAME],
		       struct ddp_error *error);

/*
 * The others: pass [fd], -1: none, with [letter]. The caller keeps its own descriptor, and may close it.
 * Does not wait until the leader receives; a letter that nobody receives is gone with the leader.
 * Returns 0; DDP_ERR_ARGUMENT; DDP_ERR_PEER where nobody listens; DDP_ERR_SYSTEM; or what ended the wait.
 */
int ddp_passing_send(const char *name, int fd, const struct ddp_passing_letter *letter,
		     const struct ddp_watch *watch, struct ddp_error *error);

/*
 * The leader: the next that comes, of whichever member. [fd] is the caller's then (close-on-exec); -1 where
 * there was none.
 * Returns 0; DDP_ERR_SYSTEM, after which this letter is lost; or what ended the wait.
 */
int ddp_passing_receive(struct ddp_passing *passing, int *fd, struct ddp_passing_letter *letter,
			const struct ddp_watch *watch, struct ddp_error *error);

/* NULL is legal. */
void ddp_passing_close(struct ddp_passing *passing);

#endif /* DDP_DEVICE_PASSING_H */
