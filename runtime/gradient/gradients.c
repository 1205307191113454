/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounded.h"
#include "buckets.h"
#include "comm/ddp-private.h"
#include "comm/recorder.h"
#include "device/device-engine.h"
#include "local/kernel.h"
#include "statistics.h"
#include "virtual.h"

/* Of what follows the arena in the caller's device memory. */
enum { DEVICE_ALIGNMENT = 256 };

/* Elements converted at a time, so that the f32 in between stays in the first cache. */
#define PIECE 2048u

struct ddp_gradients {
	struct ddp *ddp;
	enum ddp_type type, wire;
	size_t size;  /* of an element */
	double scale; /* of the sums */
	struct ddp_layout layout;
	size_t exact; /* elements from here on go as they are */
	char *arena;  /* on a device NULL until there is one */
	char *names;  /* of the parameters, each with its zero byte */
	void *packed; /* an arena for the largest bucket in [wire]; NULL where that is [type] */
	struct ddp_virtual *virtual; /* what sums those of virtual ranks; NULL: there are none */
	struct worker *worker;	     /* NULL with one group: it could only take the core away */

	bool device;		      /* the arena is there, and what is packed; sums are on */
	void *stream;		      /* this one, */
	void *from;		      /* behind the stream on which gradients became ready last */
	uint64_t *counter, *progress; /* buckets that were summed, there and for the host */

	size_t marked;	 /* parameters that are ready in this step */
	size_t launched; /* buckets whose sum has begun in this step */
	bool sync;	 /* in this step */
	bool sync_next;	 /* in the steps after it */
	int status;	 /* the first error of a sum: there is no going on */
};

/* --- The sum of a bucket ---------------------------------------------------------------- */

/*
 * What the sum is divided by before the conversion to the type on the wire, and multiplied with
 * after the way back. In f16, which ends at 65504, the sum of gradients that fit might not, so they
 * are divided by the power of two that is not less than the number of ranks: that is exact but for
 * subnormal numbers, whose last bits dividing by that number would lose too. bf16 has the range of
 * f32.
 */
static double wire_divisor(const struct ddp_gradients *gradients)
{
	double power = 1;

	while (gradients->wire == DDP_F16 && power < gradients->ddp->world.size)
		power *= 2;
	return power;
}

static void pack(const struct ddp_gradients *gradients, const void *data, size_t count,
		 double factor)
{
	size_t size = ddp_type_size(gradients->wire);
	const float *f32 = data;
	const double *f64 = data;
	float piece[PIECE];

	for (size_t i = 0; i < count; i += PIECE) {
		size_t part = count - i < PIECE ? count - i : PIECE;

		for (size_t j = 0; j < part; j++) {
			if (gradients->type == DDP_F64)
				piece[j] = (float)(f64[i + j] * factor);
			else
				piece[j] = f32[i + j] * (float)factor;
		}
		ddp_convert((char *)gradients->packed + i * size, gradients->wire, piece, DDP_F32,
			    part, gradients->ddp->simd);
	}
}

static void unpack(const struct ddp_gradients *gradients, void *data, size_t count, double factor)
{
	size_t size = ddp_type_size(gradients->wire);
	float *f32 = data;
	double *f64 = data;
	float piece[PIECE];

	for (size_t i = 0; i < count; i += PIECE) {
		size_t part = count - i < PIECE ? count - i : PIECE;

		ddp_convert(piece, DDP_F32, (char *)gradients->packed + i * size, gradients->wire,
			    part, gradients->ddp->simd);
		for (size_t j = 0; j < part; j++) {
			if (gradients->type == DDP_F64)
				f64[i + j] = (double)piece[j] * factor;
			else
				f32[i + j] = piece[j] * (float)factor;
		}
	}
}

static int convert(const struct ddp_gradients *gradients, void *to, enum ddp_type to_type,
		   const void *from, enum ddp_type from_type, size_t count, double factor)
{
	struct ddp *ddp = gradients->ddp;

	return ddp_fail_call(ddp, ddp->device_module->convert(gradients->stream, to, to_type, from,
							      from_type, count, (float)factor,
							      &ddp->error));
}

static int sum_there(const struct ddp_gradients *gradients, void *data, size_t count,
		     enum ddp_type type, double scale)
{
	int status = ddp_device_all_reduce(gradients->ddp, data, data, count, type, DDP_SUM,
					   gradients->stream);

	if (status < 0 || scale == 1)
		return status;
	return convert(gradients, data, type, data, type, count, scale);
}

static int sum(const struct ddp_gradients *gradients, void *data, size_t count, enum ddp_type type,
	       double scale)
{
	if (gradients->device)
		return sum_there(gradients, data, count, type, scale);
	return ddp_all_reduce_scaled(gradients->ddp, data, data, count, type, DDP_SUM, scale);
}

