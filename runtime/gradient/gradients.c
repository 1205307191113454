/* SPDX-License-Identifier: Apache-2.0 */
/* gradients.c - sum gradients bucket by bucket while the backward pass runs */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounded.h"
#include "base/checksum.h"
#include "base/kernel.h"
#include "buckets.h"
#include "device/device-sums.h"
#include "statistics.h"
#include "virtual.h"

/* Alignment of each part of the device memory that the caller provides, in bytes. */
enum { DEVICE_ALIGNMENT = 256 };

/* Number of elements that are converted at a time, so that the f32 buffer stays in the L1 cache. */
#define PIECE 2048u

struct ddp_gradients {
	struct ddp *ddp;
	int ranks;
	enum ddp_simd simd;
	enum ddp_type type, wire;
	size_t size;  /* bytes of an element */
	double scale; /* factor applied to the sums */
	struct ddp_layout layout;
	size_t exact; /* elements from this offset on are not converted to [wire] */
	char *arena;  /* NULL on a device until ddp_gradients_place() */
	char *names;  /* the parameters' names, each with its terminating zero */
	void *packed; /* buffer of type [wire] for the largest bucket; NULL if [wire] is [type] */
	struct ddp_virtual *virtual; /* sums of virtual ranks; NULL: no virtual ranks */
	/*
	 * thread that sums buckets; NULL with one group, since it would only compete for the core
	 */
	struct worker *worker;

	bool device;	    /* arena and [packed] are in device memory */
	void *stream;	    /* on a device: stream of the sums */
	void *from;	    /* on a device: stream on which gradients last became ready */
	uint64_t *progress; /* on a device: number of summed buckets, for the caller; may be NULL */

	/*
	 * Staged sums: [stream] copies each bucket to host memory. The bucket is packed and summed
	 * there, and [stream] copies the sums back.
	 */
	struct ddp_stage stage; /* its host memory is NULL if sums are not staged */
	bool captured;		/* a CUDA graph contains the copies to the host */

	size_t marked;	 /* parameters that are ready in this step */
	size_t launched; /* buckets whose sum has started in this step */
	bool sync;	 /* gradients are summed in this step */
	bool sync_next;	 /* value of [sync] for the following steps */
	int status;	 /* first error of a sum; all later calls fail with it */
};

/* --- Sum of a bucket -------------------------------------------------------------------- */

/*
 * Returns the divisor that gradients are divided by before the conversion to the wire type. After
 * the sum, the division is undone. It is needed because sums of f16 gradients could exceed 65504,
 * the largest f16. The divisor is the smallest power of two that is not less than the number of
 * ranks. The division is exact except for subnormal results, which would also lose bits if the
 * divisor were the number of ranks. bf16 has the range of f32 and needs no divisor.
 */
static double wire_divisor(const struct ddp_gradients *gradients)
{
	double power = 1;

	while (gradients->wire == DDP_F16 && power < gradients->ranks)
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
			    part, gradients->simd);
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
			    part, gradients->simd);
		for (size_t j = 0; j < part; j++) {
			if (gradients->type == DDP_F64)
				f64[i + j] = (double)piece[j] * factor;
			else
				f32[i + j] = piece[j] * (float)factor;
		}
	}
}

static int convert_on_device(const struct ddp_gradients *gradients, void *to, enum ddp_type to_type,
			     const void *from, enum ddp_type from_type, size_t count, double factor)
{
	return ddp_device_convert(gradients->ddp, gradients->stream, to, to_type, from, from_type,
				  count, factor);
}

static int sum_on_device(const struct ddp_gradients *gradients, void *data, size_t count,
			 enum ddp_type type, double scale)
{
	int status = ddp_device_all_reduce(gradients->ddp, data, data, count, type, DDP_SUM,
					   gradients->stream);

	if (status < 0 || scale == 1)
		return status;
	return convert_on_device(gradients, data, type, data, type, count, scale);
}

