/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop-vector.h - the loops, written once for vectors of any width
 *
 * Included by one file for each instruction set, which defines before:
 *
 *	LANES			elements of a vector
 *	TARGET			the function attribute that lets the compiler use the instructions
 *	LOOPS			the name of the table to define, and NAME, the one it tells
 *	vector			the type
 *	multiply_add(a, b, c)	a * b + c, rounded once
 *	root(a)			the square root
 *
 * Compiled with -ffp-contract=off: operators round by themselves.
 */
#include <string.h>

#include "loop.h"

typedef float loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline)) TARGET

/* Of a vector of elements: value, gradient, the two slots. */
struct lanes {
	vector value, gradient, slot[2];
};

typedef void update(const struct optim_numbers *numbers, struct lanes *lanes);

INLINE void add_decay(const struct optim_numbers *numbers, struct lanes *at)
{
	if (numbers->decay != 0)
		at->gradient = multiply_add(at->value, every(numbers->decay), at->gradient);
}

/* A running mean of [factor] times [other], in the order of Tensor.addcmul_. */
INLINE vector mean(const struct optim_numbers *numbers, int slot, vector old, vector factor,
		   vector other)
{
	return multiply_add(every(numbers->take[slot]) * factor, other,
			    old * every(numbers->keep[slot]));
}

INLINE void sgd_element(const struct optim_numbers *numbers, struct lanes *at)
{
	add_decay(numbers, at);
	at->value = multiply_add(at->gradient, every(numbers->rate), at->value);
}

INLINE void momentum_element(const struct optim_numbers *numbers, struct lanes *at)
{
	vector direction;

	add_decay(numbers, at);
	direction = at->slot[0] = at->slot[0] * every(numbers->momentum) + at->gradient;
	if (numbers->nesterov)
		direction = multiply_add(direction, every(numbers->momentum), at->gradient);
	at->value = multiply_add(direction, every(numbers->rate), at->value);
}

INLINE void adamw_element(const struct optim_numbers *numbers, struct lanes *at)
{
	vector divisor;

	at->slot[0] = multiply_add(at->gradient, every(numbers->take[0]),
				   at->slot[0] * every(numbers->keep[0]));
	at->slot[1] = mean(numbers, 1, at->slot[1], at->gradient, at->gradient);
	divisor = root(at->slot[1]) / every(numbers->root) + every(numbers->epsilon);
	at->value =
		at->value * every(numbers->shrink) + every(numbers->rate) * at->slot[0] / divisor;
}

INLINE void adadelta_element(const struct optim_numbers *numbers, struct lanes *at)
{
	vector epsilon = every(numbers->epsilon), delta;

	add_decay(numbers, at);
	at->slot[0] = mean(numbers, 0, at->slot[0], at->gradient, at->gradient);
	delta = root(at->slot[1] + epsilon) / root(at->slot[0] + epsilon) * at->gradient;
	at->slot[1] = mean(numbers, 1, at->slot[1], delta, delta);
	at->value = multiply_add(delta, every(numbers->rate), at->value);
}

/* --- Over arrays ------------------------------------------------------------------------- */

INLINE void run(update *element, int slots, const struct optim_numbers *numbers,
		float *restrict values, const float *restrict gradients, float *restrict first,
		float *restrict second, size_t count)
{
	struct lanes at = {0};
	size_t i;

	for (i = 0; i + LANES <= count; i += LANES) {
		at.value = *(const loose *)(values + i);
		at.gradient = *(const loose *)(gradients + i);
		if (slots > 0)
			at.slot[0] = *(const loose *)(first + i);
		if (slots > 1)
			at.slot[1] = *(const loose *)(second + i);
		element(numbers, &at);
		*(loose *)(values + i) = at.value;
		if (slots > 0)
			*(loose *)(first + i) = at.slot[0];
		if (slots > 1)
			*(loose *)(second + i) = at.slot[1];
	}
	if (i < count) {
		size_t rest = (count - i) * sizeof(float);

		at = (struct lanes){0};
		memcpy(&at.value, values + i, rest);
		memcpy(&at.gradient, gradients + i, rest);
		if (slots > 0)
			memcpy(&at.slot[0], first + i, rest);
		if (slots > 1)
			memcpy(&at.slot[1], second + i, rest);
		element(numbers, &at);
		memcpy(values + i, &at.value, rest);
		if (slots > 0)
			memcpy(first + i, &at.slot[0], rest);
		if (slots > 1)
			memcpy(second + i, &at.slot[1], rest);
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

const struct optim_loops LOOPS = {NAME, sgd_loop, momentum_loop, adamw_loop, adadelta_loop};
