/* SPDX-License-Identifier: Apache-2.0 */
/* test_device - the emulated GPU itself: what it promises, and what it must find */
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

static void *room(struct device *device, size_t bytes)
{
	void *memory;

	return device_alloc(device, &memory, bytes, "a test", NULL, &error) ? NULL : memory;
}

/* --- Memory ------------------------------------------------------------------------------- */

static bool is_all(const void *memory, size_t bytes, uint8_t value)
{
	const uint8_t *at = memory;

	for (size_t i = 0; i < bytes; i++) {
		if (at[i] != value)
			return false;
	}
	return true;
}

static void test_memory(void)
{
	struct device *device = open_with(1);
	uint8_t got[COUNT];
	size_t most;
	void *a, *b;

	a = room(device, COUNT);
	b = room(device, 3 * COUNT);
	memset(got, 1, COUNT);
	device_copy(device, DEVICE_COMPUTE, got, a, COUNT, &error);
	ok(is_all(got, COUNT, 0), "fresh memory is zero");
	ok((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0, "memory is aligned to 256 bytes");
	device_free(device, b);
	ok(device_used(device, &most) == COUNT && most == 4 * COUNT, "bytes in use, and the most");
	ok(device_copy(device, DEVICE_REDUCE, a, got, COUNT + 1, &error) == DDP_ERR_ARGUMENT,
	   "a copy that leaves its memory is refused");
	device_close(device);
}

static void test_list(void)
{
	char uuids[3][DEVICE_UUID] = {"", "", "none"};
	struct device *device;

	setenv("DDP_EMULATED_GPUS", "2", 1);
	ok(device_list(uuids, 3, &error) == 2 && strcmp(uuids[0], uuids[1]) != 0 &&
		   strcmp(uuids[2], "none") == 0,
	   "the GPUs that there are");
	ok(device_list(NULL, 0, &error) == 2, "how many there are");
	device = open_with(1);
	ok(strcmp(device_info(device)->uuid, uuids[0]) == 0, "the first one is what it says");
	device_close(device);
	setenv("DDP_EMULATED_GPUS", "0", 1);
	OK_STATUS(device_list(uuids, 3, &error), DDP_ERR_UNSUPPORTED, &error, "none");
	unsetenv("DDP_EMULATED_GPUS");
}

static void test_limits(void)
{
	struct device *device;
	void *memory;

	setenv("DDP_EMULATED_MEMORY", "1048576", 1);
	device = open_with(1);
	OK_STATUS(device_alloc(device, &memory, 1048577, "activations of 512 samples",
			       "lower --batch", &error),
		  DDP_ERR_MEMORY, &error, "more than there is");
	ok(strstr(error.text, "activations of 512 samples") &&
		   strstr(error.text, "lower --batch") && strstr(error.text, "1.0 MiB") &&
		   strstr(error.text, "GPU 0"),
	   "the text names GPU, what, how much, remedy: %s", error.text);
	OK_STATUS(device_alloc(device, &memory, 1048576, "all", NULL, &error), 0, &error, "all");
	ok(device_alloc(device, &memory, 1, "one more", NULL, &error) == DDP_ERR_MEMORY,
	   "one byte more");
	ok(!memory, "nothing is given then");
	device_close(device);
	device_open(&device, 0, 0.25, &error);
	ok(device_info(device)->limit == 262144, "a share is a part of the card");
	device_close(device);
	unsetenv("DDP_EMULATED_MEMORY");
	setenv("DDP_EMULATED_GPUS", "0", 1);
	ok(!device_available(&error) && device_open(&device, 0, 0, &error) == DDP_ERR_UNSUPPORTED &&
		   !device,
	   "no driver: %s", error.text);
	unsetenv("DDP_EMULATED_GPUS");
}

/* --- Order -------------------------------------------------------------------------------- */

/* a -> relu on COMPUTE -> b -> relu on REDUCE -> c, with or without the order that it needs. */
static bool chain_is_right(struct device *device, bool ordered, bool captured)
{
	float *a = room(device, COUNT * sizeof(float)), *b = room(device, COUNT * sizeof(float));
	float *c = room(device, COUNT * sizeof(float)), ones[COUNT], got[COUNT] = {0};
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
	if (captured) {
		right = device_capture_end(device, &graph, &error) == 0 &&
			device_graph_nodes(graph) == 2 && device_launch(device, graph, &error) == 0;
	}
	device_copy(device, DEVICE_COMPUTE, got, c, sizeof(got), &error);
	right = right && memcmp(got, ones, sizeof(got)) == 0;
	device_graph_destroy(graph);
	return right;
}

static unsigned int wrong_chains(bool ordered, bool captured)
{
	unsigned int wrong = 0;

	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct device *device = open_with(seed);

		wrong += !chain_is_right(device, ordered, captured);
		device_close(device);
	}
	return wrong;
}

static void test_order(void)
{
	unsigned int missing = wrong_chains(false, false);
	unsigned int missing_captured = wrong_chains(false, true);

	ok(wrong_chains(true, false) == 0, "what device_order() orders is right for all seeds");
	ok(wrong_chains(true, true) == 0, "in a graph too");
	ok(missing > 0, "a missing device_order() shows (%u of %d seeds)", missing, SEEDS);
	ok(missing_captured > 0, "in a graph too (%u of %d)", missing_captured, SEEDS);
}

