/* SPDX-License-Identifier: Apache-2.0 */
/* What is captured, and launched. */
#include "config.h"

#include <stdlib.h>

#include "queue-private.h"

int graph_order(struct device_graph *graph, enum device_stream later, enum device_stream earlier,
		struct ddp_error *error)
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
