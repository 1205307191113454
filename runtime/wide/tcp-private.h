/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp-private.h - declarations shared by the files of the TCP engine
 *
 * tcp-address.c chooses the address on which a rank listens. tcp-meet.c connects and authenticates
 * the ranks. tcp.c is the engine, which sends and receives messages.
 */
#ifndef DDP_WIDE_TCP_PRIVATE_H
#define DDP_WIDE_TCP_PRIVATE_H

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fork.h"
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
	/* name of the interface that has this address, or "" if it is unknown */
	char interface[IF_NAMESIZE];
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
 * 1. The address of the first interface that DDP_SOCKET_IFNAME selects or, if that is unset,
 *    NCCL_SOCKET_IFNAME. The list has NCCL's syntax: prefixes "eth,ib", exact names "=eth0,eth1",
 *    or exclusions "^docker,lo".
 * 2. Else the local address of the route to MASTER_ADDR. A loopback address is used only if
 *    MASTER_ADDR itself is one, because on rank 0's node alone, rank 0's name may resolve to a
 *    loopback address.
 * 3. Else the address of the first interface that is up and not a loopback.
 * 4. Else 127.0.0.1.
 * If an interface has IPv4 and IPv6 addresses, IPv4 is used.
 * Returns 0; DDP_ERR_ENVIRONMENT if no interface that is up matches the user's list.
 */
int ddp_tcp_address_choose(struct ddp_tcp_address *address, struct ddp_error *error);

struct ifaddrs;

/*
 * Returns whether an entry of getifaddrs() is up and has an address that other nodes can reach:
 * IPv4, or an IPv6 address that is not link-local.
 */
bool ddp_tcp_can_use(const struct ifaddrs *interface);

/* Write the network of [address], such as "10.0.0.0/24". [address] must be one of this node's. */
void ddp_tcp_network_text(const struct ddp_tcp_address *address, char text[static DDP_TCP_TEXT]);

/*
 * Open a socket that listens on [address], and set the port in [address]. If DDP_TCP_PORTS is set,
 * the port is a free one of that range; else the kernel chooses it. Returns the descriptor;
 * DDP_ERR_ENVIRONMENT if DDP_TCP_PORTS is malformed or has no free port; DDP_ERR_ENGINE if the
 * system refuses.
 */
int ddp_tcp_listen(struct ddp_tcp_address *address, struct ddp_error *error);

/* --- tcp-meet.c ---------------------------------------------------------------------------- */

/* Data that a rank publishes in the store, which only ranks of its job can read. */
struct ddp_tcp_card {
	uint64_t magic;		       /* DDP_TCP_MAGIC */
	uint8_t secret[DDP_HASH_SIZE]; /* random secret, drawn at each start */
	struct ddp_tcp_address address;
	char node[64];
};

/* Change this number when the protocol changes. */
#define DDP_TCP_MAGIC UINT64_C(0x3170637470646464)

/* A partner of this rank, and the socket that is connected to it. */
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
 * Connect this rank to all partners of [meeting], which call this function at the same time. Then
 * close meeting->listener and set it to -1.
 * Returns 0, with a non-blocking socket in the entry of each partner; DDP_ERR_TIMEOUT or
 * DDP_ERR_ENGINE, with a text that names the partner, its node, address and port, and this rank's
 * interface; or the watch's error. The caller must always close the sockets.
 */
int ddp_tcp_meet(struct ddp_tcp_meeting *meeting, struct ddp_error *error);

#endif /* DDP_WIDE_TCP_PRIVATE_H */
