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

/* Returns a number that is different in this process and in each of its ancestors. */
unsigned int ddp_fork_generation(void);

/* The result of ddp_fork_generation(), valid once this process or an ancestor has called it. */
extern unsigned int ddp_fork_number;

/*
 * Like socket() and accept4(), with SOCK_CLOEXEC and SOCK_NONBLOCK. In addition, a forked child
 * closes these sockets at once. Otherwise a connection would outlive this process, and the peer
 * would not detect the end of this process before the peer's time limit. ddp_fork_close_socket()
 * closes such a socket; if it is called in a child for a socket of the parent, it does nothing.
 */
int ddp_fork_socket(int domain, int type);
int ddp_fork_accept(int listener, struct sockaddr *address, socklen_t *size);
void ddp_fork_close_socket(int fd);

#endif /* DDP_BASE_FORK_H */
