/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pipe.h"

/* --- Which piece is next ---------------------------------------------------------------- */

static size_t part_begin(const struct ddp_parts *parts, int part)
{
	size_t begin;

	if (parts->offsets)
		return parts->offsets[part];
	begin = (size_t)part * parts->length;
	return begin < parts->total ? begin : parts->total;
}

void ddp_pipe_walk(struct ddp_walk *walk, int part, int steps, int count)
{
	/* One before the first, with nothing left of it. */
	*walk = (struct ddp_walk){.part = (part + 1) % count, .left = steps, .step = -1};
}

/* Whether there is a further piece; walk->step is then the number of its part. */
static bool walk_more(const struct ddp_parts *parts, struct ddp_walk *walk)
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

static void walk_take(struct ddp_walk *walk, size_t chunk, struct ddp_piece *piece)
{
	piece->at = walk->at;
	piece->bytes = walk->end - walk->at < chunk ? walk->end - walk->at : chunk;
	walk->at += piece->bytes;
}

/* --- Begin ------------------------------------------------------------------------------ */

static char *scratch_of(const struct ddp_pipe *pipe, uint64_t number)
{
	return pipe->scratch + (number % DDP_PIPE_WINDOW) * pipe->chunk;
}

/*
 * The next piece to come goes to scratch, or to its place. In the latter case our own version
 * of it, which was sent before, must have left: the k-th piece that is placed is the k-th one
 * that was sent.
 */
static int begin_receive(struct ddp_pipe *pipe)
{
	struct ddp_piece *piece = &pipe->in_window[pipe->in_begun % DDP_PIPE_WINDOW];
	bool combine;
	int status;

	if (pipe->in_begun - pipe->in_done == DDP_PIPE_WINDOW ||
	    !walk_more(&pipe->parts, &pipe->in))
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
static int begin_send(struct ddp_pipe *pipe)
{
	struct ddp_piece *piece = &pipe->out_window[pipe->out_begun % DDP_PIPE_WINDOW];
	bool own;
	int status;

	if (pipe->out_begun - pipe->out_done == DDP_PIPE_WINDOW ||
	    !walk_more(&pipe->parts, &pipe->out))
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

/* --- End -------------------------------------------------------------------------------- */

/* What came from before us in the ring is the first operand. */
static void combine(const struct ddp_pipe *pipe, const struct ddp_piece *piece, const char *came)
{
	void *to[] = {pipe->data + piece->at};
	const void *from[] = {came, pipe->data + piece->at};

	pipe->kernel(to, 1, from, 2, piece->bytes / pipe->element, 1);
}

static int end_receive(struct ddp_pipe *pipe)
{
	struct ddp_piece *piece = &pipe->in_window[pipe->in_done % DDP_PIPE_WINDOW];
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

static int end_send(struct ddp_pipe *pipe)
{
	struct ddp_piece *piece = &pipe->out_window[pipe->out_done % DDP_PIPE_WINDOW];
	int status;

	if (pipe->out_done == pipe->out_begun)
		return 0;
	status = ddp_exchange_test(pipe->exchange, &piece->message);
	if (status > 0)
		pipe->out_done++;
	return status;
}

/* --- Run -------------------------------------------------------------------------------- */

/* Everything that can be done now, a little of each. Returns whether anything could. */
static int turn(struct ddp_pipe *pipe)
{
	static int (*const parts[])(struct ddp_pipe *) = {begin_receive, begin_send, end_send,
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

int ddp_pipe_run(struct ddp_pipe *pipe)
{
	int status;

	pipe->in_begun = pipe->in_done = pipe->out_begun = pipe->out_done = 0;
	pipe->out_own = pipe->in_placed = 0;
	do {
		const struct ddp_piece *piece;

		status = turn(pipe);
		if (status != 0)
			continue;
		if (pipe->in_done < pipe->in_begun)
			piece = &pipe->in_window[pipe->in_done % DDP_PIPE_WINDOW];
		else if (pipe->out_done < pipe->out_begun)
			piece = &pipe->out_window[pipe->out_done % DDP_PIPE_WINDOW];
		else
			return 0;
		status = ddp_exchange_step(pipe->exchange, &piece->message);
	} while (status >= 0);
	return status;
}
