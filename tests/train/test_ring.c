/* SPDX-License-Identifier: Apache-2.0 */
/* What steps are told arrives whole and in time, what they tell is heard in order */
#include "config.h"

#include "cuda/ring.h"
#include "fake-device.h"
#include "optim/loop.h"

enum { MARK = 11, BATCH = 6 };

static const struct optim adamw = {
	.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .decay = 0.01, .epsilon = 1e-8};

static struct ddp_error problem;

static struct ring *open_ring(const struct optim *optim)
{
	struct ring *ring;

	ck_assert_msg(ring_open(&ring, &fake, BATCH, optim, MARK, &problem) == 0, "%s",
		      problem.text);
	return ring;
}

/* Sample [i] of step [number], as it is sent. */
static uint64_t order_of(uint64_t number, size_t i)
{
	return number << 33 | i;
}

static uint32_t index_of(uint64_t number, size_t i)
{
	return (uint32_t)(number * 1000 + i + 1);
}

static int32_t label_of(uint64_t number, size_t i)
{
	return (int32_t)(number + i) % 10 + 1;
}

static uint32_t count_of(uint64_t number)
{
	return (uint32_t)(number * 5 % (BATCH + 1));
}

/* Step [number] into [block]. */
static void fill_block(const struct ring_block *block, uint64_t number)
{
	block->order->count = count_of(number);
	block->order->seed = number;
	for (size_t i = 0; i < block->order->count; i++) {
		block->orders[i] = order_of(number, i);
		block->indices[i] = index_of(number, i);
		block->labels[i] = label_of(number, i);
	}
}

/* What the device has is step [number], and zeros where no samples are. */
static void check_block(const struct ring_block *block, uint64_t number)
{
	ck_assert_uint_eq(block->order->seed, number);
	ck_assert_uint_eq(block->order->count, count_of(number));
	for (size_t i = 0; i < BATCH; i++) {
		bool inside = i < count_of(number);

		ck_assert_uint_eq(block->orders[i], inside ? order_of(number, i) : 0);
		ck_assert_uint_eq(block->indices[i], inside ? index_of(number, i) : 0);
		ck_assert_int_eq(block->labels[i], inside ? label_of(number, i) : 0);
	}
}

/* --- The device's side --------------------------------------------------------------------- */

/* As kernel_advance() and kernel_tell() do it; each step is looked at when it is done. */
static struct {
	struct ring *ring;
	uint64_t number;  /* of the steps that were done */
	uint64_t updates; /* optimizer steps */
	uint64_t random;
	bool skips; /* some steps */
} card;

static void check_pace(const struct kernel_order *order, uint64_t step)
{
	struct optim_numbers want = optim_numbers_of(&adamw, step, order->rate);
	const struct kernel_pace *pace = &order->paces[step - order->first];

	ck_assert_uint_ge(step, order->first);
	ck_assert_uint_lt(step - order->first, KERNEL_AHEAD);
	ck_assert(pace->rate == want.rate && pace->root == want.root &&
		  pace->shrink == want.shrink);
}

static void do_step(void *data)
{
	struct ring_block block = ring_device(card.ring);
	bool skipped = card.skips && unit_random(&card.random, 3) == 0;
	struct kernel_result *result = &ring_results(card.ring)[block.order->slot];

	(void)data;
	check_block(&block, ++card.number);
	if (block.order->anew)
		card.updates = block.order->step - 1;
	check_pace(block.order, card.updates + 1);
	card.updates += !skipped;
	result->word[0] = (float)card.number;
	result->skipped = skipped;
	result->updates = card.updates;
	result->sequence = block.order->sequence;
}

static void card_begin(struct ring *ring, bool skips)
{
	memset(&card, 0, sizeof(card));
	card.ring = ring;
	card.skips = skips;
	card.random = 88172645463325252;
}

/* Send step [number]; [anew]: it has this number, if that is not 0. Returns what ring_take() did. */
static int send_step(struct ring *ring, uint64_t number, uint64_t anew)
{
	struct ring_block block;
	int status = ring_take(ring, &block, &problem);

	if (status != 1)
		return status;
	fill_block(&block, number);
	block.order->anew = anew > 0;
	block.order->step = anew;
	block.order->rate = 0.1 / (double)number;
	ck_assert_int_eq(ring_send(ring, &problem), 0);
	fake_enqueue(DEVICE_COMPUTE, do_step, NULL);
	return 1;
}

/* --- Tests --------------------------------------------------------------------------------- */