static bool is_summed_on_device(const struct ddp_gradients *gradients)
{
	return gradients->device && !gradients->stage.host;
}

static int sum(const struct ddp_gradients *gradients, void *data, size_t count, enum ddp_type type,
	       double scale)
{
	if (is_summed_on_device(gradients))
		return sum_on_device(gradients, data, count, type, scale);
	return ddp_all_reduce_scaled(gradients->ddp, data, data, count, type, DDP_SUM, scale);
}

static int sum_packed(const struct ddp_gradients *gradients, void *data, size_t count)
{
	bool on_device = is_summed_on_device(gradients);
	double divisor = wire_divisor(gradients), before = 1 / divisor;
	double after = gradients->scale * divisor;
	int status = 0;

	if (on_device)
		status = convert_on_device(gradients, gradients->packed, gradients->wire, data,
					   gradients->type, count, before);
	else
		pack(gradients, data, count, before);
	if (status == 0)
		status = sum(gradients, gradients->packed, count, gradients->wire, 1);
	if (status < 0)
		return status;
	if (on_device)
		return convert_on_device(gradients, data, gradients->type, gradients->packed,
					 gradients->wire, count, after);
	unpack(gradients, data, count, after);
	return 0;
}

/*
 * Sum one bucket over all ranks. The bucket's index is [job] modulo the number of buckets. In host
 * memory the sum is complete on return. With NCCL the sum is only enqueued on return.
 */
static int sum_bucket(struct ddp_gradients *gradients, uint64_t job)
{
	const struct ddp_bucket *bucket =
		&gradients->layout.buckets[job % gradients->layout.bucket_count];
	size_t end = bucket->offset + bucket->count, exact = gradients->exact;
	char *arena = gradients->stage.host ? gradients->stage.host : gradients->arena;
	char *data = arena + bucket->offset * gradients->size;
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

/* --- Communication thread --------------------------------------------------------------- */

/*
 * A thread that sums buckets in order while the caller computes. A job is the sum of one bucket.
 * After the first error, posted jobs are dropped.
 */
struct worker {
	struct ddp_gradients *gradients;
	pthread_t thread;
	pthread_mutex_t mutex; /* protects all members below */
	pthread_cond_t changed;
	uint64_t posted, done;
	int status; /* the first error */
	bool stop;
};

/* Sum the next posted bucket. The mutex is locked on entry and return, but not during the sum. */
static void do_job(struct worker *worker)
{
	uint64_t job = worker->done;
	int status = worker->status;

	if (status == 0) {
		pthread_mutex_unlock(&worker->mutex);
		ddp_lock(worker->gradients->ddp);
		status = sum_bucket(worker->gradients, job);
		ddp_unlock(worker->gradients->ddp);
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
			do_job(worker);
		else
			pthread_cond_wait(&worker->changed, &worker->mutex);
	}
	pthread_mutex_unlock(&worker->mutex);
	return NULL;
}

static int worker_create(struct ddp_gradients *gradients)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int rc;

	if (!worker)
		return ddp_fail_with(gradients->ddp, DDP_ERR_MEMORY, "gradients: out of memory");
	worker->gradients = gradients;
	pthread_mutex_init(&worker->mutex, NULL);
	pthread_cond_init(&worker->changed, NULL);
	rc = ddp_thread_start(&worker->thread, run, worker);
	if (rc != 0) {
		pthread_cond_destroy(&worker->changed);
		pthread_mutex_destroy(&worker->mutex);
		free(worker);
		return ddp_fail_with(gradients->ddp, DDP_ERR_SYSTEM,
				     "gradients: cannot start the communication thread: %s",
				     strerror(rc));
	}
	gradients->worker = worker;
	return 0;
}

/* Drop posted jobs that have not started, wait for the job that is running, and end the thread. */
static void worker_destroy(struct worker *worker)
{
	if (!worker)
		return;
	/* A forked child does not have this thread. */
	if (ddp_check_process(worker->gradients->ddp) < 0)
		goto out;
	pthread_mutex_lock(&worker->mutex);
	worker->stop = true;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->mutex);
