/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "queue-private.h"

/* Operations that may wait: a GPU's queue is bounded too. */
enum { PATIENCE = 2048 };

/* --- Lanes -------------------------------------------------------------------------------- */

void lanes_open(struct lane *lanes)
{
	for (int i = 0; i < LANES; i++)
		lanes[i].end = &lanes[i].first;
}

static void op_free(struct op *op)
{
	if (op->kind == OP_WORK && op->work.forget)
		op->work.forget(op->work.data);
	if (op->kind == OP_LAUNCH)
		device_graph_destroy(op->graph);
	free(op);
}

void lanes_close(struct lane *lanes)
{
	struct op *next;

	for (int i = 0; i < LANES; i++) {
		for (struct op *op = lanes[i].first; op; op = next) {
			next = op->next;
			op_free(op);
		}
	}
}

void lane_append(struct lane *lane, const struct op *what)
{
	struct op *op = malloc(sizeof(*op));

	if (!op) {
		fputs("emulated device: out of memory\n", stderr);
		abort();
	}
	*op = *what;
	op->next = NULL;
	*lane->end = op;
	lane->end = &op->next;
	lane->submitted++;
	if (op->kind != OP_AFTER)
		lane->last_work = lane->submitted;
}

void lane_take_first(struct lane *lane)
{
	struct op *op = lane->first;

	lane->first = op->next;
	if (!lane->first)
		lane->end = &lane->first;
	lane->done++;
	op_free(op);
}

struct queues *queues_create(uint64_t seed)
{
	struct queues *queues = calloc(1, sizeof(*queues));

	if (!queues)
		return NULL;
	queues->chance = seed;
	lanes_open(queues->lanes);
	for (int i = 0; i < LANES; i++)
		queues->streams[i] = (struct stream){queues, (enum device_stream)i};
	return queues;
}

void queues_destroy(struct queues *queues)
{
	if (!queues)
		return;
	lanes_close(queues->lanes);
	device_graph_destroy(queues->capture);
	free(queues);
}

void *queues_stream(struct queues *queues, enum device_stream stream)
{
	return &queues->streams[stream];
}

bool queues_captured(const struct queues *queues, enum device_stream stream)
{
	return queues->capture && queues->capture->lanes[stream].captured;
}

bool stream_captured(const void *stream)
{
	const struct stream *of = stream;

	return queues_captured(of->queues, of->which);
}

/* --- Waiting ------------------------------------------------------------------------------- */

int queues_failure(const struct queues *queues, struct ddp_error *error)
{
	if (queues->failure.status && error)
		*error = queues->failure;
	return queues->failure.status;
}

int queues_poke(struct queues *queues, struct ddp_error *error)
{
	queues_run_some(queues);
	return queues_failure(queues, error);
}

int queues_wait(struct queues *queues, enum device_stream stream, struct ddp_error *error)
{
	if (queues_captured(queues, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a wait for a stream that is being captured");
	queues_run_until(queues, stream, queues->lanes[stream].submitted);
	return queues_failure(queues, error);
}

int queues_drain(struct queues *queues, struct ddp_error *error)
{
	for (int i = 0; i < LANES; i++)
		queues_run_until(queues, (enum device_stream)i, queues->lanes[i].submitted);
	return queues_failure(queues, error);
}

/* --- Submission ----------------------------------------------------------------------------- */

void queues_put(struct queues *queues, enum device_stream stream, struct op *op)
{
	struct device_graph *capture = queues->capture;
	bool captured = queues_captured(queues, stream);

	if (op->kind == OP_WORK && op->work.collective)
		op->ordinal = captured ? capture->collectives++ : queues->collectives++;
	if (captured) {
		lane_append(&capture->lanes[stream], op);
		capture->nodes += op->kind == OP_WORK;
		return;
	}
	lane_append(&queues->lanes[stream], op);
	if (queues->lanes[stream].submitted - queues->lanes[stream].done > PATIENCE)
		queues_run_until(queues, stream, queues->lanes[stream].submitted - PATIENCE / 2);
}

void queues_submit(void *stream, const struct queue_work *work)
{
	struct stream *to = stream;
	struct op op = {.kind = OP_WORK, .work = *work};

	queues_put(to->queues, to->which, &op);
}

int queues_order(struct queues *queues, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	struct op op = {
		.kind = OP_AFTER, .earlier = earlier, .position = queues->lanes[earlier].submitted};

	if (later == earlier)
		return 0;
	if (queues_captured(queues, later) || queues_captured(queues, earlier))
		return graph_order(queues->capture, later, earlier, error);
	queues_put(queues, later, &op);
	return 0;
}

int queues_mark(struct queues *queues, enum device_stream stream, int slot, struct ddp_error *error)
{
	if (queues_captured(queues, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a mark in a stream that is being captured");
	queues->marks[slot] = (struct mark){stream, queues->lanes[stream].submitted};
	return 0;
}

int queues_reached(struct queues *queues, int slot, struct ddp_error *error)
{
	const struct mark *mark = &queues->marks[slot];
	int status = queues_poke(queues, error);

	return status ? status : queues->lanes[mark->stream].done >= mark->position;
}
