/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.h - types and operations by name, for messages
 */
#ifndef DDP_BASE_TYPE_H
#define DDP_BASE_TYPE_H

#include <ddp.h>

/* "F32", as in safetensors; "?" for what is no type, since it may come from another process. */
const char *ddp_type_name(uint32_t type);

/* "sum", "max", "min"; "?" for what is no operation. */
const char *ddp_op_name(uint32_t op);

#endif /* DDP_BASE_TYPE_H */
