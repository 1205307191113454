/* SPDX-License-Identifier: Apache-2.0 */
/* task.h - functions of a task, used by both the plugin and ddp-exec */
#ifndef DDP_TASK_H
#define DDP_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "endpoint.h"
#include "plan.h"

/* Returns the number of CPUs in this process's mask; 0 if unknown. */
uint32_t ddp_task_cpus(void);

/* Whether a process of this network namespace listens on [port], or a --ddp step has claimed it. */
bool ddp_task_port_in_use(uint32_t port);

/*
 * Claim the port of [endpoint] on this host, where rank 0 will listen, so that no other --ddp step
 * of this network namespace uses it, even if no process listens yet. The claim is the name
 * "slurm-ddp/<port>" of an abstract Unix socket. If the port is claimed but no process listens on
 * it, retries for two seconds, since the owner may be ending.
 * Returns 0 with a descriptor in [claim], whose close() ends the claim, or with -1 in [claim] if no
 * socket can be made. Returns -1 with a message that names [host] if the port is claimed.
 */
int ddp_task_claim_port(const struct ddp_endpoint *endpoint, const char *host, int *claim,
			struct ddp_message *message);

/* Whether [fd] has the claim of [port]. */
bool ddp_task_has_claim(int fd, uint32_t port);

/*
 * In rank 0, which is about to listen: check that no process listens on the port. This host is
 * checked even if MASTER_ADDR is another host, because PyTorch's rank 0 listens on its own host.
 * Returns 0, or -1 with a message.
 */
int ddp_task_check_port(const struct ddp_facts *facts, struct ddp_message *message);

/*
 * Print those notes of [plan] that this task must print. If the channel is [verbose], also print
 * the variables with their reasons: rank 0 prints all of them, and each other rank prints one line.
 */
void ddp_task_say_plan(const struct ddp_facts *facts, const struct ddp_plan *plan,
		       void (*say)(const char *format, ...));

#endif /* DDP_TASK_H */
