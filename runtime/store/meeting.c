/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - files of rendezvous meetings: names, listings, ages, removal, and tables */
#include "config.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/walk.h"
#include "base/watch.h"
#include "meeting.h"

enum {
	DIGITS = 16, /* number of hexadecimal digits in a meeting's number */
	TRIES = 20,  /* maximum number of attempts while another process changes a directory */
	DAY = 24 * 60 * 60,
	AHEAD = 8192, /* number of bytes of a table that are read at once, at least */
};

/* Coarsest resolution of clocks for file timestamps and process start times, in nanoseconds. */
#define CLOCK_STEP 20000000

/* --- Names ------------------------------------------------------------------------------ */

/*
 * Parse a decimal number without leading zeros, and the character [end], which must follow it.
 * Returns the text after [end], or NULL.
 */
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

static const char *parse_meeting(const char *name, uint64_t *meeting)
{
	uint64_t value = 0;

	for (int i = 0; i < DIGITS; i++) {
		static const char digits[] = "0123456789abcdef";
		const char *digit = name[i] ? strchr(digits, name[i]) : NULL;

		if (!digit)
			return NULL;
		value = value << 4 | (uint64_t)(digit - digits);
	}
	*meeting = value;
	return name[DIGITS] == '.' ? name + DIGITS + 1 : NULL;
}

/* Returns the kind of the file whose name is "A." followed by [suffix]. */
static enum ddp_name parse_suffix(const char *suffix, uint32_t *number)
{
	if (strcmp(suffix, "ranks") == 0)
		return DDP_NAME_RANKS;
	if (strcmp(suffix, "new") == 0)
		return DDP_NAME_NEW;
	if (strcmp(suffix, "abort") == 0)
		return DDP_NAME_ABORT;
	if (strncmp(suffix, "table.", 6) == 0 && parse_number(suffix + 6, '\0', number))
		return DDP_NAME_TABLE;
	if (strcmp(suffix, "socket") == 0)
		return DDP_NAME_SOCKET;
	if (strcmp(suffix, "now") == 0 ||
	    (strncmp(suffix, "abort.", 6) == 0 && parse_number(suffix + 6, '\0', number)))
		return DDP_NAME_OTHER;
	return DDP_NAME_FOREIGN;
}

enum ddp_name ddp_meeting_parse(const char *name, uint64_t *meeting, uint32_t *fence)
{
	const char *suffix = parse_meeting(name, meeting);
	char known[sizeof("table.4294967295")];
	const char *temporary = suffix ? strstr(suffix, ".tmp.") : NULL;
	size_t length = temporary ? (size_t)(temporary - suffix) : suffix ? strlen(suffix) : 0;
	enum ddp_name kind;
	uint32_t number;

	if (length == 0 || length >= sizeof(known))
		return DDP_NAME_FOREIGN;
	snprintf(known, sizeof(known), "%.*s", (int)length, suffix);
	kind = parse_suffix(known, &number);
	if (kind != DDP_NAME_FOREIGN && temporary)
		return DDP_NAME_OTHER;
	if (kind == DDP_NAME_TABLE)
		*fence = number;
	return kind;
}

bool ddp_meeting_parse_rank(const char *name, uint32_t *fence, uint32_t *rank)
{
	const char *suffix = parse_number(name, '.', fence);

	return suffix && parse_number(suffix, '\0', rank);
}

char *ddp_meeting_path(char *path, const char *directory, uint64_t meeting, const char *format, ...)
{
	va_list arguments;
	int used = snprintf(path, PATH_MAX, "%s/%016" PRIx64, directory, meeting);

	if (used < 0 || used >= PATH_MAX)
		return path;
	va_start(arguments, format);
	vsnprintf(path + used, PATH_MAX - (size_t)used, format, arguments);
	va_end(arguments);
	return path;
}

/* --- The directory ---------------------------------------------------------------------- */

/*
 * Check that the open directory belongs to this user and that no other user can write to it.
 * Returns 0 or DDP_ERR_FILE.
 */
