/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - names and files of checkpoints, and how the ranks write and read them together */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/type.h"
#include "checkpoint.h"
#include "comm/comm.h"
#include "tensors.h"

/* --- Agreement among ranks --------------------------------------------------------------- */

/* bytes per broadcast, so that each broadcast ends within the time limit of a collective */
enum { CHUNK_SIZE = 64 << 20 };

struct items {
	const struct ddp_tensor *tensors;
	size_t count;
	const struct ddp_pair *pairs;
	size_t pair_count;
};

static uint64_t hash_text(const char *text)
{
	return ddp_hash(DDP_HASH_INIT, text, strlen(text) + 1);
}

/* Describe item [i]: a tensor or, after the tensors, the key of a pair. Returns its hash. */
static uint64_t describe(const void *owner, size_t i, char line[DDP_ITEM_LINE])
{
	const struct items *items = owner;
	const struct ddp_tensor *tensor;
	char shape[DDP_TENSOR_SHAPE];
	uint64_t hash;

	if (i >= items->count) {
		const char *key = items->pairs[i - items->count].key;

		if (line)
			snprintf(line, DDP_ITEM_LINE, "metadata \"%.200s\"", key);
		return hash_text(key);
	}
	tensor = &items->tensors[i];
	ddp_tensor_shape(tensor, shape);
	if (line)
		snprintf(line, DDP_ITEM_LINE, "\"%.200s\", %s %s", tensor->name,
			 ddp_type_name(tensor->type), shape);
	hash = hash_text(tensor->name);
	hash = ddp_hash(hash, &tensor->type, sizeof(tensor->type));
	hash = ddp_hash(hash, &tensor->dimensions, sizeof(tensor->dimensions));
	return ddp_hash(hash, tensor->shape, (size_t)tensor->dimensions * sizeof(tensor->shape[0]));
}

static int check_items(const struct items *items, struct ddp_error *error)
{
	for (size_t i = 0; i < items->count; i++) {
		const struct ddp_tensor *tensor = &items->tensors[i];
		uint64_t bytes;

		if (!tensor->name || !ddp_tensor_bytes(tensor, &bytes))
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "tensor %zu, \"%.200s\", has an impossible name, type "
					     "or shape",
					     i, tensor->name ? tensor->name : "(null)");
		if (bytes > 0 && !tensor->data)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "tensor \"%.200s\" has no data", tensor->name);
	}
	for (size_t i = 0; i < items->pair_count; i++)
		if (!items->pairs[i].key)
			return ddp_error_set(error, DDP_ERR_ARGUMENT, "metadata %zu has no key", i);
	return 0;
}

/*
 * Check that all ranks have the same keys in [pairs] and the same [tensors], in the same order.
 * Tensors are the same if name, type and shape are equal. Collective.
 * Returns 0, DDP_ERR_MISMATCH or DDP_ERR_ARGUMENT. All ranks get the same status, and the same
 * text.
 */
static int check_tensors_agree(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
			       const struct ddp_pair *pairs, size_t pair_count)
{
	const struct items given = {tensors, count, pairs, pair_count};
	const struct ddp_items items = {&given, count + pair_count, describe};
	struct ddp_error own = {DDP_OK, ""};
	int status = ddp_agree(ddp, check_items(&given, &own), own.text);

	return status < 0 ? status : ddp_compare(ddp, "checkpoint item", &items);
}

/*
 * If rank 0 passes an [error], fail with that error on all ranks. Collective.
 * Returns 0, or the status of rank 0's error.
 */
static int share_error(struct ddp *ddp, const struct ddp_error *error)
{
	struct ddp_error shared = *error;
	int status = ddp_broadcast(ddp, &shared, sizeof(shared), 0);

	if (status < 0 || shared.status == DDP_OK)
		return status;
	return ddp_report(ddp, shared.status, "%s", shared.text);
}

/*
 * Copy the data of [tensors] from rank 0 to all ranks. Rank 0 takes the data from [file] or, if
 * [file] is NULL, from its [tensors]. Other ranks pass NULL as [file]. All ranks must have the same
 * names, types and shapes. Collective.
 */
