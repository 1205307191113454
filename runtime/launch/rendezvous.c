/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c - the rendezvous directory: creation, checks, removal, and removal of leftovers */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/walk.h"
#include "channel.h"
#include "contract.h"
#include "rendezvous.h"

/* Flags with which directories below the base are opened, so that no link is followed. */
#define DDP_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/* --- Checks on the nodes ----------------------------------------------------------------- */

/* Time limits of ddp_rendezvous_check(). */
enum {
	WAIT_MS = 2000, /* longest time for which a file system may show an old state */
	POLL_MS = 25,
};

/*
 * Read the step's record in the open directory [dir].
 * Returns 0, or -1 with a message.
 */
static int read_record(int dir, struct ddp_channel *channel, struct ddp_message *message)
{
	char *text = malloc(DDP_CHANNEL_SIZE);
	struct stat st;
	ssize_t n = -1;
	int fd, rv = -1;

	if (!text)
		return ddp_fail(message, "out of memory");
	fd = openat(dir, DDP_DIR_STEP, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		n = read(fd, text, DDP_CHANNEL_SIZE - 1);
	if (n >= 0) {
		text[n] = '\0';
		rv = ddp_channel_decode(text, channel, message);
	} else {
		ddp_fail(message, "the directory has no record of this step");
	}
	if (fd >= 0)
		close(fd);
	free(text);
	return rv;
}

/*
 * Open the directory [name] in the directory [at], if it belongs to the user.
 * Returns a descriptor, or -1 with a message.
 */
static int open_own(int at, const char *name, struct ddp_message *message)
{
	int fd = openat(at, name, DDP_DIR_FLAGS);
	struct stat st;

	if (fd < 0)
		return ddp_fail(message, "%s", strerror(errno));
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid()) {
		close(fd);
		return ddp_fail(message, "the directory is not yours");
	}
	return fd;
}

/*
 * Open the .ddp directory with the path [ddp_dir]. It must belong to the user, and no other user
 * may be able to change a component of the path (base/walk.h).
 * Returns a descriptor, or -1 with a message. If errno is EPERM, waiting does not help.
 */
static int open_ddp_dir(const char *ddp_dir, struct ddp_message *message)
{
	struct ddp_walk walk = {.make = false};
	char name[NAME_MAX + 1];
	int at = ddp_walk_above(&walk, ddp_dir, name), fd;

	if (at < 0)
		return ddp_fail(message, "%s", walk.why);
	fd = open_own(at, DDP_DIR_PARENT, message);
	close(at);
	return fd;
}

static int check_once(const char *parent, const char *name, const char *nonce,
		      struct ddp_message *message)
{
	struct ddp_channel *found = malloc(sizeof(*found));
	int ddp_dir = open_ddp_dir(parent, message), error = errno, fd = -1, rv = -1;

	if (ddp_dir >= 0)
		fd = open_own(ddp_dir, name, message);
	if (found && fd >= 0 && read_record(fd, found, message) == 0) {
		if (strcmp(found->nonce, nonce) != 0)
			ddp_fail(message, "the directory is another step's");
		else if (faccessat(fd, ".", W_OK, AT_EACCESS) < 0 &&
			 (errno == EROFS || errno == EACCES))
			ddp_fail(message, "tasks cannot write in the directory: %s",
				 strerror(errno));
		else
			rv = 0;
	}
	if (fd >= 0)
		close(fd);
	if (ddp_dir >= 0)
		close(ddp_dir);
	free(found);
	errno = ddp_dir < 0 ? error : 0;
	return rv;
}

int ddp_rendezvous_check(const char *directory, const char *nonce, struct ddp_message *message)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
	char parent[DDP_PATH_SIZE];
	struct stat st;
	char *name;

	if (ddp_format(parent, sizeof(parent), "%s", directory) < 0)
		return ddp_fail(message, "the path is too long");
	name = strrchr(parent, '/');
	if (*parent != '/' || name == parent)
		return ddp_fail(message, "the path is not absolute");
	*name++ = '\0';
	for (int waited = 0;; waited += POLL_MS) {
		if (check_once(parent, name, nonce, message) == 0)
			return 0;
		/*
		 * If .ddp is missing, too, this node sees another file system, and waiting does not
		 * help. stat() checks with the user's permissions. access() would check with those
		 * of root, whom a file server may not trust.
		 */
		if (errno == EPERM || waited >= WAIT_MS || stat(parent, &st) < 0)
			return -1;
		nanosleep(&pause, NULL);
	}
}

/* --- Creation and removal ---------------------------------------------------------------- */