static int check_owner_and_mode(int fd, const char *directory, struct ddp_error *error)
{
	struct stat info;

	if (fstat(fd, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE,
				       "cannot stat the rendezvous directory %s", directory);
	if (info.st_uid != geteuid())
		return ddp_error_set(error, DDP_ERR_FILE,
				     "the rendezvous %s belongs to user %u, but this process to "
				     "user %u",
				     directory, info.st_uid, geteuid());
	if (info.st_mode & (S_IWGRP | S_IWOTH))
		return ddp_error_set(
			error, DDP_ERR_FILE,
			"other users can write to the rendezvous directory %s. Use chmod 700 on "
			"it.",
			directory);
	return 0;
}

/*
 * Open the directory [name] in [at] and check it. If [own] is false, create it if it is missing.
 * Returns 0 or DDP_ERR_FILE. A retry may succeed if errno is ENOENT after DDP_ERR_FILE.
 */
static int check_directory(int at, const char *name, bool own, const char *directory,
			   struct ddp_error *error)
{
	struct stat info;
	int status, fd;

	if (!own && mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make directory %s", directory);
	fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot open the rendezvous %s",
					 directory);
		if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
			return ddp_error_set(error, DDP_ERR_FILE,
					     "the rendezvous %s is a symbolic link, which is not "
					     "followed",
					     directory);
		return status;
	}
	status = check_owner_and_mode(fd, directory, error);
	close(fd);
	errno = 0;
	return status;
}

/*
 * Report that this process cannot see the directory in which srun created .ddp: the directory is
 * missing, or it does not contain .ddp. The file system is probably not mounted on this node.
 * Returns DDP_ERR_FILE.
 */
static int set_not_mounted_error(const char *directory, const char *why, struct ddp_error *error)
{
	const char *parent = strstr(directory, "/.ddp/");
	int length = parent > directory ? (int)(parent - directory) : 1;

	return ddp_error_set(
		error, DDP_ERR_FILE,
		"%.300s. In a container, mount %.*s at the same path (pyxis "
		"--container-mounts=%.*s, podman -v %.*s:%.*s, Apptainer or Charliecloud -b).",
		why, length, directory, length, directory, length, directory, length, directory);
}

/* Check [directory]. Also check that no other user can change a directory on its path. */
static int check_path(const char *directory, bool own, struct ddp_error *error)
{
	struct ddp_walk walk = {.make = !own};
	char name[NAME_MAX + 1];
	int at = ddp_walk_above(&walk, directory, name), status, number;

	if (at < 0 && own && errno == ENOENT && strstr(directory, "/.ddp/"))
		return set_not_mounted_error(directory, walk.why, error);
	if (at < 0)
		return ddp_error_set(error, DDP_ERR_FILE, "%s", walk.why);
	status = check_directory(at, name, own, directory, error);
	number = errno;
	close(at);
	errno = number;
	return status;
}

int ddp_meetings_directory(const char *directory, bool own, struct ddp_error *error)
{
	const struct timespec moment = {0, 1000000};
	int status = DDP_ERR_FILE;

	if (strlen(directory) + DDP_NAME_SIZE >= PATH_MAX)
		return ddp_error_set(error, DDP_ERR_FILE, "the rendezvous %.100s... is too long",
				     directory);
	/*
	 * Retry, because ranks that leave an earlier meeting may remove the directory while this
	 * rank uses it.
	 */
	for (int i = 0; i < TRIES && status < 0; i++) {
		status = check_path(directory, own, error);
		if (status < 0 && (own || errno != ENOENT))
			break;
		if (status < 0)
			nanosleep(&moment, NULL);
	}
	if (status == 0)
		ddp_error_clear(error);
	return status;
}

static void add_name(struct ddp_meetings *list, const char *name)
{
	struct ddp_meeting *entry = list->meetings;
	uint64_t meeting = 0;
	uint32_t fence = 0;
	enum ddp_name kind = ddp_meeting_parse(name, &meeting, &fence);

	if (kind != DDP_NAME_RANKS && kind != DDP_NAME_ABORT && kind != DDP_NAME_TABLE)
		return;
	while (entry < list->meetings + list->count && entry->number != meeting)
		entry++;
	if (entry == list->meetings + DDP_MEETINGS)
		return;
	if (entry == list->meetings + list->count) {
		*entry = (struct ddp_meeting){.number = meeting, .table = -1};
		list->count++;
	}
	if (kind == DDP_NAME_RANKS)
		entry->ranks = true;
	else if (kind == DDP_NAME_ABORT)
		entry->aborted = true;
	else if (fence > entry->table)
		entry->table = fence;
}

