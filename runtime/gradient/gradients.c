/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "buckets.h"
#include "carrier.h"
#include "comm/context.h"
#include "norm.h"
#include "reducer.h"

/* Of what follows the arena in the caller's device memory. */
enum { DEVICE_ALIGNMENT = 256 };

struct ddp_gradients {
	struct ddp *ddp;
	enum ddp_type type;
	size_t size; /* of an element */
	struct ddp_layout layout;
	size_t exact; /* elements from here on go as they are */
	char *arena;  /* on a device NULL until there is one */
	char *names;  /* of the parameters, each with its zero byte */
	struct ddp_reducer reducer;
	struct ddp_carrier *carrier; /* NULL with one group: it could only take the core away */

	bool device;		      /* the arena is there; sums are on reducer.stream, */
	void *from;		      /* behind the stream on which gradients became ready last */
	uint64_t *counter, *progress; /* buckets that were summed, there and for the host */

	size_t marked;	 /* parameters that are ready in this step */
	size_t launched; /* buckets whose sum has begun in this step */
	bool sync;	 /* in this step */
	bool sync_next;	 /* in the steps after it */
	int status;	 /* the first error of a sum: there is no going on */
};

/* --- Create ----------------------------------------------------------------------------- */

/* What callers know of it who were compiled with a ddp.h before [exact]. */
#define OLD_OPTIONS offsetof(struct ddp_gradients_options, exact)

static int check_options(struct ddp_error *error, const struct ddp_gradients_options *options)
{
	if (options->type != DDP_F32 && options->type != DDP_F64)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "gradients: the type of the views is DDP_F32 or DDP_F64");
	if (options->device && options->type != DDP_F32)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "gradients: on a device the type of the views is DDP_F32");
	if (options->wire != options->type && options->wire != DDP_BF16 && options->wire != DDP_F16)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "gradients: the type on the wire is that of the views, "
				     "DDP_BF16 or DDP_F16");
	return 0;
}

static int take_options(struct ddp_error *error, const struct ddp_gradients_options *given,
			struct ddp_gradients_options *options)
{
	*options = (struct ddp_gradients_options)DDP_GRADIENTS_OPTIONS_INIT;
	if (given && given->size != sizeof(*given) && given->size != OLD_OPTIONS)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "gradients: options of %zu bytes, not %zu: "
				     "begin with DDP_GRADIENTS_OPTIONS_INIT",
				     given->size, sizeof(*given));
	if (given)
		memcpy(options, given, given->size);
	return check_options(error, options);
}

static int check_parameters(struct ddp_error *error, const struct ddp_parameter *parameters,
			    size_t count)
{
	if (count == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "gradients: no parameters");
	for (size_t i = 0; i < count; i++) {
		if (!parameters[i].name)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "gradients: parameter %zu has no name", i);
	}
	return 0;
}

static int lay_out(struct ddp_gradients *gradients, const struct ddp_gradients_options *options,
		   const struct ddp_parameter *parameters, size_t count)
{
	size_t limit = options->bucket_bytes ? options->bucket_bytes : DDP_BUCKET_BYTES;
	size_t first = options->first_bytes;
	int status;

	if (options->exact > count)
		return ddp_error_set(&gradients->ddp->error, DDP_ERR_ARGUMENT,
				     "gradients: %zu exact parameters of %zu", options->exact,
				     count);
	if (first == 0)
		first = limit < DDP_BUCKET_FIRST_BYTES ? limit : DDP_BUCKET_FIRST_BYTES;
	status = ddp_layout_create(&gradients->layout, parameters, count, gradients->size, first,
				   limit, &gradients->ddp->error);
	if (status < 0)
		return status;
	gradients->exact = gradients->layout.elements;
	if (options->exact > 0)
		gradients->exact = gradients->layout.views[options->exact - 1].offset;
	return 0;
}

static int copy_names(struct ddp_gradients *gradients, const struct ddp_parameter *parameters,
		      size_t count)
{
	size_t bytes = 0;
	char *to;

	for (size_t i = 0; i < count; i++)
		bytes += strlen(parameters[i].name) + 1;
	to = gradients->names = malloc(bytes);
	if (!to)
		return ddp_error_set(&gradients->ddp->error, DDP_ERR_MEMORY,
				     "gradients: out of memory");
	for (size_t i = 0; i < count; i++)
		to = stpcpy(to, parameters[i].name) + 1;
	return 0;
}

