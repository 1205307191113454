/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autotune.c - chooses the fastest algorithm for each pass of a layer, and lists or dense gradients
 *
 * Algorithms round differently, so all ranks must use the same ones. Rank 0 measures them, or reads
 * the result of an earlier run from the memo (net/memo.h), and broadcasts its choices. Choices are
 * written as text, such as "conv2 forward winograd, conv2 gradients list": each item has a layer, a
 * pass and the choice.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "base/type.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "engine-private.h"
#include "net/memo.h"

enum { CHOICE = 32, KEY = 512 };

static void read_model_name(char *name, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(name, size, "?");
	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		snprintf(name, size, "%.*s", (int)strcspn(colon, "\t\n"), colon);
		break;
	}
	if (file)
		fclose(file);
}

/*
 * Composes the memo's key for [what] of [op]. The key has everything that the measured time depends
 * on.
 */
static void make_key(const struct engine *engine, const struct program_op *op, const char *what,
		     char key[KEY])
{
	const struct net_layer *layer = op->node->layer;
	struct graph_shape in = op->node->in;
	char cpu[128];

	read_model_name(cpu, sizeof(cpu));
	snprintf(
		key, KEY,
		"%s; %s, %s; %dx%dx%d, %d of %d, stride %d, pad %d%s; %s, %zu by %zu, %d threads; %s",
		cpu, engine->math->describe(), engine->kernels->name, in.height, in.width,
		in.channels, op->node->out.channels, layer->size, layer->stride, layer->pad,
		op->relu ? ", ReLU" : "", ddp_type_name(engine->setup.type), engine->setup.batch,
		op->piece, engine->threads, what);
}

/* If [choices] has a choice for [what] of layer [layer], copies it to [choice]. */
static void restore(const char *choices, const char *layer, const char *what, char choice[CHOICE])
{
	char begin[CHOICE + GRAPH_NAME];
	size_t length;

	snprintf(begin, sizeof(begin), "%s %s ", layer, what);
	length = strlen(begin);
	for (const char *item = choices; *item; item += strcspn(item, ",")) {
		item += strspn(item, ", ");
		if (strncmp(item, begin, length) == 0)
			snprintf(choice, CHOICE, "%.*s", (int)strcspn(item + length, ","),
				 item + length);
	}
}

/* --- Lists or dense gradients ---------------------------------------------------------------- */

/*
 * The gradients of a convolution before a max-pool are computed from a list of its nonzero output
 * gradients, or by dense passes over all output gradients. The results are equal except for
 * rounding. Dense passes are faster only with AMX, in bfloat16: measured with mnist in f32 and
 * bfloat16, with AVX2, AVX-512, AVX512_BF16 and AMX.
 */

static const char gradients_of[] = "gradients", list[] = "list", dense[] = "dense";

/* Whether [op] should use dense passes: by setup->choices, or by this CPU. Called on rank 0. */
static bool choose_dense(const struct engine *engine, const struct program_op *op)
{
	char choice[CHOICE] = "";

	if (!engine->setup.choices)
		return engine->setup.type == DDP_BF16 && strstr(engine->math->describe(), "AMX");
	restore(engine->setup.choices, op->name, gradients_of, choice);
	return strcmp(choice, list) != 0;
}