out:
	free(worker);
}

/* Post the next bucket. Returns 0, or the error of an earlier bucket. */
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

/* Wait for all posted buckets. Returns 0, or the first error. */
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

/* --- Creation --------------------------------------------------------------------------- */

/*
 * Returns whether [size] is the size of the options in this ddp.h, or in an older ddp.h without
 * [virtual_ranks], or in one without [exact] as well.
 */
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
				     "the type of the views must be DDP_F32 or DDP_F64");
	if (options->device && options->type != DDP_F32)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "on a device the type of the views must be DDP_F32");
	if (options->wire != options->type && options->wire != DDP_BF16 && options->wire != DDP_F16)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "the type on the wire must be that of the views, DDP_BF16 or "
				     "DDP_F16");
	if (options->virtual_ranks > 0 && options->wire != options->type)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "virtual ranks are summed as doubles, so the type on the "
				     "wire must be that of the views");
	if (options->virtual_ranks > 0 && options->device)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "virtual ranks are summed in host memory, "
				     "not on a device");
	return 0;
}

static int read_options(struct ddp_error *error, const struct ddp_gradients_options *given,
			struct ddp_gradients_options *options)
{
	*options = (struct ddp_gradients_options)DDP_GRADIENTS_OPTIONS_INIT;
	if (given && !is_known(given->size))
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "the options have %zu bytes, not %zu. Begin with "
				     "DDP_GRADIENTS_OPTIONS_INIT.",
				     given->size, sizeof(*given));
	if (given)
		memcpy(options, given, given->size);
	return check_options(error, options);
}

static int check_parameters(struct ddp_error *error, const struct ddp_parameter *parameters,
			    size_t count)
{
	if (count == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "there are no parameters");
	for (size_t i = 0; i < count; i++) {
		if (!parameters[i].name)
			return ddp_error_set(error, DDP_ERR_ARGUMENT, "parameter %zu has no name",
					     i);
	}
	return 0;
}

static int lay_out(struct ddp_gradients *gradients, const struct ddp_gradients_options *options,
		   const struct ddp_parameter *parameters, size_t count, struct ddp_error *error)
{
	size_t limit = options->bucket_bytes ? options->bucket_bytes : DDP_BUCKET_BYTES;
	size_t first = options->first_bytes;
	int status;

	if (options->exact > count)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "exact is %zu, but there are %zu parameters", options->exact,
				     count);
	if (first == 0)
		first = limit < DDP_BUCKET_FIRST_BYTES ? limit : DDP_BUCKET_FIRST_BYTES;
	status = ddp_layout_create(&gradients->layout, parameters, count, gradients->size, first,
				   limit, error);
	if (status < 0)
		return status;
	gradients->exact = gradients->layout.elements;
	if (options->exact > 0)
		gradients->exact = gradients->layout.views[options->exact - 1].offset;
	return 0;
}

