/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "pipe.h"

/* Up to here latency counts and data goes as a whole; beyond it goes in pieces of CHUNK. */
#define SMALL (64u << 10)
#define CHUNK (256u << 10)

_Static_assert(DDP_COLUMN_SCRATCH_FULL == DDP_PIPE_WINDOW * CHUNK, "scratch of a full window");

/* --- All-reduce ------------------------------------------------------------------------- */

struct reduction {
	struct ddp_exchange exchange;
	struct ddp_column *column;
	char *data;
	size_t count, bytes, element;
	ddp_kernel *kernel;
};

/* Swap the data with [member]'s; combine both with the lower member's first. */
static int swap_and_combine(struct reduction *reduction, int member)
{
	struct ddp_column *column = reduction->column;
	struct ddp_exchange *exchange = &reduction->exchange;
	struct ddp_message in, out;
	bool first = column->index < member;
	void *to[] = {reduction->data};
	const void *from[] = {first ? reduction->data : column->scratch,
			      first ? column->scratch : reduction->data};
	int status;

	status = ddp_exchange_recv(exchange, &in, member, 0, column->scratch, reduction->bytes);
	if (status == 0)
		status = ddp_exchange_send(exchange, &out, member, 0, reduction->data,
					   reduction->bytes);
	if (status == 0)
		status = ddp_exchange_wait(exchange, &in);
	if (status == 0)
		status = ddp_exchange_wait(exchange, &out);
	if (status == 0)
		reduction->kernel(to, 1, from, 2, reduction->count, 1);
	return status;
}

static int send_to(struct ddp_exchange *exchange, int member, const void *data, size_t bytes)
{
	struct ddp_message message;
	int status = ddp_exchange_send(exchange, &message, member, 0, data, bytes);

	return status < 0 ? status : ddp_exchange_wait(exchange, &message);
}

static int take_from(struct ddp_exchange *exchange, int member, void *data, size_t bytes)
{
	struct ddp_message message;
	int status = ddp_exchange_recv(exchange, &message, member, 0, data, bytes);

	return status < 0 ? status : ddp_exchange_wait(exchange, &message);
}

/* An even member of the first pairs: take in what its odd neighbour has. */
static int fold_in(struct reduction *reduction)
{
	struct ddp_column *column = reduction->column;
	void *to[] = {reduction->data};
	const void *from[] = {reduction->data, column->scratch};
	int status = take_from(&reduction->exchange, column->index + 1, column->scratch,
			       reduction->bytes);

	if (status == 0)
		reduction->kernel(to, 1, from, 2, reduction->count, 1);
	return status;
}

/*
 * Recursive doubling. Members beyond a power of two are folded into their even neighbours
 * first, so that what is left is a power of two, in the order of the column: the sum is a
 * tree over neighbours, the same on all members.
 */
static int reduce_small(struct reduction *reduction)
{
	struct ddp_column *column = reduction->column;
	struct ddp_exchange *exchange = &reduction->exchange;
	int power = 1, extra, self, status = 0;

	while (power <= column->size / 2)
		power *= 2;
	extra = column->size - power;
	if (column->index < 2 * extra && column->index % 2) {
		status = send_to(exchange, column->index - 1, reduction->data, reduction->bytes);
		return status < 0 ? status
				  : take_from(exchange, column->index - 1, reduction->data,
					      reduction->bytes);
	}
	if (column->index < 2 * extra)
		status = fold_in(reduction);
	self = column->index < 2 * extra ? column->index / 2 : column->index - extra;
	for (int bit = 1; bit < power && status == 0; bit *= 2) {
		int other = self ^ bit;

		status = swap_and_combine(reduction, other < extra ? 2 * other : other + extra);
	}
	if (column->index < 2 * extra && status == 0)
		status = send_to(exchange, column->index + 1, reduction->data, reduction->bytes);
	return status;
}

/*
 * Ring: for size-1 steps a part comes, ours is added, and it goes on, until each part is
 * complete at one member; for size-1 more steps complete parts go round. Part p is summed in
 * the order of the ring from member p on.
 */
static int reduce_large(struct reduction *reduction)
{
	struct ddp_column *column = reduction->column;
	int size = column->size, index = column->index;
	size_t length = (reduction->bytes + (size_t)size - 1) / (size_t)size;
	size_t chunk = column->scratch_bytes / DDP_PIPE_WINDOW / 64 * 64;
	struct ddp_pipe pipe = {
		.exchange = &reduction->exchange,
		.parts = {size, NULL, (length + 63) / 64 * 64, reduction->bytes},
		.data = reduction->data,
		.chunk = chunk < CHUNK ? chunk : CHUNK,
		.from = (index + size - 1) % size,
		.to = (index + 1) % size,
		.own = 1,
		.combine = size - 1,
		.kernel = reduction->kernel,
		.element = reduction->element,
		.scratch = column->scratch,
	};

	ddp_pipe_walk(&pipe.out, index, 2 * (size - 1), size);
	ddp_pipe_walk(&pipe.in, (index + size - 1) % size, 2 * (size - 1), size);
	return ddp_pipe_run(&pipe);
}

