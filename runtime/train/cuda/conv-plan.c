/* SPDX-License-Identifier: Apache-2.0 */
/* conv-plan.c - build cuDNN graphs and execution plans of convolutions */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "base/xalloc.h"
#include "conv-plan.h"

/*
 * Limits of scratch memory: a base (the same as for cublasLt), and a fraction of the rank's memory.
 */
#define WORKSPACE_BASE ((size_t)32 << 20)
enum { WORKSPACE_PART = 8 };

/*
 * ALIGNMENT is in bytes, and all arrays of the engine are aligned to more. RESULTS is the maximum
 * number of cuDNN's proposals, which is more than its heuristics make.
 */
enum { ALIGNMENT = 16, RESULTS = 40 };

/* Numbers that identify a graph's intermediate tensors, which are not stored in memory. */
enum { INNER_SUM = CONV_TENSORS, INNER_BIASED };

/* Only the forward pass includes the bias and the ReLU. */
static bool has_bias(const struct conv_problem *problem)
{
	return problem->pass <= LAYER_TEST && problem->options->bias;
}

/* --- Sizes and titles ----------------------------------------------------------------------- */

/*
 * Shape of a tensor. [sizes] are in cuDNN's order: N, C, H, W or O, I, H, W. The order in memory is
 * N, H, W, C, which the strides passed to cuDNN describe.
 */
struct shape {
	int64_t sizes[4];
};

static struct shape shape_of(const struct conv_problem *problem, enum conv_tensor tensor)
{
	const struct layer_options *o = problem->options;
	int64_t batch = (int64_t)problem->batch;
	int rows = (o->height + 2 * o->pad - o->size) / o->stride + 1;
	int columns = (o->width + 2 * o->pad - o->size) / o->stride + 1;

	switch (tensor) {
	case CONV_X:
		return (struct shape){{batch, o->in, o->height, o->width}};
	case CONV_WEIGHTS:
		return (struct shape){{o->out, o->in, o->size, o->size}};
	case CONV_BIAS:
		return (struct shape){{1, o->out, 1, 1}};
	default:
		return (struct shape){{batch, o->out, rows, columns}};
	}
}

size_t conv_bytes(const struct conv_problem *problem, enum conv_tensor tensor)
{
	struct shape shape = shape_of(problem, tensor);
	size_t bytes = ddp_type_size(problem->options->type);

	for (int i = 0; i < 4; i++)
		bytes *= (size_t)shape.sizes[i];
	return bytes;
}

struct conv_problem conv_problem(const struct layer_options *options, enum layer_pass pass,
				 size_t memory)
{
	size_t batch = pass == LAYER_TEST ? options->test_batch : options->batch;
	struct conv_problem it = {options, pass, batch, 0};

	it.workspace = WORKSPACE_BASE + conv_bytes(&it, CONV_WEIGHTS) +
		       2 * (conv_bytes(&it, CONV_X) + conv_bytes(&it, CONV_Y));
	if (it.workspace > memory / WORKSPACE_PART)
		it.workspace = memory / WORKSPACE_PART;
	return it;
}

void conv_title(const struct conv_problem *problem, char *text, size_t size)
{
	static const char *const passes[] = {"forward pass", "forward pass of tests",
					     "gradient of data", "gradient of weights"};
	const struct layer_options *o = problem->options;

	snprintf(text, size, "%s, %s (%zux%dx%dx%d to %d, %dx%d, stride %d, pad %d, %s%s)", o->name,
		 passes[problem->pass], problem->batch, o->height, o->width, o->in, o->out, o->size,
		 o->size, o->stride, o->pad, ddp_type_name(o->type),
		 o->deterministic ? ", deterministic" : "");
}

bool conv_is_same(const struct conv_problem *one, const struct conv_problem *other)
{
	const struct layer_options *a = one->options, *b = other->options;
	bool forward = one->pass <= LAYER_TEST;

	if (forward ? other->pass > LAYER_TEST : one->pass != other->pass)
		return false;
	if (forward && (a->bias != b->bias || (a->bias && a->relu != b->relu)))
		return false;
	return one->batch == other->batch && one->workspace == other->workspace &&
	       a->height == b->height && a->width == b->width && a->in == b->in &&
	       a->out == b->out && a->size == b->size && a->stride == b->stride &&
	       a->pad == b->pad && a->type == b->type && a->tf32 == b->tf32 &&
	       a->deterministic == b->deterministic;
}

