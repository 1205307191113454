/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.c - prepares a run for its first step, from the options
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xalloc.h"
#include "launch.h"
#include "run.h"

/* Prints a line on stdout before the report is open, unless --quiet or "--log-json -" is set. */
static void say(void *listener, const char *text)
{
	const struct options *options = listener;

	if (option_flag(options, OPTION_QUIET) ||
	    strcmp(option_text(options, OPTION_LOG_JSON), "-") == 0)
		return;
	puts(text);
	fflush(stdout);
}

/* --- Data ---------------------------------------------------------------------------------- */

static bool is_cifar(const struct run *run)
{
	return strcmp(run->options->net, "cifar") == 0;
}

/* Finds the kind of the data set. If a rank has different files, set_open() fails. */
static int find_kind(struct run *run, enum set_kind *kind)
{
	const char *directory = option_text(run->options, OPTION_DATA);
	int found;

	*kind = is_cifar(run) ? SET_CIFAR10 : SET_MNIST;
	if (!*directory)
		return 0;
	found = set_detect(directory, *kind, &run->error);
	if (found < 0)
		return found;
	*kind = (enum set_kind)found;
	if ((*kind != SET_MNIST) == is_cifar(run))
		return 0;
	return ddp_error_set(&run->error, DDP_ERR_FILE,
			     "--data %s has files of %s. Run ddp-train %s to train on them.",
			     directory, *kind == SET_MNIST ? "MNIST" : "CIFAR",
			     *kind == SET_MNIST ? "mnist" : "cifar");
}

/* Samples of the synthetic test set if the training set has [samples]; 0: as published. */
static uint64_t test_samples(uint64_t samples)
{
	return (samples + 5) / 6;
}

/* Bytes of memory and swap space that are available on this node; UINT64_MAX if unknown. */
static uint64_t free_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib, sum = 0;
	char line[128];
	bool known = false;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			known = true;
		else if (sscanf(line, "SwapFree: %llu kB", &kib) != 1)
			continue;
		sum += kib;
	}
	if (file)
		fclose(file);
	return known ? sum * 1024 : UINT64_MAX;
}

/*
 * Fails if synthetic images do not fit into memory. If the images need much memory, prints a line
 * before they are drawn.
 */
static int check_memory(struct run *run, enum set_kind kind, uint64_t samples)
{
	uint64_t bytes =
		set_drawn_bytes(kind, samples) + set_drawn_bytes(kind, test_samples(samples));
	uint64_t left = free_memory();
	char text[128];

	if (bytes > left)
		return ddp_error_set(
			&run->error, DDP_ERR_MEMORY,
			"the images of --samples %s, with a sixth as many for testing, take %s of "
			"memory, but %s has only %s left",
			ddp_show_count((double)samples).text, ddp_show_bytes(bytes).text,
			run->world->host, ddp_show_bytes(left).text);
	if (bytes < UINT64_C(1) << 30 || run->world->rank != 0)
		return 0;
	snprintf(text, sizeof(text), "drawn images take up to %s of memory on each node",
		 ddp_show_bytes(bytes).text);
	say((void *)run->options, text);
	return 0;
}

static int open_sets(struct run *run)
{
	const char *directory = option_text(run->options, OPTION_DATA);
	uint64_t samples = option_count(run->options, OPTION_SAMPLES);
	struct set_options options = {
		.directory = *directory ? directory : NULL,
		.samples = samples,
		.seed = run->seed,
		.ddp = run->ddp,
	};
	int status = run_agree(run, find_kind(run, &options.kind));

	if (status < 0)
		return status;
	if (!options.directory && samples > 0)
		status = run_agree(run, check_memory(run, options.kind, samples));
	if (status == 0)
		status = run_agree(run, set_open(&run->train, &options, &run->error));
	if (status < 0)
		return status;
	options.test = true;
	options.samples = test_samples(samples);
	return run_agree(run, set_open(&run->test, &options, &run->error));
}

/* --- Batches --------------------------------------------------------------------------------- */

