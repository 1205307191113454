/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - steps, epochs and evaluations
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/watch.h"
#include "base/xalloc.h"
#include "run.h"

uint64_t run_global_batch(const struct run *run)
{
	return (uint64_t)run->batch * (uint64_t)run->dealt;
}

/* What is left of the order is dealt evenly, its tail filled up. */
uint64_t run_steps(const struct run *run)
{
	uint64_t left = set_info(run->train)->samples - run->progress.position;
	uint64_t mine = (left + run->dealt - 1) / run->dealt;

	return run->progress.step + (mine + run->batch - 1) / run->batch;
}

/* --- A step ---------------------------------------------------------------------------------- */

/* Up to [most] of the next samples of each part, with their places in the order. */
static size_t take_samples(struct run *run, size_t most)
{
	size_t count = 0;

	for (size_t part = 0; part < run->parts; part++) {
		uint64_t order = ddp_sampler_order(run->samplers[part]);
		size_t taken = ddp_sampler_take(run->samplers[part], run->indices + count, most);

		for (size_t i = 0; i < taken; i++)
			run->orders[count++] = order + i * (uint64_t)run->dealt;
	}
	return count;
}

/* Let all parts go on where the run is. */
static int seek(struct run *run)
{
	const struct progress *progress = &run->progress;
	int status = 0;

	for (size_t part = 0; status == 0 && part < run->parts; part++)
		status = ddp_sampler_seek(run->samplers[part], progress->epoch, progress->position,
					  &run->error);
	return status;
}

static void begin_step(struct run *run)
{
	struct progress *progress = &run->progress;

	progress->step++;
	progress->total++;
	progress->position = ddp_sampler_position(run->samplers[0]);
	run->pending++;
}

/* One warning in a run, with the last step that has ended. */
static void warn_diverged(struct run *run)
{
	const struct progress *progress = &run->progress;

	if (run->diverged)
		return;
	run->diverged = true;
	report_warn(
		run->report,
		"the loss or a weight is not finite any more, at step %s of epoch %u: a smaller "
		"--lr, --warmup or --clip may help",
		ddp_show_count((double)(progress->step - run->pending)).text, progress->epoch + 1);
}

/* What the engine told of steps that have ended, each of them once. */
static int end_steps(struct run *run, const struct engine_step *done)
{
	struct progress *progress = &run->progress;

	if (done->steps > run->pending || done->skipped > done->steps)
		return ddp_error_set(&run->error, DDP_ERR_ENGINE,
				     "engine %s: tells of %llu steps, %llu of them skipped, where "
				     "%llu are under way",
				     run->class->head.name, (unsigned long long)done->steps,
				     (unsigned long long)done->skipped,
				     (unsigned long long)run->pending);
	run->pending -= done->steps;
	progress->updates += done->steps - done->skipped;
	progress->loss += done->loss;
	progress->hits += done->hits;
	progress->samples += done->samples;
	run->stop.agreed = run->stop.agreed || done->stop;
	throughput_add(run, done);
	if (!isfinite(done->loss) && !done->skipped)
		warn_diverged(run);
	return 0;
}

int run_settle(struct run *run)
{
	struct engine_step done = {.steps = 0};
	int status = 0;

	if (run->class->settle)
		status = run->class->settle(run->engine, &done, &run->error);
	if (status == 0)
		status = end_steps(run, &done);
	if (status < 0 || run->pending == 0)
		return status;
	return ddp_error_set(&run->error, DDP_ERR_ENGINE, "engine %s: did not tell of %llu steps",
			     run->class->head.name, (unsigned long long)run->pending);
}

static struct batch take_batch(struct run *run, size_t most)
{
	return (struct batch){
		.indices = run->indices,
		.orders = run->orders,
		.count = take_samples(run, most),
		.seed = run->seed,
		.epoch = run->progress.epoch,
		.augment = !option_flag(run->options, OPTION_NO_AUGMENT),
	};
}

/* Samples of [batch] without those that the epoch's end repeats, so that all ranks have equally many. */
static size_t count_new(const struct run *run, const struct batch *batch)
{
	uint64_t samples = set_info(run->train)->samples;
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++)
		count += batch->orders[i] < samples;
	return count;
}

static int step(struct run *run, uint64_t steps)
{
	struct progress *progress = &run->progress;
	struct batch batch = take_batch(run, run->batch);
	struct engine_step done = {.stop = false};
	double rate = schedule_rate(&run->schedule, progress->epoch, progress->step, steps);
	int status = run->class->step(run->engine, &batch, batch.count * (size_t)run->world->size,
				      progress->updates + run->pending + 1, rate,
				      stop_wanted(&run->stop), &done, &run->error);

	if (status < 0)
		return status;
	begin_step(run);
	ddp_beat(run->ddp);
	status = end_steps(run, &done);
	return status < 0 ? status : throughput_step(run, count_new(run, &batch), steps);
}

