/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.c - ring of the last collectives, the record of a failed rank, and the heartbeat */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/type.h"
#include "base/walk.h"
#include "recorder.h"

enum {
	ENTRIES = 64,
	TERM_SLOTS = 64,
	HEARTBEAT_PERIOD = 1000, /* minimum time between two heartbeats, in milliseconds */
};

struct entry {
	uint64_t sequence, count;
	uint64_t begun, ended; /* milliseconds since the recorder was created */
	const char *name;
	uint32_t type, op;
	int32_t status; /* 0, a DDP_ERR_x, or 1 if the collective has not ended */
};

enum dump { DUMP_NONE, DUMP_RUNS, DUMP_DONE };

struct ddp_recorder {
	char records_root[PATH_MAX - 64]; /* the ".ddp" directory, which outlives steps */
	/* directory below [records_root] for the records; "": write none */
	char directory[PATH_MAX - 64];
	char name[32];	    /* file name of the record */
	char temporary[40]; /* file name until the record is complete */
	char job[256];
	char host[256];
	pid_t pid; /* process that created the recorder */
	int rank, size;
	uint64_t world; /* number of the world; 0 until the ranks have met */
	uint64_t created_ms;
	uint64_t used;	       /* number of collectives ever started */
	atomic_int dump_state; /* enum dump */

	uint64_t last; /* time at which the last collective ended */
	/*
	 * [between] is the time spent between collectives since [paced], the last
	 * ddp_recorder_pace()
	 */
	uint64_t between, paced;
	char slow[256];

	char heartbeat[PATH_MAX];  /* path of the heartbeat file; "": none */
	int heartbeat_fd;	   /* open heartbeat file, or -1 */
	uint64_t heartbeat_due_ms; /* time of the next heartbeat; UINT64_MAX: never */

	struct entry ring[ENTRIES];
};

/* --- Output without stdio, for signal handlers ------------------------------------------- */

struct line {
	char text[512];
	size_t length;
};

static void add(struct line *line, const char *text)
{
	while (*text && line->length < sizeof(line->text) - 1)
		line->text[line->length++] = *text++;
}

static void add_number(struct line *line, uint64_t number)
{
	char digits[24];
	size_t at = sizeof(digits);

	digits[--at] = '\0';
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	add(line, digits + at);
}

static void add_seconds(struct line *line, uint64_t milliseconds)
{
	char fraction[5] = {'.', (char)('0' + milliseconds / 100 % 10),
			    (char)('0' + milliseconds / 10 % 10), (char)('0' + milliseconds % 10),
			    '\0'};

	add_number(line, milliseconds / 1000);
	add(line, fraction);
}

static void put_line(int fd, struct line *line)
{
	line->text[line->length++] = '\n';
	(void)!write(fd, line->text, line->length);
}

/* --- The ring ---------------------------------------------------------------------------- */

/*
 * Returns the time of a monotonic clock in milliseconds. The clock is fast (a few nanoseconds per
 * call), coarse (its resolution is some milliseconds) and async-signal-safe.
 */