static const char *name_of(const struct ddp_gradients *gradients, size_t index)
{
	const char *name = gradients->names;

	while (index-- > 0)
		name += strlen(name) + 1;
	return name;
}

/* The sum of bucket number [job] modulo their number: what the carrier does. */
static int sum_bucket(void *owner, uint64_t job)
{
	struct ddp_gradients *gradients = owner;
	const struct ddp_bucket *bucket =
		&gradients->layout.buckets[job % gradients->layout.bucket_count];
	size_t end = bucket->offset + bucket->count, exact = gradients->exact;

	exact = exact > bucket->offset ? exact : bucket->offset;
	return ddp_reducer_run(&gradients->reducer,
			       gradients->arena + bucket->offset * gradients->size, bucket->count,
			       end > exact ? end - exact : 0);
}

/* What concerns all ranks, in the order that all keep. */
static int join(struct ddp_gradients *gradients, const struct ddp_gradients_options *options,
		const struct ddp_parameter *parameters, size_t count)
{
	struct ddp *ddp = gradients->ddp;
	size_t bytes = gradients->layout.elements * gradients->size;
	double scale = options->sum ? 1 : 1.0 / ddp->world.size;
	void *arena = NULL;
	int status = ddp_gradients_agree(ddp, options, parameters, count);

	if (status < 0)
		return status;
	if (options->device) {
		gradients->reducer = (struct ddp_reducer){.ddp = ddp,
							  .type = options->type,
							  .wire = options->wire,
							  .scale = scale,
							  .device = true};
		return 0;
	}
	status = ddp_arena_create(ddp, bytes ? bytes : DDP_VIEW_ALIGNMENT, &arena);
	if (status < 0)
		return status;
	gradients->arena = arena;
	status = ddp_reducer_create(&gradients->reducer, ddp, options->type, options->wire, scale,
				    ddp_layout_largest(&gradients->layout));
	if (status == 0 && ddp->engine)
		status =
			ddp_carrier_create(&gradients->carrier, sum_bucket, gradients, &ddp->error);
	return status;
}

int ddp_gradients_create(struct ddp_gradients **result, struct ddp *ddp,
			 const struct ddp_gradients_options *given,
			 const struct ddp_parameter *parameters, size_t count)
{
	struct ddp_gradients *gradients = NULL;
	struct ddp_gradients_options options;
	int status;

	*result = NULL;
	status = take_options(&ddp->error, given, &options);
	if (status == 0)
		status = check_parameters(&ddp->error, parameters, count);
	if (status < 0)
		goto fail;
	gradients = calloc(1, sizeof(*gradients));
	if (!gradients) {
		status = ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "gradients: out of memory");
		goto fail;
	}
	gradients->ddp = ddp;
	gradients->type = options.type;
	gradients->size = ddp_type_size(options.type);
	gradients->device = options.device;
	gradients->sync = gradients->sync_next = true;
	status = lay_out(gradients, &options, parameters, count);
	if (status == 0)
		status = copy_names(gradients, parameters, count);
	if (status == 0)
		status = join(gradients, &options, parameters, count);
	if (status < 0)
		goto fail;
	*result = gradients;
	return 0;
fail:
	ddp_gradients_destroy(gradients);
	return ddp_fail_call(ddp, status);
}

void ddp_gradients_destroy(struct ddp_gradients *gradients)
{
	if (!gradients)
		return;
	ddp_carrier_destroy(gradients->carrier);
	ddp_layout_destroy(&gradients->layout);
	free(gradients->names);
	free(gradients);
}

/* --- Look ------------------------------------------------------------------------------- */

void *ddp_gradients_view(struct ddp_gradients *gradients, size_t index)
{
	if (index >= gradients->layout.view_count || !gradients->arena)
		return NULL;
	return gradients->arena + gradients->layout.views[index].offset * gradients->size;
}

size_t ddp_gradients_offset(const struct ddp_gradients *gradients, size_t index)
{
	if (index >= gradients->layout.view_count)
		return gradients->layout.elements;
	return gradients->layout.views[index].offset;
}

void *ddp_gradients_all(struct ddp_gradients *gradients, size_t *count)
{
	*count = gradients->layout.elements;
	return gradients->arena;
}

size_t ddp_gradients_bucket(const struct ddp_gradients *gradients, size_t index)
{
	if (index >= gradients->layout.view_count)
		return gradients->layout.bucket_count;
	return gradients->layout.views[index].bucket;
}

