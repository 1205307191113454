/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h without NCCL: libddp's collectives on host memory, when the stream comes to them.
 *
 * A rank's host must not be in another collective of libddp meanwhile: it waits (sums_wait) for the
 * sums that it enqueued before it enters one.
 *
 * With DDP_EMULATED_SUMS=device it is libddp's collectives on device memory, over engines of host memory
 * (tests/runtime/shard-host.c, nccl-host.c), which then are waited for.
 *
 * Ranks whose devices have one UUID share a GPU, if they do not pose as several nodes: no graph may have their
 * sums.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "queue-host.h"
#include "sums.h"

enum sum_kind { SUM_REDUCE, SUM_GATHER, SUM_BROADCAST };

struct sum {
	struct ddp *ddp;
	enum sum_kind kind;
	const void *send;
	void *data;
	size_t count;
	enum ddp_type type;
	int root;
};

static bool shared; /* two ranks have one GPU; as of the last sums_alloc() */

static bool by_device(void)
{
	const char *wish = getenv("DDP_EMULATED_SUMS");

	return wish && strcmp(wish, "device") == 0;
}

static int do_device_sum(const struct sum *sum)
{
	int status;

	if (sum->kind == SUM_REDUCE)
		status = ddp_device_all_reduce(sum->ddp, sum->data, sum->data, sum->count,
					       sum->type, DDP_SUM, NULL);
	else if (sum->kind == SUM_GATHER)
		status = ddp_device_all_gather(sum->ddp, sum->send, sum->data, sum->count, NULL);
	else
		status = ddp_device_broadcast(sum->ddp, sum->data, sum->count, sum->root, NULL);
	return status < 0 ? status : ddp_device_wait(sum->ddp, NULL);
}

static int do_sum(void *data, struct ddp_error *error)
{
	struct sum *sum = data;
	int status;

	if (by_device())
		status = do_device_sum(sum);
	else if (sum->kind == SUM_REDUCE)
		status = ddp_all_reduce(sum->ddp, sum->data, sum->data, sum->count, sum->type,
					DDP_SUM);
	else if (sum->kind == SUM_GATHER)
		status = ddp_all_gather(sum->ddp, sum->send, sum->data, sum->count);
	else
		status = ddp_broadcast(sum->ddp, sum->data, sum->count, sum->root);
	return status ? ddp_error_set(error, status, "%s", ddp_error(sum->ddp)) : 0;
}

static int submit(struct device *device, enum device_stream stream, const struct sum *what,
		  struct ddp_error *error)
{
	struct queue_work work = {.call = do_sum, .forget = free, .collective = true};
	struct sum *sum = malloc(sizeof(*sum));

	if (!sum)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a sum");
	if (shared && stream_captured(device_stream(device, stream))) {
		free(sum);
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a sum of ranks that share a GPU is in a graph");
	}
	*sum = *what;
	work.data = sum;
	queues_submit(device_stream(device, stream), &work);
	return 0;
}

/* Where a rank's device is, by the node that it poses as (NCCL_HOSTID). */
struct seat {
	int node;
	char uuid[DEVICE_UUID], posing[64];
};

static int look_around(struct ddp *ddp, const struct device *device, struct ddp_error *error)
{
	const char *posing = getenv("NCCL_HOSTID");
	size_t size = (size_t)ddp_world(ddp)->size;
	struct seat mine, *seats = calloc(size, sizeof(*seats));
	int status;

	if (!seats)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %zu ranks", size);
	memset(&mine, 0, sizeof(mine));
	if (posing)
		strncpy(mine.posing, posing, sizeof(mine.posing) - 1);
	mine.node = ddp_world(ddp)->node_rank;
	memcpy(mine.uuid, device_info(device)->uuid, DEVICE_UUID);
	status = ddp_all_gather(ddp, &mine, seats, sizeof(mine));
	shared = false;
	for (size_t b = 1; status == 0 && b < size; b++)
		for (size_t a = 0; a < b; a++)
			shared = shared || memcmp(&seats[a], &seats[b], sizeof(mine)) == 0;
	free(seats);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

int sums_join(struct ddp *ddp, struct ddp_error *error)
{
	int status = by_device() ? ddp_device_join(ddp) : 0;

	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

static int device_sums_alloc(struct ddp *ddp, struct device *device, void **memory, size_t bytes,
			     struct ddp_error *error)
{
	int status = ddp_device_join(ddp);

	if (status == 0)
		status = ddp_device_alloc(ddp, bytes, memory);
	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(ddp));
	return device_count(device, *memory, bytes, error);
}

int sums_alloc(struct ddp *ddp, struct device *device, void **memory, size_t bytes,
	       struct ddp_error *error)
{
	int status = ddp ? look_around(ddp, device, error) : 0;

	*memory = NULL;
	if (status < 0)
		return status;
	if (by_device())
		return device_sums_alloc(ddp, device, memory, bytes, error);
	return device_alloc(device, memory, bytes, "sums over ranks", NULL, error);
}

bool sums_captures(const struct ddp *ddp)
{
	return by_device() ? ddp_device_captures(ddp) : !shared;
}

/*
 * A sum that fails ends all that is behind it. With DDP_EMULATED_GIVEN_UP=N another rank gave one up after N
 * times of asking.
 */
int sums_check(struct ddp *ddp, struct ddp_error *error)
{
	static int asked;
	const char *wish = getenv("DDP_EMULATED_GIVEN_UP");
	int status = by_device() ? ddp_device_check(ddp) : 0;

	if (wish && asked++ >= atoi(wish))
		return ddp_error_set(error, DDP_ERR_ABORTED, "a sum was given up, as asked");

	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

void sums_free(struct ddp *ddp, struct device *device, void *memory)
{
	if (!memory)
		return;
	if (host_uncount(device, memory))
		(void)ddp_device_free(ddp, memory);
	else
		device_free(device, memory);
}

int sums_reduce(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		size_t count, enum ddp_type type, struct ddp_error *error)
{
	struct sum sum = {ddp, SUM_REDUCE, NULL, data, count, type, 0};

	return submit(device, stream, &sum, error);
}

int sums_gather(struct ddp *ddp, struct device *device, enum device_stream stream, const void *send,
		void *recv, size_t bytes, struct ddp_error *error)
{
	struct sum sum = {ddp, SUM_GATHER, send, recv, bytes, DDP_U8, 0};

	return submit(device, stream, &sum, error);
}

int sums_broadcast(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		   size_t bytes, int root, struct ddp_error *error)
{
	struct sum sum = {ddp, SUM_BROADCAST, NULL, data, bytes, DDP_U8, root};

	return submit(device, stream, &sum, error);
}

int sums_wait(struct ddp *ddp, struct device *device, enum device_stream stream,
	      struct ddp_error *error)
{
	(void)ddp;
	return device_wait(device, stream, error);
}