/* --- The test set --------------------------------------------------------------------------- */

/*
 * Running statistics are rank 0's, as PyTorch has it; with SyncBatchNorm all ranks have the same.
 */
static int share_buffers(struct run *run)
{
	struct model *model = run->model;
	int status;

	if (model->buffer_count == 0 || run->world->size == 1 ||
	    option_flag(run->options, OPTION_SYNC_NORM))
		return 0;
	status = run->class->pull(run->engine, &run->error);
	if (status < 0)
		return status;
	status = ddp_broadcast(run->ddp, model->buffers, model->buffer_count * sizeof(float), 0);
	if (status < 0)
		return run_pass_on(run, status);
	return run->class->push(run->engine, &run->error);
}

static int evaluate_part(struct run *run, size_t part, struct ddp_evaluation *evaluation)
{
	struct batch batch = {.indices = run->indices, .orders = run->orders, .seed = run->seed};
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_sampler *sampler;
	int status;

	options.samples = set_info(run->test)->samples;
	options.rank = run->world->rank * (int)run->parts + (int)part;
	options.ranks = (int)run->dealt;
	options.shuffle = false;
	options.exact = true;
	status = ddp_sampler_create(&sampler, &options, &run->error);
	while (status == 0 &&
	       (batch.count = ddp_sampler_take(sampler, run->indices, run->test_batch)) > 0)
		status = run->class->evaluate(run->engine, &batch, evaluation, &run->error);
	ddp_sampler_destroy(sampler);
	return status;
}

/* All parts of all ranks, in their order, so that whoever has which does not matter. Collective. */
static int add_parts(struct run *run, const struct ddp_evaluation *parts,
		     struct ddp_evaluation *evaluation)
{
	struct ddp_evaluation *all = ddp_xcalloc(run->dealt, sizeof(*all), "an evaluation");
	int status = ddp_all_gather(run->ddp, parts, all, run->parts * sizeof(*all));

	for (size_t i = 0; status == 0 && i < run->dealt; i++) {
		evaluation->loss += all[i].loss;
		evaluation->top1 += all[i].top1;
		evaluation->top5 += all[i].top5;
		evaluation->samples += all[i].samples;
	}
	free(all);
	return status;
}

/* Sums over the test set, the same on all ranks, and the seconds they took. Collective. */
static int evaluate_all(struct run *run, struct ddp_evaluation *evaluation, double *seconds)
{
	struct ddp_evaluation *parts = ddp_xcalloc(run->parts, sizeof(*parts), "an evaluation");
	double begin = ddp_seconds();
	int status = run_settle(run);

	if (status == 0)
		status = share_buffers(run);
	memset(evaluation, 0, sizeof(*evaluation));
	for (size_t part = 0; status == 0 && part < run->parts; part++)
		status = evaluate_part(run, part, &parts[part]);
	if (status < 0) {
		free(parts);
		return status;
	}
	run->throughput.mine.work.evaluation += ddp_seconds() - begin;
	status = add_parts(run, parts, evaluation);
	free(parts);
	*seconds = ddp_seconds() - begin;
	return status < 0 ? run_pass_on(run, status) : 0;
}

/* --- An epoch -------------------------------------------------------------------------------- */

/* Whether a checkpoint is due in the middle of an epoch. */
static bool is_due(const struct run *run)
{
	uint64_t every = option_count(run->options, OPTION_CHECKPOINT_STEPS);

	return every > 0 && run->progress.total % every == 0;
}

/* Tell the engine what the rest of the epoch is, if it wants to know. */
static int expect_steps(struct run *run, uint64_t steps)
{
	const struct progress *progress = &run->progress;
	uint64_t left = steps - progress->step;
	struct batch batch;
	double *rates;
	int status;

	if (!run->class->expect || run->virtual || left == 0)
		return 0;
	rates = ddp_xcalloc(left, sizeof(*rates), "an epoch's rates");
	for (uint64_t i = 0; i < left; i++)
		rates[i] =
			schedule_rate(&run->schedule, progress->epoch, progress->step + i, steps);
	batch = take_batch(run, run->most);
	status = run->class->expect(run->engine, &batch, rates, &run->error);
	free(rates);
	if (status < 0)
		return status;
	return seek(run);
}

/* A checkpoint is no training: its time is left out of the beat. */
static int save_between(struct run *run)
{
	int status = run_settle(run);
	double begin = ddp_seconds();

	if (status == 0)
		status = run_save(run);
	run->throughput.begin += ddp_seconds() - begin;
	return status;
}

/* Steps until the epoch or the training ends, or ranks want to stop; none is under way then. */
static int train_steps(struct run *run, uint64_t steps)
{
	struct progress *progress = &run->progress;
	int status = 0;

	throughput_skip(run);
	while (status == 0 && progress->step < steps && progress->total < run->limit &&
	       !run->stop.agreed) {
		status = step(run, steps);
		if (status == 0 && is_due(run) && progress->step < steps)
			status = save_between(run);
	}
	if (status == 0)
		status = run_settle(run);
	return status < 0 ? status : throughput_flush(run, steps);
}