/* Sets the number of parts: ranks or virtual ranks, equally many on each rank. */
static int set_parts(struct run *run)
{
	size_t ranks = (size_t)run->world->size, virtual, less;

	virtual = option_count(run->options, OPTION_VIRTUAL_RANKS);
	run->virtual = virtual > 0;
	run->total_parts = run->virtual ? virtual : ranks;
	run->parts = run->total_parts / ranks;
	run->threads = (int)option_count(run->options, OPTION_THREADS);
	if (!run->virtual)
		return 0;
	/*
	 * The number of threads affects the sums within a layer. Therefore the default must not
	 * depend on the machine.
	 */
	if (run->threads == 0)
		run->threads = 1;
	run->shared = true;
	if (run->class != &engine_cpu && !option_flag(run->options, OPTION_DETERMINISTIC))
		return ddp_error_set(
			&run->error, DDP_ERR_UNSUPPORTED,
			"--virtual-ranks %zu needs the same bits each time, and a convolution on "
			"GPUs may give others. Add --deterministic, or --engine cpu.",
			virtual);
	for (less = ranks; less > virtual || virtual % less != 0;)
		less--;
	if (less != ranks)
		return ddp_error_set(
			&run->error, DDP_ERR_ARGUMENT,
			"--virtual-ranks %zu cannot be divided evenly among %zu ranks. Start %zu "
			"rank%s, or give --virtual-ranks %zu.",
			virtual, ranks, less, less == 1 ? "" : "s",
			(virtual + ranks - 1) / ranks * ranks);
	run->shared = false;
	return 0;
}

static int refuse_batch(struct run *run, uint64_t total, uint64_t ranks)
{
	const char *what = run->virtual ? "virtual ranks" : "ranks";
	uint64_t less = total - total % ranks;
	struct ddp_shown given = ddp_show_count((double)total),
			 parts = ddp_show_count((double)ranks),
			 below = ddp_show_count((double)less),
			 above = ddp_show_count((double)(less + ranks));

	run->shared = true;
	if (less == 0)
		return ddp_error_set(&run->error, DDP_ERR_ARGUMENT,
				     "%s samples a step are too few for %s %s. Give %s or more.",
				     given.text, parts.text, what, above.text);
	return ddp_error_set(&run->error, DDP_ERR_ARGUMENT,
			     "%s samples a step cannot be divided evenly among %s %s. Give %s or "
			     "%s.",
			     given.text, parts.text, what, below.text, above.text);
}

/* Sets the batch of each part. All ranks compute the same result, and fail with the same error. */
static int set_batch(struct run *run)
{
	uint64_t ranks = run->total_parts, remainder;
	uint64_t total = option_count(run->options, OPTION_GLOBAL_BATCH);
	uint64_t samples = (set_info(run->train)->samples + ranks - 1) / ranks;

	run->batch = option_count(run->options, OPTION_BATCH);
	run->test_batch = option_count(run->options, OPTION_TEST_BATCH);
	if (total == 0 && launch_shares_batch() && !run->virtual)
		total = run->batch;
	remainder = total % ranks;
	if (remainder != 0)
		return refuse_batch(run, total, ranks);
	if (total > 0)
		run->batch = total / ranks;
	if (run->batch > samples)
		run->batch = samples;
	return 0;
}

static int create_buffers(struct run *run)
{
	size_t step = run->batch * run->parts;
	size_t count = step > run->test_batch ? step : run->test_batch;
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	int status = 0;

	run->indices = ddp_xcalloc(count, sizeof(*run->indices), "the order of samples");
	run->orders = ddp_xcalloc(count, sizeof(*run->orders), "the order of samples");
	run->samplers = ddp_xcalloc(run->parts, sizeof(struct ddp_sampler *), "samplers");
	options.samples = set_info(run->train)->samples;
	options.ranks = (int)run->total_parts;
	options.seed = run->seed;
	for (size_t i = 0; status == 0 && i < run->parts; i++) {
		options.rank = run->world->rank * (int)run->parts + (int)i;
		status = ddp_sampler_create(&run->samplers[i], &options, &run->error);
	}
	return status;
}

