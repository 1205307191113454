/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp-private.h - declarations that the files of the TCP engine share
 *
 * tcp-address.c chooses the address on which a rank listens, tcp-meet.c connects and authenticates
 * the ranks, tcp.c is the engine and moves messages.
 */
#ifndef DDP_WIDE_TCP_PRIVATE_H
#define DDP_WIDE_TCP_PRIVATE_H

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/keyed-hash.h"
#include "host.h"

extern const struct ddp_host_engine ddp_tcp_engine;

/* --- tcp-address.c ------------------------------------------------------------------------- */

struct ddp_tcp_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	char interface[IF_NAMESIZE]; /* interface with this address; "": unknown */
};

enum { DDP_TCP_TEXT = INET6_ADDRSTRLEN + 8 };

socklen_t ddp_tcp_address_size(const struct ddp_tcp_address *address);

/* Write "10.0.0.7:4242" or "[fd00::7]:4242" to [text]. Returns [text]. */
const char *ddp_tcp_address_text(const struct ddp_tcp_address *address,
				 char text[static DDP_TCP_TEXT]);

/* Compare two addresses without their ports. */
bool ddp_tcp_same_host(const struct ddp_tcp_address *a, const struct ddp_tcp_address *b);

/*
 * Choose this rank's address, without a port:
 * 1. of the first interface that DDP_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME names, in NCCL's
 *    syntax: prefixes "eth,ib", exact names "=eth0,eth1", or all but these "^docker,lo";
 * 2. else the local address of the route to MASTER_ADDR, unless that is a loopback address that
 *    MASTER_ADDR does not spell out: rank 0's own name may resolve to one on its node alone;
 * 3. else of the first interface that is up and not a loopback;
 * 4. else 127.0.0.1.
 * IPv4 addresses are preferred on an interface that has both.
 * Returns 0; DDP_ERR_ENVIRONMENT if no interface that is up matches the user's list.
 */
int ddp_tcp_address_choose(struct ddp_tcp_address *address, struct ddp_error *error);

struct ifaddrs;

/*
 * Whether an entry of getifaddrs() is up and has an address that other nodes may reach: IPv4 or
 * IPv6, not link-local.
 */
bool ddp_tcp_can_use(const struct ifaddrs *interface);

/* Write the network of [address], an address of this node, such as "10.0.0.0/24". */
void ddp_tcp_network_text(const struct ddp_tcp_address *address, char text[static DDP_TCP_TEXT]);

/*
 * Open a socket that listens on [address]: on a free port in DDP_TCP_PORTS, if that is set, else on
 * one that the kernel chooses. Sets the port in [address]. Returns the descriptor;
 * DDP_ERR_ENVIRONMENT if DDP_TCP_PORTS is malformed or has no free port; DDP_ERR_ENGINE if the
 * system refuses.
 */
int ddp_tcp_listen(struct ddp_tcp_address *address, struct ddp_error *error);

/* --- tcp-meet.c ---------------------------------------------------------------------------- */

/* Data that a rank publishes in the store, which only ranks of its job can read. */
struct ddp_tcp_card {
	uint64_t magic;		       /* DDP_TCP_MAGIC */
	uint8_t secret[DDP_HASH_SIZE]; /* random, new at each start */
	struct ddp_tcp_address address;
	char node[64];
};

/* Must change with the protocol. */
#define DDP_TCP_MAGIC UINT64_C(0x3170637470646464)

/* A partner of this rank, and the socket once connected. */
struct ddp_tcp_partner {
	int rank;
	int fd; /* -1: not connected yet */
	struct ddp_tcp_card card;
};

struct ddp_tcp_meeting {
	int rank;
	struct ddp_tcp_card own;
	int listener;
	struct ddp_tcp_partner *partners;
	int count;
	const struct ddp_watch *watch;
	const struct ddp_log *log;
};

/*
 * Connect this rank and all partners of [meeting], which do the same at the same time; then close
 * meeting->listener and set it to -1.
 * Returns 0 with a non-blocking socket in each partner; DDP_ERR_TIMEOUT or DDP_ERR_ENGINE with a
 * text that names the partner, its node, address and port, and the interface here; or what the watch
 * returned. The caller closes the sockets in each case.
 */
int ddp_tcp_meet(struct ddp_tcp_meeting *meeting, struct ddp_error *error);

#endif /* DDP_WIDE_TCP_PRIVATE_H */
