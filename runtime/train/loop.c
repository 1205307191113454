/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - training loop: steps, epochs and evaluations
 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/watch.h"
#include "base/xalloc.h"
#include "run.h"

/* --- Step ------------------------------------------------------------------------------------ */

/* Gets the samples of the next step, and their positions in the epoch's order. */
static size_t get_samples(struct run *run)
{
	size_t count = 0;

	for (size_t part = 0; part < run->parts; part++) {
		uint64_t order = ddp_sampler_order(run->samplers[part]);
		size_t received =
			ddp_sampler_take(run->samplers[part], run->indices + count, run->batch);

		for (size_t i = 0; i < received; i++)
			run->orders[count++] = order + i * (uint64_t)run->total_parts;
	}
	return count;
}

static int seek(struct run *run)
{
	const struct run_progress *progress = &run->progress;
	int status = 0;

	for (size_t part = 0; status == 0 && part < run->parts; part++)
		status = ddp_sampler_seek(run->samplers[part], progress->epoch, progress->position,
					  &run->error);
	return status;
}

static void begin_step(struct run *run)
{
	struct run_progress *progress = &run->progress;

	progress->step++;
	progress->total++;
	progress->evaluated = false;
	progress->position = ddp_sampler_position(run->samplers[0]);
	run->pending++;
}

/* Warns that the loss is not finite, once per run, with the number of the last finished step. */
static void warn_diverged(struct run *run)
{
	const struct run_progress *progress = &run->progress;

	if (run->diverged)
		return;
	run->diverged = true;
	report_warn(run->report,
		    "the loss or a weight is not finite any more, at step %s of epoch %u. Try a "
		    "smaller --lr, --warmup or --clip.",
		    ddp_show_count((double)(progress->step - run->pending)).text,
		    progress->epoch + 1);
}

/* Adds the steps that the engine reports as finished. It reports each step once. */
static void end_steps(struct run *run, const struct engine_step *done)
{
	struct throughput *throughput = &run->throughput;
	struct run_progress *progress = &run->progress;

	run->pending -= done->steps;
	progress->updates += done->steps - done->skipped;
	progress->loss += done->loss;
	progress->hits += done->hits;
	progress->samples += done->samples;
	run->stop.agreed = run->stop.agreed || done->stop;
	for (int phase = 0; phase < ENGINE_PHASES; phase++)
		throughput->mine.seconds[phase] += done->seconds[phase];
	throughput->loss += done->loss;
	throughput->hits += done->hits;
	throughput->samples += done->samples;
	throughput->steps += done->steps;
	if (!isfinite(done->loss) && !done->skipped)
		warn_diverged(run);
}

/*
 * Waits until the engine has reported all started steps. The model, the sums and the clock then
 * include these steps. Collective.
 */
static int settle(struct run *run)
{
	struct engine_step done = {.steps = 0};
	int status = 0;

	if (run->class->settle)
		status = run->class->settle(run->engine, &done, &run->error);
	if (status == 0)
		end_steps(run, &done);
	return status;
}

static struct batch get_batch(struct run *run)
{
	return (struct batch){
		.indices = run->indices,
		.orders = run->orders,
		.count = get_samples(run),
		.seed = run->seed,
		.epoch = run->progress.epoch,
		.augment = !option_flag(run->options, OPTION_NO_AUGMENT),
	};
}

/*
 * Returns the number of samples in [batch], without repeated samples. At the end of an epoch, some
 * samples are repeated so that all ranks have equally many.
 */
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
	struct run_progress *progress = &run->progress;
	struct batch batch = get_batch(run);
	struct engine_step done = {.stop = false};
	double rate = schedule_rate(&run->schedule, progress->epoch, progress->step, steps);
	int status = run->class->step(run->engine, &batch, batch.count * (size_t)run->world->size,
				      progress->updates + run->pending + 1, rate,
				      stop_wanted(&run->stop), &done, &run->error);

	if (status < 0)
		return status;
	begin_step(run);
	ddp_beat(run->ddp);
	end_steps(run, &done);
	if (!throughput_is_due(run, count_new(run, &batch)))
		return 0;
	/* With --log-every, a line of output includes all steps up to the step that it names. */
	if (run->throughput.target <= 0)
		status = settle(run);
	return status < 0 ? status : throughput_flush(run, steps);
}