/* Note an evaluation as the best one, if it is; its weights are kept then. It is not if the loss or a weight is not finite. */
static int keep_best(struct run *run, struct report_epoch *told)
{
	struct progress *progress = &run->progress;
	int status;

	told->best = !run->not_finite && (progress->best_epoch == 0 || told->top1 > progress->best);
	if (!told->best)
		return 0;
	status = run_save_model(run, ".best");
	if (status < 0)
		return status;
	progress->best = told->top1;
	progress->best_epoch = progress->epoch + 1;
	return 0;
}

/* Means over the test set. */
static void tell_test(struct report_epoch *told, const struct ddp_evaluation *evaluation)
{
	double samples = (double)evaluation->samples;

	told->evaluated = true;
	told->loss = evaluation->loss / samples;
	told->top1 = (double)evaluation->top1 / samples;
	told->top5 = (double)evaluation->top5 / samples;
	told->test_samples = evaluation->samples;
}

/*
 * Set run->not_finite, the same on all ranks. The weights are checked too: a maximum of NaN and 0 is 0, so that ReLU and
 * pooling hide weights that are NaN, and the loss may become finite again.
 */
static int check_finite(struct run *run, double loss)
{
	const struct model *model = run->model;
	int status = run->class->pull(run->engine, &run->error);

	run->not_finite = !isfinite(loss);
	for (size_t i = 0; i < model->count && !run->not_finite; i++)
		run->not_finite = !isfinite(model->values[i]);
	return status;
}

static int evaluate(struct run *run)
{
	const struct progress *progress = &run->progress;
	double samples = (double)progress->samples;
	struct ddp_evaluation evaluation;
	struct report_epoch told = {
		.epoch = progress->epoch + 1,
		.total = progress->total,
		.train_loss = progress->loss / samples,
		.train_top1 = (double)progress->hits / samples,
		.samples = progress->samples,
	};
	int status = evaluate_all(run, &evaluation, &told.evaluation);

	if (status < 0)
		return status;
	if (told.samples > set_info(run->train)->samples)
		told.samples = set_info(run->train)->samples;
	tell_test(&told, &evaluation);
	status = check_finite(run, told.train_loss + told.loss);
	if (status < 0)
		return status;
	if (run->not_finite)
		warn_diverged(run);
	status = keep_best(run, &told);
	report_epoch(run->report, &told);
	return status;
}

/* The epoch is over if all its steps are done; --steps may end the training before. */
static int finish_epoch(struct run *run, bool whole)
{
	struct progress *progress = &run->progress;
	int status = evaluate(run);

	if (status < 0)
		return status;
	if (whole) {
		progress->epoch++;
		progress->position = progress->step = 0;
		progress->loss = 0;
		progress->hits = progress->samples = 0;
	}
	return run_save(run);
}

static int train_epoch(struct run *run)
{
	uint64_t steps = run_steps(run);
	int status = seek(run);

	if (status == 0)
		status = expect_steps(run, steps);
	if (status == 0)
		status = train_steps(run, steps);
	if (status < 0)
		return status;
	if (!run->stop.agreed)
		return finish_epoch(run, run->progress.step == steps);
	if (!run->checkpoint.directory)
		report_warn(run->report,
			    "nothing is kept of this training: there is no --checkpoint");
	status = stop_explain(run);
	return status < 0 ? status : run_save(run);
}

static bool is_finished(const struct run *run)
{
	return run->progress.epoch >= run->epochs || run->progress.total >= run->limit;
}

int run_train(struct run *run)
{
	bool finished = is_finished(run);
	int status = finished ? check_finite(run, 0) : 0;

	snprintf(run->stop.reason, sizeof(run->stop.reason), "%s",
		 finished ? "finished before" : "finished");
	while (status == 0 && !is_finished(run) && !run->stop.agreed)
		status = train_epoch(run);
	if (status == 0)
		status = throughput_end(run);
	if (status == 0 && !run->stop.agreed)
		status = run_save_model(run, "");
	return status;
}

int run_evaluate(struct run *run)
{
	struct ddp_evaluation evaluation;
	struct report_epoch told = {
		.epoch = run->progress.best_epoch,
		.total = run->progress.total,
		.train_loss = (double)NAN,
		.train_top1 = (double)NAN,
	};
	int status = evaluate_all(run, &evaluation, &told.evaluation);

	if (status < 0)
		return status;
	tell_test(&told, &evaluation);
	report_epoch(run->report, &told);
	snprintf(run->stop.reason, sizeof(run->stop.reason), "evaluated");
	run->progress.best = told.top1;
	status = check_finite(run, told.loss);
	return status < 0 ? status : throughput_end(run);
}
