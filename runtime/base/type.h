/* SPDX-License-Identifier: Apache-2.0 */
/* type.h - names of element types and operations, and rounding to bf16 */
#ifndef DDP_BASE_TYPE_H
#define DDP_BASE_TYPE_H

#include <ddp.h>
#include <string.h>

/*
 * Returns a name such as "F32", as in safetensors; "?" for an unknown number, which another process
 * may have sent.
 */
const char *ddp_type_name(uint32_t type);

/* Returns "sum", "max" or "min"; "?" for an unknown number. */
const char *ddp_op_name(uint32_t op);

/* Returns the nearest bf16 number; ties go to even, and NaN stays NaN. */
static inline uint16_t ddp_to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u
						  : bits + 0x7fffu + (bits >> 16 & 1u);
	return (uint16_t)(bits >> 16);
}

#endif /* DDP_BASE_TYPE_H */
