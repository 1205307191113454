/* SPDX-License-Identifier: Apache-2.0 */
/* task.h - functions for a task that the plugin and ddp-exec share */
#ifndef DDP_TASK_H
#define DDP_TASK_H

#include "core/plan.h"

/* Returns the number of CPUs in this process's mask; 0 if unknown. */
uint32_t ddp_task_cpus(void);

/* Whether a process of this network namespace listens on [port]; false if unknown. */
bool ddp_task_port_in_use(uint32_t port);

/*
 * In rank 0, which is about to listen: check that no process listens on the port of [plan]. There
 * is no check if the user set the address of another store.
 * Returns 0, or -1 with a message.
 */
int ddp_task_check_port(const struct ddp_facts *facts, const struct ddp_plan *plan,
			struct ddp_message *message);

/*
 * Print the notes of [plan] that this task is to print. If the channel is [verbose], also print the
 * variables with their reasons: rank 0 prints all variables, each other rank one line.
 */
void ddp_task_say_plan(const struct ddp_facts *facts, const struct ddp_plan *plan,
		       void (*say)(const char *format, ...));

#endif /* DDP_TASK_H */
