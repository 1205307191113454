/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx-setup.h - UCX's settings, and what it does to the process's signal handlers
 */
#ifndef DDP_WIDE_UCX_SETUP_H
#define DDP_WIDE_UCX_SETUP_H

#include <ucp/api/ucp.h>

#include "base/log.h"

/*
 * UCX's configuration, with our defaults for what the user did not set.
 * Returns 0 with [config], and whether ddp_ucx_bound_sockets() is to be called.
 */
int ddp_ucx_configure(const struct ddp_log *log, ucp_config_t **config, bool *watch_sockets,
		      struct ddp_error *error);

/* Undo what UCX did to the process when it was loaded: its signal handlers. */
void ddp_ucx_calm(void);

#endif /* DDP_WIDE_UCX_SETUP_H */
