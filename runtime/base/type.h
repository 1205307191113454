/* SPDX-License-Identifier: Apache-2.0 */
/* type.h - names of element types, operations and calls, and rounding to bf16 */
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

/*
 * Kinds of calls. The ranks compare the kinds of their calls to find differences. The first four
 * kinds are collectives. LEAVE is the last barrier, in ddp_destroy(). A rank that rejects the
 * arguments of a function makes a call of the function's REFUSED kind instead.
 */
#define DDP_CALL_MAP(X)                                       \
	X(BARRIER, "barrier")                                 \
	X(ALL_REDUCE, "all-reduce")                           \
	X(BROADCAST, "broadcast")                             \
	X(ALL_GATHER, "all-gather")                           \
	X(LEAVE, "ddp_destroy")                               \
	X(REFUSED_ALL_REDUCE, "ddp_all_reduce")               \
	X(REFUSED_BROADCAST, "ddp_broadcast")                 \
	X(REFUSED_ALL_GATHER, "ddp_all_gather")               \
	X(REFUSED_ARENA_DESTROY, "ddp_arena_destroy")         \
	X(REFUSED_DEVICE_ALL_REDUCE, "ddp_device_all_reduce") \
	X(REFUSED_DEVICE_BROADCAST, "ddp_device_broadcast")   \
	X(REFUSED_DEVICE_ALL_GATHER, "ddp_device_all_gather") \
	X(REFUSED_DEVICE_ALLOC, "ddp_device_alloc")           \
	X(REFUSED_GRADIENTS_CREATE, "ddp_gradients_create")   \
	X(REFUSED_GRADIENTS_PLACE, "ddp_gradients_place")     \
	X(REFUSED_GRADIENTS_FINISH, "ddp_gradients_finish")

enum ddp_call_kind {
	DDP_CALL_OTHER, /* a call of another kind than the following */
#define DDP_CALL_ENUM(name, text) DDP_CALL_##name,
	DDP_CALL_MAP(DDP_CALL_ENUM)
#undef DDP_CALL_ENUM
		DDP_CALL_KINDS
};

/* Returns a name such as "all-reduce"; "another call" for an unknown number. */
const char *ddp_call_name(uint32_t kind);

/* Returns the verb for messages such as "rank 3 calls ddp_broadcast". */
static inline const char *ddp_call_verb(uint32_t kind)
{
	return kind == DDP_CALL_LEAVE ? "has left with" : "calls";
}

/* Returns whether a call of [kind] means that the rank has rejected the arguments of a function. */
static inline bool ddp_call_is_refusal(uint32_t kind)
{
	return kind >= DDP_CALL_REFUSED_ALL_REDUCE && kind < DDP_CALL_KINDS;
}

/* Returns the bf16 number nearest to [value]. Ties go to even, and NaN stays NaN. */
static inline uint16_t ddp_to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u
						  : bits + 0x7fffu + (bits >> 16 & 1u);
	return (uint16_t)(bits >> 16);
}

#endif /* DDP_BASE_TYPE_H */