/* The remedy in most messages. */
#define ELSEWHERE ". Choose another directory with --ddp-rdzv=DIR."

enum {
	DEPTH_MAX = 16,	 /* maximum depth of a directory tree to remove */
	TRIES_MAX = 100, /* attempts to create directories while other processes remove them */
};

/* Remove the last [n] components of [path] while they are empty. */
static void remove_empty_path(const char *path, unsigned n)
{
	char copy[DDP_PATH_SIZE];

	if (ddp_format(copy, sizeof(copy), "%s", path) < 0)
		return;
	for (; n > 0 && rmdir(copy) == 0; n--) {
		char *slash = strrchr(copy, '/');

		while (slash && slash > copy && slash[1] == '\0') {
			*slash = '\0';
			slash = strrchr(copy, '/');
		}
		if (!slash || slash == copy)
			return;
		*slash = '\0';
	}
}

/*
 * Open the base directory, which no other user may be able to replace. If [made] is not NULL,
 * create missing components, and set [made] to their number.
 * Returns a descriptor, or -1 with a message and errno.
 */
static int open_base(const char *base, unsigned *made, struct ddp_message *message)
{
	struct ddp_walk walk = {.make = made != NULL};
	int fd = ddp_walk_open(&walk, base), error = errno;

	if (made)
		*made = walk.made;
	if (fd < 0)
		ddp_fail(message, "%s" ELSEWHERE, walk.why);
	errno = error;
	return fd;
}

static int fail_foreign_parent(const char *base, uid_t owner, struct ddp_message *message)
{
	errno = EPERM;
	return ddp_fail(message,
			"%s/%s belongs to user %u. Choose a directory of your own with "
			"--ddp-rdzv=DIR, for instance one with %%u in it.",
			base, DDP_DIR_PARENT, owner);
}

/*
 * Open [base]/.ddp. It must be a directory, not a link, and belong to the user.
 * Returns a descriptor, or -1 with a message. errno is ENOENT if it is missing.
 */
static int open_parent(int base_fd, const char *base, struct ddp_message *message)
{
	struct stat st;
	int fd, error;

	/* Check the owner before opening, because another user's directory cannot be opened. */
	if (fstatat(base_fd, DDP_DIR_PARENT, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISLNK(st.st_mode))
			return ddp_fail(message,
					"%s/%s is a symbolic link. Remove it, or choose another "
					"directory with --ddp-rdzv=DIR.",
					base, DDP_DIR_PARENT);
		if (st.st_uid != geteuid())
			return fail_foreign_parent(base, st.st_uid, message);
	}
	fd = openat(base_fd, DDP_DIR_PARENT, DDP_DIR_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0) {
		error = errno;
		ddp_fail(message, "cannot open %s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT,
			 strerror(error));
		if (fd >= 0)
			close(fd);
		errno = error;
		return -1;
	}
	if (st.st_uid != geteuid()) {
		fail_foreign_parent(base, st.st_uid, message);
		goto fail;
	}
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX)) {
		ddp_fail(message, "%s/%s is writable for %s. Use chmod 700 on it.", base,
			 DDP_DIR_PARENT, st.st_mode & S_IWOTH ? "everybody" : "its group");
		goto fail;
	}
	return fd;
fail:
	close(fd);
	errno = EPERM;
	return -1;
}