/* --- Network --------------------------------------------------------------------------------- */

static int create_net(struct run *run)
{
	run->net = net_create(run->options->net, set_info(run->train)->classes);
	return graph_create(&run->graph, run->net, &run->error);
}

static void set_optimizer(struct run *run)
{
	const struct options *options = run->options;

	run->optim = optim_default((enum optim_kind)option_word(options, OPTION_OPTIMIZER));
	run->optim.decay = option_number(options, OPTION_DECAY);
	run->optim.momentum = option_number(options, OPTION_MOMENTUM);
	run->optim.nesterov = strcmp(option_text(options, OPTION_NESTEROV), "on") == 0;
	run->schedule = (struct schedule){
		.kind = (enum schedule_kind)option_word(options, OPTION_SCHEDULE),
		.rate = option_number(options, OPTION_RATE),
		.gamma = option_number(options, OPTION_GAMMA),
		.every = (unsigned)option_count(options, OPTION_STEP_SIZE),
		.epochs = run->epochs,
		.warmup = option_number(options, OPTION_WARMUP),
	};
}

/* Returns the type for the value of --wire. [types] has the order of the option's values. */
static enum ddp_type wire_type(const struct options *options)
{
	static const enum ddp_type types[] = {DDP_F32, DDP_BF16, DDP_F16};

	return types[option_word(options, OPTION_WIRE)];
}

/*
 * Calls run_agree() with [status], the result of a collective function. If [status] is one of three
 * errors, other ranks may still wait in that function. Such an error ends the run at once.
 * Collective.
 */
static int agree_likely(struct run *run, int status)
{
	bool own = status == DDP_ERR_MEMORY || status == DDP_ERR_SYSTEM || status == DDP_ERR_ENGINE;

	return own ? status : run_agree(run, status);
}

static int read_file(struct run *run)
{
	const char *file = option_text(run->options, OPTION_INIT);
	int status = model_read(run->model, file, &run->error);

	if (status < 0 || model_is_finite(run->model))
		return status;
	return ddp_error_set(&run->error, DDP_ERR_FORMAT,
			     "--init %s has a weight that is not finite (nan or inf). Give "
			     "another file.",
			     file);
}

/* Reads the initial weights on all ranks, and checks that they are equal. */
static int read_weights(struct run *run)
{
	struct model_tensors tensors = {.list = NULL};
	int status = run_agree(run, read_file(run));

	if (status < 0)
		return status;
	model_tensors_create(&tensors, run->model, false);
	model_tensors_export(&tensors, run->model, 0);
	status = ddp_tensors_broadcast(run->ddp, tensors.list, tensors.count);
	if (status == 0)
		model_tensors_import(&tensors, run->model, 0);
	else
		run_pass_on_shared(run, status);
	model_tensors_destroy(&tensors);
	return status;
}

static int create_model(struct run *run)
{
	int status = run_agree(run, create_net(run));

	if (status < 0)
		return status;
	set_optimizer(run);
	status = run_find_optimizer(run);
	if (status < 0)
		return status;
	status =
		model_create(&run->model, run->ddp, run->graph, optim_slots(&run->optim),
			     wire_type(run->options), run->class->device_gradients && !run->virtual,
			     run->virtual ? run->total_parts : 0, &run->error);
	status = agree_likely(run, status);
	/*
	 * Only the CPU engine computes in the model's host memory, so only this engine profits from
	 * sharing that memory.
	 */
	if (status == 0 && run->class == &engine_cpu)
		status = agree_likely(run, model_share(run->model, run->ddp, &run->error));
	if (status < 0)
		return status;
	model_init(run->model, run->seed);
	if (!*option_text(run->options, OPTION_INIT))
		return 0;
	return read_weights(run);
}

/* --- Engine -------------------------------------------------------------------------------- */

/* Settings for each value of --amp, in this order: auto, off, tf32, bf16, fp16. */
static const struct {
	enum ddp_type type;
	bool tf32;
} precisions[] = {
	{DDP_F32, true}, {DDP_F32, false}, {DDP_F32, true}, {DDP_BF16, false}, {DDP_F16, false}};

