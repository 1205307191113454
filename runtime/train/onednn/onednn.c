/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn.c - module for convolutions and dense layers with oneDNN
 *
 * Each pass of a layer has variants (algorithms) to choose from. For each number of images, a pass
 * has a job, which is a primitive and the conversions of its arrays. The caller's arrays have plain
 * layouts. If the primitive needs other layouts, or rows of windows instead of images (im2col), the
 * job converts inputs and outputs in scratch memory.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "im2col.h"

/* --- Types --------------------------------------------------------------------------------- */

enum {
	VARIANTS = 8, /* maximum per pass */
	VARIANT_NAME = 16,
	/*
	 * Maximum jobs per pass. Several are needed, because training, evaluation and their last
	 * batches have different numbers of images.
	 */
	JOBS = 6,
	ALIGN = 64
};

/*
 * A kind of variant. The variants of a kind are the first implementations that oneDNN has for it,
 * at most [most] (1 or 2).
 */
struct family {
	const char *name;
	bool dense, winograd, columns;
	bool any_images, any_weights; /* as in primitive_options */
	int most;
};

/*
 * Variants are tried in this order. Dense layers keep the caller's layout, because a reorder of the
 * weights takes more time than oneDNN's own layout saves (measured in f32 and bf16 with 64 images).
 */
static const struct family families[] = {
	{"direct", false, false, false, false, true, 2},
	{"blocked", false, false, false, true, true, 1},
	{"winograd", false, true, false, true, true, 1},
	{"columns", false, false, true, false, true, 1},
	{"direct", true, false, false, false, false, 1},
	{"packed", true, false, false, false, true, 1},
};

struct variant {
	char name[VARIANT_NAME]; /* "direct", "direct2", "blocked", "winograd", "columns" */
	const struct family *family;
	const char *skip; /* name of the implementation of the preceding variant, or NULL */
	char implementation[PRIMITIVE_NAME]; /* oneDNN's name, for the largest number of images */
	bool converts;			     /* arrays must be converted */
};

/*
 * A copy of the weights in the layout of a primitive. Primitives with equal layouts share a copy. A
 * copy is filled on its first use after math_layer's weights were loaded.
 */
struct copy {
	struct copy *next;
	size_t users;
	struct primitive *enter; /* reorder from the caller's weights */
	void *data;
	bool fresh;
};

struct job {
	struct job *next; /* the most recently used job comes first */
	size_t count;	  /* images */
	struct primitive *primitive;
	enum array result;
	struct primitive
		*reorders[ARRAYS]; /* conversions; NULL: the caller's array is used directly */
	size_t offsets[ARRAYS];	   /* offsets of converted arrays in scratch memory */
	size_t bytes;		   /* bytes of scratch memory */
	bool has_columns;
	struct im2col columns;
	struct copy *copy; /* NULL: the job uses the caller's weights, or none */
};

struct pass {
	struct variant variants[VARIANTS];
	int variant_count, chosen;
	struct job *jobs;
};

struct math_layer {
	struct math_options options;
	const float *weights, *bias; /* the caller's, in plain layout; NULL: not loaded */
	struct copy *copies;
	struct pass passes[MATH_PASSES];
};

/* --- Variants ---------------------------------------------------------------------------- */

/* Maximum bytes of the rows of im2col. If a layer needs more, variant "columns" is not tried. */
#define COLUMNS ((size_t)80 << 20)

/* Options of the primitive for [count] images. Sets [columns] for im2col. */
static struct primitive_options variant_options(const struct variant *variant,
						const struct math_options *layer,
						enum math_pass pass, size_t count,
						struct im2col *columns)
{
	const struct family *family = variant->family;
	struct primitive_options options = {.layer = *layer,
					    .pass = pass,
					    .count = count,
					    .winograd = family->winograd,
					    .any_images = family->any_images,
					    .any_weights = family->any_weights,
					    .skip = variant->skip};

	if (family->columns) {
		*columns = im2col_begin(&options);
		/*
		 * Gradients of weights stay in the caller's layout. It is as fast as oneDNN's own
		 * layout and saves a reorder.
		 */
		options.any_weights = pass != MATH_BACK_WEIGHTS;
	}
	return options;
}

