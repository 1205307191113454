/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-checkpoint.c - saves a run as a checkpoint with metadata, and resumes it
 */
#include "config.h"

#include "run-checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/watch.h"
#include "run.h"

/*
 * Metadata of a checkpoint. It describes the network and its data, and the position in the training
 * (epoch, step). The options that affect the result follow these fields.
 */
#define FIELDS(X)                   \
	X(NETWORK, "network")       \
	X(CLASSES, "classes")       \
	X(OPTIMIZER, "optimizer")   \
	X(SEED, "seed")             \
	X(IMAGES, "images")         \
	X(DATA, "data")             \
	X(RANKS, "ranks")           \
	X(BATCH, "batch")           \
	X(EPOCH, "epoch")           \
	X(POSITION, "position")     \
	X(STEP, "step")             \
	X(UPDATES, "updates")       \
	X(LOSS, "loss")             \
	X(HITS, "hits")             \
	X(SAMPLES, "samples")       \
	X(BEST, "best")             \
	X(BEST_EPOCH, "best-epoch") \
	X(EVALUATED, "evaluated")   \
	X(SCALE, "scale")           \
	X(GOOD_STEPS, "good-steps") \
	X(ENGINE, "engine")         \
	X(TRAINING, "training")

enum field {
#define FIELD_ENUM(id, name) FIELD_##id,
	FIELDS(FIELD_ENUM)
#undef FIELD_ENUM
		FIELD_COUNT
};

static const char *const fields[] = {
#define FIELD_NAME(id, name) name,
	FIELDS(FIELD_NAME)
#undef FIELD_NAME
};

static const char *const keys[] = {
#define FIELD_KEY(id, name) "train." name,
	FIELDS(FIELD_KEY)
#undef FIELD_KEY
#define OPTION(id, name, ...) "option." name,
#include "train-options.def"
#undef OPTION
};

/* Metadata as pairs. The struct must not be moved, since its pairs point into it. */
struct state {
	struct ddp_pair pairs[(int)FIELD_COUNT + (int)OPTION_COUNT];
	size_t count;
	char values[FIELD_COUNT][128];
};

/* --- Writing metadata ------------------------------------------------------------------------ */

static void put(struct state *state, enum field field, const char *format, ...) DDP_FORMAT(3, 4);
static void put(struct state *state, enum field field, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(state->values[field], sizeof(state->values[field]), format, arguments);
	va_end(arguments);
}

static void put_count(struct state *state, enum field field, uint64_t value)
{
	put(state, field, "%llu", (unsigned long long)value);
}

/* Stores [value] with enough digits that reading it gives the same number. */
static void put_number(struct state *state, enum field field, double value)
{
	put(state, field, "%.17g", value);
}

static void fill(struct state *state, const struct run *run)
{
	const struct set_info *info = set_info(run->train);
	const struct run_progress *progress = &run->progress;

	put(state, FIELD_NETWORK, "%s", run->net->name);
	put_count(state, FIELD_CLASSES, (uint64_t)info->classes);
	put(state, FIELD_OPTIMIZER, "%s", option_text(run->options, OPTION_OPTIMIZER));
	put_count(state, FIELD_SEED, run->seed);
	put_count(state, FIELD_IMAGES, info->samples);
	put(state, FIELD_DATA, "%s", info->title);
	put_count(state, FIELD_RANKS, (uint64_t)run->world->size);
	put_count(state, FIELD_BATCH, run_global_batch(run));
	put_count(state, FIELD_EPOCH, progress->epoch);
	put_count(state, FIELD_POSITION, progress->position);
	put_count(state, FIELD_STEP, progress->step);
	put_count(state, FIELD_UPDATES, progress->updates);
	put_number(state, FIELD_LOSS, progress->loss);
	put_count(state, FIELD_HITS, progress->hits);
	put_count(state, FIELD_SAMPLES, progress->samples);
	put_number(state, FIELD_BEST, progress->best);
	put_count(state, FIELD_BEST_EPOCH, progress->best_epoch);
	put_count(state, FIELD_EVALUATED, progress->evaluated);
	put_number(state, FIELD_SCALE, (double)run->scaler.scale);
	put_count(state, FIELD_GOOD_STEPS, (uint64_t)run->scaler.good_steps);
	put(state, FIELD_ENGINE, "%s", run->class->head.name);
	put(state, FIELD_TRAINING, "%s", run->checkpoint.training);
	for (int i = 0; i < FIELD_COUNT; i++)
		state->pairs[i] = (struct ddp_pair){keys[i], state->values[i]};
	state->count = FIELD_COUNT;
	for (int i = 0; i < OPTION_COUNT; i++)
		if (option_matters((enum option_id)i))
			state->pairs[state->count++] =
				(struct ddp_pair){keys[FIELD_COUNT + i],
						  option_text(run->options, (enum option_id)i)};
}

