/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime - runtime/train/cuda/device.c as it calls CUDA: on a runtime that does nothing but note and fail */
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

/* --- Opening ------------------------------------------------------------------------------ */

static void test_available(void)
{
	fake_reset();
	ok(device_available(&error) && fake_count("device") == 0, "a sound GPU is not opened");
	fake.driver = 9020;
	ok(!device_available(&error) && error.status == DDP_ERR_UNSUPPORTED &&
		   says("knows CUDA 9.2") && says("install a newer driver"),
	   "an old driver: %s", error.text);
	fake_reset();
	fake.count = 0;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	ok(!device_available(&error) && says("no GPU is visible") && says("is empty"),
	   "none is visible: %s", error.text);
	unsetenv("CUDA_VISIBLE_DEVICES");
	ok(!device_available(&error) && says("not set"), "none is there: %s", error.text);
	fake.driver = 0;
	ok(!device_available(&error) && error.status == DDP_ERR_UNSUPPORTED &&
		   says("no CUDA driver"),
	   "no driver: %s", error.text);
	fake_reset();
	fake.fail = "count";
	fake.result = cudaErrorSystemNotReady;
	ok(!device_available(&error) && says("fabricmanager"), "a service is missing: %s",
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

/* Each call in turn fails: the error is told, and nothing is left behind. */
static void test_open_failures(void)
{
	int calls, told = 0, clean = 0;
	struct device *device = sound();

	calls = fake.calls;
	device_close(device);
	for (int i = 1; i <= calls; i++) {
		fake_reset();
		fake.fail_at = i;
		fake.result = cudaErrorECCUncorrectable;
		told += device_open(&device, 1, 0, &error) == DDP_ERR_ENGINE && !device &&
			says("drain the node");
		clean += fake.objects == 0;
	}
	ok(calls >= 9 && told == calls, "each of %d calls of device_open() may fail: %d told, %s",
	   calls, told, error.text);
	ok(clean == calls, "nothing is left");
}

/* --- What of its share a rank has ------------------------------------------------------------ */

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
	ok(device_context(device) == 100 * MIB, "but no more than what is used at all");
	device_close(device);
	fake.free = 60 * GIB;
	fake.held = 600 * MIB;
	device_open(&device, 0, 0.25, &error);
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB + 1, "a test", NULL, &error),
		  DDP_ERR_MEMORY, &error, "a share less what CUDA takes, and a byte");
	ok(says("may have 20.0 GiB and uses 600 MiB (600 MiB of it for CUDA): 1 bytes too "
		"little; or let it have more (DDP_SHARE, fewer ranks on this GPU)"),
	   "%s", error.text);
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB, "a test", NULL, &error), 0,
		  &error, "without the byte it is there");
	device_free(device, memory);
	fake.held = 3 * GIB;
	device_measure(device);
	ok(device_context(device) == 3 * GIB, "what libraries took meanwhile is found");
	device_count(device, &fake, 10 * GIB);
	OK_STATUS(device_may(device, 7 * GIB + 1, "sums", NULL, &error), DDP_ERR_MEMORY, &error,
		  "what libddp allocated counts too");
	OK_STATUS(device_alloc(device, &memory, 7 * GIB, "sums", NULL, &error), 0, &error,
		  "to the byte");
	device_uncount(device, &fake);
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
	OK_STATUS(device_check(device, "a kernel", &error), 0, &error, "an error is told once");
	device_close(device);
}

/* --- Memory and copies -------------------------------------------------------------------- */

static void test_alloc(void)
{
	struct device *device = sound();
	void *memory, *pinned;
	size_t most;
	int at = fake.calls;

	OK_STATUS(device_alloc(device, &memory, 1000, "a test", NULL, &error), 0, &error,
		  "an allocation");
	ok(fake_called(at, "malloc 1000") && fake_called(at + 1, "set 0 1000 in 1") &&
		   fake_called(at + 2, "wait 1"),
	   "is cleared, and waited for");
	OK_STATUS(device_alloc_host(device, &pinned, 8, "a test", &error), 0, &error,
		  "pinned memory");
	ok(device_used(device, &most) == 1000 && most == 1000, "is not counted");
	OK_STATUS(device_alloc(device, &memory, 70 * GIB, "weights", "lower --batch", &error),
		  DDP_ERR_MEMORY, &error, "more than is free");
	ok(!memory && says("weights") &&
		   says("70.0 GiB wanted, of 80.0 GiB only 60.0 GiB is free") &&
		   says("lower --batch"),
	   "%s", error.text);
	fake.fail = "set";
	fake.result = cudaErrorLaunchFailure;
	OK_STATUS(device_alloc(device, &memory, 5, "a test", NULL, &error), DDP_ERR_ENGINE, &error,
		  "a card that fails");
	ok(!memory && device_used(device, NULL) == 1000, "gives nothing");
	device_close(device);
	ok(fake.objects == 0, "what was not freed goes with the device");
}