int ddp_column_all_reduce(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			  size_t count, enum ddp_type type, enum ddp_op op,
			  const struct ddp_watch *watch, struct ddp_error *error)
{
	struct reduction reduction = {
		.column = column,
		.data = data,
		.count = count,
		.bytes = count * ddp_type_size(type),
		.element = ddp_type_size(type),
		.kernel = ddp_kernel_get(type, op, column->simd),
	};
	bool small = reduction.bytes <= SMALL && reduction.bytes <= column->scratch_bytes;
	int status;

	if (column->size == 1)
		return 0;
	if (column->scratch_bytes < DDP_COLUMN_SCRATCH)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%zu bytes of scratch for %s, at least %d are needed",
				     column->scratch_bytes, call->name, DDP_COLUMN_SCRATCH);
	ddp_exchange_start(&reduction.exchange, column, call, watch);
	status = small ? reduce_small(&reduction) : reduce_large(&reduction);
	return ddp_exchange_end(&reduction.exchange, status, error);
}

/* --- Broadcast -------------------------------------------------------------------------- */

/* A tree: who has the data gives it to members half as far away each time. */
static int broadcast_small(struct ddp_exchange *exchange, void *data, size_t bytes, int root)
{
	const struct ddp_column *column = exchange->column;
	struct ddp_message messages[32];
	int size = column->size, sent = 0, status = 0, bit = 1;
	int self = (column->index + size - root) % size; /* distance from the root */

	while (bit < size && !(self & bit))
		bit *= 2;
	if (self)
		status = take_from(exchange, (self - bit + root) % size, data, bytes);
	while ((bit /= 2) > 0 && status == 0)
		if (self + bit < size) {
			status = ddp_exchange_send(exchange, &messages[sent],
						   (self + bit + root) % size, 0, data, bytes);
			sent += status == 0;
		}
	for (int i = 0; i < sent && status == 0; i++)
		status = ddp_exchange_wait(exchange, &messages[i]);
	return status;
}

/* A chain from the root on; every link carries the data once, all at the same time. */
static int broadcast_large(struct ddp_exchange *exchange, void *data, size_t bytes, int root)
{
	const struct ddp_column *column = exchange->column;
	int size = column->size, self = (column->index + size - root) % size;
	struct ddp_pipe pipe = {
		.exchange = exchange,
		.parts = {1, NULL, bytes, bytes},
		.data = data,
		.chunk = CHUNK,
		.from = (column->index + size - 1) % size,
		.to = (column->index + 1) % size,
		.own = self == 0,
	};

	ddp_pipe_walk(&pipe.out, 0, self + 1 < size, 1);
	ddp_pipe_walk(&pipe.in, 0, self > 0, 1);
	return ddp_pipe_run(&pipe);
}

int ddp_column_broadcast(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			 size_t bytes, int root, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct ddp_exchange exchange;
	int status;

	if (column->size == 1)
		return 0;
	ddp_exchange_start(&exchange, column, call, watch);
	status = bytes <= SMALL ? broadcast_small(&exchange, data, bytes, root)
				: broadcast_large(&exchange, data, bytes, root);
	return ddp_exchange_end(&exchange, status, error);
}

/* --- All-gather and barrier ------------------------------------------------------------- */

int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	int size = column->size, index = column->index;
	struct ddp_exchange exchange;
	struct ddp_pipe pipe = {
		.exchange = &exchange,
		.parts = {size, offsets, 0, 0},
		.data = recv,
		.chunk = CHUNK,
		.from = (index + size - 1) % size,
		.to = (index + 1) % size,
		.own = 1,
	};

	if (size == 1)
		return 0;
	ddp_exchange_start(&exchange, column, call, watch);
	ddp_pipe_walk(&pipe.out, index, size - 1, size);
	ddp_pipe_walk(&pipe.in, pipe.from, size - 1, size);
	return ddp_exchange_end(&exchange, ddp_pipe_run(&pipe), error);
}

/* Dissemination: after round k a member has heard, by others, of 2^k before it. */
int ddp_column_barrier(struct ddp_column *column, const struct ddp_column_call *call,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_exchange exchange;
	int size = column->size, status = 0;

	ddp_exchange_start(&exchange, column, call, watch);
	for (int distance = 1; distance < size && status == 0; distance *= 2) {
		struct ddp_message in, out;
		char nothing;

		status = ddp_exchange_recv(&exchange, &in, (column->index + size - distance) % size,
					   0, &nothing, 0);
		if (status == 0)
			status = ddp_exchange_send(
				&exchange, &out, (column->index + distance) % size, 0, &nothing, 0);
		if (status == 0)
			status = ddp_exchange_wait(&exchange, &in);
		if (status == 0)
			status = ddp_exchange_wait(&exchange, &out);
	}
	return ddp_exchange_end(&exchange, status, error);
}