/* --- Reading metadata ------------------------------------------------------------------------ */

/*
 * Returns the value of [field] that was read from a checkpoint. Loading a checkpoint replaces the
 * values of state->pairs, but the run's own values stay in state->values.
 */
static const char *get(const struct state *state, enum field field)
{
	return state->pairs[field].value ? state->pairs[field].value : "";
}

/* Part of a remedy. With --evaluate it is empty, as --fresh removes the checkpoints. */
static const char *or_fresh(const struct run *run)
{
	return option_flag(run->options, OPTION_EVALUATE) ? "" : ", or --fresh to start over";
}

static void refuse_metadata(struct run *run, const struct state *state, enum field field)
{
	ddp_error_set(
		&run->error, DDP_ERR_FORMAT,
		"the newest checkpoint in %s was not written by ddp-train: its metadata %s is "
		"\"%.40s\". Give another directory%s.",
		run->checkpoint.directory, fields[field], get(state, field), or_fresh(run));
}

static double get_number(struct run *run, const struct state *state, enum field field)
{
	const char *text = get(state, field);
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end)
		refuse_metadata(run, state, field);
	return value;
}

static uint64_t get_count(struct run *run, const struct state *state, enum field field,
			  uint64_t most)
{
	const char *text = get(state, field);
	uint64_t value = strtoull(text, NULL, 10);

	if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 20 ||
	    value > most)
		refuse_metadata(run, state, field);
	return value;
}

/*
 * Sets the run's progress from the metadata. Returns 0, or DDP_ERR_FORMAT if a value is missing or
 * malformed.
 */
static int read_progress(struct run *run, const struct state *state, uint64_t step)
{
	bool evaluate = option_flag(run->options, OPTION_EVALUATE);
	uint64_t images = evaluate ? UINT64_MAX : set_info(run->train)->samples;
	struct run_progress *progress = &run->progress;

	ddp_error_clear(&run->error);
	progress->total = step;
	progress->epoch = (unsigned)get_count(run, state, FIELD_EPOCH, INT32_MAX);
	progress->position = get_count(run, state, FIELD_POSITION, images);
	progress->step = get_count(run, state, FIELD_STEP, step);
	progress->updates = get_count(run, state, FIELD_UPDATES, step);
	progress->loss = get_number(run, state, FIELD_LOSS);
	progress->hits = get_count(run, state, FIELD_HITS, UINT64_MAX);
	progress->samples = get_count(run, state, FIELD_SAMPLES, UINT64_MAX);
	progress->best = get_number(run, state, FIELD_BEST);
	progress->best_epoch = (unsigned)get_count(run, state, FIELD_BEST_EPOCH, INT32_MAX);
	/*
	 * Checkpoints of older versions do not have this field. Older versions wrote the checkpoint
	 * at the end of a training after the evaluation.
	 */
	progress->evaluated =
		!*get(state, FIELD_EVALUATED) || get_count(run, state, FIELD_EVALUATED, 1) == 1;
	run->scaler.scale = (float)get_number(run, state, FIELD_SCALE);
	run->scaler.good_steps = (int32_t)get_count(run, state, FIELD_GOOD_STEPS, INT32_MAX);
	/* The best result of the training does not apply to an evaluation of other images. */
	if (evaluate && (strcmp(get(state, FIELD_DATA), state->values[FIELD_DATA]) != 0 ||
			 strcmp(get(state, FIELD_SEED), state->values[FIELD_SEED]) != 0))
		progress->best_epoch = 0;
	return run->error.status;
}

