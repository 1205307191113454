/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c - enqueues a program's operations, forward and backward
 *
 * As in the CPU engine, the ReLU that ends an operation masks the gradient of the operation's
 * output in place. Nothing reads that gradient after it was passed on to the operation's inputs.
 */
#include "config.h"

#include "cuda-engine.h"

/* --- Sums over ranks ------------------------------------------------------------------------------ */

/*
 * libddp (ddp_gradients) sums gradients over ranks on REDUCE, while COMPUTE continues with earlier
 * layers. If the graph cannot contain sums, gradients are summed after all layers. A single rank
 * needs no sums. Gradients of virtual ranks are summed in host memory (step.c).
 */

/* stands for the step vector, which follows the gradients, in place of a parameter's index */
enum { STEP_VECTOR = -2 };

int cuda_fail(const struct engine *engine, int status, struct ddp_error *error)
{
	const char *text = ddp_error(engine->setup.ddp);
	const uint64_t *ended = engine->setup.parts > 0 ? NULL : engine->memory.progress;
	uint64_t begun;

	if (status >= 0)
		return 0;
	if (!ended)
		return ddp_error_set(error, status, "%s", text);
	begun = engine->launched * ddp_gradients_buckets(engine->setup.model->gradients);
	return ddp_error_set(error, status,
			     "%s (%llu sums of gradients have ended, and at most %llu were "
			     "started)",
			     text, (unsigned long long)*ended, (unsigned long long)begun);
}

/*
 * Reports to libddp that the gradient of [parameter] is enqueued on COMPUTE. Does nothing if
 * [parameter] is -1 (no parameter) or if engine->by_host is set.
 */
static int sum_ready(struct engine *engine, int parameter, struct ddp_error *error)
{
	size_t index = parameter == STEP_VECTOR ? 0 : (size_t)parameter + 1;

	if (parameter == -1 || engine->by_host)
		return 0;
	return cuda_fail(engine,
			 ddp_gradients_ready_on(engine->setup.model->gradients, index,
						cuda_stream(engine)),
			 error);
}

/* --- Addresses ---------------------------------------------------------------------------------- */

void *cuda_area(const struct engine *engine, int area)
{
	return engine->memory.areas + engine->program->areas[area].offset[engine->mode];
}

void *cuda_value(const struct engine *engine, int index)
{
	return cuda_area(engine, engine->program->values[index].data);
}

/*
 * gradient_of() returns the address of the gradient of value [index]. The two functions after it
 * return the addresses of a parameter and of its gradient, or NULL for parameter -1.
 */
static void *gradient_of(const struct engine *engine, int index)
{
	return cuda_area(engine, engine->program->values[index].gradient);
}

static float *parameter_of(const struct engine *engine, int parameter)
{
	const size_t *offsets = engine->setup.model->offsets;

	return parameter < 0 ? NULL : engine->memory.values + offsets[parameter];
}

static float *parameter_gradient(const struct engine *engine, int parameter)
{
	const size_t *offsets = engine->setup.model->offsets;

	return parameter < 0 ? NULL : engine->memory.gradients + offsets[parameter];
}

/* Address of a parameter, or of its copy in the type of activations. */
static const void *weight_of(const struct engine *engine, int parameter)
{
	const char *narrow = engine->memory.narrow;

	if (!narrow || parameter < 0)
		return parameter_of(engine, parameter);
	return narrow + engine->setup.model->offsets[parameter] * ddp_type_size(engine->setup.type);
}

static size_t elements_of(const struct engine *engine, int index)
{
	return engine->batch * engine->program->values[index].elements;
}

struct kernel_scratch cuda_scratch(const struct engine *engine)
{
	return (struct kernel_scratch){engine->memory.scratch, engine->memory.tickets};
}

void *cuda_stream(const struct engine *engine)
{
	return device_stream(engine->device, DEVICE_COMPUTE);
}

/* --- State of an operation ---------------------------------------------------------------------- */

struct walk {
	struct engine *engine;
	const struct program_op *op;
	const struct unit *unit;
	struct graph_shape in;
	const void *x;
	void *y;
	size_t all, batch; /* number of elements of y, and number of images */
	const struct kernel_order *order;
	const uint64_t *orders;
	struct kernel_scratch scratch;
	void *stream;
	enum ddp_type type;

