/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - ddp_init_with() to ddp_destroy(): find this rank's identity, and create the handle
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/settings.h"
#include "ddp-private.h"
#include "recorder.h"

extern char **environ;

/* --- Memory owned by the handle ----------------------------------------------------------- */

struct ddp_kept {
	struct ddp_kept *next;
	max_align_t data[];
};

void *ddp_keep(struct ddp *ddp, size_t size)
{
	struct ddp_kept *kept;

	if (size > SIZE_MAX - sizeof(*kept))
		return NULL;
	kept = calloc(1, sizeof(*kept) + size);
	if (!kept)
		return NULL;
	kept->next = ddp->kept;
	ddp->kept = kept;
	return kept->data;
}

static void free_kept(struct ddp *ddp)
{
	while (ddp->kept) {
		struct ddp_kept *kept = ddp->kept;

		ddp->kept = kept->next;
		free(kept);
	}
}

/* --- Identity ---------------------------------------------------------------------------- */

/* Returns the number of GPUs on this machine. A process outside of Slurm may use all of them. */
static int count_devices(void)
{
	char path[32];
	int count = 0;

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		count += access(path, F_OK) == 0;
	}
	return count;
}

static int read_identity(struct ddp *ddp, const struct ddp_options *options)
{
	char hostname[256] = "localhost";
	char directory[PATH_MAX];
	struct ddp_surroundings surroundings = {
		.hostname = hostname,
		.process = (long)getpid(),
		.parent = (long)getppid(),
		.devices = count_devices(),
	};

	gethostname(hostname, sizeof(hostname));
	surroundings.directory = getcwd(directory, sizeof(directory)) ? directory : ".";
	if (options->world_size != 0)
		return ddp_identity_give(options, environ, &surroundings, &ddp->identity,
					 &ddp->error);
	return ddp_identity_read(environ, &surroundings, &ddp->identity, &ddp->error);
}

static void fill_world(struct ddp *ddp)
{
	const struct ddp_identity *identity = &ddp->identity;

	ddp->world = (struct ddp_world){
		.rank = identity->rank,
		.size = identity->size,
		.local_rank = identity->local_rank,
		.local_size = identity->local_size,
		.node_rank = identity->node_rank,
		.node_count = identity->node_count,
		.device = identity->device,
		.share = identity->share,
		.attempt = identity->attempt,
		.end_time = identity->end_time,
		.job = identity->job,
		.host = identity->host,
		.source = ddp_source_name(identity->source),
		.method = "none",
		.wide = "none",
		.transport = "",
		.timeout = ddp->timeout,
	};
}

/*
 * Copy the caller's options to [options]. The caller may have been built with an older ddp.h, whose
 * struct lacks the last members. In this case the missing members become 0.
 */
static int copy_options(struct ddp *ddp, const struct ddp_options *given,
			struct ddp_options *options)
{
	const size_t least = offsetof(struct ddp_options, rank); /* size in release 1.0 */

	*options = (struct ddp_options)DDP_OPTIONS_INIT;
	if (!given)
		return 0;
	if (given->size < least || given->size > sizeof(*options))
		return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
				     "ddp_init: the options have %zu bytes, but those of this "
				     "libddp have %zu. Begin with DDP_OPTIONS_INIT, and use a "
				     "libddp that is not older than the program's ddp.h.",
				     given->size, sizeof(*options));
	memcpy(options, given, given->size);
	return 0;
}

static int read_options(struct ddp *ddp, const struct ddp_options *options)
{
	int status = ddp_setting_seconds(DDP_SET_DDP_TIMEOUT, &ddp->timeout, &ddp->error);

	if (status < 0)
		return status;
	if (options->timeout != 0) {
		if (!(options->timeout > 0) || options->timeout > 1e9)
			return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
					     "ddp_init: the timeout is %g s, but must be above 0",
					     options->timeout);
		ddp->timeout = options->timeout;
	}
	ddp->watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);
	return ddp_simd_choose(&ddp->simd, &ddp->error);
}

/* Returns the rendezvous method that the options require, or NULL if the environment chooses it. */
static const char *choose_method(const struct ddp_options *options)
{
	if (options->method || options->world_size == 0)
		return options->method;
	return options->world_size > 1 ? "file" : "single";
}

/*
 * A requeued job keeps its job ID. Therefore the name of the records' directory also contains the
 * number of the job's attempt.
 */
static int open_recorder(struct ddp *ddp, bool signals)
{
	const struct ddp_identity *identity = &ddp->identity;
	char directory[PATH_MAX + 16];

	snprintf(directory, sizeof(directory), "%s", identity->records);
	if (identity->attempt > 0 && *identity->records)
		snprintf(directory, sizeof(directory), "%s.%d", identity->records,
			 identity->attempt);
	ddp->recorder = ddp_recorder_create(directory, identity->job, identity->rank,
					    identity->size, identity->host);
	if (!ddp->recorder)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for the recorder");
	ddp_recorder_watch(ddp->recorder, identity->heartbeat);
	ddp->slow.next = identity->size > 1 ? DDP_SLOW_FIRST : UINT64_MAX;
	ddp->slow.paces = ddp_keep(ddp, (size_t)identity->size * sizeof(*ddp->slow.paces));
	if (!ddp->slow.paces)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
				     "no memory for the times of %d ranks", identity->size);
	if (signals && identity->size > 1)
		ddp_recorder_on_term(ddp->recorder);
	return 0;
}