/* Like open_parent(), but create [base]/.ddp if it is missing. Only this function creates it. */
static int make_parent(int base_fd, const char *base, struct ddp_message *message)
{
	int error;

	if (mkdirat(base_fd, DDP_DIR_PARENT, 0700) == 0 || errno == EEXIST)
		return open_parent(base_fd, base, message);
	error = errno;
	ddp_fail(message, "cannot make %s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT, strerror(error));
	errno = error;
	return -1;
}

int ddp_rendezvous_make_parent(const char *base, struct ddp_message *message)
{
	int base_fd = open_base(base, NULL, message), fd = -1, rv = -1;

	if (base_fd >= 0)
		fd = make_parent(base_fd, base, message);
	if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		ddp_fail(message, "cannot write in %s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT,
			 strerror(errno));
	else if (fd >= 0)
		rv = 0;
	if (fd >= 0)
		close(fd);
	if (base_fd >= 0)
		close(base_fd);
	return rv;
}

/*
 * Create [base]/.ddp if it is missing, open it, and create the directory [name] in it.
 * Returns a descriptor of .ddp. On an error, removes what was created, and returns -1 with a
 * message. errno is ENOENT if another srun has just removed .ddp.
 */
static int make_step(int base_fd, const char *base, const char *name, struct ddp_message *message)
{
	int fd = make_parent(base_fd, base, message), error;

	if (fd < 0 || mkdirat(fd, name, 0700) == 0)
		return fd;
	error = errno;
	close(fd);
	(void)unlinkat(base_fd, DDP_DIR_PARENT, AT_REMOVEDIR);
	ddp_fail(message, "cannot make %s/%s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT, name,
		 strerror(error));
	errno = error;
	return -1;
}

/*
 * Create [base], .ddp in it, and the step's directory in that.
 * Returns 0, or -1 with a message. errno is ENOENT if a retry may succeed.
 */
static int make_directories(struct ddp_rendezvous *rdzv, const char *base,
			    struct ddp_message *message)
{
	unsigned made;
	int fd, error;

	fd = open_base(base, &made, message);
	/* In a retry, components that were removed are created again, so do not add the numbers. */
	if (made > rdzv->made)
		rdzv->made = made;
	if (fd < 0)
		return -1;
	rdzv->parent = make_step(fd, base, rdzv->name, message);
	error = errno;
	close(fd);
	errno = error;
	return rdzv->parent < 0 ? -1 : 0;
}

/* Check that the directories of [path] that are missing can be created. */
static int check_ancestor(const char *path, struct ddp_message *message)
{
	char copy[DDP_PATH_SIZE];
	char *slash;

	if (ddp_format(copy, sizeof(copy), "%s", path) < 0)
		return ddp_fail(message, "%.200s... is too long" ELSEWHERE, path);
	while (access(copy, F_OK) < 0 && errno == ENOENT && (slash = strrchr(copy, '/')) &&
	       slash > copy)
		*slash = '\0';
	if (strrchr(copy, '/') == copy && access(copy, F_OK) < 0)
		strcpy(copy, "/");
	if (eaccess(copy, W_OK | X_OK) < 0)
		return ddp_fail(message, "cannot make %s below %s: %s" ELSEWHERE, path, copy,
				strerror(errno));
	return 0;
}

int ddp_rendezvous_usable(const char *base, struct ddp_message *message)
{
	int fd = open_base(base, NULL, message), parent, rv = 0;
	const char *below = "";
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? check_ancestor(base, message) : -1;
	if (fstatat(fd, DDP_DIR_PARENT, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		parent = open_parent(fd, base, message);
		close(fd);
		if (parent < 0)
			return -1;
		fd = parent;
		below = "/" DDP_DIR_PARENT;
	}
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		rv = ddp_fail(message, "cannot write in %s%s: %s" ELSEWHERE, base, below,
			      strerror(errno));
	close(fd);
	return rv;
}

static int write_all(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t wrote = write(fd, text, n);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return -1;
		text += wrote;
		n -= (size_t)wrote;
	}
	return 0;
}

/*
 * Write the record to a temporary file, then rename this file, so that no reader sees an incomplete
 * record. On NFS, close() makes the file visible to other nodes. There is no fsync(), since the
 * record need not survive a power failure.
 */
static int write_record(int dir, const struct ddp_channel *channel)
{
	static const char fresh[] = DDP_DIR_STEP ".new";
	char *text = malloc(DDP_CHANNEL_SIZE);
	int fd = -1, rv = -1;

	if (!text)
		return -1;
	if (ddp_channel_encode(channel, text, DDP_CHANNEL_SIZE - 1) < 0) {
		errno = ENAMETOOLONG;
		goto out;
	}
	strcat(text, "\n");
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write_all(fd, text, strlen(text)) < 0)
		goto out;
	if (close(fd) < 0) {
		fd = -1;
		goto out;
	}
	fd = -1;
	rv = renameat(dir, fresh, dir, DDP_DIR_STEP);
out:
	if (fd >= 0)
		close(fd);
	free(text);
	return rv;
}

/* Remove directory [name] in [parent], at [depth] below the tree's root, with all that is in it. */
static void remove_tree(int parent, const char *name, int depth)
{
	int fd = depth <= DEPTH_MAX ? openat(parent, name, DDP_DIR_FLAGS) : -1;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (fd >= 0 && !dir)
		close(fd);
	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    unlinkat(fd, entry->d_name, 0) < 0 && (errno == EISDIR || errno == EPERM))
			remove_tree(fd, entry->d_name, depth + 1);
	if (dir)
		closedir(dir);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}

/*
 * Create the directory for failure records under ddp-run. libddp derives the same name. An existing
 * directory is from before a requeue, which keeps the job's numbers, and is removed.
 */
