/* SPDX-License-Identifier: Apache-2.0 */
/*
 * networks.c - steps of the CUDA engine, compared with the CPU engine's plain loops
 *
 *     networks [ROW [small]]    tests the rows whose names contain ROW; small: with few samples and
 *                               steps, for emulated GPUs
 *
 * The optimizer is SGD with a momentum of 1e-30, so that its slot has the bits of the step's
 * gradient. pull() copies the slot to the model.
 *
 * If rounding decides a ReLU or a maximum differently, a gradient changes by more than rounding
 * does. The change is largest where large terms cancel, as in the shifts of the last BatchNorms. So
 * each limit applies to the median over the steps. There is a limit for the gradient of all
 * parameters, and a wider one for the gradient of each parameter, which still detects a missing or
 * doubled gradient.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "cpu/engine-private.h"
#include "tap.h"

enum { SAMPLES = 512, STEPS = 20 };

static const struct row {
	const char *name;
	const char *net;
	enum ddp_type type;
	bool tf32;
	size_t batch;
	double rate;
	double gradient, each, losses; /* limits of relative distances */
} rows[] = {
	{"mnist, f32", "mnist", DDP_F32, false, 16, 0.05, 1e-4, 2e-3, 1e-4},
	{"mnist, tf32", "mnist", DDP_F32, true, 16, 0.05, 5e-3, 0.1, 5e-3},
	{"mnist, bf16", "mnist", DDP_BF16, false, 16, 0.05, 2e-2, 0.5, 2e-2},
	{"mnist, fp16", "mnist", DDP_F16, false, 16, 0.05, 2e-2, 0.5, 2e-2},
	{"cifar, f32", "cifar", DDP_F32, false, 4, 1e-4, 1e-4, 2e-3, 1e-4},
	{"cifar, tf32", "cifar", DDP_F32, true, 4, 1e-4, 5e-3, 0.1, 5e-3},
	{"cifar, bf16", "cifar", DDP_BF16, false, 4, 1e-4, 2e-2, 0.5, 5e-2},
};

/*
 * Needs more memory than an H200 has, in layers whose elements can still be counted with 32 bits.
 */
static const struct row too_large = {
	"cifar, a batch of 32,767", "cifar", DDP_F32, false, 32767, 1e-4, 0, 0, 0};

struct side {
	const struct engine_class *class;
	struct engine *engine;
	struct model *model;
	struct ddp_scaler scaler;
};

struct work {
	struct row row;
	size_t steps;
	struct ddp *ddp;
	struct net *net;
	struct graph *graph;
	struct set *set;
	struct optim optim;
	struct side cuda, cpu;
	/* errors of each parameter in each step, then those of all parameters in each step */
	double *errors;
	struct ddp_error error;
};

static uint64_t counted[SAMPLES]; /* 0, 1, 2, ... */

/* --- Both engines ----------------------------------------------------------------------- */

static void round_values(struct model *model)
{
	for (size_t i = 0; i < model->count; i++) {
		uint32_t bits = (uint32_t)ddp_to_bf16(model->values[i]) << 16;

		memcpy(&model->values[i], &bits, sizeof(bits));
	}
}

/*
 * Sets PyTorch's initial values, rounded to bf16 so that no type rounds them again. After
 * BatchNorm, channels are mostly positive and mostly negative in turn, because near 0 rounding
 * would decide a ReLU.
 */
static void set_values(const struct work *work, struct model *model)
{
	model_init(model, 1);
	for (size_t i = 0; i < work->graph->parameter_count; i++) {
		const struct graph_parameter *parameter = &work->graph->parameters[i];
		float *values = model_value(model, i);

		for (size_t k = 0; k < parameter->count && parameter->role == GRAPH_SHIFT; k++)
			values[k] += k % 2 ? -2 : 2;
	}
	round_values(model);
}

static int open_side(struct work *work, struct side *side, const struct engine_class *class)
{
	bool cpu = class == &engine_cpu;
	struct engine_setup setup = {
		.ddp = work->ddp,
		.train = work->set,
		.test = work->set,
		.optim = &work->optim,
		.batch = work->row.batch,
		.test_batch = 2 * work->row.batch,
		/* the CPU engine has no f16; both results approximate f32's */
		.type = cpu && work->row.type == DDP_F16 ? DDP_F32 : work->row.type,
		.scaler = !cpu && work->row.type == DDP_F16 ? &side->scaler : NULL,
		.tf32 = !cpu && work->row.tf32,
		.exact = true,
		.deterministic = true,
		.threads = 1,
	};
	int status = model_create(&side->model, work->ddp, work->graph, 1, DDP_F32,
				  class->device_gradients, 0, &work->error);

	if (status < 0)
		return status;
	side->class = class;
	side->scaler = (struct ddp_scaler)DDP_SCALER_INIT;
	side->scaler.scale = 128;
	setup.model = side->model;
	set_values(work, side->model);
	if (cpu)
		status = engine_create(&side->engine, &setup, &math_plain, &work->error);
	else
		status = class->open(&side->engine, &setup, &work->error);
	return status < 0 ? status : class->push(side->engine, &work->error);
}