static int broadcast_tensors(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
			     const struct ddp_tensors *file)
{
	int status = 0;

	for (size_t i = 0; i < count; i++) {
		const char *from = NULL;
		uint64_t bytes, size;

		(void)ddp_tensor_bytes(&tensors[i], &bytes);
		if (file)
			from = ddp_tensors_find(file, tensors[i].name)->data;
		for (uint64_t at = 0; at < bytes && status == 0; at += size) {
			char *to = (char *)tensors[i].data + at;

			size = bytes - at < CHUNK_SIZE ? bytes - at : CHUNK_SIZE;
			if (from)
				memcpy(to, from + at, (size_t)size);
			status = ddp_broadcast(ddp, to, (size_t)size, 0);
		}
	}
	return status;
}

int ddp_tensors_broadcast(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count)
{
	int status = check_tensors_agree(ddp, tensors, count, NULL, 0);

	return status < 0 ? status : broadcast_tensors(ddp, tensors, count, NULL);
}

/* --- Names ------------------------------------------------------------------------------- */

enum { NAME_SIZE = 64 }; /* size of a buffer for a file name and its terminating zero */

static void make_name(char name[NAME_SIZE], uint64_t step)
{
	snprintf(name, NAME_SIZE, "checkpoint-%010" PRIu64 ".safetensors", step);
}

/*
 * Parse the start of [name] as the canonical name of a checkpoint.
 * Returns the text after it, or NULL.
 */
static const char *parse_name(const char *name, uint64_t *step)
{
	static const char prefix[] = "checkpoint-";
	char want[NAME_SIZE];

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return NULL;
	errno = 0;
	*step = strtoull(name + sizeof(prefix) - 1, NULL, 10);
	if (errno != 0)
		return NULL;
	make_name(want, *step);
	return strncmp(name, want, strlen(want)) == 0 ? name + strlen(want) : NULL;
}

/* Sorts in descending order. */
static int compare_steps(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one > other ? -1 : one < other;
}

int ddp_checkpoint_list(const char *directory, uint64_t **steps, size_t *count,
			struct ddp_error *error)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	size_t capacity = 0;
	int status = 0;

	*steps = NULL;
	*count = 0;
	if (!dir && errno == ENOENT)
		return 0;
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read directory %s", directory);
	while (errno = 0, (entry = readdir(dir)) != NULL) {
		uint64_t step, *list = *steps;
		const char *suffix = parse_name(entry->d_name, &step);

		if (!suffix || *suffix)
			continue;
		if (*count == capacity) {
			capacity = capacity ? 2 * capacity : 16;
			list = reallocarray(list, capacity, sizeof(*list));
		}
		if (!list) {
			status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", directory);
			goto out;
		}
		*steps = list;
		list[(*count)++] = step;
	}
	if (errno != 0)
		status =
			ddp_error_errno(error, DDP_ERR_FILE, "cannot read directory %s", directory);
	else if (*count > 0)
		qsort(*steps, *count, sizeof(**steps), compare_steps);
out:
	closedir(dir);
	if (status < 0) {
		free(*steps);
		*steps = NULL;
		*count = 0;
	}
	return status;
}

/*
 * Seconds without a change of a temporary file after which its writer is assumed to have ended, if
 * it is unknown whether the writer still runs.
 */
enum { LEFTOVER_AGE = 600 };

/*
 * Returns whether [name] is the temporary file of a checkpoint whose writer was killed.
 * LEFTOVER_AGE is so long because the nodes' clocks can differ by minutes.
 */
static bool is_leftover(int dir, const char *name)
{
	uint64_t step;
	const char *suffix = parse_name(name, &step);
	struct stat info;
	bool dead;

	if (!suffix || !ddp_file_is_temporary(suffix, &dead) ||
	    fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(info.st_mode) ||
	    info.st_uid != geteuid())
		return false;
	return dead || info.st_mtime < time(NULL) - LEFTOVER_AGE;
}

