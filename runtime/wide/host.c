/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - find the engine that has a given name */
#include "config.h"

#include <string.h>

#include "tcp-private.h"

const char *const ddp_host_engine_names[] = {"tcp", "mpi", NULL};

const struct ddp_host_engine *ddp_host_engine_find(const char *name, const struct ddp_log *log,
						   struct ddp_error *error)
{
	if (strcmp(name, ddp_tcp_engine.head.name) == 0)
		return &ddp_tcp_engine;
	return ddp_module_open(name, "wide", DDP_HOST_VERSION, sizeof(struct ddp_host_engine), log,
			       error);
}
