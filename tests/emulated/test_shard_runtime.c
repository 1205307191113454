/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_runtime - the engine of runtime/device/shard-gpu.c as it calls CUDA: on one that does nothing but note and fail */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "device/shard-engine.h"
#include "fake-cuda.h"
#include "tap.h"

enum { PAGE = 2 << 20, WORDS = 4096 };

extern const struct ddp_shard_engine ddp_module;
static const struct ddp_shard_engine *const engine = &ddp_module;

static struct ddp_error error;
static struct ddp_log log_;
/* A page, between others. */
static _Alignas(WORDS) char pages[3 * WORDS];
static char *const words = pages + WORDS;

static bool says(const char *text)
{
	return strstr(error.text, text) != NULL;
}

/* The lowest descriptor that is free: the same before and after what leaves none behind. */
static int next_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

static struct ddp_shard_gpu *take(double share)
{
	struct ddp_shard_gpu *gpu = NULL;

	(void)engine->open(&gpu, 1, share, &log_, &error);
	return gpu;
}

/* Whether memory of [gpu] is given to others by a handle, not by a descriptor. */
static bool by_handle(struct ddp_shard_gpu *gpu)
{
	struct ddp_shard_memory memory;
	bool handle;

	if (engine->alloc(gpu, 1, &memory, &error) < 0)
		return false;
	handle = memory.fd < 0;
	if (!handle)
		close(memory.fd);
	engine->release(gpu, memory.base);
	return handle;
}

static struct ddp_shard_gpu *sound(void)
{
	fake_reset();
	unsetenv("CUDA_VISIBLE_DEVICES");
	return take(0);
}

/* --- Opening ------------------------------------------------------------------------------ */

static void test_open(void)
{
	struct ddp_shard_gpu *gpu = sound();

	ok(gpu && !by_handle(gpu), "memory goes by descriptors");
	ok(fake_count("stream 1 -5") == 1,
	   "sums have a higher priority, and wait for no other stream");
	ok(fake_count("write 7 0") == 1 && fake_count("await 7 0") == 1,
	   "a word was written and awaited, with a fence and cyclically");
	engine->close(gpu);
	ok(fake.objects == 0 && fake.current == 0,
	   "all is given back, and the thread's device is as it was");
	fake_reset();
	fake.count = 1;
	ok(!take(0) && error.status == DDP_ERR_ENVIRONMENT && says("DDP_DEVICE"), "no such GPU: %s",
	   error.text);
	engine->close(NULL);
}

