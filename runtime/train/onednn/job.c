/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "job.h"
#include "layer.h"
#include "scratch.h"

/* --- Columns of an image ----------------------------------------------------------------- */

/* GCC vectorises loops of unknown length at -O3 alone. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3")))
#else
#define VECTORISED
#endif

static int out_size(const struct math_options *layer, int size)
{
	return (size + 2 * layer->pad - layer->size) / layer->stride + 1;
}

void columns_init(struct columns *columns, const struct plan_options *options)
{
	const struct math_options *layer = &options->layer;

	*columns = (struct columns){.count = options->count,
				    .height = layer->height,
				    .width = layer->width,
				    .in = layer->in,
				    .size = layer->size,
				    .stride = layer->stride,
				    .pad = layer->pad,
				    .out_height = out_size(layer, layer->height),
				    .out_width = out_size(layer, layer->width),
				    .type = layer->type,
				    .wide = options->pass == MATH_BACK_DATA &&
					    layer->size > layer->stride};
}

void columns_ask(struct plan_options *options)
{
	struct math_options *layer = &options->layer;
	struct columns columns;

	columns_init(&columns, options);
	options->count *= (size_t)(columns.out_height * columns.out_width);
	options->wide = columns.wide;
	layer->in *= layer->size * layer->size;
	layer->height = layer->width = layer->size = layer->stride = 1;
	layer->pad = 0;
	layer->dense = true;
}

static enum ddp_type row_type(const struct columns *columns)
{
	return columns->wide ? DDP_F32 : columns->type;
}

static size_t image_size(const struct columns *columns)
{
	return (size_t)columns->height * (size_t)columns->width * (size_t)columns->in;
}

size_t columns_bytes(const struct columns *columns)
{
	return columns->count * (size_t)(columns->out_height * columns->out_width) *
	       (size_t)(columns->size * columns->size) * (size_t)columns->in *
	       ddp_type_size(row_type(columns));
}

static size_t columns_scratch(const struct columns *columns)
{
	return row_type(columns) != columns->type ? image_size(columns) * sizeof(float) : 0;
}

/*
 * The part of a window's row that lies in the image: elements [from] to [to] of it are those from
 * [at] of the image. None where to <= from.
 */
struct run {
	int from, to;
	ptrdiff_t at;
};

static struct run run_find(const struct columns *columns, int top, int left)
{
	int skip = left < 0 ? -left : 0;
	int last = left + columns->size > columns->width ? columns->width - left : columns->size;

	if (top < 0 || top >= columns->height)
		return (struct run){0, 0, 0};
	return (struct run){skip * columns->in, last * columns->in,
			    ((ptrdiff_t)top * columns->width + left + skip) * columns->in};
}

typedef void copy_run(void *images, void *rows, const struct run *run, int length, size_t size);

/* Call [copy] for each row of each window of one image. Returns the rows behind it. */
static char *image_walk(const struct columns *columns, copy_run *copy, void *image, char *rows,
			size_t size)
{
	int length = columns->size * columns->in;

	for (int y = 0; y < columns->out_height; y++)
		for (int x = 0; x < columns->out_width; x++)
			for (int h = 0; h < columns->size; h++) {
				struct run run =
					run_find(columns, y * columns->stride - columns->pad + h,
						 x * columns->stride - columns->pad);

				copy(image, rows, &run, length, size);
				rows += (size_t)length * size;
			}
	return rows;
}

static void copy_out(void *image, void *rows, const struct run *run, int length, size_t size)
{
	char *to = rows;

	if (run->to <= run->from) {
		memset(to, 0, (size_t)length * size);
		return;
	}
	memset(to, 0, (size_t)run->from * size);
	memcpy(to + (size_t)run->from * size, (char *)image + run->at * (ptrdiff_t)size,
	       (size_t)(run->to - run->from) * size);
	memset(to + (size_t)run->to * size, 0, (size_t)(length - run->to) * size);
}

static void copy_in(void *image, void *rows, const struct run *run, int length, size_t size)
{
	(void)length;
	if (run->to > run->from)
		memcpy((char *)image + run->at * (ptrdiff_t)size,
		       (char *)rows + (size_t)run->from * size,
		       (size_t)(run->to - run->from) * size);
}

static VECTORISED void add_in(void *image, void *rows, const struct run *run, int length,
			      size_t size)
{
	float *restrict to = (float *)image + run->at;
	const float *restrict from = (const float *)rows + run->from;
	int count = run->to - run->from;

	(void)length;
	(void)size;
	for (int i = 0; i < count; i++)
		to[i] += from[i];
}

static VECTORISED void narrow(const float *restrict from, uint16_t *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = ddp_to_bf16(from[i]);
}