/*
 * Fills the next element of found->variants with a variant of [family]. With [skip], chooses
 * another implementation than that of the preceding variant.
 */
static int variant_find(struct pass *found, const struct family *family, bool skip,
			const struct math_options *layer, enum math_pass pass,
			struct ddp_error *error)
{
	struct variant *variant = &found->variants[found->variant_count];
	struct primitive_options options;
	struct primitive_offer offer;
	struct im2col columns;
	int rc;

	*variant = (struct variant){.family = family,
				    .skip = skip ? (variant - 1)->implementation : NULL};
	snprintf(variant->name, VARIANT_NAME, "%s%s", family->name, skip ? "2" : "");
	options = variant_options(variant, layer, pass, layer->batch, &columns);
	if (family->columns &&
	    ((layer->size == 1 && layer->stride == 1) || im2col_bytes(&columns) > COLUMNS))
		return DDP_ERR_UNSUPPORTED;
	rc = primitive_probe(&options, &offer, error);
	if (rc)
		return rc;
	memcpy(variant->implementation, offer.name, PRIMITIVE_NAME);
	variant->converts = !offer.plain || family->columns;
	return 0;
}

static bool is_known(const struct pass *found)
{
	const struct variant *last = &found->variants[found->variant_count];

	for (const struct variant *variant = found->variants; variant < last; variant++)
		if (strcmp(variant->implementation, last->implementation) == 0 &&
		    variant->converts == last->converts)
			return true;
	return false;
}

/*
 * Finds the variants for [pass] of [layer]. The first variant is the exact one. Returns 0 or, if
 * there is no variant, the error of the first attempt.
 */
static int variants_find(struct pass *found, const struct math_options *layer, enum math_pass pass,
			 struct ddp_error *error)
{
	struct ddp_error refused;

	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		const struct family *family = &families[i];
		bool first = found->variant_count == 0;

		/* A dense layer needs only one variant. */
		if (family->dense != layer->dense || (layer->dense && !first))
			continue;
		for (int number = 0; number < family->most; number++) {
			int rc = variant_find(found, family, number > 0, layer, pass,
					      first ? error : &refused);

			if (rc && rc != DDP_ERR_UNSUPPORTED)
				return rc;
			if (rc || is_known(found))
				break;
			found->variant_count++;
		}
	}
	if (found->variant_count == 0 || found->variants[0].family->winograd)
		return DDP_ERR_UNSUPPORTED;
	return 0;
}

/* --- Memory -------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/*
 * Scratch memory: one block for all layers of a thread, as large as the largest request so far.
 * Layers run one after the other, so the block stays in the cache. It is freed with the last layer.
 */
static _Thread_local struct {
	char *data;
	size_t size, layers;
} scratch;

static void scratch_free(void)
{
	free(scratch.data);
	scratch.data = NULL;
	scratch.size = 0;
}

/* Returns scratch memory of at least [size] bytes. */
static char *scratch_get(size_t size)
{
	if (scratch.size < size || !scratch.data) {
		scratch_free();
		scratch.data = ddp_xaligned(size, "the computation of a layer");
		scratch.size = size;
	}
	return scratch.data;
}

/* --- Weights ------------------------------------------------------------------------------- */

static void copy_free(struct copy *copy)
{
	primitive_destroy(copy->enter);
	free(copy->data);
	free(copy);
}

/*
 * Finds or creates the copy of the weights for [primitive]. Sets [copy] to NULL if the primitive
 * can use the caller's weights. Returns 0 or an error of primitive_create().
 */
static int copy_get(struct copy **copy, struct math_layer *layer, const struct primitive *primitive,
		    struct ddp_error *error)
{
	struct primitive *enter;
	int rc;

	for (*copy = layer->copies; *copy; *copy = (*copy)->next)
		if (primitive_fits((*copy)->enter, primitive)) {
			(*copy)->users++;
			return 0;
		}
	rc = primitive_reorder(&enter, primitive, ARRAY_WEIGHTS, true, error);
	if (rc || !enter)
		return rc;
	*copy = ddp_xcalloc(1, sizeof(**copy), "a copy of weights");
	**copy = (struct copy){.next = layer->copies,
			       .users = 1,
			       .enter = enter,
			       .data = ddp_xaligned(primitive_bytes(enter, ARRAY_Y),
						    "a copy of weights")};
	layer->copies = *copy;
	return 0;
}

