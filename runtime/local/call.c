/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "base/type.h"
#include "group-private.h"

enum { TEXT_SIZE = 160 };

static uint64_t mix(uint64_t digest, uint64_t word)
{
	digest = (digest ^ word) * 0x9fb21c651e98df25u;
	return digest ^ digest >> 32;
}

static uint64_t digest_call(const struct ddp_call *call, enum ddp_action action, size_t bytes,
			    int root)
{
	uint64_t digest = ((uint64_t)action + 1) << 32 | (uint32_t)root;

	digest = mix(digest, (uint64_t)call->kind << 32 | call->type << 8 | call->op);
	digest = mix(digest, call->count);
	return mix(digest, bytes);
}

int ddp_call_begin(struct ddp_group *group, const struct ddp_call *call, enum ddp_action action,
		   size_t bytes, int root, struct ddp_error *error)
{
	struct ddp_slot *slot = group->slots[group->index];
	struct ddp_notice *notice = &slot->notices[(group->step + 1) % DDP_LINES];

	if (atomic_load_explicit(&group->head->aborted, memory_order_acquire) != 0)
		return ddp_group_aborted(group, error);
	group->call = call;
	group->first = group->step + 1;
	group->digest = digest_call(call, action, bytes, root);
	if (notice->digest == group->digest)
		return 0;
	*notice = (struct ddp_notice){
		.digest = group->digest,
		.action = action,
		.type = call->type,
		.op = call->op,
		.root = root,
		.count = call->count,
		.bytes = bytes,
	};
	snprintf(notice->name, sizeof(notice->name), "%s", call->name);
	return 0;
}

/* --- Members that disagree ---------------------------------------------------------------- */

/* A peer's memory: nothing in it is believed to be a text, or an index. */
static void say_call(const struct ddp_group *group, const struct ddp_notice *notice,
		     char text[TEXT_SIZE])
{
	const char *name = notice->name;
	int width = DDP_CALL_NAME - 1;
	int root =
		notice->root >= 0 && notice->root < group->size ? group->ranks[notice->root] : -1;

	switch (notice->action) {
	case DDP_ACTION_ALL_REDUCE:
	case DDP_ACTION_REDUCE:
	case DDP_ACTION_PUBLISH:
		snprintf(text, TEXT_SIZE, "%.*s of %llu %s (%s)%s", width, name,
			 (unsigned long long)notice->count, ddp_type_name(notice->type),
			 ddp_op_name(notice->op),
			 notice->action == DDP_ACTION_PUBLISH ? ", its second half" : "");
		break;
	case DDP_ACTION_BROADCAST:
		snprintf(text, TEXT_SIZE, "%.*s of %llu bytes from rank %d", width, name,
			 (unsigned long long)notice->bytes, root);
		break;
	case DDP_ACTION_ALL_GATHER:
	case DDP_ACTION_REGION:
		snprintf(text, TEXT_SIZE, "%.*s of %llu bytes", width, name,
			 (unsigned long long)notice->bytes);
		break;
	default:
		snprintf(text, TEXT_SIZE, "%.*s", width, name);
	}
}

int ddp_call_mismatch(struct ddp_group *group, int member, struct ddp_error *error)
{
	unsigned parity = group->first % DDP_LINES;
	const struct ddp_notice *own = &group->slots[group->index]->notices[parity];
	const struct ddp_notice *other = &group->slots[member]->notices[parity];
	char first[TEXT_SIZE], second[TEXT_SIZE];
	struct ddp_error cause;

	say_call(group, own, first);
	say_call(group, other, second);
	ddp_error_set(&cause, DDP_ERR_MISMATCH, "rank %d on %s calls %s, rank %d calls %s",
		      group->ranks[group->index], group->host, first, group->ranks[member], second);
	return ddp_group_fail(group, &cause, error);
}