static void make_failed(const struct ddp_rendezvous *rdzv, struct ddp_channel *channel)
{
	char name[DDP_NAME_SIZE + 64];
	int n = snprintf(name, sizeof(name), DDP_DIR_FAILED "%s-%u.%u", channel->cluster,
			 channel->job, channel->step);

	if (channel->attempt > 0)
		snprintf(name + n, sizeof(name) - (size_t)n, ".%u", channel->attempt);
	channel->failed[0] = '\0';
	if (ddp_format(channel->failed, sizeof(channel->failed), "%s/%s/%s",
		       strcmp(rdzv->base, "/") == 0 ? "" : rdzv->base, DDP_DIR_PARENT, name) < 0)
		return;
	remove_tree(rdzv->parent, name, 0);
	if (mkdirat(rdzv->parent, name, 0700) < 0)
		channel->failed[0] = '\0';
}

int ddp_rendezvous_make(struct ddp_rendezvous *rdzv, const char *base, struct ddp_channel *channel,
			struct ddp_message *message)
{
	int dir = -1;

	*rdzv = (struct ddp_rendezvous){.parent = -1};
	if (ddp_format(rdzv->base, sizeof(rdzv->base), "%s", base) < 0 ||
	    ddp_channel_directory_name(channel, rdzv->name, sizeof(rdzv->name)) < 0 ||
	    ddp_format(channel->directory, sizeof(channel->directory), "%s/%s/%s",
		       strcmp(base, "/") == 0 ? "" : base, DDP_DIR_PARENT, rdzv->name) < 0) {
		channel->directory[0] = '\0';
		return ddp_fail(message,
				"the path below %.200s is too long. Choose another directory with "
				"--ddp-rdzv=DIR.",
				base);
	}
	/*
	 * Retry. Another srun removes directories that it created, if they are empty, and these may
	 * be the same directories.
	 */
	for (int tries = 0; tries < TRIES_MAX && rdzv->parent < 0; tries++)
		if (make_directories(rdzv, base, message) < 0 && errno != ENOENT)
			break;
	if (rdzv->parent < 0)
		goto fail;
	if (channel->run)
		make_failed(rdzv, channel);
	dir = openat(rdzv->parent, rdzv->name, DDP_DIR_FLAGS);
	if (dir < 0 || write_record(dir, channel) < 0) {
		ddp_fail(message, "cannot write in %s: %s" ELSEWHERE, channel->directory,
			 strerror(errno));
		goto fail;
	}
	close(dir);
	return 0;
fail:
	if (dir >= 0)
		close(dir);
	ddp_rendezvous_remove(rdzv);
	channel->directory[0] = '\0';
	return -1;
}

void ddp_rendezvous_remove(struct ddp_rendezvous *rdzv)
{
	if (rdzv->parent >= 0) {
		remove_tree(rdzv->parent, rdzv->name, 0);
		/* Fails, as it should, if other steps' directories or failure records are in it. */
		(void)unlinkat(rdzv->parent, "../" DDP_DIR_PARENT, AT_REMOVEDIR);
		close(rdzv->parent);
		rdzv->parent = -1;
	}
	if (rdzv->made > 0)
		remove_empty_path(rdzv->base, rdzv->made);
	rdzv->made = 0;
}

void ddp_rendezvous_enlist(const char *failed, uint32_t rank, const char *node)
{
	int dir = open(failed, DDP_DIR_FLAGS), fd = -1;
	char name[32], text[DDP_NAME_SIZE + 32];

	snprintf(name, sizeof(name), DDP_DIR_TASK "%u", rank);
	if (dir >= 0)
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && ddp_format(text, sizeof(text), "%s %d\n", node, (int)getpid()) == 0)
		(void)write_all(fd, text, strlen(text));
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
}

/* --- Leftovers of other steps ------------------------------------------------------------ */

/* Limits on the work of one srun when it removes directories that killed sruns left. */

enum {
	SWEEP_MAX = 64, /* directories checked */
	ASK_MAX = 4,	/* queries to slurmctld */
	ASK_MS = 500,	/* no further query after this many milliseconds */
	DAY = 24 * 60 * 60,
};

struct sweep {
	int parent;
	const struct ddp_channel *channel;
	struct ddp_channel record; /* record that was read last */
	bool (*ended)(uint32_t job, uint32_t step);
	unsigned asked;
	uint64_t began; /* monotonic clock, milliseconds */
	char names[SWEEP_MAX][NAME_MAX + 1];
};

static uint64_t milliseconds(void)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * Ask slurmctld whether the step of sweep->record has ended. If a limit is reached, return false
 * without asking. A later srun asks again.
 */
