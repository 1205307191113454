/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.cu - the end of a step: the size of the gradient, the loss scale, the new values
 *
 * Bits are those of optim/loop-vector.c and gradient/statistics.c: what is rounded twice there is so
 * here, by __fmul_rn() and its like, and fmaf() is fused() of base/vector.h.
 *
 * Elements are taken by fours: 16 bytes are what a thread moves best. All arrays are aligned to that.
 */
#include "kernels.h"

extern "C" {
#include "optim/loop.h"
}

#include "gpu/launch.cuh"
#include "gpu/number.cuh"

enum { FOUR = 4 };

template <typename T> struct alignas(FOUR * sizeof(T)) four {
	T at[FOUR];
};

/* The first [there] of four; the others are zero. */
template <typename T> static __device__ inline four<float> take(const T *from, size_t there)
{
	four<float> taken = {{0, 0, 0, 0}};

	if (there == FOUR) {
		const four<T> numbers = *(const four<T> *)from;

		for (int i = 0; i < FOUR; i++)
			taken.at[i] = load(&numbers.at[i]);
		return taken;
	}
	for (size_t i = 0; i < there; i++)
		taken.at[i] = load(from + i);
	return taken;
}

template <typename T>
static __device__ inline void put(T *to, const four<float> &from, size_t there)
{
	four<T> numbers;

	if (there == FOUR) {
		for (int i = 0; i < FOUR; i++)
			store(&numbers.at[i], from.at[i]);
		*(four<T> *)to = numbers;
		return;
	}
	for (size_t i = 0; i < there; i++)
		store(to + i, from.at[i]);
}

static __device__ inline size_t there_are(size_t count, size_t first)
{
	size_t left = count - first;

	return left < FOUR ? left : (size_t)FOUR;
}

static __device__ inline bool is_finite(float value)
{
	return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

/* What gradients are multiplied by, to be those of the loss. */
static __device__ inline float inverse_of(float scale)
{
	return (float)(1 / (double)scale);
}

/* Four of the gradients, from [first] on. A unit has whole fours. */
template <typename T>
static __device__ inline four<float> take_gradients(const struct kernel_gradients &gradients,
						    size_t first, size_t there)
{
	const size_t unit = first / KERNEL_UNIT;

	if (gradients.marks && gradients.marks[unit / 32] >> unit % 32 & 1)
		return take((const T *)gradients.narrow + first, there);
	return take(gradients.wide + first, there);
}

/* --- The size of the gradient ------------------------------------------------------------------- */

/* The last block has a thread for each block. */
enum { NORM_THREADS = 256, NORM_BLOCKS = NORM_THREADS, NORM_SHARE = 16 };

struct norm_part {
	double squares;
	unsigned odd; /* whether something is not finite */

	__device__ void operator+=(const norm_part &other)
	{
		squares += other.squares;
		odd |= other.odd;
	}
};

/* Depends on the count alone, and so does the order of the sum. */
static size_t norm_blocks(size_t count)
{
	size_t blocks = (count + NORM_THREADS * NORM_SHARE - 1) / (NORM_THREADS * NORM_SHARE);

	if (blocks > NORM_BLOCKS)
		return NORM_BLOCKS;
	return blocks > 0 ? blocks : 1;
}

template <typename T>
static __global__ void norm_parts(struct kernel_gradients gradients, size_t count,
				  const struct kernel_state *state, struct norm_part *parts,
				  unsigned *ticket, struct kernel_norm2 *norm2)
{
	GRID_WAIT();
	size_t stride = (size_t)gridDim.x * blockDim.x * FOUR;
	float inverse = inverse_of(state->scale);
	struct norm_part part = {0, 0};

#ifdef __CUDACC__
#pragma unroll 4
#endif
	for (size_t i = thread_index() * FOUR; i < count; i += stride) {
		four<float> taken = take_gradients<T>(gradients, i, there_are(count, i));

		for (int j = 0; j < FOUR; j++) {
			double value = (double)__fmul_rn(taken.at[j], inverse);

			part.squares += value * value;
			part.odd |= !is_finite(taken.at[j]);
		}
	}
	part = block_sum<NORM_THREADS>(part);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = part;
	if (!last_block(ticket, gridDim.x))
		return;
	part = {0, 0};
	if (threadIdx.x < gridDim.x) {
		part.squares = load_fresh(&parts[threadIdx.x].squares);
		part.odd = load_fresh(&parts[threadIdx.x].odd);
	}
	part = block_sum<NORM_THREADS>(part);
	if (threadIdx.x == 0) {
		norm2->norm = sqrt(part.squares);
		norm2->overflow = part.odd;
	}
}

size_t kernel_norm2_bytes(size_t count)
{
	return norm_blocks(count) * sizeof(struct norm_part);
}

void kernel_norm2(void *stream, const struct kernel_gradients *gradients, size_t count,
		  const struct kernel_state *state, const struct kernel_scratch *scratch,
		  struct kernel_norm2 *norm2, enum ddp_type type)
{
	struct norm_part *parts = (struct norm_part *)scratch->memory;
	size_t blocks = norm_blocks(count);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((norm_parts<T>), blocks, NORM_THREADS, stream, *gradients, count,
				state, parts, scratch->tickets, norm2))
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
 * Stores to host memory arrive in any order unless a fence for the whole system stands between them; they are
 * volatile so that each is one store, made once, where it stands. The host reads the sequence first (acquire),
 * and when it is the one it waits for, the rest is there.
 */
static __device__ void tell(const struct kernel_end &end, bool overflow)
{
	const struct kernel_next &next = end.step->next;
	volatile struct kernel_result *result = &end.results[next.sequence % KERNEL_SLOTS];

	for (int i = 0; i < KERNEL_WORD; i++)
		result->word[i] = end.word[i];
	result->skipped = overflow;
	result->scale = next.state.scale;
	result->good_steps = next.state.good_steps;
	result->updates = next.state.updates;
	__threadfence_system();
	result->sequence = next.sequence;
}

/* By one thread. What is under way stays as it is, since the other threads read it. */
static __device__ void finish(const struct kernel_end &end, bool overflow)
{
	struct kernel_next &next = end.step->next;

	if (end.norm2 && next.state.interval > 0)
		scaler_update(&next.state, overflow);
	next.state.updates += !overflow;
	tell(end, overflow);
	next.sequence++;
	next.indices += next.entry.count;
	next.places += next.entry.count;
	next.entry = *next.rest++;
}

/* --- The rules ----------------------------------------------------------------------------------- */

struct element {
	float value, gradient, slot[2];
};

static __device__ inline void add_decay(const struct optim_numbers &numbers, struct element &at)
{
	if (numbers.decay != 0)
		at.gradient = fmaf(at.value, numbers.decay, at.gradient);
}

static __device__ inline float mean(const struct optim_numbers &numbers, int slot, float old,
				    float factor, float other)
{
	return fmaf(__fmul_rn(numbers.take[slot], factor), other,
		    __fmul_rn(old, numbers.keep[slot]));
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

		at.slot[0] =
			fmaf(at.gradient, numbers.take[0], __fmul_rn(at.slot[0], numbers.keep[0]));
		at.slot[1] = mean(numbers, 1, at.slot[1], at.gradient, at.gradient);
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
		at.slot[0] = mean(numbers, 0, at.slot[0], at.gradient, at.gradient);
		above = __fsqrt_rn(__fadd_rn(at.slot[1], numbers.epsilon));
		below = __fsqrt_rn(__fadd_rn(at.slot[0], numbers.epsilon));
		delta = __fmul_rn(__fdiv_rn(above, below), at.gradient);
		at.slot[1] = mean(numbers, 1, at.slot[1], delta, delta);
		at.value = fmaf(delta, numbers.rate, at.value);
	}
};

