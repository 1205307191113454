/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - the engine between groups over TCP, which is part of libddp
 */
#ifndef DDP_WIDE_TCP_H
#define DDP_WIDE_TCP_H

#include "host.h"

extern const struct ddp_host_engine ddp_tcp_engine;

#endif /* DDP_WIDE_TCP_H */