/* Returns [value] in a form for messages. Numbers of images, ranks and samples get separators. */
static const char *show(enum field field, const char *value, struct ddp_shown *shown)
{
	if (field != FIELD_IMAGES && field != FIELD_RANKS && field != FIELD_BATCH)
		return value;
	*shown = ddp_show_count(strtod(value, NULL));
	return shown->text;
}

/* Whether a set's title is that of published files: "MNIST in data, 60,000 images". */
static bool is_published(const char *title)
{
	return *title && (*title < '0' || *title > '9');
}

/*
 * Whether a value excludes a resume. Published data can be in another directory, but must not be
 * replaced by drawn data, or the reverse. A missing value excludes nothing.
 */
static bool is_different(enum field field, const char *was, const char *now)
{
	if (field == FIELD_DATA)
		return *was && is_published(was) != is_published(now);
	return *was && strcmp(was, now) != 0;
}

/* Returns the option's value in the metadata, or NULL if there is none. */
static const char *old_option(const struct state *state, enum option_id id)
{
	for (size_t i = FIELD_COUNT; i < state->count; i++)
		if (strcmp(state->pairs[i].key, keys[FIELD_COUNT + (int)id]) == 0)
			return state->pairs[i].value;
	return NULL;
}

/* Momentum cannot be turned on or off: sgd stores a buffer for each weight only with momentum. */
static int check_momentum(struct run *run, const struct state *state)
{
	const char *was = old_option(state, OPTION_MOMENTUM);
	const char *now = option_text(run->options, OPTION_MOMENTUM);

	if (run->optim.kind != OPTIM_SGD || !was ||
	    (strtod(was, NULL) != 0) == (run->optim.momentum != 0))
		return 0;
	return ddp_error_set(
		&run->error, DDP_ERR_ARGUMENT,
		"the checkpoint in %s was trained with --momentum %s, not %s. Momentum cannot be "
		"turned on or off. Give --momentum %s, or another directory, or --fresh to start "
		"over.",
		run->checkpoint.directory, was, now, was);
}

/*
 * Checks that the checkpoint belongs to this training or, with --evaluate, that it has the same
 * network. Returns 0, or DDP_ERR_ARGUMENT with a text that names the first difference.
 */
static int check_training(struct run *run, const struct state *state)
{
	static const struct {
		enum field field;
		const char *remedy;
	} rows[] = {
		{FIELD_NETWORK, "Give the same network"},
		{FIELD_CLASSES, "Give the same data"},
		{FIELD_OPTIMIZER, "Give the same --optimizer"},
		{FIELD_SEED, "Give the same --seed"},
		{FIELD_IMAGES, "Give the same data"},
		{FIELD_DATA, "Give the same data"},
	};

	bool evaluate = option_flag(run->options, OPTION_EVALUATE);

	for (size_t i = 0; i < (evaluate ? 2 : sizeof(rows) / sizeof(rows[0])); i++) {
		enum field field = rows[i].field;
		struct ddp_shown was, now;

		if (is_different(field, get(state, field), state->values[field]))
			return ddp_error_set(
				&run->error, DDP_ERR_ARGUMENT,
				"the checkpoint in %s is of another training (%s %s, not %s). %s, "
				"or another directory%s.",
				run->checkpoint.directory, fields[field],
				show(field, get(state, field), &was),
				show(field, state->values[field], &now), rows[i].remedy,
				or_fresh(run));
	}
	return evaluate ? 0 : check_momentum(run, state);
}

