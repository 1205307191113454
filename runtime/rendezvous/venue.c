/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "venue.h"

enum {
	DIGITS = 16, /* of an attempt */
	TRIES = 20,  /* to make what others remove */
	DAY = 24 * 60 * 60,
};

/* --- Names ------------------------------------------------------------------------------ */

/* A decimal number as we write it, up to [end]. Returns what follows, or NULL. */
static const char *parse_number(const char *text, char end, uint32_t *number)
{
	uint64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9' && value <= UINT32_MAX; p++)
		value = 10 * value + (uint64_t)(*p - '0');
	if (p == text || *p != end || value > UINT32_MAX || (*text == '0' && p > text + 1))
		return NULL;
	*number = (uint32_t)value;
	return end ? p + 1 : p;
}

static const char *parse_attempt(const char *name, uint64_t *attempt)
{
	uint64_t value = 0;

	for (int i = 0; i < DIGITS; i++) {
		static const char digits[] = "0123456789abcdef";
		const char *digit = name[i] ? strchr(digits, name[i]) : NULL;

		if (!digit)
			return NULL;
		value = value << 4 | (uint64_t)(digit - digits);
	}
	*attempt = value;
	return name[DIGITS] == '.' ? name + DIGITS + 1 : NULL;
}

enum ddp_venue_kind ddp_venue_parse(const char *name, uint64_t *attempt, uint32_t *fence)
{
	const char *rest = parse_attempt(name, attempt);

	if (!rest)
		return DDP_VENUE_FOREIGN;
	if (strcmp(rest, "ranks") == 0)
		return DDP_VENUE_RANKS;
	if (strcmp(rest, "abort") == 0)
		return DDP_VENUE_ABORT;
	if (strncmp(rest, "table.", 6) == 0 && parse_number(rest + 6, '\0', fence))
		return DDP_VENUE_TABLE;
	return DDP_VENUE_OTHER;
}

bool ddp_venue_parse_rank(const char *name, uint32_t *fence, uint32_t *rank)
{
	const char *rest = parse_number(name, '.', fence);

	return rest && parse_number(rest, '\0', rank);
}

char *ddp_venue_path(char *path, const char *directory, uint64_t attempt, const char *format, ...)
{
	va_list arguments;
	int used = snprintf(path, PATH_MAX, "%s/%016" PRIx64, directory, attempt);

	if (used < 0 || used >= PATH_MAX)
		return path;
	va_start(arguments, format);
	vsnprintf(path + used, PATH_MAX - (size_t)used, format, arguments);
	va_end(arguments);
	return path;
}

/* --- The directory ---------------------------------------------------------------------- */

/* Returns 0, or DDP_ERR_FILE with errno ENOENT where it is worth another try. */
static int check_directory(const char *directory, struct ddp_error *error)
{
	struct stat info;
	int status = 0, fd;

	fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (lstat(directory, &info) == 0 && S_ISLNK(info.st_mode))
			return ddp_error_set(error, DDP_ERR_FILE,
					     "the rendezvous %s is a symbolic link, which is not "
					     "followed",
					     directory);
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot open the rendezvous %s",
				       directory);
	}
	if (fstat(fd, &info) < 0)
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot look at the rendezvous %s",
					 directory);
	else if (info.st_uid != geteuid())
		status = ddp_error_set(error, DDP_ERR_FILE,
				       "the rendezvous %s belongs to user %u, this process to %u",
				       directory, info.st_uid, geteuid());
	else if (info.st_mode & (S_IWGRP | S_IWOTH))
		status = ddp_error_set(error, DDP_ERR_FILE,
				       "others can write in the rendezvous %s: chmod 700 it",
				       directory);
	close(fd);
	errno = 0;
	return status;
}

int ddp_venue_make(const char *directory, bool own, struct ddp_error *error)
{
	const struct timespec moment = {0, 1000000};
	int status = DDP_ERR_FILE;

	if (strlen(directory) + DDP_VENUE_NAME >= PATH_MAX)
		return ddp_error_set(error, DDP_ERR_FILE, "the rendezvous %.100s... is too long",
				     directory);
	if (own)
		return check_directory(directory, error);
	/* Those who leave an earlier attempt may be removing it at this moment. */
	for (int i = 0; i < TRIES && status < 0; i++) {
		status = ddp_file_mkdirs(directory, 0700, error);
		if (status == 0)
			status = check_directory(directory, error);
		if (status < 0 && errno != ENOENT)
			break;
		if (status < 0)
			nanosleep(&moment, NULL);
	}
	if (status == 0)
		ddp_error_clear(error);
	return status;
}