/* From images to rows, and gradients of rows to those of images. */
static void columns_gather(const struct columns *columns, const void *images, void *rows)
{
	size_t size = ddp_type_size(columns->type);
	char *image = (void *)images;

	for (size_t i = 0; i < columns->count; i++, image += image_size(columns) * size)
		rows = image_walk(columns, copy_out, image, rows, size);
}

static void columns_scatter(const struct columns *columns, const void *rows, void *images,
			    void *scratch)
{
	size_t size = ddp_type_size(columns->type), row_size = ddp_type_size(row_type(columns));
	size_t elements = image_size(columns);
	char *image = images, *row = (void *)rows;

	for (size_t i = 0; i < columns->count; i++, image += elements * size) {
		void *sum = row_size == size ? image : scratch;

		memset(sum, 0, elements * row_size);
		row = image_walk(columns, columns->wide ? add_in : copy_in, sum, row, row_size);
		if (sum != image)
			narrow(sum, (uint16_t *)image, elements);
	}
}

/* --- Weights in blocked layouts ---------------------------------------------------------- */

struct weights_copy {
	struct weights_copy *next;
	size_t users;
	struct plan *enter; /* from the caller's weights to it */
	void *data;
	bool fresh;
};

void weights_load(struct weights *weights, const float *plain)
{
	weights->plain = plain;
	for (struct weights_copy *copy = weights->copies; copy; copy = copy->next)
		copy->fresh = false;
}

static void copy_free(struct weights_copy *copy)
{
	plan_destroy(copy->enter);
	free(copy->data);
	free(copy);
}

static int copy_create(struct weights_copy **copy, struct plan *enter, struct ddp_error *error)
{
	struct weights_copy *made = calloc(1, sizeof(*made));
	void *data = scratch_alloc(plan_bytes(enter, PLAN_Y));

	if (!made || !data) {
		free(made);
		free(data);
		plan_destroy(enter);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a copy of weights");
	}
	*made = (struct weights_copy){.enter = enter, .data = data};
	*copy = made;
	return 0;
}

/*
 * Have a copy for [plan]. Returns 0, with NULL in [copy] where it takes the caller's, or as
 * plan_create().
 */
static int weights_want(struct weights *weights, struct weights_copy **copy,
			const struct plan *plan, struct ddp_error *error)
{
	struct plan *enter;
	int rc;

	for (*copy = weights->copies; *copy; *copy = (*copy)->next)
		if (plan_fits((*copy)->enter, PLAN_Y, plan)) {
			(*copy)->users++;
			return 0;
		}
	rc = plan_enter(&enter, plan, PLAN_WEIGHTS, error);
	if (rc || !enter)
		return rc;
	rc = copy_create(copy, enter, error);
	if (rc)
		return rc;
	(*copy)->users = 1;
	(*copy)->next = weights->copies;
	weights->copies = *copy;
	return 0;
}

static void weights_drop(struct weights *weights, struct weights_copy *copy)
{
	struct weights_copy **link = &weights->copies;

	if (!copy || --copy->users)
		return;
	while (*link != copy)
		link = &(*link)->next;
	*link = copy->next;
	copy_free(copy);
}

static int copy_refresh(struct weights_copy *copy, const float *plain, struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = (void *)plain, [PLAN_Y] = copy->data};
	struct scratch scratch;
	int rc;

	if (scratch_take(&scratch, plan_scratch(copy->enter)))
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to reorder weights");
	rc = plan_run(copy->enter, data, scratch.data, error);
	scratch_give(&scratch);
	copy->fresh = rc == 0;
	return rc;
}

/* Put what the primitive reads into [data]. Returns 0 or as plan_run(). */
static int weights_get(struct weights *weights, struct weights_copy *copy, void **data,
		       struct ddp_error *error)
{
	if (!weights->plain)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "a layer computes before its weights "
				     "were loaded");
	*data = copy ? copy->data : (void *)weights->plain;
	return copy && !copy->fresh ? copy_refresh(copy, weights->plain, error) : 0;
}

/* --- Jobs -------------------------------------------------------------------------------- */

static const enum plan_slot results[] = {
	[MATH_FORWARD] = PLAN_Y, [MATH_BACK_DATA] = PLAN_X, [MATH_BACK_WEIGHTS] = PLAN_WEIGHTS};

