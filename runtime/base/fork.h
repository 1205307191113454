/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.h - keep a forked child from using handles and sockets of its parent
 *
 * A handle stores ddp_fork_generation() when it is created. If the number differs later, the process
 * is a child that inherited the handle. A child that does not run the handlers of pthread_atfork(),
 * such as one of vfork(), must only call exec.
 */
#ifndef DDP_BASE_FORK_H
#define DDP_BASE_FORK_H

#include <sys/socket.h>

/* Returns a number that differs between this process and each of its ancestors. */
unsigned int ddp_fork_generation(void);

/* Result of ddp_fork_generation(), once this process or an ancestor has called it. */
extern unsigned int ddp_fork_number;

/*
 * As socket() and accept4(), with SOCK_CLOEXEC and SOCK_NONBLOCK, for sockets that a forked child
 * closes at once. Otherwise a connection would outlive this process, and the peer would detect the
 * end of this process only at its time limit. ddp_fork_close_socket() closes such a socket of this
 * process; in a child it does nothing for a socket of the parent.
 */
int ddp_fork_socket(int domain, int type);
int ddp_fork_accept(int listener, struct sockaddr *address, socklen_t *size);
void ddp_fork_close_socket(int fd);

#endif /* DDP_BASE_FORK_H */
