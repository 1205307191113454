/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_runtime.c - calls of train/cuda/device.c, on a CUDA runtime that records them and fails on
 * request
 */
#include <string.h>

#include "device.h"
#include "fake-cuda.h"
#include "tap.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

static struct ddp_error error;

static bool says(const char *text)
{
	return strstr(error.text, text) != NULL;
}

static struct device *sound(void)
{
	struct device *device;

	fake_reset();
	unsetenv("CUDA_VISIBLE_DEVICES");
	return device_open(&device, 1, 0, &error) ? NULL : device;
}

/* --- Open --------------------------------------------------------------------------------- */

static void test_list(void)
{
	fake_reset();
	ok(device_list(NULL, 0, &error) > 0 && fake_count("device") == 0,
	   "a sound GPU is not opened");
	fake.driver = 9020;
	ok(device_list(NULL, 0, &error) < 0 && error.status == DDP_ERR_UNSUPPORTED &&
		   says("supports CUDA 9.2") && says("Install a newer driver"),
	   "an old driver: %s", error.text);
	fake_reset();
	fake.count = 0;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	ok(device_list(NULL, 0, &error) < 0 && says("no GPU is visible") && says("is empty"),
	   "none is visible: %s", error.text);
	unsetenv("CUDA_VISIBLE_DEVICES");
	ok(device_list(NULL, 0, &error) < 0 && says("not set"), "none is there: %s", error.text);
	fake.driver = 0;
	ok(device_list(NULL, 0, &error) < 0 && error.status == DDP_ERR_UNSUPPORTED &&
		   says("no CUDA driver"),
	   "no driver: %s", error.text);
	fake_reset();
	fake.fail = "count";
	fake.result = cudaErrorSystemNotReady;
	ok(device_list(NULL, 0, &error) < 0 && says("fabricmanager"), "a service is missing: %s",
	   error.text);
}

static void test_open(void)
{
	struct device *device = sound();

	ok(strcmp(device_info(device)->name, "NVIDIA Fake") == 0 &&
		   device_info(device)->limit == 80 * GIB,
	   "without a share all of it is a rank's");
	ok(fake_count("stream 1 -5") == 1 && fake_count("stream 1 0") == 1,
	   "sums have a higher priority, no stream waits for the default one");
	device_close(device);
	ok(fake.objects == 0, "all is given back");
#if CUDART_VERSION >= 12050
	device = sound();
	ok(strcmp(device_info(device)->uuid, "GPU-02020202-0202-0202-0202-020202020202") == 0,
	   "its UUID");
	device_close(device);
	fake.mig = true;
	device_open(&device, 1, 0, &error);
	ok(strncmp(device_info(device)->uuid, "MIG-7777", 8) == 0, "that of a slice");
	device_close(device);
#endif
	ok(device_open(&device, 2, 0, &error) == DDP_ERR_ENVIRONMENT && !device &&
		   says("device 2, but 2 are here"),
	   "one too many: %s", error.text);
}

/* --- Shares of memory ------------------------------------------------------------------------ */

static void test_share(void)
{
	struct device *device;
	void *memory;

	fake_reset();
	OK_STATUS(device_open(&device, 0, 0.9, &error), DDP_ERR_MEMORY, &error,
		  "nine tenths of 80 GiB, where 60 are free");
	ok(!device && fake.objects == 0 && says("72.0 GiB of 80.0 GiB") &&
		   says("60.0 GiB is free, 11.5 GiB too little"),
	   "%s", error.text);
	device_open(&device, 0, 0.25, &error);
	ok(device_context(device) == 512 * MIB, "where nobody says what CUDA takes, as is usual");
	device_close(device);
	fake.free = fake.total - 100 * MIB;
	device_open(&device, 0, 0.25, &error);
	ok(device_context(device) == 100 * MIB, "at most the memory in use");
	device_close(device);
	fake.free = 60 * GIB;
	fake.held = 600 * MIB;
	device_open(&device, 0, 0.25, &error);
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB + 1, "a test", NULL, &error),
		  DDP_ERR_MEMORY, &error, "one byte more than the share without CUDA");
	ok(says("share is 20.0 GiB, of which 600 MiB are in use (600 MiB of it for CUDA), so 1 bytes "
		"are missing. Or give this rank a larger share (DDP_SHARE, fewer ranks on this GPU)."),
	   "%s", error.text);
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB, "a test", NULL, &error), 0,
		  &error, "one byte less is enough");
	device_free(device, memory);
	fake.held = 3 * GIB;
	device_measure(device);
	ok(device_context(device) == 3 * GIB, "memory that libraries have allocated is found");
	device_count(device, &fake, 10 * GIB);
	OK_STATUS(device_may(device, 7 * GIB + 1, "sums", NULL, &error), DDP_ERR_MEMORY, &error,
		  "what libddp allocated counts too");
	OK_STATUS(device_alloc(device, &memory, 7 * GIB, "sums", NULL, &error), 0, &error,
		  "to the byte");
	fake.held = 0;
	device_measure(device);
	ok(device_context(device) == 3 * GIB, "libraries give nothing back");
	device_close(device);
	ok(fake.objects == 0, "nothing is left");
}

