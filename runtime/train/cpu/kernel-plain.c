/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/* What every machine has, or what the compiler makes of it. */
#define VECTOR 16
#define TARGET
#define NAME plain

#include "kernel-loop.h"