static int copy_names(struct ddp_gradients *gradients, const struct ddp_parameter *parameters,
		      size_t count, struct ddp_error *error)
{
	size_t bytes = 0;
	char *to;

	for (size_t i = 0; i < count; i++)
		bytes += strlen(parameters[i].name) + 1;
	to = gradients->names = malloc(bytes);
	if (!to)
		return ddp_error_set(error, DDP_ERR_MEMORY, "gradients: out of memory");
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

static uint64_t describe_parameter(const void *owner, size_t i, char line[DDP_ITEM_LINE])
{
	const struct ddp_parameter *parameter = (const struct ddp_parameter *)owner + i;
	uint64_t count = parameter->count;
	uint64_t hash = ddp_hash(DDP_HASH_INIT, parameter->name, strlen(parameter->name) + 1);

	if (line)
		snprintf(line, DDP_ITEM_LINE, "%.200s with %zu elements", parameter->name,
			 parameter->count);
	return ddp_hash(hash, &count, sizeof(count));
}

static uint64_t hash_options(const struct ddp_gradients_options *options)
{
	uint64_t words[] = {(uint64_t)options->type,
			    (uint64_t)options->wire,
			    options->first_bytes,
			    options->bucket_bytes,
			    options->sum,
			    options->exact,
			    options->device,
			    options->virtual_ranks};

	return ddp_hash(DDP_HASH_INIT, words, sizeof(words));
}

/*
 * Check that all ranks have the same options and [parameters]. Collective.
 * Returns 0; DDP_ERR_MISMATCH on all ranks; or the error of a collective. The handle's error names
 * the first rank that differs from rank 0 and the first parameter that differs.
 */
static int compare_options(struct ddp *ddp, const struct ddp_gradients_options *options,
			   const struct ddp_parameter *parameters, size_t count)
{
	const struct ddp_items items = {parameters, count, describe_parameter};
	int differing = ddp_find_differing(ddp, hash_options(options));

	if (differing < 0)
		return differing;
	if (differing < ddp_world(ddp)->size)
		return ddp_fail_with(ddp, DDP_ERR_MISMATCH,
				     "gradients: type, wire, bucket sizes, sum, exact, device or "
				     "virtual ranks of rank %d are not those of rank 0",
				     differing);
	return ddp_compare(ddp, "gradients: parameter", &items);
}

/* Do the collective part of the creation. All ranks make the same calls in the same order. */
static int create_collective(struct ddp_gradients *gradients,
			     const struct ddp_gradients_options *options,
			     const struct ddp_parameter *parameters, size_t count)
{
	struct ddp *ddp = gradients->ddp;
	size_t bytes = gradients->layout.elements * gradients->size;
	size_t largest = ddp_layout_largest(&gradients->layout) * ddp_type_size(options->wire);
	void *arena = NULL;
	int status = compare_options(ddp, options, parameters, count);

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
					    options->type, gradients->simd, options->virtual_ranks);
	if (status == 0 && strcmp(ddp_world(ddp)->wide, "none") != 0)
		status = worker_create(gradients);
	return status;
}