int ddp_meetings_list(const char *directory, struct ddp_meetings *list, struct ddp_error *error)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	int number = errno;

	list->count = 0;
	if (dir) {
		for (errno = 0; (entry = readdir(dir)); errno = 0)
			add_name(list, entry->d_name);
		number = errno;
		closedir(dir);
	}
	if (number == 0)
		return 0;
	if (number == ENOENT || number == ESTALE)
		return 1;
	errno = number;
	return ddp_error_errno(error, DDP_ERR_FILE, "cannot list the rendezvous %s", directory);
}

const struct ddp_meeting *ddp_meetings_find(const struct ddp_meetings *list, uint64_t meeting)
{
	for (int i = 0; i < list->count; i++)
		if (list->meetings[i].number == meeting)
			return &list->meetings[i];
	return NULL;
}

/* --- Age of a meeting ------------------------------------------------------------------- */

/* Returns the start time of this process, in nanoseconds since boot, or 0 if it is unknown. */
static uint64_t process_start(void)
{
	unsigned long long began = 0;
	long ticks = sysconf(_SC_CLK_TCK);
	char line[1024] = "";
	const char *end;
	FILE *file = fopen("/proc/self/stat", "re");

	if (!file || ticks <= 0)
		return 0;
	/* The command's name may contain any character, so parse the text after the last ')'. */
	end = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	if (!end || sscanf(end + 1,
			   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %llu",
			   &began) != 1)
		return 0;
	return began * (1000000000u / (uint64_t)ticks);
}

/*
 * Returns how long ago this process started or, if [left] is not 0, how long ago the time [left]
 * was. The result is in nanoseconds. The true time may be longer.
 */
