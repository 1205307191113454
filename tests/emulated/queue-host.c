/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host-stream.h"
#include "queue-host.h"

/* Operations that may wait: a GPU's queue is bounded too. A poke does fewer things than POKES. */
enum { LANES = DEVICE_STREAMS, PATIENCE = 2048, POKES = 8 };

enum op_kind { OP_WORK, OP_AFTER, OP_LAUNCH };

struct op {
	struct op *next;
	enum op_kind kind;
	struct queue_work work;
	uint64_t ordinal;	    /* of a collective */
	enum device_stream earlier; /* AFTER: so many operations of that lane */
	uint64_t position;
	struct device_graph *graph; /* LAUNCH */
	uint64_t base;		    /* LAUNCH: ordinal of the graph's first collective */
};

/* A stream: live, or what a graph has of it. */
struct lane {
	struct op *first, **end; /* all that was not done; of a graph: all */
	uint64_t submitted, done;
	uint64_t last_work;    /* position behind the last that is no AFTER */
	uint64_t known[LANES]; /* of a capture: of each lane done before what comes next */
	bool captured;
	struct op *cursor; /* of a graph that runs */
};

struct device_graph {
	struct lane lanes[LANES];
	uint64_t collectives;
	size_t nodes;
	int users; /* the owner, and launches that were not done */
};

struct stream {
	struct host_stream stream;
	struct queues *queues;
	enum device_stream which;
};

struct queues {
	struct lane lanes[LANES];
	struct stream streams[LANES];
	struct device_graph *capture; /* being recorded */
	struct op *running;	      /* the LAUNCH whose graph runs */
	uint64_t collectives, collectives_done;
	uint64_t chance;
	struct ddp_error failure; /* the first */
};

/* --- Lanes -------------------------------------------------------------------------------- */

static void lanes_open(struct lane *lanes)
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

static void lanes_close(struct lane *lanes)
{
	struct op *next;

	for (int i = 0; i < LANES; i++) {
		for (struct op *op = lanes[i].first; op; op = next) {
			next = op->next;
			op_free(op);
		}
	}
}

static void lane_append(struct lane *lane, const struct op *what)
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

static void lane_take_first(struct lane *lane)
{
	struct op *op = lane->first;

	lane->first = op->next;
	if (!lane->first)
		lane->end = &lane->first;
	lane->done++;
	op_free(op);
}

static const struct host_stream_class stream_class;

struct queues *queues_create(uint64_t seed)
{
	struct queues *queues = calloc(1, sizeof(*queues));

