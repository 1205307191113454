/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.h - where rank 0 listens: address and port
 */
#ifndef DDP_CORE_ENDPOINT_H
#define DDP_CORE_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

/* Ports lo to hi, both included; lo == hi is one port. */
struct ddp_port_range {
	uint32_t lo, hi;
};

/* Above Linux's ephemeral range, which ends at 60999 unless changed. */
#define DDP_PORTS_DEFAULT ((struct ddp_port_range){61000, 65533})

/*
 * Read "P" or "LO-HI", 1 to 65535. [what] names it in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_ports_parse(const char *text, const char *what, struct ddp_port_range *range,
		    struct ddp_message *message);

/*
 * The first [n] ports of Slurm's list "18001-18004,18010".
 * Returns how many of them it has, 0 where it is malformed up to there.
 */
size_t ddp_ports_reserved(const char *list, uint32_t *ports, size_t n);

/*
 * The number that tells a step from all others: of cluster, job, step and attempt.
 * Returns 64 bits, well mixed.
 */
uint64_t ddp_step_hash(const char *cluster, uint32_t job, uint32_t step, uint32_t attempt);

/*
 * An even port for [hash], within [range] and, where anything of it is left, outside
 * [ephemeral], so that no outgoing connection holds it by chance. The port after it
 * is NCCL's (ras). A range of one port gives that port.
 * Returns the port.
 */
uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t hash);

/*
 * The address of rank 0's node, by the first rule that applies: its name and [suffix]; [addr]
 * where it differs from [name], because a NodeName need not resolve; [name].
 * Returns 0, or -1 if it does not fit.
 */
int ddp_address_choose(const char *name, const char *addr, const char *suffix, char *buf,
		       size_t size);

/*
 * Tell whether [suffix] can be part of a host name. [what] names it in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_suffix_check(const char *suffix, const char *what, struct ddp_message *message);

#endif /* DDP_CORE_ENDPOINT_H */