	/* Backward pass only. */
	void *dy;
	void *dx; /* gradient of the input: NULL if not needed, its area, or the temporary area */
};

static struct walk walk_at(struct engine *engine, int index)
{
	const struct program_op *op = &engine->program->ops[index];

	return (struct walk){.engine = engine,
			     .op = op,
			     .unit = &engine->units[index],
			     .in = op->node->in,
			     .x = cuda_value(engine, op->input),
			     .y = cuda_value(engine, op->output),
			     .all = elements_of(engine, op->output),
			     .batch = engine->batch,
			     .order = engine->block.order,
			     .orders = engine->block.orders,
			     .scratch = cuda_scratch(engine),
			     .stream = cuda_stream(engine),
			     .type = engine->setup.type};
}

static int copy(const struct walk *at, void *to, const void *from, size_t bytes,
		struct ddp_error *error)
{
	return device_copy(at->engine->device, DEVICE_COMPUTE, to, from, bytes, error);
}

/* Reports the operation's parameters to libddp as ready, from the last to the first. */
static int both_ready(struct engine *engine, const struct program_op *op, struct ddp_error *error)
{
	int status = sum_ready(engine, op->node->bias, error);

	return status < 0 ? status : sum_ready(engine, op->node->weight, error);
}

/* --- BatchNorm ---------------------------------------------------------------------------------- */

/*
 * BatchNorm is defined in cpu/pass.c. Its exchanges between ranks are enqueued on COMPUTE, and run
 * after the gradient sums that were enqueued before. The reason is that a communicator runs one
 * collective at a time, in the same order on all ranks.
 */
static float *running(const struct engine *engine, int buffer)
{
	return engine->memory.buffers + engine->setup.model->buffer_offsets[buffer];
}

/* Computes the statistics of the batch of this rank or, with SyncBatchNorm, of all ranks. */
static int measure(const struct walk *at, const struct kernel_measured *to, struct ddp_error *error)
{
	const struct kernel_norm *norm = &at->unit->norm;
	const struct cuda_memory *memory = &at->engine->memory;
	const struct kernel_measured moments = {.moments = memory->moments};
	size_t bytes = (1 + 2 * norm->channels) * sizeof(float);
	int status;

	kernel_norm_measure(at->stream, norm, at->order, at->batch, at->x, &at->scratch,
			    at->engine->sync_norm ? &moments : to, at->type);
	if (!at->engine->sync_norm)
		return 0;
	status = cuda_fail(at->engine,
			   ddp_device_all_gather(at->engine->setup.ddp, memory->moments,
						 memory->gathered, bytes, at->stream),
			   error);
	kernel_norm_combine(at->stream, norm, memory->gathered, at->engine->ranks, to);
	return status;
}

static struct kernel_normed normed_of(const struct walk *at)
{
	return (struct kernel_normed){at->x, at->unit->statistics,
				      parameter_of(at->engine, at->op->node->weight),
				      parameter_of(at->engine, at->op->node->bias)};
}

static int norm_forward(const struct walk *at, struct ddp_error *error)
{
	const struct graph_node *node = at->op->node;
	struct engine *engine = at->engine;
	struct kernel_measured to = {NULL, at->unit->statistics, running(engine, node->mean),
				     running(engine, node->variance)};
	const struct kernel_normed normed = normed_of(at);
	int other = at->op->other, status = 0;

	/*
	 * Only virtual rank 0 updates the running statistics. Virtual rank 0 is on rank 0, which
	 * sends the statistics to all ranks.
	 */
	if (engine->mode == PROGRAM_TRAIN && engine->part > 0)
		to.running_mean = to.running_variance = NULL;
	if (engine->mode == PROGRAM_TRAIN)
		status = measure(at, &to, error);
	else
		kernel_norm_combine(at->stream, &at->unit->norm, NULL, 0, &to);
	if (status < 0)
		return status;
	kernel_norm_apply(at->stream, &at->unit->norm, at->batch, &normed,
			  other == PROGRAM_NONE ? NULL : cuda_value(engine, other), at->op->relu,
			  at->y, at->type);
	return 0;
}

/*
 * Sums the sums of BatchNorm's backward pass over all ranks. The result is in memory.sums, and the
 * sums of this rank stay unchanged, because they are the gradients of scale and shift. Runs after
 * the gradient sums that were enqueued on REDUCE in this step.
 */
