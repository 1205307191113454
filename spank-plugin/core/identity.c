/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "identity.h"

#include <stddef.h>

static int read_one(char *const *env, const char *name, uint32_t *value,
		    struct ddp_message *message)
{
	const char *text = ddp_env_get(env, name);
	uint64_t number;

	if (!text)
		return ddp_fail(message, "Slurm did not set %s for this task", name);
	if (ddp_parse_number(text, 0, UINT32_MAX, &number) < 0)
		return ddp_fail(message, "%s=%s is not a number", name, text);
	*value = (uint32_t)number;
	return 0;
}

int ddp_identity_read(char *const *env, uint32_t local_size, struct ddp_identity *identity,
		      struct ddp_message *message)
{
	struct ddp_identity id = {.local_size = local_size};
	const struct {
		const char *name;
		uint32_t *value;
	} wanted[] = {
		{"SLURM_PROCID", &id.rank},	     {"SLURM_STEP_NUM_TASKS", &id.size},
		{"SLURM_LOCALID", &id.local_rank},   {"SLURM_NODEID", &id.node_rank},
		{"SLURM_STEP_NUM_NODES", &id.nodes},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (read_one(env, wanted[i].name, wanted[i].value, message) < 0)
			return -1;
	if (id.rank >= id.size)
		return ddp_fail(message, "SLURM_PROCID=%u is not below SLURM_STEP_NUM_TASKS=%u",
				id.rank, id.size);
	if (id.local_rank >= id.local_size || id.local_size > id.size)
		return ddp_fail(message,
				"SLURM_LOCALID=%u does not fit %u tasks on this node of %u",
				id.local_rank, id.local_size, id.size);
	if (id.node_rank >= id.nodes)
		return ddp_fail(message, "SLURM_NODEID=%u is not below SLURM_STEP_NUM_NODES=%u",
				id.node_rank, id.nodes);
	*identity = id;
	return 0;
}
