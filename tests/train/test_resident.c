/* SPDX-License-Identifier: Apache-2.0 */
/* Samples are on the device when a step needs them, and each comes there once */
#include "config.h"

#include "cuda/kernels.h"
#include "cuda/resident.h"
#include "fake-device.h"

enum { MARK = 7, BYTES = 3 * 4 * 5, MOST = 200 };

/* --- A set whose images are made of their index -------------------------------------------- */

struct set {
	struct set_info info;
	uint64_t asked; /* for images */
};

static uint8_t pixel(uint64_t index, size_t i)
{
	return (uint8_t)(1 + (index * 31 + i * 7 + index / 251) % 255);
}

const struct set_info *set_info(const struct set *set)
{
	return &set->info;
}

/* Large enough for the largest of these sets; only what is compared is filled. */
const uint8_t *set_image(struct set *set, uint64_t index)
{
	static uint8_t image[1 << 16];
	size_t bytes = (size_t)(set->info.channels * set->info.height * set->info.width);

	set->asked++;
	ck_assert_uint_le(bytes, sizeof(image));
	for (size_t i = 0; i < bytes; i++)
		image[i] = pixel(index, i);
	return image;
}

static struct set make_set(uint64_t samples, int height)
{
	return (struct set){{.title = "a set of this test",
			     .channels = 3,
			     .height = height,
			     .width = 5,
			     .classes = 10,
			     .samples = samples},
			    0};
}

/* --- kernel_scatter(), as late as it may be ------------------------------------------------ */

struct scatter {
	const uint8_t *packed;
	const uint32_t *places;
	size_t count, bytes;
	uint8_t *pixels;
};

static void do_scatter(void *data)
{
	struct scatter *scatter = data;

	for (size_t i = 0; i < scatter->count; i++)
		memcpy(scatter->pixels + scatter->places[i] * scatter->bytes,
		       scatter->packed + i * scatter->bytes, scatter->bytes);
	free(scatter);
}

void kernel_scatter(void *stream, const uint8_t *packed, const uint32_t *places, size_t count,
		    size_t bytes, uint8_t *pixels)
{
	struct scatter *scatter = malloc(sizeof(*scatter));

	ck_assert_ptr_nonnull(scatter);
	ck_assert_uint_eq((uintptr_t)packed % 16, 0);
	*scatter = (struct scatter){packed, places, count, bytes, pixels};
	fake_enqueue(fake_stream(stream), do_scatter, scatter);
}

/* --- Looking ------------------------------------------------------------------------------- */

static void nothing(void *data)
{
	(void)data;
}

/* A step on COMPUTE, before which nothing else is waited for. */
static void step(void)
{
	fake_enqueue(DEVICE_COMPUTE, nothing, NULL);
	fake_run(DEVICE_COMPUTE);
}

static bool is_there(const struct resident *resident, uint64_t index, size_t bytes)
{
	const uint8_t *pixels = resident_pixels(resident) + index * bytes;

	for (size_t i = 0; i < bytes; i++) {
		if (pixels[i] != pixel(index, i))
			return false;
	}
	return true;
}

static bool is_black(const struct resident *resident, uint64_t index, size_t bytes)
{
	const uint8_t *pixels = resident_pixels(resident) + index * bytes;

	for (size_t i = 0; i < bytes; i++) {
		if (pixels[i] != 0)
			return false;
	}
	return true;
}

static struct resident *open_set(struct set *set)
{
	struct resident *resident;
	struct ddp_error error;

	ck_assert_msg(resident_open(&resident, &fake, set, MARK, &error) == 0, "%s", error.text);
	return resident;
}

/* --- Tests --------------------------------------------------------------------------------- */

/* Two epochs in another order each, with what is asked for twice, in one batch or in two. */
START_TEST(test_epochs)
{
	struct set set = make_set(MOST, 4);
	struct resident *resident = open_set(&set);
	struct ddp_error error;
	bool asked[MOST] = {false};
	size_t jobs;
	int orders;

	for (uint64_t first = 0; first < MOST; first += 16) {
		uint64_t indices[20];

		for (size_t i = 0; i < 20; i++)
			indices[i] = (first + i % 18) * 77 % MOST;
		ck_assert_int_eq(resident_bring(resident, indices, 20, &error), 0);
		step();
		for (size_t i = 0; i < 20; i++) {
			asked[indices[i]] = true;
			ck_assert(is_there(resident, indices[i], BYTES));
		}
		for (uint64_t i = 0; i < MOST; i++)
			ck_assert(asked[i] || is_black(resident, i, BYTES));
	}
	ck_assert_uint_eq(set.asked, MOST);
	ck_assert_uint_eq(resident_count(resident), MOST);
	jobs = fake.queues[DEVICE_COPY].count;
	orders = fake.orders;
	for (uint64_t i = 0; i < MOST; i++)
		ck_assert_int_eq(resident_bring(resident, &i, 1, &error), 0);
	ck_assert_uint_eq(fake.queues[DEVICE_COPY].count, jobs);
	ck_assert_int_eq(fake.orders, orders);
	resident_close(resident);
	ck_assert_int_eq(fake.allocations, 0);
}
END_TEST

