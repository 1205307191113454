/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - choose the kernels for an instruction set, and convert between element types */
#include "config.h"

#include <string.h>

#include "kernel.h"

/* Elements per block. Conversions have an intermediate buffer of so many f32 numbers. */
enum { BLOCK = 256 };

static const struct ddp_kernel_table *const tables[DDP_SIMD_COUNT] = {
	&ddp_kernels_plain, &ddp_kernels_avx2, &ddp_kernels_avx512};

ddp_kernel *ddp_kernel_get(enum ddp_type type, enum ddp_op op, enum ddp_simd simd)
{
	return tables[simd]->kernels[type][op];
}

const struct ddp_kernel_table *ddp_kernel_table(enum ddp_simd simd)
{
	return tables[simd];
}

/*
 * Round to f32 in such a way that a second rounding, to 16 bits, gives the same number as rounding
 * [value] once. If f32 cannot represent [value], round toward zero and set the last bit.
 */
static float round_to_odd(double value)
{
	float near = (float)value;
	uint32_t bits;

	if ((double)near == value || value != value)
		return near;
	memcpy(&bits, &near, sizeof(bits));
	if (__builtin_fabs((double)near) > __builtin_fabs(value))
		bits--;
	bits |= 1;
	memcpy(&near, &bits, sizeof(near));
	return near;
}

static void widen(float *to, const void *from, enum ddp_type type, size_t count, bool odd,
		  const struct ddp_kernel_table *table)
{
	if (type == DDP_BF16)
		table->bf16_widen(to, from, count);
	else if (type == DDP_F16)
		table->f16_widen(to, from, count);
	else if (type == DDP_F32)
		memcpy(to, from, count * sizeof(float));
	else
		for (size_t i = 0; i < count; i++) {
			double value = ((const double *)from)[i];

			to[i] = odd ? round_to_odd(value) : (float)value;
		}
}

static void narrow(void *to, enum ddp_type type, const float *from, size_t count,
		   const struct ddp_kernel_table *table)
{
	if (type == DDP_BF16)
		table->bf16_narrow(to, from, count);
	else if (type == DDP_F16)
		table->f16_narrow(to, from, count);
	else if (type == DDP_F32)
		memcpy(to, from, count * sizeof(float));
	else
		for (size_t i = 0; i < count; i++)
			((double *)to)[i] = (double)from[i];
}

void ddp_convert(void *to, enum ddp_type to_type, const void *from, enum ddp_type from_type,
		 size_t count, enum ddp_simd simd)
{
	const struct ddp_kernel_table *table = tables[simd];
	size_t to_size = ddp_type_size(to_type), from_size = ddp_type_size(from_type);
	float block[BLOCK];

	if (to_type == from_type) {
		memmove(to, from, count * to_size);
		return;
	}
	for (size_t i = 0; i < count; i += BLOCK) {
		size_t length = count - i < BLOCK ? count - i : BLOCK;

		widen(block, (const char *)from + i * from_size, from_type, length,
		      to_type != DDP_F32, table);
		narrow((char *)to + i * to_size, to_type, block, length, table);
	}
}
