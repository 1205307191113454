/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "conv-cudnn.h"
#include "library.h"

/*
 * How many plans of each kind are timed, in rounds of so many runs in one graph; the fastest round counts.
 * Heuristics are right about the first in most cases, and within the first few nearly always.
 */
enum { TRIES = 4, ROUNDS = 3, RUNS = 4 };

/* Scratch memory of cuDNN: a base, which cublasLt has too, and what is in proportion to the layer. */
#define WORKSPACE_BASE ((size_t)32 << 20)
enum { WORKSPACE_PART = 8 }; /* of the rank's memory, at most */

/* What is tried: plans, and memory that they run on. */
struct trial {
	const struct library *library;
	struct conv_plan *plans[2 * TRIES];
	int count;
	struct conv_memory memory;
	cudaEvent_t begin, end;
};

static size_t count_x(const struct conv_problem *problem)
{
	const struct conv_options *o = problem->options;

	return problem->batch * (size_t)o->height * (size_t)o->width * (size_t)o->in;
}

static size_t count_y(const struct conv_problem *problem)
{
	const struct conv_options *o = problem->options;

	return problem->batch * (size_t)conv_height(o) * (size_t)conv_width(o) * (size_t)o->out;
}

static size_t count_weights(const struct conv_options *o)
{
	return (size_t)o->out * (size_t)o->in * (size_t)o->size * (size_t)o->size;
}

size_t conv_workspace(const struct conv_problem *problem, size_t memory)
{
	size_t element = problem->options->type == DDP_F32 ? 4 : 2;
	size_t bytes = WORKSPACE_BASE + element * (count_weights(problem->options) +
						   2 * (count_x(problem) + count_y(problem)));

	return bytes < memory / WORKSPACE_PART ? bytes : memory / WORKSPACE_PART;
}

/* --- Plans to try --------------------------------------------------------------------------- */

static void add_plans(struct trial *trial, const struct conv_problem *problem,
		      const struct conv_limits *limits, char *text, size_t size)
{
	struct choices_plan list[TRIES];
	int count = conv_plans(problem, limits, list, TRIES, text, size);

	for (int i = 0; i < count; i++) {
		struct conv_plan *plan = conv_plan_create(problem, limits, &list[i], text, size);

		if (plan)
			trial->plans[trial->count++] = plan;
	}
}

/*
 * Whole graphs first; then those that leave the rest to our kernels. Kernels that are compiled when they
 * are wanted are the last resort: that takes longer, at every start, than such a network's first epoch.
 */
static void find_plans(struct trial *trial, const struct conv_problem *problem,
		       struct conv_limits *limits, char *text, size_t size)
{
	for (int compile = 0; compile < 2 && trial->count == 0; compile++) {
		struct conv_problem form = *problem;

		limits->compile = compile;
		form.whole = true;
		add_plans(trial, &form, limits, text, size);
		form.whole = false;
		if (conv_has_pieces(problem->options, problem->pass))
			add_plans(trial, &form, limits, text, size);
	}
}

static void drop_plan(struct trial *trial, int index)
{
	trial->count--;
	conv_plan_destroy(trial->plans[index]);
	memmove(&trial->plans[index], &trial->plans[index + 1],
		(size_t)(trial->count - index) * sizeof(trial->plans[0]));
}

/* --- Memory to try them on ------------------------------------------------------------------ */

static int allocate(struct trial *trial, void **memory, size_t bytes, struct ddp_error *error)
{
	const char *what = "trying the plans of a convolution", *remedy = "lower --batch";

	return device_alloc(trial->library->device, memory, bytes, what, remedy, error);
}

static int open_memory(struct trial *trial, const struct conv_problem *problem,
		       struct ddp_error *error)
{
	const struct conv_options *o = problem->options;
	size_t element = o->type == DDP_F32 ? 4 : 2, scratch = 0;
	size_t bytes[CONV_TENSORS] = {
		[CONV_X] = element * count_x(problem),
		[CONV_WEIGHTS] = sizeof(float) * count_weights(o),
		[CONV_BIAS] = sizeof(float) * (size_t)o->out,
		[CONV_Y] = element * count_y(problem),
	};
	int err = 0;