int ddp_gradients_create(struct ddp_gradients **result, struct ddp *ddp,
			 const struct ddp_gradients_options *given,
			 const struct ddp_parameter *parameters, size_t count)
{
	struct ddp_gradients *gradients = NULL;
	struct ddp_gradients_options options;
	struct ddp_error error;
	int status;

	*result = NULL;
	status = read_options(&error, given, &options);
	if (status == 0)
		status = check_parameters(&error, parameters, count);
	if (status < 0)
		goto fail;
	gradients = calloc(1, sizeof(*gradients));
	if (!gradients) {
		status = ddp_error_set(&error, DDP_ERR_MEMORY, "gradients: out of memory");
		goto fail;
	}
	gradients->ddp = ddp;
	gradients->ranks = ddp_world(ddp)->size;
	gradients->type = options.type;
	gradients->wire = options.wire;
	gradients->scale = 1;
	if (!options.sum)
		gradients->scale /= options.virtual_ranks > 0 ? (double)options.virtual_ranks
							      : gradients->ranks;
	gradients->size = ddp_type_size(options.type);
	gradients->device = options.device;
	gradients->sync = gradients->sync_next = true;
	status = ddp_simd_choose(&gradients->simd, &error);
	if (status == 0)
		status = lay_out(gradients, &options, parameters, count, &error);
	if (status == 0)
		status = copy_names(gradients, parameters, count, &error);
	if (status < 0)
		goto fail;
	status = create_collective(gradients, &options, parameters, count);
	if (status == 0)
		*result = gradients;
	else
		ddp_gradients_destroy(gradients);
	return status;
fail:
	ddp_gradients_destroy(gradients);
	if (status == DDP_ERR_MEMORY)
		return ddp_fail_with(ddp, status, "%s", error.text);
	return ddp_refuse(ddp, DDP_CALL_REFUSED_GRADIENTS_CREATE, status, "%s", error.text);
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

/* --- Queries ---------------------------------------------------------------------------- */

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

/* --- Device memory ---------------------------------------------------------------------- */

/* Returns the size in bytes of the arena, the first part of the caller's device memory. */
static size_t arena_bytes(const struct ddp_gradients *gradients)
{
	size_t bytes = gradients->layout.elements * gradients->size;

	return bytes + DEVICE_ALIGNMENT - bytes % DEVICE_ALIGNMENT;
}

static size_t packed_bytes(const struct ddp_gradients *gradients)
{
	if (gradients->wire == gradients->type || gradients->ranks == 1)
		return 0;
	return ddp_layout_largest(&gradients->layout) * ddp_type_size(gradients->wire);
}

/* The caller may clear this memory between steps, so no step uses data of an earlier step. */
size_t ddp_gradients_bytes(const struct ddp_gradients *gradients)
{
	return gradients->device ? arena_bytes(gradients) + packed_bytes(gradients) : 0;
}

/* Allocate host memory for staged sums. It is freed with the world. Collective. */
static int allocate_staging(struct ddp_gradients *gradients)
{
	struct ddp *ddp = gradients->ddp;
	size_t bytes = arena_bytes(gradients), packed = packed_bytes(gradients);
	void *host, *narrow = NULL;
	int status = ddp_device_arena(ddp, bytes + sizeof(uint64_t), &host);

	if (status == 0 && packed > 0)
		status = ddp_arena_create(ddp, packed, &narrow);
	if (status < 0)
		return status;
	gradients->packed = narrow;
	gradients->stage.host = host;
	gradients->stage.arrived = (uint64_t *)(void *)(gradients->stage.host + bytes);
	return 0;
}

int ddp_gradients_place(struct ddp_gradients *gradients, void *memory, void *stream,
			uint64_t *progress)
{
	struct ddp *ddp = gradients->ddp;
	bool joined = *ddp_device_path(ddp), several = gradients->ranks > 1;
	int status = ddp_check_process(ddp);

	if (status < 0)
		return status;
	if (!gradients->device || !memory)
		return ddp_refuse(ddp, DDP_CALL_REFUSED_GRADIENTS_PLACE, DDP_ERR_ARGUMENT, "%s",
				  memory ? "the gradients were not created for a device"
					 : "memory is NULL");
	if (several && !joined)
		return ddp_refuse(ddp, DDP_CALL_REFUSED_GRADIENTS_PLACE, DDP_ERR_STATE,
				  "gradients on devices need ddp_device_join(), or "
				  "ddp_options.device at ddp_init");
	if (!stream)
		stream = ddp_device_stream(ddp);
	if (several && !ddp_device_captures(ddp) && !gradients->stage.host) {
		status = allocate_staging(gradients);
		if (status < 0)
			return status;
	}
	if (gradients->arena != memory)
		gradients->captured = false; /* existing graphs copy the old memory */
	if (progress)
		*progress = 0;
	gradients->arena = gradients->stage.device = memory;
	if (!gradients->stage.host)
		gradients->packed = gradients->arena + arena_bytes(gradients);
	gradients->stream = gradients->stage.stream = stream;
	gradients->progress = progress;
	return 0;
}

/* --- Steps ------------------------------------------------------------------------------ */

/*
 * Sum all buckets of this step. Their copies to the host are enqueued on stream [waited]. While the
 * host sums one bucket, the next buckets are copied.
 */
static int sum_staged(struct ddp_gradients *gradients, void *waited)
{
	struct ddp_stage *stage = &gradients->stage;
	struct ddp *ddp = gradients->ddp;
	int status = 0;

	for (size_t bucket = 0; status == 0 && bucket < gradients->launched; bucket++) {
		const struct ddp_bucket *found = &gradients->layout.buckets[bucket];

		status = ddp_stage_await(ddp, stage, waited);
		if (status == 0)
			status = sum_bucket(gradients, bucket);
		if (status == 0)
			status = ddp_stage_return(ddp, stage, found->offset * gradients->size,
						  found->count * gradients->size);
		if (status == 0 && gradients->progress)
			__atomic_fetch_add(gradients->progress, 1, __ATOMIC_RELEASE);
	}
	if (status == 0 && __atomic_load_n(stage->arrived, __ATOMIC_ACQUIRE) > stage->awaited)
		return ddp_fail_with(
			ddp, DDP_ERR_STATE,
			"a graph that copies gradients was launched in a step without sums");
	return status;
}

/* Enqueue the sum of [bucket] or, if sums are staged, the copy of [bucket] to the host. */
static int enqueue(struct ddp_gradients *gradients, size_t bucket)
{
	struct ddp *ddp = gradients->ddp;
	void *stream = gradients->stream;
	const struct ddp_bucket *found = &gradients->layout.buckets[bucket];
	int status = ddp_device_order(ddp, stream, gradients->from);

	if (status < 0 || gradients->ranks == 1)
		return status;
	if (gradients->stage.host)
		return ddp_stage_send(ddp, &gradients->stage, found->offset * gradients->size,
				      found->count * gradients->size);
	status = sum_bucket(gradients, bucket);
	if (status < 0 || !gradients->progress)
		return status;
	return ddp_device_count(ddp, stream, gradients->progress);
}

/*
 * Start the sum of the next bucket. If there is a worker, the error that is returned can belong to
 * an earlier bucket.
 */
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

/*
 * Report an error that the caller made. First wait for the worker, since it may also write the
 * handle's error.
 */
static int fail_parameter(struct ddp_gradients *gradients, int status, const char *text,
			  size_t index)
{
	const char *name = "";

	if (gradients->worker)
		worker_wait(gradients->worker);
	if (index < gradients->layout.view_count)
		name = name_of(gradients, index);
	return ddp_report(gradients->ddp, status, "gradients: parameter %zu %s%s%s", index, name,
			  *name ? " " : "", text);
}

/*
 * Fail in a forked child, or if the gradients are not in the memory that the call requires: device
 * memory ([device]) or host memory. Also fail if device memory was not placed yet. If [finish], the
 * call is collective, so this rank refuses it together with the other ranks.
 */
static int expect_memory(struct ddp_gradients *gradients, bool device, bool finish)
{
	const char *why = gradients->device == device ? "the device memory was not placed. Call "
							"ddp_gradients_place() first."
			  : device		      ? "the gradients are in host memory. Call "
							"ddp_gradients_ready() and _finish()."
						      : "the gradients are in device memory. Call "
							"ddp_gradients_ready_on() and _finish_on().";

	int status = ddp_check_process(gradients->ddp);

	if (status < 0 || (gradients->device == device && gradients->arena))
		return status;
	if (gradients->worker)
		worker_wait(gradients->worker);
	if (finish)
		return ddp_refuse(gradients->ddp, DDP_CALL_REFUSED_GRADIENTS_FINISH, DDP_ERR_STATE,
				  "%s", why);
	return ddp_report(gradients->ddp, DDP_ERR_STATE, "gradients: %s", why);
}

static void reset(struct ddp_gradients *gradients)
{
	ddp_layout_reset(&gradients->layout);
	gradients->marked = 0;
	gradients->launched = 0;
}

/*
 * Call this once all copies to the host were captured. At the end of a capture, CUDA requires that
 * the stream on which it began waits for all other captured streams.
 */
static int end_capture(struct ddp_gradients *gradients)
{
	gradients->captured = true;
	reset(gradients);
	return ddp_device_order(gradients->ddp, gradients->from, gradients->stream);
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
	if (gradients->stage.host && gradients->status == 0 &&
	    gradients->launched == layout->bucket_count &&
	    ddp_device_is_captured(gradients->ddp, gradients->from))
		return end_capture(gradients);
	return gradients->status;
}

int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index)
{
	int status = expect_memory(gradients, false, false);

	return status < 0 ? status : ready(gradients, index);
}