/* --- Descriptors ---------------------------------------------------------------------------- */

static void check(struct conv_parts *parts, cudnnStatus_t status, const char *what)
{
	char said[256] = "";

	if (status == CUDNN_STATUS_SUCCESS)
		return;
	cudnnGetLastErrorString(said, sizeof(said));
	parts->status = status;
	snprintf(parts->text, sizeof(parts->text), "%s: %s%s%s", what, cudnnGetErrorString(status),
		 *said ? ": " : "", said);
}

static bool is_ok(const struct conv_parts *parts)
{
	return parts->status == CUDNN_STATUS_SUCCESS;
}

/* Adds a descriptor to [parts]. Returns NULL if this fails or a function failed before. */
static cudnnBackendDescriptor_t add(struct conv_parts *parts, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t it = NULL;

	if (!is_ok(parts))
		return NULL;
	check(parts,
	      parts->count < CONV_PARTS ? cudnnBackendCreateDescriptor(type, &it)
					: CUDNN_STATUS_INTERNAL_ERROR,
	      "descriptor");
	if (is_ok(parts))
		parts->list[parts->count++] = it;
	return it;
}

static void set(struct conv_parts *parts, cudnnBackendDescriptor_t it,
		cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
		const void *values)
{
	char what[64];

	snprintf(what, sizeof(what), "setting attribute %d", (int)name);
	if (is_ok(parts))
		check(parts, cudnnBackendSetAttribute(it, name, type, count, values), what);
}

