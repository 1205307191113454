/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime - device*.c as they call CUDA: on a runtime that does nothing but note and fail */
#include <string.h>
#include <unistd.h>

#include "device-private.h"
#include "engine.h"
#include "fake-cuda.h"
#include "fake-nvml.h"
#include "tap.h"

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

/* --- Whether there is one ----------------------------------------------------------------- */

static void test_available(void)
{
	fake_reset();
	ok(device_available(&error), "a sound GPU is available");
	ok(fake_count("device") == 0, "and was not opened");
	fake.driver = 0;
	ok(!device_available(&error) && error.status == DDP_ERR_UNSUPPORTED && says("no driver"),
	   "no driver: %s", error.text);
	fake.driver = 9020;
	ok(!device_available(&error) && error.status == DDP_ERR_UNSUPPORTED &&
		   says("the driver is for CUDA 9.2") && says("install a newer driver"),
	   "an old driver: %s", error.text);
	fake_reset();
	fake.count = 0;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	ok(!device_available(&error) && says("no GPU is visible") && says("empty"),
	   "none is visible: %s", error.text);
	unsetenv("CUDA_VISIBLE_DEVICES");
	ok(!device_available(&error) && says("not set"), "none is there: %s", error.text);
	fake.fail = "count";
	fake.count = 1;
	fake.result = cudaErrorSystemNotReady;
	ok(!device_available(&error) && says("fabricmanager"), "a service is missing: %s",
	   error.text);
}

/* --- Opening ------------------------------------------------------------------------------ */

static void test_open(void)
{
	struct device *device = sound();
	const struct device_info *info = device_info(device);

	ok(strcmp(info->name, "NVIDIA Fake") == 0 && info->index == 1 && info->major == 9 &&
		   info->processors == 132 && info->total == (size_t)80 << 30 &&
		   info->limit == info->total && info->driver == CUDART_VERSION,
	   "what is known of a GPU");
#if CUDART_VERSION >= 12050
	ok(strcmp(info->uuid, "GPU-02020202-0202-0202-0202-020202020202") == 0, "its UUID: %s",
	   info->uuid);
#endif
	ok(fake_count("stream 1 -5") == 1 && fake_count("stream 1 0") == 2,
	   "sums have a higher priority, no stream waits for the default one");
	device_close(device);
	ok(fake.objects == 0, "all is given back");
	fake_reset();
	fake.mig = true;
	device_open(&device, 1, 0, &error);
#if CUDART_VERSION >= 12050
	ok(strncmp(device_info(device)->uuid, "MIG-7777", 8) == 0, "a slice: %s",
	   device_info(device)->uuid);
#endif
	device_close(device);
	ok(device_open(&device, 2, 0, &error) == DDP_ERR_ARGUMENT && !device && says("GPU 2"),
	   "one too many: %s", error.text);
}

static void test_share(void)
{
	struct device *device;

	fake_reset();
	OK_STATUS(device_open(&device, 0, 0.5, &error), 0, &error,
		  "a half of 80 where 60 are free");
	ok(device_info(device)->limit == (size_t)40 << 30, "is 40");
	device_close(device);
	OK_STATUS(device_open(&device, 0, 0.9, &error), DDP_ERR_MEMORY, &error,
		  "but not nine tenths");
	ok(!device && says("72.0 GiB") && says("60.0 GiB is free"), "%s", error.text);
	ok(fake.objects == 0, "nothing is left");
}

/* --- What of its share a rank has ------------------------------------------------------------ */

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

