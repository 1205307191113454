/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - a rank's share of its GPU, in the words of each framework
 */
#ifndef DDP_CORE_SHARE_H
#define DDP_CORE_SHARE_H

#include "frameworks.h"
#include "plan.h"

struct ddp_share_setting {
	enum ddp_variable variable;
	const char *why; /* for --ddp-verbose */
	char value[64];
};

/*
 * What frameworks.def says for this task. All numbers are rounded down, so that those of the ranks of
 * one GPU never add up to more than it has, but none to 0. What the user said by another name is
 * left out.
 * Returns how many there are, at most DDP_FRAMEWORK_COUNT; 0 where the GPU is the task's alone or the
 * share is not known.
 */
size_t ddp_share_settings(const struct ddp_facts *facts, struct ddp_share_setting *settings);

#endif /* DDP_CORE_SHARE_H */
