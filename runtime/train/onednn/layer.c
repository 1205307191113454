/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "layer.h"
#include "scratch.h"

/* Numbers of images that a pass keeps primitives for: of training, of evaluation, their tails. */
#define SLOTS 6

/* Of oneDNN's OpenMP, where it has that; the number is one of the calling thread. */
extern void omp_set_num_threads(int count) __attribute__((weak));

static void threads_set(const struct math_layer *layer)
{
	if (omp_set_num_threads)
		omp_set_num_threads(layer->options.threads > 0 ? layer->options.threads : 1);
}

static void slot_destroy(struct slot *slot)
{
	if (!slot)
		return;
	job_destroy(slot->job);
	free(slot);
}

/* Drop all slots behind the first [keep]. */
static void slots_trim(struct pass *pass, int keep)
{
	struct slot **link = &pass->slots;

	while (*link && keep-- > 0)
		link = &(*link)->next;
	while (*link) {
		struct slot *slot = *link;

		*link = slot->next;
		slot_destroy(slot);
	}
}

static bool wanted(const struct math_layer *layer, int pass)
{
	return !(pass == MATH_BACK_DATA && layer->options.first);
}

int layer_create(struct math_layer **layer, const struct math_options *options,
		 struct ddp_error *error)
{
	struct math_layer *made = calloc(1, sizeof(*made));
	int rc = 0;

	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a layer");
	scratch_open();
	made->options = *options;
	threads_set(made);
	for (int pass = 0; pass < MATH_PASSES && rc == 0; pass++)
		if (wanted(made, pass))
			rc = variants_find(&made->passes[pass], options, (enum math_pass)pass,
					   error);
	if (rc == 0)
		*layer = made;
	else
		layer_destroy(made);
	return rc;
}

void layer_destroy(struct math_layer *layer)
{
	if (!layer)
		return;
	for (int pass = 0; pass < MATH_PASSES; pass++)
		slots_trim(&layer->passes[pass], 0);
	free(layer);
	scratch_close();
}

int layer_choose(struct math_layer *layer, enum math_pass pass, int number, struct ddp_error *error)
{
	struct pass *changed = &layer->passes[pass];

	if (number < 0 || number >= changed->variant_count)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "algorithm %d of a layer that has %d for this pass", number,
				     changed->variant_count);
	if (number != changed->chosen) {
		slots_trim(changed, 0);
		scratch_trim();
	}
	changed->chosen = number;
	return 0;
}

/* With the chosen algorithm, or where that is not to be had for so many images, the first one. */
static int slot_create(struct slot **slot, struct math_layer *layer, enum math_pass pass,
		       size_t count, struct ddp_error *error)
{
	const struct pass *of = &layer->passes[pass];
	struct slot *made = calloc(1, sizeof(*made));
	struct plan_options options;
	int rc;

	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a primitive");
	made->count = count;
	variant_ask(&options, &of->variants[of->chosen], &layer->options, pass, count);
	rc = job_create(&made->job, &options, &layer->weights, error);
	if (rc == DDP_ERR_UNSUPPORTED && of->chosen) {
		variant_ask(&options, &of->variants[0], &layer->options, pass, count);
		rc = job_create(&made->job, &options, &layer->weights, error);
	}
	if (rc == 0)
		*slot = made;
	else
		slot_destroy(made);
	return rc;
}

static struct slot *slot_find(struct pass *pass, size_t count)
{
	for (struct slot **link = &pass->slots; *link; link = &(*link)->next)
		if ((*link)->count == count) {
			struct slot *slot = *link;

			*link = slot->next;
			return slot;
		}
	return NULL;
}

int layer_run(struct math_layer *layer, enum math_pass pass, size_t count,
	      void *const data[PLAN_SLOTS], struct ddp_error *error)
{
	struct pass *of = &layer->passes[pass];
	struct slot *slot = slot_find(of, count);
	int rc = 0;

	threads_set(layer);
	if (!slot) {
		slots_trim(of, SLOTS - 1);
		rc = slot_create(&slot, layer, pass, count, error);
	}
	if (rc)
		return rc;
	slot->next = of->slots;
	of->slots = slot;
	return job_run(slot->job, data, error);
}