	if (!queues)
		return NULL;
	queues->chance = seed;
	lanes_open(queues->lanes);
	for (int i = 0; i < LANES; i++)
		queues->streams[i] =
			(struct stream){{&stream_class}, queues, (enum device_stream)i};
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

/* --- Chance ------------------------------------------------------------------------------- */

static uint64_t draw(struct queues *queues)
{
	uint64_t z = queues->chance += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static unsigned int draw_below(struct queues *queues, unsigned int limit)
{
	return (unsigned int)(draw(queues) % limit);
}

/* --- What may come next --------------------------------------------------------------------- */

/* The lanes of the live set, and behind these those of the graph that runs. */
static struct lane *lane_at(struct queues *queues, int i)
{
	if (i < LANES)
		return &queues->lanes[i];
	return queues->running ? &queues->running->graph->lanes[i - LANES] : NULL;
}

static struct op *head(struct queues *queues, int i)
{
	struct lane *lane = lane_at(queues, i);

	if (!lane)
		return NULL;
	return i < LANES ? lane->first : lane->cursor;
}

static bool may_run(struct queues *queues, int i)
{
	const struct op *op = head(queues, i);
	uint64_t base;

	if (!op || op == queues->running)
		return false;
	base = i < LANES ? 0 : queues->running->base;
	if (op->kind == OP_AFTER)
		return lane_at(queues, i / LANES * LANES + (int)op->earlier)->done >= op->position;
	if (op->kind == OP_WORK && op->work.collective)
		return base + op->ordinal == queues->collectives_done;
	return true;
}

static bool graph_ended(struct queues *queues)
{
	for (int i = LANES; i < 2 * LANES; i++) {
		if (head(queues, i))
			return false;
	}
	return true;
}

static void start_graph(struct queues *queues, struct op *launch)
{
	queues->running = launch;
	for (int i = 0; i < LANES; i++) {
		launch->graph->lanes[i].cursor = launch->graph->lanes[i].first;
		launch->graph->lanes[i].done = 0;
	}
}

/* Returns whether it is done. */
static bool run_work(struct queues *queues, const struct queue_work *work)
{
	struct ddp_error error = {0, ""};
	int status = 0;

	/* Like a card after a fault: nothing more is done, all calls say why. */
	if (!queues->failure.status)
		status = work->call(work->data, &error);
	if (status == QUEUE_LATER)
		return false;
	if (status < 0)
		queues->failure = error;
	queues->collectives_done += work->collective;
	return true;
}

/* Returns whether something was done. */
static bool run_one(struct queues *queues, int i)
{
	struct lane *lane = lane_at(queues, i);
	struct op *op = head(queues, i);

	if (op->kind == OP_LAUNCH)
		start_graph(queues, op);
	else if (op->kind == OP_WORK && !run_work(queues, &op->work))
		return false;
	if (i >= LANES) {
		lane->cursor = op->next;
		lane->done++;
	} else if (op->kind != OP_LAUNCH) {
		lane_take_first(lane);
	}
	if (queues->running && graph_ended(queues)) {
		queues->running = NULL;
		lane_take_first(&queues->lanes[DEVICE_COMPUTE]);
	}
	return true;
}

/* --- Who comes next ------------------------------------------------------------------------- */

/* Lanes from the most to the least preferred: by chance. */
static void shuffle(struct queues *queues, int order[2 * LANES])
{
	for (int i = 0; i < 2 * LANES; i++) {
		int j = (int)draw_below(queues, (unsigned int)i + 1);

		order[i] = order[j];
		order[j] = i;
	}
}

/* What became of it: something was done; all that could be waits for other ranks; nothing could be. */
enum outcome { DONE, LATER, NONE };

static enum outcome run_preferred(struct queues *queues, const int order[2 * LANES])
{
	enum outcome outcome = NONE;

	for (int i = 0; i < 2 * LANES; i++) {
		if (!may_run(queues, order[i]))
			continue;
		if (run_one(queues, order[i]))
			return DONE;
		outcome = LATER;
	}
	return outcome;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* The lane that must move so that [i] can: itself, or whom it waits for. */
static int needed(struct queues *queues, int i)
{
	const struct op *op;

	for (int hops = 0; hops < 2 * LANES; hops++) {
		op = head(queues, i);
		if (op && op == queues->running) {
			for (i = LANES; !head(queues, i);)
				i++;
		} else if (op && !may_run(queues, i) && op->kind == OP_AFTER) {
			i = i / LANES * LANES + (int)op->earlier;
		} else {
			break;
		}
	}
	return i;
}

/* How a wait makes progress: only what it needs, or by a fixed order, or as it comes. */
enum manner { MANNER_LAZY, MANNER_STRICT, MANNER_MIXED, MANNERS };

static void queues_run_until(struct queues *queues, enum device_stream stream, uint64_t position)
{
	enum manner manner = (enum manner)draw_below(queues, MANNERS);
	int order[2 * LANES], next;
	enum outcome outcome;

	shuffle(queues, order);
	while (queues->lanes[stream].done < position) {
		if (manner == MANNER_MIXED)
			shuffle(queues, order);
		next = needed(queues, (int)stream);
		if (manner == MANNER_LAZY && may_run(queues, next) && run_one(queues, next))
			continue;
		outcome = run_preferred(queues, order);
		if (outcome == NONE) {
			fputs("emulated device: its streams wait for each other\n", stderr);
			abort();
		}
		if (outcome == LATER)
			nap();
	}
}

static void queues_run_some(struct queues *queues)
{
	int order[2 * LANES];

	for (unsigned int left = draw_below(queues, POKES); left > 0; left--) {
		shuffle(queues, order);
		if (run_preferred(queues, order) != DONE)
			break;
	}
}

/* --- Waiting ------------------------------------------------------------------------------- */

static int queues_failure(const struct queues *queues, struct ddp_error *error)
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

bool queues_rest(struct queues *queues)
{
	int order[2 * LANES];

	do
		shuffle(queues, order);
	while (run_preferred(queues, order) == DONE);
	for (int i = 0; i < LANES; i++)
		if (queues->lanes[i].first)
			return false;
	return true;
}

/* --- Submission ----------------------------------------------------------------------------- */

static void queues_put(struct queues *queues, enum device_stream stream, struct op *op)
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

/* queues_order() where one of the two is captured. */
static int graph_order(struct device_graph *graph, enum device_stream later,
		       enum device_stream earlier, struct ddp_error *error)
{
	struct lane *to = &graph->lanes[later], *from = &graph->lanes[earlier];
	struct op op = {.kind = OP_AFTER, .earlier = earlier, .position = from->submitted};

	if (!from->captured)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a captured stream cannot wait for stream %d, "
				     "which is not tied to the capture",
				     (int)earlier);
	to->captured = true;
	lane_append(to, &op);
	for (int i = 0; i < LANES; i++) {
		if (to->known[i] < from->known[i])
			to->known[i] = from->known[i];
	}
	to->known[earlier] = from->submitted;
	return 0;
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

int queues_ended(struct queues *queues, enum device_stream stream, struct ddp_error *error)
{
	const struct lane *lane = &queues->lanes[stream];
	int status = queues_poke(queues, error);

	return status ? status : lane->done >= lane->submitted;
}

/* --- For libddp's engines over host memory ----------------------------------------------------- */

/* Of a graph it is done anew each time, from how it was told. */
struct deed {
	bool (*run)(void *room);
	_Alignas(16) unsigned char told[HOST_ROOM], room[HOST_ROOM];
};

static int do_deed(void *data, struct ddp_error *error)
{
	struct deed *deed = data;

	(void)error;
	if (!deed->run(deed->room))
		return QUEUE_LATER;
	memcpy(deed->room, deed->told, sizeof(deed->room));
	return 0;
}

static void stream_add(struct host_stream *stream, const struct host_deed *what)
{
	struct deed *deed = calloc(1, sizeof(*deed));
	struct queue_work work = {do_deed, free, deed, what->collective};

	if (!deed || what->size > HOST_ROOM)
		abort();
	deed->run = what->run;
	memcpy(deed->told, what->room, what->size);
	memcpy(deed->room, what->room, what->size);
	queues_submit(stream, &work);
}

/* Who asks wants it to go on. */
static bool stream_idle(struct host_stream *stream)
{
	struct stream *of = (struct stream *)(void *)stream;

	(void)queues_rest(of->queues);
	return !of->queues->lanes[of->which].first;
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

/* --- What is captured, and launched ---------------------------------------------------------- */

int queues_capture_begin(struct queues *queues, struct ddp_error *error)
{
	if (queues->capture)
		return ddp_error_set(error, DDP_ERR_STATE, "emulated GPU: a capture in a capture");
	queues->capture = calloc(1, sizeof(*queues->capture));
	if (!queues->capture)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a graph");
	queues->capture->users = 1;
	lanes_open(queues->capture->lanes);
	queues->capture->lanes[DEVICE_COMPUTE].captured = true;
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
	for (int i = 0; i < LANES; i++) {
		if (i != DEVICE_COMPUTE &&
		    capture->lanes[i].last_work > capture->lanes[DEVICE_COMPUTE].known[i])
			status = ddp_error_set(error, DDP_ERR_STATE,
					       "emulated GPU: the work of stream %d in the capture "
					       "was not tied back to the first",
					       i);
	}
	if (status) {
		device_graph_destroy(capture);
		return status;
	}
	*graph = capture;
	return 0;
}

int queues_launch(struct queues *queues, struct device_graph *graph, struct ddp_error *error)
{
	struct op op = {.kind = OP_LAUNCH, .graph = graph, .base = queues->collectives};

	if (queues->capture)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "emulated GPU: a graph is launched during a capture");
	if (graph->nodes == 0)
		return queues_failure(queues, error);
	queues->collectives += graph->collectives;
	graph->users++;
	queues_put(queues, DEVICE_COMPUTE, &op);
	return queues_failure(queues, error);
}

void device_graph_destroy(struct device_graph *graph)
{
	if (!graph || --graph->users > 0)
		return;
	lanes_close(graph->lanes);
	free(graph);
}

size_t device_graph_nodes(const struct device_graph *graph)
{
	return graph->nodes;
}