static void test_context(void)
{
	struct device *device;
	void *memory;

	fake_reset();
	device_open(&device, 0, 0.25, &error);
	ok(device_context(device) == 512 * MIB, "where nobody says what CUDA takes, as is usual");
	device_measure(device);
	ok(device_context(device) == 512 * MIB, "also when it is asked again");
	device_close(device);
	fake.free = fake.total - 100 * MIB;
	device_open(&device, 0, 0.25, &error);
	ok(device_context(device) == 100 * MIB, "but no more than what is used at all");
	device_close(device);
	fake.free = 60 * GIB;
	fake_nvml.there = true;
	fake_nvml.count = 2;
	fake_nvml.processes[0] = (struct fake_process){.pid = 1, .bytes = 7 * GIB};
	fake_nvml.processes[1] =
		(struct fake_process){.pid = (unsigned int)getpid(), .bytes = 600 * MIB};
	device_open(&device, 0, 0.25, &error);
	ok(device_context(device) == 600 * MIB, "or what the driver counts for this process");
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB + 1, "a test", NULL, &error),
		  DDP_ERR_MEMORY, &error, "a share less that, and a byte");
	ok(says("may have 20.0 GiB and uses 600.0 MiB (600.0 MiB of it for CUDA): 1 bytes too "
		"little; or let it have more (DDP_SHARE, fewer ranks on this GPU)"),
	   "%s", error.text);
	OK_STATUS(device_alloc(device, &memory, 20 * GIB - 600 * MIB, "a test", NULL, &error), 0,
		  &error, "without the byte it is there");
	device_free(device, memory);
	device_alloc(device, &memory, GIB, "a test", NULL, &error);
	fake_nvml.processes[1].bytes = 3 * GIB;
	device_measure(device);
	ok(device_context(device) == 2 * GIB, "what libraries took meanwhile is found");
	OK_STATUS(device_alloc(device, &memory, 17 * GIB + 1, "a test", NULL, &error),
		  DDP_ERR_MEMORY, &error, "and kept free");
	device_count(device, &fake_nvml, 10 * GIB, &error);
	OK_STATUS(device_alloc(device, &memory, 7 * GIB + 1, "a test", NULL, &error),
		  DDP_ERR_MEMORY, &error, "what libddp allocated counts");
	OK_STATUS(device_may(device, 7 * GIB + 1, "sums", NULL, &error), DDP_ERR_MEMORY, &error,
		  "and is asked for before");
	OK_STATUS(device_may(device, 7 * GIB, "sums", NULL, &error), 0, &error, "to the byte");
	device_uncount(device, &fake_nvml);
	fake_nvml.processes[1].bytes = 2 * GIB;
	device_measure(device);
	ok(device_context(device) == 2 * GIB, "it does not come back");
	device_close(device);
	fake_nvml.there = false;
	ok(fake.objects == 0, "nothing is left");
}

static void test_mates(void)
{
	static const struct engine_mate mates[] = {{1, 4711}, {3, 4713}};
	struct device *device;

	fake_reset();
	fake.free = 10 * GIB;
	fake_nvml.there = true;
	fake_nvml.count = 4;
	fake_nvml.processes[0] = (struct fake_process){.pid = 4713, .bytes = 20 * GIB};
	fake_nvml.processes[1] = (struct fake_process){.pid = 5000, .bytes = 40 * GIB};
	fake_nvml.processes[2] =
		(struct fake_process){.pid = (unsigned int)getpid(), .bytes = 512 * MIB};
	fake_nvml.processes[3] = (struct fake_process){.pid = 4711, .bytes = ~0ull};
	OK_STATUS(device_open_among(&device, 0, 0.25, mates, 2, &error), DDP_ERR_MEMORY, &error,
		  "a quarter of 80 GiB where 10 are free");
	ok(says("10.0 GiB is free, 9.5 GiB too little; process 5000 holds 40.0 GiB, rank 3 of this "
		"job (process 4713) holds 20.0 GiB; end"),
	   "%s", error.text);
	fake_nvml.there = false;
	ok(!device && fake.objects == 0, "nothing is left");
}

/* Each call in turn fails: the error is told, and nothing is left behind. */
static void test_open_failures(void)
{
	int calls, told = 0, clean = 0, drain = 0;
	struct device *device = sound();

	calls = fake.calls;
	device_close(device);
	for (int i = 1; i <= calls; i++) {
		fake_reset();
		fake.fail_at = i;
		fake.result = cudaErrorECCUncorrectable;
		told += device_open(&device, 1, 0, &error) == DDP_ERR_ENGINE && !device;
		drain += says("drain the node") && says("Xid 48") && says("GPU ");
		clean += fake.objects == 0;
	}
	ok(calls >= 10 && told == calls, "each of %d calls of device_open() may fail: %d told",
	   calls, told);
	ok(drain == calls, "with what to do: %s", error.text);
	ok(clean == calls, "nothing is left");
}

