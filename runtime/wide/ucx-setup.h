/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx-setup.h - UCX's settings, and what it does to the process: signal handlers, sockets
 */
#ifndef DDP_WIDE_UCX_SETUP_H
#define DDP_WIDE_UCX_SETUP_H

#include <ucp/api/ucp.h>

#include "base/log.h"

/* Ports that sockets of this process listen on. */
struct ddp_ucx_ports {
	int count;
	uint16_t list[64];
};

/*
 * UCX's configuration, with our defaults for what the user did not set.
 * Returns 0 with [config], and whether ddp_ucx_bound_sockets() is to be called.
 */
int ddp_ucx_configure(const struct ddp_log *log, ucp_config_t **config, bool *watch_sockets,
		      struct ddp_error *error);

/* Undo what UCX did to the process when it was loaded: its signal handlers. */
void ddp_ucx_calm(void);

/* The ports that are listened on and are not among [others], which may be NULL. */
struct ddp_ucx_ports ddp_ucx_find_ports(const struct ddp_ucx_ports *others);

/* Bound the time that the kernel tries to get through on sockets of UCX's; [ports]: those that it listens on. */
void ddp_ucx_bound_sockets(struct ddp_ucx_ports *ports);

#endif /* DDP_WIDE_UCX_SETUP_H */