size_t ddp_gradients_buckets(const struct ddp_gradients *gradients)
{
	return gradients->layout.bucket_count;
}

/* --- Place ------------------------------------------------------------------------------ */

/* The arena, a bucket on its way, the counter: each begins at a multiple of DEVICE_ALIGNMENT. */
static size_t find_parts(const struct ddp_gradients *gradients, size_t *packed, size_t *counter)
{
	const struct ddp_reducer *reducer = &gradients->reducer;
	size_t mask = DEVICE_ALIGNMENT - 1, largest = 0;

	if (reducer->wire != reducer->type && gradients->ddp->world.size > 1)
		largest = ddp_layout_largest(&gradients->layout) * ddp_type_size(reducer->wire);
	*packed = (gradients->layout.elements * gradients->size + mask) & ~mask;
	*counter = (*packed + largest + mask) & ~mask;
	return *counter + DEVICE_ALIGNMENT;
}

size_t ddp_gradients_bytes(const struct ddp_gradients *gradients)
{
	size_t packed, counter;

	return gradients->device ? find_parts(gradients, &packed, &counter) : 0;
}

int ddp_gradients_place(struct ddp_gradients *gradients, void *memory, void *stream,
			uint64_t *progress)
{
	struct ddp *ddp = gradients->ddp;
	size_t packed, counter;

	if (!gradients->device || !memory) {
		ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT, "gradients: %s",
			      memory ? "not of a device" : "no memory");
		return ddp_fail_call(ddp, DDP_ERR_ARGUMENT);
	}
	if (ddp->world.size > 1 && !ddp->device) {
		ddp_error_set(&ddp->error, DDP_ERR_STATE,
			      "gradients on devices need ddp_device_join(), or "
			      "ddp_options.device at ddp_init");
		return ddp_fail_call(ddp, DDP_ERR_STATE);
	}
	if (ddp->device && !stream)
		stream = ddp->device_engine->stream(ddp->device);
	(void)find_parts(gradients, &packed, &counter);
	gradients->arena = memory;
	gradients->reducer.packed = gradients->arena + packed;
	gradients->reducer.stream = stream;
	gradients->counter = (uint64_t *)(void *)(gradients->arena + counter);
	gradients->progress = progress;
	return 0;
}

/* --- Step ------------------------------------------------------------------------------- */

/* What is enqueued on [later] goes on behind what is on [earlier] now; NULL is the library's stream. */
static int order(struct ddp_gradients *gradients, void *later, void *earlier)
{
	struct ddp *ddp = gradients->ddp;
	void *own;

	/* Alone, without a device of ours. */
	if (!ddp->device)
		return 0;
	own = ddp->device_engine->stream(ddp->device);
	later = later ? later : own;
	earlier = earlier ? earlier : own;
	if (later == earlier)
		return 0;
	return ddp_fail_call(ddp, ddp->device_module->order(later, earlier, &ddp->error));
}

/* Enqueue the sum of [bucket]. */
static int enqueue(struct ddp_gradients *gradients, size_t bucket)
{
	struct ddp *ddp = gradients->ddp;
	void *stream = gradients->reducer.stream;
	int status;

	status = order(gradients, stream, gradients->from);
	if (status < 0 || ddp->world.size == 1)
		return status;
	status = sum_bucket(gradients, bucket);
	if (status < 0 || !gradients->progress)
		return status;
	return ddp_fail_call(ddp, ddp->device_module->count(stream, gradients->counter,
							    gradients->progress, &ddp->error));
}

/* Begin the sum of the next bucket; with a carrier, an error may be an earlier one's. */
static int launch(struct ddp_gradients *gradients)
{
	size_t bucket = gradients->launched++;

	if (gradients->carrier)
		gradients->status = ddp_carrier_post(gradients->carrier);
	else if (gradients->status == 0)
		gradients->status = gradients->device ? enqueue(gradients, bucket)
						      : sum_bucket(gradients, bucket);
	return gradients->status;
}

/* An error of the caller's, put where the carrier does not write at the same time. */
static int refuse(struct ddp_gradients *gradients, int status, const char *text, size_t index)
{
	const char *name = "";

	if (gradients->carrier)
		ddp_carrier_wait(gradients->carrier);
	if (index < gradients->layout.view_count)
		name = name_of(gradients, index);
	ddp_error_set(&gradients->ddp->error, status, "gradients: parameter %zu %s%s%s", index,
		      name, *name ? " " : "", text);
	return ddp_fail_call(gradients->ddp, status);
}

