/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx-sockets.h - what UCX lacks over TCP: whom it may believe, and when it gives up
 *
 * UCX listens on every device and believes whoever connects: its protocol lets a connection
 * write to any address of the process. So nobody is let in who is not known:
 *
 *   - UCX accepts nothing at first; who connects waits in the kernel, unread.
 *   - Each rank tells the others from which address and port its own connections come, through
 *     the rendezvous, which nobody but the job's user can read or write.
 *   - Then UCX accepts, until all that were told of are there, and listens no more. What else was
 *     accepted is cut off, with all that it sent, before UCX has read a byte of it.
 *
 * This holds against everybody who can neither act as the job's user nor forge packets on the
 * way between two nodes. It hides nothing from who reads the wire. RDMA devices are not looked
 * at: who may use the fabric is believed there.
 */
#ifndef DDP_WIDE_UCX_SOCKETS_H
#define DDP_WIDE_UCX_SOCKETS_H

#include "base/log.h"
#include "base/watch.h"

/* Idle connections are probed after so many seconds, and so often. */
#define DDP_UCX_KEEP_IDLE 8
#define DDP_UCX_KEEP_INTERVAL 3
#define DDP_UCX_KEEP_COUNT 4

/* Ports that sockets of this process listen on. */
struct ddp_ucx_ports {
	int count;
	uint16_t list[64];
};

/* One end of a connection; IPv4 is mapped into IPv6. */
struct ddp_ucx_end {
	uint8_t address[16];
	int32_t rank; /* that comes from it, or is reached there */
	uint16_t port, zero;
};

struct ddp_ucx_ends {
	struct ddp_ucx_end *list;
	int count;
};

struct ddp_ucx_door {
	struct ddp_ucx_ports ports; /* that UCX listens on */
	struct ddp_ucx_ends there;  /* where the other ranks listen */
	struct ddp_ucx_ends guests; /* where connections of the other ranks come from */
	bool shut;
};

/* The ports that are listened on and are not among [others], which may be NULL. */
struct ddp_ucx_ports ddp_ucx_find_ports(const struct ddp_ucx_ports *others);

/*
 * Bound the time that the kernel tries to get through on sockets of UCX's; [ports]: those that it
 * listens on, or did.
 */
void ddp_ucx_bound_sockets(const struct ddp_ucx_ports *ports);

/* A number that two processes share if they have the same loopback device. */
uint64_t ddp_ucx_place(void);

bool ddp_ucx_is_loopback(const struct ddp_ucx_end *end);

/* Add a copy of [end], as [rank]'s. Returns 0 or DDP_ERR_MEMORY. */
int ddp_ucx_add_end(struct ddp_ucx_ends *ends, const struct ddp_ucx_end *end, int rank,
		    struct ddp_error *error);

/*
 * Have UCX's thread, which lets in who connects, do nothing else until the end of this pause: strangers who come
 * while UCX opens its devices could take all files of the process, and UCX stops listening where it has none.
 * Returns NULL, which the end takes too, where there is no pause to be had.
 */
struct ddp_ucx_pause *ddp_ucx_pause_begin(void);
void ddp_ucx_pause_end(struct ddp_ucx_pause *pause);

/*
 * Let nobody in yet who connects to door->ports, where [size] ranks may wait. Who waits already is a stranger, since no
 * rank knows the ports, and is turned away.
 */
void ddp_ucx_door_hold(const struct ddp_ucx_door *door, int size);

/* Add where UCX listens; where our connections to door->there come from, with whom they go to. */
int ddp_ucx_find_listeners(const struct ddp_ucx_door *door, struct ddp_ucx_ends *ends,
			   struct ddp_error *error);
int ddp_ucx_find_connections(const struct ddp_ucx_door *door, struct ddp_ucx_ends *ends,
			     struct ddp_error *error);

/*
 * Wait until all door->guests are in; ddp_ucx_door_shut() is to follow, also after an error.
 * DDP_ERR_TIMEOUT names who did not come.
 */
int ddp_ucx_door_open(const struct ddp_ucx_door *door, const struct ddp_watch *watch,
		      struct ddp_error *error);

/*
 * Listen no more and cut off who is no guest, which is told in one line. To be called before the
 * first progress of the worker; once is enough.
 */
void ddp_ucx_door_shut(struct ddp_ucx_door *door, const struct ddp_log *log);

/* Release what the door's lists hold. */
void ddp_ucx_door_free(struct ddp_ucx_door *door);

#endif /* DDP_WIDE_UCX_SOCKETS_H */
