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

/* These ports are above Linux's default ephemeral range, which ends at 60999. */
#define DDP_PORTS_DEFAULT ((struct ddp_port_range){61000, 65533})

/*
 * Parse "P" or "LO-HI", 1 to 65535. [what] names the setting in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_ports_parse(const char *text, const char *what, struct ddp_port_range *range,
		    struct ddp_message *message);

/*
 * Get the first [n] ports of Slurm's list "18001-18004,18010".
 * Returns the number of ports; 0 if the list is malformed before the end of these ports.
 */
size_t ddp_ports_reserved(const char *list, uint32_t *ports, size_t n);

/*
 * Hash the cluster, job, step and attempt, which together identify a step.
 * Returns 64 well mixed bits.
 */
uint64_t ddp_step_hash(const char *cluster, uint32_t job, uint32_t step, uint32_t attempt);

/*
 * Compute an even port from [hash], within [range] and, if possible, outside [ephemeral], so that
 * no outgoing connection uses the port by chance. NCCL's RAS uses the next port. A range of one
 * port yields that port, even or odd.
 * Returns the port.
 */
uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t hash);

/*
 * Choose the address of rank 0's node. If [suffix] is set, the address is [name] with [suffix].
 * Otherwise it is [addr] if that is set, since a NodeName need not resolve, and else [name].
 * Returns 0, or -1 if the address does not fit.
 */
int ddp_address_choose(const char *name, const char *addr, const char *suffix, char *buf,
		       size_t size);

/*
 * Check that [suffix] can be part of a host name. [what] names the setting in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_suffix_check(const char *suffix, const char *what, struct ddp_message *message);

#endif /* DDP_CORE_ENDPOINT_H */
