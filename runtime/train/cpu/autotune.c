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

/* --- Timing -------------------------------------------------------------------------------- */

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

typedef int work(const void *what);

/*
 * Time of the shortest of a few runs after a warm-up run. Stops early if a run is long enough to be
 * measured, or much slower than [best]. Returns -1 if a run fails.
 */
static double shortest(const struct engine *engine, work *run, const void *what, double best)
{
	double least = -1, all = 0;

	for (int i = 0; i <= RUNS && all < ENOUGH; i++) {
		double begin = seconds_of(engine), took;

		if (run(what) < 0)
			return -1;
		took = seconds_of(engine) - begin;
		if (i == 0)
			continue;
		all += took;
		least = least < 0 || took < least ? took : least;
		if (best > 0 && took > FAR * best)
			break;
	}
	return least;
}

/*
 * Finds the fastest algorithm of [pass] of [layer]. Returns its time, and its number in [chosen].
 * If no algorithm can run, returns -1 and number 0.
 */
static double fastest(const struct engine *engine, struct math_layer *layer, enum math_pass pass,
		      const float *weights, const float *bias, work *run, const void *what,
		      int *chosen)
{
	const struct math *math = engine->math;
	double best = -1;

	*chosen = 0;
	for (int i = 0; i < math->algorithms(layer, pass); i++) {
		double took = -1;

		if (math->choose(layer, pass, i, NULL) == 0 &&
		    math->load(layer, weights, bias, NULL) == 0)
			took = shortest(engine, run, what, best);
		if (took >= 0 && (best < 0 || took < best)) {
			best = took;
			*chosen = i;
		}
	}
	return best;
}

/* --- Lists or dense gradients ---------------------------------------------------------------- */

/*
 * The gradients of a convolution before a max-pool are computed from a list of its nonzero output
 * gradients, or by dense passes over all output gradients. The results are equal except for
 * rounding. The faster way depends on the CPU: with bfloat16 matrix instructions, dense passes are
 * faster. Both ways are timed with random values, of which as many are zero as in a training.
 */

enum { LIST_IMAGES = 32, ARRAYS = 9, ALIGN = 64 };

static const char gradients_of[] = "gradients", list[] = "list", dense[] = "dense";

/* Data for timing lists and dense passes. */
struct trial {
	const struct engine *engine;
	const struct program_op *op;
	bool wanted; /* the gradient of the convolution's input is needed */
	size_t images;
	size_t read, pooled; /* elements of the input and of the pooled results */
	float rate;	     /* rate of the dropout */
	char *x, *dx, *dy;   /* input of the convolution, its gradient, and the output's gradient */
	char *end, *gradient; /* output of the max-pool, and its gradient */
	uint8_t *which, *keep;
	float *weights, *bias;
	void *arrays[ARRAYS]; /* all allocations */
	int array_count;
	struct kernel_list *list;
	struct kernel_window window;
	struct math_layer *math;
};

static void *zeros(struct trial *trial, size_t bytes)
{
	size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;

	return trial->arrays[trial->array_count++] =
		       memset(ddp_xaligned(ALIGN, whole, "timing layers"), 0, whole);
}

/* Fills [to]: [part] of 4 elements get positive values, the others get [other]. */
static void fill(const struct trial *trial, char *to, size_t count, uint32_t part, float other)
{
	size_t size = ddp_type_size(trial->engine->setup.type);

	for (size_t i = 0; i < count; i++) {
		uint32_t bits[4];
		float value;

		ddp_random(1, 0, i, 0, 0, bits);
		value = bits[0] % 4 < part ? 1 + ddp_random_uniform(bits[1]) : other;
		trial->engine->kernels->narrow(&value, to + i * size, 1, trial->engine->setup.type);
	}
}

static bool trial_open(struct trial *trial, const struct engine *engine,
		       const struct program_op *op)
{
	struct math_options options = engine_math_options(engine, op);
	const struct graph_node *node = op->node;
	size_t images = engine->setup.batch < LIST_IMAGES ? engine->setup.batch : LIST_IMAGES;
	size_t size = ddp_type_size(engine->setup.type), results = images * graph_size(node->out);
	size_t channels = (size_t)node->out.channels;
	size_t window = (size_t)(node->layer->size * node->layer->size * node->in.channels);

	*trial = (struct trial){.engine = engine, .op = op, .images = images};
	trial->wanted = engine->program->values[op->input].wanted;
	trial->window = engine_window(node);
	trial->read = images * graph_size(node->in);
	trial->pooled = results / 4;
	if (op->dropout != PROGRAM_NONE)
		trial->rate = engine->program->ops[op->dropout].node->layer->rate;
	trial->x = zeros(trial, trial->read * size);
	trial->dx = zeros(trial, trial->read * size);
	trial->dy = zeros(trial, results * size);
	trial->end = zeros(trial, trial->pooled * size);
	trial->gradient = zeros(trial, trial->pooled * size);
	trial->which = zeros(trial, trial->pooled);
	trial->keep = zeros(trial, trial->pooled / 8 + 1);
	trial->weights = zeros(trial, window * channels * sizeof(float));
	trial->bias = zeros(trial, channels * sizeof(float));
	fill(trial, trial->x, trial->read, 2, 0);
	fill(trial, trial->end, trial->pooled, 3, 0);
	fill(trial, trial->gradient, trial->pooled, 2, -1);
	for (size_t i = 0; i < trial->pooled; i++) {
		uint32_t bits[4];

		ddp_random(2, 0, i, 0, 0, bits);
		trial->which[i] = bits[0] % 4;
		if (ddp_random_uniform(bits[1]) >= trial->rate)
			trial->keep[i / 8] |= (uint8_t)(1 << i % 8);
	}
	options.batch = images;
	return engine->math->create(&trial->math, &options, NULL) == 0 &&
	       kernel_list_create(&trial->list, &trial->window, images, NULL) == 0;
}

