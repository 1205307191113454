/* SPDX-License-Identifier: Apache-2.0 */
/* fork.c - fork() handlers, which count process generations and close sockets in the child */
#include "config.h"

#include "fork.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

unsigned int ddp_fork_number;

/*
 * Lock that is held from the creation of a socket until the socket is in [sockets], so that no
 * fork() happens in between.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *sockets;
static size_t count, capacity;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
	ddp_fork_number++;
	while (count > 0)
		close(sockets[--count]);
	after_fork();
}

static void handle_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

unsigned int ddp_fork_generation(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, handle_forks);
	return ddp_fork_number;
}

/*
 * Lock [sockets], and make space for one more. Returns false, with errno set, if memory is short.
 */
static bool begin(void)
{
	size_t more = 2 * capacity + 64;
	int *list;

	(void)ddp_fork_generation();
	pthread_mutex_lock(&lock);
	if (count < capacity)
		return true;
	list = reallocarray(sockets, more, sizeof(*sockets));
	if (!list)
		return false;
	sockets = list;
	capacity = more;
	return true;
}

/* Add [fd] to [sockets] unless it is -1. Returns [fd], with errno unchanged. */
static int end(int fd)
{
	if (fd >= 0)
		sockets[count++] = fd;
	pthread_mutex_unlock(&lock);
	return fd;
}

int ddp_fork_socket(int domain, int type)
{
	return end(begin() ? socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1);
}

int ddp_fork_accept(int listener, struct sockaddr *address, socklen_t *size)
{
	return end(begin() ? accept4(listener, address, size, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1);
}

void ddp_fork_close_socket(int fd)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		if (sockets[i] == fd) {
			sockets[i] = sockets[--count];
			close(fd);
			break;
		}
	pthread_mutex_unlock(&lock);
}
