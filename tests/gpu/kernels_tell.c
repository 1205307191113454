/* SPDX-License-Identifier: Apache-2.0 */
/* What the device writes into host memory: complete when its sequence is there */
#include <string.h>

#include "device.h"
#include "kernels.h"
#include "tap.h"

enum { SLOTS = 5, WORD = 16 };

static struct device *gpu;
static struct ddp_error problem;

static struct {
	struct kernel_order *order;
	struct kernel_state *state;
	float *word;
	struct kernel_result *results; /* of the host, as progress is */
	uint64_t *progress;
} there;

static bool alloc_all(void)
{
	return device_alloc(gpu, (void **)&there.order, sizeof(*there.order), "a test", NULL,
			    &problem) == 0 &&
	       device_alloc(gpu, (void **)&there.state, sizeof(*there.state), "a test", NULL,
			    &problem) == 0 &&
	       device_alloc(gpu, (void **)&there.word, WORD * sizeof(float), "a test", NULL,
			    &problem) == 0 &&
	       device_alloc_host(gpu, (void **)&there.results, SLOTS * sizeof(*there.results),
				 "a test", &problem) == 0 &&
	       device_alloc_host(gpu, (void **)&there.progress, 2 * sizeof(*there.progress),
				 "a test", &problem) == 0;
}

static bool copy(void *to, const void *from, size_t bytes)
{
	return device_copy(gpu, DEVICE_COMPUTE, to, from, bytes, &problem) == 0 &&
	       device_wait(gpu, DEVICE_COMPUTE, &problem) == 0;
}

/* Wait for the sequence as a host does that never waits for the device, but looks after it. */
static bool comes(const uint64_t *from, uint64_t want, enum device_stream stream)
{
	int status = device_mark(gpu, stream, 0, &problem);

	while (status == 0 && __atomic_load_n(from, __ATOMIC_ACQUIRE) != want)
		status = device_reached(gpu, 0, &problem);
	return __atomic_load_n(from, __ATOMIC_ACQUIRE) == want;
}

static float part(uint64_t sequence, int i)
{
	return (float)sequence * 8 + (float)i;
}

/* The device's word and state, and the order, of step [sequence]. */
static bool prepare(uint64_t sequence)
{
	struct kernel_order order = {.sequence = sequence, .slot = (uint32_t)(sequence % SLOTS)};
	struct kernel_state state = {.scale = part(sequence, 100),
				     .good_steps = (int32_t)sequence + 5,
				     .updates = 3 * sequence,
				     .overflow = (uint32_t)(sequence % 2)};
	float word[WORD];

	for (int i = 0; i < WORD; i++)
		word[i] = part(sequence, i);
	return copy(there.order, &order, sizeof(order)) &&
	       copy(there.state, &state, sizeof(state)) && copy(there.word, word, sizeof(word));
}

static bool result_is(const struct kernel_result *result, uint64_t sequence)
{
	for (int i = 0; i < KERNEL_WORD; i++) {
		if (result->word[i] != part(sequence, i))
			return false;
	}
	return result->scale == part(sequence, 100) && result->skipped == sequence % 2 &&
	       result->good_steps == (int32_t)sequence + 5 && result->updates == 3 * sequence;
}

/* The word of the next step begins at zero; what lies behind is not the kernel's. */
static bool word_is_clear(uint64_t sequence)
{
	float word[WORD];

	if (!copy(word, there.word, sizeof(word)))
		return false;
	for (int i = 0; i < WORD; i++) {
		if (word[i] != (i < KERNEL_WORD ? 0 : part(sequence, i)))
			return false;
	}
	return true;
}

static void test_tell(void)
{
	struct kernel_result before[SLOTS];
	bool right = true, others = true, clear = true;

	memset(there.results, 0x5a, sizeof(before));
	for (uint64_t sequence = 1; sequence <= 2 * SLOTS + 1; sequence++) {
		size_t slot = sequence % SLOTS;

		right = right && prepare(sequence);
		memcpy(before, there.results, sizeof(before));
		kernel_tell(device_stream(gpu, DEVICE_COMPUTE), there.order, there.state,
			    there.word, there.results);
		right = right && comes(&there.results[slot].sequence, sequence, DEVICE_COMPUTE) &&
			result_is(&there.results[slot], sequence);
		before[slot] = there.results[slot];
		clear = clear && word_is_clear(sequence);
		others = others && memcmp(before, there.results, sizeof(before)) == 0;
	}
	ok(right, "the result is there when its sequence is");
	ok(clear, "the word is zero afterwards");
	ok(others, "other slots stay");
}

static void test_progress(void)
{
	struct kernel_state state = {.scale = 2, .updates = 9, .buckets = 40}, got;
	bool right = copy(there.state, &state, sizeof(state));

	there.progress[0] = there.progress[1] = 7;
	for (uint64_t i = 1; i <= 3; i++) {
		kernel_progress(device_stream(gpu, DEVICE_REDUCE), there.state, there.progress);
		right = right && comes(there.progress, 40 + i, DEVICE_REDUCE);
	}
	right = right && device_wait(gpu, DEVICE_REDUCE, &problem) == 0 &&
		copy(&got, there.state, sizeof(got));
	ok(right && got.buckets == 43 && got.updates == 9 && there.progress[1] == 7,
	   "sums that are finished are counted");
}

int main(void)
{
	if (!device_available(&problem)) {
		printf("1..0 # SKIP %s\n", problem.text);
		return EXIT_SUCCESS;
	}
	if (device_open(&gpu, 0, 0, &problem) < 0 || !alloc_all()) {
		printf("Bail out! %s\n", problem.text);
		return EXIT_FAILURE;
	}
	test_tell();
	test_progress();
	ok(device_check(gpu, "telling", &problem) == 0, "every launch was taken");
	device_close(gpu);
	return tap_end();
}
