/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the device's memory the engine takes, and what to lower where it is too much.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine-private.h"

/* Arrays begin at multiples of so many elements of f32. */
enum { UNIT = 64 };

static const char smaller_batch[] = "lower --batch";
static const char narrower[] = "take a smaller network, or an optimizer that keeps less";

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static size_t whole(size_t count)
{
	return (count + UNIT - 1) / UNIT * UNIT;
}

static size_t statistics_of(size_t channels)
{
	return whole(1 + 2 * channels);
}

/* --- Scratch ------------------------------------------------------------------------------------ */

static size_t math_scratch(const struct engine *engine, const struct program_op *op,
			   const struct unit *unit)
{
	struct graph_shape out = op->node->out;
	size_t rows = engine->setup.batch * (size_t)out.height * (size_t)out.width;
	size_t most = 0;

	if (op->node->bias >= 0)
		most = kernel_sums_bytes(rows, (size_t)out.channels);
	if (unit->layer)
		return larger(most, layer_scratch(unit->layer));
	return larger(most, kernel_first_bytes(&unit->first, engine->setup.batch));
}

static size_t scratch_bytes(const struct engine *engine)
{
	size_t most = kernel_norm2_bytes(engine->setup.model->count);
	size_t classes = program_result(engine->program)->elements, inputs;
	const struct program *program = engine->program;

	inputs = program->values[program->ops[program->op_count - 1].input].elements;
	most = larger(most, kernel_loss_bytes(engine->setup.batch, classes));
	if (kernel_last_fits(inputs, classes))
		most = larger(most, kernel_last_bytes(engine->setup.batch, inputs, classes));
	for (int i = 0; i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];
		const struct unit *unit = &engine->units[i];

		if (op->kind == PROGRAM_MATH)
			most = larger(most, math_scratch(engine, op, unit));
		else if (op->kind == PROGRAM_NORM)
			most = larger(most, kernel_sums_bytes(engine->setup.batch * unit->norm.rows,
							      unit->norm.channels));
	}
	return most;
}

/* --- Allocation --------------------------------------------------------------------------------- */

static int floats(struct engine *engine, float **memory, size_t count, const char *what,
		  const char *remedy, struct ddp_error *error)
{
	void *place = NULL;
	int status = device_alloc(engine->device, &place, larger(count, 1) * sizeof(float), what,
				  remedy, error);

	*memory = place;
	return status;
}

static int allocate_model(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	struct cuda_memory *memory = &engine->memory;
	size_t count = model->count;
	int status = floats(engine, &memory->values, count, "parameters", narrower, error);

	for (int i = 0; status == 0 && i < MODEL_SLOTS; i++) {
		if (model->slots[i])
			status = floats(engine, &memory->slots[i], count, "the optimizer's values",
					narrower, error);
	}
	if (status == 0)
		status = floats(engine, &memory->buffers, model->buffer_count, "running statistics",
				narrower, error);
	if (status == 0 && engine->setup.type != DDP_F32)
		status = device_alloc(engine->device, &memory->narrow,
				      count * ddp_type_size(engine->setup.type),
				      "parameters in the type of activations", narrower, error);
	return status;
}

/* What is summed or gathered over ranks. */
static int shared_floats(struct engine *engine, float **memory, size_t count,
			 struct ddp_error *error)
{
	void *place = NULL;
	int status = cuda_sums_alloc(engine, &place, count * sizeof(float), error);

	*memory = place;
	return status;
}