static bool has_ended(struct sweep *sweep)
{
	if (sweep->asked >= ASK_MAX || milliseconds() - sweep->began >= ASK_MS)
		return false;
	sweep->asked++;
	return sweep->ended(sweep->record.job, sweep->record.step);
}

uint64_t ddp_process_began(uint32_t pid)
{
	char path[64], line[1024];
	unsigned long long began = 0;
	const char *end;
	char state = 'Z';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* Parse after the last ')', because the name of the command can contain any character. */
	if (fgets(line, sizeof(line), file) && (end = strrchr(line, ')')) &&
	    sscanf(end + 1,
		   " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		   "%*s %*s %llu",
		   &state, &began) != 2)
		began = 0;
	fclose(file);
	return state == 'Z' || state == 'X' ? 0 : began; /* a zombie has ended */
}

/*
 * Whether the directory [name] may be left over. It is either a directory of a step of this
 * cluster, but not of the current step, or a directory in which tasks of ddp-exec meet.
 */
static bool is_candidate(const char *name, const struct ddp_channel *channel)
{
	size_t n = strlen(channel->cluster), length = strlen(name);
	const char *dash = strrchr(name, '-');

	if (strncmp(name, DDP_DIR_EXEC, sizeof(DDP_DIR_EXEC) - 1) == 0)
		return true;
	return length > n && strncmp(name, channel->cluster, n) == 0 && name[n] == '-' && dash &&
	       dash > name + n && strlen(dash + 1) == DDP_NONCE_SIZE - 1 &&
	       strspn(dash + 1, "0123456789abcdef") == DDP_NONCE_SIZE - 1 &&
	       strcmp(dash + 1, channel->nonce) != 0;
}

static bool is_leftover(struct sweep *sweep, const char *name)
{
	const struct ddp_channel *channel = sweep->channel;
	struct ddp_channel *record = &sweep->record;
	int dir = open_own(sweep->parent, name, NULL);
	bool old, missing, readable, is_known;
	struct stat st;

	if (dir < 0)
		return false;
	old = fstat(dir, &st) == 0 && st.st_mtime < time(NULL) - DAY;
	missing = fstatat(dir, DDP_DIR_STEP, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
	readable = read_record(dir, record, NULL) == 0;
	close(dir);
	/*
	 * If the record cannot be read, or if another release wrote it, the step may be running, so
	 * keep the directory.
	 */
	if (!readable)
		return missing && old;
	if (strcmp(record->cluster, channel->cluster) != 0)
		return false;
	/*
	 * Check srun's process. A step of ddp-exec has none (pid 0). [began] is 0 if srun could not
	 * read its start time from /proc.
	 */
	is_known = record->began && strcmp(record->from, channel->from) == 0;
	if (record->pid && (is_known ? ddp_process_began(record->pid) == record->began : !old))
		return false;
	/*
	 * A requeued job uses its step numbers again, so a step of an earlier attempt has ended.
	 * This does not apply to ddp-exec (pid 0), whose record has a wrong attempt if Slurm did
	 * not answer.
	 */
	if (record->pid && record->job == channel->job && record->attempt < channel->attempt)
		return true;
	return has_ended(sweep);
}

static unsigned list_candidates(struct sweep *sweep)
{
	int fd = openat(sweep->parent, ".", DDP_DIR_FLAGS);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	unsigned n = 0;

	if (!dir && fd >= 0)
		close(fd);
	while (dir && n < SWEEP_MAX && (entry = readdir(dir)))
		if (is_candidate(entry->d_name, sweep->channel))
			strcpy(sweep->names[n++], entry->d_name);
	if (dir)
		closedir(dir);
	return n;
}

void ddp_rendezvous_sweep(const struct ddp_rendezvous *rdzv, const struct ddp_channel *channel,
			  bool (*ended)(uint32_t job, uint32_t step))
{
	struct sweep *sweep = rdzv->parent >= 0 ? calloc(1, sizeof(*sweep)) : NULL;
	unsigned n, first;

	if (!sweep)
		return;
	sweep->parent = rdzv->parent;
	sweep->channel = channel;
	sweep->ended = ended;
	sweep->began = milliseconds();
	n = list_candidates(sweep);
	/*
	 * Each srun starts at another directory. Otherwise, directories that cannot be removed
	 * could use up the limits each time.
	 */
	first = n ? (unsigned)(channel->magic % n) : 0;
	for (unsigned i = 0; i < n; i++) {
		const char *name = sweep->names[(first + i) % n];

		if (is_leftover(sweep, name))
			remove_tree(sweep->parent, name, 0);
	}
	free(sweep);
}
