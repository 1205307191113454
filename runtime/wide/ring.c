/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "exchange.h"

/* Pieces on their way at a time, in each direction. */
enum { WINDOW = 4 };

/* Up to here latency counts and data goes as a whole; beyond it goes in pieces of CHUNK. */
#define SMALL (64u << 10)
#define CHUNK (256u << 10)

_Static_assert(DDP_COLUMN_SCRATCH_FULL == WINDOW * CHUNK, "scratch of a full window");

/* --- A pipe: large data on its way through a column, piece by piece ------------------- */

/*
 * A member takes parts from one neighbour and passes parts to the other. A vector is cut into
 * parts, parts into pieces; a piece is passed on as soon as it is here, while the next ones
 * are on their way. Rings and chains differ in which parts go where, and that is all that this
 * file has to be told.
 */

/* Part p of [count] is from offsets[p] to offsets[p+1]; or, offsets NULL, all of one length. */
struct parts {
	int count;
	const size_t *offsets;
	size_t length, total;
};

/* Walks through [left] parts downwards from [part], piece by piece. */
struct walk {
	int part, left;
	int step; /* how many parts were behind this one */
	size_t at, end;
};

struct piece {
	struct ddp_message message;
	size_t at, bytes;
};

struct pipe {
	/* Set by the caller. */
	struct ddp_exchange *exchange;
	struct parts parts;
	char *data;
	size_t chunk;	     /* of a piece, at most */
	int from, to;	     /* members */
	int own;	     /* this many of the parts that go out are here at the start */
	int combine;	     /* this many of the parts that come in are combined with ours */
	ddp_kernel *kernel;  /* how */
	size_t element;	     /* bytes */
	char *scratch;	     /* WINDOW chunks, if [combine] */
	struct walk in, out; /* begun with begin_walk() */

	struct piece in_window[WINDOW], out_window[WINDOW];
	uint64_t in_begun, in_done, out_begun, out_done;
	uint64_t out_own;   /* pieces that went out without having come in */
	uint64_t in_placed; /* pieces begun that come to where they stay */
};

/* --- Which piece is next -------------------------------------------------------------- */

static size_t part_begin(const struct parts *parts, int part)
{
	size_t begin;

	if (parts->offsets)
		return parts->offsets[part];
	begin = (size_t)part * parts->length;
	return begin < parts->total ? begin : parts->total;
}

/* [walk] is to go through [steps] parts of the ring of [count], downwards from [part]. */
static void begin_walk(struct walk *walk, int part, int steps, int count)
{
	/* One before the first, with nothing left of it. */
	*walk = (struct walk){.part = (part + 1) % count, .left = steps, .step = -1};
}

/* Whether there is a further piece; walk->step is then the number of its part. */
static bool walk_more(const struct parts *parts, struct walk *walk)
{
	while (walk->at == walk->end) {
		if (walk->left == 0)
			return false;
		walk->left--;
		walk->step++;
		walk->part = walk->part ? walk->part - 1 : parts->count - 1;
		walk->at = part_begin(parts, walk->part);
		walk->end = part_begin(parts, walk->part + 1);
	}
	return true;
}

static void walk_take(struct walk *walk, size_t chunk, struct piece *piece)
{
	piece->at = walk->at;
	piece->bytes = walk->end - walk->at < chunk ? walk->end - walk->at : chunk;
	walk->at += piece->bytes;
}

/* --- Begin ---------------------------------------------------------------------------- */

static char *scratch_of(const struct pipe *pipe, uint64_t number)
{
	return pipe->scratch + (number % WINDOW) * pipe->chunk;
}

/*
 * The next piece to come goes to scratch, or to its place. In the latter case our own version
 * of it, which was sent before, must have left: the k-th piece that is placed is the k-th one
 * that was sent.
 */
static int begin_receive(struct pipe *pipe)
{
	struct piece *piece = &pipe->in_window[pipe->in_begun % WINDOW];
	bool combine;
	int status;

	if (pipe->in_begun - pipe->in_done == WINDOW || !walk_more(&pipe->parts, &pipe->in))
		return 0;
	combine = pipe->in.step < pipe->combine;
	if (pipe->combine && !combine && pipe->out_done <= pipe->in_placed)
		return 0;
	walk_take(&pipe->in, pipe->chunk, piece);
	status = ddp_exchange_recv(
		pipe->exchange, &piece->message, pipe->from, (uint32_t)pipe->in_begun,
		combine ? scratch_of(pipe, pipe->in_begun) : pipe->data + piece->at, piece->bytes);
	pipe->in_begun++;
	pipe->in_placed += !combine;
	return status < 0 ? status : 1;
}

