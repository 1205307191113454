/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "agree.h"
#include "checkpoint.h"
#include "comm/collective.h"
#include "comm/kept.h"

int ddp_checkpoint_save(struct ddp *ddp, const char *directory, uint64_t step,
			const struct ddp_tensor *tensors, size_t count,
			const struct ddp_pair *metadata, size_t pairs, int keep)
{
	struct ddp_error error = {DDP_OK, ""};
	int status = ddp_begin_call(ddp);

	if (status < 0)
		return status;
	if (ddp->world.rank == 0)
		ddp_checkpoint_write(directory, step, tensors, count, metadata, pairs, keep,
				     &ddp->log, &error);
	return ddp_error_share(ddp, &error, 0);
}

/* What rank 0 found. */
struct finding {
	uint64_t found, step;
	uint64_t bytes; /* of the metadata's values */
};

/* A value as it travels: whether there is one, and the text with its end. */
static size_t value_bytes(const char *value)
{
	return value ? 2 + strlen(value) : 2;
}

static void pack(char *buffer, const struct ddp_tensors *file, const struct ddp_pair *metadata,
		 size_t pairs)
{
	for (size_t i = 0; i < pairs; i++) {
		const char *value = ddp_tensors_metadata(file, metadata[i].key);
		size_t bytes = value_bytes(value);

		buffer[0] = value != NULL;
		memcpy(buffer + 1, value ? value : "", bytes - 1);
		buffer += bytes;
	}
}

static void unpack(const char *buffer, struct ddp_pair *metadata, size_t pairs)
{
	for (size_t i = 0; i < pairs; i++) {
		metadata[i].value = buffer[0] ? buffer + 1 : NULL;
		buffer += 2 + strlen(buffer + 1);
	}
}

/* Rank 0's search. What it comes to is in [finding] and [error]. */
static void search(struct ddp *ddp, const char *directory, const struct ddp_tensor *tensors,
		   size_t count, const struct ddp_pair *metadata, size_t pairs,
		   struct ddp_tensors **file, struct finding *finding, struct ddp_error *error)
{
	char name[DDP_CHECKPOINT_NAME];

	if (ddp_checkpoint_open(file, &finding->step, directory, &ddp->log, error) <= 0)
		return;
	finding->found = 1;
	ddp_checkpoint_name(name, finding->step);
	ddp_checkpoint_match(*file, name, tensors, count, error);
	for (size_t i = 0; i < pairs; i++)
		finding->bytes += value_bytes(ddp_tensors_metadata(*file, metadata[i].key));
}

/* Bring the metadata's values, [bytes] in all, from rank 0's [file] to all. */
static int send_metadata(struct ddp *ddp, const struct ddp_tensors *file, size_t bytes,
			 struct ddp_pair *metadata, size_t pairs)
{
	char *buffer;
	int status;

	if (pairs == 0)
		return 0;
	buffer = ddp_kept_add(ddp, bytes);
	if (!buffer) {
		ddp_abort(ddp, "no memory for the metadata of a checkpoint");
		ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %zu bytes of metadata",
			      bytes);
		return ddp_fail_call(ddp, DDP_ERR_MEMORY);
	}
	if (file)
		pack(buffer, file, metadata, pairs);
	status = ddp_broadcast(ddp, buffer, bytes, 0);
	if (status == 0)
		unpack(buffer, metadata, pairs);
	return status;
}

int ddp_checkpoint_load(struct ddp *ddp, const char *directory, uint64_t *step,
			const struct ddp_tensor *tensors, size_t count, struct ddp_pair *metadata,
			size_t pairs)
{
	struct ddp_error error = {DDP_OK, ""};
	struct ddp_tensors *file = NULL;
	struct finding finding = {0, 0, 0};
	int status = ddp_tensors_agree(ddp, tensors, count, metadata, pairs);

	if (status < 0)
		return status;
	if (ddp->world.rank == 0)
		search(ddp, directory, tensors, count, metadata, pairs, &file, &finding, &error);
	status = ddp_error_share(ddp, &error, 0);
	if (status == 0)
		status = ddp_broadcast(ddp, &finding, sizeof(finding), 0);
	if (status < 0 || !finding.found)
		goto out;
	status = send_metadata(ddp, file, (size_t)finding.bytes, metadata, pairs);
	if (status == 0)
		status = ddp_tensors_send(ddp, tensors, count, file);
	if (status == 0) {
		*step = finding.step;
		status = 1;
	}
out:
	ddp_tensors_close(file);
	return status;
}
