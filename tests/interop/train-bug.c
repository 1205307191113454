/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train-bug.c - a library to preload into ddp-train, which then has a bug: one gradient, the
 * first one that backward has ready, is
 *
 *	scaled		by 1.01
 *	dropped		to zero
 *	unreduced	left as this rank computed it, in place of the sum
 *
 * by what $TRAIN_BUG says. The comparisons with PyTorch must notice each of them.
 */
#include "config.h"

#include <ddp.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the gradient that is hit. */
static struct {
	float *view;
	float *own; /* this rank's */
	size_t count;
	bool chosen, kept;
	size_t index;
} hit;

static size_t *counts;
static int ranks;

static _Noreturn void give_up(const char *text)
{
	fprintf(stderr, "train-bug: %s\n", text);
	exit(EXIT_FAILURE);
}

static bool bug_is(const char *name)
{
	const char *bug = getenv("TRAIN_BUG");

	if (!bug)
		give_up("TRAIN_BUG is not set");
	return strcmp(bug, name) == 0;
}

/*
 * The library's function that ours hides. Others of the library are found in this way too: who runs
 * the program may be a shell, which has this preloaded as well, and no libddp.
 */
static void *behind(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		give_up(dlerror());
	return function;
}

#define BEHIND(name) ((__typeof__(&(name)))behind(#name))

DDP_API int ddp_gradients_create(struct ddp_gradients **gradients, struct ddp *ddp,
				 const struct ddp_gradients_options *options,
				 const struct ddp_parameter *parameters, size_t count)
{
	ranks = BEHIND(ddp_world)(ddp)->size;
	counts = calloc(count, sizeof(*counts));
	if (!counts)
		give_up("out of memory");
	for (size_t i = 0; i < count; i++)
		counts[i] = parameters[i].count;
	return BEHIND(ddp_gradients_create)(gradients, ddp, options, parameters, count);
}

static void choose(struct ddp_gradients *gradients, size_t index)
{
	hit.chosen = true;
	hit.index = index;
	hit.count = counts[index];
	hit.view = BEHIND(ddp_gradients_view)(gradients, index);
	hit.own = calloc(hit.count, sizeof(*hit.own));
	if (!hit.own)
		give_up("out of memory");
}

DDP_API int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index)
{
	if (!hit.chosen)
		choose(gradients, index);
	if (index == hit.index) {
		for (size_t i = 0; i < hit.count; i++) {
			hit.own[i] = hit.view[i] * (float)ranks;
			if (bug_is("scaled"))
				hit.view[i] *= 1.01f;
			else if (bug_is("dropped"))
				hit.view[i] = 0;
		}
		hit.kept = true;
	}
	return BEHIND(ddp_gradients_ready)(gradients, index);
}

DDP_API int ddp_gradients_finish(struct ddp_gradients *gradients)
{
	int rc = BEHIND(ddp_gradients_finish)(gradients);

	if (hit.kept && bug_is("unreduced"))
		memcpy(hit.view, hit.own, hit.count * sizeof(*hit.view));
	hit.kept = false;
	return rc;
}