static int64_t process_age(uint64_t left)
{
	uint64_t began = process_start(), whole, since;
	struct timespec now;

	if (began == 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	whole = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - began;
	since = left ? ddp_now() - left : whole;
	return (int64_t)(since < whole ? since : whole) - CLOCK_STEP;
}

static int64_t modified_ns(const struct stat *info)
{
	return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

bool ddp_meeting_is_younger(const char *directory, uint64_t meeting, uint64_t process,
			    uint64_t left)
{
	/* computed before the file times are read, so that a delay makes the meeting look older */
	int64_t since = process_age(left);
	char path[PATH_MAX];
	struct stat hello, now;
	int64_t old;
	bool known;

	if (stat(ddp_meeting_path(path, directory, meeting, ".ranks/hello"), &hello) < 0)
		return false;
	ddp_meeting_path(path, directory, process, ".now");
	known = ddp_file_write(path, NULL, 0, 0, false, NULL) == 0 && stat(path, &now) == 0;
	(void)unlink(path);
	/* A timestamp in whole seconds is too coarse for this comparison. */
	known = known && (now.st_mtim.tv_nsec != 0 || hello.st_mtim.tv_nsec != 0);
	if (!known)
		return false;
	old = modified_ns(&now) - modified_ns(&hello);
	/*
	 * If the hello is from the future, a node whose clock differs has set its timestamp
	 * (Lustre, GPFS), so the age is unknown.
	 */
	return old > -CLOCK_STEP && old < since;
}

/* --- Removal ---------------------------------------------------------------------------- */

/* Retries, because ranks that have not yet noticed the removal may still create files. */
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

/*
 * Returns whether rank 0 left [meeting] cleanly, at most a day ago. If so, the last rank of the
 * meeting removes the meeting.
 */
static bool is_ending(const char *directory, uint64_t meeting)
{
	char path[PATH_MAX];
	struct stat info;

	if (stat(ddp_meeting_path(path, directory, meeting, ".ranks/hello"), &info) == 0)
		return false;
	return stat(ddp_meeting_path(path, directory, meeting, ".ranks"), &info) == 0 &&
	       info.st_mtime > time(NULL) - DAY;
}

/* Returns whether the socket [name] is new enough to be of a rank that started before rank 0. */
static bool is_recent(int directory, const char *name)
{
	struct stat info;

	return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
	       info.st_mtime > time(NULL) - DAY;
}

void ddp_meetings_sweep(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	char path[PATH_MAX];
	uint64_t meeting;
	uint32_t fence;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		enum ddp_name kind = ddp_meeting_parse(entry->d_name, &meeting, &fence);

		if (kind == DDP_NAME_FOREIGN || is_ending(directory, meeting) ||
		    (kind == DDP_NAME_SOCKET && is_recent(dirfd(dir), entry->d_name)))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (kind == DDP_NAME_RANKS || kind == DDP_NAME_NEW)
			remove_directory(ddp_meeting_path(path, directory, meeting, "%s",
							  entry->d_name + DIGITS));
	}
	closedir(dir);
}

void ddp_meetings_remove_sockets(const char *directory, uint64_t meeting)
{
	struct stat hello, info;
	char path[PATH_MAX];
	struct dirent *entry;
	uint32_t fence;
	DIR *dir;

	if (stat(ddp_meeting_path(path, directory, meeting, ".ranks/hello"), &hello) < 0)
		return;
	dir = opendir(directory);
	while (dir && (entry = readdir(dir)))
		if (ddp_meeting_parse(entry->d_name, &meeting, &fence) == DDP_NAME_SOCKET &&
		    fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
		    modified_ns(&info) < modified_ns(&hello))
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
}

void ddp_meetings_leave(const char *directory, bool own, uint64_t meeting, uint32_t fence)
{
	char path[PATH_MAX];
	char *slash;

	if (rmdir(ddp_meeting_path(path, directory, meeting, ".ranks")) < 0)
		return;
	(void)unlink(ddp_meeting_path(path, directory, meeting, ".table.%u", fence));
	(void)unlink(ddp_meeting_path(path, directory, meeting, ".abort"));
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

/* --- Tables: writing -------------------------------------------------------------------- */

/* Location of a rank's record (head and body) in the table, little endian. */
struct entry {
	uint64_t offset;
	uint32_t size, check;
};

_Static_assert(sizeof(struct entry) == 16, "an entry has no holes");

/*
 * Returns the checksum of an entry. It also covers the meeting and the rank, so that an entry of
 * another meeting or rank is detected.
 */
static uint32_t check_entry(const struct entry *entry, uint64_t meeting, uint32_t rank)
{
	uint64_t number = htole64(meeting);
	uint32_t place = htole32(rank), check;

	check = ddp_crc32c(0, &number, sizeof(number));
	check = ddp_crc32c(check, &place, sizeof(place));
	return htole32(ddp_crc32c(check, entry, offsetof(struct entry, check)));
}

uint8_t *ddp_table_encode(const struct ddp_record *head, const struct iovec *records, size_t *size)
{
	size_t used = DDP_RECORD_HEAD + (size_t)head->size * sizeof(struct entry);
	struct ddp_record own = *head;
	uint8_t *table;

	*size = used;
	for (uint32_t rank = 0; rank < head->size; rank++)
		*size += records[rank].iov_len;
	table = malloc(*size);
	if (!table)
		return NULL;
	own.kind = DDP_RECORD_OF_ALL;
	own.length = *size - DDP_RECORD_HEAD;
	own.check = 0;
	ddp_record_encode(&own, table);
	for (uint32_t rank = 0; rank < head->size; rank++) {
		size_t more = records[rank].iov_len;
		struct entry entry = {htole64(used), htole32((uint32_t)more), 0};

		entry.check = check_entry(&entry, head->meeting, rank);
		memcpy(table + DDP_RECORD_HEAD + rank * sizeof(entry), &entry, sizeof(entry));
		memcpy(table + used, records[rank].iov_base, more);
		used += more;
	}
	return table;
}

/* --- Tables: reading -------------------------------------------------------------------- */

struct window {
	uint8_t *data;
	size_t capacity, size;
	uint64_t offset;
};

struct ddp_table {
	int fd;
	char *path;
	uint64_t size; /* size of the file */
	struct ddp_record head;
	struct window entries, records;
};

/*
 * Set [data] to the [size] bytes at [offset], which must be within the file. Reads at least AHEAD
 * bytes at a time, so that the entries and records of the next ranks need no read of their own.
 */
static int fetch(struct ddp_table *table, struct window *window, uint64_t offset, size_t size,
		 const uint8_t **data, struct ddp_error *error)
{
	if (offset < window->offset || offset + size > window->offset + window->size) {
		size_t want = size > AHEAD ? size : AHEAD;

		window->size = 0;
		if (want > table->size - offset)
			want = (size_t)(table->size - offset);
		if (want > window->capacity) {
			uint8_t *more = realloc(window->data, want);

			if (!more)
				return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to read %s",
						     table->path);
			window->data = more;
			window->capacity = want;
		}
		if (ddp_file_read_at(table->fd, window->data, want, offset) < 0)
			return errno == ENODATA
				       ? ddp_error_set(
						 error, DDP_ERR_FORMAT,
						 "%s is damaged: the file ends before its %llu "
						 "bytes",
						 table->path, (unsigned long long)table->size)
				       : ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s",
							 table->path);
		window->offset = offset;
		window->size = want;
	}
	*data = window->data + (offset - window->offset);
	return 0;
}