static void close_side(struct side *side)
{
	if (side->engine)
		side->class->close(side->engine);
	model_destroy(side->model);
	*side = (struct side){NULL, NULL, NULL, DDP_SCALER_INIT};
}

static int open_work(struct work *work)
{
	bool mnist = strcmp(work->row.net, "mnist") == 0;
	struct set_options data = {
		.kind = mnist ? SET_MNIST : SET_CIFAR10, .samples = SAMPLES, .seed = 7};
	struct ddp_options options = DDP_OPTIONS_INIT;
	int status;

	options.method = "single";
	if (ddp_init(&work->ddp, &options) < 0)
		return ddp_error_set(&work->error, DDP_ERR_STATE, "%s", ddp_error(work->ddp));
	data.ddp = work->ddp;
	work->net = net_create(work->row.net, 0);
	work->optim = optim_default(OPTIM_SGD);
	work->optim.momentum = 1e-30;
	status = graph_create(&work->graph, work->net, &work->error);
	if (status == 0)
		status = set_open(&work->set, &data, &work->error);
	if (status == 0)
		work->errors =
			calloc(work->steps * (work->graph->parameter_count + 1), sizeof(double));
	return status;
}

static void close_work(struct work *work)
{
	close_side(&work->cuda);
	close_side(&work->cpu);
	set_close(work->set);
	graph_destroy(work->graph);
	net_destroy(work->net);
	ddp_destroy(work->ddp);
	free(work->errors);
}

/* --- Steps ------------------------------------------------------------------------------ */

/* Returns the batch of a step. Every fourth batch is short, like the last one of an epoch. */
static struct batch batch_of(const struct work *work, size_t step)
{
	size_t most = work->row.batch, from = step * most % (SAMPLES - most);

	return (struct batch){.indices = counted + from,
			      .orders = counted + from,
			      .count = step % 4 == 1 ? most - 1 : most,
			      .seed = 3,
			      .epoch = 2,
			      .augment = true};
}

/* Runs a step on one side. Sets [loss] to the mean loss. */
static int step_side(struct work *work, struct side *side, size_t step, double *loss)
{
	struct batch batch = batch_of(work, step);
	struct engine_step done = {0}, late = {0};
	int status = side->class->step(side->engine, &batch, batch.count, step + 1, work->row.rate,
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
			     "step %zu reported %llu steps, %llu skipped, %llu samples", step + 1,
			     (unsigned long long)(done.steps + late.steps),
			     (unsigned long long)(done.skipped + late.skipped),
			     (unsigned long long)(done.samples + late.samples));
}

/* Runs a step on both sides. Sets [apart] to the relative distance of their losses. */
static int step_both(struct work *work, size_t step, double *apart)
{
	double cpu = 0, cuda = 0;
	int status = step_side(work, &work->cpu, step, &cpu);

	if (status == 0)
		status = step_side(work, &work->cuda, step, &cuda);
	*apart = fabs(cuda - cpu) / cpu;
	return status;
}

/* Copies the CPU's rounded weights, and its buffers, to both sides. */
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
	return work->cuda.class->push(work->cuda.engine, &work->error);
}

/* --- Comparisons ------------------------------------------------------------------------ */

