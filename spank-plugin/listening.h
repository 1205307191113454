/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listening.h - is a port taken?
 *
 * Asks the kernel for its listening sockets instead of binding: a bind would itself take the
 * port for a moment, and rank 0 may bind with options of its own. The question goes over
 * netlink, because reading /proc/net/tcp walks through every connection and takes milliseconds.
 */
#ifndef DDP_LISTENING_H
#define DDP_LISTENING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Tell whether a TCP socket of this network namespace listens on [port], and whose it is.
 * Returns true with the owner in [uid], or false; where the kernel does not say, false.
 */
bool ddp_port_listening(uint32_t port, uid_t *uid);

#endif /* DDP_LISTENING_H */
