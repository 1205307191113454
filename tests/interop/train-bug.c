/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train-bug.c - a library that is preloaded into ddp-train and adds a bug: it changes the first
 * gradient that becomes ready
 *
 * $TRAIN_BUG selects the change:
 *
 *     scaled       multiply the gradient by 1.01
 *     dropped      set the gradient to zero
 *     unreduced    use this rank's gradient in place of the sum
 *
 * The comparisons with PyTorch must detect each of these bugs.
 */
#include "config.h"

#include <ddp.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The gradient that this library changes. */
static struct {
	float *view;
	float *own; /* this rank's gradient */
	size_t count;
	bool chosen, kept;
	size_t index;
} hit;

static size_t *counts;
static int ranks;

static _Noreturn void die(const char *text)
{
	fprintf(stderr, "train-bug: %s\n", text);
	exit(EXIT_FAILURE);
}

static bool bug_is(const char *name)
{
	const char *bug = getenv("TRAIN_BUG");

	if (!bug)
		die("TRAIN_BUG is not set");
	return strcmp(bug, name) == 0;
}

/*
 * Returns libddp's function [name], which this library replaces. If the function is missing, only a
 * call fails: the shell that starts ddp-train has this library preloaded too, but not libddp.
 */
static void *next_function(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		die(dlerror());
	return function;
}

#define NEXT(name) ((__typeof__(&(name)))next_function(#name))

DDP_API int ddp_gradients_create(struct ddp_gradients **gradients, struct ddp *ddp,
				 const struct ddp_gradients_options *options,
				 const struct ddp_parameter *parameters, size_t count)
{
	ranks = NEXT(ddp_world)(ddp)->size;
	counts = calloc(count, sizeof(*counts));
	if (!counts)
		die("out of memory");
	for (size_t i = 0; i < count; i++)
		counts[i] = parameters[i].count;
	return NEXT(ddp_gradients_create)(gradients, ddp, options, parameters, count);
}

static void choose(struct ddp_gradients *gradients, size_t index)
{
	hit.chosen = true;
	hit.index = index;
	hit.count = counts[index];
	hit.view = NEXT(ddp_gradients_view)(gradients, index);
	hit.own = calloc(hit.count, sizeof(*hit.own));
	if (!hit.own)
		die("out of memory");
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
	return NEXT(ddp_gradients_ready)(gradients, index);
}

DDP_API int ddp_gradients_finish(struct ddp_gradients *gradients)
{
	int rc = NEXT(ddp_gradients_finish)(gradients);

	if (hit.kept && bug_is("unreduced"))
		memcpy(hit.view, hit.own, hit.count * sizeof(*hit.view));
	hit.kept = false;
	return rc;
}
