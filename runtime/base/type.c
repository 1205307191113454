/* SPDX-License-Identifier: Apache-2.0 */
/* type.c - sizes and names of element types, and names of operations */
#include "config.h"

#include "type.h"

size_t ddp_type_size(enum ddp_type type)
{
	static const uint8_t sizes[] = {
#define TYPE_SIZE(name, bytes, text) bytes,
		DDP_TYPE_MAP(TYPE_SIZE)
#undef TYPE_SIZE
	};

	return (unsigned)type < DDP_TYPE_COUNT ? sizes[type] : 0;
}

const char *ddp_type_name(uint32_t type)
{
	static const char *const names[] = {
#define TYPE_NAME(name, bytes, text) text,
		DDP_TYPE_MAP(TYPE_NAME)
#undef TYPE_NAME
	};

	return type < DDP_TYPE_COUNT ? names[type] : "?";
}

const char *ddp_op_name(uint32_t op)
{
	static const char *const names[DDP_OP_COUNT] = {"sum", "max", "min"};

	return op < DDP_OP_COUNT ? names[op] : "?";
}

const char *ddp_call_name(uint32_t kind)
{
	static const char *const names[] = {"another call",
#define CALL_NAME(name, text) text,
					    DDP_CALL_MAP(CALL_NAME)
#undef CALL_NAME
	};

	return names[kind < DDP_CALL_KINDS ? kind : DDP_CALL_OTHER];
}
