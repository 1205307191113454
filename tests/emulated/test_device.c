/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - errors that the emulated GPU must detect in the order of streams, in captures and
 * in kernels
 */
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda-kernels.h"
#include "device.h"
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

/* --- Order ------------------------------------------------------------------------------ */

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
		right = device_capture_end(device, &graph, &error) == 0 &&
			device_graph_nodes(graph) == 2 && device_launch(device, graph, &error) == 0;
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

/* --- Captures --------------------------------------------------------------------------- */

static void test_capture_errors(void)
{
	struct device *device = open_with(3);
	float *x = allocate(device, sizeof(float)), host = 1;
	struct device_graph *graph;

	device_capture_begin(device, &error);
	OK_STATUS(device_order(device, DEVICE_COMPUTE, DEVICE_REDUCE, &error), DDP_ERR_STATE,
		  &error, "a captured stream does not wait for one that is not");
	OK_STATUS(device_copy(device, DEVICE_COMPUTE, x, &host, sizeof(host), &error),
		  DDP_ERR_STATE, &error, "no copy of pageable memory in a graph");
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), DDP_ERR_STATE, &error,
		  "no wait in a capture");
	device_order(device, DEVICE_REDUCE, DEVICE_COMPUTE, &error);
	kernel_relu(device_stream(device, DEVICE_REDUCE), x, x, 1, DDP_F32);
	OK_STATUS(device_capture_end(device, &graph, &error), DDP_ERR_STATE, &error,
		  "a stream that does not join the capture's first one is found");
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), 0, &error,
		  "the device works after that");
	OK_STATUS(device_copy(device, DEVICE_REDUCE, x, &host, sizeof(host) + 1, &error),
		  DDP_ERR_ARGUMENT, &error, "a copy beyond an allocation is refused");
	device_close(device);
}

/* --- Kernels ---------------------------------------------------------------------------- */

void test_barriers_some(void);
unsigned int test_barriers_wrong(bool barrier);

static bool dies(void (*call)(void))
{
	struct rlimit none = {0, 0};
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &none);
		call();
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child &&
	       (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

static void free_twice(void)
{
	struct device *device = open_with(1);
	void *memory = allocate(device, COUNT);

	device_free(device, memory);
	device_free(device, memory);
}

/* A kernel with an error: it stores its last result after the end of the array. */
static void write_behind_part(void)
{
	struct device *device = open_with(1);
	struct device_parts parts = {NULL, 0};
	char *x;

	device_part(&parts, DEVICE_ALIGNMENT);
	device_part(&parts, COUNT);
	parts = (struct device_parts){allocate(device, parts.bytes), 0};
	x = device_part(&parts, DEVICE_ALIGNMENT);
	device_part(&parts, COUNT);
	kernel_relu(device_stream(device, DEVICE_COMPUTE), x, x + 2, DEVICE_ALIGNMENT / 2,
		    DDP_BF16);
	device_wait(device, DEVICE_COMPUTE, &error);
}

int main(void)
{
	test_order();
	test_pinned();
	test_capture_errors();
	ok(dies(free_twice), "memory that is freed twice is found");
	if (device_guard)
		ok(dies(write_behind_part), "a kernel that writes behind an array is found");
	ok(dies(test_barriers_some), "a barrier that one thread does not reach is found");
	ok(test_barriers_wrong(true) == 0, "threads of a block exchange data over a barrier");
	ok(test_barriers_wrong(false) > 0, "without the barrier the data are wrong");
	return tap_end();
}