/* --- Errors ------------------------------------------------------------------------------- */

static void test_errors(void)
{
	static const struct {
		cudaError_t result;
		int status;
		const char *says;
	} rows[] = {
		{cudaErrorECCUncorrectable, DDP_ERR_ENGINE, "drain the node"},
		{cudaErrorNvlinkUncorrectable, DDP_ERR_ENGINE, "Xid 74"},
		{cudaErrorIllegalAddress, DDP_ERR_ENGINE, "Xid 13 or 31"},
		{cudaErrorLaunchFailure, DDP_ERR_ENGINE, "kernel's log"},
		{cudaErrorDevicesUnavailable, DDP_ERR_ENGINE, "exclusive"},
		{cudaErrorNoKernelImageForDevice, DDP_ERR_UNSUPPORTED, "--enable-all-gpus"},
		{cudaErrorUnsupportedPtxVersion, DDP_ERR_UNSUPPORTED, "NVCC_ARCH"},
		{cudaErrorSystemDriverMismatch, DDP_ERR_ENGINE, "reboot"},
		{cudaErrorMpsServerNotReady, DDP_ERR_ENGINE, "MPS"},
		{cudaErrorStreamCaptureUnjoined, DDP_ERR_ENGINE, "waiting"},
	};
	struct device *device = sound();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake.last = rows[i].result;
		OK_STATUS(device_check(device, "a kernel after long waiting", &error),
			  rows[i].status, &error, "error %d of CUDA", (int)rows[i].result);
		ok(says(rows[i].says) && says("GPU 1 (NVIDIA Fake): enqueuing a kernel"), "%s",
		   error.text);
	}
	OK_STATUS(device_check(device, "a kernel", &error), 0, &error, "an error is told once");
	device_close(device);
}

/* --- Memory ------------------------------------------------------------------------------- */

