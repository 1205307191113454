/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and dense layers. Rank 0 times what was never timed, while the others wait: so all ranks
 * have the same plans, where they have the same GPUs, and one file keeps them for the next run.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/watch.h"
#include "choices.h"
#include "engine-private.h"
#include "program/memo.h"

static const char file[] = "plans";

/* Seconds after which people are told what takes so long. */
enum { PATIENCE = 1 };

static int out_of_memory(struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MEMORY, "CUDA engine: no memory for the text of plans");
}

/* --- One operation ------------------------------------------------------------------------------ */

static int create_dense(struct engine *engine, const struct program_op *op, struct unit *unit,
			struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	struct dense_options options = {
		.name = op->name,
		.in = graph_size(op->node->in),
		.out = (size_t)op->node->out.channels,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = setup->type,
		.tf32 = setup->tf32,
		.deterministic = setup->deterministic,
		.batch = setup->batch,
		.test_batch = engine->piece,
	};

	return dense_create(&unit->dense, engine->device, &options, error);
}

static int create_conv(struct engine *engine, const struct program_op *op, struct unit *unit,
		       const char *choices, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct net_layer *layer = op->node->layer;
	struct conv_options options = {
		.name = op->name,
		.height = op->node->in.height,
		.width = op->node->in.width,
		.in = op->node->in.channels,
		.out = op->node->out.channels,
		.size = layer->size,
		.stride = layer->stride > 0 ? layer->stride : 1,
		.pad = layer->pad,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = setup->type,
		.tf32 = setup->tf32,
		.deterministic = setup->deterministic,
		.batch = setup->batch,
		.test_batch = engine->piece,
	};

	if (options.first && options.bias &&
	    kernel_first_fits(options.in, options.out, options.size, options.stride, options.pad)) {
		unit->first = (struct kernel_first){options.height, options.width, options.out,
						    options.size};
		return 0;
	}
	return conv_create(&unit->conv, engine->device, &options, choices, error);
}

/* Nothing is seen of what may take a minute where nothing is saved, and a moment where all is. */
static void announce(const struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;

	if (setup->say)
		setup->say(setup->listener,
			   setup->deterministic
				   ? "building convolutions for this GPU"
				   : "timing convolutions, once for this kind of GPU and these "
				     "shapes");
}

static int create_all(struct engine *engine, const char *choices, struct ddp_error *error)
{
	double begin = ddp_seconds();
	bool told = false;
	int status = 0;

	for (int i = 0; status == 0 && i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];

		if (op->kind != PROGRAM_MATH)
			continue;
		if (!told && ddp_seconds() - begin > PATIENCE) {
			announce(engine);
			told = true;
		}
		if (op->node->layer->kind == NET_DENSE)
			status = create_dense(engine, op, &engine->units[i], error);
		else
			status = create_conv(engine, op, &engine->units[i], choices, error);
	}
	return status;
}

/* --- What was chosen ---------------------------------------------------------------------------- */

/* What was chosen before: in an earlier run of this training, which counts, or on this machine. */
static int known(const struct engine *engine, char **text, struct ddp_error *error)
{
	char *saved = engine->setup.deterministic ? NULL : memo_load(file);

	*text = choices_join(saved, engine->setup.choices);
	free(saved);
	return *text ? 0 : out_of_memory(error);
}

static int collect(struct engine *engine, struct ddp_error *error)
{
	engine->choices = choices_join(NULL, NULL);
	for (int i = 0; engine->choices && i < engine->program->op_count; i++) {
		char *more;

		if (!engine->units[i].conv)
			continue;
		more = choices_join(engine->choices, conv_choices(engine->units[i].conv));
		free(engine->choices);
		engine->choices = more;
	}
	return engine->choices ? 0 : out_of_memory(error);
}

/* For other runs. Another one may have written meanwhile: its lines stay. */
static void save(const struct engine *engine)
{
	char *old = memo_load(file);
	char *text = choices_join(old, engine->choices);

	if (text && strcmp(text, old ? old : "") != 0)
		memo_save(file, text);
	free(text);
	free(old);
}

static int choose(struct engine *engine, struct ddp_error *error)
{
	char *text = NULL;
	int status = known(engine, &text, error);

	if (status == 0)
		status = create_all(engine, text, error);
	if (status == 0)
		status = collect(engine, error);
	if (status == 0 && !engine->setup.deterministic)
		save(engine);
	free(text);
	return status;
}

/* --- All ranks ---------------------------------------------------------------------------------- */

/* Rank 0's status, and its choices in memory that is to be freed. */
static int hear(struct engine *engine, int status, char **text, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	const char *mine = engine->choices ? engine->choices : "";
	uint64_t told[2] = {(uint64_t)(int64_t)status, strlen(mine) + 1};
	int result = ddp_broadcast(ddp, told, sizeof(told), 0);

	*text = NULL;
	if (result == 0 && (int64_t)told[0] < 0 && ddp_world(ddp)->rank != 0)
		return ddp_error_set(error, (int)(int64_t)told[0],
				     "CUDA engine: rank 0 has no plans for this network");
	if (result == 0 && (int64_t)told[0] == 0) {
		*text = calloc(1, told[1]);
		if (*text && ddp_world(ddp)->rank == 0)
			strcpy(*text, mine);
		result = *text ? ddp_broadcast(ddp, *text, told[1], 0) : DDP_ERR_MEMORY;
	}
	if (result == DDP_ERR_MEMORY && !*text)
		return out_of_memory(error);
	return result < 0 ? ddp_error_set(error, result, "%s", ddp_error(ddp)) : status;
}

int cuda_plans_open(struct engine *engine, struct ddp_error *error)
{
	bool leader = ddp_world(engine->setup.ddp)->rank == 0;
	int status = leader ? choose(engine, error) : 0;
	char *text = NULL;

	if (engine->ranks == 1)
		return status;
	status = hear(engine, status, &text, error);
	if (status == 0 && !leader)
		status = create_all(engine, text, error);
	if (status == 0 && !leader)
		status = collect(engine, error);
	free(text);
	return status;
}
