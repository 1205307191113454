/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.h - address and port on which rank 0 listens */
#ifndef DDP_ENDPOINT_H
#define DDP_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"

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
 * Get the first [n] ports of Slurm's list, such as "18001-18004,18010".
 * Returns the number of ports that were found, or 0 if the list is malformed before its [n]th port.
 */
size_t ddp_ports_reserved(const char *list, uint32_t *ports, size_t n);

/*
 * Returns a hash of cluster, job and attempt, of which all 64 bits are well mixed. The index of a
 * step's port is this hash plus the step's number, so that the steps of a job have different ports.
 */
uint64_t ddp_job_hash(const char *cluster, uint32_t job, uint32_t attempt);

/*
 * Returns the even port with the number [index] in [range]. After the last port, the count starts
 * again. NCCL's RAS uses the next, odd port. Ports in [ephemeral] are skipped if possible, because
 * outgoing connections may use them by chance. If [range] has no even port followed by an odd one,
 * returns its first port.
 */
uint32_t ddp_port_compute(struct ddp_port_range range, struct ddp_port_range ephemeral,
			  uint64_t index);

/*
 * Choose the address of rank 0's node. If [suffix] is set, the address is [name] with [suffix].
 * Otherwise it is [addr], since a NodeName need not resolve, or [name] if [addr] is not set.
 * Returns 0, or -1 if the address does not fit.
 */
int ddp_address_choose(const char *name, const char *addr, const char *suffix, char *buf,
		       size_t size);

/*
 * Check that [suffix] can be part of a host name. [what] names the setting in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_suffix_check(const char *suffix, const char *what, struct ddp_message *message);

/*
 * Returns whether [address] is the name [node], with or without a domain. Names are not resolved.
 */
bool ddp_address_is_node(const char *address, const char *node);

/* Endpoint of rank 0's store. */
struct ddp_endpoint {
	const char *address, *port; /* the user's; NULL: none */
	uint32_t number;	    /* port; 0: the user's text is not a port */
	uint32_t ras;		    /* port for NCCL's RAS; 0: none */
	const char *from;	    /* source of the port, for --ddp-verbose */
};

/*
 * Choose the port: the user's, else one that Slurm reserved, else srun's. [env] is the step's
 * environment in user_init, since a container's hook may change the task's environment.
 */
struct ddp_endpoint ddp_endpoint_choose(const struct ddp_channel *channel, char *const *env);

/*
 * Check the user's MASTER_ADDR and MASTER_PORT in [step_env]. The step has [nodes] nodes, whose
 * names are in [task_env]. All ranks find the same mistake, so only rank 0
 * prints it.
 * Returns 0, or -1 with a message.
 */
int ddp_endpoint_check(const struct ddp_channel *channel, char *const *step_env,
		       char *const *task_env, uint32_t nodes, struct ddp_message *message);

#endif /* DDP_ENDPOINT_H */