static void test_alloc(void)
{
	struct device *device = sound();
	void *memory, *pinned;
	size_t most;
	int at = fake.calls;

	OK_STATUS(device_alloc(device, &memory, 1000, "a test", NULL, &error), 0, &error,
		  "an allocation");
	ok(fake_called(at, "malloc 1000") && fake_called(at + 1, "set 0 1000 in 7") &&
		   fake_called(at + 2, "wait 7"),
	   "is cleared on a stream of its own, and waited for");
	OK_STATUS(device_alloc_host(device, &pinned, 8, "a test", &error), 0, &error,
		  "pinned memory");
	ok(memcmp(pinned, "\0\0\0\0\0\0\0\0", 8) == 0, "is zero");
	ok(device_used(device, &most) == 1000 && most == 1000, "and is not counted");
	OK_STATUS(device_alloc(device, &memory, (size_t)70 << 30, "weights", "lower --batch",
			       &error),
		  DDP_ERR_MEMORY, &error, "more than is free");
	ok(!memory && says("weights") && says("70.0 GiB wanted") && says("60.0 GiB is free") &&
		   says("lower --batch"),
	   "%s", error.text);
	OK_STATUS(device_alloc(device, &memory, (size_t)90 << 30, "weights", "lower --batch",
			       &error),
		  DDP_ERR_MEMORY, &error, "more than there is");
	ok(says("may have 80.0 GiB") && !says("DDP_SHARE") && fake_count("malloc 96636764160") == 0,
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
	at = fake.calls;
	device_copy(device, DEVICE_COPY, memory, host, 8, &error);
	ok(fake_called(at, "copy 8 in 5") && fake_called(at + 1, "wait 5"),
	   "a copy from the host's own memory waits");
	device_copy(device, DEVICE_COPY, host, memory, 8, &error);
	ok(fake_called(at + 2, "copy 8 in 5") && fake_called(at + 3, "wait 5"),
	   "and so does one into it");
	device_alloc_host(device, &pinned, 8, "a test", &error);
	at = fake.calls;
	device_copy(device, DEVICE_COPY, memory, pinned, 8, &error);
	device_copy(device, DEVICE_COPY, pinned, memory, 8, &error);
	ok(fake.calls == at + 2, "with pinned memory neither does");
	device_copy(device, DEVICE_COPY, host, memory, 0, &error);
	ok(fake.calls == at + 2, "nothing is no copy");
	device_capture_begin(device, &error);
	OK_STATUS(device_copy(device, DEVICE_COMPUTE, memory, host, 8, &error), DDP_ERR_STATE,
		  &error, "and none of it in a graph");
	OK_STATUS(device_copy(device, DEVICE_COPY, memory, host, 8, &error), 0, &error,
		  "but on a stream that is not recorded");
	device_close(device);
	ok(fake.objects == 0, "a capture that was not ended goes with the device");
}

/* --- Order and graphs --------------------------------------------------------------------- */

static void test_order(void)
{
	struct device *device = sound();
	int at = fake.calls;

	device_order(device, DEVICE_REDUCE, DEVICE_COMPUTE, &error);
	ok(fake_called(at, "record 2 in 1") && fake_called(at + 1, "order 2 in 3"),
	   "REDUCE begins after what is on COMPUTE");
	ok(device_reached(device, 5, &error) == 1, "a mark that was never set is behind us");
	device_mark(device, DEVICE_COPY, 5, &error);
	ok(device_reached(device, 5, &error) == 1, "a mark is reached");
	fake.busy = true;
	ok(device_reached(device, 5, &error) == 0 && fake.last == cudaSuccess, "or not yet");
	fake.busy = false;
	fake.fail = "query";
	fake.result = cudaErrorECCUncorrectable;
	OK_STATUS(device_reached(device, 5, &error), DDP_ERR_ENGINE, &error,
		  "or the card has failed");
	device_close(device);
	ok(fake.objects == 0, "marks go with the device");
}

static void test_graph(void)
{
	struct device *device = sound();
	struct device_graph *graph;
	int at = fake.calls, failed = 0;

	device_capture_begin(device, &error);
	OK_STATUS(device_capture_end(device, &graph, &error), 0, &error, "a graph is recorded");
	ok(fake_called(at, "capture 1 2") && fake_count("instantiate 8") == 1,
	   "relaxed, and each node has the priority of its stream");
	ok(device_graph_nodes(graph) == 7, "its nodes are counted");
	OK_STATUS(device_launch(device, graph, &error), 0, &error, "and launched");
	ok(fake_count("launch in 1") == 1, "on COMPUTE");
	device_graph_destroy(graph);
	for (int i = 0; i < 4; i++) {
		static const char *const calls[] = {"captured", "nodes", "instantiate", "upload"};

		fake.fail = calls[i];
		fake.result = cudaErrorStreamCaptureUnjoined;
		device_capture_begin(device, &error);
		failed += device_capture_end(device, &graph, &error) == DDP_ERR_ENGINE && !graph;
	}
	ok(failed == 4, "what may fail is told: %s", error.text);
	device_close(device);
	ok(fake.objects == 0, "nothing is left of these");
}

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
	OK_STATUS(device_copy(device, DEVICE_COPY, memory, host, 8, &error), DDP_ERR_ENGINE, &error,
		  "likewise a copy that waits");
	OK_STATUS(device_alloc(device, &memory, 8, "a test", NULL, &error), DDP_ERR_ENGINE, &error,
		  "and memory that is cleared");
	ok(!memory && fake_count("free") == 0, "whose return would wait as well");
	ok(fake.last == cudaSuccess, "nothing is left for the next call to find");
	fake.busy = false;
	device_close(device);
	ok(fake.objects == 1, "nothing else is left");
}

static void test_close(void)
{
	struct device *device = sound();
	int before = fake.objects;

	ok(device_rests(device) && device_rests(NULL) && fake.sleeps == 0, "a device rests");
	fake.busy = true;
	ok(!device_rests(device) && fake.sleeps > 0, "or something on it does not end");
	device_close(device);
	ok(fake.sleeps > 0 && fake.objects == before && fake_count("free") == 0,
	   "what never ends is left behind after a while");
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
	test_share();
	test_context();
	test_mates();
	test_open_failures();
	test_errors();
	test_alloc();
	test_copy();
	test_order();
	test_graph();
	test_patience();
	test_close();
	return tap_end();
}
