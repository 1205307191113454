/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agree.h"
#include "base/checksum.h"
#include "header.h"

enum {
	LINE_SIZE = 480,
	CHUNK_SIZE = 64 << 20, /* each is a collective with the time limit of one */
};

/* What the ranks are to agree on, one item after the other. */
struct items {
	const struct ddp_tensor *tensors;
	size_t count;
	const struct ddp_pair *pairs;
	size_t pair_count;
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
	return ddp_hash(hash, text, strlen(text) + 1);
}

static uint64_t hash_items(const struct items *items)
{
	uint64_t hash = DDP_HASH_INIT;

	hash = ddp_hash(hash, &items->count, sizeof(items->count));
	for (size_t i = 0; i < items->count; i++) {
		const struct ddp_tensor *tensor = &items->tensors[i];

		hash = hash_text(hash, tensor->name);
		hash = ddp_hash(hash, &tensor->type, sizeof(tensor->type));
		hash = ddp_hash(hash, &tensor->dimensions, sizeof(tensor->dimensions));
		hash = ddp_hash(hash, tensor->shape,
				(size_t)tensor->dimensions * sizeof(tensor->shape[0]));
	}
	for (size_t i = 0; i < items->pair_count; i++)
		hash = hash_text(hash, items->pairs[i].key);
	return hash;
}

/* Item [i] in words; "nothing" beyond the last. */
static void describe(const struct items *items, size_t i, char line[LINE_SIZE])
{
	const struct ddp_tensor *tensor;
	char shape[DDP_TENSOR_SHAPE];

	memset(line, 0, LINE_SIZE);
	if (i >= items->count + items->pair_count) {
		snprintf(line, LINE_SIZE, "nothing");
		return;
	}
	if (i >= items->count) {
		snprintf(line, LINE_SIZE, "metadata \"%.200s\"",
			 items->pairs[i - items->count].key);
		return;
	}
	tensor = &items->tensors[i];
	ddp_tensor_shape(tensor, shape);
	snprintf(line, LINE_SIZE, "\"%.200s\", %s %s", tensor->name, ddp_tensor_type(tensor->type),
		 shape);
}

/* Whether this rank's own arguments make sense. */
static int check_items(const struct items *items, int rank, struct ddp_error *error)
{
	for (size_t i = 0; i < items->count; i++) {
		const struct ddp_tensor *tensor = &items->tensors[i];
		uint64_t bytes;

		if (!tensor->name || !ddp_tensor_bytes(tensor, &bytes))
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "rank %d: tensor %zu, \"%.200s\", has an impossible "
					     "name, type or shape",
					     rank, i, tensor->name ? tensor->name : "(null)");
		if (bytes > 0 && !tensor->data)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "rank %d: tensor \"%.200s\" has no data", rank,
					     tensor->name);
	}
	for (size_t i = 0; i < items->pair_count; i++)
		if (!items->pairs[i].key)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "rank %d: metadata %zu has no key", rank, i);
	return 0;
}

int ddp_error_share(struct ddp *ddp, const struct ddp_error *error, int root)
{
	struct ddp_error shared;
	int status;

	memset(&shared, 0, sizeof(shared));
	if (ddp->world.rank == root) {
		shared.status = error->status;
		snprintf(shared.text, sizeof(shared.text), "%s", error->text);
	}
	status = ddp_broadcast(ddp, &shared, sizeof(shared), root);
	if (status < 0 || shared.status == DDP_OK)
		return status;
	if (ddp_is_peer_error(shared.status)) {
		/* All have the text before the first of them tells all to give up. */
		status = ddp_barrier(ddp);
		if (status < 0)
			return status;
	}
	ddp->error = shared;
	return ddp_fail_call(ddp, shared.status);
}

/* Find the first item in which rank [other] differs from rank 0; told in [error] there. */
static int find_difference(struct ddp *ddp, const struct items *items, int other,
			   struct ddp_error *error)
{
	uint64_t count = items->count + items->pair_count;
	char theirs[LINE_SIZE], ours[LINE_SIZE];
	bool found = false;
	int status = ddp_broadcast(ddp, &count, sizeof(count), 0);

	/* One more than rank 0 has: "nothing", where the other has something. */
	for (uint64_t i = 0; status == 0 && i <= count; i++) {
		describe(items, (size_t)i, ours);
		memcpy(theirs, ours, sizeof(theirs));
		status = ddp_broadcast(ddp, theirs, sizeof(theirs), 0);
		if (status < 0 || found || strcmp(ours, theirs) == 0)
			continue;
		found = true;
		ddp_error_set(error, DDP_ERR_MISMATCH,
			      "the ranks' tensors differ in place %" PRIu64
			      ": rank 0 has %s, rank %d has %s",
			      i, theirs, other, ours);
	}
	if (!found)
		ddp_error_set(error, DDP_ERR_MISMATCH, "the tensors of rank %d are not rank 0's",
			      other);
	return status;
}

int ddp_tensors_agree(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
		      const struct ddp_pair *pairs, size_t pair_count)
{
	const struct items items = {tensors, count, pairs, pair_count};
	int rank = ddp->world.rank, size = ddp->world.size;
	struct ddp_error own = {DDP_OK, ""};
	uint64_t hash, first;
	int64_t trouble;
	int status = check_items(&items, rank, &own);

	hash = first = status == 0 ? hash_items(&items) : 0;
	status = ddp_broadcast(ddp, &first, sizeof(first), 0);
	if (status < 0)
		return status;
	trouble = own.status != DDP_OK || hash != first ? rank : size;
	status = ddp_all_reduce(ddp, &trouble, &trouble, 1, DDP_I64, DDP_MIN);
	if (status < 0 || trouble == size)
		return status;
	status = ddp_error_share(ddp, &own, (int)trouble);
	if (status < 0)
		return status;
	status = find_difference(ddp, &items, (int)trouble, &own);
	return status < 0 ? status : ddp_error_share(ddp, &own, (int)trouble);
}

int ddp_tensors_send(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
		     const struct ddp_tensors *file)
{
	int status = 0;

	for (size_t i = 0; i < count; i++) {
		const char *from = NULL;
		uint64_t bytes, size;

		(void)ddp_tensor_bytes(&tensors[i], &bytes);
		if (file)
			from = ddp_tensors_find(file, tensors[i].name)->data;
		for (uint64_t at = 0; at < bytes && status == 0; at += size) {
			char *to = (char *)tensors[i].data + at;

			size = bytes - at < CHUNK_SIZE ? bytes - at : CHUNK_SIZE;
			if (from)
				memcpy(to, from + at, (size_t)size);
			status = ddp_broadcast(ddp, to, (size_t)size, 0);
		}
	}
	return status;
}

int ddp_tensors_broadcast(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count)
{
	int status = ddp_tensors_agree(ddp, tensors, count, NULL, 0);

	return status < 0 ? status : ddp_tensors_send(ddp, tensors, count, NULL);
}
