/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - collectives of a column: rings and chains for large data; recursive doubling and trees
 * for small data
 */
#include "config.h"

#include <string.h>

#include "exchange.h"

/* Maximum number of pieces in transfer, in each direction. */
enum { WINDOW = 4 };

/*
 * Data of at most SMALL bytes is sent as a whole, because its transfer time is mainly latency.
 * Larger data is sent in pieces of CHUNK bytes.
 */
#define SMALL (64u << 10)
#define CHUNK (128u << 10)

_Static_assert(DDP_COLUMN_SCRATCH == WINDOW * CHUNK, "scratch for a full window");

/* --- A pipeline: large data moves through a column in pieces ------------------------------- */

/*
 * A member receives parts of a vector from the previous member, and sends parts to the next member.
 * Parts are cut into pieces. Each piece is forwarded as soon as it has arrived, while later pieces
 * are in flight. Rings and chains differ only in which parts a member receives and sends.
 */

/*
 * Part p of [count] is bytes offsets[p] to offsets[p+1]. If [offsets] is NULL, each part has
 * [length] bytes, and all parts together have [total].
 */
struct parts {
	int count;
	const size_t *offsets;
	size_t length, total;
};

/*
 * Position in a descending sequence of parts: the current part, and the number of parts after it.
 */
struct walk {
	int part, left;
	int step;	/* number of parts before this one */
	size_t at, end; /* remaining bytes of the part: from [at] to [end] */
};

struct piece {
	struct ddp_message message;
	size_t at, bytes;
};

struct pipe {
	/* These members are set by the caller. */
	struct ddp_exchange *exchange;
	struct parts parts;
	char *data;
	struct walk in, out; /* positions in the parts to receive, and in the parts to send */
	/* the first [own] parts to send are this member's own; the others must arrive first */
	int own;
	/* the first [combine] parts to receive are combined with this member's data */
	int combine;
	ddp_kernel *kernel;
	size_t element; /* bytes of an element */
	char *scratch;	/* WINDOW chunks; used only if [combine] is not 0 */

	struct piece in_window[WINDOW], out_window[WINDOW];
	uint64_t in_begun, in_done, out_begun, out_done;
	uint64_t out_own;   /* number of this member's own pieces sent so far */
	uint64_t in_placed; /* number of pieces received directly into [data] */
};

/* --- The next piece ------------------------------------------------------------------------ */

static size_t part_begin(const struct parts *parts, int part)
{
	size_t begin;

	if (parts->offsets)
		return parts->offsets[part];
	begin = (size_t)part * parts->length;
	return begin < parts->total ? begin : parts->total;
}

/*
 * Returns the start of a descending sequence of [steps] parts, modulo [count]. The first is [part].
 */
static struct walk walk_from(int part, int steps, int count)
{
	/* the end of the part before the first, from which has_piece() advances to the first */
	return (struct walk){.part = (part + 1) % count, .left = steps, .step = -1};
}

/*
 * Returns whether the sequence contains another piece. If the current part has no further piece,
 * advances [walk] to the next part.
 */
static bool has_piece(const struct parts *parts, struct walk *walk)
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

static void next_piece(struct walk *walk, struct piece *piece)
{
	piece->at = walk->at;
	piece->bytes = walk->end - walk->at < CHUNK ? walk->end - walk->at : CHUNK;
	walk->at += piece->bytes;
}

/* Returns the member at [distance] after this member, or before it if [distance] is negative. */
static int neighbour(const struct ddp_column *column, int distance)
{
	return (column->index + column->size + distance) % column->size;
}

static char *scratch_of(const struct pipe *pipe, uint64_t number)
{
	return pipe->scratch + (number % WINDOW) * CHUNK;
}

/*
 * Start to receive the next piece. A piece that will be combined is received to [scratch], and any
 * other piece directly to [data]. A send of this member's own data may still read the same part of
 * [data]. Therefore the k-th receive to [data] waits until the k-th send has ended.
 */