static void checkpoint_sweep(const char *directory, const struct ddp_log *log)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (!is_leftover(dirfd(dir), entry->d_name))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			ddp_log_print(log, DDP_LEVEL_INFO, "state",
				      "removed %s/%s, because its writer was killed", directory,
				      entry->d_name);
		else if (errno != ENOENT)
			ddp_log_print(log, DDP_LEVEL_WARNING, "state", "cannot remove %s/%s: %s",
				      directory, entry->d_name, strerror(errno));
	}
	closedir(dir);
}

/* --- Files ------------------------------------------------------------------------------- */

int ddp_checkpoint_path(char *path, size_t size, const char *directory, uint64_t step,
			struct ddp_error *error)
{
	char name[NAME_SIZE];

	make_name(name, step);
	if ((size_t)snprintf(path, size, "%s/%s", directory, name) >= size)
		return ddp_error_set(error, DDP_ERR_FILE, "the path %.100s... is too long",
				     directory);
	return 0;
}

/* --- Saving and loading ------------------------------------------------------------------- */

/* Remove checkpoints older than [step] except the newest [keep] - 1. Errors are only logged. */
static void prune(const char *directory, uint64_t step, int keep, const struct ddp_log *log)
{
	struct ddp_error error;
	char path[PATH_MAX];
	uint64_t *steps;
	size_t count;
	int kept = 1; /* the checkpoint of [step] */

	if (ddp_checkpoint_list(directory, &steps, &count, &error) < 0) {
		ddp_log_print(log, DDP_LEVEL_WARNING, "state",
			      "old checkpoints are not removed: %s", error.text);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (steps[i] >= step ||
		    ddp_checkpoint_path(path, sizeof(path), directory, steps[i], NULL) < 0)
			continue;
		if (kept++ < keep)
			continue;
		if (unlink(path) < 0 && errno != ENOENT)
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
		status = ddp_error_set(error, DDP_ERR_ARGUMENT,
				       "%s: cannot keep %d checkpoints. Keep 0 or more.", directory,
				       keep);
		goto out;
	}
	snprintf(text, sizeof(text), "%" PRIu64, step);
	all[0] = (struct ddp_pair){DDP_CHECKPOINT_STEP, text};
	if (pairs > 0)
		memcpy(&all[1], metadata, pairs * sizeof(*all));
	status = ddp_checkpoint_path(path, sizeof(path), directory, step, error);
	if (status == 0)
		status = ddp_file_mkdirs(directory, 0777, error);
	if (status < 0)
		goto out;
	checkpoint_sweep(directory, log);
	status = ddp_tensors_write(path, tensors, count, all, pairs + 1, true, error);
	if (status == 0 && keep > 0)
		prune(directory, step, keep, log);
out:
	free(all);
	return status;
}

/* Check that [file], at [path], is a sound checkpoint of [step]. Returns 0 or an error. */
static int check_file(const struct ddp_tensors *file, const char *path, uint64_t step,
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
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is of step %.20s, not of step %s",
				     path, says, text);
	return 0;
}

/*
 * Open the checkpoint of [step]. Returns 1 with [file]; 0 if the file no longer exists;
 * DDP_ERR_FORMAT if it is damaged; or another error, after which the file may still be sound.
 */
static int open_sound(struct ddp_tensors **file, const char *directory, uint64_t step,
		      struct ddp_error *error)
{
	char path[PATH_MAX];
	int status = ddp_checkpoint_path(path, sizeof(path), directory, step, error);

