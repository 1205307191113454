/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host-stream.h"
#include "queue-host.h"

/*
 * queue-host.c - streams and graphs as queues of operations
 *
 * Operations wait in lanes (first-in, first-out queues). Each stream has two lanes: one for its own
 * operations, and one for the operations of graphs on this stream. A graph is a list of operations,
 * and a launch appends each of them to its lane; operations on COMPUTE go to the own lane of
 * COMPUTE. A call that waits repeatedly runs the first operation of a lane, chosen at random from
 * the lanes whose first operation may run.
 */
enum { LANES = 2 * DEVICE_STREAMS };

/*
 * LANE_LIMIT: most operations in a lane, because a GPU's queue has a limit too. queues_poke() runs
 * fewer than POKES operations.
 */
enum { LANE_LIMIT = 2048, POKES = 8 };

struct op {
	struct op *next;
	bool is_work; /* false: the operation waits for lane [earlier] */
	int lane;
	struct queue_work work;
	uint64_t ordinal; /* number of a collective in the order of submission */
	int earlier;	  /* lane to wait for, until [position] operations of it are done */
	uint64_t position;
	struct device_graph *graph; /* graph that owns the work; NULL: this operation owns it */
};

struct list {
	struct op *first, **end;
};

struct lane {
	struct list ops; /* operations that are not done yet */
	uint64_t submitted, done;
};

/* State of a stream in a capture. */
struct captured {
	bool joined;
	uint64_t submitted, last_work; /* number of operations; position after the last work */
	/* number of operations of each stream that the next operation must wait for */
	uint64_t known[DEVICE_STREAMS];
};

struct device_graph {
	struct list ops;
	struct captured streams[DEVICE_STREAMS];
	size_t nodes;
	int users; /* number of references: the owner, and launched operations */
};

struct stream {
	struct host_stream stream;
	struct queues *queues;
	enum device_stream which;
};

struct queues {
	struct lane lanes[LANES];
	struct stream streams[DEVICE_STREAMS];
	struct device_graph *capture; /* graph that is being captured */
	uint64_t collectives, collectives_done;
	uint64_t chance;
	struct ddp_error failure; /* the first error */
};

/* --- Lists ------------------------------------------------------------------------------ */

static void list_append(struct list *list, const struct op *what)
{
	struct op *op = malloc(sizeof(*op));

	if (!op) {
		fputs("emulated device: out of memory\n", stderr);
		abort();
	}
	*op = *what;
	op->next = NULL;
	*list->end = op;
	list->end = &op->next;
}

static void op_free(struct op *op)
{
	if (op->graph)
		device_graph_destroy(op->graph);
	else if (op->is_work && op->work.forget)
		op->work.forget(op->work.data);
	free(op);
}

static void list_remove_first(struct list *list)
{
	struct op *op = list->first;

	list->first = op->next;
	if (!list->first)
		list->end = &list->first;
	op_free(op);
}

static const struct host_stream_class stream_class;

struct queues *queues_create(uint64_t seed)
{
	struct queues *queues = calloc(1, sizeof(*queues));

	if (!queues)
		return NULL;
	queues->chance = seed;
	for (int i = 0; i < LANES; i++)
		queues->lanes[i].ops.end = &queues->lanes[i].ops.first;
	for (int i = 0; i < DEVICE_STREAMS; i++)
		queues->streams[i] =
			(struct stream){{&stream_class}, queues, (enum device_stream)i};
	return queues;
}

void queues_destroy(struct queues *queues)
{
	if (!queues)
		return;
	for (int i = 0; i < LANES; i++)
		while (queues->lanes[i].ops.first)
			list_remove_first(&queues->lanes[i].ops);
	device_graph_destroy(queues->capture);
	free(queues);
}

void *queues_stream(struct queues *queues, enum device_stream stream)
{
	return &queues->streams[stream];
}

bool queues_captured(const struct queues *queues, enum device_stream stream)
{
	return queues->capture && queues->capture->streams[stream].joined;
}

/* --- Execution -------------------------------------------------------------------------- */

static unsigned int draw_below(struct queues *queues, unsigned int limit)
{
	uint64_t z = queues->chance += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (unsigned int)((z ^ z >> 31) % limit);
}

static bool may_run(const struct queues *queues, const struct op *op)
{
	if (!op)
		return false;
	if (!op->is_work)
		return queues->lanes[op->earlier].done >= op->position;
	return !op->work.collective || op->ordinal == queues->collectives_done;
}

/* Runs [work]. Returns whether it is done. */
static bool run_work(struct queues *queues, const struct queue_work *work)
{
	struct ddp_error error = {0, ""};
	int status = 0;

	/* As on a GPU after a fault, no work runs any more, and all calls return the error. */
	if (!queues->failure.status)
		status = work->call(work->data, &error);
	if (status == QUEUE_LATER)
		return false;
	if (status < 0)
		queues->failure = error;
	queues->collectives_done += work->collective;
	return true;
}