	for (int i = 0; i < trial->count; i++)
		if (conv_plan_scratch(trial->plans[i]) > scratch)
			scratch = conv_plan_scratch(trial->plans[i]);
	for (int tensor = CONV_X; tensor < CONV_TENSORS && err == 0; tensor++)
		err = allocate(trial, &trial->memory.tensors[tensor], bytes[tensor], error);
	if (err == 0 && scratch > 0)
		err = allocate(trial, &trial->memory.scratch, scratch, error);
	return err;
}

static void close_memory(struct trial *trial)
{
	for (int tensor = CONV_X; tensor < CONV_TENSORS; tensor++)
		device_free(trial->library->device, trial->memory.tensors[tensor]);
	device_free(trial->library->device, trial->memory.scratch);
	memset(&trial->memory, 0, sizeof(trial->memory));
}

/* --- Runs ----------------------------------------------------------------------------------- */

static int run(const struct trial *trial, const struct conv_plan *plan, struct ddp_error *error)
{
	return conv_plan_run(plan, trial->library, DEVICE_COMPUTE, &trial->memory, error);
}

/* Once outside of a graph: what it needs is loaded then. */
static int run_once(const struct trial *trial, const struct conv_plan *plan,
		    struct ddp_error *error)
{
	int err = run(trial, plan, error);

	if (err < 0)
		return err;
	return device_wait(trial->library->device, DEVICE_COMPUTE, error);
}

static int capture(const struct trial *trial, const struct conv_plan *plan,
		   struct device_graph **graph, struct ddp_error *error)
{
	struct device *device = trial->library->device;
	int err = device_capture_begin(device, error), ended;

	if (err < 0)
		return err;
	for (int i = 0; i < RUNS && err == 0; i++)
		err = run(trial, plan, error);
	ended = device_capture_end(device, graph, err < 0 ? NULL : error);
	return err < 0 ? err : ended;
}

/* Milliseconds of one launch of [graph]. */
static int time_launch(const struct trial *trial, struct device_graph *graph, float *time,
		       struct ddp_error *error)
{
	struct device *device = trial->library->device;
	cudaStream_t stream = device_stream(device, DEVICE_COMPUTE);
	cudaError_t status = cudaEventRecord(trial->begin, stream);
	int err = device_launch(device, graph, error);

	if (err < 0)
		return err;
	if (status == cudaSuccess)
		status = cudaEventRecord(trial->end, stream);
	err = device_wait(device, DEVICE_COMPUTE, error);
	if (err < 0)
		return err;
	if (status == cudaSuccess)
		status = cudaEventElapsedTime(time, trial->begin, trial->end);
	if (status == cudaSuccess)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENGINE, "GPU %d: timing a convolution: %s",
			     device_info(device)->index, cudaGetErrorString(status));
}

/* The fastest of a few rounds, as a step will run it: in a graph. */
static int time_plan(const struct trial *trial, const struct conv_plan *plan, float *best,
		     struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	float time = 0;
	int err = capture(trial, plan, &graph, error);

	for (int round = 0; round < ROUNDS && err == 0; round++) {
		err = time_launch(trial, graph, &time, error);
		if (round == 0 || time < *best)
			*best = time;
	}
	device_graph_destroy(graph);
	return err;
}

/* --- Choosing ------------------------------------------------------------------------------- */

/*
 * Those that do not run or cannot be captured are out. With [timed] the fastest comes first.
 * Fails with the last one's error where none is left.
 */