/* The next piece to go: one of our own, or the oldest that came and was not passed on. */
static int begin_send(struct pipe *pipe)
{
	struct piece *piece = &pipe->out_window[pipe->out_begun % WINDOW];
	bool own;
	int status;

	if (pipe->out_begun - pipe->out_done == WINDOW || !walk_more(&pipe->parts, &pipe->out))
		return 0;
	own = pipe->out.step < pipe->own;
	if (!own && pipe->out_begun - pipe->out_own >= pipe->in_done)
		return 0;
	walk_take(&pipe->out, pipe->chunk, piece);
	status = ddp_exchange_send(pipe->exchange, &piece->message, pipe->to,
				   (uint32_t)pipe->out_begun, pipe->data + piece->at, piece->bytes);
	pipe->out_begun++;
	pipe->out_own += own;
	return status < 0 ? status : 1;
}

/* --- End ------------------------------------------------------------------------------ */

/* What came from before us in the ring is the first operand. */
static void combine(const struct pipe *pipe, const struct piece *piece, const char *came)
{
	void *to[] = {pipe->data + piece->at};
	const void *from[] = {came, pipe->data + piece->at};

	pipe->kernel(to, 1, from, 2, piece->bytes / pipe->element, 1);
}

static int end_receive(struct pipe *pipe)
{
	struct piece *piece = &pipe->in_window[pipe->in_done % WINDOW];
	int status;

	if (pipe->in_done == pipe->in_begun)
		return 0;
	status = ddp_exchange_test(pipe->exchange, &piece->message);
	if (status <= 0)
		return status;
	/* Pieces that are placed come after all those that are combined. */
	if (pipe->in_done < pipe->in_begun - pipe->in_placed)
		combine(pipe, piece, scratch_of(pipe, pipe->in_done));
	pipe->in_done++;
	return 1;
}

static int end_send(struct pipe *pipe)
{
	struct piece *piece = &pipe->out_window[pipe->out_done % WINDOW];
	int status;

	if (pipe->out_done == pipe->out_begun)
		return 0;
	status = ddp_exchange_test(pipe->exchange, &piece->message);
	if (status > 0)
		pipe->out_done++;
	return status;
}

/* --- Run ------------------------------------------------------------------------------ */

/* Everything that can be done now, a little of each. Returns whether anything could. */
static int turn(struct pipe *pipe)
{
	static int (*const parts[])(struct pipe *) = {begin_receive, begin_send, end_send,
						      end_receive};
	int done = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int status;

		while ((status = parts[i](pipe)) > 0)
			done = 1;
		if (status < 0)
			return status;
	}
	return done;
}

/* Run it all. Returns 0, or what the exchange returned. */
static int run_pipe(struct pipe *pipe)
{
	int status;

	pipe->in_begun = pipe->in_done = pipe->out_begun = pipe->out_done = 0;
	pipe->out_own = pipe->in_placed = 0;
	do {
		const struct piece *piece;

		status = turn(pipe);
		if (status != 0)
			continue;
		if (pipe->in_done < pipe->in_begun)
			piece = &pipe->in_window[pipe->in_done % WINDOW];
		else if (pipe->out_done < pipe->out_begun)
			piece = &pipe->out_window[pipe->out_done % WINDOW];
		else
			return 0;
		status = ddp_exchange_step(pipe->exchange, &piece->message);
	} while (status >= 0);
	return status;
}

/* --- All-reduce ----------------------------------------------------------------------- */

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
	size_t chunk = column->scratch_bytes / WINDOW / 64 * 64;
	struct pipe pipe = {
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

	begin_walk(&pipe.out, index, 2 * (size - 1), size);
	begin_walk(&pipe.in, (index + size - 1) % size, 2 * (size - 1), size);
	return run_pipe(&pipe);
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

/* --- Broadcast ------------------------------------------------------------------------ */

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
	struct pipe pipe = {
		.exchange = exchange,
		.parts = {1, NULL, bytes, bytes},
		.data = data,
		.chunk = CHUNK,
		.from = (column->index + size - 1) % size,
		.to = (column->index + 1) % size,
		.own = self == 0,
	};

	begin_walk(&pipe.out, 0, self + 1 < size, 1);
	begin_walk(&pipe.in, 0, self > 0, 1);
	return run_pipe(&pipe);
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

/* --- All-gather and barrier ----------------------------------------------------------- */

int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	int size = column->size, index = column->index;
	struct ddp_exchange exchange;
	struct pipe pipe = {
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
	begin_walk(&pipe.out, index, size - 1, size);
	begin_walk(&pipe.in, pipe.from, size - 1, size);
	return ddp_exchange_end(&exchange, run_pipe(&pipe), error);
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