int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error)
{
	const struct ddp_record *head = &table->head;
	struct entry entry;
	const uint8_t *data;
	char name[96];
	uint64_t offset;
	uint32_t size;
	int status;

	if (rank < 0 || (uint32_t)rank >= head->size)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: there is no rank %d of %u", rank, head->size);
	status = fetch(table, &table->entries, DDP_RECORD_HEAD + (uint64_t)rank * sizeof(entry),
		       sizeof(entry), &data, error);
	if (status < 0)
		return status;
	memcpy(&entry, data, sizeof(entry));
	offset = le64toh(entry.offset);
	size = le32toh(entry.size);
	if (entry.check != check_entry(&entry, head->meeting, (uint32_t)rank))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is damaged: the checksum of rank %d's entry is wrong",
				     table->path, rank);
	if (offset > table->size || size > table->size - offset || size < DDP_RECORD_HEAD ||
	    size > DDP_RECORD_HEAD + DDP_RECORD_BODY)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is damaged: the record of rank %d is not within the "
				     "file's %llu bytes",
				     table->path, rank, (unsigned long long)table->size);
	snprintf(name, sizeof(name), "the record of rank %d in the table of fence %u", rank,
		 head->fence);
	status = fetch(table, &table->records, offset, size, &data, error);
	if (status == 0)
		status = ddp_record_read(record, NULL, data, size, name, error);
	if (status < 0)
		return status;
	if (record->kind != DDP_RECORD_OF_RANK || record->meeting != head->meeting ||
	    record->fence != head->fence || record->rank != (uint32_t)rank)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s contains the record of another rank, fence or meeting",
				     table->path);
	*body = data + DDP_RECORD_HEAD;
	return 0;
}

/*
 * Check that the head of the table has the same meeting and fence as [mine], and that the index and
 * the record of this rank are complete.
 */
static int check_table(struct ddp_table *table, const struct ddp_record *mine,
		       struct ddp_error *error)
{
	struct ddp_record *head = &table->head, own;
	uint64_t length = table->size - DDP_RECORD_HEAD;
	const uint8_t *data;
	int status;

	if (table->size < DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is damaged: the file has %llu bytes", table->path,
				     (unsigned long long)table->size);
	status = fetch(table, &table->entries, 0, DDP_RECORD_HEAD, &data, error);
	if (status == 0)
		status = ddp_record_decode(head, data, DDP_RECORD_HEAD, table->path, error);
	if (status == 0)
		status = ddp_record_match(head, mine, error);
	if (status < 0)
		return status;
	if (head->kind != DDP_RECORD_OF_ALL || head->meeting != mine->meeting ||
	    head->fence != mine->fence || head->rank != 0 || head->length != length ||
	    length < (uint64_t)head->size * sizeof(struct entry))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is damaged, or is not the table of fence %u", table->path,
				     mine->fence);
	status = ddp_table_get(table, (int)mine->rank, &own, &data, error);
	if (status == 0 && own.process != mine->process)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "two processes say that they are rank %u: process %u on %s "
				     "and process %u on %s. If two jobs use %s, give each its "
				     "own directory.",
				     mine->rank, own.pid, own.host, mine->pid, mine->host,
				     table->path);
	return status;
}

int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error)
{
	struct ddp_table *new = calloc(1, sizeof(*new));
	struct stat info;
	int status;

	*table = NULL;
	if (!new || !(new->path = strdup(path))) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to read %s", path);
	}
	new->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (new->fd < 0 || fstat(new->fd, &info) < 0) {
		status = errno == ENOENT || errno == ESTALE
				 ? 1
				 : ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
		goto error;
	}
	new->size = (uint64_t)info.st_size;
	status = check_table(new, mine, error);
	if (status < 0)
		goto error;
	*table = new;
	return 0;
error:
	ddp_table_close(new);
	return status;
}

void ddp_table_close(struct ddp_table *table)
{
	if (!table)
		return;
	if (table->fd >= 0)
		close(table->fd);
	free(table->entries.data);
	free(table->records.data);
	free(table->path);
	free(table);
}