static void copy_drop(struct copy *copy, struct math_layer *layer)
{
	struct copy **link = &layer->copies;

	if (!copy || --copy->users)
		return;
	while (*link != copy)
		link = &(*link)->next;
	*link = copy->next;
	copy_free(copy);
}

static int copy_refresh(struct copy *copy, const float *weights, char *own, struct ddp_error *error)
{
	void *const data[ARRAYS] = {
		[ARRAY_X] = (void *)weights, [ARRAY_Y] = copy->data, [ARRAY_SCRATCH] = own};
	int rc = copy->fresh ? 0 : primitive_run(copy->enter, data, error);

	copy->fresh = rc == 0;
	return rc;
}

/* --- Jobs -------------------------------------------------------------------------------- */

/* Reserves [bytes] bytes of the job's scratch memory for [array]. */
static void job_place(struct job *job, enum array array, size_t bytes)
{
	job->offsets[array] = job->bytes;
	job->bytes += round_up(bytes);
}

/*
 * Creates the conversions and divides the scratch memory. The scratchpad that the primitives share
 * comes first, then the converted arrays.
 */
static int job_fill(struct job *job, struct math_layer *layer, struct ddp_error *error)
{
	size_t need = primitive_bytes(job->primitive, ARRAY_SCRATCH), bytes;

	for (enum array i = 0; i < ARRAY_SCRATCH; i++) {
		int rc = 0;

		if (i == ARRAY_WEIGHTS && i != job->result)
			rc = copy_get(&job->copy, layer, job->primitive, error);
		else if (i != ARRAY_BIAS && !(i == ARRAY_X && job->has_columns))
			rc = primitive_reorder(&job->reorders[i], job->primitive, i,
					       i != job->result, error);
		if (rc)
			return rc;
		bytes = job->reorders[i] ? primitive_bytes(job->reorders[i], ARRAY_SCRATCH) : 0;
		need = bytes > need ? bytes : need;
	}
	bytes = job->copy ? primitive_bytes(job->copy->enter, ARRAY_SCRATCH) : 0;
	need = bytes > need ? bytes : need;
	bytes = job->has_columns ? im2col_scratch(&job->columns) : 0;
	job_place(job, ARRAY_SCRATCH, bytes > need ? bytes : need);
	for (enum array i = 0; i < ARRAY_SCRATCH; i++)
		if (job->reorders[i])
			job_place(job, i, primitive_bytes(job->primitive, i));
	if (job->has_columns)
		job_place(job, ARRAY_X, im2col_bytes(&job->columns));
	return 0;
}

static void job_destroy(struct job *job, struct math_layer *layer)
{
	if (!job)
		return;
	copy_drop(job->copy, layer);
	for (int i = 0; i < ARRAYS; i++)
		primitive_destroy(job->reorders[i]);
	primitive_destroy(job->primitive);
	free(job);
}

/* Creates a job. Returns 0 or an error of primitive_create(). */
static int job_create(struct job **job, struct math_layer *layer, enum math_pass pass,
		      const struct variant *variant, size_t count, struct ddp_error *error)
{
	static const enum array results[] = {[MATH_FORWARD] = ARRAY_Y,
					     [MATH_BACK_DATA] = ARRAY_X,
					     [MATH_BACK_WEIGHTS] = ARRAY_WEIGHTS};
	struct job *made = ddp_xcalloc(1, sizeof(*made), "a primitive");
	struct primitive_options options;
	int rc;

	made->count = count;
	made->result = results[pass];
	made->has_columns = variant->family->columns;
	options = variant_options(variant, &layer->options, pass, count, &made->columns);
	rc = primitive_create(&made->primitive, &options, error);
	if (rc == 0)
		rc = job_fill(made, layer, error);
	if (rc == 0)
		*job = made;
	else
		job_destroy(made, layer);
	return rc;
}

/* Converts [array] from the caller's to the primitive's layout, or back. */
static int job_convert(struct job *job, enum array array, void *from, void *to, char *own,
		       struct ddp_error *error)
{
	void *const data[ARRAYS] = {[ARRAY_X] = from, [ARRAY_Y] = to, [ARRAY_SCRATCH] = own};
	bool columns = array == ARRAY_X && job->has_columns;