/* --- The step ------------------------------------------------------------------------------------ */

/* What a step works on: arguments of its kernel. */
struct step {
	struct optim_numbers numbers; /* without the pace */
	struct kernel_end end;
	float *values;
	struct kernel_gradients gradients;
	float *slots[2];
	size_t count;
};

static __device__ inline void set_pace(struct optim_numbers *numbers,
				       const struct kernel_order &order)
{
	numbers->rate = order.pace.rate;
	numbers->root = order.pace.root;
	numbers->shrink = order.pace.shrink;
}

/* As clip_grad_norm_: at most 1; nan where the norm is nan, so that it is not taken for a good one. */
static __device__ inline float clip_factor(const struct step &step)
{
	double factor = step.end.clip > 0 ? step.end.clip / (step.end.norm2->norm + 1e-6) : 1;

	return factor > 1 ? 1.0f : (float)factor;
}

template <class RULE, typename T> static __global__ void optimize(struct step step, T *narrow)
{
	GRID_WAIT();
	size_t first = thread_index() * FOUR, there;
	four<float> value, gradient, slot[2] = {};
	struct optim_numbers numbers = step.numbers;
	bool overflow = overflowed(step.end);
	float inverse, factor;

	if (thread_index() == 0)
		finish(step.end, overflow);
	if (first >= step.count || overflow)
		return;
	there = there_are(step.count, first);
	value = take(step.values + first, there);
	gradient = take_gradients<T>(step.gradients, first, there);
	for (int s = 0; s < RULE::SLOTS; s++)
		slot[s] = take(step.slots[s] + first, there);
	inverse = inverse_of(step.end.step->state.scale);
	factor = clip_factor(step);
	set_pace(&numbers, step.end.step->order);
	for (int i = 0; i < FOUR; i++) {
		struct element at = {value.at[i],
				     __fmul_rn(gradient.at[i], inverse),
				     {slot[0].at[i], slot[1].at[i]}};

		at.gradient = __fmul_rn(at.gradient, factor);
		RULE::apply(numbers, at);
		value.at[i] = at.value;
		slot[0].at[i] = at.slot[0];
		slot[1].at[i] = at.slot[1];
	}
	put(step.values + first, value, there);
	for (int s = 0; s < RULE::SLOTS; s++)
		put(step.slots[s] + first, slot[s], there);
	if (narrow)
		put(narrow + first, value, there);
}

template <class RULE>
static void launch(void *stream, const struct step &step, void *narrow, enum ddp_type type)
{
	WITH_TYPE(type, T,
		  LAUNCH_EACH((optimize<RULE, T>), (step.count + FOUR - 1) / FOUR, stream, step,
			      (T *)narrow))
}

void kernel_optimize(void *stream, const struct optim *optim, const struct kernel_end *end,
		     float *values, const struct kernel_gradients *gradients, float *const slots[2],
		     void *narrow, size_t count, enum ddp_type type)
{
	struct step step = {optim_numbers_of(optim, 1, 0), *end, values, *gradients,
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