static void set_part(struct conv_parts *parts, cudnnBackendDescriptor_t it,
		     cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
	set(parts, it, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_number(struct conv_parts *parts, cudnnBackendDescriptor_t it,
		       cudnnBackendAttributeName_t name, int64_t value)
{
	set(parts, it, name, CUDNN_TYPE_INT64, 1, &value);
}

static cudnnBackendDescriptor_t finish(struct conv_parts *parts, cudnnBackendDescriptor_t it,
				       const char *what)
{
	if (is_ok(parts))
		check(parts, cudnnBackendFinalize(it), what);
	return it;
}

/*
 * Gets at most [capacity] values of an attribute. Returns the number of values; 0 after a failure.
 */
static int64_t get(struct conv_parts *parts, cudnnBackendDescriptor_t it,
		   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		   int64_t capacity, void *values)
{
	int64_t count = 0;
	char what[64];

	if (!is_ok(parts))
		return 0;
	snprintf(what, sizeof(what), "reading attribute %d", (int)name);
	check(parts, cudnnBackendGetAttribute(it, name, type, capacity, &count, values), what);
	return !is_ok(parts) ? 0 : count < capacity ? count : capacity;
}

static void empty(struct conv_parts *parts)
{
	while (parts->count > 0)
		cudnnBackendDestroyDescriptor(parts->list[--parts->count]);
}

/* --- Graphs --------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t add_tensor(struct conv_parts *parts, int64_t number,
					   struct shape shape, cudnnDataType_t type)
{
	cudnnBackendDescriptor_t it = add(parts, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t *n = shape.sizes;
	const int64_t strides[4] = {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]};
	bool inner = number >= CONV_TENSORS;

	set(parts, it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(parts, it, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, n);
	set(parts, it, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	set_number(parts, it, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
	set_number(parts, it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
	if (inner)
		set(parts, it, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
	return finish(parts, it, "tensor");
}

/* Adds a tensor that is in the caller's memory. */
static cudnnBackendDescriptor_t add_outer(struct conv_parts *parts,
					  const struct conv_problem *problem,
					  enum conv_tensor tensor)
{
	enum ddp_type type = problem->options->type;
	cudnnDataType_t of = type == DDP_BF16  ? CUDNN_DATA_BFLOAT16
			     : type == DDP_F16 ? CUDNN_DATA_HALF
					       : CUDNN_DATA_FLOAT;

	return add_tensor(parts, tensor, shape_of(problem, tensor), of);
}

/* Adds an intermediate tensor. Its type is f32. */
static cudnnBackendDescriptor_t add_inner(struct conv_parts *parts,
					  const struct conv_problem *problem, int64_t number)
{
	return add_tensor(parts, number, shape_of(problem, CONV_Y), CUDNN_DATA_FLOAT);
}

static cudnnBackendDescriptor_t add_window(struct conv_parts *parts, const struct layer_options *o)
{
	cudnnBackendDescriptor_t it = add(parts, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	const int64_t ones[2] = {1, 1}, pads[2] = {o->pad, o->pad};
	const int64_t strides[2] = {o->stride, o->stride};

	set(parts, it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(parts, it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_number(parts, it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	set(parts, it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	set(parts, it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	set(parts, it, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
	set(parts, it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
	return finish(parts, it, "convolution");
}

struct words {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t window, x, weights, y, alpha, beta;
	const char *what;
};

#define WORDS(kind, name, x, w, y, what)                                     \
	{                                                                    \
		CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,     \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x,       \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w,       \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y,       \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,     \
			CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, what \
	}

static const struct words words_of[LAYER_PASSES] = {
	[LAYER_FORWARD] = WORDS(FORWARD, FORWARD, X, W, Y, "forward operation"),
	[LAYER_TEST] = WORDS(FORWARD, FORWARD, X, W, Y, "forward operation"),
	[LAYER_BACK_DATA] = WORDS(BACKWARD_DATA, BWD_DATA, DX, W, DY, "operation on data"),
	[LAYER_BACK_WEIGHTS] =
		WORDS(BACKWARD_FILTER, BWD_FILTER, X, DW, DY, "operation on weights"),
};

static cudnnBackendDescriptor_t add_convolution(struct conv_parts *parts,
						const struct conv_problem *problem,
						cudnnBackendDescriptor_t y)
{
	const struct words *words = &words_of[problem->pass];
	cudnnBackendDescriptor_t it, window = add_window(parts, problem->options);
	cudnnBackendDescriptor_t x = add_outer(parts, problem, CONV_X);
	cudnnBackendDescriptor_t weights = add_outer(parts, problem, CONV_WEIGHTS);
	const float one = 1, zero = 0;

	it = add(parts, words->type);
	set_part(parts, it, words->window, window);
	set_part(parts, it, words->x, x);
	set_part(parts, it, words->weights, weights);
	set_part(parts, it, words->y, y);
	set(parts, it, words->alpha, CUDNN_TYPE_FLOAT, 1, &one);
	set(parts, it, words->beta, CUDNN_TYPE_FLOAT, 1, &zero);
	return finish(parts, it, words->what);
}

/* Adds the operation y = mode(x), or y = mode(x, b) if [b] is not NULL. */
static cudnnBackendDescriptor_t add_pointwise(struct conv_parts *parts, cudnnPointwiseMode_t mode,
					      cudnnBackendDescriptor_t x,
					      cudnnBackendDescriptor_t b,
					      cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t it, kind = add(parts, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
	const double low = 0;

	set(parts, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set(parts, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	if (mode == CUDNN_POINTWISE_RELU_FWD) {
		set(parts, kind, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
		    1, &nan);
		set(parts, kind, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &low);
		set(parts, kind, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1,
		    &low);
	}
	finish(parts, kind, "kind of pointwise operation");
	it = add(parts, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
	set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	return finish(parts, it, "pointwise operation");
}

/* Returns the finalized graph, or NULL with the error in [parts]. */
static cudnnBackendDescriptor_t add_graph(struct conv_parts *parts,
					  const struct conv_problem *problem,
					  const struct conv_gpu *gpu)
{
	bool bias = has_bias(problem), relu = bias && problem->options->relu;
	cudnnBackendDescriptor_t it, y, sum, biased, list[3] = {NULL};
	int count = 0;

	y = add_outer(parts, problem, CONV_Y);
	sum = bias ? add_inner(parts, problem, INNER_SUM) : y;
	biased = relu ? add_inner(parts, problem, INNER_BIASED) : y;
	list[count++] = add_convolution(parts, problem, sum);
	if (bias)
		list[count++] = add_pointwise(parts, CUDNN_POINTWISE_ADD, sum,
					      add_outer(parts, problem, CONV_BIAS), biased);
	if (relu)
		list[count++] = add_pointwise(parts, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
	it = add(parts, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	set(parts, it, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, list);
	if (gpu->handle)
		set(parts, it, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
		    &gpu->handle);
	finish(parts, it, "graph");
	return is_ok(parts) ? it : NULL;
}

/* --- Engines -------------------------------------------------------------------------------- */

/* Returns the engine's numerical notes as a bit mask. */
static unsigned int read_notes(struct conv_parts *parts, cudnnBackendDescriptor_t engine)
{
	cudnnBackendNumericalNote_t list[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t count = get(parts, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
			    CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, list);
	unsigned int notes = 0;

	for (int64_t i = 0; i < count; i++)
		notes |= 1u << list[i];
	return notes;
}

static bool has(unsigned int notes, cudnnBackendNumericalNote_t note)
{
	return notes & (1u << note);
}

static bool is_exact(const struct layer_options *options)
{
	return options->type == DDP_F32 && !options->tf32;
}

/*
 * Whether the arithmetic of an engine with [notes] is acceptable. Sums must be f32. Large Winograd
 * tiles are rejected, because their errors exceed the tolerance of the gradient tests. If exact f32
 * products are requested, tensor cores are rejected, because they round f32 to tf32.
 */
static bool is_acceptable(const struct layer_options *options, unsigned int notes)
{
	if (has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
	    has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) ||
	    has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
		return false;
	if (options->deterministic && has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
		return false;
	return !is_exact(options) || (!has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
				      !has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
}

/* --- Plans ---------------------------------------------------------------------------------- */

struct engine_notes {
	bool usable; /* the arithmetic is acceptable, and scratch memory is within the limit */
	bool tensor_cores;
	int engine;
};

/*
 * Reads the properties of the engine that a proposal uses. cuDNN proposes engine 0 as a last
 * resort, because it needs no scratch memory, but is slow.
 */
static struct engine_notes read_engine(const struct conv_problem *problem,
				       cudnnBackendDescriptor_t config)
{
	struct conv_parts parts = {.count = 0};
	cudnnBackendDescriptor_t engine = add(&parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	int64_t bytes = 0, number = 0;
	struct engine_notes it;
	unsigned int notes;

	get(&parts, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	get(&parts, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
	get(&parts, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
	notes = read_notes(&parts, engine);
	it.usable = is_ok(&parts) && is_acceptable(problem->options, notes) &&
		    (size_t)bytes <= problem->workspace;
	it.tensor_cores = has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
	it.engine = (int)number;
	empty(&parts);
	return it;
}

/*
 * The proposals are searched in up to four sweeps, with weaker and weaker requirements. The first
 * sweep that finds a plan is the last one. Plans that the last two sweeps find are slow.
 */
static const struct sweep {
	cudnnBackendHeurMode_t mode;
	bool tensor_cores, slow;
} sweeps[] = {
	{CUDNN_HEUR_MODE_A, true, false},
	{CUDNN_HEUR_MODE_A, false, false},
	{CUDNN_HEUR_MODE_A, false, true},
	{CUDNN_HEUR_MODE_FALLBACK, false, true},
};

/*
 * Whether [sweep] tries the engine. Engine 0 is slow. At most CONV_SAME plans of an engine are
 * tried, since further plans differ in their tiles only.
 */
static bool is_wanted(const struct conv_plan *plan, const struct sweep *sweep,
		      const struct engine_notes *notes)
{
	int same = 0;

	for (int i = 0; i < plan->count; i++)
		same += plan->list[i].engine == notes->engine;
	return notes->usable && same < CONV_SAME && (sweep->slow || notes->engine != 0) &&
	       (!sweep->tensor_cores || is_exact(&plan->options) || notes->tensor_cores);
}

/* Builds the plan of a proposal. If that fails, the other proposals can still be used. */
static void build(struct conv_plan *plan, cudnnBackendDescriptor_t config, int number,
		  const struct engine_notes *notes, bool slow, char why[CONV_WHY])
{
	struct conv_parts parts = {.count = 0};
	cudnnBackendDescriptor_t it = add(&parts, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t bytes = 0;

	set_part(&parts, it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finish(&parts, it, "plan");
	get(&parts, it, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
	if (is_ok(&parts) && (size_t)bytes <= plan->problem.workspace) {
		plan->list[plan->count++] = (struct conv_candidate){
			it, (size_t)bytes, number, notes->engine, notes->tensor_cores, slow};
		return;
	}
	snprintf(why, CONV_WHY, "%s",
		 is_ok(&parts) ? "no engine within the scratch memory" : parts.text);
	empty(&parts);
}

/* Adds candidates of [sweep], in the order of the heuristics, from number [first] on. */
static void propose(struct conv_plan *plan, const struct conv_gpu *gpu, const struct sweep *sweep,
		    int first, int most, char why[CONV_WHY])
{
	struct conv_parts *parts = &plan->parts;
	cudnnBackendDescriptor_t it, results[RESULTS], graph;
	int64_t found;

	graph = add_graph(parts, &plan->problem, gpu);
	it = add(parts, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	set_part(parts, it, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	set(parts, it, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &sweep->mode);
	if (gpu->properties)
		set_part(parts, it, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu->properties);
	finish(parts, it, "heuristics");
	for (int i = 0; i < RESULTS; i++)
		results[i] = add(parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	found = get(parts, it, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		    RESULTS, results);
	snprintf(why, CONV_WHY, "%s",
		 is_ok(parts) ? "no engine has the arithmetic and fits the scratch memory"
			      : parts->text);
	for (int64_t i = 0; i < found && plan->count < most; i++) {
		int number = (int)((first + i) % found);
		struct engine_notes notes = read_engine(&plan->problem, results[number]);

		if (is_wanted(plan, sweep, &notes))
			build(plan, results[number], number, &notes, sweep->slow, why);
	}
}

struct conv_plan *conv_plan_create(const struct conv_problem *problem, const struct conv_gpu *gpu,
				   int first, int most, char why[CONV_WHY])
{
	struct conv_plan *plan = ddp_xcalloc(1, sizeof(*plan), "a plan of a convolution");

	plan->problem = *problem;
	plan->options = *problem->options;
	plan->problem.options = &plan->options;
	for (size_t i = 0; i < sizeof(sweeps) / sizeof(sweeps[0]) && plan->count == 0; i++) {
		empty(&plan->parts);
		plan->parts.status = CUDNN_STATUS_SUCCESS;
		propose(plan, gpu, &sweeps[i], first, most, why);
	}
	if (plan->count > 0)
		return plan;
	conv_plan_destroy(plan);
	return NULL;
}

void conv_plan_keep(struct conv_plan *plan, int index)
{
	for (int i = 0; i < plan->count; i++)
		if (i != index)
			cudnnBackendDestroyDescriptor(plan->list[i].plan);
	plan->list[0] = plan->list[index];
	plan->count = 1;
}

void conv_plan_destroy(struct conv_plan *plan)
{
	if (!plan)
		return;
	for (int i = 0; i < plan->count; i++)
		cudnnBackendDestroyDescriptor(plan->list[i].plan);
	empty(&plan->parts);
	free(plan);
}

cudnnStatus_t conv_plan_run(const struct conv_plan *plan, int index, cudnnHandle_t handle,
			    void *tensors[CONV_TENSORS], void *workspace)
{
	const int64_t numbers[] = {CONV_X, CONV_WEIGHTS, CONV_Y, CONV_BIAS};
	int64_t count = has_bias(&plan->problem) ? CONV_BIAS : CONV_Y;
	struct conv_parts parts = {.count = 0};
	cudnnBackendDescriptor_t pack = add(&parts, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	cudnnStatus_t status;

	set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
	set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
	    tensors + CONV_X);
	set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	finish(&parts, pack, "pointers");
	status = parts.status;
	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendExecute(handle, plan->list[index].plan, pack);
	empty(&parts);
	return status;
}