static int allocate_norms(struct engine *engine, struct ddp_error *error)
{
	static const char what[] = "statistics of BatchNorm";
	struct cuda_memory *memory = &engine->memory;
	size_t each = statistics_of(engine->channels), all = 0, ranks = (size_t)engine->ranks;
	int status;

	if (engine->channels == 0)
		return 0;
	for (int i = 0; i < engine->program->op_count; i++)
		all += statistics_of(engine->units[i].norm.channels);
	status = floats(engine, &memory->statistics, all, what, NULL, error);
	if (status == 0)
		status = floats(engine, &memory->moments, each, what, NULL, error);
	if (status == 0)
		status = engine->sync_norm ? shared_floats(engine, &memory->sums, each, error)
					   : floats(engine, &memory->sums, each, what, NULL, error);
	if (status == 0 && engine->sync_norm)
		status = shared_floats(engine, &memory->gathered, ranks * each, error);
	if (status < 0)
		return status;
	all = 0;
	for (int i = 0; i < engine->program->op_count; i++) {
		engine->units[i].statistics = memory->statistics + all;
		all += statistics_of(engine->units[i].norm.channels);
	}
	return 0;
}

/* One block for the small things that steps share. */
static int allocate_state(struct engine *engine, struct ddp_error *error)
{
	struct cuda_memory *memory = &engine->memory;
	size_t unit = UNIT * sizeof(float);
	void *place = NULL;
	int status =
		device_alloc(engine->device, &place, 2 * unit, "the state of steps", NULL, error);

	_Static_assert((int)KERNEL_TICKETS <= (int)UNIT, "a larger unit");
	if (status < 0)
		return status;
	memory->norm2 = place;
	memory->tickets = (unsigned *)((char *)place + unit);
	status = device_alloc_host(engine->device, &place, KERNEL_SLOTS * sizeof(*memory->results),
				   "what steps tell", error);
	if (status < 0)
		return status;
	memory->results = memset(place, 0, KERNEL_SLOTS * sizeof(*memory->results));
	status = device_alloc_host(engine->device, &place, sizeof(*memory->progress),
				   "the count of sums", error);
	memory->progress = place;
	return status;
}

static int allocate_logits(struct engine *engine, struct ddp_error *error)
{
	struct cuda_memory *memory = &engine->memory;
	size_t count = engine->piece * program_result(engine->program)->elements;
	void *place = NULL;
	int status;

	if (engine->piece == 0)
		return 0;
	status = device_alloc_host(engine->device, &place, count * sizeof(float),
				   "results of the test set", error);
	memory->logits_host = place;
	if (status == 0 && engine->setup.type != DDP_F32)
		status = floats(engine, &memory->logits, count, "results of the test set", NULL,
				error);
	engine->labels = calloc(engine->piece, sizeof(*engine->labels));
	if (status == 0 && !engine->labels)
		return ddp_error_set(error, DDP_ERR_MEMORY, "CUDA engine: no memory for %zu labels",
				     engine->piece);
	return status;
}

/* The largest part comes last: it is what can be lowered. */
static int allocate_rooms(struct engine *engine, struct ddp_error *error)
{
	struct cuda_memory *memory = &engine->memory;
	char what[64];
	void *place = NULL;
	int status;

	/* By now libraries have loaded what they need. */
	device_measure(engine->device);
	memory->scratch_bytes = scratch_bytes(engine);
	status = device_alloc(engine->device, &memory->scratch, larger(memory->scratch_bytes, 1),
			      "scratch memory of convolutions", smaller_batch, error);
	if (status < 0)
		return status;
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	status = device_alloc(engine->device, &place, larger(memory->rooms_bytes, 1), what,
			      smaller_batch, error);
	memory->rooms = place;
	return status;
}

int cuda_memory_open(struct engine *engine, struct ddp_error *error)
{
	int status = allocate_model(engine, error);

	if (status == 0)
		status = allocate_state(engine, error);
	if (status == 0)
		status = cuda_sums_open(engine, error);
	if (status == 0)
		status = allocate_norms(engine, error);
	if (status == 0)
		status = allocate_logits(engine, error);
	return status == 0 ? allocate_rooms(engine, error) : status;
}

/* The rest goes with the device. */
void cuda_memory_close(struct engine *engine)
{
	struct cuda_memory *memory = &engine->memory;

	if (engine->sync_norm) {
		cuda_sums_free(engine, memory->gathered);
		cuda_sums_free(engine, memory->sums);
	}
	cuda_sums_free(engine, memory->gradients);
	*memory = (struct cuda_memory){.rooms = NULL};
	free(engine->labels);
}