/* Whether a call is one for gradients where these are. */
static int expect(struct ddp_gradients *gradients, bool device)
{
	if (gradients->device == device && gradients->arena)
		return 0;
	ddp_error_set(&gradients->ddp->error, DDP_ERR_STATE,
		      gradients->device == device
			      ? "gradients: on a device they need ddp_gradients_place() first"
		      : device ? "gradients: in host memory they are ready, not ready_on a stream"
			       : "gradients: on a device they are ready_on a stream and "
				 "finish_on it");
	return ddp_fail_call(gradients->ddp, DDP_ERR_STATE);
}

static int ready(struct ddp_gradients *gradients, size_t index)
{
	struct ddp_layout *layout = &gradients->layout;

	if (index >= layout->view_count)
		return refuse(gradients, DDP_ERR_ARGUMENT, "does not exist", index);
	if (!gradients->sync)
		return 0;
	if (layout->views[index].ready)
		return refuse(gradients, DDP_ERR_STATE, "is ready for the second time in one step",
			      index);
	layout->views[index].ready = true;
	gradients->marked++;
	layout->buckets[layout->views[index].bucket].waiting--;
	while (gradients->status == 0 && gradients->launched < layout->bucket_count &&
	       layout->buckets[gradients->launched].waiting == 0)
		launch(gradients);
	return gradients->status;
}

int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index)
{
	int status = expect(gradients, false);

	return status < 0 ? status : ready(gradients, index);
}

/* Sums go behind the stream that came last: where it is another one, behind that before it now. */
static int turn_to(struct ddp_gradients *gradients, void *stream)
{
	int status = expect(gradients, true);

	if (status == 0 && gradients->marked > 0 && gradients->from != stream)
		status = order(gradients, gradients->reducer.stream, gradients->from);
	gradients->from = stream;
	return status;
}

int ddp_gradients_ready_on(struct ddp_gradients *gradients, size_t index, void *stream)
{
	int status = turn_to(gradients, stream);

	return status < 0 ? status : ready(gradients, index);
}

static int wait_sums(struct ddp_gradients *gradients)
{
	while (gradients->launched < gradients->layout.bucket_count)
		launch(gradients);
	if (gradients->carrier)
		gradients->status = ddp_carrier_wait(gradients->carrier);
	return gradients->status;
}

static int finish(struct ddp_gradients *gradients)
{
	int status = gradients->sync ? wait_sums(gradients) : gradients->status;

	ddp_layout_reset(&gradients->layout);
	gradients->marked = 0;
	gradients->launched = 0;
	return status;
}

int ddp_gradients_finish(struct ddp_gradients *gradients)
{
	int status = expect(gradients, false);

	if (status == 0)
		status = finish(gradients);
	gradients->sync = gradients->sync_next;
	return status;
}

int ddp_gradients_finish_on(struct ddp_gradients *gradients, void *stream)
{
	int status = turn_to(gradients, stream);

	if (status == 0)
		status = finish(gradients);
	if (status == 0 && gradients->sync)
		status = order(gradients, stream, gradients->reducer.stream);
	gradients->sync = gradients->sync_next;
	return status;
}

void ddp_gradients_set_sync(struct ddp_gradients *gradients, bool sync)
{
	gradients->sync_next = sync;
	/* In the middle of a step some buckets may be summed already: it goes on as it began. */
	if (gradients->marked == 0)
		gradients->sync = sync;
}

/* --- Norm ------------------------------------------------------------------------------- */

static bool is_here(const struct ddp_gradients *gradients)
{
	if (!gradients->device)
		return true;
	ddp_error_set(&gradients->ddp->error, DDP_ERR_UNSUPPORTED,
		      "gradients: norm and clip are of host memory, not of a device's");
	return false;
}

double ddp_gradients_norm(const struct ddp_gradients *gradients)
{
	if (!is_here(gradients))
		return NAN;
	return ddp_norm(gradients->arena, gradients->type, gradients->layout.elements);
}

double ddp_gradients_clip(struct ddp_gradients *gradients, double limit)
{
	double norm = ddp_gradients_norm(gradients);

	if (!gradients->device)
		ddp_scale(gradients->arena, gradients->type, gradients->layout.elements,
			  ddp_clip_factor(norm, limit));
	return norm;
}