	if (job->reorders[array])
		return primitive_run(job->reorders[array], data, error);
	if (columns && array == job->result)
		im2col_back(&job->columns, from, to, own);
	else if (columns)
		im2col_gather(&job->columns, from, to);
	return 0;
}

/* Runs the job on the caller's arrays [data]. Returns 0 or an error of primitive_run(). */
static int job_run(struct job *job, const float *weights, void *const data[ARRAYS],
		   struct ddp_error *error)
{
	char *own = scratch_get(job->bytes);
	void *arrays[ARRAYS];
	int rc = 0;

	if (job->copy)
		rc = copy_refresh(job->copy, weights, own, error);
	for (enum array i = 0; i < ARRAYS && rc == 0; i++) {
		bool turned = job->reorders[i] || (i == ARRAY_X && job->has_columns);

		arrays[i] = turned || i == ARRAY_SCRATCH ? own + job->offsets[i] : data[i];
		if (turned && i != job->result)
			rc = job_convert(job, i, data[i], arrays[i], own, error);
	}
	if (job->result != ARRAY_WEIGHTS)
		arrays[ARRAY_WEIGHTS] = job->copy ? job->copy->data : (void *)weights;
	if (rc == 0)
		rc = primitive_run(job->primitive, arrays, error);
	if (rc == 0)
		rc = job_convert(job, job->result, arrays[job->result], data[job->result], own,
				 error);
	return rc;
}

/* --- Layers ------------------------------------------------------------------------------ */

/* Defined if oneDNN uses OpenMP. The number applies to the calling thread. */
extern void omp_set_num_threads(int count) __attribute__((weak));

static void threads_set(const struct math_layer *layer)
{
	if (omp_set_num_threads)
		omp_set_num_threads(layer->options.threads > 0 ? layer->options.threads : 1);
}

/* Destroys all jobs after the first [keep] jobs. */
static void jobs_trim(struct math_layer *layer, struct pass *pass, int keep)
{
	struct job **link = &pass->jobs;

	while (*link && keep-- > 0)
		link = &(*link)->next;
	while (*link) {
		struct job *job = *link;

		*link = job->next;
		job_destroy(job, layer);
	}
}

static void layer_destroy(struct math_layer *layer)
{
	if (!layer)
		return;
	for (int pass = 0; pass < MATH_PASSES; pass++)
		jobs_trim(layer, &layer->passes[pass], 0);
	free(layer);
	if (--scratch.layers == 0)
		scratch_free();
}

static int layer_create(struct math_layer **layer, const struct math_options *options,
			struct ddp_error *error)
{
	struct math_layer *made = ddp_xcalloc(1, sizeof(*made), "a layer");
	int rc = 0;

	scratch.layers++;
	made->options = *options;
	threads_set(made);
	for (int pass = 0; pass < MATH_PASSES && rc == 0; pass++)
		if (pass != MATH_BACK_DATA || !options->first)
			rc = variants_find(&made->passes[pass], options, (enum math_pass)pass,
					   error);
	if (rc == 0)
		*layer = made;
	else
		layer_destroy(made);
	return rc;
}

static int layer_algorithms(const struct math_layer *layer, enum math_pass pass)
{
	return layer->passes[pass].variant_count;
}

static const char *layer_algorithm(const struct math_layer *layer, enum math_pass pass, int number)
{
	return layer->passes[pass].variants[number].name;
}

static void layer_choose(struct math_layer *layer, enum math_pass pass, int number)
{
	struct pass *changed = &layer->passes[pass];

	if (number != changed->chosen)
		jobs_trim(layer, changed, 0);
	changed->chosen = number;
}

static void layer_load(struct math_layer *layer, const float *weights, const float *bias)
{
	layer->weights = weights;
	layer->bias = bias;
	for (struct copy *copy = layer->copies; copy; copy = copy->next)
		copy->fresh = false;
}

/* Finds or creates the job of [pass] for [count] images, and moves it to the front of the list. */
static int job_find(struct math_layer *layer, enum math_pass pass, size_t count,
		    struct ddp_error *error)
{
	struct pass *of = &layer->passes[pass];
	const struct variant *chosen = &of->variants[of->chosen];
	struct job **link = &of->jobs, *job;
	int rc;

