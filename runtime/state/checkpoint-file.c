/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint.h"
#include "header.h"
#include "tensors.h"

static int make_path(char path[PATH_MAX], const char *directory, uint64_t step,
		     struct ddp_error *error)
{
	char name[DDP_CHECKPOINT_NAME];

	ddp_checkpoint_name(name, step);
	if (snprintf(path, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX)
		return ddp_error_set(error, DDP_ERR_FILE, "%.100s...: the path is too long",
				     directory);
	return 0;
}

/* Remove what is too old beside [step]. Nothing here makes a save fail. */
static void prune(const char *directory, uint64_t step, int keep, const struct ddp_log *log)
{
	struct ddp_error error;
	char path[PATH_MAX];
	uint64_t *steps;
	size_t count;
	int kept = 1; /* the one of [step] */

	if (ddp_checkpoint_list(directory, &steps, &count, &error) < 0) {
		ddp_log_print(log, DDP_LEVEL_WARNING, "state", "old checkpoints stay: %s",
			      error.text);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (steps[i] >= step || kept++ < keep)
			continue;
		if (make_path(path, directory, steps[i], NULL) == 0 && unlink(path) < 0 &&
		    errno != ENOENT)
			ddp_log_print(log, DDP_LEVEL_WARNING, "state", "cannot remove %s: %s", path,
				      strerror(errno));
	}
	free(steps);
}

int ddp_checkpoint_write(const char *directory, uint64_t step, const struct ddp_tensor *tensors,
			 size_t count, const struct ddp_pair *metadata, size_t pairs, int keep,
			 const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_pair *all = calloc(pairs + 1, sizeof(*all));
	char path[PATH_MAX], text[24];
	int status;

	if (!all)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", directory);
	if (keep < 0) {
		status = ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: %d checkpoints to keep",
				       directory, keep);
		goto out;
	}
	snprintf(text, sizeof(text), "%" PRIu64, step);
	all[0] = (struct ddp_pair){DDP_CHECKPOINT_STEP, text};
	if (pairs > 0)
		memcpy(&all[1], metadata, pairs * sizeof(*all));
	status = make_path(path, directory, step, error);
	if (status == 0)
		status = ddp_file_mkdirs(directory, 0777, error);
	if (status < 0)
		goto out;
	ddp_checkpoint_sweep(directory, log);
	status = ddp_tensors_write(path, tensors, count, all, pairs + 1, true, error);
	if (status == 0 && keep > 0)
		prune(directory, step, keep, log);
out:
	free(all);
	return status;
}

/* Whether [file], at [path], is the sound checkpoint of [step]. Returns 0 or why it is not. */
static int check(const struct ddp_tensors *file, const char *path, uint64_t step,
		 struct ddp_error *error)
{
	const char *says = ddp_tensors_metadata(file, DDP_CHECKPOINT_STEP);
	char text[24];
	int status = ddp_tensors_verify(file, error);

	if (status < 0)
		return status;
	if (status == 1 && says)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is damaged: its checksum is gone",
				     path);
	snprintf(text, sizeof(text), "%" PRIu64, step);
	if (says && strcmp(says, text) != 0)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is of step %.20s, not of %s", path,
				     says, text);
	return 0;
}

/* Returns 0 with [file], or why the checkpoint of [step] is of no use. */
static int open_sound(struct ddp_tensors **file, const char *directory, uint64_t step,
		      struct ddp_error *error)
{
	char path[PATH_MAX];
	int status = make_path(path, directory, step, error);

	*file = NULL;
	if (status == 0)
		status = ddp_tensors_open(file, path, error);
	if (status == 0)
		status = check(*file, path, step, error);
	if (status < 0) {
		ddp_tensors_close(*file);
		*file = NULL;
	}
	return status;
}

