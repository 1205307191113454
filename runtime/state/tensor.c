/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "header.h"

static const char *const names[DDP_TYPE_COUNT] = {
#define TYPE_NAME(name, bytes, text) [DDP_##name] = (text),
	DDP_TYPE_MAP(TYPE_NAME)
#undef TYPE_NAME
};

const char *ddp_tensor_type(enum ddp_type type)
{
	return (unsigned)type < DDP_TYPE_COUNT ? names[type] : "?";
}

void ddp_tensor_shape(const struct ddp_tensor *tensor, char text[DDP_TENSOR_SHAPE])
{
	size_t used = (size_t)snprintf(text, DDP_TENSOR_SHAPE, "[");

	for (int i = 0; i < tensor->dimensions && i < DDP_DIMENSIONS; i++)
		used += (size_t)snprintf(text + used, DDP_TENSOR_SHAPE - used, "%s%" PRId64,
					 i ? ", " : "", tensor->shape[i]);
	snprintf(text + used, DDP_TENSOR_SHAPE - used, "]");
}

/* As the format's own reader: each product on the way counts, also where a later 0 ends it. */
static bool count_elements(const struct ddp_tensor *tensor, uint64_t *count)
{
	*count = 1;
	if (tensor->dimensions < 0 || tensor->dimensions > DDP_DIMENSIONS)
		return false;
	for (int i = 0; i < tensor->dimensions; i++)
		if (tensor->shape[i] < 0 ||
		    __builtin_mul_overflow(*count, (uint64_t)tensor->shape[i], count))
			return false;
	return true;
}

bool ddp_tensor_bytes(const struct ddp_tensor *tensor, uint64_t *bytes)
{
	*bytes = 0;
	if ((unsigned)tensor->type >= DDP_TYPE_COUNT || !count_elements(tensor, bytes))
		return false;
	return !__builtin_mul_overflow(*bytes, ddp_type_size(tensor->type), bytes) &&
	       *bytes <= (uint64_t)PTRDIFF_MAX;
}

uint64_t ddp_tensor_count(const struct ddp_tensor *tensor)
{
	uint64_t count;

	return count_elements(tensor, &count) ? count : 0;
}
