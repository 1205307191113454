/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check-facts.c - print the facts that the script check-site needs and that only the code of libddp
 * and of the plugin can find: arguments in plugstack.conf, rendezvous directory, MPS, network
 */
#include "config.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mps.h"
#include "base/walk.h"
#include "info.h"
#include "launch/options.h"
#include "wide/tcp-private.h"

static bool has_address(const struct ifaddrs *interfaces, const char *name)
{
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
		if (strcmp(i->ifa_name, name) == 0 && ddp_tcp_can_use(i))
			return true;
	return false;
}

/* Print the names of the InfiniBand interfaces that are up but have no address. */
static void print_bare_interfaces(void)
{
	struct ifaddrs *interfaces = NULL;

	if (getifaddrs(&interfaces) < 0)
		return;
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
		if (strncmp(i->ifa_name, "ib", 2) == 0 && (i->ifa_flags & IFF_UP) && i->ifa_addr &&
		    i->ifa_addr->sa_family == AF_PACKET && !has_address(interfaces, i->ifa_name))
			printf("bare=%s\n", i->ifa_name);
	freeifaddrs(interfaces);
}

static void print_network(void)
{
	struct ddp_tcp_address address;
	struct ddp_error error = {0};
	char network[DDP_TCP_TEXT];

	if (ddp_tcp_address_choose(&address, &error) < 0) {
		printf("network_error=%s\n", error.text);
		return;
	}
	ddp_tcp_network_text(&address, network);
	printf("network=%s\ninterface=%s\n", network, address.interface);
	print_bare_interfaces();
}

static void print_directory(const char *template)
{
	struct ddp_walk walk = {.make = false};
	char path[PATH_MAX];
	int fd;

	printf("rdzv=%s\n", template);
	if (*template != '/')
		return;
	ddp_template_fixed(template, path, sizeof(path));
	printf("base=%s\n", path);
	fd = ddp_walk_open(&walk, path);
	if (fd < 0)
		printf("base_error=%s\n", walk.why);
	else
		close(fd);
}

void info_check_facts(int count, char **arguments)
{
	static const char *const states[] = {
		[DDP_MPS_NONE] = "none", [DDP_MPS_STALE] = "stale", [DDP_MPS_SERVES] = "serves"};
	const char *directory = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));
	struct ddp_values values;
	struct ddp_message message;

	ddp_values_init(&values);
	if (ddp_values_from_plugstack(&values, count, arguments, &message) < 0)
		printf("arguments_error=%s\n", message.text);
	printf("ports=%u-%u\nshards=%u\nmemory=%llu\n", values.site_ports.lo, values.site_ports.hi,
	       values.shards_per_gpu, (unsigned long long)values.gpu_memory);
	printf("mps=%s\nmps_directory=%s\n", states[ddp_mps_look(directory)], directory);
	print_network();
	print_directory(values.directory);
}
