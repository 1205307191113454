/* SPDX-License-Identifier: Apache-2.0 */
/* tcp-address.c - choose the address on which a rank of the TCP engine listens */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "tcp-private.h"

socklen_t ddp_tcp_address_size(const struct ddp_tcp_address *address)
{
	return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

static in_port_t *port_of(struct ddp_tcp_address *address)
{
	return address->any.sa_family == AF_INET ? &address->v4.sin_port : &address->v6.sin6_port;
}

const char *ddp_tcp_address_text(const struct ddp_tcp_address *address,
				 char text[static DDP_TCP_TEXT])
{
	bool v4 = address->any.sa_family == AF_INET;
	char host[INET6_ADDRSTRLEN] = "?";
	const void *binary =
		v4 ? (const void *)&address->v4.sin_addr : (const void *)&address->v6.sin6_addr;

	inet_ntop(address->any.sa_family, binary, host, sizeof(host));
	snprintf(text, DDP_TCP_TEXT, v4 ? "%s:%u" : "[%s]:%u", host,
		 ntohs(v4 ? address->v4.sin_port : address->v6.sin6_port));
	return text;
}

static bool is_loopback(const struct ddp_tcp_address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr) &&
		address->v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

bool ddp_tcp_same_host(const struct ddp_tcp_address *a, const struct ddp_tcp_address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET)
		return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
}

/* --- Interfaces ---------------------------------------------------------------------------- */

/* Returns whether [list], which has NCCL's syntax, selects the interface [name]. */
static bool list_selects(const char *list, const char *name)
{
	bool excludes = *list == '^', exact = false;

	list += excludes;
	exact = *list == '=';
	list += exact;
	while (*list) {
		size_t length = strcspn(list, ",");

		if (length && strncmp(list, name, length) == 0 && (!exact || !name[length]))
			return !excludes;
		list += length;
		list += *list == ',';
	}
	return excludes;
}

bool ddp_tcp_can_use(const struct ifaddrs *interface)
{
	const struct sockaddr *address = interface->ifa_addr;

	if (!address || !(interface->ifa_flags & IFF_UP))
		return false;
	if (address->sa_family == AF_INET)
		return true;
	return address->sa_family == AF_INET6 &&
	       !IN6_IS_ADDR_LINKLOCAL(
		       &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static void copy_address(struct ddp_tcp_address *address, const struct ifaddrs *interface)
{
	memset(address, 0, sizeof(*address));
	memcpy(&address->any, interface->ifa_addr,
	       interface->ifa_addr->sa_family == AF_INET ? sizeof(address->v4)
							 : sizeof(address->v6));
	snprintf(address->interface, sizeof(address->interface), "%s", interface->ifa_name);
}

/*
 * Set [address] to the address of the first interface that [list] selects. If [list] is NULL, every
 * interface except a loopback is selected. Returns whether an interface is selected.
 */
static bool find_interface(const struct ifaddrs *interfaces, const char *list,
			   struct ddp_tcp_address *address)
{
	const struct ifaddrs *found = NULL;

	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		bool loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;

		/* Skip the loopback if [list] is an exclusion list, which begins with "^". */
		if (!ddp_tcp_can_use(i) || (list && !list_selects(list, i->ifa_name)) ||
		    (loopback && (!list || *list == '^')))
			continue;
		if (!found)
			found = i;
		if (strcmp(found->ifa_name, i->ifa_name) == 0 &&
		    i->ifa_addr->sa_family == AF_INET) {
			found = i;
			break;
		}
	}
	if (found)
		copy_address(address, found);
	return found != NULL;
}

/* Returns the entry of [interfaces] that has [address], or NULL. */
static const struct ifaddrs *find_owner(const struct ifaddrs *interfaces,
					const struct ddp_tcp_address *address)
{
	struct ddp_tcp_address candidate;

	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		if (!ddp_tcp_can_use(i))
			continue;
		copy_address(&candidate, i);
		if (ddp_tcp_same_host(&candidate, address))
			return i;
	}
	return NULL;
}

