/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - the emulated GPU runs streams in an order that shows a missing device_order() */
#include <string.h>

#include "cuda-kernels.h"
#include "queue-host.h"
#include "tap.h"

enum { COUNT = 1000, SEEDS = 64 };

static struct ddp_error error;

static struct device *open_with(unsigned int seed)
{
	struct device *device;
	char text[16];

	snprintf(text, sizeof(text), "%u", seed);
	setenv("DDP_SEED", text, 1);
	return device_open(&device, 0, 0, &error) ? NULL : device;
}

static void *allocate(struct device *device, size_t bytes)
{
	void *memory;

	return device_alloc(device, &memory, bytes, "a test", NULL, &error) ? NULL : memory;
}

/*
 * Runs ReLU from a to b on COMPUTE, then from b to c on REDUCE, with or without the necessary order
 * between the streams. Returns whether c is correct.
 */
static bool chain_is_right(struct device *device, bool ordered, bool captured)
{
	float *a = allocate(device, COUNT * sizeof(float)),
	      *b = allocate(device, COUNT * sizeof(float));
	float *c = allocate(device, COUNT * sizeof(float)), ones[COUNT], got[COUNT] = {0};
	struct device_graph *graph = NULL;
	bool right = true;

	for (int i = 0; i < COUNT; i++)
		ones[i] = (float)i + 1;
	device_copy(device, DEVICE_COMPUTE, a, ones, sizeof(ones), &error);
	if (captured)
		device_capture_begin(device, &error);
	if (captured && !ordered)
		device_order(device, DEVICE_REDUCE, DEVICE_COMPUTE, &error);
	kernel_relu(device_stream(device, DEVICE_COMPUTE), a, b, COUNT, DDP_F32);
	if (ordered)
		device_order(device, DEVICE_REDUCE, DEVICE_COMPUTE, &error);
	kernel_relu(device_stream(device, DEVICE_REDUCE), b, c, COUNT, DDP_F32);
	device_order(device, DEVICE_COMPUTE, DEVICE_REDUCE, &error);
	if (captured)
		right = device_capture_end(device, &graph, &error) == 0 && queues_nodes == 2 &&
			device_launch(device, graph, &error) == 0;
	device_copy(device, DEVICE_COMPUTE, got, c, sizeof(got), &error);
	right = right && memcmp(got, ones, sizeof(got)) == 0;
	device_graph_destroy(graph);
	return right;
}

static int wrong_chains(bool ordered, bool captured)
{
	int wrong = 0;

	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct device *device = open_with(seed);

		wrong += !chain_is_right(device, ordered, captured);
		device_close(device);
	}
	return wrong;
}

static void test_order(void)
{
	for (int captured = 0; captured < 2; captured++) {
		int missing = wrong_chains(false, captured);

		ok(wrong_chains(true, captured) == 0, "streams in order have the right result%s",
		   captured ? ", in a graph" : "");
		ok(missing > 0, "a missing device_order() is found with %d of %d seeds%s", missing,
		   SEEDS, captured ? ", in a graph" : "");
	}
}

/*
 * Pinned memory is read only when the copy runs. So the emulation detects a program that changes
 * the memory too early.
 */
static void test_pinned(void)
{
	int wrong = 0;

	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct device *device = open_with(seed);
		int32_t *pinned, *there = allocate(device, sizeof(*there)), got;

		device_alloc_host(device, (void **)&pinned, sizeof(*pinned), "a test", &error);
		*pinned = 1;
		device_copy(device, DEVICE_REDUCE, there, pinned, sizeof(*pinned), &error);
		(void)device_ended(device, DEVICE_REDUCE, &error);
		*pinned = 2;
		device_copy(device, DEVICE_REDUCE, &got, there, sizeof(got), &error);
		wrong += got != 1;
		device_close(device);
	}
	ok(wrong > 0, "pinned memory that is written too early is found with %d of %d seeds", wrong,
	   SEEDS);
}

int main(void)
{
	test_order();
	test_pinned();
	return tap_end();
}
