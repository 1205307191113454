/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.cu - the end of a step: norm of the gradient, loss scale, optimizer
 *
 * The results have the same bits as those of optim/loop-vector.c and gradient/statistics.c. If
 * these files round each operation separately, this file uses __fmul_rn() and similar functions. If
 * these files use fused() of base/vector.h, this file uses fmaf().
 *
 * A thread processes four elements (16 bytes). All arrays are aligned to 16 bytes.
 */
#include "cuda-kernels.h"

extern "C" {
#include "optim/loop.h"
}

#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"

enum { FOUR = 4 };

static __device__ inline bool is_finite(float value)
{
	return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

/* Returns the factor that undoes the loss scale. */
static __device__ inline float inverse_of(float scale)
{
	return (float)(1 / (double)scale);
}

/* --- Norm of the gradient ----------------------------------------------------------------------- */

enum { NORM_BLOCKS = 256, NORM_SHARE = 16 };

/* Returns the number of blocks. It depends only on [count], and so does the order of the sum. */
static size_t norm_blocks(size_t count)
{
	size_t blocks = launch_blocks((count + NORM_SHARE - 1) / NORM_SHARE);

	return blocks < NORM_BLOCKS ? blocks : (size_t)NORM_BLOCKS;
}

/* Sums the squares of the gradients, and counts the threads that found an infinite value or NaN. */
static __global__ void norm_parts(const float *gradients, size_t count,
				  const struct kernel_state *state, struct partial_pair *parts,
				  unsigned *ticket, struct kernel_norm2 *norm2)
{
	size_t stride = (size_t)gridDim.x * blockDim.x * FOUR;
	float inverse = inverse_of(state->scale);
	struct partial_pair part = {0, 0};
	bool found_not_finite = false;

	UNROLL_4
	for (size_t i = thread_index() * FOUR; i < count; i += stride)
		pack_each<FOUR>(i, count, [&](auto n, size_t at) {
			pack<float, n.value> loaded = pack_load<n.value>(gradients + at);

			UNROLL
			for (int v = 0; v < n.value; v++) {
				double value = (double)__fmul_rn(loaded[v], inverse);

				part.first += value * value;
				found_not_finite |= !is_finite(loaded[v]);
			}
		});
	part.second = found_not_finite;
	if (partial_pair_sum(&part, parts, ticket) && threadIdx.x == 0) {
		norm2->norm = sqrt(part.first);
		norm2->overflow = part.second > 0;
	}
}

size_t kernel_norm2_bytes(size_t count)
{
	return norm_blocks(count) * sizeof(struct partial_pair);
}

void kernel_norm2(void *stream, const float *gradients, size_t count,
		  const struct kernel_state *state, const struct kernel_scratch *scratch,
		  struct kernel_norm2 *norm2)
{
	struct partial_pair *parts = (struct partial_pair *)scratch->memory;

	LAUNCH_BLOCKS(norm_parts, norm_blocks(count), LAUNCH_THREADS, stream, gradients, count,
		      state, parts, scratch->tickets, norm2);
}

/* --- The end of a step --------------------------------------------------------------------------- */

static __device__ void scaler_update(struct kernel_state *state, bool overflow)
{
	float grown;

	if (overflow) {
		state->scale = (float)((double)state->scale * state->backoff);
		state->good_steps = 0;
		return;
	}
	if (++state->good_steps != state->interval)
		return;
	grown = (float)((double)state->scale * state->growth);
	if (is_finite(grown))
		state->scale = grown;
	state->good_steps = 0;
}

static __device__ inline bool overflowed(const struct kernel_end &end)
{
	return end.norm2 && end.step->state.interval > 0 && end.norm2->overflow;
}

/*
 * Writes the result to host memory. Only a system-wide fence orders these stores. They are
 * volatile, so that each is done exactly once. The host reads [sequence] with acquire semantics. If
 * it has the expected value, the other members are complete.
 */
static __device__ void report_step(const struct kernel_end &end, bool overflow)
{
	const struct kernel_state &next = end.step->next;
	uint64_t sequence = end.step->order.sequence;
	volatile struct kernel_result *result = &end.results[sequence % KERNEL_SLOTS];

	for (int i = 0; i < KERNEL_WORD; i++)
		result->word[i] = end.word[i];
	result->skipped = overflow;
	result->scale = next.scale;
	result->good_steps = next.good_steps;
	result->updates = next.updates;
	__threadfence_system();
	result->sequence = sequence;
}

/*
 * Ends the step. Runs in one thread. Must not change step->state, which other threads still read.
 */
static __device__ void finish(const struct kernel_end &end, bool overflow)
{
	struct kernel_state &next = end.step->next;

	if (end.norm2 && next.interval > 0)
		scaler_update(&next, overflow);
	next.updates += !overflow;
	report_step(end, overflow);
}

/* --- Update rules -------------------------------------------------------------------------------- */

struct element {
	float value, gradient, slot[2];
};

static __device__ inline void add_decay(const struct optim_numbers &numbers, struct element &at)
{
	if (numbers.decay != 0)
		at.gradient = fmaf(at.value, numbers.decay, at.gradient);
}

/* Updates slot number [slot], a running mean of the squares of [factor]. */
static __device__ inline void mean(const struct optim_numbers &numbers, int slot,
				   struct element &at, float factor)
{
	at.slot[slot] = fmaf(__fmul_rn(numbers.new_factor[slot], factor), factor,
			     __fmul_rn(at.slot[slot], numbers.old_factor[slot]));
}

struct rule_sgd {
	enum { SLOTS = 0 };

	static __device__ inline void apply(const struct optim_numbers &numbers, struct element &at)
	{
		add_decay(numbers, at);
		at.value = fmaf(at.gradient, numbers.rate, at.value);
	}
};

struct rule_momentum {
	enum { SLOTS = 1 };

	static __device__ inline void apply(const struct optim_numbers &numbers, struct element &at)
	{
		float direction;

		add_decay(numbers, at);
		direction = at.slot[0] =
			__fadd_rn(__fmul_rn(at.slot[0], numbers.momentum), at.gradient);
		if (numbers.nesterov)
			direction = fmaf(direction, numbers.momentum, at.gradient);
		at.value = fmaf(direction, numbers.rate, at.value);
	}
};

struct rule_adamw {
	enum { SLOTS = 2 };

	static __device__ inline void apply(const struct optim_numbers &numbers, struct element &at)
	{
		float divisor, change;

		at.slot[0] = fmaf(at.gradient, numbers.new_factor[0],
				  __fmul_rn(at.slot[0], numbers.old_factor[0]));
		mean(numbers, 1, at, at.gradient);
		divisor =
			__fadd_rn(__fdiv_rn(__fsqrt_rn(at.slot[1]), numbers.root), numbers.epsilon);
		change = __fdiv_rn(__fmul_rn(numbers.rate, at.slot[0]), divisor);
		at.value = __fadd_rn(__fmul_rn(at.value, numbers.shrink), change);
	}
};

struct rule_adadelta {
	enum { SLOTS = 2 };

	static __device__ inline void apply(const struct optim_numbers &numbers, struct element &at)
	{
		float above, below, delta;

		add_decay(numbers, at);
		mean(numbers, 0, at, at.gradient);
		above = __fsqrt_rn(__fadd_rn(at.slot[1], numbers.epsilon));
		below = __fsqrt_rn(__fadd_rn(at.slot[0], numbers.epsilon));
		delta = __fmul_rn(__fdiv_rn(above, below), at.gradient);
		mean(numbers, 1, at, delta);
		at.value = fmaf(delta, numbers.rate, at.value);
	}
};

/* --- Step ---------------------------------------------------------------------------------------- */

struct step {
	struct optim_numbers numbers; /* all members but those of struct kernel_pace are set */
	struct kernel_end end;
	float *values;
	const float *gradients;
	float *slots[2];
	size_t count;
};

/*
 * Returns the factor of PyTorch's clip_grad_norm_, at most 1. If the norm is NaN, the factor is
 * NaN, so that the error stays visible.
 */
static __device__ inline float clip_factor(const struct step &step)
{
	double factor = step.end.clip > 0 ? step.end.clip / (step.end.norm2->norm + 1e-6) : 1;

	return factor > 1 ? 1.0f : (float)factor;
}

template <class RULE, typename T> static __global__ void optimize(struct step step, T *narrow)
{
	const struct kernel_step &now = *step.end.step;
	const struct kernel_pace &pace = now.order.paces[now.state.updates - now.order.updates];
	struct optim_numbers numbers = step.numbers;
	bool overflow = overflowed(step.end);

	if (thread_index() == 0)
		finish(step.end, overflow);
	if (overflow)
		return;
	pack_each<FOUR>(thread_index() * FOUR, step.count, [&](auto n, size_t at) {
		constexpr int V = n.value;
		pack<float, V> value = pack_load<V>(step.values + at), slot[2] = {};
		pack<float, V> gradient = pack_load<V>(step.gradients + at);
		float inverse, factor;

		UNROLL
		for (int s = 0; s < RULE::SLOTS; s++)
			slot[s] = pack_load<V>(step.slots[s] + at);
		/* These values are computed here, while the loads above are in progress. */
		inverse = inverse_of(now.state.scale);
		factor = clip_factor(step);
		numbers.rate = pace.rate;
		numbers.root = pace.root;
		numbers.shrink = pace.shrink;
		UNROLL
		for (int v = 0; v < V; v++) {
			struct element element = {value[v],
						  __fmul_rn(__fmul_rn(gradient[v], inverse),
							    factor),
						  {slot[0][v], slot[1][v]}};

			RULE::apply(numbers, element);
			value.numbers[v] = element.value;
			slot[0].numbers[v] = element.slot[0];
			slot[1].numbers[v] = element.slot[1];
		}
		pack_store(step.values + at, value);
		UNROLL
		for (int s = 0; s < RULE::SLOTS; s++)
			pack_store(step.slots[s] + at, slot[s]);
		if (narrow)
			pack_store(narrow + at, pack_of<T, V>([&](int v) { return value[v]; }));
	});
}

template <class RULE>
static void launch(void *stream, const struct step &step, void *narrow, enum ddp_type type)
{
	WITH_TYPE(type, T,
		  LAUNCH_EACH((optimize<RULE, T>), (step.count + FOUR - 1) / FOUR, stream, step,
			      (T *)narrow))
}

void kernel_optimize(void *stream, const struct optim *optim, const struct kernel_end *end,
		     float *values, const float *gradients, float *const slots[2], void *narrow,
		     size_t count, enum ddp_type type)
{
	struct step step = {optim_numbers_of(optim, 1, 0), *end, values, gradients,
			    {slots[0], slots[1]},	   count};

	if (optim->kind == OPTIM_ADAMW)
		launch<rule_adamw>(stream, step, narrow, type);
	else if (optim->kind == OPTIM_ADADELTA)
		launch<rule_adadelta>(stream, step, narrow, type);
	else if (optim->momentum != 0)
		launch<rule_momentum>(stream, step, narrow, type);
	else
		launch<rule_sgd>(stream, step, narrow, type);
}