static size_t up(size_t bytes)
{
	return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static void job_place(struct job *job, enum plan_slot slot, size_t bytes)
{
	job->offsets[slot] = job->bytes;
	job->bytes += up(bytes);
}

/* The reorder of [slot], if any, and its place behind the scratch memory of primitives. */
static int job_turn(struct job *job, enum plan_slot slot, struct ddp_error *error)
{
	int rc = slot == job->result ? plan_leave(&job->turns[slot], job->plan, slot, error)
				     : plan_enter(&job->turns[slot], job->plan, slot, error);

	if (rc == 0 && job->turns[slot])
		job_place(job, slot, plan_bytes(job->plan, slot));
	return rc;
}

static size_t job_scratch(const struct job *job)
{
	size_t bytes = plan_scratch(job->plan);

	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		if (job->turns[slot] && plan_scratch(job->turns[slot]) > bytes)
			bytes = plan_scratch(job->turns[slot]);
	if (job->has_columns && columns_scratch(&job->columns) > bytes)
		bytes = columns_scratch(&job->columns);
	return up(bytes);
}

static int job_fill(struct job *job, struct ddp_error *error)
{
	size_t scratch;
	int rc = 0;

	if (job->has_columns)
		job_place(job, PLAN_X, columns_bytes(&job->columns));
	else
		rc = job_turn(job, PLAN_X, error);
	if (rc == 0)
		rc = job_turn(job, PLAN_Y, error);
	if (rc == 0 && job->weights)
		rc = weights_want(job->weights, &job->copy, job->plan, error);
	else if (rc == 0)
		rc = job_turn(job, PLAN_WEIGHTS, error);
	scratch = job_scratch(job);
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		job->offsets[slot] += scratch;
	job->bytes += scratch;
	return rc;
}

static void job_destroy(struct job *job)
{
	if (!job)
		return;
	if (job->weights)
		weights_drop(job->weights, job->copy);
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		plan_destroy(job->turns[slot]);
	plan_destroy(job->plan);
	free(job);
}

/* Returns 0 or as plan_create(). [weights] outlive it. */
static int job_create(struct job **job, const struct plan_options *options, struct weights *weights,
		      struct ddp_error *error)
{
	struct job *made = calloc(1, sizeof(*made));
	struct plan_options asked = *options;
	int rc;

	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a primitive");
	made->result = results[options->pass];
	made->weights = made->result == PLAN_WEIGHTS ? NULL : weights;
	made->has_columns = options->columns;
	columns_init(&made->columns, options);
	if (options->columns)
		columns_ask(&asked);
	rc = plan_create(&made->plan, &asked, error);
	if (rc == 0)
		rc = job_fill(made, error);
	if (rc == 0)
		*job = made;
	else
		job_destroy(made);
	return rc;
}

static int turn(struct plan *plan, void *from, void *to, void *scratch, struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = from, [PLAN_Y] = to};

	return plan_run(plan, data, scratch, error);
}

/* From the caller's [data] to what the primitive takes. */
static int job_enter(struct job *job, void *const data[PLAN_SLOTS], void *own[PLAN_SLOTS],
		     char *scratch, struct ddp_error *error)
{
	int rc = 0;

	for (int slot = 0; slot < PLAN_SLOTS && rc == 0; slot++) {
		bool columns = slot == PLAN_X && job->has_columns;

		own[slot] = job->turns[slot] || columns ? scratch + job->offsets[slot] : data[slot];
		if (slot == (int)job->result)
			continue;
		if (columns)
			columns_gather(&job->columns, data[slot], own[slot]);
		else if (job->turns[slot])
			rc = turn(job->turns[slot], data[slot], own[slot], scratch, error);
	}
	return rc;
}

/* And its result back. */
static int job_leave(struct job *job, void *const data[PLAN_SLOTS], void *const own[PLAN_SLOTS],
		     char *scratch, struct ddp_error *error)
{
	enum plan_slot slot = job->result;

	if (slot == PLAN_X && job->has_columns)
		columns_scatter(&job->columns, own[slot], data[slot], scratch);
	else if (job->turns[slot])
		return turn(job->turns[slot], own[slot], data[slot], scratch, error);
	return 0;
}

static int job_compute(struct job *job, void *const data[PLAN_SLOTS], void *weights, char *scratch,
		       struct ddp_error *error)
{
	void *own[PLAN_SLOTS];
	int rc = job_enter(job, data, own, scratch, error);

	if (job->weights)
		own[PLAN_WEIGHTS] = weights;
	if (rc == 0)
		rc = plan_run(job->plan, own, scratch, error);
	if (rc == 0)
		rc = job_leave(job, data, own, scratch, error);
	return rc;
}

/*
 * Compute, with the caller's arrays in [data]; weights that are read are not among them.
 * Returns 0 or as plan_run(), or DDP_ERR_MEMORY.
 */
static int job_run(struct job *job, void *const data[PLAN_SLOTS], struct ddp_error *error)
{
	struct scratch scratch;
	void *weights = NULL;
	int rc = job->weights ? weights_get(job->weights, job->copy, &weights, error) : 0;

	if (rc)
		return rc;
	if (scratch_take(&scratch, job->bytes))
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "no memory (%zu bytes) to compute a layer", job->bytes);
	rc = job_compute(job, data, weights, scratch.data, error);
	scratch_give(&scratch);
	return rc;
}

/* --- Layers ------------------------------------------------------------------------------ */

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