/* Returns the distance of two vectors, relative to the length (2-norm) of the second. */
static double distance(const float *a, const float *b, size_t count)
{
	double apart = 0, length = 0;

	for (size_t i = 0; i < count; i++) {
		apart += pow((double)a[i] - (double)b[i], 2);
		length += pow((double)b[i], 2);
	}
	return length > 0 ? sqrt(apart / length) : apart > 0 ? INFINITY : 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median error of parameter [index] over the steps. NaN counts as infinite. */
static double median(struct work *work, size_t index)
{
	double *errors = work->errors + index * work->steps;

	for (size_t i = 0; i < work->steps; i++)
		errors[i] = isnan(errors[i]) ? INFINITY : errors[i];
	qsort(errors, work->steps, sizeof(double), by_size);
	return errors[work->steps / 2];
}

/* Starts every step from the same weights. Compares gradients and running statistics. */
static int compare_gradients(struct work *work)
{
	const struct model *cuda = work->cuda.model, *cpu = work->cpu.model;
	size_t count = work->graph->parameter_count, which = 0;
	double buffers = 0, loss, all, worst = 0;
	int status = 0;

	for (size_t step = 0; status == 0 && step < work->steps; step++) {
		status = step_both(work, step, &loss);
		if (status < 0)
			return status;
		for (size_t i = 0; i < count; i++)
			work->errors[i * work->steps + step] =
				distance(cuda->slots[0] + cpu->offsets[i],
					 cpu->slots[0] + cpu->offsets[i],
					 work->graph->parameters[i].count);
		work->errors[count * work->steps + step] =
			distance(cuda->slots[0], cpu->slots[0], cpu->count);
		buffers = fmax(buffers, distance(cuda->buffers, cpu->buffers, cpu->buffer_count));
		status = same_weights(work);
	}
	all = median(work, count);
	ok(all <= work->row.gradient, "%s: gradients of %zu steps within %.0e: %.1e",
	   work->row.name, work->steps, work->row.gradient, all);
	for (size_t i = 0; i < count; i++) {
		double error = median(work, i);

		which = error > worst ? i : which;
		worst = fmax(worst, error);
	}
	ok(worst <= work->row.each, "%s: that of each parameter within %.0e: %.1e in %s",
	   work->row.name, work->row.each, worst, work->graph->parameters[which].name);
	ok(buffers <= work->row.gradient, "%s: running statistics within %.0e: %.1e",
	   work->row.name, work->row.gradient, buffers);
	return status;
}

/* Compares the losses of two trainings. Each one continues with its own weights. */
static int compare_losses(struct work *work)
{
	double apart, worst = 0;
	int status = 0;

	for (size_t step = 0; status == 0 && step < work->steps; step++) {
		status = step_both(work, step, &apart);
		worst = apart <= worst ? worst : apart;
	}
	if (status == 0)
		ok(worst <= work->row.losses, "%s: losses of %zu steps within %.0e: %.1e",
		   work->row.name, work->steps, work->row.losses, worst);
	return status;
}

/* The test batch has another size than the training batch, and is not full. */
static int compare_evaluations(struct work *work)
{
	struct ddp_evaluation cuda = {0}, cpu = {0};
	struct batch batch = batch_of(work, 0);
	int status;

	batch.augment = false;
	batch.count = 2 * work->row.batch - 1;
	status = same_weights(work);
	if (status == 0)
		status = engine_cpu.evaluate(work->cpu.engine, &batch, &cpu, &work->error);
	if (status == 0)
		status = work->cuda.class->evaluate(work->cuda.engine, &batch, &cuda, &work->error);
	if (status == 0)
		ok(cuda.samples == cpu.samples && cuda.top1 + 1 >= cpu.top1 &&
			   cuda.top1 <= cpu.top1 + 1 &&
			   fabs(cuda.loss - cpu.loss) <= work->row.losses * cpu.loss,
		   "%s: evaluation of %llu: losses %.6f and %.6f, hits %llu and %llu",
		   work->row.name, (unsigned long long)cuda.samples, cuda.loss, cpu.loss,
		   (unsigned long long)cuda.top1, (unsigned long long)cpu.top1);
	return status;
}

static void compare(const struct row *row, const struct engine_class *class, bool small)
{
	struct work work = {.row = *row, .steps = STEPS};
	int status;

	if (small) {
		work.row.batch /= 2;
		work.steps = strcmp(row->net, "cifar") == 0 ? 2 : 5;
	}
	status = open_work(&work);
	if (status == 0)
		status = open_side(&work, &work.cpu, &engine_cpu);
	if (status == 0)
		status = open_side(&work, &work.cuda, class);
	if (status == 0) {
		printf("# %s: %s, %.1f MiB on the GPU\n", row->name,
		       class->describe(work.cuda.engine),
		       class->memory ? (double)class->memory(work.cuda.engine) / (1 << 20) : 0);
		status = compare_gradients(&work);
	}
	if (status == 0)
		status = compare_losses(&work);
	if (status == 0)
		status = compare_evaluations(&work);
	ok(status == 0, "%s: both engines work%s%s", row->name, status ? ": " : "",
	   status ? work.error.text : "");
	close_work(&work);
}

/* A batch is refused because it needs too much memory. After that, a small batch still trains. */
static void exhaust(const struct engine_class *class)
{
	struct work work = {.row = too_large, .steps = 1};
	double loss = 0;
	int status = open_work(&work);

	if (status == 0)
		status = open_side(&work, &work.cuda, class);
	ok(status == DDP_ERR_MEMORY && strstr(work.error.text, "--batch"),
	   "%s is refused, with what to lower: %s", too_large.name, work.error.text);
	close_side(&work.cuda);
	work.row.batch = 4;
	status = open_side(&work, &work.cuda, class);
	if (status == 0)
		status = step_side(&work, &work.cuda, 0, &loss);
	ok(status == 0 && loss > 0, "then a batch of 4 trains: %s",
	   status < 0 ? work.error.text : "yes");
	close_work(&work);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "";
	struct ddp_error error = {0, ""};
	const struct engine_class *class = engine_find_cuda(NULL, &error);

	for (size_t i = 0; i < SAMPLES; i++)
		counted[i] = i;
	if (!ok(class != NULL, "ddp_cuda.so is opened%s%s", class ? "" : ": ", error.text))
		return tap_end();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strstr(rows[i].name, only))
			compare(&rows[i], class, argc > 2);
	if (strstr(too_large.name, only))
		exhaust(class);
	return tap_end();
}