/*
 * Results of run_one(): an operation is done; every operation that could run waits for another
 * rank; no operation could run.
 */
enum outcome { DONE, LATER, NONE };

static enum outcome run_one(struct queues *queues)
{
	enum outcome outcome = NONE;
	int order[LANES];

	for (int i = 0; i < LANES; i++) {
		int j = (int)draw_below(queues, (unsigned int)i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	for (int i = 0; i < LANES; i++) {
		struct lane *lane = &queues->lanes[order[i]];
		struct op *op = lane->ops.first;

		if (!may_run(queues, op))
			continue;
		if (!op->is_work || run_work(queues, &op->work)) {
			list_remove_first(&lane->ops);
			lane->done++;
			return DONE;
		}
		outcome = LATER;
	}
	return outcome;
}

static void run_until(struct queues *queues, int lane, uint64_t position)
{
	while (queues->lanes[lane].done < position) {
		enum outcome outcome = run_one(queues);

		if (outcome == NONE) {
			fputs("emulated device: its streams wait for each other\n", stderr);
			abort();
		}
		if (outcome == LATER)
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
}

static int queues_failure(const struct queues *queues, struct ddp_error *error)
{
	if (queues->failure.status && error)
		*error = queues->failure;
	return queues->failure.status;
}

int queues_poke(struct queues *queues, struct ddp_error *error)
{
	for (unsigned int left = draw_below(queues, POKES); left > 0; left--)
		if (run_one(queues) != DONE)
			break;
	return queues_failure(queues, error);
}

int queues_wait(struct queues *queues, enum device_stream stream, struct ddp_error *error)
{
	if (queues_captured(queues, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a wait for a stream that is being captured");
	run_until(queues, (int)stream, queues->lanes[stream].submitted);
	return queues_failure(queues, error);
}

int queues_drain(struct queues *queues, struct ddp_error *error)
{
	for (int i = 0; i < LANES; i++)
		run_until(queues, i, queues->lanes[i].submitted);
	return queues_failure(queues, error);
}

bool queues_rest(struct queues *queues)
{
	while (run_one(queues) == DONE)
		;
	for (int i = 0; i < LANES; i++)
		if (queues->lanes[i].ops.first)
			return false;
	return true;
}

int queues_ended(struct queues *queues, enum device_stream stream, struct ddp_error *error)
{
	int status = queues_poke(queues, error);

	return status ? status : !queues->lanes[stream].ops.first;
}

/* --- Submission ------------------------------------------------------------------------- */

static void lane_append(struct queues *queues, struct op *op)
{
	struct lane *lane = &queues->lanes[op->lane];

	if (op->is_work && op->work.collective)
		op->ordinal = queues->collectives++;
	list_append(&lane->ops, op);
	lane->submitted++;
}

static void limit_lane(struct queues *queues, int lane)
{
	if (queues->lanes[lane].submitted - queues->lanes[lane].done > LANE_LIMIT)
		run_until(queues, lane, queues->lanes[lane].submitted - LANE_LIMIT / 2);
}

void queues_submit(void *to, const struct queue_work *work)
{
	struct stream *stream = to;
	struct queues *queues = stream->queues;
	struct op op = {.is_work = true, .lane = (int)stream->which, .work = *work};

	if (queues_captured(queues, stream->which)) {
		struct captured *captured = &queues->capture->streams[stream->which];

		list_append(&queues->capture->ops, &op);
		captured->last_work = ++captured->submitted;
		queues->capture->nodes++;
		return;
	}
	lane_append(queues, &op);
	limit_lane(queues, op.lane);
}

/* Implements queues_order() if one of the streams is being captured. */
static int graph_order(struct device_graph *graph, enum device_stream later,
		       enum device_stream earlier, struct ddp_error *error)
{
	struct captured *to = &graph->streams[later], *from = &graph->streams[earlier];
	struct op op = {.lane = (int)later, .earlier = (int)earlier, .position = from->submitted};

	if (!from->joined)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a captured stream cannot wait for stream %d, "
				     "which has not joined the capture",
				     (int)earlier);
	to->joined = true;
	list_append(&graph->ops, &op);
	to->submitted++;
	for (int i = 0; i < DEVICE_STREAMS; i++)
		if (to->known[i] < from->known[i])
			to->known[i] = from->known[i];
	to->known[earlier] = from->submitted;
	return 0;
}

int queues_order(struct queues *queues, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	struct op op = {.lane = (int)later,
			.earlier = (int)earlier,
			.position = queues->lanes[earlier].submitted};

	if (later == earlier)
		return 0;
	if (queues_captured(queues, later) || queues_captured(queues, earlier))
		return graph_order(queues->capture, later, earlier, error);
	lane_append(queues, &op);
	limit_lane(queues, op.lane);
	return 0;
}

/* --- Interface for the emulated modules of libddp ----------------------------------------- */

/* An operation and its argument. Each launch of a graph starts with a new copy of the argument. */
struct operation {
	bool (*run)(void *argument);
	_Alignas(16) unsigned char initial[HOST_ARGUMENT], argument[HOST_ARGUMENT];
};

static int run_operation(void *data, struct ddp_error *error)
{
	struct operation *operation = data;

	(void)error;
	if (!operation->run(operation->argument))
		return QUEUE_LATER;
	memcpy(operation->argument, operation->initial, sizeof(operation->argument));
	return 0;
}

static void stream_add(struct host_stream *stream, const struct host_operation *what)
{
	struct operation *operation = calloc(1, sizeof(*operation));
	struct queue_work work = {run_operation, free, operation, what->collective};

	if (!operation || what->size > HOST_ARGUMENT)
		abort();
	operation->run = what->run;
	memcpy(operation->initial, what->argument, what->size);
	memcpy(operation->argument, what->argument, what->size);
	queues_submit(stream, &work);
}

/* Returns whether the stream is idle. A call also runs some of the work. */
static bool stream_idle(struct host_stream *stream)
{
	struct stream *of = (struct stream *)(void *)stream;

	(void)queues_rest(of->queues);
	return !of->queues->lanes[of->which].ops.first;
}

static bool stream_captured(struct host_stream *stream)
{
	struct stream *of = (struct stream *)(void *)stream;

	return queues_captured(of->queues, of->which);
}

static int stream_order(struct host_stream *later, struct host_stream *earlier)
{
	struct stream *of = (struct stream *)(void *)later;

	return queues_order(of->queues, of->which, ((struct stream *)(void *)earlier)->which, NULL);
}

static const struct host_stream_class stream_class = {stream_add, stream_idle, stream_captured,
						      stream_order};

/* --- Graphs ----------------------------------------------------------------------------- */

size_t queues_nodes;

int queues_capture_begin(struct queues *queues, struct ddp_error *error)
{
	if (queues->capture)
		return ddp_error_set(error, DDP_ERR_STATE, "emulated GPU: a capture in a capture");
	queues->capture = calloc(1, sizeof(*queues->capture));
	if (!queues->capture)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a graph");
	queues->capture->users = 1;
	queues->capture->ops.end = &queues->capture->ops.first;
	queues->capture->streams[DEVICE_COMPUTE].joined = true;
	return 0;
}

int queues_capture_end(struct queues *queues, struct device_graph **graph, struct ddp_error *error)
{
	struct device_graph *capture = queues->capture;
	int status = 0;

	*graph = NULL;
	if (!capture)
		return ddp_error_set(error, DDP_ERR_STATE, "emulated GPU: no capture to end");
	queues->capture = NULL;
	for (int i = 0; i < DEVICE_STREAMS; i++)
		if (i != DEVICE_COMPUTE &&
		    capture->streams[i].last_work > capture->streams[DEVICE_COMPUTE].known[i])
			status = ddp_error_set(error, DDP_ERR_STATE,
					       "emulated GPU: the captured stream %d has work that "
					       "the first stream does not wait for",
					       i);
	if (status) {
		device_graph_destroy(capture);
		return status;
	}
	queues_nodes = capture->nodes;
	*graph = capture;
	return 0;
}

/* Returns the lane of [stream] for the operations of graphs. */
static int graph_lane(int stream)
{
	return stream == DEVICE_COMPUTE ? stream : DEVICE_STREAMS + stream;
}

int queues_launch(struct queues *queues, struct device_graph *graph, struct ddp_error *error)
{
	uint64_t base[DEVICE_STREAMS];

	if (queues->capture)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a graph is launched during a capture");
	for (int i = 0; i < DEVICE_STREAMS; i++)
		base[i] = queues->lanes[graph_lane(i)].submitted;
	for (struct op *recorded = graph->ops.first; recorded; recorded = recorded->next) {
		struct op op = *recorded;

		op.lane = graph_lane(recorded->lane);
		op.earlier = graph_lane(recorded->earlier);
		op.position += base[recorded->earlier];
		op.graph = graph;
		graph->users++;
		lane_append(queues, &op);
	}
	limit_lane(queues, DEVICE_COMPUTE);
	return queues_failure(queues, error);
}

void device_graph_destroy(struct device_graph *graph)
{
	if (!graph || --graph->users > 0)
		return;
	while (graph->ops.first)
		list_remove_first(&graph->ops);
	free(graph);
}
