/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans as text, and of all ranks: rank 0 times what was never timed, while the others wait, so that all have the
 * same, where they have the same GPUs; and one file keeps them for the next run.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/watch.h"
#include "engine-private.h"
#include "net/memo.h"

static const char file[] = "plans", busy[] = " busy";

/* Seconds after which people are told what takes so long. */
enum { PATIENCE = 1 };

/* --- Lines -------------------------------------------------------------------------------------- */

/* The line after this one, or the end. */
static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return *line ? line + 1 : line;
}

/* "KEY: PLAN" of a line "LABEL=KEY: PLAN", with the lengths of the key and of both; NULL: it is none. */
static const char *entry(const char *line, size_t *key, size_t *all)
{
	size_t label = strcspn(line, "=\n");
	const char *plan;

	if (line[label] != '=')
		return NULL;
	line += label + 1;
	*all = strcspn(line, "\n");
	plan = strstr(line, ": ");
	*key = plan ? (size_t)(plan - line) : *all;
	return *key + 2 < *all ? line : NULL;
}

/* The last line of [text] with the key that [key] begins with: its entry, or NULL. */
static const char *find(const char *text, const char *key, size_t length, size_t *all)
{
	const char *found = NULL;
	size_t its, size;

	for (const char *line = text; line && *line; line = next_line(line)) {
		const char *it = entry(line, &its, &size);

		if (it && its == length && memcmp(it, key, length) == 0) {
			found = it;
			*all = size;
		}
	}
	return found;
}

bool plans_find(const struct plans *plans, const char *key, char plan[PLANS_PLAN])
{
	size_t length = strlen(key), all = 0;
	const char *found = find(plans->taken, key, length, &all);

	if (!found)
		found = find(plans->known, key, length, &all);
	if (!found || all - length - 2 >= PLANS_PLAN)
		return false;
	snprintf(plan, PLANS_PLAN, "%.*s", (int)(all - length - 2), found + length + 2);
	return true;
}

int plans_take(struct plans *plans, const char *label, const char *key, const char *plan)
{
	const char *before = plans->taken ? plans->taken : "";
	size_t all;
	char *text;

	if (find(before, key, strlen(key), &all))
		return 0;
	if (asprintf(&text, "%s%s=%s: %s\n", before, label, key, plan) < 0)
		return DDP_ERR_MEMORY;
	free(plans->taken);
	plans->taken = text;
	return 0;
}

static bool is_busy(const char *it, size_t all)
{
	size_t length = strlen(busy);

	return all > length && memcmp(it + all - length, busy, length) == 0;
}

char *plans_join(const char *old, const char *taken)
{
	const char *texts[] = {old ? old : "", taken ? taken : ""};
	char *joined = malloc(strlen(texts[0]) + strlen(texts[1]) + 2), *end = joined;
	size_t key, all, other;

	if (!joined)
		return NULL;
	*end = '\0';
	for (int i = 0; i < 2; i++)
		for (const char *line = texts[i]; *line; line = next_line(line)) {
			const char *it = entry(line, &key, &all), *newer = NULL;

			if (it && i == 0)
				newer = find(taken, it, key, &other);
			if (!it || is_busy(it, all) || (newer && !is_busy(newer, other)))
				continue;
			end += sprintf(end, "%.*s\n", (int)strcspn(line, "\n"), line);
		}
	return joined;
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

static int out_of_memory(struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MEMORY, "CUDA engine: no memory for the text of plans");
}

/* What was taken before: in an earlier run of this training, which counts, or on this machine. */
static int choose(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	struct plans *plans = &engine->plans;
	char *saved = setup->deterministic ? NULL : memo_load(file), *text;
	int status;

	if (asprintf(&plans->known, "%s\n%s", saved ? saved : "",
		     setup->choices ? setup->choices : "") < 0)
		plans->known = NULL;
	free(saved);
	status = plans->known ? create_all(engine, error) : out_of_memory(error);
	if (status < 0 || setup->deterministic)
		return status;
	/* Another run may have written meanwhile: its lines stay. */
	saved = memo_load(file);
	text = plans_join(saved, plans->taken);
	if (text && strcmp(text, saved ? saved : "") != 0)
		memo_save(file, text);
	free(text);
	free(saved);
	return 0;
}

/* What plans depend on is the least of all ranks. */
static int agree(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	double share = setup->share > 0 ? setup->share : ddp_world(setup->ddp)->share;
	int64_t least[2] = {(int64_t)device_info(engine->device)->limit, !(share > 0 && share < 1)};
	int status = 0;

	if (engine->ranks > 1)
		status = ddp_all_reduce(setup->ddp, least, least, 2, DDP_I64, DDP_MIN);
	engine->plans.memory = (size_t)least[0];
	engine->plans.shared = !least[1];
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(setup->ddp)) : 0;
}

/* Rank 0's status and what it took, which is known to all then. */
static int hear(struct engine *engine, int status, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	struct plans *plans = &engine->plans;
	bool leader = ddp_world(ddp)->rank == 0;
	uint64_t told[2] = {(uint64_t)(int64_t)status, plans->taken ? strlen(plans->taken) + 1 : 0};
	char *text = plans->taken;
	int result = ddp_broadcast(ddp, told, sizeof(told), 0);

	if (result == 0 && (int64_t)told[0] < 0 && !leader)
		return ddp_error_set(error, (int)(int64_t)told[0],
				     "CUDA engine: rank 0 has no plans for this network");
	if (result == 0 && (int64_t)told[0] == 0 && told[1] > 0) {
		if (!leader)
			text = plans->known = calloc(1, told[1]);
		if (!text)
			return out_of_memory(error);
		result = ddp_broadcast(ddp, text, told[1], 0);
	}
	return result < 0 ? ddp_error_set(error, result, "%s", ddp_error(ddp)) : status;
}

int cuda_plans_open(struct engine *engine, struct ddp_error *error)
{
	bool leader = ddp_world(engine->setup.ddp)->rank == 0;
	int status = agree(engine, error);

	if (status < 0)
		return status;
	if (leader)
		status = choose(engine, error);
	if (engine->ranks > 1)
		status = hear(engine, status, error);
	return status == 0 && !leader ? create_all(engine, error) : status;
}