/*
 * Set [stream] as the stream on which gradients become ready. Sums wait for the work on this
 * stream. If the stream changes, sums also wait for the work on the previous stream.
 */
static int set_stream(struct ddp_gradients *gradients, void *stream, bool finish)
{
	int status = expect_memory(gradients, true, finish);

	if (status == 0 && gradients->marked > 0 && gradients->from != stream)
		status = ddp_device_order(gradients->ddp, gradients->stream, gradients->from);
	gradients->from = stream;
	return status;
}

int ddp_gradients_ready_on(struct ddp_gradients *gradients, size_t index, void *stream)
{
	int status = set_stream(gradients, stream, false);

	return status < 0 ? status : ready(gradients, index);
}

static int wait_sums(struct ddp_gradients *gradients)
{
	void *stream = gradients->stream;

	/* In this step the caller launched a graph that contains the copies. */
	if (gradients->captured && gradients->marked == 0) {
		gradients->launched = gradients->layout.bucket_count;
		stream = gradients->from;
	}
	while (gradients->launched < gradients->layout.bucket_count)
		launch(gradients);
	if (gradients->worker)
		gradients->status = worker_wait(gradients->worker);
	if (gradients->stage.host && gradients->status == 0)
		gradients->status = sum_staged(gradients, stream);
	return gradients->status;
}