/* --- Errors ------------------------------------------------------------------------------- */

static void test_errors(void)
{
	static const struct {
		cudaError_t result;
		int status;
		const char *says;
	} rows[] = {
		{cudaErrorLaunchFailure, DDP_ERR_ENGINE, "kernel's log: Xid"},
		{cudaErrorDevicesUnavailable, DDP_ERR_ENGINE, "nvidia-smi -c DEFAULT"},
		{cudaErrorNoKernelImageForDevice, DDP_ERR_UNSUPPORTED, "--enable-all-gpus"},
		{cudaErrorMpsServerNotReady, DDP_ERR_ENGINE, "MPS"},
		{cudaErrorMemoryAllocation, DDP_ERR_MEMORY, "use less memory"},
		{cudaErrorStreamCaptureUnjoined, DDP_ERR_ENGINE, "an error (cudaErrorName, "},
	};
	struct device *device = sound();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake.last = rows[i].result;
		OK_STATUS(device_check(device, "a kernel", &error), rows[i].status, &error,
			  "error %d of CUDA", (int)rows[i].result);
		ok(says(rows[i].says) && says("GPU 1 (NVIDIA Fake): enqueuing a kernel"), "%s",
		   error.text);
	}
	OK_STATUS(device_check(device, "a kernel", &error), 0, &error, "an error is reported once");
	device_close(device);
}

/* --- Failing calls ---------------------------------------------------------------------- */

/* Makes the engine's calls on a device. Returns at the first error. */
static int use_device(struct device *device)
{
	struct device_graph *graph = NULL;
	void *memory, *pinned;
	char host[8] = "";
	int status = device_alloc(device, &memory, 8, "a test", NULL, &error);

	if (status == 0)
		status = device_alloc_host(device, &pinned, 8, "a test", &error);
	if (status == 0)
		status = device_copy(device, DEVICE_REDUCE, memory, host, 8, &error);
	if (status == 0)
		status = device_copy(device, DEVICE_REDUCE, memory, pinned, 8, &error);
	if (status == 0)
		status = device_order(device, DEVICE_COMPUTE, DEVICE_REDUCE, &error);
	if (status == 0)
		status = device_capture_begin(device, &error);
	if (status == 0)
		status = device_capture_end(device, &graph, &error);
	if (status == 0)
		status = device_launch(device, graph, &error);
	if (status == 0)
		status = device_wait(device, DEVICE_COMPUTE, &error);
	if (status == 0)
		status = device_ended(device, DEVICE_REDUCE, &error);
	device_graph_destroy(graph);
	return status < 0 ? status : 0;
}

static int use(void)
{
	struct device *device;
	int status = device_open(&device, 1, 0, &error);

	if (status == 0)
		status = use_device(device);
	device_close(device);
	return status;
}

static void test_failures(void)
{
	fake_reset();
	OK_STATUS(use(), 0, &error, "memory, copies, a graph and waits");
	ok(fake.objects == 0, "device_close() leaves nothing");
	ok(fake_count("set 0 8 in 1") == 1, "memory is cleared");
	ok(fake_count("copy 8 in 3") == 2 && fake_count("wait 3") >= 1,
	   "a copy of pageable memory is waited for");
	ok(fake_count("capture 1 2") == 1 && fake_count("instantiate 8") == 1,
	   "captures are relaxed, and nodes have the priority of their stream");
	ok(fake_fail_each(use, &error, "Drain the node"),
	   "a failure of any call is reported and leaves nothing");
}

/* --- Work that never ends --------------------------------------------------------------------- */

/* Every wait for a stream has a timeout, in case the stream's work never ends. */
static void test_patience(void)
{
	struct device *device = sound();
	void *memory = &error;
	char host[8];

	device_alloc(device, &memory, 8, "a test", NULL, &error);
	device_set_timeout(device, 0.05);
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), 0, &error,
		  "a wait for work that ends");
	fake.busy = true;
	device_set_timeout(device, 300);
	fake.suspended = 1000;
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), 0, &error,
		  "a suspension does not count");
	fake.busy = true;
	device_set_timeout(device, 0.05);
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), DDP_ERR_ENGINE, &error,
		  "a wait for work that never ends has a limit");
	ok(says("GPU 1 (NVIDIA Fake): ") && says("did not finish within 0.05 s") && says("Xid"),
	   "%s", error.text);
	OK_STATUS(device_copy(device, DEVICE_REDUCE, memory, host, 8, &error), DDP_ERR_ENGINE,
		  &error, "likewise a copy that waits");
	OK_STATUS(device_alloc(device, &memory, 8, "a test", NULL, &error), DDP_ERR_ENGINE, &error,
		  "and memory that is cleared");
	ok(!memory && fake_count("free") == 0, "whose return would wait as well");
	ok(fake.last == cudaSuccess, "nothing is left for the next call to find");
	fake.busy = false;
	device_close(device);
	ok(fake.objects == 0, "nothing is left");
}

/* If work never ends, device_close() does not free its memory. LeakSanitizer must ignore that. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:test_patience\n";
}

int main(void)
{
	test_list();
	test_open();
	test_share();
	test_errors();
	test_failures();
	test_patience();
	return tap_end();
}