/* --- Evaluation ----------------------------------------------------------------------------- */

/*
 * Copies BatchNorm's running statistics from rank 0 to all ranks, as PyTorch does. With
 * SyncBatchNorm, the statistics are already equal.
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

/*
 * Sets [stop], and ends early, if this rank wants to stop before its last batch. Without a
 * directory of checkpoints, a stop would lose the training, so its evaluation is completed.
 */
static int evaluate_part(struct run *run, size_t part, struct ddp_evaluation *evaluation,
			 int32_t *stop)
{
	bool may_stop = run->checkpoint.directory || option_flag(run->options, OPTION_EVALUATE);
	struct batch batch = {.indices = run->indices, .orders = run->orders, .seed = run->seed};
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_sampler *sampler;
	int status;

	options.samples = set_info(run->test)->samples;
	options.rank = run->world->rank * (int)run->parts + (int)part;
	options.ranks = (int)run->total_parts;
	options.shuffle = false;
	options.exact = true;
	status = ddp_sampler_create(&sampler, &options, &run->error);
	while (status == 0 &&
	       (batch.count = ddp_sampler_take(sampler, run->indices, run->test_batch)) > 0 &&
	       !(*stop = may_stop && stop_wanted(&run->stop)))
		status = run->class->evaluate(run->engine, &batch, evaluation, &run->error);
	ddp_sampler_destroy(sampler);
	return status;
}

/*
 * Adds the results of all parts in the same order, so that the sum does not depend on the number of
 * ranks. Collective.
 */
static int add_parts(struct run *run, const struct ddp_evaluation *parts,
		     struct ddp_evaluation *evaluation)
{
	struct ddp_evaluation *all = ddp_xcalloc(run->total_parts, sizeof(*all), "an evaluation");
	int status = ddp_all_gather(run->ddp, parts, all, run->parts * sizeof(*all));

	for (size_t i = 0; status == 0 && i < run->total_parts; i++) {
		evaluation->loss += all[i].loss;
		evaluation->top1 += all[i].top1;
		evaluation->top5 += all[i].top5;
		evaluation->samples += all[i].samples;
	}
	free(all);
	return status;
}

/*
 * Evaluates the test set on all ranks. Sets [evaluation], which is equal on all ranks, and the
 * [seconds] that the evaluation took. If a rank wants to stop, all ranks agree to stop, and
 * [evaluation] is incomplete: a whole evaluation can take longer than Slurm's KillWait. Collective.
 */
static int evaluate_all(struct run *run, struct ddp_evaluation *evaluation, double *seconds)
{
	struct ddp_evaluation *parts = ddp_xcalloc(run->parts, sizeof(*parts), "an evaluation");
	double begin = ddp_seconds();
	int32_t stop = false;
	int status = settle(run);

	if (status == 0)
		status = share_buffers(run);
	memset(evaluation, 0, sizeof(*evaluation));
	for (size_t part = 0; status == 0 && !stop && part < run->parts; part++)
		status = evaluate_part(run, part, &parts[part], &stop);
	if (status < 0) {
		free(parts);
		return status;
	}
	run->throughput.mine.evaluation += ddp_seconds() - begin;
	status = ddp_all_reduce(run->ddp, &stop, &stop, 1, DDP_I32, DDP_MAX);
	run->stop.agreed = status == 0 && stop;
	if (status == 0 && !stop)
		status = add_parts(run, parts, evaluation);
	free(parts);
	*seconds = ddp_seconds() - begin;
	return status < 0 ? run_pass_on(run, status) : 0;
}

/* --- Epoch ----------------------------------------------------------------------------------- */