static int sum_over_ranks(const struct walk *at, const float **sums, struct ddp_error *error)
{
	struct engine *engine = at->engine;
	size_t count = 2 * at->unit->norm.channels;
	float *all = engine->memory.sums;
	int status = 0;

	if (*sums != all)
		status = copy(at, all, *sums, count * sizeof(float), error);
	/* During a capture, COMPUTE can wait for REDUCE only if REDUCE is part of the graph. */
	if (status == 0 && !engine->by_call)
		status = device_order(engine->device, DEVICE_REDUCE, DEVICE_COMPUTE, error);
	if (status == 0 && !engine->by_call)
		status = device_order(engine->device, DEVICE_COMPUTE, DEVICE_REDUCE, error);
	if (status == 0)
		status = cuda_fail(engine,
				   ddp_device_all_reduce(engine->setup.ddp, all, all, count,
							 DDP_F32, DDP_SUM, at->stream),
				   error);
	*sums = all;
	return status;
}

/*
 * Backward pass of BatchNorm. Without an addition between BatchNorm and its ReLU, the kernels
 * compute the ReLU's mask from x. They do not read y, and write dy only if two gradients are added.
 * With an addition, the masked dy is written, since the addition's other input needs it.
 */
static int norm_backward(const struct walk *at, struct ddp_error *error)
{
	const struct program_op *op = at->op;
	struct engine *engine = at->engine;
	const struct kernel_norm *norm = &at->unit->norm;
	const void *y = op->relu && op->other != PROGRAM_NONE ? at->y : NULL;
	struct kernel_normed normed = normed_of(at);
	size_t bytes = norm->channels * sizeof(float);
	float *shift = parameter_gradient(engine, op->node->bias);
	float *scale = parameter_gradient(engine, op->node->weight);
	float *mine = scale == shift + norm->channels ? shift : engine->memory.sums;
	const float *sums = mine;
	int second = engine->program->values[op->output].second, status = 0;
	void *more = second == PROGRAM_NONE ? NULL : cuda_area(engine, second);
	bool recompute = op->relu && !y && !more;

	if (!op->relu || y)
		normed.shift = NULL;
	kernel_norm_sums(at->stream, norm, at->batch, &normed, y, at->dy, more,
			 recompute ? NULL : at->dy, &at->scratch, mine, at->type);
	if (mine != shift)
		status = copy(at, shift, mine, bytes, error);
	if (status == 0 && mine != shift)
		status = copy(at, scale, mine + norm->channels, bytes, error);
	if (status == 0 && engine->sync_norm)
		status = sum_over_ranks(at, &sums, error);
	if (!recompute)
		normed.shift = NULL;
	if (status == 0 && at->dx)
		kernel_norm_back(at->stream, norm, at->order, at->batch, &normed, sums, at->dy,
				 at->dx, at->type);
	return status == 0 ? both_ready(engine, op, error) : status;
}

/* --- Convolutions and dense layers -------------------------------------------------------------- */

static int math_forward(const struct walk *at, struct ddp_error *error)
{
	const struct graph_node *node = at->op->node;
	struct engine *engine = at->engine;

	if (at->unit->layer)
		return layer_forward(at->unit->layer, engine->mode == PROGRAM_TEST, at->x,
				     weight_of(engine, node->weight), weight_of(engine, node->bias),
				     at->y, at->scratch.memory, error);
	kernel_first(at->stream, &at->unit->first, at->batch, at->x,
		     parameter_of(engine, node->weight), parameter_of(engine, node->bias),
		     at->op->relu, at->y, at->type);
	return 0;
}

static int weights_backward(const struct walk *at, struct ddp_error *error)
{
	struct engine *engine = at->engine;
	const struct model *model = engine->setup.model;
	int weight = at->op->node->weight, status;
	float *gradient = parameter_gradient(engine, weight),
	      *sums = parameter_gradient(engine, at->op->node->bias);
	void *narrow = at->unit->narrow ? engine->memory.narrow_gradient : NULL;

	status = layer_back_weights(at->unit->layer, at->x, at->dy, narrow ? narrow : gradient,
				    sums, at->scratch.memory, error);
	/* Convert the gradient to f32 for the sums over ranks and the optimizer. */
	if (status == 0 && narrow)
		kernel_widen(at->stream, narrow, gradient, model->graph->parameters[weight].count,
			     at->type);
	return status;
}