/* Adds a text such as "--lr 0.05 (was 0.1)" to [summary] for each value that has changed. */
static void describe_changes(const struct run *run, const struct state *state,
			     struct ddp_text *summary)
{
	static const struct {
		enum field field;
		const char *one, *several; /* units */
	} rows[] = {{FIELD_RANKS, " rank", " ranks"},
		    {FIELD_BATCH, " sample a step", " samples a step"},
		    {FIELD_DATA, "", ""},
		    {FIELD_ENGINE, " engine", " engine"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum field field = rows[i].field;
		const char *now = state->values[field], *was = get(state, field);
		struct ddp_shown shown[2];

		if (strcmp(was, now) != 0)
			ddp_text_add(summary, ", %s%s (was %s)", show(field, now, &shown[0]),
				     strcmp(now, "1") == 0 ? rows[i].one : rows[i].several,
				     show(field, was, &shown[1]));
	}
	for (int i = 0; i < OPTION_COUNT; i++) {
		const char *now = option_text(run->options, (enum option_id)i);
		const char *was = old_option(state, (enum option_id)i);

		if (i == OPTION_BATCH || i == OPTION_GLOBAL_BATCH || i == OPTION_ENGINE || !was ||
		    strcmp(now, was) == 0)
			continue;
		ddp_text_add(summary, ", --%s %s (was %s)", option_rows[i].name, *now ? now : "off",
			     *was ? was : "off");
	}
}

/* --- Lock on the directory ------------------------------------------------------------------- */

/*
 * Rank 0 holds a lock of fcntl() on DIR/.lock from the start of a run to its end. The lock works
 * across nodes, also on NFS, and ends with the process that holds it. The file remains. It names
 * the process that locked it last:
 *
 *     <job> <attempt> <restart> <host> <process> <training>
 *
 * A restart by ddp-run or Slurm keeps the <training> of the earlier attempt. Any other run gets a
 * new <training>. With --fresh, a restart resumes from checkpoints of its training only.
 *
 * After a node has failed, a file server may keep the node's locks: NFSv4 for about 90 s, NFSv3
 * until the node is up again. Slurm and ddp-run end an attempt before they start the next one. So
 * an attempt replaces a lock file that names an earlier attempt, even if it is locked.
 */
struct lock_owner {
	char job[256], host[72], training[48];
	int attempt; /* number of times that Slurm requeued the job */
	int restart; /* number of times that ddp-run restarted the program */
	long pid;
};

/* A killed process can need some time to release its lock. */
enum { LOCK_TRIES = 100, LOCK_PAUSE_MS = 100 };

static struct lock_owner this_owner(const struct run *run)
{
	const char *restart = ddp_getenv("DDP_RESTART", NULL);
	struct lock_owner owner = {.attempt = run->world->attempt, .pid = (long)getpid()};

