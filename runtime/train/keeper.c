/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "run.h"
#include "state.h"

/* --- Saving -------------------------------------------------------------------------------- */

/* Rank 0 alone has anything to write. */
static int write_checkpoint(struct run *run, const struct model_tensors *tensors)
{
	const char *directory = run->keeper.directory;
	struct state state;
	int status;

	state_fill(&state, run);
	status = ddp_checkpoint_save(run->ddp, directory, run->progress.total, tensors->list,
				     tensors->count, state.pairs, state.count,
				     (int)option_count(run->options, OPTION_KEEP));
	return status < 0 ? run_pass_on_shared(run, status) : 0;
}

/* The model as tensors of rank 0, after all steps that were begun; nothing on the others. */
static int export(struct run *run, struct model_tensors *tensors, bool optimizer)
{
	int status = run_settle(run);

	*tensors = (struct model_tensors){.list = NULL};
	if (status == 0)
		status = run->class->pull(run->engine, &run->error);
	if (status == 0 && run->world->rank == 0)
		status = model_tensors_create(tensors, run->model, optimizer, &run->error);
	if (status == 0 && run->world->rank == 0)
		model_tensors_export(tensors, run->model, (int64_t)run->progress.total);
	return run_agree(run, status);
}

int keeper_save(struct run *run)
{
	struct keeper *keeper = &run->keeper;
	struct model_tensors tensors;
	int status;

	if (!keeper->directory || (keeper->any && keeper->saved == run->progress.total))
		return 0;
	status = export(run, &tensors, true);
	if (status == 0)
		status = write_checkpoint(run, &tensors);
	model_tensors_destroy(&tensors);
	if (status < 0)
		return status;
	keeper->any = true;
	keeper->saved = run->progress.total;
	if (run->world->rank == 0)
		old_remove(keeper, run->progress.total);
	report_say(run->report, "checkpoint of step %s in %s",
		   ddp_show_count((double)run->progress.total).text, keeper->directory);
	return 0;
}

static int write_model(struct run *run, const struct model_tensors *tensors, const char *path)
{
	char steps[24], version[64];
	struct ddp_pair pairs[] = {{"format", "pt"},
				   {"ddp-train", version},
				   {"network", run->net->name},
				   {"steps", steps}};

	snprintf(steps, sizeof(steps), "%llu", (unsigned long long)run->progress.total);
	snprintf(version, sizeof(version), "%s", PACKAGE_VERSION);
	return ddp_tensors_save(path, tensors->list, tensors->count, pairs,
				sizeof(pairs) / sizeof(pairs[0]), &run->error);
}

int keeper_save_model(struct run *run, const char *suffix)
{
	const char *file = option_text(run->options, OPTION_SAVE_MODEL);
	struct model_tensors tensors;
	char path[PATH_MAX];
	int status;

	if (!*file)
		return 0;
	status = export(run, &tensors, false);
	snprintf(path, sizeof(path), "%s%s", file, suffix);
	if (status == 0 && run->world->rank == 0)
		status = write_model(run, &tensors, path);
	model_tensors_destroy(&tensors);
	return run->shared ? status : run_agree(run, status);
}

/* --- Loading ------------------------------------------------------------------------------- */

/*
 * Look at the newest file before its tensors are compared with the model's: that it is of another
 * network is said in a line. What is wrong with the file itself is ddp_checkpoint_load()'s to tell.
 */
static int look(struct run *run)
{
	struct keeper *keeper = &run->keeper;
	struct ddp_tensors *file;
	struct state state;
	char path[PATH_MAX];
	int status = 0;

	if (!option_flag(run->options, OPTION_EVALUATE))
		status = ddp_file_mkdirs(keeper->directory, 0777, &run->error);
	if (status == 0)
		status = old_list(keeper, &run->error);
	if (status < 0 || keeper->old_count == 0 || option_flag(run->options, OPTION_FRESH))
		return status;
	old_path(keeper, path, old_newest(keeper));
	keeper->old_count = 0;
	if (ddp_tensors_open(&file, path, NULL) < 0)
		return 0;
	state_fill(&state, run);
	for (size_t i = 0; i < state.count; i++)
		state.pairs[i].value = ddp_tensors_metadata(file, state.pairs[i].key);
	status = state_check(&state, run);
	ddp_tensors_close(file);
	return status;
}

static int load(struct run *run, struct model_tensors *tensors)
{
	struct keeper *keeper = &run->keeper;
	struct state state;
	uint64_t step = 0;
	int status;

	state_fill(&state, run);
	status = ddp_checkpoint_load(run->ddp, keeper->directory, &step, tensors->list,
				     tensors->count, state.pairs, state.count);
	if (status <= 0)
		return status < 0 ? run_pass_on_shared(run, status) : 0;
	status = state_take(&state, run, step);
	run->shared = status < 0;
	if (status < 0)
		return status;
	model_tensors_import(tensors, run->model);
	keeper->any = keeper->resumed = true;
	keeper->saved = step;
	return 0;
}

/* Before hours are spent on what cannot be written. */
static int check_model(struct run *run)
{
	const char *file = option_text(run->options, OPTION_SAVE_MODEL);
	const char *slash = strrchr(file, '/');
	char directory[PATH_MAX] = ".";

	if (!*file)
		return 0;
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s", (int)(slash - file) + 1, file);
	if (access(directory, W_OK | X_OK) == 0)
		return 0;
	return ddp_error_errno(&run->error, DDP_ERR_FILE, "--save-model %s", file);
}

/* Rank 0 looks at what it is to read and write. */
static int prepare(struct run *run)
{
	int status = check_model(run);

	return status == 0 && run->keeper.directory ? look(run) : status;
}

int keeper_load(struct run *run)
{
	struct keeper *keeper = &run->keeper;
	struct model_tensors tensors = {.list = NULL};
	int status;

	if (*option_text(run->options, OPTION_CHECKPOINT))
		keeper->directory = option_text(run->options, OPTION_CHECKPOINT);
	status = run_agree(run, run->world->rank == 0 ? prepare(run) : 0);
	if (status < 0 || !keeper->directory || option_flag(run->options, OPTION_FRESH))
		return status;
	status = run_agree(run, model_tensors_create(&tensors, run->model, true, &run->error));
	if (status == 0)
		status = load(run, &tensors);
	model_tensors_destroy(&tensors);
	if (status == 0 && !keeper->resumed && option_flag(run->options, OPTION_EVALUATE)) {
		run->shared = true;
		return ddp_error_set(&run->error, DDP_ERR_FILE,
				     "--evaluate: there is no checkpoint in %s", keeper->directory);
	}
	return status;
}

void keeper_destroy(struct keeper *keeper)
{
	for (int i = 0; i < KEEPER_ENGINES; i++)
		free(keeper->choices[i]);
	free(keeper->old);
}
