/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/walk.h"
#include "unit.h"

/* --- The test's directory ----------------------------------------------------------------- */

static char top[64];

static const char *in_top(const char *name)
{
	static char paths[4][PATH_MAX];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", top, name);
	return path;
}

static void setup(void)
{
	snprintf(top, sizeof(top), "/tmp/ddp-file.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
}

/* Returns the number of entries of [top], without "." and "..". */
static int count_entries(void)
{
	DIR *directory = opendir(top);
	int count = -2;

	ck_assert_ptr_nonnull(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void teardown(void)
{
	static const char *const names[] = {"a",      "b",     "fifo", "link",
					    "target", "d/e/f", "d/e",  "d"};

	for (int i = 0; i < ROWS(names); i++)
		(void)remove(in_top(names[i]));
	ck_assert_msg(rmdir(top) == 0, "%s: %s", top, strerror(errno));
}

static int write_text(const char *path, const char *text, bool sync, struct ddp_error *error)
{
	size_t half = strlen(text) / 2;
	char *bytes = (char *)(uintptr_t)text;
	const struct iovec parts[] = {
		{bytes, half}, {NULL, 0}, {bytes + half, strlen(text) - half}};

	return ddp_file_write(path, parts, 3, 0, sync, error);
}

static void check_text(const char *path, const char *want)
{
	char *data;
	size_t size;

	ck_assert_int_eq(ddp_file_read(path, 1 << 20, &data, &size, NULL), 0);
	ck_assert_uint_eq(size, strlen(want));
	ck_assert_str_eq(data, want);
	free(data);
}

/* --- System calls that are interrupted or partial --------------------------------------------- */

static const char *other_text; /* text that another process writes to "a" during the next write */
/* every second call fails with EINTR; the other calls transfer at most 3 bytes */
static bool interrupt;
static int calls;

ssize_t write(int fd, const void *data, size_t size)
{
	const char *text = other_text;

	other_text = NULL;
	if (text)
		ck_assert_int_eq(write_text(in_top("a"), text, false, NULL), 0);
	if (interrupt && calls++ % 2 == 0) {
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_write, fd, data, interrupt && size > 3 ? 3 : size);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	if (interrupt && calls++ % 2 == 0) {
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_pread64, fd, data, interrupt && size > 3 ? 3 : size, offset);
}

static int sync_error;	 /* result of fsync() of a directory */
static char synced[512]; /* synced directories, one per line */

int fsync(int fd)
{
	char link[32], path[256];
	struct stat info;
	ssize_t length;

	if (fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	ck_assert_int_gt(length, 0);
	path[length] = '\0';
	snprintf(synced + strlen(synced), sizeof(synced) - strlen(synced), "%s\n", path);
	errno = sync_error;
	return sync_error ? -1 : 0;
}

TEST(test_interrupted)
{
	struct ddp_error error = {0, ""};
	char *data;
	size_t size;
	int status;

	interrupt = true;
	status = write_text(in_top("a"), "twelve bytes", true, &error);
	interrupt = false;
	ck_assert_msg(status == 0, "%s", error.text);
	ck_assert_int_ge(calls, 8);
	calls = 0;
	interrupt = true;
	status = ddp_file_read(in_top("a"), 100, &data, &size, &error);
	interrupt = false;
	ck_assert_int_eq(status, 0);
	ck_assert_int_ge(calls, 8);
	ck_assert_uint_eq(size, 12);
	ck_assert_str_eq(data, "twelve bytes");
	free(data);
}

/* --- Writing ------------------------------------------------------------------------------ */

TEST(test_write)
{
	struct ddp_error error = {0, ""};
	struct stat info;

	for (int sync = 0; sync < 2; sync++) {
		ck_assert_int_eq(write_text(in_top("a"), "first", sync, &error), 0);
		check_text(in_top("a"), "first");
		ck_assert_int_eq(write_text(in_top("a"), "2nd", sync, &error), 0);
		check_text(in_top("a"), "2nd");
		ck_assert_int_eq(write_text(in_top("a"), "", sync, &error), 0);
		check_text(in_top("a"), "");
	}
	ck_assert_int_eq(ddp_file_write(in_top("a"), NULL, 0, 0, false, &error), 0);
	check_text(in_top("a"), "");
	ck_assert_int_eq(stat(in_top("a"), &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0600);
	ck_assert_int_eq(count_entries(), 1);
	ck_assert_int_eq(error.status, 0);
}

TEST(test_mode)
{
	mode_t old = umask(027);
	struct stat info;
	int status = ddp_file_write(in_top("a"), NULL, 0, 0666, false, NULL);

	umask(old);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(stat(in_top("a"), &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0640);
}

/* A path without a slash names a file in the working directory. That directory is synced too. */
TEST(test_relative_path)
{
	int here = open(".", O_RDONLY | O_DIRECTORY), status;

	ck_assert_int_ge(here, 0);
	ck_assert_int_eq(chdir(top), 0);
	status = write_text("a", "here", true, NULL);
	ck_assert_int_eq(fchdir(here), 0);
	close(here);
	ck_assert_int_eq(status, 0);
	check_text(in_top("a"), "here");
}

/* A file can have a name of the maximum length, because the temporary file's name is shortened. */
TEST(test_long_names)
{
	struct ddp_error error = {0, ""};
	char name[NAME_MAX + 2];

	for (int length = NAME_MAX - 40; length <= NAME_MAX + 1; length++) {
		int want = length <= NAME_MAX ? 0 : DDP_ERR_FILE;

		memset(name, 'n', sizeof(name));
		name[length] = '\0';
		ck_assert_msg(write_text(in_top(name), "x", false, &error) == want, "%d: %s",
			      length, error.text);
		ck_assert_int_eq(count_entries(), want == 0);
		(void)unlink(in_top(name));
	}
}

/*
 * Processes in two containers may have the same process id. Both can write the same file at once.
 */
TEST(test_same_pid)
{
	struct ddp_error error = {0, ""};
	int status;

	other_text = "another process";
	status = write_text(in_top("a"), "this process", false, &error);
	ck_assert_msg(status == 0, "%s", error.text);
	ck_assert_ptr_null(other_text);
	check_text(in_top("a"), "this process");
	ck_assert_int_eq(count_entries(), 1);
}

/* A write to a symbolic link creates or replaces the link's target. The link remains. */
TEST(test_write_link)
{
	struct ddp_error error = {0, ""};
	struct stat info, before;

	ck_assert_int_eq(symlink("d/e", in_top("link")), 0);
	ck_assert_int_eq(write_text(in_top("link"), "x", true, &error), DDP_ERR_FILE);
	ck_assert_int_eq(mkdir(in_top("d"), 0700), 0);
	for (int i = 0; i < 2; i++) {
		const char *text = i ? "second" : "first";

		ck_assert_int_eq(ddp_file_can_replace(in_top("link"), &error), 0);
		ck_assert_int_eq(write_text(in_top("link"), text, true, &error), 0);
		ck_assert_int_eq(lstat(in_top("link"), &info), 0);
		ck_assert(S_ISLNK(info.st_mode));
		check_text(in_top("d/e"), text);
		ck_assert_int_eq(count_entries(), 2);
		ck_assert_int_eq(stat(in_top("d/e"), i ? &info : &before), 0);
	}
	ck_assert_msg(info.st_ino != before.st_ino, "the file was written in place");
	/* A failed write leaves no empty file. */
	ck_assert_int_eq(unlink(in_top("d/e")), 0);
	ck_assert_int_eq(ddp_file_can_replace(in_top("link"), &error), 0);
	ck_assert_int_eq(access(in_top("d/e"), F_OK), -1);
}

/* A write does not replace a device, FIFO or socket, named directly or by a link. */
TEST(test_write_special)
{
	static const mode_t kinds[] = {S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK};
	struct ddp_error error = {0, ""};
	struct stat info;

	ck_assert_int_eq(symlink("b", in_top("link")), 0);
	for (int i = 0; i < ROWS(kinds); i++) {
		bool device = S_ISCHR(kinds[i]) || S_ISBLK(kinds[i]);

		/*
		 * Only root can create a device, and not in every container. No driver has this
		 * device number.
		 */
		if (mknod(in_top("b"), kinds[i] | 0600, device ? 0xeeee : 0) < 0 && device)
			continue;
		for (int j = 0; j < 2; j++) {
			const char *path = in_top(j ? "link" : "b");

			ck_assert_int_eq(write_text(path, "x", true, &error), DDP_ERR_FILE);
			ck_assert_ptr_nonnull(strstr(error.text, path));
			ck_assert_ptr_nonnull(strstr(error.text, "it is not a plain file"));
			ck_assert_int_eq(ddp_file_can_replace(path, &error), DDP_ERR_FILE);
			ck_assert_int_eq(lstat(in_top("b"), &info), 0);
			ck_assert_uint_eq(info.st_mode & S_IFMT, kinds[i]);
			ck_assert_int_eq(count_entries(), 2);
		}
		ck_assert_int_eq(unlink(in_top("b")), 0);
	}
}

/* A write to a link such as /dev/stdout does not replace the program's log. */
TEST(test_write_stdout)
{
	static const int outputs[] = {STDOUT_FILENO, STDERR_FILENO};
	struct ddp_error error = {0, ""};
	char link[32];

	for (int i = 0; i < ROWS(outputs); i++) {
		int saved = dup(outputs[i]), status[2], fd;

		ck_assert_int_eq(write_text(in_top("a"), "log", false, NULL), 0);
		fd = open(in_top("a"), O_WRONLY | O_APPEND);
		snprintf(link, sizeof(link), "/proc/self/fd/%d", outputs[i]);
		ck_assert_int_eq(symlink(link, in_top("link")), 0);
		fflush(NULL);
		ck_assert(saved >= 0 && fd >= 0 && dup2(fd, outputs[i]) >= 0);
		close(fd);
		status[0] = ddp_file_can_replace(in_top("link"), NULL);
		status[1] = write_text(in_top("link"), "x", true, &error);
		dup2(saved, outputs[i]);
		close(saved);
		ck_assert_int_eq(status[0], DDP_ERR_FILE);
		ck_assert_int_eq(status[1], DDP_ERR_FILE);
		UNIT_SAYS("text", error.text, in_top("link"), "it is stdout or stderr");
		check_text(in_top("a"), "log");
		ck_assert_int_eq(unlink(in_top("link")), 0);
	}
}

/* --- Durability ----------------------------------------------------------------------------- */

/*
 * If fsync() of the directory fails, the write fails: a power failure might undo the rename, so the
 * caller must keep older files.
 */
TEST(test_directory_sync)
{
	static const int ignored[] = {EINVAL, ENOSYS, EOPNOTSUPP, EBADF};
	struct ddp_error error = {0, ""};

	sync_error = EIO;
	ck_assert_int_eq(write_text(in_top("a"), "x", true, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, in_top("a")));
	ck_assert_ptr_nonnull(strstr(error.text, "Input/output error"));
	ck_assert_int_eq(write_text(in_top("a"), "x", false, &error), 0);
	ck_assert_int_eq(ddp_file_mkdirs(in_top("d/e"), 0700, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "Input/output error"));
	/* The file system cannot sync directories, which is not an error. */
	for (int i = 0; i < ROWS(ignored); i++) {
		sync_error = ignored[i];
		ck_assert_int_eq(write_text(in_top("a"), "x", true, &error), 0);
	}
	sync_error = 0;
	synced[0] = '\0';
	ck_assert_int_eq(ddp_file_mkdirs(in_top("d/e/f"), 0700, &error), 0);
	ck_assert_ptr_nonnull(strstr(synced, in_top("d\n")));
	ck_assert_ptr_nonnull(strstr(synced, in_top("d/e\n")));
	ck_assert_ptr_null(strstr(synced, in_top("d/e/f")));
	ck_assert_int_eq(ddp_file_mkdirs(in_top("d/e/f"), 0700, &error), 0);
}

TEST(test_cannot_write)
{
	struct ddp_error error = {0, ""};
	char path[PATH_MAX + 10];

	ck_assert_int_eq(write_text(in_top("none/a"), "x", false, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, in_top("none/a")));
	ck_assert_ptr_nonnull(strstr(error.text, "No such file"));

	/* A write does not replace a directory. */
	ck_assert_int_eq(mkdir(in_top("d"), 0700), 0);
	ck_assert_int_eq(write_text(in_top("d"), "x", true, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "it is a directory"));
	ck_assert_int_eq(count_entries(), 1);

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(write_text(path, "x", false, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "too long"));
	ck_assert_int_eq(write_text(path, "x", false, NULL), DDP_ERR_FILE);
}

/* --- Reading ------------------------------------------------------------------------------ */

TEST(test_read)
{
	struct ddp_error error = {0, ""};
	char *data = top;
	size_t size = 77;

	ck_assert_int_eq(ddp_file_read(in_top("a"), 100, &data, &size, &error), 1);
	ck_assert_ptr_null(data);
	ck_assert_uint_eq(size, 0);
	ck_assert_int_eq(error.status, 0);

	ck_assert_int_eq(write_text(in_top("a"), "seven b", false, NULL), 0);
	ck_assert_int_eq(ddp_file_read(in_top("a"), 7, &data, &size, &error), 0);
	ck_assert_uint_eq(size, 7);
	ck_assert_str_eq(data, "seven b"); /* data ends with a NUL */
	free(data);
	ck_assert_int_eq(ddp_file_read(in_top("a"), 6, &data, &size, &error), DDP_ERR_FORMAT);
	ck_assert_ptr_null(data);
	ck_assert_ptr_nonnull(strstr(error.text, in_top("a")));
	ck_assert_ptr_nonnull(strstr(error.text, "6 bytes"));

	ck_assert_int_eq(ddp_file_read(in_top("a/b"), 6, &data, &size, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "Not a directory"));
}

/* Reading a FIFO, a directory or a device fails at once. */
TEST(test_read_special)
{
	struct ddp_error error = {0, ""};
	char *data;
	size_t size;

	ck_assert_int_eq(mkfifo(in_top("fifo"), 0600), 0);
	ck_assert_int_eq(ddp_file_read(in_top("fifo"), 100, &data, &size, &error), DDP_ERR_FORMAT);
	ck_assert_int_eq(ddp_file_read(top, 100, &data, &size, &error), DDP_ERR_FORMAT);
	ck_assert_int_eq(ddp_file_read("/dev/zero", 100, &data, &size, &error), DDP_ERR_FORMAT);
	ck_assert_ptr_null(data);
}

/* --- Directories -------------------------------------------------------------------------- */

TEST(test_mkdirs)
{
	struct ddp_error error = {0, ""};
	char path[PATH_MAX + 10];
	struct stat info;
	mode_t old = umask(022);
	int status = ddp_file_mkdirs(in_top("d/e/f"), 0777, &error);

	umask(old);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(stat(in_top("d/e"), &info), 0);
	ck_assert_uint_eq(info.st_mode & 0777, 0755);
	ck_assert_int_eq(ddp_file_mkdirs(in_top("d/e/f"), 0700, &error), 0);
	ck_assert_int_eq(ddp_file_mkdirs(in_top("d//e/f/"), 0700, &error), 0);
	ck_assert_int_eq(ddp_file_mkdirs("/", 0700, &error), 0);
	ck_assert_int_eq(ddp_file_mkdirs("/proc/self", 0700, &error), 0);

	/* If a directory in the path, or the path itself, is a file, that is an error. */
	ck_assert_int_eq(write_text(in_top("a"), "x", false, NULL), 0);
	ck_assert_int_eq(ddp_file_mkdirs(in_top("a"), 0700, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, in_top("a")));
	ck_assert_int_eq(ddp_file_mkdirs(in_top("a/b"), 0700, &error), DDP_ERR_FILE);
	ck_assert_int_eq(ddp_file_mkdirs("", 0700, &error), DDP_ERR_FILE);
	ck_assert_int_eq(ddp_file_mkdirs("/proc/none/x", 0700, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "/proc/none"));

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(ddp_file_mkdirs(path, 0700, &error), DDP_ERR_FILE);
}

/* --- Permissions along a path --------------------------------------------------------------- */

enum { OTHER = 4711 };

/*
 * Owner, group and mode of directory "a" in the path "a/e". If "a" is a link to directory "d", they
 * are those of "d".
 */
static const struct {
	const char *name;
	const char *link; /* target of a; NULL: a is a directory */
	uid_t owner;
	gid_t group;
	mode_t mode;
	bool of_link;
	const char *refused; /* expected error; NULL: the path is accepted */
} path_rows[] = {
	{"own directory", .mode = 0755},
	{"only search permission for others", .mode = 0711},
	{"sticky, writable for everybody", .mode = 01777},
	{"sticky, writable for a group", .group = OTHER, .mode = 01775},
	{"writable for the user's group, as with an access list's mask", .mode = 0775,
	 .refused = "a is writable for group 0"},
	{"writable for everybody", .mode = 0777, .refused = "a is writable for everybody"},
	{"writable for another group", .group = OTHER, .mode = 0775,
	 .refused = "a is writable for group 4711"},
	{"another user's", .owner = OTHER, .mode = 0755, .refused = "a belongs to user 4711"},
	{"another user's, sticky", .owner = OTHER, .mode = 01777,
	 .refused = "belongs to user 4711"},
	{"own link", "d", .mode = 0755},
	{"own link with dots", "d/../d/.", .mode = 0755},
	{"a link to another user's directory", "d", .owner = OTHER, .mode = 0755,
	 .refused = "d belongs to user 4711"},
	{"a link to a directory that is writable for everybody", "d", .mode = 0777,
	 .refused = "d is writable for everybody"},
	{"another user's link", "d", .owner = OTHER, .mode = 0755, .of_link = true,
	 .refused = "a is a symbolic link of user 4711"},
	{"a link to itself", "a", .mode = 0755, .refused = "Too many levels"},
	{"a dangling link", "b", .mode = 0755, .refused = "b: No such file"},
};

TEST_ROWS(test_path_permissions, path_rows)
{
	struct ddp_walk walk = {.make = false};
	const char *name = path_rows[_i].name, *real = path_rows[_i].link ? "d" : "a";
	bool link_alone = path_rows[_i].of_link;
	int fd;

	if (geteuid() != 0)
		return; /* only root can change a directory's owner */
	ck_assert_int_eq(mkdir(in_top(real), 0755), 0);
	if (path_rows[_i].link)
		ck_assert_int_eq(symlink(path_rows[_i].link, in_top("a")), 0);
	ck_assert_int_eq(lchown(in_top(link_alone ? "a" : real), path_rows[_i].owner,
				path_rows[_i].group),
			 0);
	ck_assert_int_eq(chmod(in_top(real), path_rows[_i].mode), 0);
	ck_assert_int_eq(mkdir(in_top(path_rows[_i].link ? "d/e" : "a/e"), 0700), 0);
	fd = ddp_walk_open(&walk, in_top("a/e"));
	if (path_rows[_i].refused) {
		ck_assert_msg(fd < 0, "%s: was accepted", name);
		UNIT_SAYS(name, walk.why, path_rows[_i].refused);
	} else {
		ck_assert_msg(fd >= 0, "%s: %s", name, walk.why);
		ck_assert_int_eq(fchdir(fd), 0);
		ck_assert_int_eq(chdir("/"), 0);
		close(fd);
	}
	(void)rmdir(in_top("a/e"));
}

/*
 * Missing directories are created. If a later part of the path is an error, they are removed again.
 */
TEST(test_missing_directories)
{
	struct ddp_walk walk = {.make = true}, again = {.make = true};
	char path[PATH_MAX];
	struct stat info;
	int fd = ddp_walk_open(&walk, in_top("d//e/f/"));

	ck_assert_msg(fd >= 0, "%s", walk.why);
	close(fd);
	ck_assert_uint_eq(walk.made, 3);
	ck_assert_int_eq(stat(in_top("d/e"), &info), 0);
	ck_assert_int_eq(info.st_mode & 07777, 0700);
	ck_assert_int_eq(rmdir(in_top("d/e/f")), 0);
	snprintf(path, sizeof(path), "%s/%0300d", in_top("d/e/f/g"), 0);
	ck_assert_int_lt(ddp_walk_open(&again, path), 0);
	ck_assert_int_eq(errno, ENAMETOOLONG);
	ck_assert_int_lt(access(in_top("d/e/f"), F_OK), 0);
	ck_assert_int_eq(access(in_top("d/e"), F_OK), 0);
}

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
}

UNIT_MAIN("file", fill)
