/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number-host.h - 16-bit floating-point numbers for C and C++, since some compilers lack these
 * types
 *
 * Conversions round to nearest, ties to even. They support subnormal numbers, infinities and NaN.
 */
#ifndef NUMBER_HOST_H
#define NUMBER_HOST_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t number_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float number_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float number_from_bf16(uint16_t bits)
{
	return number_of_bits((uint32_t)bits << 16);
}

static inline uint16_t number_to_bf16(float value)
{
	uint32_t bits = number_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float number_from_f16(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
	float small = (float)rest * 0x1p-24f;

	if (rest < 0x400u)
		return bits & 0x8000u ? -small : small;
	if (rest >= 0x7c00u)
		return number_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
	return number_of_bits(sign | ((rest << 13) + 0x38000000u));
}

static inline uint16_t number_to_f16(float value)
{
	uint32_t bits = number_bits(value), rest = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;

	if (rest > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u);
	if (rest >= 0x47800000u)
		return (uint16_t)(sign | 0x7c00u);
	/* adding 0.5 rounds to a multiple of 2^-24, the smallest subnormal number */
	if (rest < 0x38800000u)
		return (uint16_t)(sign | (number_bits(number_of_bits(rest) + 0.5f) - 0x3f000000u));
	return (uint16_t)(sign | (rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13);
}

#endif /* NUMBER_HOST_H */