static const struct {
	uint64_t samples;
	int height;
	size_t ahead; /* samples of one call */
} pieces[] = {
	{3000, 100, 3000}, /* 5 pieces by one call */
	{4000, 100, 7},	   /* hundreds of small ones */
	{40, 4000, 40},	   /* images of 60,000 bytes */
	{1, 4, 1},
};

/* Nothing but the mark says when a buffer may be filled again. */
START_TEST(test_pieces)
{
	struct set set = make_set(pieces[_i].samples, pieces[_i].height);
	struct resident *resident = open_set(&set);
	size_t bytes = (size_t)pieces[_i].height * 15;
	uint64_t indices[3000];
	struct ddp_error error;

	for (uint64_t first = 0; first < set.info.samples; first += pieces[_i].ahead) {
		size_t count = 0;

		while (count < pieces[_i].ahead && first + count < set.info.samples) {
			indices[count] = set.info.samples - 1 - first - count;
			count++;
		}
		ck_assert_int_eq(resident_bring(resident, indices, count, &error), 0);
	}
	step();
	ck_assert_uint_eq(resident_count(resident), set.info.samples);
	for (uint64_t i = 0; i < set.info.samples; i++)
		ck_assert_msg(is_there(resident, i, bytes), "sample %u", (unsigned)i);
	resident_close(resident);
}
END_TEST

/* Where nothing was missing, a step waits for no copy. */
START_TEST(test_order)
{
	struct set set = make_set(MOST, 4);
	struct resident *resident = open_set(&set);
	uint64_t indices[] = {3, 5, 9};
	struct ddp_error error;

	ck_assert_int_eq(resident_bring(resident, indices, 0, &error), 0);
	ck_assert_int_eq(fake.orders, 0);
	ck_assert_int_eq(resident_bring(resident, indices, 3, &error), 0);
	ck_assert_int_eq(fake.orders, 1);
	ck_assert(!is_there(resident, 3, BYTES));
	ck_assert_int_eq(resident_bring(resident, indices + 1, 2, &error), 0);
	ck_assert_int_eq(fake.orders, 1);
	step();
	ck_assert(is_there(resident, 3, BYTES) && is_there(resident, 9, BYTES));
	resident_close(resident);
}
END_TEST

START_TEST(test_bad_index)
{
	struct set set = make_set(MOST, 4);
	struct resident *resident = open_set(&set);
	uint64_t indices[] = {0, MOST};
	struct ddp_error error;

	ck_assert_int_eq(resident_bring(resident, indices, 2, &error), DDP_ERR_ARGUMENT);
	ck_assert_str_eq(error.text, "sample 200 of a set of this test: there is none");
	ck_assert_uint_eq(resident_count(resident), 0);
	ck_assert_uint_eq(fake.queues[DEVICE_COPY].count, 0);
	fake.broken = true;
	ck_assert_int_eq(resident_bring(resident, indices, 1, &error), DDP_ERR_ENGINE);
	ck_assert_int_eq(fake.orders, 0);
	resident_close(resident);
}
END_TEST

/* Pieces that never come are waited for as long as the device is. */
START_TEST(test_hangs)
{
	struct set set = make_set(MOST, 4);
	struct resident *resident = open_set(&set);
	struct ddp_error error;
	int status = 0;

	fake.hangs = true;
	for (uint64_t i = 0; status == 0 && i < MOST; i++)
		status = resident_bring(resident, &i, 1, &error);
	ck_assert_int_eq(status, DDP_ERR_ENGINE);
	ck_assert_str_eq(error.text, "stream 2 does not end");
	fake.hangs = false;
	fake_run(DEVICE_COPY);
	resident_close(resident);
}
END_TEST

/* Whichever allocation fails: told, and nothing is left. */
START_TEST(test_no_memory)
{
	struct set set = make_set(MOST, 4);
	struct resident *resident = (struct resident *)&set;
	struct ddp_error error;

	fake.allowed = _i;
	ck_assert_int_eq(resident_open(&resident, &fake, &set, MARK, &error), DDP_ERR_MEMORY);
	ck_assert_ptr_null(resident);
	ck_assert_int_eq(fake.allocations, 0);
	if (_i == 0) {
		ck_assert_str_eq(fake.what, "the images of a set of this test");
		ck_assert_ptr_nonnull(strstr(fake.remedy, "--samples"));
	}
	resident_close(resident);
}
END_TEST

START_TEST(test_too_many)
{
	struct set set = make_set((UINT64_C(1) << 32) + 1, 4);
	struct resident *resident;
	struct ddp_error error;

	ck_assert_int_eq(resident_open(&resident, &fake, &set, MARK, &error), DDP_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "4294967295 samples at most"));
	ck_assert_int_eq(fake.allocations, 0);
}
END_TEST

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, fake_reset, NULL);
	tcase_add_test(tcase, test_epochs);
	UNIT_ROWS(tcase, test_pieces, pieces);
	tcase_add_test(tcase, test_order);
	tcase_add_test(tcase, test_hangs);
	tcase_add_test(tcase, test_bad_index);
	tcase_add_loop_test(tcase, test_no_memory, 0, 1 + 2 * RESIDENT_MARKS);
	tcase_add_test(tcase, test_too_many);
}

int main(void)
{
	return unit_run("resident", fill);
}