int ddp_checkpoint_open(struct ddp_tensors **file, uint64_t *step, const char *directory,
			const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_error why = {DDP_OK, ""}, newest = {DDP_OK, ""};
	uint64_t *steps;
	size_t count;
	int status = ddp_checkpoint_list(directory, &steps, &count, error);

	*file = NULL;
	if (status < 0 || count == 0)
		return status;
	for (size_t i = 0; i < count; i++) {
		status = open_sound(file, directory, steps[i], &why);
		if (status == 0) {
			*step = steps[i];
			status = 1;
			goto out;
		}
		if (status == DDP_ERR_MEMORY) {
			ddp_error_set(error, status, "%s", why.text);
			goto out;
		}
		ddp_log_print(log, DDP_LEVEL_WARNING, "state", "checkpoint passed over: %s",
			      why.text);
		if (i == 0)
			newest = why;
	}
	status = ddp_error_set(error, DDP_ERR_FORMAT, "none of %zu in %s is sound; the newest: %s",
			       count, directory, newest.text);
out:
	free(steps);
	return status;
}

/* Names for a message, as many as there is room for. */
struct names {
	char text[400];
	size_t used;
};

static void add_name(struct names *names, const char *name)
{
	static const char more[] = ", ...";
	size_t room = sizeof(names->text) - names->used;
	int size;

	if (room == 0)
		return;
	size = snprintf(names->text + names->used, room, "%s%.100s", names->used ? ", " : "", name);
	if (size < 0 || (size_t)size + sizeof(more) > room) {
		strcpy(names->text + names->used, more);
		names->used = sizeof(names->text);
		return;
	}
	names->used += (size_t)size;
}

static bool same_shape(const struct ddp_tensor *one, const struct ddp_tensor *other)
{
	if (one->type != other->type || one->dimensions != other->dimensions)
		return false;
	for (int i = 0; i < one->dimensions; i++)
		if (one->shape[i] != other->shape[i])
			return false;
	return true;
}

static int tell_shape(const struct ddp_tensors *file, const char *name,
		      const struct ddp_tensor *theirs, const struct ddp_tensor *ours,
		      struct ddp_error *error)
{
	char shapes[2][DDP_TENSOR_SHAPE];

	ddp_tensor_shape(theirs, shapes[0]);
	ddp_tensor_shape(ours, shapes[1]);
	return ddp_error_set(error, DDP_ERR_FORMAT, "%s: tensor \"%.200s\" is %.20s %s, not %s %s",
			     name, ours->name, ddp_tensors_type(file, theirs), shapes[0],
			     ddp_tensor_type(ours->type), shapes[1]);
}

static int tell_names(const char *name, const struct names *missing, const struct names *extra,
		      struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_FORMAT, "%s:%s%s%s%s%s", name,
			     missing->used ? " missing: " : "", missing->text,
			     missing->used && extra->used ? ";" : "",
			     extra->used ? " not expected: " : "", extra->text);
}

int ddp_checkpoint_match(const struct ddp_tensors *file, const char *name,
			 const struct ddp_tensor *tensors, size_t count, struct ddp_error *error)
{
	struct names missing = {.used = 0}, extra = {.used = 0};
	size_t there;
	const struct ddp_tensor *list = ddp_tensors_list(file, &there), *found;
	bool *wanted = calloc(there + 1, sizeof(*wanted));
	int status = 0;

	if (!wanted)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", name);
	for (size_t i = 0; i < count; i++) {
		found = ddp_tensors_find(file, tensors[i].name);
		if (!found) {
			add_name(&missing, tensors[i].name);
			continue;
		}
		wanted[found - list] = true;
		if (status == 0 && !same_shape(found, &tensors[i]))
			status = tell_shape(file, name, found, &tensors[i], error);
	}
	for (size_t i = 0; i < there; i++)
		if (!wanted[i])
			add_name(&extra, list[i].name);
	if (missing.used || extra.used)
		status = tell_names(name, &missing, &extra, error);
	free(wanted);
	return status;
}