static int sum_packed(const struct ddp_gradients *gradients, void *data, size_t count)
{
	double divisor = wire_divisor(gradients), before = 1 / divisor;
	double after = gradients->scale * divisor;
	int status = 0;

	if (gradients->device)
		status = convert(gradients, gradients->packed, gradients->wire, data,
				 gradients->type, count, before);
	else
		pack(gradients, data, count, before);
	if (status == 0)
		status = sum(gradients, gradients->packed, count, gradients->wire, 1);
	if (status < 0)
		return status;
	if (gradients->device)
		return convert(gradients, data, gradients->type, gradients->packed, gradients->wire,
			       count, after);
	unpack(gradients, data, count, after);
	return 0;
}

/* Sum bucket [job] modulo their number, over all ranks: in host memory now, on a device enqueued. */
static int sum_bucket(struct ddp_gradients *gradients, uint64_t job)
{
	const struct ddp_bucket *bucket =
		&gradients->layout.buckets[job % gradients->layout.bucket_count];
	size_t end = bucket->offset + bucket->count, exact = gradients->exact;
	char *data = gradients->arena + bucket->offset * gradients->size;
	size_t packed;
	int status = 0;

	exact = exact > bucket->offset ? exact : bucket->offset;
	packed = end > exact ? exact - bucket->offset : bucket->count;
	if (gradients->virtual)
		return ddp_virtual_sum(gradients->virtual, job % gradients->layout.bucket_count,
				       gradients->arena, gradients->scale);
	if (gradients->wire == gradients->type)
		return sum(gradients, data, bucket->count, gradients->type, gradients->scale);
	if (packed > 0)
		status = sum_packed(gradients, data, packed);
	if (status < 0 || packed == bucket->count)
		return status;
	return sum(gradients, data + packed * gradients->size, bucket->count - packed,
		   gradients->type, gradients->scale);
}

/* --- The thread ------------------------------------------------------------------------- */

/*
 * A thread that sums buckets in order while the caller computes. After the first error what is
 * posted is dropped. Nothing here waits longer than for the sum of a bucket.
 */
struct worker {
	struct ddp_gradients *gradients;
	pthread_t thread;
	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t changed;
	uint64_t posted, done;
	int status; /* the first error */
	bool stop;
};

/* One job, with the mutex held before and after. */
static void work(struct worker *worker)
{
	uint64_t job = worker->done;
	int status = worker->status;

	if (status == 0) {
		pthread_mutex_unlock(&worker->mutex);
		status = sum_bucket(worker->gradients, job);
		pthread_mutex_lock(&worker->mutex);
	}
	if (status < 0)
		worker->status = status;
	worker->done++;
	pthread_cond_broadcast(&worker->changed);
}

static void *run(void *argument)
{
	struct worker *worker = argument;

	pthread_mutex_lock(&worker->mutex);
	while (!worker->stop) {
		if (worker->done < worker->posted)
			work(worker);
		else
			pthread_cond_wait(&worker->changed, &worker->mutex);
	}
	pthread_mutex_unlock(&worker->mutex);
	return NULL;
}

static int worker_create(struct ddp_gradients *gradients)
{
	struct ddp_error *error = &gradients->ddp->error;
	struct worker *worker = calloc(1, sizeof(*worker));
	int rc;

	if (!worker)
		return ddp_error_set(error, DDP_ERR_MEMORY, "gradients: out of memory");
	worker->gradients = gradients;
	pthread_mutex_init(&worker->mutex, NULL);
	pthread_cond_init(&worker->changed, NULL);
	rc = ddp_thread_start(&worker->thread, run, worker);
	if (rc != 0) {
		pthread_cond_destroy(&worker->changed);
		pthread_mutex_destroy(&worker->mutex);
		free(worker);
		errno = rc;
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "gradients: starting the communication thread");
	}
	gradients->worker = worker;
	return 0;
}

/* Drop what is not begun, wait for what is, end the thread. */
static void worker_destroy(struct worker *worker)
{
	if (!worker)
		return;
	pthread_mutex_lock(&worker->mutex);
	worker->stop = true;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->mutex);
	free(worker);
}

/* One more bucket. Returns 0, or the error of an earlier one. */
static int worker_post(struct worker *worker)
{
	int status;

	pthread_mutex_lock(&worker->mutex);
	worker->posted++;
	status = worker->status;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	return status;
}

/* Wait for all that was posted. Returns 0, or the first error. */
static int worker_wait(struct worker *worker)
{
	int status;

	pthread_mutex_lock(&worker->mutex);
	while (worker->done < worker->posted)
		pthread_cond_wait(&worker->changed, &worker->mutex);
	status = worker->status;
	pthread_mutex_unlock(&worker->mutex);
	return status;
}

