/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans as text, and of all ranks: rank 0 times what was never timed, while the others wait, so that all have the
 * same, where they have the same GPUs; and the memo keeps them for the next run.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "cuda-engine.h"
#include "net/memo.h"

static const char busy[] = " busy";

/* Seconds after which people are told what takes so long. */
#define PATIENCE 1.0

/* --- Lines -------------------------------------------------------------------------------------- */

/* The plan of the last line of [text] that has one for [key]; NULL: none. It ends with its line. */
static const char *find(const char *text, const char *key)
{
	char needle[PLANS_KEY + 4];
	const char *found = NULL;

	snprintf(needle, sizeof(needle), "=%s: ", key);
	for (const char *at = text ? strstr(text, needle) : NULL; at; at = strstr(at, needle)) {
		at += strlen(needle);
		if (*at && *at != '\n')
			found = at;
	}
	return found;
}

bool plans_find(const struct plans *plans, const char *key, char plan[PLANS_PLAN])
{
	const char *found = find(plans->taken.data, key);

	if (!found)
		found = find(plans->known, key);
	if (!found)
		return plans->memo && memo_find(plans->memo, key, plan, PLANS_PLAN);
	if (strcspn(found, "\n") >= PLANS_PLAN)
		return false;
	snprintf(plan, PLANS_PLAN, "%.*s", (int)strcspn(found, "\n"), found);
	return true;
}

void plans_take(struct plans *plans, const char *label, const char *key, const char *plan)
{
	size_t length = strlen(plan), its = strlen(busy);
	char saved[PLANS_PLAN];

	if (find(plans->taken.data, key))
		return;
	ddp_text_add(&plans->taken, "%s=%s: %s\n", label, key, plan);
	if (!plans->memo || (length > its && strcmp(plan + length - its, busy) == 0) ||
	    (memo_find(plans->memo, key, saved, sizeof(saved)) && strcmp(saved, plan) == 0))
		return;
	memo_add(plans->memo, key, plan);
}

/* --- Operations --------------------------------------------------------------------------------- */

static int create_layer(struct engine *engine, const struct program_op *op, struct unit *unit,
			struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct net_layer *layer = op->node->layer;
	bool dense = layer->kind == NET_DENSE;
	struct layer_options options = {
		.name = op->name,
		.dense = dense,
		.height = dense ? 1 : op->node->in.height,
		.width = dense ? 1 : op->node->in.width,
		.in = dense ? (int)graph_size(op->node->in) : op->node->in.channels,
		.out = op->node->out.channels,
		.size = dense ? 1 : layer->size,
		.stride = dense || layer->stride == 0 ? 1 : layer->stride,
		.pad = dense ? 0 : layer->pad,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = setup->type,
		.tf32 = setup->tf32,
		.deterministic = setup->deterministic,
		.batch = setup->batch,
		.test_batch = engine->piece,
	};

	if (!dense && options.first && options.bias &&
	    kernel_first_fits(options.in, options.out, options.size, options.stride, options.pad)) {
		unit->first = (struct kernel_first){options.height, options.width, options.out};
		return 0;
	}
	unit->narrow = !dense && options.type != DDP_F32;
	return layer_create(&unit->layer, engine->layers, &options, &engine->plans, error);
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

static int create_all(struct engine *engine, struct ddp_error *error)
{
	double begin = ddp_seconds();
	bool told = false;
	int status = layers_open(&engine->layers, engine->device, error);

	for (int i = 0; status == 0 && i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];

		if (op->kind != PROGRAM_MATH)
			continue;
		if (!told && ddp_seconds() - begin > PATIENCE) {
			announce(engine);
			told = true;
		}
		status = create_layer(engine, op, &engine->units[i], error);
	}
	return status;
}

/* --- All ranks ---------------------------------------------------------------------------------- */

/* What was taken before: in an earlier run of this training, which counts, or on this machine. */
static int choose(struct engine *engine, struct ddp_error *error)
{
	struct plans *plans = &engine->plans;
	struct memo memo = {NULL, false};
	int status;

	plans->known = engine->setup.choices;
	if (!engine->setup.deterministic) {
		memo_open(&memo);
		plans->memo = &memo;
	}
	status = create_all(engine, error);
	plans->known = NULL;
	plans->memo = NULL;
	memo_close(&memo);
	return status;
}

/*
 * What plans depend on is the least of all ranks. Those of virtual ranks must be the same on any number of ranks, which
 * may share a GPU or not: there they do not depend on what a rank may have of its memory.
 */
static int agree(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	double share = setup->share > 0 ? setup->share : ddp_world(setup->ddp)->share;
	int64_t least[2] = {(int64_t)device_info(engine->device)->limit, !(share > 0 && share < 1)};
	int status = 0;

	if (setup->parts > 0) {
		least[0] = INT64_MAX;
		least[1] = true;
	} else if (engine->ranks > 1) {
		status = ddp_all_reduce(setup->ddp, least, least, 2, DDP_I64, DDP_MIN);
	}
	engine->plans.memory = (size_t)least[0];
	engine->plans.shared = !least[1];
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(setup->ddp)) : 0;
}

/* What rank 0 took is known to all. */
static int hear(struct engine *engine, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	struct plans *plans = &engine->plans;
	bool leader = ddp_world(ddp)->rank == 0;
	uint64_t size = leader ? plans->taken.size : 0;
	int status = ddp_broadcast(ddp, &size, sizeof(size), 0);
	char *text = ddp_xcalloc(1, size + 1, "the text of plans");

	if (leader && size > 0)
		memcpy(text, plans->taken.data, size);
	if (status == 0 && size > 0)
		status = ddp_broadcast(ddp, text, size, 0);
	if (status < 0)
		ddp_error_set(error, status, "%s", ddp_error(ddp));
	plans->known = text;
	if (status == 0 && !leader)
		status = create_all(engine, error);
	plans->known = NULL;
	free(text);
	return status;
}

int cuda_plans_open(struct engine *engine, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	bool leader = ddp_world(ddp)->rank == 0;
	int status = agree(engine, error);

	if (status < 0)
		return status;
	if (leader)
		status = choose(engine, error);
	if (ddp_world(ddp)->size == 1)
		return status;
	status = ddp_agree(ddp, status, status < 0 ? error->text : NULL);
	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(ddp));
	return hear(engine, error);
}