static int begin_receive(struct pipe *pipe)
{
	struct piece *piece = &pipe->in_window[pipe->in_begun % WINDOW];
	bool combine;
	int status;

	if (pipe->in_begun - pipe->in_done == WINDOW || !has_piece(&pipe->parts, &pipe->in))
		return 0;
	combine = pipe->in.step < pipe->combine;
	if (pipe->combine && !combine && pipe->out_done <= pipe->in_placed)
		return 0;
	next_piece(&pipe->in, piece);
	status = ddp_exchange_recv(
		pipe->exchange, &piece->message, neighbour(pipe->exchange->column, -1),
		combine ? scratch_of(pipe, pipe->in_begun) : pipe->data + piece->at, piece->bytes);
	pipe->in_begun++;
	pipe->in_placed += !combine;
	return status < 0 ? status : 1;
}

/*
 * Start to send the next piece. This is a piece of this member's own data, or the oldest piece that
 * has arrived and was not forwarded yet.
 */
static int begin_send(struct pipe *pipe)
{
	struct piece *piece = &pipe->out_window[pipe->out_begun % WINDOW];
	bool own;
	int status;

	if (pipe->out_begun - pipe->out_done == WINDOW || !has_piece(&pipe->parts, &pipe->out))
		return 0;
	own = pipe->out.step < pipe->own;
	if (!own && pipe->out_begun - pipe->out_own >= pipe->in_done)
		return 0;
	next_piece(&pipe->out, piece);
	status = ddp_exchange_send(pipe->exchange, &piece->message,
				   neighbour(pipe->exchange->column, 1), pipe->data + piece->at,
				   piece->bytes);
	pipe->out_begun++;
	pipe->out_own += own;
	return status < 0 ? status : 1;
}

/* Combine a piece. The received data, which comes from earlier members, is the first operand. */
static void combine(const struct pipe *pipe, const struct piece *piece, const char *arrived)
{
	void *to[] = {pipe->data + piece->at};
	const void *from[] = {arrived, pipe->data + piece->at};

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
	/* All pieces that are combined arrive before the pieces that are received to [data]. */
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

/*
 * Do everything that is possible without waiting. Returns 1 if anything was done, 0 if nothing was
 * done, or a DDP_ERR_x.
 */
static int run_once(struct pipe *pipe)
{
	static int (*const steps[])(struct pipe *) = {begin_receive, begin_send, end_send,
						      end_receive};
	int done = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int status;

		while ((status = steps[i](pipe)) > 0)
			done = 1;
		if (status < 0)
			return status;
	}
	return done;
}