int engine_choose_lists(struct engine *engine, struct ddp_error *error)
{
	const struct program *program = engine->program;
	int status;

	for (int i = 0; i < program->op_count; i++) {
		const struct program_op *op = &program->ops[i];

		engine->lists[op->layer] |= op->listed;
		if (op->listed && ddp_world(engine->setup.ddp)->rank == 0)
			engine->dense[op->layer] = choose_dense(engine, op);
	}
	status = ddp_broadcast(engine->setup.ddp, engine->dense,
			       engine->setup.model->graph->node_count * sizeof(bool), 0);
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

/* --- Algorithms of layers ---------------------------------------------------------------------- */

static const char *const pass_names[MATH_PASSES] = {"forward", "backward data", "backward weights"};

struct site {
	struct engine *engine;
	int index;
	enum math_pass pass;
};

#define FOR_SITES(site, engine)                                      \
	for (struct site site = {(engine), 0, MATH_FORWARD};         \
	     site.index < (engine)->program->op_count; site.index++) \
		for (site.pass = MATH_FORWARD; site.pass < MATH_PASSES; site.pass++)

static const struct program_op *op_of(const struct site *site)
{
	return &site->engine->program->ops[site->index];
}

static struct math_layer *layer_of(const struct site *site)
{
	return site->engine->units[site->index].math;
}

static int *number_of(const struct site *site)
{
	return &site->engine->units[site->index].choices[site->pass];
}

/* Index of the site (a pass of a layer) in arrays over all sites. */
static size_t place_of(const struct site *site)
{
	return (size_t)site->index * MATH_PASSES + site->pass;
}

/* Number of algorithms to choose from; 1 if the pass does not run. */
static int algorithms(const struct site *site)
{
	const struct program_op *op = op_of(site);
	const struct program_value *input = &site->engine->program->values[op->input];

	if (op->kind != PROGRAM_MATH || (op->listed && site->pass != MATH_FORWARD) ||
	    (site->pass == MATH_BACK_DATA && !input->wanted))
		return 1;
	return site->engine->math->algorithms(layer_of(site), site->pass);
}

static const char *algorithm(const struct site *site, int number)
{
	return site->engine->math->algorithm(layer_of(site), site->pass, number);
}

static int find(const struct site *site, const char *name)
{
	for (int i = 0; i < algorithms(site); i++) {
		if (strcmp(algorithm(site, i), name) == 0)
			return i;
	}
	return -1;
}

static int choose(const struct site *site, int number, struct ddp_error *error)
{
	return site->engine->math->choose(layer_of(site), site->pass, number, error);
}

/* Runs the pass in the same memory as a training step. */
static int run_site(const struct site *site)
{
	const struct engine *engine = site->engine;
	const struct program_op *op = op_of(site);
	const struct model *model = engine->setup.model;
	int bias = op->node->bias;
	size_t count = engine->setup.batch, piece = op->piece;

	switch (site->pass) {
	case MATH_FORWARD:
		return engine->math->forward(layer_of(site),
					     piece > 0 && piece < count ? piece : count,
					     engine_value(engine, op->input),
					     engine_value(engine, op->output), NULL);
	case MATH_BACK_DATA:
		return engine->math->back_data(layer_of(site), count,
					       engine_gradient(engine, op->output),
					       op->temporary != PROGRAM_NONE
						       ? engine_area(engine, op->temporary)
						       : engine_gradient(engine, op->input),
					       NULL);
	default:
		return engine->math->back_weights(
			layer_of(site), count, engine_value(engine, op->input),
			engine_gradient(engine, op->output),
			model_gradient(model, (size_t)op->node->weight),
			bias < 0 ? NULL : model_gradient(model, (size_t)bias), NULL);
	}
}

/*
 * ENOUGH: seconds of a run that is long enough to be measured. FAR: after a run that takes this
 * many times the best time, more runs are useless. The enum has the number of runs.
 */
#define ENOUGH 20e-3
#define FAR 1.5
enum { RUNS = 3 };

/*
 * Clock for timing. With one thread it is the thread's CPU time, which other processes do not
 * affect. With several threads it is wall time, since threads wait for each other.
 */
static double seconds_of(const struct engine *engine)
{
	struct timespec now;

	if (engine->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return ddp_seconds();
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * Time of the shortest of a few runs after a warm-up run. Stops early if a run is long enough to be
 * measured, or much slower than [best]. Returns -1 if a run fails.
 */
static double shortest(const struct site *site, double best)
{
	double least = -1, all = 0;

	for (int i = 0; i <= RUNS && all < ENOUGH; i++) {
		double begin = seconds_of(site->engine), took;

		if (run_site(site) < 0)
			return -1;
		took = seconds_of(site->engine) - begin;
		if (i == 0)
			continue;
		all += took;
		least = least < 0 || took < least ? took : least;
		if (best > 0 && took > FAR * best)
			break;
	}
	return least;
}

/* Returns the number of the fastest algorithm; 0 if none can run. */
static int measure(const struct site *site)
{
	const struct model *model = site->engine->setup.model;
	const struct graph_node *node = op_of(site)->node;
	const float *weights = model_value(model, (size_t)node->weight);
	const float *bias = node->bias < 0 ? NULL : model_value(model, (size_t)node->bias);
	double best = -1;
	int chosen = 0;

	for (int i = 0; i < algorithms(site); i++) {
		double took = -1;

		if (choose(site, i, NULL) == 0 &&
		    site->engine->math->load(layer_of(site), weights, bias, NULL) == 0)
			took = shortest(site, best);
		if (took >= 0 && (best < 0 || took < best)) {
			best = took;
			chosen = i;
		}
	}
	return chosen;
}

/* Prints that startup takes longer than usual. */
static void announce(const struct engine *engine, int count)
{
	const struct engine_setup *setup = &engine->setup;
	char text[128];

	if (count == 0 || !setup->say)
		return;
	snprintf(text, sizeof(text),
		 "timing algorithms of %d convolution%s, once for this machine and shape", count,
		 count == 1 ? "" : "s");
	setup->say(setup->listener, text);
}

/*
 * Reads the name of the algorithm for [site] from the memo; empty if it is missing. Always sets
 * [key].
 */
static bool read_memo(const struct site *site, const struct memo *memo, char key[KEY],
		      char name[CHOICE])
{
	make_key(site->engine, op_of(site), pass_names[site->pass], key);
	if (memo_find(memo, key, name, CHOICE) && find(site, name) >= 0)
		return true;
	*name = '\0';
	return false;
}

/*
 * Sets the name of the algorithm of each site on rank 0, from setup->choices, the memo or a
 * measurement. A name stays empty if the site has only one algorithm, or if setup->choices has none
 * for it.
 */
static void choose_names(struct engine *engine, char (*names)[CHOICE])
{
	const char *choices = engine->setup.choices;
	int unknown = 0, last = -1;
	struct memo memo;
	char key[KEY];

	memo_open(&memo);
	FOR_SITES(site, engine)
	{
		if (algorithms(&site) <= 1)
			continue;
		if (choices) {
			restore(choices, op_of(&site)->name, pass_names[site.pass],
				names[place_of(&site)]);
		} else if (!read_memo(&site, &memo, key, names[place_of(&site)])) {
			unknown += site.index != last;
			last = site.index;
		}
	}
	announce(engine, unknown);
	FOR_SITES(site, engine)
	{
		char *name = names[place_of(&site)];

		/*
		 * The memo may also have a site of the same shape that this loop measured before.
		 */
		if (choices || algorithms(&site) <= 1 || read_memo(&site, &memo, key, name))
			continue;
		snprintf(name, CHOICE, "%s", algorithm(&site, measure(&site)));
		memo_add(&memo, key, name);
	}
	memo_close(&memo);
}

/*
 * Sets the algorithms that rank 0 named in [names] on all ranks. If a rank cannot use one of them,
 * all ranks use the exact algorithm (number 0) for that site.
 */
static int agree(struct engine *engine, char (*names)[CHOICE], int32_t *can, size_t count,
		 struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	int status = ddp_broadcast(ddp, names, count * sizeof(*names), 0);

	if (status < 0)
		return engine_fail(engine, status, error);
	FOR_SITES(site, engine)
	{
		const char *name = names[place_of(&site)];
		int number = *name ? find(&site, name) : 0;

		*number_of(&site) = number;
		can[place_of(&site)] =
			number == 0 || (number > 0 && choose(&site, number, NULL) == 0);
	}
	status = ddp_all_reduce(ddp, can, can, count, DDP_I32, DDP_MIN);
	if (status < 0)
		return engine_fail(engine, status, error);
	FOR_SITES(site, engine)
	{
		if (!can[place_of(&site)])
			*number_of(&site) = 0;
		if (status == 0 && algorithms(&site) > 1)
			status = choose(&site, *number_of(&site), error);
	}
	return status;
}

int engine_choose(struct engine *engine, struct ddp_error *error)
{
	size_t count = (size_t)engine->program->op_count * MATH_PASSES;
	char(*names)[CHOICE] = ddp_xcalloc(count, sizeof(*names), "names of algorithms");
	int32_t *can = ddp_xcalloc(count, sizeof(*can), "names of algorithms");
	struct ddp_text *text = &engine->choices;
	int status = 0;

	if (!engine->setup.exact) {
		if (ddp_world(engine->setup.ddp)->rank == 0)
			choose_names(engine, names);
		status = agree(engine, names, can, count, error);
	}
	FOR_SITES(site, engine)
	{
		const struct program_op *op = op_of(&site);

		if (algorithms(&site) > 1)
			ddp_text_add(text, "%s%s %s %s", text->size ? ", " : "", op->name,
				     pass_names[site.pass], algorithm(&site, *number_of(&site)));
		if (site.pass == MATH_BACK_WEIGHTS && engine->lists[op->layer])
			ddp_text_add(text, "%s%s %s %s", text->size ? ", " : "", op->name,
				     gradients_of, op->listed ? list : dense);
	}
	free(names);
	free(can);
	return status;
}
