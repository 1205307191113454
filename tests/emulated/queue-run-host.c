/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the things that could be done next is. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "queue-private.h"

/* A poke does fewer things than this. */
enum { POKES = 8 };

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

static void run_work(struct queues *queues, const struct queue_work *work)
{
	struct ddp_error error = {0, ""};

	/* Like a card after a fault: nothing more is done, all calls say why. */
	if (!queues->failure.status && work->call(work->data, &error) < 0)
		queues->failure = error;
	queues->collectives_done += work->collective;
}

static void run_one(struct queues *queues, int i)
{
	struct lane *lane = lane_at(queues, i);
	struct op *op = head(queues, i);

	if (op->kind == OP_LAUNCH)
		start_graph(queues, op);
	else if (op->kind == OP_WORK)
		run_work(queues, &op->work);
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

static bool run_preferred(struct queues *queues, const int order[2 * LANES])
{
	for (int i = 0; i < 2 * LANES; i++) {
		if (may_run(queues, order[i])) {
			run_one(queues, order[i]);
			return true;
		}
	}
	return false;
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

void queues_run_until(struct queues *queues, enum device_stream stream, uint64_t position)
{
	enum manner manner = (enum manner)draw_below(queues, MANNERS);
	int order[2 * LANES], next;

	shuffle(queues, order);
	while (queues->lanes[stream].done < position) {
		if (manner == MANNER_MIXED)
			shuffle(queues, order);
		next = needed(queues, (int)stream);
		if (manner == MANNER_LAZY && may_run(queues, next)) {
			run_one(queues, next);
		} else if (!run_preferred(queues, order)) {
			fputs("emulated device: its streams wait for each other\n", stderr);
			abort();
		}
	}
}

void queues_run_some(struct queues *queues)
{
	int order[2 * LANES];

	for (unsigned int left = draw_below(queues, POKES); left > 0; left--) {
		shuffle(queues, order);
		if (!run_preferred(queues, order))
			break;
	}
}
