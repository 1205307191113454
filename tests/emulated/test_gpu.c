/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu.c - calls of ddp_gpu.so, on a CUDA runtime that records them and fails on request */
#include <string.h>

#include "device-engine.h"
#include "fake-cuda.h"
#include "tap.h"

extern const struct ddp_device_engine ddp_module;
static const struct ddp_device_engine *const engine = &ddp_module;

static const struct ddp_log quiet = {.level = DDP_LEVEL_ERROR};
static struct ddp_error error;
static struct ddp_gpu gpu;
static size_t freed; /* bytes, by free() */
static uint64_t host[8];

static struct ddp_device *open_sound(void)
{
	struct ddp_device *device = NULL;

	fake_reset();
	unsetenv("CUDA_VISIBLE_DEVICES");
	(void)engine->open(&device, &gpu, 1, 2, 0, &quiet, &error);
	return device;
}

/* Makes the calls of staged sums on an open device. Returns at the first error. */
static int use_device(struct ddp_device *device)
{
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	void *memory = NULL, *other = NULL;
	int status = engine->alloc(device, 4096, &memory, &error);

	if (status == 0)
		status = engine->alloc(device, 100, &other, &error);
	if (status == 0)
		status = engine->pin(device, host, sizeof(host), &error);
	if (status == 0)
		status = engine->copy(device, host, memory, sizeof(host), NULL, &error);
	if (status == 0)
		status = engine->count(engine->stream(device), host, &error);
	host[0] = 3;
	if (status == 0)
		status = engine->wait(device, NULL, host, 3, &watch, &error);
	if (status == 0)
		status = engine->wait(device, NULL, NULL, 0, &watch, &error);
	return status == 0 ? engine->free(device, memory, &freed, &error) : status;
}

static int use(void)
{
	struct ddp_device *device = NULL;
	int status = engine->open(&device, &gpu, 1, 2, 0, &quiet, &error);

	if (status == 0)
		status = use_device(device);
	engine->close(device);
	return status;
}

static void test_failures(void)
{
	fake_reset();
	OK_STATUS(use(), 0, &error, "memory, copies and waits");
	ok(freed == 4096, "free() returns the size of the memory");
	ok(fake.objects == 0 && fake_count("register 64 ") == 1 && fake_count("unregister") == 1,
	   "close() leaves nothing, pinned memory neither");
	ok(fake_fail_each(use, &error, "uncorrectable ECC"),
	   "a failure of any call is reported and leaves nothing");
}

static void test_pinned_elsewhere(void)
{
	struct ddp_device *device = open_sound();

	fake.other_address = true;
	OK_STATUS(engine->pin(device, host, sizeof(host), &error), DDP_ERR_UNSUPPORTED, &error,
		  "memory that the device has at another address is refused");
	ok(strstr(error.text, "rank 1, device 0") != NULL, "the error names rank and device");
	engine->close(device);
	ok(fake.objects == 0, "and the memory is not pinned any more");
}

static void test_waits(void)
{
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_device *device = open_sound();
	uint64_t word = 1;

	OK_STATUS(engine->wait(device, NULL, &word, 1, &watch, &error), 0, &error,
		  "a word that has its value");
	OK_STATUS(engine->wait(device, NULL, &word, 2, &watch, &error), DDP_ERR_ENGINE, &error,
		  "a stream that ends without writing the word");
	fake.busy = true;
	watch = ddp_watch_start(0.05, NULL, NULL);
	OK_STATUS(engine->wait(device, NULL, &word, 2, &watch, &error), DDP_ERR_TIMEOUT, &error,
		  "a stream that does not end");
	ok(strstr(error.text, "0.05 s") != NULL, "the error names the limit");
	fake.busy = false;
	engine->close(device);
}

int main(void)
{
	test_failures();
	test_pinned_elsewhere();
	test_waits();
	return tap_end();
}