/* --- ddp_init() to ddp_exit() ------------------------------------------------------------ */

static int initialise(struct ddp *ddp, const struct ddp_options *given,
		      int (*join_device)(struct ddp *ddp))
{
	struct ddp_options options;
	int status = ddp_log_open(&ddp->log, &ddp->error);

	if (status == 0)
		status = copy_options(ddp, given, &options);
	if (status == 0)
		status = read_options(ddp, &options);
	if (status == 0)
		status = read_identity(ddp, &options);
	if (status < 0)
		return status;
	fill_world(ddp);
	ddp_log_name(&ddp->log, ddp->identity.rank, ddp->identity.host);
	status = open_recorder(ddp, !options.no_signals);
	if (status == 0)
		status = ddp_join_world(ddp, choose_method(&options));
	if (status == 0)
		status = ddp_barrier(ddp);	/* shows that all ranks can be reached */
	(void)ddp_recorder_pace(ddp->recorder); /* discard the time of the rendezvous */
	ddp->slow.suspensions = ddp_watch_suspensions();
	if (status == 0 && options.device)
		status = join_device(ddp);
	if (status == 0)
		ddp_log(ddp, DDP_LEVEL_INFO, "world",
			"%d ranks on %d nodes, by %s, met by %s, between groups: %s",
			ddp->world.size, ddp->world.node_count, ddp->world.source,
			ddp->world.method, ddp->world.wide);
	return status;
}

/*
 * The lock is recursive, because MPI's error handler may end the process in a thread that holds it.
 */
static void make_lock(struct ddp *ddp)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&ddp->use, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

int ddp_init_with(struct ddp **ddp, const struct ddp_options *options,
		  int (*join_device)(struct ddp *ddp))
{
	int status;

	*ddp = calloc(1, sizeof(**ddp));
	if (!*ddp)
		return DDP_ERR_MEMORY;
	make_lock(*ddp);
	(*ddp)->generation = ddp_fork_generation();
	(*ddp)->log = (struct ddp_log){.level = DDP_LEVEL_WARNING, .prefix = "ddp: ", .rank = -1};
	status = ddp_fail_call(*ddp, initialise(*ddp, options, join_device));
	(*ddp)->joined = status == 0;
	if (status < 0 && (*ddp)->group)
		ddp_group_stop_serving((*ddp)->group);
	return status;
}

void ddp_destroy(struct ddp *ddp)
{
	bool clean;

	if (!ddp || ddp_is_inherited(ddp))
		return;
	/* After this barrier no rank uses the arenas. They are freed together with the group. */
	clean = ddp->joined && !ddp->lost && ddp_last_barrier(ddp) == 0;
	/* Close the device before the arenas are freed, because closing it unpins them. */
	if (ddp->device)
		ddp->leave_device(ddp);
	ddp_arenas_free(ddp);
	ddp_leave_world(ddp, clean);
	ddp_recorder_destroy(ddp->recorder);
	free_kept(ddp);
	pthread_mutex_destroy(&ddp->use);
	free(ddp);
}

void ddp_exit(struct ddp *ddp)
{
	if (!ddp) {
		fputs("ddp: out of memory\n", stderr);
		ddp_leave(DDP_ERR_MEMORY);
	}
	if (ddp->error.status < 0 || ddp_is_inherited(ddp))
		ddp_leave_failed(ddp);
	ddp_destroy(ddp);
	exit(0);
}

void ddp_beat(struct ddp *ddp)
{
	if (ddp_check_process(ddp) == 0 && !ddp->lost)
		ddp_recorder_beat(ddp->recorder);
}

/* --- Queries ----------------------------------------------------------------------------- */

const struct ddp_world *ddp_world(const struct ddp *ddp)
{
	return &ddp->world;
}

const char *ddp_error(const struct ddp *ddp)
{
	return ddp ? ddp->error.text : "out of memory";
}

int ddp_status(const struct ddp *ddp)
{
	return ddp ? ddp->error.status : DDP_ERR_MEMORY;
}

const struct ddp_log *ddp_handle_log(const struct ddp *ddp)
{
	return &ddp->log;
}

void ddp_log(const struct ddp *ddp, enum ddp_level level, const char *subsystem, const char *format,
	     ...)
{
	va_list arguments;

	va_start(arguments, format);
	ddp_log_vprint(&ddp->log, level, subsystem, format, arguments);
	va_end(arguments);
}