/* As far ahead as the ring is deep, and no step further; what was taken and not sent is the same. */
START_TEST(test_depth)
{
	struct ring *ring = open_ring(&adamw);
	struct kernel_result results[RING_DEPTH + 1];
	struct ring_block block, again;
	uint64_t number = 0;

	card_begin(ring, false);
	while (send_step(ring, number + 1, number == 0) == 1)
		number++;
	ck_assert_uint_eq(number, RING_DEPTH);
	ck_assert_uint_eq(ring_pending(ring), RING_DEPTH);
	ck_assert_uint_eq(ring_collect(ring, results, RING_DEPTH), 0);
	fake_run(DEVICE_COMPUTE);
	ck_assert_int_eq(ring_take(ring, &block, &problem), 0);
	ck_assert_uint_eq(ring_collect(ring, results, 3), 3);
	ck_assert_int_eq(ring_take(ring, &block, &problem), 1);
	ck_assert_int_eq(ring_take(ring, &again, &problem), 1);
	ck_assert_ptr_eq(block.order, again.order);
	ck_assert_uint_eq(block.order->sequence, 0);
	ck_assert_uint_eq(ring_collect(ring, results, RING_DEPTH + 1), RING_DEPTH - 3);
	ck_assert_uint_eq(results[0].sequence, 4);
	ck_assert_uint_eq(ring_pending(ring), 0);
	ring_close(ring);
	ck_assert_int_eq(fake.allocations, 0);
}
END_TEST

static void collect(struct ring *ring, uint64_t *heard, uint64_t *updates)
{
	struct kernel_result results[3];
	size_t count = ring_collect(ring, results, 3);

	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(results[i].sequence, ++*heard);
		ck_assert(results[i].word[0] == (float)*heard);
		*updates = results[i].updates;
	}
}

/*
 * Steps that are skipped now and then, orders anew while others are under way, a device that is behind
 * by as much as it may be: each step finds its pace (do_step()), and none is told twice.
 */
START_TEST(test_paces)
{
	struct ring *ring = open_ring(&adamw);
	uint64_t number = 0, heard = 0, updates = 0, random = 1234567 + (uint64_t)_i;

	card_begin(ring, _i % 2);
	while (number < 1000) {
		uint64_t anew = number == 0 || unit_random(&random, 60) == 0
					? 1 + unit_random(&random, 5000)
					: 0;

		number += (uint64_t)send_step(ring, number + 1, anew);
		if (unit_random(&random, 2) == 0)
			fake_run_one(DEVICE_COMPUTE);
		if (unit_random(&random, 8) == 0)
			collect(ring, &heard, &updates);
		if (unit_random(&random, 200) == 0)
			fake_run(DEVICE_COMPUTE);
	}
	fake_run(DEVICE_COMPUTE);
	while (ring_pending(ring) > 0)
		collect(ring, &heard, &updates);
	ck_assert_uint_eq(heard, 1000);
	ck_assert_uint_eq(updates, card.updates);
	ring_close(ring);
}
END_TEST

/* Without results, only the copies say when a slot is free. */
START_TEST(test_without_results)
{
	struct ring *ring = open_ring(NULL);
	struct kernel_result result;
	struct ring_block block;

	ck_assert_ptr_null(ring_results(ring));
	for (uint64_t number = 1; number <= 3 * RING_DEPTH; number++) {
		int status = ring_take(ring, &block, &problem);

		ck_assert_int_eq(status, number <= RING_DEPTH);
		/* Asking lets the device do one copy. */
		ck_assert_int_eq(ring_take(ring, &block, &problem), 1);
		fill_block(&block, number);
		ck_assert_int_eq(ring_send(ring, &problem), 0);
		if (number > RING_DEPTH) {
			block = ring_device(ring);
			check_block(&block, number - RING_DEPTH);
		}
	}
	ck_assert_uint_eq(ring_pending(ring), 0);
	ck_assert_uint_eq(ring_collect(ring, &result, 1), 0);
	ring_close(ring);
}
END_TEST

/* A copy that could not be enqueued: the slot is still taken. */
START_TEST(test_broken)
{
	struct ring *ring = open_ring(&adamw);
	struct ring_block block;

	ck_assert_int_eq(ring_take(ring, &block, &problem), 1);
	block.order->anew = 1;
	block.order->step = 1;
	fake.broken = true;
	ck_assert_int_eq(ring_send(ring, &problem), DDP_ERR_ENGINE);
	ck_assert_uint_eq(ring_pending(ring), 0);
	ring_close(ring);
}
END_TEST

START_TEST(test_no_memory)
{
	struct ring *ring = (struct ring *)&problem;

	fake.allowed = _i;
	ck_assert_int_eq(ring_open(&ring, &fake, BATCH, &adamw, MARK, &problem), DDP_ERR_MEMORY);
	ck_assert_ptr_null(ring);
	ck_assert_int_eq(fake.allocations, 0);
	ring_close(ring);
}
END_TEST

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, fake_reset, NULL);
	tcase_add_test(tcase, test_depth);
	tcase_add_loop_test(tcase, test_paces, 0, 6);
	tcase_add_test(tcase, test_without_results);
	tcase_add_test(tcase, test_broken);
	tcase_add_loop_test(tcase, test_no_memory, 0, 3);
}

int main(void)
{
	return unit_run("ring", fill);
}