/* Pinned memory is read when the copy is done: whoever writes it before is found. */
static void test_pinned(void)
{
	unsigned int wrong = 0, early = 0;

	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct device *device = open_with(seed);
		int32_t *pinned, *there = room(device, sizeof(*there)), got;

		device_alloc_host(device, (void **)&pinned, sizeof(*pinned), "a test", &error);
		*pinned = 1;
		device_copy(device, DEVICE_REDUCE, there, pinned, sizeof(*pinned), &error);
		early += device_ended(device, DEVICE_REDUCE, &error) == 0;
		*pinned = 2;
		device_copy(device, DEVICE_REDUCE, &got, there, sizeof(got), &error);
		wrong += got != 1;
		while (device_ended(device, DEVICE_REDUCE, &error) == 0)
			;
		device_close(device);
	}
	ok(wrong > 0, "pinned memory that is written too early shows (%u of %d)", wrong, SEEDS);
	ok(early > 0, "a copy may end late (%u of %d)", early, SEEDS);
}

/* --- Graphs ------------------------------------------------------------------------------- */

static void test_replay(void)
{
	struct device *device = open_with(3);
	float *pinned, *x = room(device, COUNT * sizeof(float)), got[COUNT];
	float *y = room(device, COUNT * sizeof(float));
	struct device_graph *graph;
	unsigned int right = 0;

	device_alloc_host(device, (void **)&pinned, COUNT * sizeof(float), "a test", &error);
	pinned[0] = 5;
	device_capture_begin(device, &error);
	device_copy(device, DEVICE_COMPUTE, x, pinned, COUNT * sizeof(float), &error);
	kernel_relu(device_stream(device, DEVICE_COMPUTE), x, y, COUNT, DDP_F32);
	OK_STATUS(device_capture_end(device, &graph, &error), 0, &error, "a capture ends");
	device_copy(device, DEVICE_COMPUTE, got, y, sizeof(got), &error);
	ok(got[0] == 0, "what is captured is not done");
	for (int i = 1; i <= 3; i++) {
		for (int j = 0; j < COUNT; j++)
			pinned[j] = (float)(i * j);
		device_launch(device, graph, &error);
		device_copy(device, DEVICE_COMPUTE, got, y, sizeof(got), &error);
		right += memcmp(got, pinned, sizeof(got)) == 0;
	}
	ok(right == 3, "each launch does it again, with what is there then");
	device_graph_destroy(graph);
	device_close(device);
}

static void test_capture_errors(void)
{
	struct device *device = open_with(3);
	float *x = room(device, sizeof(float)), host = 1;
	struct device_graph *graph;

	device_capture_begin(device, &error);
	OK_STATUS(device_order(device, DEVICE_COMPUTE, DEVICE_REDUCE, &error), DDP_ERR_STATE,
		  &error, "a captured stream does not wait for one that is not");
	OK_STATUS(device_copy(device, DEVICE_COMPUTE, x, &host, sizeof(host), &error),
		  DDP_ERR_STATE, &error, "no copy of the host's own memory in a graph");
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), DDP_ERR_STATE, &error,
		  "no wait in a capture");
	device_order(device, DEVICE_REDUCE, DEVICE_COMPUTE, &error);
	kernel_relu(device_stream(device, DEVICE_REDUCE), x, x, 1, DDP_F32);
	OK_STATUS(device_capture_end(device, &graph, &error), DDP_ERR_STATE, &error,
		  "a stream that was not tied back is found: %s", error.text);
	ok(!graph, "there is no graph then");
	OK_STATUS(device_capture_end(device, &graph, &error), DDP_ERR_STATE, &error,
		  "no end without a beginning");
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), 0, &error, "all is well after that");
	device_close(device);
}

/* --- What ends a test --------------------------------------------------------------------- */

static bool dies(void (*of)(void))
{
	struct rlimit none = {0, 0};
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &none);
		of();
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child &&
	       (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

static void free_twice(void)
{
	struct device *device = open_with(1);
	void *memory = room(device, COUNT);

	device_free(device, memory);
	device_free(device, memory);
}

/* A kernel that comes too late finds, or leaves, what gives it away. */
static void write_after_free(void)
{
	struct device *device = open_with(1);
	float *kept = room(device, COUNT * sizeof(float)),
	      *gone = room(device, COUNT * sizeof(float));

	device_free(device, gone);
	kernel_relu(device_stream(device, DEVICE_COMPUTE), kept, gone, COUNT, DDP_F32);
	device_wait(device, DEVICE_COMPUTE, &error);
	device_close(device);
	exit(0);
}

void test_barriers_all(void);
void test_barriers_some(void);
void test_barriers_alone(void);
void test_barriers_begin(void);
unsigned int test_barriers_wrong(bool barrier);

static void test_deaths(void)
{
	ok(dies(free_twice), "memory that is freed twice");
	ok(dies(write_after_free), "a kernel that writes memory after device_free()");
	ok(!dies(test_barriers_all), "a barrier that all threads of a block come to");
	ok(dies(test_barriers_some), "a barrier that one thread does not come to");
	ok(dies(test_barriers_alone), "a barrier where threads do not meet");
	ok(dies(test_barriers_begin), "a kernel that does not wait for the one in front of it");
	ok(test_barriers_wrong(true) == 0, "threads of a block exchange data over a barrier");
	ok(test_barriers_wrong(false) > 0, "and without it the data are wrong");
}

int main(void)
{
	test_memory();
	test_list();
	test_limits();
	test_order();
	test_pinned();
	test_replay();
	test_capture_errors();
	test_deaths();
	return tap_end();
}
