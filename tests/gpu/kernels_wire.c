/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients on their way between devices, against the rounding of arrays.h: to the bit; and the count of sums. */
#include "arrays.h"
#include "device/wire.h"

static const struct {
	enum ddp_type to, from;
} ways[] = {
	{DDP_F32, DDP_F32},  {DDP_BF16, DDP_F32}, {DDP_F16, DDP_F32},
	{DDP_F32, DDP_BF16}, {DDP_F32, DDP_F16},
};

/* Around what a thread has, and more than a block. */
static const size_t counts[] = {1, 2, 3, 4, 5, 7, 8, 1023, 1024, 1029};

static void test_convert(int way, float factor)
{
	bool in_place = ways[way].to == ways[way].from;
	uint64_t random = arrays_seed + (uint64_t)way;

	for (int c = 0; c < ROWS(counts); c++) {
		struct array from = array_make(ways[way].from, counts[c], 0);
		struct array to = array_make(ways[way].to, counts[c], 0);
		float *before = calloc(counts[c], sizeof(*before));

		array_fill(&from, 0, &random);
		for (size_t i = 0; i < counts[c]; i += 5)
			array_put(&from, i, i % 2 ? (double)NAN : ldexp(1, (int)draw(&random, 40)));
		array_send(&from);
		memcpy(before, from.values, counts[c] * sizeof(*before));
		ddp_wire_kernel_convert(arrays_stream, in_place ? from.data : to.data, to.type,
					from.data, from.type, counts[c], factor);
		array_fetch(in_place ? &from : &to);
		for (size_t i = 0; i < counts[c]; i++)
			array_exact("times the factor", in_place ? &from : &to, i,
				    (double)(before[i] * factor));
		free(before);
		array_free(&from);
		array_free(&to);
	}
	array_row("%s becomes %s, times %g", arrays_name(ways[way].from), arrays_name(ways[way].to),
		  (double)factor);
}

static void test_count(void)
{
	struct ddp_error error = {0, ""};
	uint64_t begin = 40, after = 0, *counter = bytes_make(sizeof(begin), &begin), *word;
	bool right = true;

	arrays_check(device_alloc_host(arrays_device, (void **)&word, 2 * sizeof(*word), "a word",
				       &error),
		     &error);
	word[0] = word[1] = 7;
	for (uint64_t i = 1; i <= 3; i++) {
		ddp_wire_kernel_count(arrays_stream, counter, word);
		arrays_check(device_wait(arrays_device, DEVICE_COMPUTE, &error), &error);
		right = right && __atomic_load_n(word, __ATOMIC_ACQUIRE) == begin + i;
	}
	bytes_fetch(&after, counter, sizeof(after));
	ok(right && after == 43 && word[1] == 7, "sums that are finished are counted");
	device_free(arrays_device, counter);
	device_free(arrays_device, word);
}

int main(void)
{
	if (!arrays_begin("gradients on their way"))
		return EXIT_SUCCESS;
	for (int way = 0; way < ROWS(ways); way++) {
		test_convert(way, 1);
		test_convert(way, 1.0f / 3);
		test_convert(way, 8);
	}
	test_count();
	return arrays_end();
}