static int math_backward(const struct walk *at, struct ddp_error *error)
{
	const struct program_op *op = at->op;
	const struct graph_node *node = op->node;
	struct engine *engine = at->engine;
	bool masks = op->relu && !op->masked;
	int status;

	if (!at->unit->layer) {
		kernel_first_back(at->stream, &at->unit->first, at->batch, at->x, at->dy,
				  masks ? at->y : NULL, &at->scratch,
				  parameter_gradient(engine, node->weight),
				  parameter_gradient(engine, node->bias), at->type);
		return both_ready(engine, op, error);
	}
	if (masks)
		kernel_relu_back(at->stream, at->dy, at->y, 1, at->dy, at->all, at->type);
	if (node->bias >= 0 && !at->unit->has_sums)
		kernel_column_sums(at->stream, at->dy, at->all / (size_t)node->out.channels,
				   (size_t)node->out.channels, &at->scratch,
				   parameter_gradient(engine, node->bias), at->type);
	status = weights_backward(at, error);
	if (status == 0)
		status = both_ready(engine, op, error);
	if (status == 0 && at->dx)
		status = layer_back_data(at->unit->layer, at->dy, weight_of(engine, node->weight),
					 at->dx, at->scratch.memory, error);
	return status;
}

/* --- Pools and dropout -------------------------------------------------------------------------- */

/* Runs the forward pass of a max-pool. In training, this includes a dropout after the pool. */
static void max_pool_forward(const struct walk *at)
{
	bool drops = at->op->dropout != PROGRAM_NONE && at->engine->mode == PROGRAM_TRAIN;

	kernel_max_pool(at->stream, &at->in,
			drops ? &at->engine->units[at->op->dropout].dropout : NULL, at->order,
			at->orders, at->batch, at->x, at->y, cuda_area(at->engine, at->op->which),
			at->type);
}

static void max_pool_backward(const struct walk *at)
{
	bool drops = at->op->dropout != PROGRAM_NONE;

	kernel_max_pool_back(at->stream, &at->in, at->batch, at->dy,
			     cuda_area(at->engine, at->op->which), at->op->masks ? at->y : NULL,
			     drops ? at->engine->units[at->op->dropout].dropout.scale : 1, at->dx,
			     &at->scratch, parameter_gradient(at->engine, at->unit->sums),
			     at->type);
}

/* Runs the forward pass of a dropout. In an evaluation, a dropout copies its input. */
static int dropout_forward(const struct walk *at, struct ddp_error *error)
{
	if (at->engine->mode == PROGRAM_TEST)
		return at->x == at->y
			       ? 0
			       : copy(at, at->y, at->x, at->all * ddp_type_size(at->type), error);
	if (!at->op->inner)
		kernel_dropout(at->stream, &at->unit->dropout, at->order, at->orders, at->batch,
			       at->all / at->batch, at->x, at->y, at->type);
	return 0;
}

/*
 * Backward pass of dropout. After a ReLU, the mask is derived from the dropout's results, without
 * random numbers. If the dropout is [inner], the pool's backward pass includes it.
 */
static void dropout_backward(const struct walk *at)
{
	if (at->op->inner)
		return;
	if (at->op->masks)
		kernel_relu_back(at->stream, at->dy, at->y, at->unit->dropout.scale, at->dx,
				 at->all, at->type);
	else
		kernel_dropout(at->stream, &at->unit->dropout, at->order, at->orders, at->batch,
			       at->all / at->batch, at->dy, at->dx, at->type);
}

/* --- Forward pass ------------------------------------------------------------------------------ */