static uint64_t ticks(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * Returns whether only root and this user can replace the directory [records_root]. If so, this
 * remains true, since no other user can change the path later.
 */
static bool is_safe_root(const char *records_root)
{
	struct ddp_walk walk = {.make = false};
	char name[NAME_MAX + 1];
	int fd = strchr(records_root, '/') ? ddp_walk_above(&walk, records_root, name) : -1;

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/*
 * Split [directory] into [records_root] and a name. If other users could replace [records_root], no
 * records are written.
 */
static void find_directory(struct ddp_recorder *recorder, const char *directory)
{
	const char *slash = strrchr(directory, '/');

	if (!slash || slash == directory || strlen(directory) >= sizeof(recorder->directory))
		return;
	snprintf(recorder->records_root, sizeof(recorder->records_root), "%.*s",
		 (int)(slash - directory), directory);
	if (is_safe_root(recorder->records_root))
		snprintf(recorder->directory, sizeof(recorder->directory), "%s", directory);
}

struct ddp_recorder *ddp_recorder_create(const char *directory, const char *job, int rank, int size,
					 const char *host)
{
	struct ddp_recorder *recorder = calloc(1, sizeof(*recorder));

	if (!recorder)
		return NULL;
	if (size > 1)
		find_directory(recorder, directory);
	snprintf(recorder->name, sizeof(recorder->name), "rank-%d", rank);
	snprintf(recorder->temporary, sizeof(recorder->temporary), "%s.tmp", recorder->name);
	snprintf(recorder->job, sizeof(recorder->job), "%s", job);
	snprintf(recorder->host, sizeof(recorder->host), "%s", host);
	recorder->pid = getpid();
	recorder->rank = rank;
	recorder->size = size;
	recorder->created_ms = ticks();
	recorder->heartbeat_fd = -1;
	recorder->heartbeat_due_ms = UINT64_MAX;
	atomic_init(&recorder->dump_state, DUMP_NONE);
	return recorder;
}

void ddp_recorder_set_slow(struct ddp_recorder *recorder, const char *text)
{
	snprintf(recorder->slow, sizeof(recorder->slow), "%s", text);
}

void ddp_recorder_set_world(struct ddp_recorder *recorder, uint64_t world)
{
	recorder->world = world;
}

/* --- Heartbeat ---------------------------------------------------------------------------- */

void ddp_recorder_watch(struct ddp_recorder *recorder, const char *path)
{
	snprintf(recorder->heartbeat, sizeof(recorder->heartbeat), "%s", path);
	recorder->heartbeat_due_ms = *path ? 0 : UINT64_MAX;
}

static void write_heartbeat(struct ddp_recorder *recorder, uint64_t now)
{
	if (recorder->heartbeat_fd < 0)
		recorder->heartbeat_fd =
			open(recorder->heartbeat,
			     O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (recorder->heartbeat_fd >= 0 && futimens(recorder->heartbeat_fd, NULL) == 0)
		recorder->heartbeat_due_ms = now + HEARTBEAT_PERIOD;
	else
		recorder->heartbeat_due_ms = UINT64_MAX;
}

void ddp_recorder_beat(struct ddp_recorder *recorder)
{
	uint64_t now = recorder ? ticks() - recorder->created_ms : 0;

	if (recorder && now >= recorder->heartbeat_due_ms)
		write_heartbeat(recorder, now);
}

/* --- Collectives -------------------------------------------------------------------------- */

void ddp_recorder_begin(struct ddp_recorder *recorder, const struct ddp_call *call)
{
	struct entry *entry = &recorder->ring[recorder->used % ENTRIES];

	entry->sequence = call->sequence;
	entry->count = call->count;
	entry->begun = ticks() - recorder->created_ms;
	recorder->between += entry->begun - recorder->last;
	entry->ended = 0;
	entry->name = call->name;
	entry->type = call->type;
	entry->op = call->op;
	entry->status = 1;
	recorder->used++;
}

void ddp_recorder_end(struct ddp_recorder *recorder, int status)
{
	struct entry *entry = &recorder->ring[(recorder->used - 1) % ENTRIES];

	entry->ended = ticks() - recorder->created_ms;
	entry->status = status;
	recorder->last = entry->ended;
	if (status == 0 && entry->ended >= recorder->heartbeat_due_ms)
		write_heartbeat(recorder, entry->ended);
}

struct ddp_pace ddp_recorder_pace(struct ddp_recorder *recorder)
{
	struct ddp_pace pace = {(uint32_t)recorder->between,
				(uint32_t)(recorder->last - recorder->paced)};

	recorder->between = 0;
	recorder->paced = recorder->last;
	return pace;
}

/* --- The record -------------------------------------------------------------------------- */

/*
 * Write one line for [entry], such as "#17 all-reduce 1000 F32 sum, ...". base/arrival.c parses the
 * part before the comma.
 */
static void put_entry(int fd, const struct entry *entry)
{
	struct line line = {.length = 0};

	add(&line, "#");
	add_number(&line, entry->sequence);
	add(&line, " ");
	add(&line, entry->name);
	if (strcmp(entry->name, "all-reduce") == 0) {
		add(&line, " ");
		add_number(&line, entry->count);
		add(&line, " ");
		add(&line, ddp_type_name(entry->type));
		add(&line, " ");
		add(&line, ddp_op_name(entry->op));
	} else if (entry->count) {
		add(&line, " ");
		add_number(&line, entry->count);
		add(&line, " bytes");
	}
	add(&line, ", begun ");
	add_seconds(&line, entry->begun);
	add(&line, entry->status == 1 ? " s, not ended" : " s, ended ");
	if (entry->status != 1) {
		add_seconds(&line, entry->ended);
		add(&line, entry->status == 0 ? " s" : " s, failed: ");
		if (entry->status < 0)
			add(&line, ddp_strerror(entry->status));
	}
	put_line(fd, &line);
}

static void put_head(int fd, const struct ddp_recorder *recorder, const char *reason)
{
	struct line line = {.length = 0};

	add(&line, "rank ");
	add_number(&line, (uint64_t)recorder->rank);
	add(&line, " of ");
	add_number(&line, (uint64_t)recorder->size);
	add(&line, " on ");
	add(&line, recorder->host);
	add(&line, ", pid ");
	add_number(&line, (uint64_t)getpid());
	if (recorder->world) {
		add(&line, ", world ");
		add_number(&line, recorder->world);
	}
	add(&line, ", job ");
	add(&line, recorder->job);
	put_line(fd, &line);
	line.length = 0;
	add(&line, "after ");
	add_seconds(&line, ticks() - recorder->created_ms);
	add(&line, " s: ");
	add(&line, reason);
	put_line(fd, &line);
	if (!recorder->slow[0])
		return;
	line.length = 0;
	add(&line, "slow: ");
	add(&line, recorder->slow);
	put_line(fd, &line);
}

/*
 * Open the directory [name] in the directory [at]. It must belong to this user, and no other user
 * may be able to write to it. Async-signal-safe.
 */
static int open_own(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat info;

	if (fd < 0 || (fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
		       (info.st_mode & (S_IWGRP | S_IWOTH)) == 0))
		return fd;
	close(fd);
	return -1;
}

/*
 * Open the directory of the records. Create it if it is missing. Returns a descriptor, or -1.
 * Async-signal-safe.
 */
static int open_directory(const struct ddp_recorder *recorder)
{
	const char *name = recorder->directory + strlen(recorder->records_root) + 1;
	int records_root = open_own(AT_FDCWD, recorder->records_root), fd;

	if (records_root < 0)
		return -1;
	(void)mkdirat(records_root, name, 0700);
	fd = open_own(records_root, name);
	close(records_root);
	return fd;
}

static void write_record(struct ddp_recorder *recorder, const char *reason)
{
	int directory = open_directory(recorder), fd;
	uint64_t first;

	if (directory < 0)
		return;
	fd = openat(directory, recorder->temporary,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0) {
		close(directory);
		return;
	}
	put_head(fd, recorder, reason);
	first = recorder->used > ENTRIES ? recorder->used - ENTRIES : 0;
	for (uint64_t i = first; i < recorder->used; i++)
		put_entry(fd, &recorder->ring[i % ENTRIES]);
	close(fd);
	(void)renameat(directory, recorder->temporary, directory, recorder->name);
	close(directory);
}

/*
 * All signals are blocked while the record is written, so that no signal ends this process before
 * the record is complete. If another thread gets a signal, it waits in wait_for_dump().
 */
void ddp_recorder_dump(struct ddp_recorder *recorder, const char *reason)
{
	int saved = errno, none = DUMP_NONE;
	sigset_t all, before;

	if (!recorder || !recorder->directory[0])
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (atomic_compare_exchange_strong(&recorder->dump_state, &none, DUMP_RUNS)) {
		write_record(recorder, reason);
		atomic_store(&recorder->dump_state, DUMP_DONE);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
}

/* --- SIGTERM ----------------------------------------------------------------------------- */

static _Atomic(struct ddp_recorder *) term_slots[TERM_SLOTS];
static struct sigaction term_before;
static atomic_flag term_installed = ATOMIC_FLAG_INIT;

/* Wait until a ddp_recorder_dump() of another thread has finished, but at most for a second. */
static void wait_for_dump(const struct ddp_recorder *recorder)
{
	for (int i = 0; i < 100 && atomic_load(&recorder->dump_state) == DUMP_RUNS; i++)
		poll(NULL, 0, 10);
}

/*
 * A forked child inherits the handler and the recorders, but must not write its parent's records.
 */
static void on_term(int number)
{
	int saved = errno;

	for (int i = 0; i < TERM_SLOTS; i++) {
		struct ddp_recorder *recorder = atomic_load(&term_slots[i]);

		if (!recorder || recorder->pid != getpid())
			continue;
		ddp_recorder_dump(recorder, "SIGTERM");
		wait_for_dump(recorder);
	}
	sigaction(number, &term_before, NULL);
	raise(number);
	errno = saved;
}

void ddp_recorder_on_term(struct ddp_recorder *recorder)
{
	struct sigaction action = {.sa_handler = on_term};
	struct ddp_recorder *none;

	for (int i = 0; i < TERM_SLOTS; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&term_slots[i], &none, recorder))
			break;
	}
	if (atomic_flag_test_and_set(&term_installed))
		return;
	sigaction(SIGTERM, NULL, &term_before);
	/* If the program handles or ignores SIGTERM, leave its action unchanged. */
	if (term_before.sa_handler != SIG_DFL || (term_before.sa_flags & SA_SIGINFO))
		return;
	sigemptyset(&action.sa_mask);
	sigaction(SIGTERM, &action, NULL);
}

void ddp_recorder_destroy(struct ddp_recorder *recorder)
{
	struct ddp_recorder *mine;

	if (!recorder)
		return;
	for (int i = 0; i < TERM_SLOTS; i++) {
		mine = recorder;
		atomic_compare_exchange_strong(&term_slots[i], &mine, NULL);
	}
	if (recorder->heartbeat_fd >= 0)
		close(recorder->heartbeat_fd);
	free(recorder);
}