	owner.restart = restart ? (int)strtol(restart, NULL, 10) : 0;
	snprintf(owner.job, sizeof(owner.job), "%s", run->world->job);
	snprintf(owner.host, sizeof(owner.host), "%s", run->world->host);
	snprintf(owner.training, sizeof(owner.training), "%llx-%lx",
		 (unsigned long long)(ddp_date(NULL) * 1e6), owner.pid);
	return owner;
}

static bool read_owner(int fd, struct lock_owner *owner)
{
	char text[512];
	ssize_t size = pread(fd, text, sizeof(text) - 1, 0);

	text[size > 0 ? size : 0] = '\0';
	owner->training[0] = '\0';
	return sscanf(text, "%255s %d %d %71s %ld %47s", owner->job, &owner->attempt,
		      &owner->restart, owner->host, &owner->pid, owner->training) >= 5;
}

/* Errors are ignored, as the lock does not depend on the text. */
static void write_owner(int fd, const struct lock_owner *owner)
{
	char text[512];
	int size = snprintf(text, sizeof(text), "%s %d %d %s %ld %s\n", owner->job, owner->attempt,
			    owner->restart, owner->host, owner->pid, owner->training);

	if (ftruncate(fd, 0) == 0 && ddp_file_write_all(fd, text, (size_t)size) == 0)
		(void)fsync(fd);
}

/*
 * Whether [owner] is an earlier attempt of the run that [own] describes. Under srun, a job is named
 * "cluster.job.step", and each attempt has another step.
 */
static bool is_earlier(const struct lock_owner *owner, const struct lock_owner *own,
		       const struct run *run)
{
	const char *step = strrchr(own->job, '.');
	bool under_srun = strncmp(run->world->source, "srun", 4) == 0;
	size_t length = step && under_srun ? (size_t)(step + 1 - own->job) : sizeof(own->job);

	return strncmp(owner->job, own->job, length) == 0 &&
	       (own->attempt > owner->attempt ||
		(own->attempt == owner->attempt && own->restart > owner->restart));
}

/* Whether [path] still names the file that is open as [fd]. */
static bool is_at(int fd, const char *path)
{
	struct stat open, there;

	return fstat(fd, &open) == 0 && stat(path, &there) == 0 && open.st_dev == there.st_dev &&
	       open.st_ino == there.st_ino;
}

static int refuse_locked(struct run *run, const char *path, const struct lock_owner *owner)
{
	const char *directory = run->checkpoint.directory;
	char remedy[PATH_MAX + 256] = "";

	if (!owner)
		return ddp_error_set(&run->error, DDP_ERR_FILE,
				     "--checkpoint %s is in use: another process has a lock on %s",
				     directory, path);
	if (strcmp(owner->host, run->world->host) != 0)
		snprintf(remedy, sizeof(remedy), " If %s is down, remove %s", owner->host, path);
	return ddp_error_set(
		&run->error, DDP_ERR_FILE,
		"--checkpoint %s is in use by process %ld on %s, job %s. End that run, or give "
		"another directory.%s",
		directory, owner->pid, owner->host, owner->job, remedy);
}

/*
 * Locks [path]. Returns a descriptor, or -1 with errno set. If the file system does not support
 * locks, the descriptor has no lock. EAGAIN means that another process has the lock. In this case,
 * if [known] is set, [owner] describes that process.
 */
static int lock_file(struct run *run, const char *path, struct lock_owner *owner, bool *known)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);

	*known = false;
	if (fd < 0)
		return -1;
	if (fcntl(fd, F_SETLK, &lock) == 0) {
		if (is_at(fd, path))
			return fd; /* otherwise the file was replaced in the meantime */
	} else if (errno == EAGAIN || errno == EACCES) {
		*known = read_owner(fd, owner) && is_at(fd, path);
	} else {
		ddp_log(run->ddp, DDP_LEVEL_INFO, "train",
			"cannot lock %s: %s; other runs can use the directory at the same time",
			path, strerror(errno));
		return fd;
	}
	close(fd);
	errno = EAGAIN;
	return -1;
}

static int lock_directory(struct run *run)
{
	const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
	struct run_checkpoint *checkpoint = &run->checkpoint;
	struct lock_owner own = this_owner(run), owner;
	char path[PATH_MAX];
	bool known, replaced = false;
	int fd;

	if (snprintf(path, sizeof(path), "%s/.lock", checkpoint->directory) >= (int)sizeof(path))
		return ddp_error_set(&run->error, DDP_ERR_FILE,
				     "the path of --checkpoint %.100s... is too long",
				     checkpoint->directory);
	for (int i = 0; (fd = lock_file(run, path, &owner, &known)) < 0; i++) {
		if (errno != EAGAIN)
			return ddp_error_errno(&run->error, DDP_ERR_FILE, "cannot lock %s", path);
		if (i == LOCK_TRIES)
			return refuse_locked(run, path, known ? &owner : NULL);
		if (known && is_earlier(&owner, &own, run))
			replaced = unlink(path) == 0;
		else
			nanosleep(&pause, NULL);
	}
	checkpoint->restarted =
		replaced || (read_owner(fd, &owner) && is_earlier(&owner, &own, run));
	if (checkpoint->restarted && *owner.training)
		snprintf(own.training, sizeof(own.training), "%s", owner.training);
	snprintf(checkpoint->training, sizeof(checkpoint->training), "%s", own.training);
	write_owner(fd, &own);
	checkpoint->lock = fd + 1;
	return 0;
}

/* --- Resume ---------------------------------------------------------------------------------- */

/* Removes the earlier training's checkpoints. Called once this training has a checkpoint. */
static void remove_old(struct run_checkpoint *checkpoint)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < checkpoint->old_count; i++)
		if (checkpoint->old[i] != checkpoint->saved &&
		    ddp_checkpoint_path(path, sizeof(path), checkpoint->directory,
					checkpoint->old[i], NULL) == 0)
			unlink(path);
	checkpoint->old_count = 0;
}

