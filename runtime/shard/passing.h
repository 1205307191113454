/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing.h - file descriptors from rank to rank
 *
 * Memory of a GPU is exported as a file descriptor that only SCM_RIGHTS can move. The leader listens on a
 * socket without a name in any file system, whose random name the others were told; it takes
 * descriptors from processes of its own user alone (SO_PEERCRED).
 */
#ifndef DDP_SHARD_PASSING_H
#define DDP_SHARD_PASSING_H

#include <stddef.h>

#include "base/watch.h"

enum { DDP_PASSING_NAME = 48, DDP_PASSING_BYTES = 256 };

/* What goes with a descriptor. */
struct ddp_passing_letter {
	int32_t member; /* of the sender */
	int32_t number; /* of the thing that is passed, of the caller's choice */
	uint32_t bytes; /* of [room] that count */
	unsigned char room[DDP_PASSING_BYTES]; /* for a handle that is no descriptor, or nothing */
};

/*
 * The leader: begin to listen.
 * Returns the socket (>= 0) with its [name] for the others; or DDP_ERR_SYSTEM.
 */
int ddp_passing_listen(char name[DDP_PASSING_NAME], struct ddp_error *error);

/* The others: pass [fd], -1: none, with [letter]. The caller keeps its own descriptor. */
int ddp_passing_send(const char *name, int fd, const struct ddp_passing_letter *letter,
		     const struct ddp_watch *watch, struct ddp_error *error);

/* The leader: the next that comes, [fd] is the caller's then; -1 where there was none. */
int ddp_passing_receive(int socket, int *fd, struct ddp_passing_letter *letter,
			const struct ddp_watch *watch, struct ddp_error *error);

void ddp_passing_close(int socket);

#endif /* DDP_SHARD_PASSING_H */