/* Write the names of the interfaces that are up to [text], such as "lo, eth0", for a message. */
static void list_interfaces(const struct ifaddrs *interfaces, char *text, size_t size)
{
	size_t used = 0;

	*text = '\0';
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		const struct ifaddrs *same = interfaces;

		while (same != i &&
		       (!ddp_tcp_can_use(same) || strcmp(same->ifa_name, i->ifa_name) != 0))
			same = same->ifa_next;
		if (same == i && ddp_tcp_can_use(i) && used < size)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
						 i->ifa_name);
	}
}

/* --- The route to rank 0's node ------------------------------------------------------------ */

/*
 * Find the local address from which packets to [target] are sent, without sending any. Returns
 * whether there is a route.
 */
static bool find_route(const struct addrinfo *target, struct ddp_tcp_address *address)
{
	int fd = socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(address->v6);
	bool found;

	if (fd < 0)
		return false;
	memset(address, 0, sizeof(*address));
	found = connect(fd, target->ai_addr, target->ai_addrlen) == 0 &&
		getsockname(fd, &address->any, &size) == 0;
	close(fd);
	if (found)
		*port_of(address) = 0;
	/* Reject a link-local address, which other links cannot reach. */
	return found && !(address->any.sa_family == AF_INET6 &&
			  IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr));
}

/*
 * Returns whether [name], without being resolved, means this host, as "localhost" does. If so, all
 * ranks are on this host.
 */
static bool spells_loopback(const char *name)
{
	return strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0 ||
	       strcmp(name, "localhost") == 0;
}

static bool find_route_to_master(struct ddp_tcp_address *address)
{
	static const int families[] = {AF_INET, AF_INET6};
	const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
	const char *master = ddp_getenv("MASTER_ADDR", NULL);
	struct addrinfo *list = NULL;
	bool found = false;

	if (!master || getaddrinfo(master, "9", &hints, &list) != 0)
		return false;
	/* Prefer IPv4 on every node, so that all ranks listen in the same family. */
	for (int f = 0; f < 2 && !found; f++)
		for (const struct addrinfo *i = list; i && !found; i = i->ai_next)
			found = i->ai_family == families[f] && find_route(i, address) &&
				(!is_loopback(address) || spells_loopback(master));
	freeaddrinfo(list);
	return found;
}

/* Returns the number of leading bits that are set in [netmask]. */
static int prefix_of(const struct sockaddr *netmask)
{
	const uint8_t *bytes =
		netmask->sa_family == AF_INET
			? (const void *)&((const struct sockaddr_in *)(const void *)netmask)
				  ->sin_addr
			: (const void *)&((const struct sockaddr_in6 *)(const void *)netmask)
				  ->sin6_addr;
	int most = netmask->sa_family == AF_INET ? 32 : 128, prefix = 0;

	while (prefix < most && (bytes[prefix / 8] << prefix % 8 & 0x80))
		prefix++;
	return prefix;
}

void ddp_tcp_network_text(const struct ddp_tcp_address *address, char text[static DDP_TCP_TEXT])
{
	bool v4 = address->any.sa_family == AF_INET;
	struct ddp_tcp_address network = *address;
	uint8_t *bytes = v4 ? (void *)&network.v4.sin_addr : (void *)&network.v6.sin6_addr;
	struct ifaddrs *interfaces = NULL;
	const struct ifaddrs *owner;
	int prefix;

	if (getifaddrs(&interfaces) < 0)
		interfaces = NULL;
	owner = find_owner(interfaces, address);
	prefix = owner && owner->ifa_netmask ? prefix_of(owner->ifa_netmask) : v4 ? 32 : 128;
	freeifaddrs(interfaces);
	for (int bit = prefix; bit < (v4 ? 32 : 128); bit++)
		bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	inet_ntop(network.any.sa_family, bytes, text, DDP_TCP_TEXT);
	snprintf(text + strlen(text), DDP_TCP_TEXT - strlen(text), "/%d", prefix);
}