/* Checks, before the training starts, that the file of --save-model can be written. */
static int check_model(struct run *run)
{
	const char *file = option_text(run->options, OPTION_SAVE_MODEL);
	const char *slash = strrchr(file, '/');
	char directory[PATH_MAX] = ".";

	if (!*file)
		return 0;
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s", (int)(slash - file) + 1, file);
	if (strlen(file) + sizeof(".best") > PATH_MAX ||
	    strlen(slash ? slash + 1 : file) + strlen(".best") > NAME_MAX)
		errno = ENAMETOOLONG;
	else if (access(directory, W_OK | X_OK) == 0)
		return ddp_file_can_replace(file, &run->error);
	return ddp_error_errno(&run->error, DDP_ERR_FILE, "--save-model %s", file);
}

/* Returns 1 if the checkpoint of [step] is of this training, 0 if not, -1 if it cannot be read. */
static int is_own(const struct run_checkpoint *checkpoint, uint64_t step)
{
	struct ddp_tensors *file = NULL;
	char path[PATH_MAX];
	const char *training;
	int own = -1;

	if (ddp_checkpoint_path(path, sizeof(path), checkpoint->directory, step, NULL) < 0 ||
	    ddp_tensors_open(&file, path, NULL) < 0)
		return -1;
	training = ddp_tensors_metadata(file, keys[FIELD_TRAINING]);
	own = training && strcmp(training, checkpoint->training) == 0;
	ddp_tensors_close(file);
	return own;
}

/*
 * With --fresh: lists the checkpoints of earlier trainings. If ddp-run or Slurm restarted this
 * training after it wrote a checkpoint, removes the listed ones and resumes from its own.
 */
static int prepare_fresh(struct run *run)
{
	struct run_checkpoint *checkpoint = &run->checkpoint;
	size_t others = 0;
	bool any = false;
	int status = ddp_checkpoint_list(checkpoint->directory, &checkpoint->old,
					 &checkpoint->old_count, &run->error);

	checkpoint->fresh = true;
	if (status < 0 || !checkpoint->restarted)
		return status;
	for (size_t i = 0; i < checkpoint->old_count; i++) {
		uint64_t step = checkpoint->old[i];
		int own = is_own(checkpoint, step);

		any = any || own == 1;
		if (own != 0)
			continue;
		checkpoint->old[i] = checkpoint->old[others];
		checkpoint->old[others++] = step;
	}
	if (!any)
		return 0;
	checkpoint->fresh = false;
	checkpoint->old_count = others;
	remove_old(checkpoint);
	return 0;
}

/* On rank 0, checks that all files can be written, and locks the directory of checkpoints. */
static int prepare(struct run *run)
{
	struct run_checkpoint *checkpoint = &run->checkpoint;
	int status = check_model(run);

	if (status < 0 || !checkpoint->directory || option_flag(run->options, OPTION_EVALUATE))
		return status;
	status = ddp_file_mkdirs(checkpoint->directory, 0777, &run->error);
	if (status == 0 && access(checkpoint->directory, W_OK | X_OK) < 0)
		status = ddp_error_errno(&run->error, DDP_ERR_FILE, "--checkpoint %s",
					 checkpoint->directory);
	if (status == 0)
		status = lock_directory(run);
	if (status < 0 || !option_flag(run->options, OPTION_FRESH))
		return status;
	return prepare_fresh(run);
}

/*
 * Loads the checkpoint. All ranks read the same file, but can have different options, so they agree
 * on the result of each check.
 */
