/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop-vector.c - optimizer steps for one instruction set
 *
 * This file is compiled with -ffp-contract=off, so that the result of each operator is rounded.
 */
#include "config.h"

#include "base/vector.h"
#include "loop.h"

/* Values, gradients and optimizer slots of one vector of elements. */
struct lanes {
	v_f32 value, gradient, slot[2];
};

typedef void update(const struct optim_numbers *numbers, struct lanes *lanes);

INLINE void add_decay(const struct optim_numbers *numbers, struct lanes *at)
{
	if (numbers->decay != 0)
		at->gradient = fused(at->value, all(numbers->decay), at->gradient);
}

/* Returns the new running mean of [factor] x [other], computed in the order of Tensor.addcmul_. */
INLINE v_f32 mean(const struct optim_numbers *numbers, int slot, v_f32 old, v_f32 factor,
		  v_f32 other)
{
	return fused(all(numbers->new_factor[slot]) * factor, other,
		     old * all(numbers->old_factor[slot]));
}

INLINE void sgd_element(const struct optim_numbers *numbers, struct lanes *at)
{
	add_decay(numbers, at);
	at->value = fused(at->gradient, all(numbers->rate), at->value);
}

INLINE void momentum_element(const struct optim_numbers *numbers, struct lanes *at)
{
	v_f32 direction;

	add_decay(numbers, at);
	direction = at->slot[0] = at->slot[0] * all(numbers->momentum) + at->gradient;
	if (numbers->nesterov)
		direction = fused(direction, all(numbers->momentum), at->gradient);
	at->value = fused(direction, all(numbers->rate), at->value);
}

INLINE void adamw_element(const struct optim_numbers *numbers, struct lanes *at)
{
	v_f32 divisor;

	at->slot[0] = fused(at->gradient, all(numbers->new_factor[0]),
			    at->slot[0] * all(numbers->old_factor[0]));
	at->slot[1] = mean(numbers, 1, at->slot[1], at->gradient, at->gradient);
	divisor = root(at->slot[1]) / all(numbers->root) + all(numbers->epsilon);
	at->value = at->value * all(numbers->shrink) + all(numbers->rate) * at->slot[0] / divisor;
}

INLINE void adadelta_element(const struct optim_numbers *numbers, struct lanes *at)
{
	v_f32 epsilon = all(numbers->epsilon), delta;

	add_decay(numbers, at);
	at->slot[0] = mean(numbers, 0, at->slot[0], at->gradient, at->gradient);
	delta = root(at->slot[1] + epsilon) / root(at->slot[0] + epsilon) * at->gradient;
	at->slot[1] = mean(numbers, 1, at->slot[1], delta, delta);
	at->value = fused(delta, all(numbers->rate), at->value);
}

/* --- Loops over arrays ------------------------------------------------------------------- */

INLINE void run(update *element, int slots, const struct optim_numbers *numbers,
		float *restrict values, const float *restrict gradients, float *restrict first,
		float *restrict second, size_t count)
{
	struct lanes at = {0};
	size_t i;

	for (i = 0; i + LANES <= count; i += LANES) {
		at.value = load_f32(values + i);
		at.gradient = load_f32(gradients + i);
		if (slots > 0)
			at.slot[0] = load_f32(first + i);
		if (slots > 1)
			at.slot[1] = load_f32(second + i);
		element(numbers, &at);
		store_f32(values + i, at.value);
		if (slots > 0)
			store_f32(first + i, at.slot[0]);
		if (slots > 1)
			store_f32(second + i, at.slot[1]);
	}
	if (i < count) {
		size_t bytes_left = (count - i) * sizeof(float);

		at = (struct lanes){0};
		memcpy(&at.value, values + i, bytes_left);
		memcpy(&at.gradient, gradients + i, bytes_left);
		if (slots > 0)
			memcpy(&at.slot[0], first + i, bytes_left);
		if (slots > 1)
			memcpy(&at.slot[1], second + i, bytes_left);
		element(numbers, &at);
		memcpy(values + i, &at.value, bytes_left);
		if (slots > 0)
			memcpy(first + i, &at.slot[0], bytes_left);
		if (slots > 1)
			memcpy(second + i, &at.slot[1], bytes_left);
	}
}

#define LOOP(name, slots)                                                                          \
	TARGET static void name##_loop(const struct optim_numbers *numbers, float *values,         \
				       const float *gradients, float *const slot[2], size_t count) \
	{                                                                                          \
		run(name##_element, slots, numbers, values, gradients, slot[0], slot[1], count);   \
	}

LOOP(sgd, 0)
LOOP(momentum, 1)
LOOP(adamw, 2)
LOOP(adadelta, 2)

const struct optim_loops SIMD(optim) = {sgd_loop, momentum_loop, adamw_loop, adadelta_loop};