	*file = NULL;
	if (status == 0)
		status = ddp_tensors_open(file, path, error);
	if (status == DDP_ERR_FILE && access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	if (status == 0)
		status = check_file(*file, path, step, error);
	if (status == 0)
		return 1;
	ddp_tensors_close(*file);
	*file = NULL;
	return status;
}

/*
 * Rename the damaged checkpoint of [step], so that later saves do not count it among the
 * checkpoints to keep. Errors are ignored.
 */
static void set_aside(const char *directory, uint64_t step, const struct ddp_log *log)
{
	char path[PATH_MAX], to[PATH_MAX + sizeof(".damaged")];

	if (ddp_checkpoint_path(path, sizeof(path), directory, step, NULL) < 0)
		return;
	snprintf(to, sizeof(to), "%s.damaged", path);
	if (rename(path, to) == 0)
		ddp_log_print(log, DDP_LEVEL_INFO, "state", "renamed %s to %s", path, to);
	else
		ddp_log_print(log, DDP_LEVEL_INFO, "state", "cannot rename %s to %s: %s", path, to,
			      strerror(errno));
}

int ddp_checkpoint_open(struct ddp_tensors **file, uint64_t *step, const char *directory,
			const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_error why = {DDP_OK, ""}, newest = {DDP_OK, ""};
	uint64_t *steps;
	/* [damaged] counts damaged checkpoints; their steps are moved to the start of [steps] */
	size_t count, damaged = 0;
	int status = ddp_checkpoint_list(directory, &steps, &count, error);

	*file = NULL;
	if (status < 0 || count == 0)
		return status;
	for (size_t i = 0; i < count; i++) {
		status = open_sound(file, directory, steps[i], &why);
		if (status == 1) {
			*step = steps[i];
			for (size_t j = 0; j < damaged; j++)
				set_aside(directory, steps[j], log);
			goto out;
		}
		if (status < 0 && status != DDP_ERR_FORMAT) {
			ddp_error_set(error, status, "%s", why.text);
			goto out;
		}
		ddp_log_print(log, DDP_LEVEL_WARNING, "state", "a checkpoint is skipped: %s",
			      why.text);
		if (i == 0)
			newest = why;
		if (status == DDP_ERR_FORMAT)
			steps[damaged++] = steps[i];
	}
	status = ddp_error_set(error, DDP_ERR_FORMAT,
			       "none of the %zu checkpoints in %s can be read. The newest: %s",
			       count, directory, newest.text);
out:
	free(steps);
	return status;
}

/* A list of names for a message. Names that do not fit into [text] are replaced by "...". */
struct names {
	char text[400];
	size_t used;
};

static void add_name(struct names *names, const char *name)
{
	static const char more[] = ", ...";
	size_t space = sizeof(names->text) - names->used;
	int size;

	if (space == 0)
		return;
	size = snprintf(names->text + names->used, space, "%s%.100s", names->used ? ", " : "",
			name);
	if (size < 0 || (size_t)size + sizeof(more) > space) {
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

static int set_shape_error(const struct ddp_tensors *file, const char *name,
			   const struct ddp_tensor *found, const struct ddp_tensor *expected,
			   struct ddp_error *error)
{
	char shapes[2][DDP_TENSOR_SHAPE];

	ddp_tensor_shape(found, shapes[0]);
	ddp_tensor_shape(expected, shapes[1]);
	return ddp_error_set(error, DDP_ERR_FORMAT, "%s: tensor \"%.200s\" is %.20s %s, not %s %s",
			     name, expected->name, ddp_tensors_type(file, found), shapes[0],
			     ddp_type_name(expected->type), shapes[1]);
}

static int set_names_error(const char *name, const struct names *missing, const struct names *extra,
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
			status = set_shape_error(file, name, found, &tensors[i], error);
	}
	for (size_t i = 0; i < there; i++)
		if (!wanted[i])
			add_name(&extra, list[i].name);
	if (missing.used || extra.used)
		status = set_names_error(name, &missing, &extra, error);
	free(wanted);
	return status;
}

/* --- Collective calls -------------------------------------------------------------------- */

int ddp_checkpoint_save(struct ddp *ddp, const char *directory, uint64_t step,
			const struct ddp_tensor *tensors, size_t count,
			const struct ddp_pair *metadata, size_t pairs, int keep)
{
	struct ddp_error error = {DDP_OK, ""};
	int status = ddp_begin_call(ddp);

	if (status < 0)
		return status;
	if (ddp_world(ddp)->rank == 0)
		ddp_checkpoint_write(directory, step, tensors, count, metadata, pairs, keep,
				     ddp_handle_log(ddp), &error);
	return share_error(ddp, &error);
}

/* Result of rank 0's search for a checkpoint. Rank 0 broadcasts it to all ranks. */
struct finding {
	uint64_t found, step;
	uint64_t bytes; /* size of all metadata values after packing */
};

/*
 * Returns the size of a packed value in bytes. It consists of a byte that is 1 if the value exists,
 * and the text with its terminating zero.
 */
static size_t value_bytes(const char *value)
{
	return value ? 2 + strlen(value) : 2;
}

static void pack(char *buffer, const struct ddp_tensors *file, const struct ddp_pair *metadata,
		 size_t pairs)
{
	for (size_t i = 0; i < pairs; i++) {
		const char *value = ddp_tensors_metadata(file, metadata[i].key);
		size_t bytes = value_bytes(value);

		buffer[0] = value != NULL;
		memcpy(buffer + 1, value ? value : "", bytes - 1);
		buffer += bytes;
	}
}

static void unpack(const char *buffer, struct ddp_pair *metadata, size_t pairs)
{
	for (size_t i = 0; i < pairs; i++) {
		metadata[i].value = buffer[0] ? buffer + 1 : NULL;
		buffer += 2 + strlen(buffer + 1);
	}
}

static void search(struct ddp *ddp, const char *directory, const struct ddp_tensor *tensors,
		   size_t count, const struct ddp_pair *metadata, size_t pairs,
		   struct ddp_tensors **file, struct finding *finding, struct ddp_error *error)
{
	char name[NAME_SIZE];

	if (ddp_checkpoint_open(file, &finding->step, directory, ddp_handle_log(ddp), error) <= 0)
		return;
	finding->found = 1;
	make_name(name, finding->step);
	ddp_checkpoint_match(*file, name, tensors, count, error);
	for (size_t i = 0; i < pairs; i++)
		finding->bytes += value_bytes(ddp_tensors_metadata(*file, metadata[i].key));
}

/*
 * Broadcast the values of [metadata] from rank 0's [file]. The packed values have [bytes] in total.
 */
static int send_metadata(struct ddp *ddp, const struct ddp_tensors *file, size_t bytes,
			 struct ddp_pair *metadata, size_t pairs)
{
	char *buffer;
	int status;

	if (pairs == 0)
		return 0;
	buffer = ddp_keep(ddp, bytes);
	if (!buffer)
		return ddp_fail_with(ddp, DDP_ERR_MEMORY,
				     "no memory for %zu bytes of a checkpoint's metadata", bytes);
	if (file)
		pack(buffer, file, metadata, pairs);
	status = ddp_broadcast(ddp, buffer, bytes, 0);
	if (status == 0)
		unpack(buffer, metadata, pairs);
	return status;
}

int ddp_checkpoint_load(struct ddp *ddp, const char *directory, uint64_t *step,
			const struct ddp_tensor *tensors, size_t count, struct ddp_pair *metadata,
			size_t pairs)
{
	struct ddp_error error = {DDP_OK, ""};
	struct ddp_tensors *file = NULL;
	struct finding finding = {0, 0, 0};
	int status = check_tensors_agree(ddp, tensors, count, metadata, pairs);

	if (status < 0)
		return status;
	if (ddp_world(ddp)->rank == 0)
		search(ddp, directory, tensors, count, metadata, pairs, &file, &finding, &error);
	status = ddp_broadcast(ddp, &finding, sizeof(finding), 0);
	if (status == 0 && finding.found)
		status = send_metadata(ddp, file, (size_t)finding.bytes, metadata, pairs);
	if (status == 0)
		status = share_error(ddp, &error);
	if (status < 0 || !finding.found)
		goto out;
	status = broadcast_tensors(ddp, tensors, count, file);
	if (status == 0) {
		*step = finding.step;
		status = 1;
	}
out:
	ddp_tensors_close(file);
	return status;
}