/*
 * Whether a checkpoint is due between steps. After the last step of an epoch or of the training it
 * is not, because that checkpoint is written after the evaluation.
 */
static bool is_due(const struct run *run, uint64_t steps)
{
	uint64_t every = option_count(run->options, OPTION_CHECKPOINT_STEPS);
	const struct run_progress *progress = &run->progress;

	return every > 0 && progress->total % every == 0 && progress->step < steps &&
	       progress->total < run->limit;
}

/*
 * Writes a checkpoint between steps. The time for writing is not part of the throughput interval.
 */
static int save_between(struct run *run)
{
	int status = settle(run);
	double begin = ddp_seconds();

	if (status == 0)
		status = run_save(run);
	run->throughput.begin += ddp_seconds() - begin;
	return status;
}

/*
 * Trains until the epoch or the training ends, or until all ranks agree to stop. All started steps
 * are finished when this function returns.
 */
static int train_steps(struct run *run, uint64_t steps)
{
	struct run_progress *progress = &run->progress;
	int status = 0;

	run->throughput.begin = ddp_seconds();
	while (status == 0 && progress->step < steps && progress->total < run->limit &&
	       !run->stop.agreed) {
		status = step(run, steps);
		if (status == 0 && is_due(run, steps))
			status = save_between(run);
	}
	if (status == 0)
		status = settle(run);
	return status < 0 ? status : throughput_flush(run, steps);
}

/* Saves the model if this evaluation is the best one and all losses and weights are finite. */
static int keep_best(struct run *run, struct report_epoch *report)
{
	struct run_progress *progress = &run->progress;
	int status;

	report->best =
		!run->not_finite && (progress->best_epoch == 0 || report->top1 > progress->best);
	if (!report->best)
		return 0;
	status = run_save_model(run, ".best");
	if (status < 0)
		return status;
	progress->best = report->top1;
	progress->best_epoch = progress->epoch + 1;
	return 0;
}

static void set_test_means(struct report_epoch *report, const struct ddp_evaluation *evaluation)
{
	double samples = (double)evaluation->samples;

	report->evaluated = true;
	report->loss = evaluation->loss / samples;
	report->top1 = (double)evaluation->top1 / samples;
	report->top5 = (double)evaluation->top5 / samples;
	report->test_samples = evaluation->samples;
}

/*
 * Sets run->not_finite and run->lost, equally on all ranks. The loss alone does not show weights
 * that are NaN, because the ReLU of a library can return 0 for NaN.
 */
static int check_finite(struct run *run, double loss)
{
	int status = run->class->pull(run->engine, &run->error);

	run->lost = !model_is_finite(run->model);
	run->not_finite = run->lost || !isfinite(loss);
	return status;
}

static int evaluate(struct run *run)
{
	const struct run_progress *progress = &run->progress;
	double samples = (double)progress->samples;
	struct ddp_evaluation evaluation;
	struct report_epoch report = {
		.epoch = progress->epoch + 1,
		.total = progress->total,
		.position = run_position(run),
		.train_loss = progress->loss / samples,
		.train_top1 = (double)progress->hits / samples,
		.samples = progress->samples,
	};
	int status = evaluate_all(run, &evaluation, &report.evaluation);

	if (status < 0 || run->stop.agreed)
		return status;
	if (report.samples > set_info(run->train)->samples)
		report.samples = set_info(run->train)->samples;
	set_test_means(&report, &evaluation);
	status = check_finite(run, report.train_loss + report.loss);
	if (status < 0)
		return status;
	if (run->not_finite)
		warn_diverged(run);
	status = keep_best(run, &report);
	report_epoch(run->report, &report);
	return status;
}

/*
 * Evaluates, reports and saves after the last step of an epoch. [whole] is false if --steps ended
 * the training before the end of the epoch. If the ranks agree to stop during the evaluation,
 * nothing is reported, and a resumed run evaluates again.
 */