int ddp_tcp_address_choose(struct ddp_tcp_address *address, struct ddp_error *error)
{
	const char *variable =
		ddp_getenv("DDP_SOCKET_IFNAME", NULL) ? "DDP_SOCKET_IFNAME" : "NCCL_SOCKET_IFNAME";
	const char *list = ddp_getenv(variable, NULL);
	struct ifaddrs *interfaces = NULL;
	const struct ifaddrs *owner;
	char names[256];
	int status = 0;

	if (getifaddrs(&interfaces) < 0)
		interfaces = NULL;
	if (list) {
		if (!find_interface(interfaces, list, address)) {
			list_interfaces(interfaces, names, sizeof(names));
			status = ddp_error_set(error, DDP_ERR_ENVIRONMENT,
					       "%s=%s selects no interface that has an address. "
					       "Choose from %s.",
					       variable, list, names);
		}
	} else if (find_route_to_master(address)) {
		owner = find_owner(interfaces, address);
		if (owner)
			snprintf(address->interface, sizeof(address->interface), "%s",
				 owner->ifa_name);
	} else if (!find_interface(interfaces, NULL, address)) {
		*address = (struct ddp_tcp_address){
			.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
			.interface = "lo"};
	}
	freeifaddrs(interfaces);
	return status;
}

/* --- The listening socket ------------------------------------------------------------------ */

/* Parse DDP_TCP_PORTS, "FIRST-LAST". Sets both numbers to 0 if the variable is unset. */
static int read_ports(unsigned int *first, unsigned int *last, struct ddp_error *error)
{
	const char *text = ddp_setting_get(DDP_SET_DDP_TCP_PORTS);
	int end = 0;

	*first = *last = 0;
	if (!*text)
		return 0;
	if (strspn(text, "0123456789-") == strlen(text) &&
	    sscanf(text, "%5u-%5u%n", first, last, &end) == 2 && !text[end] && *first > 0 &&
	    *first <= *last && *last <= UINT16_MAX)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "DDP_TCP_PORTS=%s is not a range of ports. Give two ports, the lower "
			     "one first, such as 20000-20999.",
			     text);
}

/* Listen on the port in [address]. Returns the descriptor, or -1 with errno set. */
static int listen_on(const struct ddp_tcp_address *address)
{
	int fd = ddp_fork_socket(address->any.sa_family, SOCK_STREAM);
	int on = 1, saved;

	if (fd < 0)
		return -1;
	/* Without this, connections of an earlier run could block a port of the user's range. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    bind(fd, &address->any, ddp_tcp_address_size(address)) == 0 &&
	    listen(fd, SOMAXCONN) == 0)
		return fd;
	saved = errno;
	ddp_fork_close_socket(fd);
	errno = saved;
	return -1;
}

/*
 * Listen on a free port from [first] to [last]. The ranks of a node search from different ports, so
 * that they do not try the same ports at the same time.
 */
static int listen_in(struct ddp_tcp_address *address, unsigned int first, unsigned int last)
{
	unsigned int count = last - first + 1, begin = (unsigned int)getpid() % count;
	int fd = -1;

	for (unsigned int i = 0; i < count; i++) {
		*port_of(address) = htons((uint16_t)(first + (begin + i) % count));
		fd = listen_on(address);
		if (fd >= 0 || (errno != EADDRINUSE && errno != EACCES))
			break;
	}
	return fd;
}

int ddp_tcp_listen(struct ddp_tcp_address *address, struct ddp_error *error)
{
	socklen_t size = sizeof(address->v6);
	char text[DDP_TCP_TEXT];
	unsigned int first, last;
	int status = read_ports(&first, &last, error), fd;

	if (status < 0)
		return status;
	fd = listen_in(address, first, last);
	if (fd >= 0) {
		getsockname(fd, &address->any, &size);
		return fd;
	}
	if (first > 0 && (errno == EADDRINUSE || errno == EACCES))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "no port of DDP_TCP_PORTS=%u-%u is free on %s", first, last,
				     address->interface);
	return ddp_error_set(error, DDP_ERR_ENGINE, "cannot listen on %s (%s): %s",
			     ddp_tcp_address_text(address, text), address->interface,
			     strerror(errno));
}