	while (*link && (*link)->count != count)
		link = &(*link)->next;
	job = *link;
	if (job) {
		*link = job->next;
	} else {
		jobs_trim(layer, of, JOBS - 1);
		rc = job_create(&job, layer, pass, chosen, count, error);
		/*
		 * If the chosen variant does not support this number of images, use the exact one.
		 */
		if (rc == DDP_ERR_UNSUPPORTED && of->chosen)
			rc = job_create(&job, layer, pass, &of->variants[0], count, error);
		if (rc)
			return rc;
	}
	job->next = of->jobs;
	of->jobs = job;
	return 0;
}

static int layer_run(struct math_layer *layer, enum math_pass pass, size_t count,
		     void *const data[ARRAYS], struct ddp_error *error)
{
	int rc;

	threads_set(layer);
	rc = job_find(layer, pass, count, error);
	if (rc)
		return rc;
	return job_run(layer->passes[pass].jobs, layer->weights, data, error);
}

static int layer_forward(struct math_layer *layer, size_t count, const void *x, void *y,
			 struct ddp_error *error)
{
	void *const data[ARRAYS] = {
		[ARRAY_X] = (void *)x, [ARRAY_BIAS] = (void *)layer->bias, [ARRAY_Y] = y};

	return layer_run(layer, MATH_FORWARD, count, data, error);
}

static int layer_back_data(struct math_layer *layer, size_t count, const void *dy, void *dx,
			   struct ddp_error *error)
{
	void *const data[ARRAYS] = {[ARRAY_X] = dx, [ARRAY_Y] = (void *)dy};

	return layer_run(layer, MATH_BACK_DATA, count, data, error);
}

static int layer_back_weights(struct math_layer *layer, size_t count, const void *x, const void *dy,
			      float *weights, float *bias, struct ddp_error *error)
{
	void *const data[ARRAYS] = {[ARRAY_X] = (void *)x,
				    [ARRAY_WEIGHTS] = weights,
				    [ARRAY_BIAS] = bias,
				    [ARRAY_Y] = (void *)dy};

	return layer_run(layer, MATH_BACK_WEIGHTS, count, data, error);
}

/* --- Module -------------------------------------------------------------------------------- */

/*
 * Whether all passes of a typical convolution use native instructions for [type]. Without native
 * instructions, bf16 is emulated with f32 arithmetic, and is slower than f32.
 */
static bool is_native(enum ddp_type type, struct primitive_offer *offer)
{
	struct primitive_options options = {.layer = {.height = 16,
						      .width = 16,
						      .in = 64,
						      .out = 64,
						      .size = 3,
						      .stride = 1,
						      .pad = 1,
						      .type = type,
						      .batch = 8,
						      .threads = 1},
					    .count = 8,
					    .any_weights = true};

	for (int pass = 0; pass < MATH_PASSES; pass++) {
		options.pass = (enum math_pass)pass;
		if (primitive_probe(&options, offer, NULL))
			return false;
		if (type == DDP_BF16 && !strstr(offer->name, "avx512_core_bf16") &&
		    !strstr(offer->name, "amx"))
			return false;
	}
	return true;
}

static bool has_type(enum ddp_type type, struct ddp_error *error)
{
	struct primitive_offer offer = {.name = "no implementation"};

	if (is_native(type, &offer))
		return true;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED,
		      "%s has no fast %s on this CPU and would fall back to \"%s\"%s",
		      primitive_library(), type == DDP_F32 ? "f32" : "bf16", offer.name,
		      type == DDP_F32 ? "" : ". Use --amp=off.");
	return false;
}

__attribute__((visibility("default"))) extern const struct math ddp_module;
const struct math ddp_module = {
	.head = {.magic = DDP_MODULE_MAGIC,
		 .version = MATH_VERSION,
		 .size = sizeof(struct math),
		 .kind = "math",
		 .name = "onednn",
		 .release = PACKAGE_VERSION},
	.describe = primitive_library,
	.has = has_type,
	.create = layer_create,
	.algorithms = layer_algorithms,
	.algorithm = layer_algorithm,
	.choose = layer_choose,
	.load = layer_load,
	.forward = layer_forward,
	.back_data = layer_back_data,
	.back_weights = layer_back_weights,
	.destroy = layer_destroy,
};