static void trial_close(struct trial *trial)
{
	for (int i = 0; i < trial->array_count; i++)
		free(trial->arrays[i]);
	kernel_list_destroy(trial->list);
	trial->engine->math->destroy(trial->math);
}

static int run_list(const void *what)
{
	const struct trial *trial = what;
	const struct kernels *kernels = trial->engine->kernels;
	enum ddp_type type = trial->engine->setup.type;

	kernels->list(&trial->window, trial->images, trial->gradient, trial->end, trial->which,
		      trial->keep, 1, trial->list, trial->bias, type);
	kernels->list_weights(&trial->window, trial->list, trial->images, trial->x, trial->weights,
			      type);
	if (trial->wanted)
		kernels->list_data(&trial->window, trial->list, trial->images, trial->weights,
				   trial->op->masks ? trial->x : NULL, trial->dx, type);
	return 0;
}

/* Runs what a dense backward pass needs besides the convolution: dropout, pool and ReLU. */
static int run_masks(const void *what)
{
	const struct trial *trial = what;
	const struct kernels *kernels = trial->engine->kernels;
	enum ddp_type type = trial->engine->setup.type;
	struct graph_shape out = trial->op->node->out;

	if (trial->rate > 0)
		kernels->mask(trial->gradient, trial->gradient, trial->keep, 1, trial->pooled,
			      type);
	kernels->relu_back(trial->gradient, trial->end, trial->gradient, trial->pooled, type);
	kernels->max_pool_back(trial->gradient, trial->which, trial->dy, trial->images, out.height,
			       out.width, out.channels, type);
	if (trial->op->masks)
		kernels->relu_back(trial->dx, trial->x, trial->dx, trial->read, type);
	return 0;
}

static int run_weights(const void *what)
{
	const struct trial *trial = what;

	return trial->engine->math->back_weights(trial->math, trial->images, trial->x, trial->dy,
						 trial->weights, trial->bias, NULL);
}

static int run_data(const void *what)
{
	const struct trial *trial = what;

	return trial->engine->math->back_data(trial->math, trial->images, trial->dy, trial->dx,
					      NULL);
}

static double dense_pass(const struct trial *trial, enum math_pass pass, work *run)
{
	int chosen;

	return fastest(trial->engine, trial->math, pass, trial->weights, trial->bias, run, trial,
		       &chosen);
}

static bool is_dense_faster(const struct engine *engine, const struct program_op *op)
{
	struct trial trial;
	bool faster = false;

	if (trial_open(&trial, engine, op)) {
		double listed = shortest(engine, run_list, &trial, -1);
		double masks = shortest(engine, run_masks, &trial, -1);
		double weights = dense_pass(&trial, MATH_BACK_WEIGHTS, run_weights);
		double data = trial.wanted ? dense_pass(&trial, MATH_BACK_DATA, run_data) : 0;

		faster = weights >= 0 && data >= 0 && masks + weights + data < listed;
	}
	trial_close(&trial);
	return faster;
}

/*
 * Returns whether [op] should use dense passes: by setup->choices, the memo or a measurement.
 * Called on rank 0.
 */
static bool choose_dense(const struct engine *engine, const struct program_op *op,
			 struct memo *memo)
{
	char key[KEY], choice[CHOICE] = "";

	if (engine->setup.choices) {
		restore(engine->setup.choices, op->name, gradients_of, choice);
		return strcmp(choice, list) != 0;
	}
	make_key(engine, op, gradients_of, key);
	if (!memo_find(memo, key, choice, sizeof(choice)) ||
	    (strcmp(choice, dense) != 0 && strcmp(choice, list) != 0)) {
		strcpy(choice, is_dense_faster(engine, op) ? dense : list);
		memo_add(memo, key, choice);
	}
	return strcmp(choice, dense) == 0;
}

int engine_choose_lists(struct engine *engine, struct ddp_error *error)
{
	const struct program *program = engine->program;
	struct memo memo;
	int status;

	memo_open(&memo);
	for (int i = 0; i < program->op_count; i++) {
		const struct program_op *op = &program->ops[i];

		engine->lists[op->layer] |= op->listed;
		if (op->listed && ddp_world(engine->setup.ddp)->rank == 0)
			engine->dense[op->layer] = choose_dense(engine, op, &memo);
	}
	memo_close(&memo);
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
static int run_site(const void *what)
{
	const struct site *site = what;
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

static int measure(const struct site *site)
{
	const struct model *model = site->engine->setup.model;
	const struct graph_node *node = op_of(site)->node;
	int chosen;

	fastest(site->engine, layer_of(site), site->pass, model_value(model, (size_t)node->weight),
		node->bias < 0 ? NULL : model_value(model, (size_t)node->bias), run_site, site,
		&chosen);
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