/* The entry of [attempt], a new one where it has none; NULL when there are too many. */
static struct ddp_venue_attempt *add(struct ddp_venue_list *list, uint64_t attempt)
{
	struct ddp_venue_attempt *entry;

	for (int i = 0; i < list->count; i++)
		if (list->attempts[i].number == attempt)
			return &list->attempts[i];
	if (list->count == DDP_VENUE_ATTEMPTS)
		return NULL;
	entry = &list->attempts[list->count++];
	*entry = (struct ddp_venue_attempt){.number = attempt, .table = -1};
	return entry;
}

static void note(struct ddp_venue_list *list, const char *name)
{
	struct ddp_venue_attempt *entry;
	enum ddp_venue_kind kind;
	uint64_t attempt = 0;
	uint32_t fence = 0;

	kind = ddp_venue_parse(name, &attempt, &fence);
	if (kind == DDP_VENUE_FOREIGN || kind == DDP_VENUE_OTHER)
		return;
	entry = add(list, attempt);
	if (!entry)
		return;
	if (kind == DDP_VENUE_RANKS)
		entry->ranks = true;
	else if (kind == DDP_VENUE_ABORT)
		entry->aborted = true;
	else if (fence > entry->table)
		entry->table = fence;
}

int ddp_venue_list(const char *directory, struct ddp_venue_list *list, struct ddp_error *error)
{
	struct dirent *entry;
	int status = 0;
	DIR *dir;

	list->count = 0;
	dir = opendir(directory);
	if (!dir && (errno == ENOENT || errno == ESTALE))
		return 1;
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot list the rendezvous %s",
				       directory);
	for (errno = 0; (entry = readdir(dir)); errno = 0)
		note(list, entry->d_name);
	if (errno == ENOENT || errno == ESTALE)
		status = 1;
	else if (errno != 0)
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot list the rendezvous %s",
					 directory);
	closedir(dir);
	return status;
}

const struct ddp_venue_attempt *ddp_venue_find(const struct ddp_venue_list *list, uint64_t attempt)
{
	for (int i = 0; i < list->count; i++)
		if (list->attempts[i].number == attempt)
			return &list->attempts[i];
	return NULL;
}

/* --- Removing --------------------------------------------------------------------------- */

/* Ranks that do not know yet may be writing into it: their file comes with the next try. */
static void remove_directory(const char *path)
{
	for (int i = 0; i < TRIES && rmdir(path) < 0 && errno != ENOENT; i++) {
		DIR *dir = opendir(path);
		struct dirent *entry;

		if (!dir)
			return;
		while ((entry = readdir(dir)))
			if (entry->d_name[0] != '.' || strncmp(entry->d_name, ".nfs", 4) == 0)
				(void)unlinkat(dirfd(dir), entry->d_name, 0);
		closedir(dir);
	}
}

/* Whether rank 0 of [attempt] left in peace not long ago, so that its last ranks clear it away. */
static bool is_ending(const char *directory, uint64_t attempt)
{
	char path[PATH_MAX];
	struct stat info;

	if (stat(ddp_venue_path(path, directory, attempt, ".ranks/hello"), &info) == 0)
		return false;
	return stat(ddp_venue_path(path, directory, attempt, ".ranks"), &info) == 0 &&
	       info.st_mtime > time(NULL) - DAY;
}

void ddp_venue_sweep(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	char path[PATH_MAX];
	uint64_t attempt;
	uint32_t fence;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (ddp_venue_parse(entry->d_name, &attempt, &fence) == DDP_VENUE_FOREIGN ||
		    is_ending(directory, attempt))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		remove_directory(
			ddp_venue_path(path, directory, attempt, "%s", entry->d_name + DIGITS));
	}
	closedir(dir);
}

void ddp_venue_leave(const char *directory, bool own, uint64_t attempt, uint32_t fence)
{
	char path[PATH_MAX];
	char *slash;

	if (rmdir(ddp_venue_path(path, directory, attempt, ".ranks")) < 0)
		return;
	(void)unlink(ddp_venue_path(path, directory, attempt, ".table.%u", fence));
	(void)unlink(ddp_venue_path(path, directory, attempt, ".abort"));
	if (own || rmdir(directory) < 0)
		return;
	snprintf(path, sizeof(path), "%s", directory);
	slash = strrchr(path, '/');
	if (!slash)
		return;
	*slash = '\0';
	slash = strrchr(path, '/');
	if (strcmp(slash ? slash + 1 : path, ".ddp") == 0)
		(void)rmdir(path);
}
