/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frameworks.h - environment variables that limit each framework to a rank's share of a GPU
 *
 * frameworks.def has the table of these variables. The plugin sets them, and slurm-ddp(7) lists
 * them.
 */
#ifndef DDP_FRAMEWORKS_H
#define DDP_FRAMEWORKS_H

#include "contract.h"

enum ddp_framework_when {
	DDP_WHEN_SHARED, /* set if ranks share a GPU */
	DDP_WHEN_TORCH,	 /* with --ddp-share=torch */
	DDP_WHEN_MPS,	 /* under an MPS daemon */
};

enum ddp_framework_form {
	DDP_FORM_FRACTION,  /* 0.25 */
	DDP_FORM_PERCENT,   /* 33.3333% */
	DDP_FORM_WORD,	    /* a fixed word, the same for every share */
	DDP_FORM_THREADS,   /* 33 */
	DDP_FORM_MEGABYTES, /* the share in MB of the device in use, for example 0=20480M */
};

struct ddp_framework {
	const char *name;
	enum ddp_variable variable;
	enum ddp_framework_when when;
	enum ddp_framework_form form;
	const char *text, *unless, *example, *since, *help;
};

enum {
#define DDP_FRAMEWORK(name, variable, when, form, text, unless, example, since, help) \
	DDP_FRAMEWORK_##variable,
#include "frameworks.def"
#undef DDP_FRAMEWORK
	DDP_FRAMEWORK_COUNT
};

/* Returns row [i] of a constant table. [i] must be below DDP_FRAMEWORK_COUNT. */
static inline const struct ddp_framework *ddp_framework(int i)
{
	static const struct ddp_framework table[DDP_FRAMEWORK_COUNT] = {
#define DDP_FRAMEWORK(name, variable, when, form, text, unless, example, since, help)              \
	{name, DDP_VAR_##variable, DDP_WHEN_##when, DDP_FORM_##form, text, unless, example, since, \
	 help},
#include "frameworks.def"
#undef DDP_FRAMEWORK
	};

	return &table[i];
}

#endif /* DDP_FRAMEWORKS_H */