static int forward(const struct walk *at, struct ddp_error *error)
{
	const struct program_op *op = at->op;

	switch (op->kind) {
	case PROGRAM_MATH:
		return math_forward(at, error);
	case PROGRAM_NORM:
		return norm_forward(at, error);
	case PROGRAM_ADD:
		kernel_add(at->stream, at->x, cuda_value(at->engine, op->other), at->y, at->all,
			   op->relu, at->type);
		break;
	case PROGRAM_RELU:
		kernel_relu(at->stream, at->x, at->y, at->all, at->type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool_forward(at);
		break;
	case PROGRAM_AVERAGE_POOL:
		kernel_average_pool(at->stream, at->batch,
				    (size_t)at->in.height * (size_t)at->in.width,
				    (size_t)at->in.channels, at->x, at->y, at->type);
		break;
	case PROGRAM_DROPOUT:
		return dropout_forward(at, error);
	}
	return 0;
}

int cuda_forward(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	for (int i = 0; status == 0 && i < engine->program->op_count; i++) {
		struct walk at = walk_at(engine, i);

		status = forward(&at, error);
		if (status == 0)
			status = device_check(engine->device, at.op->name, error);
	}
	return status;
}

/* --- Backward pass ----------------------------------------------------------------------------- */

/* Copies [dy] to the gradient of [value] or, with [accumulate], adds [dy] to that gradient. */
static int pass_gradient(const struct walk *at, int value, bool accumulate, struct ddp_error *error)
{
	struct engine *engine = at->engine;
	size_t count;
	void *to;

	if (value == PROGRAM_NONE || !engine->program->values[value].wanted)
		return 0;
	to = gradient_of(engine, value);
	count = elements_of(engine, value);
	if (accumulate)
		kernel_add(at->stream, at->dy, to, to, count, false, at->type);
	else if (to != at->dy)
		return copy(at, to, at->dy, count * ddp_type_size(at->type), error);
	return 0;
}

static int backward(const struct walk *at, struct ddp_error *error)
{
	const struct program_op *op = at->op;
	int status = 0;

	switch (op->kind) {
	case PROGRAM_MATH:
		return math_backward(at, error);
	case PROGRAM_NORM:
		status = norm_backward(at, error);
		if (status == 0)
			status = pass_gradient(at, op->other, op->accumulate_other, error);
		break;
	case PROGRAM_ADD:
		if (op->relu)
			kernel_relu_back(at->stream, at->dy, at->y, 1, at->dy, at->all, at->type);
		status = pass_gradient(at, op->other, op->accumulate_other, error);
		if (status == 0)
			status = pass_gradient(at, op->input, op->accumulate, error);
		break;
	case PROGRAM_RELU:
		kernel_relu_back(at->stream, at->dy, at->y, 1, at->dx, at->all, at->type);
		break;
	case PROGRAM_MAX_POOL:
		max_pool_backward(at);
		break;
	case PROGRAM_AVERAGE_POOL:
		kernel_average_pool_back(at->stream, at->batch,
					 (size_t)at->in.height * (size_t)at->in.width,
					 (size_t)at->in.channels, at->dy, at->dx, at->type);
		break;
	case PROGRAM_DROPOUT:
		dropout_backward(at);
		break;
	}
	return status;
}

static int backward_op(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program *program = engine->program;
	struct walk at = walk_at(engine, index);
	const struct program_op *op = at.op;
	int status;

	if (!program->values[op->output].wanted)
		return 0;
	at.dy = gradient_of(engine, op->output);
	if (program->values[op->input].wanted)
		at.dx = op->temporary != PROGRAM_NONE ? cuda_area(engine, op->temporary)
						      : gradient_of(engine, op->input);
	status = backward(&at, error);
	if (status == 0 && op->temporary != PROGRAM_NONE && !op->left) {
		void *to = gradient_of(engine, op->input);

		kernel_add(at.stream, at.dx, to, to, elements_of(engine, op->input), false,
			   at.type);
	}
	return status < 0 ? status : device_check(engine->device, op->name, error);
}

static void compute_loss(struct engine *engine)
{
	const struct program_value *result = program_result(engine->program);
	const struct kernel_loss loss = {
		.order = engine->block.order,
		.state = engine->memory.state,
		.labels = engine->block.labels,
		.batch = (uint32_t)engine->batch,
		.classes = (uint32_t)result->elements,
		.smoothing = engine->setup.smoothing,
		.word = engine->memory.gradients + engine->setup.model->count,
	};
	struct kernel_scratch scratch = cuda_scratch(engine);

	kernel_loss(cuda_stream(engine), &loss, cuda_area(engine, result->data),
		    cuda_area(engine, result->gradient), &scratch, engine->setup.type);
}

int cuda_backward(struct engine *engine, struct ddp_error *error)
{
	int status;

	compute_loss(engine);
	status = device_check(engine->device, "the loss", error);
	if (status == 0)
		status = sum_ready(engine, STEP_VECTOR, error);
	for (int i = engine->program->op_count - 1; status == 0 && i >= 0; i--)
		status = backward_op(engine, i, error);
	return status;
}
