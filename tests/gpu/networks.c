/* SPDX-License-Identifier: Apache-2.0 */
/*
 * networks.c - whole steps of the CUDA engine against the CPU's with its plain loops
 *
 *	networks [--small] [ENGINE [ROW]]	(all rows, or those whose names have ROW in them)
 *
 * Opens ddp_cuda.so, or ENGINE, as ddp-train does; where that is the emulation of tests/emulated, --small keeps to
 * what a CPU does in seconds. Momentum is so small that the optimizer's slot is the gradient of the step, to
 * the bit: so gradients are seen through pull() alone, whatever the engine keeps elsewhere.
 *
 * A ReLU or a maximum that two roundings decide differently changes a gradient by more than rounding
 * does, and most where large terms cancel, as in the shifts of the last BatchNorms. So the gradient of all
 * parameters together is held against the limit by its median over the steps; that of each parameter,
 * by its median too, against a wider one, which a gradient that is left out or doubled exceeds.
 */
#include "config.h"

#include <math.h>

#include "sides.h"

enum { STEPS = 20 };

static const struct row rows[] = {
	{"mnist, f32", "mnist", DDP_F32, false, 16, 0.05, 1e-4, 2e-3, 1e-4},
	{"mnist, tf32", "mnist", DDP_F32, true, 16, 0.05, 5e-3, 0.1, 5e-3},
	{"mnist, bf16", "mnist", DDP_BF16, false, 16, 0.05, 2e-2, 0.5, 2e-2},
	{"mnist, fp16", "mnist", DDP_F16, false, 16, 0.05, 2e-2, 0.5, 2e-2},
	{"cifar, f32", "cifar", DDP_F32, false, 4, 1e-4, 1e-4, 2e-3, 1e-4},
	{"cifar, tf32", "cifar", DDP_F32, true, 4, 1e-4, 5e-3, 0.1, 5e-3},
	{"cifar, bf16", "cifar", DDP_BF16, false, 4, 1e-4, 2e-2, 0.5, 5e-2},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char too_large[] = "cifar, a batch of 32,767";

static bool small;

static uint64_t counted[SAMPLES];

/* --- Steps ------------------------------------------------------------------------------------- */

/* Every fourth batch is a short one, as the last of an epoch is. */
static struct batch batch_of(const struct work *work, size_t step)
{
	size_t most = work->row->batch, from = step * most % (SAMPLES - most);

	return (struct batch){.indices = counted + from,
			      .orders = counted + from,
			      .count = step % 4 == 1 ? most - 1 : most,
			      .seed = 3,
			      .epoch = 2,
			      .augment = true};
}

/* One step with its result; [loss] is the mean. */
static int step_side(struct work *work, struct side *side, size_t step, double *loss)
{
	struct batch batch = batch_of(work, step);
	struct engine_step done = {0}, late = {0};
	int status = side->class->step(side->engine, &batch, batch.count, step + 1, work->row->rate,
				       false, &done, &work->error);

	if (status == 0 && side->class->settle)
		status = side->class->settle(side->engine, &late, &work->error);
	if (status < 0)
		return status;
	*loss = (done.loss + late.loss) / (double)(done.samples + late.samples);
	if (done.steps + late.steps == 1 && done.skipped + late.skipped == 0 &&
	    done.samples + late.samples == batch.count)
		return side->class->pull(side->engine, &work->error);
	return ddp_error_set(&work->error, DDP_ERR_ENGINE,
			     "step %zu told of %llu steps, %llu skipped, %llu samples", step + 1,
			     (unsigned long long)(done.steps + late.steps),
			     (unsigned long long)(done.skipped + late.skipped),
			     (unsigned long long)(done.samples + late.samples));
}

/* The distance of two vectors, to the length of the second. */
static double distance(const float *a, const float *b, size_t count)
{
	double apart = 0, length = 0;

	for (size_t i = 0; i < count; i++) {
		apart += pow((double)a[i] - (double)b[i], 2);
		length += pow((double)b[i], 2);
	}
	return length > 0 ? sqrt(apart / length) : apart > 0 ? INFINITY : 0;
}

static void note_errors(struct work *work, size_t step)
{
	const struct graph *graph = work->graph;
	const float *mine = work->cuda.model->slots[0], *theirs = work->cpu.model->slots[0];
	double *errors = work->errors + step;

	for (size_t i = 0; i < graph->parameter_count; i++) {
		size_t at = work->cpu.model->offsets[i];

		errors[i * work->steps] =
			distance(mine + at, theirs + at, graph->parameters[i].count);
	}
	errors[graph->parameter_count * work->steps] =
		distance(mine, theirs, work->cpu.model->count);
}

/* Those of the CPU, rounded on both sides. */
static int same_weights(struct work *work)
{
	struct model *from = work->cpu.model, *to = work->cuda.model;
	int status;

	round_values(from);
	status = engine_cpu.push(work->cpu.engine, &work->error);
	if (status < 0)
		return status;
	memcpy(to->values, from->values, from->count * sizeof(float));
	memcpy(to->slots[0], from->slots[0], from->count * sizeof(float));
	memcpy(to->buffers, from->buffers, from->buffer_count * sizeof(float));
	return cuda->push(work->cuda.engine, &work->error);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of parameter [index] over the steps; NaN counts as infinite. */
static double median(struct work *work, size_t index)
{
	double *errors = work->errors + index * work->steps;

	for (size_t i = 0; i < work->steps; i++)
		errors[i] = isnan(errors[i]) ? INFINITY : errors[i];
	qsort(errors, work->steps, sizeof(double), by_size);
	return errors[work->steps / 2];
}

static void judge_gradients(struct work *work)
{
	const struct graph *graph = work->graph;
	double all = median(work, graph->parameter_count), worst = 0;
	size_t which = 0;

	ok(all <= work->row->gradient, "%s: gradients of %zu steps within %.0e: %.1e",
	   work->row->name, work->steps, work->row->gradient, all);
	for (size_t i = 0; i < graph->parameter_count; i++) {
		double error = median(work, i);

		which = error > worst ? i : which;
		worst = fmax(worst, error);
	}
	ok(worst <= work->row->each, "%s: that of each parameter within %.0e: %.1e in %s",
	   work->row->name, work->row->each, worst, graph->parameters[which].name);
}

/* Each step from the same weights: gradients, running statistics. */
static int compare_gradients(struct work *work)
{
	const struct model *one = work->cuda.model, *other = work->cpu.model;
	double mine = 0, theirs = 0, apart = 0;
	int status = 0;

	for (size_t step = 0; status == 0 && step < work->steps; step++) {
		status = step_side(work, &work->cpu, step, &theirs);
		if (status == 0)
			status = step_side(work, &work->cuda, step, &mine);
		if (status < 0)
			return status;
		note_errors(work, step);
		apart = fmax(apart, distance(one->buffers, other->buffers, one->buffer_count));
		status = same_weights(work);
	}
	judge_gradients(work);
	if (one->buffer_count > 0)
		ok(apart <= work->row->gradient, "%s: running statistics within %.0e: %.1e",
		   work->row->name, work->row->gradient, apart);
	return status;
}

/* Both go their own way. */
static int compare_losses(struct work *work)
{
	double mine = 0, theirs = 0, apart = 0, first = 0;
	int status = 0;

	for (size_t step = 0; status == 0 && step < work->steps; step++) {
		status = step_side(work, &work->cpu, step, &theirs);
		if (status == 0)
			status = step_side(work, &work->cuda, step, &mine);
		first = step == 0 ? theirs : first;
		if (!(fabs(mine - theirs) / theirs <= apart))
			apart = fabs(mine - theirs) / theirs;
	}
	if (status == 0)
		ok(apart <= work->row->losses, "%s: %zu losses, %.4f to %.4f, within %.0e: %.1e",
		   work->row->name, work->steps, first, theirs, work->row->losses, apart);
	return status;
}

/* The test batch is another size, and not full. */
static int compare_evaluations(struct work *work)
{
	struct ddp_evaluation mine = {0}, theirs = {0};
	struct batch batch = batch_of(work, 0);
	int status;

	batch.augment = false;
	batch.count = 2 * work->row->batch - 1;
	status = same_weights(work);
	if (status == 0)
		status = engine_cpu.evaluate(work->cpu.engine, &batch, &theirs, &work->error);
	if (status == 0)
		status = cuda->evaluate(work->cuda.engine, &batch, &mine, &work->error);
	if (status < 0)
		return status;
	ok(mine.samples == theirs.samples && mine.top1 + 1 >= theirs.top1 &&
		   mine.top1 <= theirs.top1 + 1 &&
		   fabs(mine.loss - theirs.loss) <= work->row->losses * theirs.loss,
	   "%s: evaluation of %llu: loss %.6f and %.6f, right %llu and %llu", work->row->name,
	   (unsigned long long)mine.samples, mine.loss / (double)mine.samples,
	   theirs.loss / (double)theirs.samples, (unsigned long long)mine.top1,
	   (unsigned long long)theirs.top1);
	return 0;
}

static void describe(const struct work *work)
{
	const struct engine *engine = work->cuda.engine;

	printf("# %s: %s", work->row->name, cuda->describe(engine));
	if (cuda->device)
		printf(", %s", cuda->device(engine));
	if (cuda->memory)
		printf(", %.1f MiB of its memory", (double)cuda->memory(engine) / (1 << 20));
	putchar('\n');
}

static void compare(const struct row *row)
{
	struct row fitted = *row;
	struct work work = {.row = &fitted, .steps = STEPS};
	bool cifar = strcmp(row->net, "cifar") == 0;
	int status;

	if (small) {
		fitted.batch = cifar ? 2 : 6;
		work.steps = cifar ? 2 : 5;
	}
	status = worked(&work, open_both(&work), "both engines open");
	if (status == 0) {
		describe(&work);
		status = compare_gradients(&work);
	}
	if (status == 0)
		status = compare_losses(&work);
	if (status == 0)
		status = compare_evaluations(&work);
	if (status < 0)
		ok(false, "%s: %s", row->name, work.error.text);
	close_both(&work);
}

/* --- What does not fit --------------------------------------------------------------------------- */

/*
 * More than an H200 has, in layers whose values 32 bits can still count; then one step shows that the
 * GPU is as good as before.
 */
static void exhaust(void)
{
	struct row row = {too_large, "cifar", DDP_F32, false, 32767, 1e-4, 0, 0, 0};
	struct work work = {.row = &row, .steps = 1};
	double loss = 0;
	int status;

	status = open_world(&work);
	work.net = net_create(row.net, 0);
	work.optim = optim_default(OPTIM_SGD);
	work.optim.momentum = 1e-30;
	if (status == 0)
		status = graph_create(&work.graph, work.net, &work.error);
	if (status == 0)
		status = set_open(
			&work.set,
			&(struct set_options){.kind = SET_CIFAR10, .samples = SAMPLES, .seed = 7},
			&work.error);
	if (worked(&work, status, "a world and a data set") == 0) {
		status = open_side(&work, &work.cuda, cuda);
		ok(status == DDP_ERR_MEMORY && strstr(work.error.text, "--batch"),
		   "%s is refused, with what to lower: %s", row.name, work.error.text);
		close_side(&work.cuda);
		memset(&work.cuda, 0, sizeof(work.cuda));
		row.batch = 4;
		status = open_side(&work, &work.cuda, cuda);
		if (status == 0)
			status = step_side(&work, &work.cuda, 0, &loss);
		ok(status == 0 && loss > 0, "and a batch of 4 trains after it: %s",
		   status < 0 ? work.error.text : "yes");
	}
	close_both(&work);
}

int main(int argc, char **argv)
{
	struct ddp_error error = {0, ""};
	const char *name = "cuda", *only = "";

	small = argc > 1 && strcmp(argv[1], "--small") == 0;
	name = argc > 1 + small ? argv[1 + small] : name;
	only = argc > 2 + small ? argv[2 + small] : only;
	for (size_t i = 0; i < SAMPLES; i++)
		counted[i] = i;
	cuda = engine_find(name, NULL, &error);
	if (!ok(cuda != NULL, "engine %s is there", name))
		printf("# %s\n", error.text);
	for (size_t i = 0; cuda && i < ROWS; i++)
		if (strstr(rows[i].name, only))
			compare(&rows[i]);
	if (cuda && strstr(too_large, only))
		exhaust();
	return tap_end();
}