static int finish(struct ddp_gradients *gradients)
{
	int status = gradients->sync ? wait_sums(gradients) : gradients->status;

	if (gradients->virtual && gradients->sync)
		ddp_virtual_next(gradients->virtual);
	reset(gradients);
	return status;
}

int ddp_gradients_finish(struct ddp_gradients *gradients)
{
	int status = expect_memory(gradients, false, true);

	if (status == 0)
		status = finish(gradients);
	gradients->sync = gradients->sync_next;
	return status;
}

int ddp_gradients_finish_on(struct ddp_gradients *gradients, void *stream)
{
	int status = set_stream(gradients, stream, true);

	if (status == 0)
		status = finish(gradients);
	if (status == 0 && gradients->sync)
		status = ddp_device_order(gradients->ddp, stream, gradients->stream);
	if (status == 0)
		ddp_beat(gradients->ddp);
	gradients->sync = gradients->sync_next;
	return status;
}

void ddp_gradients_set_sync(struct ddp_gradients *gradients, bool sync)
{
	gradients->sync_next = sync;
	/*
	 * If some parameters are ready in this step, buckets may be summed already. In this case
	 * the change takes effect at the next step.
	 */
	if (gradients->marked == 0)
		gradients->sync = sync;
}

/* --- Norm ------------------------------------------------------------------------------- */

/* Returns whether this process can compute with the views. Else sets the handle's error. */
static bool has_views(const struct ddp_gradients *gradients)
{
	if (!gradients->device)
		return ddp_check_process(gradients->ddp) == 0;
	(void)ddp_report(gradients->ddp, DDP_ERR_UNSUPPORTED,
			 "gradients: norm and clip work in host memory, not on a device");
	return false;
}

double ddp_gradients_norm(const struct ddp_gradients *gradients)
{
	if (!has_views(gradients))
		return NAN;
	return ddp_norm(gradients->arena, gradients->type, gradients->layout.elements);
}

double ddp_gradients_clip(struct ddp_gradients *gradients, double limit)
{
	double norm = ddp_gradients_norm(gradients);

	if (has_views(gradients))
		ddp_scale(gradients->arena, gradients->type, gradients->layout.elements,
			  ddp_clip_factor(norm, limit));
	return norm;
}