static int try_plans(struct trial *trial, bool timed, struct ddp_error *error)
{
	float best = 0, time = 0;
	int first = 0, err = 0;

	for (int i = 0; i < trial->count;) {
		err = run_once(trial, trial->plans[i], error);
		if (err == 0 && timed)
			err = time_plan(trial, trial->plans[i], &time, error);
		if (err < 0) {
			drop_plan(trial, i);
			continue;
		}
		if (i == 0 || time < best) {
			first = i;
			best = time;
		}
		if (!timed)
			break;
		i++;
	}
	if (trial->count == 0)
		return err;
	ddp_error_clear(error);
	if (first > 0) {
		struct conv_plan *plan = trial->plans[first];

		trial->plans[first] = trial->plans[0];
		trial->plans[0] = plan;
	}
	return 0;
}

static int try_all(struct trial *trial, const struct conv_problem *problem, bool timed,
		   struct ddp_error *error)
{
	cudaError_t status = cudaSuccess;
	int err;

	if (timed)
		status = cudaEventCreate(&trial->begin);
	if (timed && status == cudaSuccess)
		status = cudaEventCreate(&trial->end);
	if (status != cudaSuccess)
		return ddp_error_set(error, DDP_ERR_ENGINE, "GPU %d: making an event: %s",
				     device_info(trial->library->device)->index,
				     cudaGetErrorString(status));
	err = open_memory(trial, problem, error);
	if (err == 0)
		err = try_plans(trial, timed, error);
	close_memory(trial);
	return err;
}

static int no_plan(const struct trial *trial, const struct conv_problem *problem, const char *text,
		   struct ddp_error *error)
{
	const struct device_info *info = device_info(trial->library->device);
	char title[256];

	conv_title(problem, title, sizeof(title));
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "GPU %d (%s): %s: %s has no plan: %s",
			     info->index, info->name, title, conv_describe(), text);
}

/* Before cuDNN says in its own words that a tensor is too large for it. */
static int check_room(const struct library *library, const struct conv_problem *problem,
		      struct ddp_error *error)
{
	const struct device_info *info = device_info(library->device);
	size_t element = problem->options->type == DDP_F32 ? 4 : 2;
	size_t bytes = element * (count_x(problem) + count_y(problem));
	char title[256];

	if (bytes <= info->limit)
		return 0;
	conv_title(problem, title, sizeof(title));
	return ddp_error_set(error, DDP_ERR_MEMORY,
			     "GPU %d (%s): %s reads and writes %zu MiB, of %zu MiB of memory that "
			     "it may have: lower --batch",
			     info->index, info->name, title, bytes >> 20, info->limit >> 20);
}

/* Whether what was chosen before is a plan here too, and runs. */
static bool take_saved(struct trial *trial, const struct conv_problem *problem,
		       const struct conv_limits *limits, const struct choices_plan *saved)
{
	char text[512];

	trial->plans[0] = conv_plan_create(problem, limits, saved, text, sizeof(text));
	trial->count = trial->plans[0] != NULL;
	return trial->count > 0 && try_all(trial, problem, false, NULL) == 0;
}

static void close_trial(struct trial *trial)
{
	for (int i = 0; i < trial->count; i++)
		conv_plan_destroy(trial->plans[i]);
	if (trial->begin)
		cudaEventDestroy(trial->begin);
	if (trial->end)
		cudaEventDestroy(trial->end);
}

int conv_choose(struct conv_plan **plan, const struct library *library,
		const struct conv_problem *problem, const struct choices_plan *saved,
		struct ddp_error *error)
{
	struct trial trial = {.library = library};
	size_t memory = device_info(library->device)->limit;
	struct conv_limits limits = {.handle = library->cudnn,
				     .workspace = conv_workspace(problem, memory)};
	char text[512] = "";
	int err = check_room(library, problem, error);

	*plan = NULL;
	if (err < 0)
		return err;
	if (!saved || !take_saved(&trial, problem, &limits, saved)) {
		find_plans(&trial, problem, &limits, text, sizeof(text));
		err = trial.count > 0
			      ? try_all(&trial, problem, !problem->options->deterministic, error)
			      : no_plan(&trial, problem, text, error);
	}
	*plan = err == 0 ? trial.plans[0] : NULL;
	if (err == 0)
		trial.plans[0] = NULL;
	close_trial(&trial);
	return err;
}