static void test_copy(void)
{
	struct device *device = sound();
	void *memory, *pinned;
	char host[8];
	int at;

	device_alloc(device, &memory, 8, "a test", NULL, &error);
	device_alloc_host(device, &pinned, 8, "a test", &error);
	at = fake.calls;
	device_copy(device, DEVICE_REDUCE, memory, host, 8, &error);
	device_copy(device, DEVICE_REDUCE, host, memory, 8, &error);
	ok(fake_called(at, "copy 8 in 3") && fake_called(at + 1, "wait 3") &&
		   fake_called(at + 2, "copy 8 in 3") && fake_called(at + 3, "wait 3"),
	   "a copy of the host's own memory is waited for, either way");
	device_copy(device, DEVICE_REDUCE, memory, pinned, 8, &error);
	ok(fake.calls == at + 5, "one of pinned memory is not");
	device_close(device);
}

/* --- Ends and graphs ---------------------------------------------------------------------- */

static void test_ended(void)
{
	struct device *device = sound();

	ok(device_ended(device, DEVICE_REDUCE, &error) == 1, "a stream has ended");
	fake.busy = true;
	ok(device_ended(device, DEVICE_REDUCE, &error) == 0 && fake.last == cudaSuccess,
	   "or not yet");
	fake.busy = false;
	fake.fail = "wait";
	fake.result = cudaErrorECCUncorrectable;
	OK_STATUS(device_ended(device, DEVICE_REDUCE, &error), DDP_ERR_ENGINE, &error,
		  "or the card has failed");
	device_close(device);
}

static void test_graph(void)
{
	static const char *const calls[] = {"captured", "nodes", "instantiate", "upload"};
	struct device *device = sound();
	struct device_graph *graph;
	int failed = 0;

	device_capture_begin(device, &error);
	OK_STATUS(device_capture_end(device, &graph, &error), 0, &error, "a graph is recorded");
	ok(fake_count("capture 1 2") == 1 && fake_count("instantiate 8") == 1 &&
		   device_graph_nodes(graph) == 7,
	   "relaxed, and each node has the priority of its stream");
	device_graph_destroy(graph);
	for (int i = 0; i < 4; i++) {
		fake.fail = calls[i];
		fake.result = cudaErrorStreamCaptureUnjoined;
		device_capture_begin(device, &error);
		failed += device_capture_end(device, &graph, &error) == DDP_ERR_ENGINE && !graph;
	}
	ok(failed == 4, "what may fail is told: %s", error.text);
	device_close(device);
	ok(fake.objects == 0, "nothing is left of these");
}

/* --- What never ends -------------------------------------------------------------------------- */

/* A stream that never ends is waited for so long and no longer, wherever one is. */
static void test_patience(void)
{
	struct device *device = sound();
	void *memory = &error;
	char host[8];

	device_alloc(device, &memory, 8, "a test", NULL, &error);
	device_patience(device, 0.05);
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), 0, &error,
		  "what ends is waited for");
	fake.busy = true;
	OK_STATUS(device_wait(device, DEVICE_COMPUTE, &error), DDP_ERR_ENGINE, &error,
		  "and what never does for a while");
	ok(says("GPU 1 (NVIDIA Fake): ") && says("did not end in 0.05 s") && says("Xid"), "%s",
	   error.text);
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

static void test_close(void)
{
	struct device *device = sound();
	int before = fake.objects;

	ok(device_rests(device) && device_rests(NULL) && fake.sleeps == 0, "a device rests");
	fake.busy = true;
	device_close(device);
	ok(fake.sleeps > 0 && fake.objects == before,
	   "one whose work never ends is left behind after a while");
	device_close(NULL);
}

/* For LeakSanitizer: what a close leaves behind on purpose. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:test_close\nleak:test_patience\n";
}

int main(void)
{
	test_available();
	test_open();
	test_open_failures();
	test_share();
	test_errors();
	test_alloc();
	test_copy();
	test_ended();
	test_graph();
	test_patience();
	test_close();
	return tap_end();
}
