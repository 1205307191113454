/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.h - what the parts that handle the rendezvous directory share
 */
#ifndef DDP_DIRECTORY_H
#define DDP_DIRECTORY_H

#include <fcntl.h>

#include "core/channel.h"

/* How each directory below the base is opened: as one, and through no link. */
#define DDP_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/*
 * Open directory [name] in [at] if it is the user's own.
 * Returns a descriptor, or -1 with a message.
 */
int ddp_open_own(int at, const char *name, struct ddp_message *message);

/*
 * Read the step's record in the open directory [dir].
 * Returns 0, or -1 with a message.
 */
int ddp_read_record(int dir, struct ddp_channel *channel, struct ddp_message *message);

/* Remove directory [name] of [parent] and all that is in it; what cannot be removed stays. */
void ddp_remove_tree(int parent, const char *name);

#endif /* DDP_DIRECTORY_H */
