/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - runs a training from its first line of output to its exit status */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "run.h"

/*
 * Prints the error of a run and aborts the ranks that wait for this rank. If several ranks have the
 * same error, it is printed once: by the rank that caused it or, if all ranks caused it, by rank 0.
 */
static int report_failure(struct run *run, int status)
{
	bool quiet = run->world->rank != 0 && (run->shared || status == DDP_ERR_ABORTED);

	report_close(run->report, NULL);
	run->report = NULL;
	if (!quiet)
		ddp_log(run->ddp, DDP_LEVEL_ERROR, "train", "%s", run->error.text);
	if (!run->shared && !ddp_is_peer_error(status) && run->world->size > 1)
		ddp_abort(run->ddp, "%s", run->error.text);
	return ddp_exit_status(status);
}

/* --- Output before the first step ---------------------------------------------------------- */

struct texts {
	char title[256], engine[256];
	struct ddp_text command;
	struct report_pair pairs[OPTION_COUNT];
};

/* Adds the command line of this process, quoted for a shell, to [command]. */
static void read_command(struct ddp_text *command)
{
	static const char harmless[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
		"%+,-./:=@_";
	FILE *file = fopen("/proc/self/cmdline", "re");
	char *word = NULL;
	size_t size = 0;

	while (file && getdelim(&word, &size, '\0', file) > 0) {
		bool plain = *word && word[strspn(word, harmless)] == '\0';

		ddp_text_add(command, "%s%s", command->size ? " " : "", plain ? word : "'");
		for (const char *at = word; !plain && *at; at++)
			ddp_text_add(command, *at == '\'' ? "'\\''" : "%c", *at);
		ddp_text_add(command, "%s", plain ? "" : "'");
	}
	if (file)
		fclose(file);
	free(word);
}

static void fill_texts(const struct run *run, struct texts *texts)
{
	snprintf(texts->title, sizeof(texts->title), "%s: %s parameters, %s", run->net->name,
		 ddp_show_count((double)run->graph->weights).text, set_info(run->train)->title);
	snprintf(texts->engine, sizeof(texts->engine), "%s: %s", run->class->head.name,
		 run->class->describe(run->engine));
	texts->command = (struct ddp_text){.data = NULL};
	read_command(&texts->command);
	for (int i = 0; i < OPTION_COUNT; i++)
		texts->pairs[i] = (struct report_pair){
			option_rows[i].name, option_text(run->options, (enum option_id)i)};
}

/* Returns the number of the last step, as far as the options determine it. */
static uint64_t last_step(const struct run *run)
{
	const struct run_progress *progress = &run->progress;
	uint64_t end = progress->total;

	if (progress->epoch < run->epochs)
		end += run_steps(run) - progress->step +
		       (run->epochs - progress->epoch - 1) * run_whole_steps(run);
	return end < run->limit ? end : run->limit;
}

static int open_report(struct run *run)
{
	const struct options *options = run->options;
	struct report_options sinks = {
		.json = option_text(options, OPTION_LOG_JSON),
		.page = option_text(options, OPTION_REPORT),
		.events = option_text(options, OPTION_EVENTS),
		.live = run->throughput.live,
		.quiet = option_flag(options, OPTION_QUIET),
		.every = option_count(options, OPTION_LOG_EVERY) > 0,
		.append = run->checkpoint.resumed,
		.finished = run_is_finished(run) && !option_flag(options, OPTION_EVALUATE),
	};
	bool evaluate = option_flag(options, OPTION_EVALUATE);
	size_t batch = (size_t)run_global_batch(run),
	       samples = (size_t)set_info(run->train)->samples;
	struct texts texts;
	struct report_run info = {
		.title = texts.title,
		.engine = texts.engine,
		.job = run->world->job,
		.ranks = run->world->size,
		.nodes = run->world->node_count,
		.configuration = texts.pairs,
		.configuration_count = OPTION_COUNT,
		.epochs = evaluate ? 0 : run->epochs,
		.steps = run_whole_steps(run),
		.batch = batch < samples ? batch : samples,
		.begin = evaluate ? 0 : run->progress.total,
		.end = evaluate ? 0 : last_step(run),
		.places = run->throughput.places,
		.work = run->throughput.whole,
	};
	int status;

	fill_texts(run, &texts);
	info.command = texts.command.data;
	status = report_open(&run->report, &sinks, &info, &run->error);
	ddp_text_free(&texts.command);
	return status;
}

/* Opens the report on rank 0 and prints lines that describe the run. Collective. */
static int report_start(struct run *run)
{
	int status = run->world->rank == 0 ? open_report(run) : 0;

	status = run_agree(run, status);
	if (status < 0)
		return status;
	if (*run->why)
		report_warn(run->report, "%s", run->why);
	if (*run->sharing)
		report_log(run->report, "%s", run->sharing);
	if (*ddp_device_path(run->ddp))
		report_log(run->report, "gradients: %s", ddp_device_path(run->ddp));
	if (run->checkpoint.resumed)
		report_log(run->report, "%s", run->checkpoint.summary.data);
	if (run->checkpoint.resumed && *option_text(run->options, OPTION_INIT))
		report_warn(run->report,
			    "--init %s is not used, because the checkpoint has the weights",
			    option_text(run->options, OPTION_INIT));
	if (run->checkpoint.old_count > 0)
		report_log(run->report,
			   "%zu checkpoints in %s are of an earlier training and will be removed "
			   "after the first new one",
			   run->checkpoint.old_count, run->checkpoint.directory);
	return 0;
}

/* --- End ------------------------------------------------------------------------------------- */

static void report_summary(struct run *run)
{
	const char *model = option_text(run->options, OPTION_SAVE_MODEL);
	struct report_end info = {
		.reason = run->stop.reason,
		.best_top1 = run->progress.best,
		.best_epoch = run->progress.best_epoch,
		.seconds = ddp_seconds() - run->begin,
		.checkpoint = run->checkpoint.any ? run->checkpoint.directory : NULL,
		.model = *model && !run->stop.agreed && !run->checkpoint.failed ? model : NULL,
	};

	report_end(run->report, &info);
}

/*
 * Ends a training in which a checkpoint or model could not be written. Prints the summary, and adds
 * a sentence to the error that says which checkpoint and model are kept. Called on all ranks.
 */
static void report_unsaved(struct run *run)
{
	struct ddp_error error = run->error;
	struct ddp_text kept = {.data = NULL};

	snprintf(run->stop.reason, sizeof(run->stop.reason), "ended by an error at step %s",
		 ddp_show_count((double)run->progress.total).text);
	if (throughput_end(run) == 0)
		report_summary(run);
	run_describe_kept(run, &kept);
	ddp_error_set(&run->error, error.status, "%.500s; %.500s", error.text,
		      kept.failed ? "" : kept.data);
	ddp_text_free(&kept);
}

/*
 * Ends a run without an error, and returns the exit status. If rank 0 could not write the report,
 * all ranks fail, so that no rank waits for another rank when connections are closed. Collective.
 */
static int finish(struct run *run)
{
	char *reason = run->stop.reason;
	bool diverged = run->lost || (!run->stop.agreed && run->not_finite);
	int status;

	if (diverged)
		snprintf(reason + strlen(reason), sizeof(run->stop.reason) - strlen(reason),
			 ", but the loss or a weight is not finite");
	report_summary(run);
	status = report_close(run->report, &run->error);
	run->report = NULL;
	status = run_agree(run, status);
	if (ddp_is_peer_error(status))
		status = report_failure(run, status);
	else
		status = ddp_exit_status(status);
	if (!run->stop.agreed || diverged)
		return status == 0 && diverged ? TRAINER_DIVERGED : status;
	if (run->world->rank == 0)
		stop_record(run);
	return TRAINER_STOPPED;
}

static int run_all(struct run *run)
{
	int status = run_open(run);

	if (status == 0)
		status = report_start(run);
	if (status < 0)
		return status;
	if (option_flag(run->options, OPTION_EVALUATE))
		return run_evaluate(run);
	return run_train(run);
}

int trainer_run(struct ddp *ddp, const struct options *options)
{
	struct run *run;
	int status;

	ddp_xalloc_tell(ddp_abort, ddp);
	run = ddp_xcalloc(1, sizeof(*run), "a training");
	run->ddp = ddp;
	run->world = ddp_world(ddp);
	run->options = options;
	run->begin = ddp_seconds();
	stop_politely();
	status = run_all(run);
	if (status == 0) {
		status = finish(run);
	} else {
		if (run->checkpoint.failed)
			report_unsaved(run);
		status = report_failure(run, status);
	}
	run_close(run);
	free(run);
	return status;
}
