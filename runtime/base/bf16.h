/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16.h - the upper half of an f32
 */
#ifndef DDP_BASE_BF16_H
#define DDP_BASE_BF16_H

#include <stdint.h>
#include <string.h>

/* The nearest bf16, ties to even; what is no number stays none. */
static inline uint16_t ddp_to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u
						  : bits + 0x7fffu + (bits >> 16 & 1u);
	return (uint16_t)(bits >> 16);
}

#endif /* DDP_BASE_BF16_H */