/* Run the pipeline until all pieces are done. Returns 0, or a DDP_ERR_x of the exchange. */
static int run_pipe(struct pipe *pipe)
{
	int status;

	do {
		const struct piece *piece;

		status = run_once(pipe);
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

/*
 * Receive [bytes] from member [from] to [in], and send [bytes] from [out] to member [to]. If [from]
 * or [to] is -1, do not receive or not send. Returns 0, or a DDP_ERR_x of the exchange.
 */
static int move(struct ddp_exchange *exchange, int from, void *in, int to, const void *out,
		size_t bytes)
{
	struct ddp_message received, sent;
	int status = 0;

	if (from >= 0)
		status = ddp_exchange_recv(exchange, &received, from, in, bytes);
	if (to >= 0 && status == 0)
		status = ddp_exchange_send(exchange, &sent, to, out, bytes);
	if (from >= 0 && status == 0)
		status = ddp_exchange_wait(exchange, &received);
	if (to >= 0 && status == 0)
		status = ddp_exchange_wait(exchange, &sent);
	return status;
}

/* --- Partners ------------------------------------------------------------------------------ */

static void add_partner(int partner, int index, int *partners, int *count)
{
	for (int i = 0; i < *count; i++)
		if (partners[i] == partner)
			return;
	if (partner != index)
		partners[(*count)++] = partner;
}

/* Returns the largest power of two that is at most [size]. */
static int power_below(int size)
{
	int power = 1;

	while (power <= size / 2)
		power *= 2;
	return power;
}

/*
 * Returns the column index of the member with number [self] in recursive doubling. The numbers
 * count the members that remain after [extra] members have combined their data with a neighbour's.
 */
static int member_at(int self, int extra)
{
	return self < extra ? 2 * self : self + extra;
}

int ddp_column_partners(int size, int index, int partners[static DDP_COLUMN_PARTNERS])
{
	int power = power_below(size), extra = size - power, count = 0;
	int self = index < 2 * extra ? index / 2 : index - extra;

	for (int distance = 1; distance < size; distance *= 2) {
		add_partner((index + distance) % size, index, partners, &count);
		add_partner((index + size - distance) % size, index, partners, &count);
	}
	/* In recursive doubling, odd members below 2 * extra exchange data with a neighbour only. */
	if (index < 2 * extra && index % 2)
		return count;
	for (int bit = 1; bit < power; bit *= 2)
		add_partner(member_at(self ^ bit, extra), index, partners, &count);
	return count;
}

/* --- All-reduce ---------------------------------------------------------------------------- */

struct reduction {
	struct ddp_exchange exchange;
	struct ddp_column *column;
	char *data;
	size_t count, bytes;
	ddp_kernel *kernel;
};

/*
 * Receive [member]'s data, and combine it with this member's data. If [both] is true, also send
 * this member's data. The data of the lower member is the first operand.
 */
static int combine_with(struct reduction *reduction, int member, bool both)
{
	struct ddp_column *column = reduction->column;
	bool first = column->index < member;
	void *to[] = {reduction->data};
	const void *from[] = {first ? reduction->data : column->scratch,
			      first ? column->scratch : reduction->data};
	int status = move(&reduction->exchange, member, column->scratch, both ? member : -1,
			  reduction->data, reduction->bytes);

	if (status == 0)
		reduction->kernel(to, 1, from, 2, reduction->count, 1);
	return status;
}

/*
 * Recursive doubling. If the number of members is not a power of two, some members first combine
 * their data into their even neighbours'. The remaining members keep the order of the column. The
 * sum is a tree over neighbours, which is the same on all members.
 */
static int reduce_small(struct reduction *reduction)
{
	struct ddp_exchange *exchange = &reduction->exchange;
	size_t bytes = reduction->bytes;
	int index = reduction->column->index, status = 0;
	int power = power_below(reduction->column->size), extra = reduction->column->size - power;
	bool folded = index < 2 * extra;
	int self = folded ? index / 2 : index - extra;

	if (folded && index % 2) {
		status = move(exchange, -1, NULL, index - 1, reduction->data, bytes);
		return status < 0 ? status
				  : move(exchange, index - 1, reduction->data, -1, NULL, bytes);
	}
	if (folded)
		status = combine_with(reduction, index + 1, false);
	for (int bit = 1; bit < power && status == 0; bit *= 2)
		status = combine_with(reduction, member_at(self ^ bit, extra), true);
	if (folded && status == 0)
		status = move(exchange, -1, NULL, index + 1, reduction->data, bytes);
	return status;
}

/*
 * Ring. In each of the first size-1 steps, a part arrives, this member adds its own part, and
 * forwards the sum. After that, each part is complete on one member. In the next size-1 steps,
 * members forward complete parts. Part p is summed in the order of the ring, starting at member p.
 */
static int reduce_large(struct reduction *reduction)
{
	struct ddp_column *column = reduction->column;
	int size = column->size, steps = 2 * (size - 1);
	size_t length = (reduction->bytes + (size_t)size - 1) / (size_t)size;
	struct pipe pipe = {
		.exchange = &reduction->exchange,
		.parts = {size, NULL, (length + 63) / 64 * 64, reduction->bytes},
		.data = reduction->data,
		.in = walk_from(neighbour(column, -1), steps, size),
		.out = walk_from(column->index, steps, size),
		.own = 1,
		.combine = size - 1,
		.kernel = reduction->kernel,
		.element = reduction->bytes / reduction->count,
		.scratch = column->scratch,
	};

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
		.kernel = ddp_kernel_get(type, op, column->simd),
	};
	bool small = reduction.bytes <= SMALL;
	int status;

	if (column->size == 1)
		return 0;
	ddp_exchange_start(&reduction.exchange, column, call, watch);
	status = small ? reduce_small(&reduction) : reduce_large(&reduction);
	return ddp_exchange_end(&reduction.exchange, status, error);
}

/* --- Broadcast ----------------------------------------------------------------------------- */

/*
 * Broadcast by a tree. In each step, every member that has the data sends it to another member. The
 * distance to that member halves with each step.
 */
static int broadcast_small(struct ddp_exchange *exchange, void *data, size_t bytes, int root)
{
	struct ddp_message messages[32];
	int size = exchange->column->size, sent = 0, status = 0, bit = 1;
	int self = (exchange->column->index + size - root) % size;

	while (bit < size && !(self & bit))
		bit *= 2;
	if (self)
		status = move(exchange, (self - bit + root) % size, data, -1, NULL, bytes);
	while ((bit /= 2) > 0 && status == 0)
		if (self + bit < size)
			status = ddp_exchange_send(exchange, &messages[sent++],
						   (self + bit + root) % size, data, bytes);
	for (int i = 0; i < sent && status == 0; i++)
		status = ddp_exchange_wait(exchange, &messages[i]);
	return status;
}

/*
 * Broadcast by a chain of members that starts at the root. Each member sends the data once, to the
 * next member, and all members send at the same time.
 */
static int broadcast_large(struct ddp_exchange *exchange, void *data, size_t bytes, int root)
{
	int size = exchange->column->size, self = (exchange->column->index + size - root) % size;
	struct pipe pipe = {
		.exchange = exchange,
		.parts = {1, NULL, bytes, bytes},
		.data = data,
		.in = walk_from(0, self > 0, 1),
		.out = walk_from(0, self + 1 < size, 1),
		.own = self == 0,
	};

	return run_pipe(&pipe);
}

int ddp_column_broadcast(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			 size_t bytes, int root, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct ddp_exchange exchange;
	int status;

	ddp_exchange_start(&exchange, column, call, watch);
	status = bytes <= SMALL ? broadcast_small(&exchange, data, bytes, root)
				: broadcast_large(&exchange, data, bytes, root);
	return ddp_exchange_end(&exchange, status, error);
}

/* --- All-gather and barrier ---------------------------------------------------------------- */

int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	int size = column->size;
	struct ddp_exchange exchange;
	struct pipe pipe = {
		.exchange = &exchange,
		.parts = {size, offsets, 0, 0},
		.data = recv,
		.in = walk_from(neighbour(column, -1), size - 1, size),
		.out = walk_from(column->index, size - 1, size),
		.own = 1,
	};

	ddp_exchange_start(&exchange, column, call, watch);
	return ddp_exchange_end(&exchange, run_pipe(&pipe), error);
}

/*
 * Dissemination barrier. After k steps, a member knows that the 2^k - 1 members before it have
 * entered the barrier.
 */
int ddp_column_barrier(struct ddp_column *column, const struct ddp_column_call *call,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_exchange exchange;
	int status = 0;
	char nothing;

	ddp_exchange_start(&exchange, column, call, watch);
	for (int distance = 1; distance < column->size && status == 0; distance *= 2)
		status = move(&exchange, neighbour(column, -distance), &nothing,
			      neighbour(column, distance), &nothing, 0);
	return ddp_exchange_end(&exchange, status, error);
}