static int load(struct run *run, const struct model_tensors *tensors)
{
	struct run_checkpoint *checkpoint = &run->checkpoint;
	bool evaluate = option_flag(run->options, OPTION_EVALUATE);
	struct state state;
	uint64_t step = 0;
	int status;

	fill(&state, run);
	status = ddp_checkpoint_load(run->ddp, checkpoint->directory, &step, tensors->list,
				     tensors->count, state.pairs, state.count);
	if (status == 0)
		return 0;
	if (status < 0 && status != DDP_ERR_FORMAT)
		return run_pass_on_shared(run, status);
	/*
	 * Check the training first: such an error explains more than a list of tensors that differ.
	 */
	if (run_agree(run, check_training(run, &state)) < 0)
		return run->error.status;
	if (status < 0)
		return run_pass_on_shared(run, status);
	if (run_agree(run, read_progress(run, &state, step)) < 0)
		return run->error.status;
	ddp_text_add(&checkpoint->summary, "%s the checkpoint of step %s in %s",
		     evaluate ? "evaluates" : "resumed from", ddp_show_count((double)step).text,
		     checkpoint->directory);
	if (!evaluate)
		describe_changes(run, &state, &checkpoint->summary);
	model_tensors_import(tensors, run->model, (int64_t)step);
	checkpoint->any = checkpoint->resumed = true;
	checkpoint->saved = step;
	checkpoint->saved_evaluated = run->progress.evaluated;
	return 0;
}

int run_find_optimizer(struct run *run)
{
	const char *directory = option_text(run->options, OPTION_CHECKPOINT);
	struct ddp_pair pairs[] = {{keys[FIELD_OPTIMIZER], ""},
				   {keys[(int)FIELD_COUNT + (int)OPTION_MOMENTUM], ""}};
	uint64_t step;
	int status;

	if (!option_flag(run->options, OPTION_EVALUATE) || !*directory)
		return 0;
	/* The call fails, as the checkpoint has tensors, but reads the metadata. */
	status = ddp_checkpoint_load(run->ddp, directory, &step, NULL, 0, pairs, 2);
	if (status < 0 && status != DDP_ERR_FORMAT)
		return run_pass_on_shared(run, status);
	for (int kind = 0; pairs[0].value && kind < OPTIM_KINDS; kind++)
		if (strcmp(pairs[0].value, optim_names()[kind]) == 0)
			run->optim = optim_default((enum optim_kind)kind);
	if (pairs[1].value)
		run->optim.momentum = strtod(pairs[1].value, NULL);
	return 0;
}

int run_resume(struct run *run)
{
	struct run_checkpoint *checkpoint = &run->checkpoint;
	struct model_tensors tensors = {.list = NULL};
	int status;

	if (*option_text(run->options, OPTION_CHECKPOINT))
		checkpoint->directory = option_text(run->options, OPTION_CHECKPOINT);
	status = run_agree(run, run->world->rank == 0 ? prepare(run) : 0);
	if (status < 0 || !checkpoint->directory)
		return status;
	status = ddp_broadcast(run->ddp, &checkpoint->fresh, sizeof(checkpoint->fresh), 0);
	if (status < 0 || checkpoint->fresh)
		return status < 0 ? run_pass_on(run, status) : 0;
	model_tensors_create(&tensors, run->model, true);
	status = load(run, &tensors);
	model_tensors_destroy(&tensors);
	if (status == 0 && !checkpoint->resumed && option_flag(run->options, OPTION_EVALUATE)) {
		run->shared = true;
		return ddp_error_set(&run->error, DDP_ERR_FILE,
				     "there is no checkpoint in %s to evaluate",
				     checkpoint->directory);
	}
	return status;
}

void run_checkpoint_close(struct run_checkpoint *checkpoint)
{
	if (checkpoint->lock > 0)
		close(checkpoint->lock - 1);
	free(checkpoint->old);
	ddp_text_free(&checkpoint->summary);
}

/* --- Save ------------------------------------------------------------------------------------ */

/*
 * Converts the model to tensors on rank 0. Other ranks get no tensors. All started steps must be
 * finished.
 */
static int export(struct run *run, struct model_tensors *tensors, bool optimizer)
{
	int status = run->class->pull(run->engine, &run->error);

	*tensors = (struct model_tensors){.list = NULL};
	if (status == 0 && run->world->rank == 0) {
		model_tensors_create(tensors, run->model, optimizer);
		model_tensors_export(tensors, run->model, (int64_t)run->progress.total);
	}
	return run_agree(run, status);
}