/* How a GPU refuses words, and what is said. */
static void test_words_refused(void)
{
	static const struct {
		struct fake fake;
		const char *says;
	} rows[] = {
		{{.missing = "cuStreamWrite"}, "11.7"},
		{{.fail = "await", .result = cudaErrorNotSupported}, "virtual machines"},
		{{.silent = true}, "never came"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake_reset();
		fake.missing = rows[i].fake.missing;
		fake.fail = rows[i].fake.fail;
		fake.result = rows[i].fake.result;
		fake.silent = rows[i].fake.silent;
		ok(!take(0) && error.status == DDP_ERR_UNSUPPORTED && says(rows[i].says) &&
			   says("--gpus-per-task=1") && fake.objects == 0,
		   "words are refused: %s", error.text);
	}
}

/* Each call in turn fails: it is told, or handles do instead of descriptors, and nothing is left behind. */
static void test_open_failures(void)
{
	int calls, told = 0, without = 0, clean = 0, lost = next_fd();
	struct ddp_shard_gpu *gpu = sound();

	calls = fake.calls;
	engine->close(gpu);
	for (int i = 1; i <= calls; i++) {
		fake_reset();
		fake.fail_at = i;
		fake.result = cudaErrorECCUncorrectable;
		error.text[0] = '\0';
		gpu = take(0);
		told += !gpu && says("ECC");
		without += gpu && by_handle(gpu);
		engine->close(gpu);
		clean += fake.objects == 0 && fake.current == 0;
	}
	ok(clean == calls && next_fd() == lost, "%d of %d failures leave nothing", clean, calls);
	ok(told > 8 && without > 8, "%d are told, %d end in handles", told, without);
}

/* --- Memory ------------------------------------------------------------------------------- */

static void test_memory(void)
{
	struct ddp_shard_gpu *gpu = sound();
	struct ddp_shard_memory memory;
	int before = fake.objects, lost = next_fd(), at = fake.calls;
	void *theirs;

	OK_STATUS(engine->alloc(gpu, PAGE + 1, &memory, &error), 0, &error, "memory");
	ok(memory.base && memory.bytes == PAGE + 1 && memory.fd >= 0, "with a descriptor");
	ok(fake_called(at + 1, "create 4194304") && fake_called(at + 2, "export 1") &&
		   fake_called(at + 3, "reserve 4194304") &&
		   fake_called(at + 4, "map 4194304 at 0") &&
		   fake_called(at + 5, "allow 4194304 3 to 1") && fake_called(at + 6, "release") &&
		   fake_called(at + 7, "set 0 4194304") && fake_called(at + 8, "wait"),
	   "of whole pages, mapped, zeroed, and nothing but the mapping holds it");
	OK_STATUS(engine->import(gpu, &memory, &theirs, &error), 0, &error, "which is imported");
	ok(theirs && theirs != memory.base, "at another address");
	close(memory.fd);
	ok(next_fd() == lost, "there is one descriptor");
	engine->release(gpu, theirs);
	engine->release(gpu, memory.base);
	engine->release(gpu, NULL);
	ok(fake.objects == before && fake.current == 0, "and both mappings go");
	OK_STATUS(engine->alloc(gpu, (size_t)70 << 30, &memory, &error), DDP_ERR_MEMORY, &error,
		  "more than is free");
	ok(!memory.base && memory.fd == -1 && says("70.0 GiB") && says("60.0 GiB is free"), "%s",
	   error.text);
	OK_STATUS(engine->alloc(gpu, SIZE_MAX, &memory, &error), DDP_ERR_ARGUMENT, &error,
		  "more than there can be");
	engine->alloc(gpu, 1, &memory, &error);
	close(memory.fd);
	engine->close(gpu);
	ok(fake.objects == 0, "what was not released goes with the GPU");
}

static void test_share(void)
{
	struct ddp_shard_memory first, second;
	struct ddp_shard_gpu *gpu;

	fake_reset();
	gpu = take(0.25);
	OK_STATUS(engine->alloc(gpu, (size_t)15 << 30, &first, &error), 0, &error,
		  "15 of 20 GiB, a quarter of 80");
	OK_STATUS(engine->alloc(gpu, (size_t)6 << 30, &second, &error), DDP_ERR_MEMORY, &error,
		  "and not 6 more");
	ok(!second.base && says("20.0 GiB") && says("uses 15.0 GiB") && says("DDP_SHARE"), "%s",
	   error.text);
	close(first.fd);
	engine->release(gpu, first.base);
	fake.held = (size_t)14 << 30;
	OK_STATUS(engine->alloc(gpu, (size_t)6 << 30, &second, &error), 0, &error,
		  "but when those are released");
	close(second.fd);
	fake.held++;
	OK_STATUS(engine->alloc(gpu, (size_t)6 << 30, &second, &error), DDP_ERR_MEMORY, &error,
		  "all that the process holds counts");
	engine->close(gpu);
	ok(fake.objects == 0, "all is given back");
}

static void test_handles(void)
{
	struct ddp_shard_memory memory;
	struct ddp_shard_gpu *gpu;
	int before;
	void *theirs;

	fake_reset();
	fake.no_descriptors = true;
	gpu = take(0);
	before = fake.objects;
	OK_STATUS(engine->alloc(gpu, 5, &memory, &error), 0, &error, "memory");
	ok(memory.base && memory.fd == -1 && fake_count("malloc 2097152") == 1,
	   "of a block of its own");
	OK_STATUS(engine->import(gpu, &memory, &theirs, &error), 0, &error, "which is imported");
	ok(theirs == memory.base, "by its handle");
	memory.fd = 1;
	OK_STATUS(engine->import(gpu, &memory, &theirs, &error), DDP_ERR_UNSUPPORTED, &error,
		  "a descriptor is not: %s", error.text);
	engine->release(gpu, memory.base);
	engine->release(gpu, memory.base);
	ok(fake.objects == before && fake_count("close handle") == 1 && fake_count("free") == 1,
	   "both go");
	engine->close(gpu);
	fake_reset();
	fake.missing = "cuMem";
	gpu = take(0);
	ok(gpu != NULL, "a driver without the functions does as well");
	engine->close(gpu);
	ok(fake.objects == 0, "all is given back");
}

/* Each call of alloc() and import() fails in turn. */
static void test_memory_failures(bool descriptors)
{
	int clean = 0, told = 0, calls = 0, lost = next_fd();

	for (int i = 1; i <= 20; i++) {
		struct ddp_shard_memory memory = {.fd = -1};
		struct ddp_shard_gpu *gpu;
		int before, status;
		void *theirs = NULL;

		fake_reset();
		fake.no_descriptors = !descriptors;
		gpu = take(0);
		before = fake.objects;
		fake.fail_at = fake.calls + i;
		fake.result = cudaErrorLaunchFailure;
		status = engine->alloc(gpu, 5, &memory, &error);
		if (status == 0)
			status = engine->import(gpu, &memory, &theirs, &error);
		if (fake.calls < fake.fail_at)
			calls = calls ? calls : i - 1;
		if (memory.base && theirs == NULL && status == 0)
			told = -100;
		told += status == DDP_ERR_ENGINE && says("GPU 1 (NVIDIA Fake)");
		if (memory.fd >= 0)
			close(memory.fd);
		engine->release(gpu, theirs);
		engine->release(gpu, memory.base);
		clean += fake.objects == before && fake.current == 0;
		fake.fail_at = 0;
		engine->close(gpu);
	}
	ok(clean == 20 && next_fd() == lost, "by %s: failures leave nothing",
	   descriptors ? "descriptor" : "handle");
	/* But for those of cudaSetDevice() and of giving a handle back, which nothing hangs on. */
	ok(told >= (descriptors ? 9 : 4) && told <= calls, "%d of %d are told", told, calls);
}

/* --- Words ---------------------------------------------------------------------------------- */

static void test_words(void)
{
	struct ddp_shard_gpu *gpu = sound();
	void *stream = (void *)9;
	int at, outside = 0;

	OK_STATUS(engine->wait(gpu, NULL, words, 1, &error), DDP_ERR_ARGUMENT, &error,
		  "a word of no page");
	fake.fail = "place";
	fake.result = cudaErrorInvalidValue;
	OK_STATUS(engine->know(gpu, words, WORDS, &error), DDP_ERR_ENGINE, &error,
		  "a page that cannot be mapped");
	ok(fake_count("unregister") == 1, "is let go");
	OK_STATUS(engine->know(gpu, words, WORDS, &error), 0, &error, "a page");
	OK_STATUS(engine->know(gpu, words, WORDS, &error), DDP_ERR_STATE, &error, "once");
	at = fake.calls;
	OK_STATUS(engine->write(gpu, stream, words + 128, 41, &error), 0, &error, "a word");
	ok(*(uint32_t *)(words + 128) == 41 && fake_called(at + 1, "write 41 0 in 9"),
	   "is written with a fence, where the GPU has it");
	OK_STATUS(engine->wait(gpu, NULL, words + WORDS - 4, 0xfffffff0u, &error), 0, &error,
		  "and awaited");
	ok(fake_called(at + 4, "await 4294967280 0 in 1") && engine->stream(gpu) == (void *)1,
	   "on the engine's own stream, which it tells");
	outside += engine->write(gpu, NULL, words + WORDS, 1, &error) == DDP_ERR_ARGUMENT;
	outside += engine->wait(gpu, NULL, words - 4, 1, &error) == DDP_ERR_ARGUMENT;
	outside += engine->wait(gpu, NULL, words + 2, 1, &error) == DDP_ERR_ARGUMENT;
	ok(outside == 3, "not behind the page, before it, or across words");
	cudaStreamBeginCapture((cudaStream_t)1, cudaStreamCaptureModeRelaxed);
	ok(engine->captured(gpu, NULL) && !engine->captured(gpu, stream),
	   "a stream is captured, or not");
	engine->close(gpu);
	ok(fake.objects == 0 && fake_count("unregister") == 2, "the page is let go");
}

static void test_close(void)
{
	struct ddp_shard_gpu *gpu = sound();
	int before = fake.objects;

	fake.busy = true;
	engine->close(gpu);
	ok(fake.objects == before && fake_count("rest") == 0, "what never ends is left behind");
}

/* For LeakSanitizer: what a close leaves behind on purpose. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:test_close\n";
}

int main(void)
{
	ddp_log_open(&log_, NULL);
	test_open();
	test_words_refused();
	test_open_failures();
	test_memory();
	test_share();
	test_handles();
	test_memory_failures(true);
	test_memory_failures(false);
	test_words();
	test_close();
	return tap_end();
}