/* Whether products of f32 use tf32. By default they do, but not with the CPU engine. */
static bool uses_tf32(const struct run *run)
{
	int word = option_word(run->options, OPTION_AMP);

	return precisions[word].tf32 && (word != 0 || run->class != &engine_cpu);
}

/*
 * Appends the reason for using CPUs to an error about an option that may have been meant for a GPU.
 */
static void add_why(struct run *run)
{
	struct ddp_error error = run->error;

	ddp_error_set(&run->error, error.status, "%.400s; %.600s", error.text, run->why);
}

static int open_engine(struct run *run)
{
	const struct options *options = run->options;
	struct engine_setup setup = {
		.ddp = run->ddp,
		.model = run->model,
		.train = run->train,
		.test = run->test,
		.optim = &run->optim,
		.batch = run->batch,
		.parts = run->virtual ? run->parts : 0,
		.test_batch = run->test_batch,
		.type = precisions[option_word(options, OPTION_AMP)].type,
		.smoothing = (float)option_number(options, OPTION_SMOOTHING),
		.clip = option_number(options, OPTION_CLIP),
		.sync_norm = option_flag(options, OPTION_SYNC_NORM),
		/* The rule for algorithms can choose different ones on other CPUs. */
		.exact = run->virtual || option_flag(options, OPTION_DETERMINISTIC),
		.tf32 = uses_tf32(run),
		.deterministic = option_flag(options, OPTION_DETERMINISTIC),
		.no_dropout = option_flag(options, OPTION_NO_DROPOUT),
		.threads = run->threads,
		.share = run->share,
	};
	int status;

	if (run->world->rank == 0)
		setup.say = say;
	setup.listener = (void *)options;
	if (setup.type == DDP_F16)
		setup.scaler = &run->scaler;
	status = run->class->open(&run->engine, &setup, &run->error);
	if (status == DDP_ERR_UNSUPPORTED && *run->why)
		add_why(run);
	status = agree_likely(run, status);
	return status < 0 ? status : run->class->push(run->engine, &run->error);
}

/* --- Whole setup ----------------------------------------------------------------------------- */

static void read_options(struct run *run)
{
	const struct options *options = run->options;
	uint64_t limit = option_count(options, OPTION_STEPS);

	run->scaler = (struct ddp_scaler)DDP_SCALER_INIT;
	run->seed = option_count(options, OPTION_SEED);
	run->epochs = (unsigned)option_count(options, OPTION_EPOCHS);
	run->limit = limit ? limit : UINT64_MAX;
	if (run->world->end_time > 0 && *option_text(options, OPTION_CHECKPOINT) &&
	    !option_flag(options, OPTION_EVALUATE))
		run->stop.time =
			(double)run->world->end_time - option_number(options, OPTION_MARGIN);
}

int run_open(struct run *run)
{
	int status;

	read_options(run);
	if ((status = run_find_engine(run)) < 0)
		return status;
	if (run->class != &engine_cpu && run->world->rank == 0)
		say((void *)run->options,
		    "engine cuda: this release has not been run on a GPU. Compare it with CPUs: "
		    "ddp-train --self-test");
	if ((status = set_parts(run)) < 0 || (status = open_sets(run)) < 0 ||
	    (status = set_batch(run)) < 0 || (status = run_agree(run, create_buffers(run))) < 0 ||
	    (status = create_model(run)) < 0 || (status = run_resume(run)) < 0 ||
	    (status = open_engine(run)) < 0)
		return status;
	return throughput_open(run);
}

void run_close(struct run *run)
{
	throughput_close(&run->throughput);
	if (run->engine)
		run->class->close(run->engine);
	run_checkpoint_close(&run->checkpoint);
	model_destroy(run->model);
	graph_destroy(run->graph);
	net_destroy(run->net);
	for (size_t i = 0; run->samplers && i < run->parts; i++)
		ddp_sampler_destroy(run->samplers[i]);
	free(run->samplers);
	free(run->indices);
	free(run->orders);
	set_close(run->test);
	set_close(run->train);
}