int run_save(struct run *run)
{
	struct run_checkpoint *checkpoint = &run->checkpoint;
	struct model_tensors tensors;
	struct state state;
	int status;

	/* After a stop in an evaluation, the same step is saved again with the epoch's result. */
	if (!checkpoint->directory ||
	    (checkpoint->any && checkpoint->saved == run->progress.total &&
	     checkpoint->saved_evaluated == run->progress.evaluated))
		return 0;
	status = export(run, &tensors, true);
	run->lost = status == 0 && !model_is_finite(run->model);
	if (run->lost) {
		/*
		 * Do not replace a checkpoint from which the training can be resumed by a model
		 * that has values that are not finite.
		 */
		model_tensors_destroy(&tensors);
		report_log(run->report,
			   "no checkpoint of step %s is written, because a weight is not finite",
			   ddp_show_count((double)run->progress.total).text);
		return 0;
	}
	if (status == 0) {
		fill(&state, run);
		status = ddp_checkpoint_save(run->ddp, checkpoint->directory, run->progress.total,
					     tensors.list, tensors.count, state.pairs, state.count,
					     (int)option_count(run->options, OPTION_KEEP));
		if (status < 0)
			run_pass_on_shared(run, status);
		checkpoint->failed = status == DDP_ERR_FILE;
	}
	model_tensors_destroy(&tensors);
	if (status < 0)
		return status;
	checkpoint->any = true;
	checkpoint->saved = run->progress.total;
	checkpoint->saved_evaluated = run->progress.evaluated;
	remove_old(checkpoint);
	report_log(run->report, "checkpoint of step %s in %s",
		   ddp_show_count((double)run->progress.total).text, checkpoint->directory);
	return 0;
}

/* Writes the numbers of all channels to [text] as a JSON array: "[0.4914, 0.4822, 0.4465]". */
static void put_channels(char *text, size_t size, const float *numbers, int channels)
{
	size_t used = 0;

	for (int i = 0; i < channels; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%.4f", i ? ", " : "[",
					 (double)numbers[i]);
	snprintf(text + used, size - used, "]");
}

static int write_model(struct run *run, const struct model_tensors *tensors, const char *path)
{
	char steps[24], mean[64], deviation[64];
	struct ddp_pair pairs[] = {{"format", "pt"},
				   {"ddp-train", PACKAGE_VERSION},
				   {"network", run->net->name},
				   {"steps", steps},
				   {"mean", mean},
				   {"std", deviation}};

	put_channels(mean, sizeof(mean), run->net->mean, run->net->channels);
	put_channels(deviation, sizeof(deviation), run->net->deviation, run->net->channels);
	snprintf(steps, sizeof(steps), "%llu", (unsigned long long)run->progress.total);
	return ddp_tensors_save(path, tensors->list, tensors->count, pairs,
				sizeof(pairs) / sizeof(pairs[0]), &run->error);
}

int run_save_model(struct run *run, const char *suffix)
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
	status = run->shared ? status : run_agree(run, status);
	run->checkpoint.failed = status == DDP_ERR_FILE;
	return status;
}

void run_describe_kept(const struct run *run, struct ddp_text *text)
{
	const struct run_checkpoint *checkpoint = &run->checkpoint;
	const char *file = option_text(run->options, OPTION_SAVE_MODEL);
	bool fresh = option_flag(run->options, OPTION_FRESH);
	char best[PATH_MAX];

	if (checkpoint->any)
		ddp_text_add(text,
			     "the checkpoint of step %s in %s is kept, and the same command%s "
			     "resumes from it",
			     ddp_show_count((double)checkpoint->saved).text, checkpoint->directory,
			     fresh ? " without --fresh" : "");
	else if (checkpoint->directory)
		ddp_text_add(text,
			     "there is no checkpoint in %s yet, so the same command starts over",
			     checkpoint->directory);
	else
		ddp_text_add(text, "no checkpoint is kept, because --checkpoint DIR is not given");
	snprintf(best, sizeof(best), "%s.best", file);
	if (*file && run->progress.best_epoch > 0 && access(best, F_OK) == 0)
		ddp_text_add(text, "; %s has the weights after epoch %u", best,
			     run->progress.best_epoch);
}