/* --- Create ----------------------------------------------------------------------------- */

/* Whether callers were compiled with this ddp.h, or one before [exact] or [virtual_ranks]. */
static bool is_known(size_t size)
{
	return size == sizeof(struct ddp_gradients_options) ||
	       size == offsetof(struct ddp_gradients_options, virtual_ranks) ||
	       size == offsetof(struct ddp_gradients_options, exact);
}

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
	if (options->virtual_ranks > 0 && options->wire != options->type)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "gradients: those of virtual ranks travel as doubles: the "
				     "type on the wire is that of the views");
	if (options->virtual_ranks > 0 && options->device)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "gradients: those of virtual ranks are summed in host memory, "
				     "not on a device");
	return 0;
}

static int take_options(struct ddp_error *error, const struct ddp_gradients_options *given,
			struct ddp_gradients_options *options)
{
	*options = (struct ddp_gradients_options)DDP_GRADIENTS_OPTIONS_INIT;
	if (given && !is_known(given->size))
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

/* What concerns all ranks, in the order that all keep. */
static int join(struct ddp_gradients *gradients, const struct ddp_gradients_options *options,
		const struct ddp_parameter *parameters, size_t count)
{
	struct ddp *ddp = gradients->ddp;
	size_t bytes = gradients->layout.elements * gradients->size;
	size_t largest = ddp_layout_largest(&gradients->layout) * ddp_type_size(options->wire);
	void *arena = NULL;
	int status = ddp_layout_agree(ddp, options, parameters, count);

	if (status < 0 || options->device)
		return status;
	status = ddp_arena_create(ddp, bytes ? bytes : DDP_VIEW_ALIGNMENT, &arena);
	if (status < 0)
		return status;
	gradients->arena = arena;
	if (options->wire != options->type)
		status = ddp_arena_create(ddp, largest ? largest : 1, &gradients->packed);
	if (status == 0 && options->virtual_ranks > 0)
		status = ddp_virtual_create(&gradients->virtual, ddp, &gradients->layout,
					    options->type, options->virtual_ranks);
	if (status == 0 && ddp->engine)
		status = worker_create(gradients);
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
	gradients->wire = options.wire;
	gradients->scale = 1;
	if (!options.sum)
		gradients->scale /=
			options.virtual_ranks > 0 ? (double)options.virtual_ranks : ddp->world.size;
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
	worker_destroy(gradients->worker);
	ddp_virtual_destroy(gradients->virtual);
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
	size_t mask = DEVICE_ALIGNMENT - 1, largest = 0;

	if (gradients->wire != gradients->type && gradients->ddp->world.size > 1)
		largest = ddp_layout_largest(&gradients->layout) * ddp_type_size(gradients->wire);
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
	gradients->packed = gradients->arena + packed;
	gradients->stream = stream;
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
	void *stream = gradients->stream;
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

/* Begin the sum of the next bucket; with a worker, an error may be an earlier one's. */
static int launch(struct ddp_gradients *gradients)
{
	size_t bucket = gradients->launched++;

	if (gradients->virtual && !ddp_virtual_is_last(gradients->virtual))
		ddp_virtual_keep(gradients->virtual, bucket, gradients->arena);
	else if (gradients->worker)
		gradients->status = worker_post(gradients->worker);
	else if (gradients->status == 0)
		gradients->status = gradients->device ? enqueue(gradients, bucket)
						      : sum_bucket(gradients, bucket);
	return gradients->status;
}

/* An error of the caller's, put where the worker does not write at the same time. */
static int fail_parameter(struct ddp_gradients *gradients, int status, const char *text,
			  size_t index)
{
	const char *name = "";

	if (gradients->worker)
		worker_wait(gradients->worker);
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
		return fail_parameter(gradients, DDP_ERR_ARGUMENT, "does not exist", index);
	if (!gradients->sync)
		return 0;
	if (layout->views[index].ready)
		return fail_parameter(gradients, DDP_ERR_STATE,
				      "is ready for the second time in one step", index);
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
		status = order(gradients, gradients->stream, gradients->from);
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
	if (gradients->worker)
		gradients->status = worker_wait(gradients->worker);
	return gradients->status;
}

static int finish(struct ddp_gradients *gradients)
{
	int status = gradients->sync ? wait_sums(gradients) : gradients->status;

	if (gradients->virtual && gradients->sync)
		ddp_virtual_next(gradients->virtual);
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
		status = order(gradients, stream, gradients->stream);
	if (status == 0)
		ddp_recorder_beat(gradients->ddp->recorder);
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
