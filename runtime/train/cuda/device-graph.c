/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "device-private.h"

struct device_graph {
	cudaGraphExec_t launched;
	size_t nodes;
};

/*
 * Relaxed: libraries that allocate or ask meanwhile break no capture, neither in this thread nor in
 * those of NCCL and of watchdogs.
 */
int device_capture_begin(struct device *device, struct ddp_error *error)
{
	int status;

	status = device_error(device,
			      cudaStreamBeginCapture(device->streams[DEVICE_COMPUTE],
						     cudaStreamCaptureModeRelaxed),
			      error, "beginning to record a graph");
	device->capturing = !status;
	return status;
}

/* With priorities of its own for each node, as the streams had them that it came from. */
static int instantiate(struct device *device, struct device_graph *graph, cudaGraph_t recorded,
		       struct ddp_error *error)
{
	int status;

	status = device_error(device, cudaGraphGetNodes(recorded, NULL, &graph->nodes), error,
			      "counting the nodes of a graph");
	if (!status)
		status = device_error(
			device,
			cudaGraphInstantiateWithFlags(&graph->launched, recorded,
						      cudaGraphInstantiateFlagUseNodePriority),
			error, "preparing a graph of %zu nodes", graph->nodes);
	if (!status)
		status = device_error(
			device, cudaGraphUpload(graph->launched, device->streams[DEVICE_COMPUTE]),
			error, "uploading a graph of %zu nodes", graph->nodes);
	return status;
}

int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error)
{
	cudaGraph_t recorded = NULL;
	int status;

	*graph = NULL;
	device->capturing = false;
	status = device_error(device,
			      cudaStreamEndCapture(device->streams[DEVICE_COMPUTE], &recorded),
			      error, "recording a graph");
	if (status)
		return status;
	*graph = calloc(1, sizeof(**graph));
	status = *graph ? instantiate(device, *graph, recorded, error)
			: ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a graph");
	(void)cudaGraphDestroy(recorded);
	if (status) {
		device_graph_destroy(*graph);
		*graph = NULL;
	}
	return status;
}

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error)
{
	return device_error(device,
			    cudaGraphLaunch(graph->launched, device->streams[DEVICE_COMPUTE]),
			    error, "launching a graph of %zu nodes", graph->nodes);
}

void device_graph_destroy(struct device_graph *graph)
{
	if (!graph)
		return;
	if (graph->launched)
		(void)cudaGraphExecDestroy(graph->launched);
	(void)cudaGetLastError();
	free(graph);
}

size_t device_graph_nodes(const struct device_graph *graph)
{
	return graph->nodes;
}
