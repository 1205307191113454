/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h - address and port on which rank 0 listens */
#ifndef DDP_CORE_ENDPOINT_H
#define DDP_CORE_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

/* Ports lo to hi, inclusive. */
struct ddp_port_range {
	uint32_t lo, hi;
};

/* Above Linux's default ephemeral range, which ends at 60999. */
#define DDP_PORTS_DEFAULT ((struct ddp_port_range){61000, 65533})

/*
 * Parse "P" or "LO-HI", 1 to 65535. [what] is its name in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_ports_parse(const char *text, const char *what, struct ddp_port_range *range,
		    struct ddp_message *message);

/*
 * Get the first [n] ports of Slurm's list "18001-18004,18010".
 * Returns their number, 0 if the list is malformed up to there.
 */
size_t ddp_ports_reserved(const char *list, uint32_t *ports, size_t n);

/*
 * Hash of cluster, job, step and attempt, which identify a step.
 * Returns 64 well mixed bits.
 */
uint64_t ddp_step_hash(const char *cluster, uint32_t job, uint32_t step, uint32_t attempt);

/*
 * Compute an even port from [hash], within [range] and, if possible, outside [ephemeral], so that
 * no outgoing connection uses it by chance. The next port is used for NCCL's RAS. If the range is
 * one port, it is that port.
 * Returns the port.
 */
uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t hash);

/*
 * Choose the address of rank 0's node: [name] with [suffix], if that is set; else [addr] if it is
 * set, since a NodeName need not resolve; else [name].
 * Returns 0, or -1 if it does not fit.
 */
int ddp_address_choose(const char *name, const char *addr, const char *suffix, char *buf,
		       size_t size);

/*
 * Check that [suffix] can be part of a host name. [what] is its name in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_suffix_check(const char *suffix, const char *what, struct ddp_message *message);

#endif /* DDP_CORE_ENDPOINT_H */