static int finish_epoch(struct run *run, bool whole)
{
	struct run_progress *progress = &run->progress;
	int status = evaluate(run);

	if (status < 0 || run->stop.agreed)
		return status;
	progress->evaluated = true;
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
		status = train_steps(run, steps);
	if (status == 0 && !run->stop.agreed)
		status = finish_epoch(run, run->progress.step == steps);
	if (status < 0 || !run->stop.agreed)
		return status;
	if (!run->checkpoint.directory)
		report_warn(run->report,
			    "the state of this training is not saved, because --checkpoint is not "
			    "set");
	status = stop_explain(run);
	return status < 0 ? status : run_save(run);
}

bool run_is_finished(const struct run *run)
{
	const struct run_progress *progress = &run->progress;

	return progress->epoch >= run->epochs ||
	       (progress->total >= run->limit && progress->evaluated);
}

/* Returns a description of the end of a training that was not stopped. */
static const char *name_end(const struct run *run, bool finished_before)
{
	if (finished_before)
		return "finished before";
	return run_is_finished(run) ? "finished" : "ended early";
}

/*
 * Handles a resumed training for which FILE.best does not exist, because --save-model is new. If
 * the weights in the checkpoint are the best so far, writes them to the file. Otherwise forgets the
 * best result, so that the best weights from here on are written to the file. Collective.
 */
static int complete_best(struct run *run)
{
	struct run_progress *progress = &run->progress;
	const char *file = option_text(run->options, OPTION_SAVE_MODEL);
	int32_t missing = 0;
	char path[PATH_MAX];
	int status;

	if (!*file || progress->best_epoch == 0)
		return 0;
	snprintf(path, sizeof(path), "%s.best", file);
	if (run->world->rank == 0)
		missing = access(path, F_OK) < 0;
	status = ddp_broadcast(run->ddp, &missing, sizeof(missing), 0);
	if (status < 0 || !missing)
		return status < 0 ? run_pass_on(run, status) : 0;
	if (progress->evaluated && progress->best_epoch == progress->epoch + (progress->step > 0))
		return run_save_model(run, ".best");
	report_warn(run->report,
		    "%s does not exist, so the best weights, those of epoch %u, are lost%s", path,
		    progress->best_epoch,
		    run_is_finished(run) ? "" : ". The file gets the best weights from here on.");
	if (!run_is_finished(run))
		progress->best_epoch = 0;
	return 0;
}

int run_train(struct run *run)
{
	bool finished = run_is_finished(run);
	int status = finished ? check_finite(run, 0) : 0;

	if (status == 0)
		status = complete_best(run);
	while (status == 0 && !run_is_finished(run) && !run->stop.agreed && !run->lost)
		status = train_epoch(run);
	if (!run->stop.agreed)
		snprintf(run->stop.reason, sizeof(run->stop.reason), "%s", name_end(run, finished));
	if (status == 0)
		status = throughput_end(run);
	if (status == 0 && !run->stop.agreed)
		status = run_save_model(run, "");
	return status;
}

int run_evaluate(struct run *run)
{
	struct run_progress *progress = &run->progress;
	struct ddp_evaluation evaluation;
	struct report_epoch report = {
		.epoch = progress->epoch + (progress->step > 0),
		.total = progress->total,
		.position = run_position(run),
		.train_loss = (double)NAN,
		.train_top1 = (double)NAN,
	};
	int status = evaluate_all(run, &evaluation, &report.evaluation);

	if (status == 0 && run->stop.agreed)
		status = stop_explain(run);
	if (status < 0 || run->stop.agreed)
		return status < 0 ? status : throughput_end(run);
	set_test_means(&report, &evaluation);
	report_epoch(run->report, &report);
	snprintf(run->stop.reason, sizeof(run->stop.reason), "evaluated");
	/* With --init there is no best epoch. */
	if (progress->best_epoch == 0)
		progress->best = report.top1;
	status = check_finite(run, report.loss);
	return status < 0 ? status : throughput_end(run);
}
