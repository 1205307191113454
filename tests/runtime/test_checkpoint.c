/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - checkpoints: their files, and saving and loading by all ranks */
#include "config.h"

#include <ddp.h>
#include <limits.h>
#include <sys/resource.h>
#include <time.h>

#include "ranks.h"
#include "scratch.h"
#include "state/checkpoint.h"
#include "state/tensors.h"

static const struct ddp_log quiet = {.level = DDP_LEVEL_ERROR};

/* --- A model ---------------------------------------------------------------------------- */

enum { WEIGHTS = 6, LARGE = 1 << 20 };

/* All values depend on the step, so that a test detects a file with values of two steps. */
struct model {
	float weight[WEIGHTS];
	int64_t steps;
	unsigned char large[LARGE];
	struct ddp_tensor tensors[3];
};

static struct model model;

static void model_set(uint64_t step)
{
	for (int i = 0; i < WEIGHTS; i++)
		model.weight[i] = (float)(step * 10 + (uint64_t)i);
	model.steps = (int64_t)step;
	for (size_t i = 0; i < LARGE; i++)
		model.large[i] = (unsigned char)(step * 31 + i * 7 + (i >> 12));
	model.tensors[0] = (struct ddp_tensor){"conv1.weight", DDP_F32, 2, {2, 3}, model.weight};
	model.tensors[1] =
		(struct ddp_tensor){"bn1.num_batches_tracked", DDP_I64, 0, {0}, &model.steps};
	model.tensors[2] = (struct ddp_tensor){"large", DDP_U8, 1, {LARGE}, model.large};
}

/* Whether [file] has the model of [step]. If [small], the file must not have the large tensor. */
static bool model_is(const struct ddp_tensors *file, uint64_t step, bool small)
{
	model_set(step);
	for (int i = 0; i < (small ? 2 : 3); i++) {
		const struct ddp_tensor *want = &model.tensors[i];
		const struct ddp_tensor *got = ddp_tensors_find(file, want->name);
		static const size_t bytes[] = {sizeof(model.weight), sizeof(model.steps), LARGE};

		if (!got || memcmp(got->data, want->data, bytes[i]) != 0)
			return false;
	}
	return true;
}

/* Saves the model without the large tensor. */
static int save(const char *directory, uint64_t step, int keep, struct ddp_error *error)
{
	struct ddp_pair pair = {"lr", "0.1"};

	model_set(step);
	return ddp_checkpoint_write(directory, step, model.tensors, 2, &pair, 1, keep, &quiet,
				    error);
}

/* Returns the steps of the checkpoints in [directory], such as "5 3 1". */
static const char *steps_of(const char *directory)
{
	static char text[512];
	struct ddp_error error;
	uint64_t *steps;
	size_t count;

	ck_assert_int_eq(ddp_checkpoint_list(directory, &steps, &count, &error), 0);
	text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		sprintf(text + strlen(text), "%s%llu", i ? " " : "", (unsigned long long)steps[i]);
	free(steps);
	return text;
}

/* Returns the path of [name] in [directory]. The path is valid until the next call. */
static const char *path_in(const char *directory, const char *name)
{
	static char path[1024];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static const char *path_of(const char *directory, uint64_t step)
{
	static char path[1024];

	ck_assert_int_eq(ddp_checkpoint_path(path, sizeof(path), directory, step, NULL), 0);
	ck_assert_int_eq(ddp_checkpoint_path(path, strlen(path), directory, step, NULL),
			 DDP_ERR_FILE);
	ck_assert_int_eq(ddp_checkpoint_path(path, sizeof(path), directory, step, NULL), 0);
	return path;
}

static const char *new_directory(const char *name)
{
	const char *path = scratch(name);

	unit_remove(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	return path;
}

/* --- Names ------------------------------------------------------------------------------ */

static const struct {
	const char *name, *steps;
} names[] = {
	{"checkpoint-0000000000.safetensors", "0"},
	{"checkpoint-0000000042.safetensors", "42"},
	{"checkpoint-9999999999.safetensors", "9999999999"},
	{"checkpoint-10000000000.safetensors", "10000000000"},
	{"checkpoint-18446744073709551615.safetensors", "18446744073709551615"},
	{"checkpoint-18446744073709551616.safetensors", ""},
	{"checkpoint-42.safetensors", ""},
	{"checkpoint-00000000042.safetensors", ""},
	{"checkpoint-000000004x.safetensors", ""},
	{"checkpoint- 000000042.safetensors", ""},
	{"checkpoint--000000042.safetensors", ""},
	{"checkpoint-+000000042.safetensors", ""},
	{"checkpoint-0000000042.safetensors.tmp.1", ""},
	{"checkpoint-0000000042.safetensors~", ""},
	{"checkpoint-0000000042", ""},
	{"Checkpoint-0000000042.safetensors", ""},
	{"model.safetensors", ""},
};

TEST_ROWS(test_names, names)
{
	const char *directory = new_directory("names");

	fclose(fopen(path_in(directory, names[_i].name), "w"));
	unit_text(names[_i].name, "steps", steps_of(directory), names[_i].steps);
	if (*names[_i].steps)
		ck_assert_str_eq(path_of(directory, strtoull(names[_i].steps, NULL, 10)),
				 path_in(directory, names[_i].name));
}

/* The list is sorted by step, not by name. */
TEST(test_list)
{
	static const uint64_t steps[] = {7, 10000000000, 3, 9999999999, 0};
	const char *directory = new_directory("list");

	unit_text("empty", "steps", steps_of(directory), "");
	unit_text("missing", "steps", steps_of(scratch("missing")), "");
	for (int i = 0; i < ROWS(steps); i++)
		fclose(fopen(path_of(directory, steps[i]), "w"));
	unit_text("list", "steps", steps_of(directory), "10000000000 9999999999 7 3 0");
}

/* --- Save ------------------------------------------------------------------------------- */

static const struct {
	const char *before; /* steps of the existing checkpoints */
	uint64_t step;
	int keep;
	const char *after;
} keeps[] = {
	{"", 1, 0, "1"},
	{"", 1, 1, "1"},
	{"1 2 3", 4, 0, "4 3 2 1"},
	{"1 2 3", 4, 1, "4"},
	{"1 2 3", 4, 2, "4 3"},
	{"1 2 3", 4, 4, "4 3 2 1"},
	{"1 2 3", 4, 100, "4 3 2 1"},
	{"1 2 3", 3, 2, "3 2"},
	/*
	 * The existing steps are larger, from a run that was abandoned. The new checkpoint is kept
	 * anyway.
	 */
	{"1 2 8 9", 3, 1, "9 8 3"},
	{"1 2 8 9", 3, 2, "9 8 3 2"},
};

TEST_ROWS(test_keep, keeps)
{
	const char *directory = new_directory("keep");
	struct ddp_error error;
	struct ddp_tensors *file;
	char *end;

	for (const char *at = keeps[_i].before; *at; at = *end ? end + 1 : end)
		ck_assert_int_eq(save(directory, strtoull(at, &end, 10), 0, &error), 0);
	ck_assert_int_eq(save(directory, keeps[_i].step, keeps[_i].keep, &error), 0);
	unit_text(keeps[_i].before, "steps", steps_of(directory), keeps[_i].after);
	ck_assert_int_eq(ddp_tensors_open(&file, path_of(directory, keeps[_i].step), &error), 0);
	ck_assert_int_eq(ddp_tensors_verify(file, &error), 0);
	ck_assert(model_is(file, keeps[_i].step, true));
	ddp_tensors_close(file);
}

#define TEMPORARY "checkpoint-0000000042.safetensors.tmp."

/*
 * Temporary files of other processes. The processes may run on other nodes, so only a file's age
 * shows that its writer has ended.
 */
static const struct {
	const char *name;
	int age; /* seconds */
	bool link, stays;
} leftovers[] = {
	{TEMPORARY "00000bad-4711-00c0ffee", 3600, false, false},
	{TEMPORARY "00000bad-4711-00c0ffee", 60, false, true},
	{TEMPORARY "00000bad-4711-00c0ffee", -3600, false, true},
	{TEMPORARY "00000bad-4711-00c0ffee", 3600, true, true},
	{TEMPORARY "4711", 3600, false, false}, /* the name in earlier releases */
	{TEMPORARY "4711", 60, false, true},
	{TEMPORARY "0123456789abcdef", 3600, false, false},
	{TEMPORARY "4711.x", 3600, false, true},
	{TEMPORARY, 3600, false, true},
	{TEMPORARY "00000bad-4711-00c0ffee.x", 3600, false, true},
	{TEMPORARY "00000bad-4711", 3600, false, true},
	{"checkpoint-42.safetensors.tmp.00000bad-4711-00c0ffee", 3600, false, true},
	{"checkpoint-0000000042.safetensors.TMP.00000bad-4711-00c0ffee", 3600, false, true},
	{"checkpoint-0000000042.safetensors.damaged", 3600, false, true},
	{"model.safetensors.tmp.00000bad-4711-00c0ffee", 3600, false, true},
};

/* Sets the age of the file or link [path], in seconds. */
static void set_age(const char *path, int age)
{
	const struct timespec times[2] = {{0, UTIME_OMIT}, {time(NULL) - age, 0}};

	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A save removes old temporary files, whose writers were killed, and no other files. */
TEST_ROWS(test_old_temporary_files, leftovers)
{
	const char *directory = new_directory("sweep"),
		   *path = path_in(directory, leftovers[_i].name);
	struct ddp_error error;
	struct stat info;

	if (leftovers[_i].link)
		ck_assert_int_eq(symlink("nothing", path), 0);
	else
		fclose(fopen(path, "w"));
	set_age(path, leftovers[_i].age);
	ck_assert_int_eq(save(directory, 1, 1, &error), 0);
	ck_assert_msg((lstat(path_in(directory, leftovers[_i].name), &info) == 0) ==
			      leftovers[_i].stays,
		      "%s", leftovers[_i].name);
	unit_text("sweep", "steps", steps_of(directory), "1");
}

/* A save keeps temporary files of other users. */
TEST(test_temporary_files_of_others)
{
	const char *directory = new_directory("sweep-others"),
		   *path = path_in(directory, TEMPORARY "00000bad-4711-00c0ffee");
	struct ddp_error error;

	fclose(fopen(path, "w"));
	set_age(path, 3600);
	if (chown(path, 65534, (gid_t)-1) < 0)
		return; /* only root can change a file's owner */
	ck_assert_int_eq(save(directory, 1, 1, &error), 0);
	ck_assert_int_eq(access(path_in(directory, TEMPORARY "00000bad-4711-00c0ffee"), F_OK), 0);
}

/* On a full disk a save keeps the old checkpoints and leaves no incomplete one. */
TEST(test_full_disk)
{
	const char *directory = new_directory("full");
	struct ddp_error error;
	struct ddp_tensors *file;
	uint64_t step;

	ck_assert_int_eq(save(directory, 1, 1, &error), 0);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){65536, RLIM_INFINITY}), 0);
	ck_assert_int_eq(ddp_checkpoint_write(directory, 2, model.tensors, 3, NULL, 0, 1, &quiet,
					      &error),
			 DDP_ERR_FILE);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
	UNIT_SAYS("text", error.text, path_of(directory, 2), "File too large");
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ck_assert(step == 1 && model_is(file, 1, true));
	ddp_tensors_close(file);
	ck_assert_int_eq(unlink(path_of(directory, 1)), 0);
	ck_assert_msg(rmdir(directory) == 0, "something is left in %s", directory);
}

/* Without this, syncing would be most of the time of these tests. test_file tests its errors. */
int fsync(int fd)
{
	(void)fd;
	return 0;
}

TEST(test_save_fails)
{
	const char *file = scratch_file("file", "", 0);
	struct ddp_error error;

	ck_assert_int_eq(save(file, 1, 1, &error), DDP_ERR_FILE);
	UNIT_SAYS("text", error.text, file);
	ck_assert_int_eq(save(scratch("minus"), 1, -1, &error), DDP_ERR_ARGUMENT);
	ck_assert_int_ne(access(scratch("minus"), F_OK), 0);
}

/* --- Load ------------------------------------------------------------------------------- */

/* Redirects stderr to [path]. captured() ends the redirection. */
static int capture(const char *path)
{
	int saved = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	ck_assert(saved >= 0 && fd >= 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
	return saved;
}

static char *captured(const char *path, int saved)
{
	size_t size;

	dup2(saved, STDERR_FILENO);
	close(saved);
	return scratch_read(path, &size);
}

static void flip_last(const char *path)
{
	size_t size;
	char *data = scratch_read(path, &size);
	FILE *file = fopen(path, "w");

	data[size - 1] ^= 4;
	ck_assert_uint_eq(fwrite(data, 1, size, file), size);
	fclose(file);
	free(data);
}

/* Shell commands that damage the checkpoint $file. "other" is a checkpoint of another step. */
static const struct {
	const char *name, *command, *piece;
} damages[] = {
	{"empty", "truncate -s 0 $file", "has 0 bytes, too few for"},
	{"cut", "truncate -s -1 $file", "is cut short"},
	{"zeros", "size=$(stat -c %s $file); truncate -s 0 $file; truncate -s $size $file",
	 "does not begin with '{'"},
	{"bit",
	 "tail -c 1 $file | tr '\\000-\\377' '\\001-\\377\\000' |"
	 " dd of=$file bs=1 seek=$(($(stat -c %s $file) - 1)) conv=notrunc status=none",
	 "is damaged: its checksum is"},
	{"metadata", "LC_ALL=C sed -i 's/\"0.1\"/\"0.9\"/' $file", "is damaged: its checksum is"},
	{"key", "LC_ALL=C sed -i s/ddp.crc32c/ddp.crc32d/ $file",
	 "is damaged: its checksum is gone"},
	{"name", "mv other $file", "is of step 7, not of step 3"},
	{"directory", "rm $file; mkdir $file", "is not a plain file"},
	{"link", "ln -sf /nowhere/at/all $file", "No such file"},
};

/* If the newest checkpoint is damaged, a load prints that and reads the checkpoint before it. */
TEST_ROWS(test_damaged, damages)
{
	const char *directory = new_directory("damaged"), *name = damages[_i].name;
	const struct ddp_log log = {.level = DDP_LEVEL_WARNING, .prefix = "ddp[0@n1]: "};
	struct ddp_tensors *file = NULL;
	struct ddp_error error;
	uint64_t step = 0;
	char *text, path[1024], command[2048];
	int saved, status;

	for (uint64_t i = 1; i <= 3; i++)
		ck_assert_int_eq(save(directory, i, 0, &error), 0);
	snprintf(path, sizeof(path), "%s", path_of(directory, 3));
	ck_assert_int_eq(save(scratch("sevens"), 7, 0, &error), 0);
	ck_assert_int_eq(rename(path_of(scratch("sevens"), 7), scratch("other")), 0);
	snprintf(command, sizeof(command), "cd %s && file=%s; %s", scratch_directory, path,
		 damages[_i].command);
	ck_assert_int_eq(system(command), 0);
	saved = capture(scratch("stderr"));
	status = ddp_checkpoint_open(&file, &step, directory, &log, &error);
	text = captured(scratch("stderr"), saved);
	unit_number(name, "status", status, 1);
	unit_number(name, "step", (int64_t)step, 2);
	ck_assert(model_is(file, 2, true));
	ck_assert_str_eq(ddp_tensors_metadata(file, "lr"), "0.1");
	ck_assert_str_eq(ddp_tensors_metadata(file, DDP_CHECKPOINT_STEP), "2");
	ddp_tensors_close(file);
	UNIT_SAYS(name, text, "ddp[0@n1]: warning: ", path, damages[_i].piece);
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	free(text);
}

/* The number of checkpoints to keep does not include a damaged one that a load skipped. */
TEST(test_damaged_not_kept)
{
	const char *directory = new_directory("not-kept");
	struct ddp_tensors *file;
	struct ddp_error error;
	struct stat info;
	uint64_t step;

	ck_assert_int_eq(save(directory, 100, 2, &error), 0);
	ck_assert_int_eq(save(directory, 200, 2, &error), 0);
	flip_last(path_of(directory, 200));
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ddp_tensors_close(file);
	ck_assert_uint_eq(step, 100);
	ck_assert_int_eq(save(directory, 150, 2, &error), 0);
	ck_assert_int_eq(save(directory, 250, 2, &error), 0);
	unit_text("not kept", "steps", steps_of(directory), "250 150");
	ck_assert_int_eq(
		stat(path_in(directory, "checkpoint-0000000200.safetensors.damaged"), &info), 0);
	flip_last(path_of(directory, 250));
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ddp_tensors_close(file);
	ck_assert_uint_eq(step, 150);
}

TEST(test_all_damaged)
{
	const char *directory = new_directory("all");
	struct ddp_tensors *file;
	struct ddp_error error;
	uint64_t step = 4711;

	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 0);
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, scratch("nowhere"), &quiet, &error), 0);
	for (uint64_t i = 1; i <= 2; i++) {
		ck_assert_int_eq(save(directory, i, 0, &error), 0);
		flip_last(path_of(directory, i));
	}
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error),
			 DDP_ERR_FORMAT);
	ck_assert(!file && step == 4711);
	UNIT_SAYS("text", error.text, "none of the 2 checkpoints in", directory,
		  "checkpoint-0000000002", "is damaged");
	unit_text("all", "steps", steps_of(directory), "2 1");
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, scratch_file("plain", "", 0), &quiet,
					     &error),
			 DDP_ERR_FILE);
}

/* --- Files that cannot be read ------------------------------------------------------------ */

static int reads_before_error = INT_MAX; /* number of reads that succeed before EIO */

int __real_ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset);
int __wrap_ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset);

int __wrap_ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset)
{
	if (reads_before_error-- > 0)
		return __real_ddp_file_read_at(fd, data, size, offset);
	errno = EIO;
	return -1;
}

/* A link to itself cannot be opened, also not by root. */
static void make_unopenable(const char *path)
{
	char moved[1040];

	snprintf(moved, sizeof(moved), "%s.moved", path);
	ck_assert_int_eq(rename(path, moved), 0);
	ck_assert_int_eq(symlink(path, path), 0);
}

static void make_openable(const char *path)
{
	char moved[1040];

	snprintf(moved, sizeof(moved), "%s.moved", path);
	ck_assert_int_eq(rename(moved, path), 0);
}

static const struct {
	const char *name;
	int reads; /* number of reads that succeed; -1: the file cannot be opened */
	const char *piece;
} unreadable[] = {
	{"open", -1, "cannot open"},
	{"length", 0, "Input/output error"},
	{"header", 1, "Input/output error"},
	{"data", 2, "Input/output error"},
};

/*
 * If the newest checkpoint may be sound, but cannot be read, a load fails. It neither reads an older
 * checkpoint nor calls the newest one damaged. Once the file can be read, it is loaded.
 */
TEST_LOOP(test_unreadable, 0, 2 * ROWS(unreadable))
{
	int row = _i / 2;
	const char *directory = new_directory("unreadable"), *name = unreadable[row].name;
	uint64_t step = 4711, first = _i % 2 ? 1 : 2; /* 2: it is the only checkpoint */
	struct ddp_tensors *file;
	struct ddp_error error;
	char path[1024];

	for (uint64_t i = first; i <= 2; i++)
		ck_assert_int_eq(save(directory, i, 0, &error), 0);
	snprintf(path, sizeof(path), "%s", path_of(directory, 2));
	if (unreadable[row].reads < 0)
		make_unopenable(path);
	else
		reads_before_error = unreadable[row].reads;
	unit_number(name, "status", ddp_checkpoint_open(&file, &step, directory, &quiet, &error),
		    DDP_ERR_FILE);
	ck_assert(!file && step == 4711);
	UNIT_SAYS(name, error.text, path, unreadable[row].piece);
	reads_before_error = INT_MAX;
	if (unreadable[row].reads < 0)
		make_openable(path);
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ck_assert_uint_eq(step, 2);
	ddp_tensors_close(file);
}

/* A load accepts a file of another program, which has no checksum and no step. */
TEST(test_file_of_another_program)
{
	const char *directory = new_directory("foreign");
	struct ddp_tensors *file;
	struct ddp_error error;
	uint64_t step;

	ck_assert_int_eq(save(directory, 4, 0, &error), 0);
	model_set(5);
	ck_assert_int_eq(ddp_tensors_save(path_of(directory, 5), model.tensors, 2, NULL, 0, &error),
			 0);
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ck_assert(step == 5 && model_is(file, 5, true));
	ddp_tensors_close(file);
}

static const struct {
	const char *name;
	struct ddp_tensor tensors[3];
	size_t count;
	const char *pieces;
} matches[] = {
	{"both",
	 {{"a", DDP_F32, 2, {2, 3}, NULL}, {"c", DDP_I64, 0, {0}, NULL}},
	 2,
	 "file: missing: c; not expected: b"},
	{"type",
	 {{"a", DDP_F16, 2, {2, 3}, NULL}, {"b", DDP_I64, 0, {0}, NULL}},
	 2,
	 "tensor \"a\" is F32 [2, 3], not F16 [2, 3]"},
	{"shape",
	 {{"a", DDP_F32, 2, {3, 2}, NULL}, {"b", DDP_I64, 0, {0}, NULL}},
	 2,
	 "tensor \"a\" is F32 [2, 3], not F32 [3, 2]"},
	{"dimensions",
	 {{"a", DDP_F32, 2, {2, 3}, NULL}, {"b", DDP_I64, 1, {1}, NULL}},
	 2,
	 "tensor \"b\" is I64 [], not I64 [1]"},
};

TEST_ROWS(test_match, matches)
{
	static float a[6];
	static int64_t b;
	const struct ddp_tensor tensors[] = {{"a", DDP_F32, 2, {2, 3}, a},
					     {"b", DDP_I64, 0, {0}, &b}};
	const char *name = matches[_i].name;
	struct ddp_error error = {0, ""};
	struct ddp_tensors *file;

	ck_assert_int_eq(ddp_tensors_save(scratch("match"), tensors, 2, NULL, 0, &error), 0);
	ck_assert_int_eq(ddp_tensors_open(&file, scratch("match"), &error), 0);
	unit_number(name, "status",
		    ddp_checkpoint_match(file, "file", matches[_i].tensors, matches[_i].count,
					 &error),
		    matches[_i].pieces ? DDP_ERR_FORMAT : 0);
	unit_has(name, error.text, matches[_i].pieces);
	ddp_tensors_close(file);
}

/*
 * If a list of names does not fit in the message, the list ends with "..." after a complete name.
 */
TEST(test_match_many)
{
	static char names_of[100][120];
	struct ddp_tensor tensors[100];
	struct ddp_tensors *file;
	struct ddp_error error;

	for (int i = 0; i < 100; i++) {
		snprintf(names_of[i], sizeof(names_of[i]), "layer%0100d", i);
		tensors[i] = (struct ddp_tensor){names_of[i], DDP_U8, 1, {0}, NULL};
	}
	ck_assert_int_eq(ddp_tensors_save(scratch("many"), NULL, 0, NULL, 0, &error), 0);
	ck_assert_int_eq(ddp_tensors_open(&file, scratch("many"), &error), 0);
	ck_assert_int_eq(ddp_checkpoint_match(file, "file", tensors, 100, &error), DDP_ERR_FORMAT);
	ck_assert_str_eq(error.text + strlen(error.text) - 5, ", ...");
	ddp_tensors_close(file);
}

/* --- kill -9 ---------------------------------------------------------------------------- */

/*
 * Saves one step after the other, with the large tensor, until the process is killed. Writes each
 * completed step to [fd].
 */
static void save_forever(const char *directory, uint64_t step, int fd)
{
	struct ddp_error error;

	for (;; step++) {
		model_set(step);
		if (ddp_checkpoint_write(directory, step, model.tensors, 3, NULL, 0, 2, &quiet,
					 &error) < 0 ||
		    write(fd, &step, sizeof(step)) != sizeof(step))
			_exit(1);
	}
}

/*
 * Starts a writer and kills it after [microseconds]. Returns the last step that the writer
 * completed.
 */
static uint64_t kill_writer(const char *directory, uint64_t step, long microseconds)
{
	struct timespec delay = {0, microseconds * 1000};
	uint64_t done = step - 1;
	int pipes[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(pipes), 0);
	pid = fork();
	if (pid == 0)
		save_forever(directory, step, pipes[1]);
	close(pipes[1]);
	nanosleep(&delay, NULL);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	while (read(pipes[0], &step, sizeof(step)) == sizeof(step))
		done = step;
	close(pipes[0]);
	return done;
}

/* After a writer was killed, no checkpoint is incomplete, and the last completed one exists. */
TEST(test_kill)
{
	const char *directory = new_directory("kill");
	uint64_t seed = unit_seed((uint64_t)time(NULL)), done = 0, step, *steps;
	struct ddp_tensors *file;
	struct ddp_error error;
	size_t count;

	for (int round = 0; round < 12; round++) {
		done = kill_writer(directory, done + 1, 1000 + unit_random(&seed, 25000));
		ck_assert_int_eq(ddp_checkpoint_list(directory, &steps, &count, &error), 0);
		for (size_t i = 0; i < count; i++) {
			ck_assert_int_eq(
				ddp_tensors_open(&file, path_of(directory, steps[i]), &error), 0);
			ck_assert_int_eq(ddp_tensors_verify(file, &error), 0);
			ck_assert(model_is(file, steps[i], false));
			ddp_tensors_close(file);
		}
		ck_assert_msg(count > 0 ? steps[0] == done || steps[0] == done + 1 : done == 0,
			      "step %llu was completed", (unsigned long long)done);
		done = count > 0 ? steps[0] : 0;
		free(steps);
	}
	/* The next save removes the killed writer's temporary file. */
	ck_assert_int_eq(save(directory, done + 1, 1, &error), 0);
	ck_assert_int_eq(ddp_checkpoint_open(&file, &step, directory, &quiet, &error), 1);
	ddp_tensors_close(file);
	ck_assert_int_eq(unlink(path_of(directory, step)), 0);
	ck_assert_msg(rmdir(directory) == 0, "something is left in %s", directory);
}

/* --- All ranks -------------------------------------------------------------------------- */

/* Layouts: ranks on each node. */
static const char *const layouts[] = {"1", "2", "3", "1,1", "2,1"};

static bool same_on_all_ranks(struct ddp *ddp, const char *text)
{
	char mine[DDP_ERROR_SIZE] = "", zero[DDP_ERROR_SIZE];

	snprintf(mine, sizeof(mine), "%s", text);
	memcpy(zero, mine, sizeof(zero));
	RANK_OK(ddp, ddp_broadcast(ddp, zero, sizeof(zero), 0));
	return strcmp(mine, zero) == 0;
}

RANKS_TEST(test_save_load, layouts)
{
	struct ddp_pair saved[] = {{"lr", "0.1"}, {"epoch", "3"}, {"none", NULL}};
	struct ddp_pair loaded[] = {{"epoch", "x"}, {"missing", "x"}, {"lr", NULL}, {"none", "x"}};
	uint64_t step = 4711;

	model_set(1);
	RANK_CHECK(ddp_checkpoint_load(ddp, "runs/one", &step, model.tensors, 3, NULL, 0) == 0);
	RANK_CHECK(step == 4711 && model.steps == 1);
	for (uint64_t i = 10; i <= 30; i += 10) {
		model_set(i + (uint64_t)rank);
		RANK_OK(ddp,
			ddp_checkpoint_save(ddp, "runs/one", i, model.tensors, 3, saved, 3, 2));
	}
	RANK_CHECK(access("runs/one/checkpoint-0000000010.safetensors", F_OK) < 0);
	RANK_CHECK(access("runs/one/checkpoint-0000000020.safetensors", F_OK) == 0);
	model_set(99);
	RANK_CHECK(ddp_checkpoint_load(ddp, "runs/one", &step, model.tensors, 3, loaded, 4) == 1);
	RANK_CHECK(step == 30 && model.steps == 30 && model.weight[1] == 301);
	RANK_CHECK(strcmp(loaded[0].value, "3") == 0 && !loaded[1].value);
	RANK_CHECK(strcmp(loaded[2].value, "0.1") == 0 && !loaded[3].value);
	for (size_t i = 0; i < LARGE; i++)
		RANK_CHECK(model.large[i] == (unsigned char)(30 * 31 + i * 7 + (i >> 12)));
}

static char saved_by_three[512];

RANK_BODY(body_save_by_three)
{
	model_set(5 + (uint64_t)rank);
	RANK_OK(ddp, ddp_checkpoint_save(ddp, saved_by_three, 5, model.tensors, 2, NULL, 0, 1));
}

RANK_BODY(body_load_by_fewer)
{
	uint64_t step;

	model_set(6 + (uint64_t)rank);
	RANK_CHECK(ddp_checkpoint_load(ddp, saved_by_three, &step, model.tensors, 2, NULL, 0) == 1);
	RANK_CHECK(step == 5 && model.steps == 5 && model.weight[5] == 55);
}

TEST(test_load_with_fewer_ranks)
{
	snprintf(saved_by_three, sizeof(saved_by_three), "%s", new_directory("elsewhere"));
	ranks_run("3", body_save_by_three);
	ranks_run("2", body_load_by_fewer);
	ranks_run("1", body_load_by_fewer);
}

/*
 * If only rank 0 detects an error, all ranks return the error with the same text. The ranks can
 * then continue.
 */
RANKS_TEST(test_errors, layouts)
{
	struct ddp_pair pair = {"network", "one"};
	uint64_t step = 4711;

	if (rank == 0)
		fclose(fopen("file", "w"));
	model_set(7);
	RANK_CHECK(ddp_checkpoint_save(ddp, "file", 1, model.tensors, 2, NULL, 0, 1) ==
		   DDP_ERR_FILE);
	RANK_CHECK(strstr(ddp_error(ddp), "file") && same_on_all_ranks(ddp, ddp_error(ddp)));
	RANK_CHECK(ddp_checkpoint_load(ddp, "file", &step, model.tensors, 2, NULL, 0) ==
		   DDP_ERR_FILE);
	RANK_CHECK(strstr(ddp_error(ddp), "file") && same_on_all_ranks(ddp, ddp_error(ddp)));

	RANK_OK(ddp, ddp_checkpoint_save(ddp, "good", 1, model.tensors, 2, &pair, 1, 1));
	reads_before_error = 1;
	RANK_CHECK(ddp_checkpoint_load(ddp, "good", &step, model.tensors, 2, NULL, 0) ==
		   DDP_ERR_FILE);
	RANK_CHECK(same_on_all_ranks(ddp, ddp_error(ddp)));
	reads_before_error = INT_MAX;
	model.tensors[0].name = "conv2.weight";
	pair.value = "other";
	RANK_CHECK(ddp_checkpoint_load(ddp, "good", &step, model.tensors, 2, &pair, 1) ==
		   DDP_ERR_FORMAT);
	/* The metadata is read although there is an error. */
	RANK_CHECK(strcmp(pair.value, "one") == 0);
	RANK_CHECK(strstr(ddp_error(ddp), "missing: conv2.weight; not expected: conv1.weight"));
	RANK_CHECK(same_on_all_ranks(ddp, ddp_error(ddp)));
	RANK_CHECK(step == 4711 && ddp_status(ddp) == DDP_ERR_FORMAT);
}

RANKS_TEST(test_broadcast, layouts)
{
	model_set(3 + (uint64_t)rank);
	RANK_OK(ddp, ddp_tensors_broadcast(ddp, model.tensors, 3));
	RANK_CHECK(model.steps == 3 && model.weight[0] == 30 && model.large[0] == 93);
	RANK_OK(ddp, ddp_tensors_broadcast(ddp, NULL, 0));
}

/* Row of the table that describes how rank 2's tensors differ from rank 0's. */
static int disagreement;

static const struct {
	int status;
	const char *piece;
} disagreements[] = {
	{DDP_ERR_MISMATCH,
	 "item 0 differs: rank 0 has \"conv1.weight\", F32 [2, 3], but rank 2 has "
	 "\"conv1.weight\", F32 [3, 2]"},
	{DDP_ERR_MISMATCH, "rank 0 has \"large\", U8 [1048576], but rank 2 has nothing"},
	{DDP_ERR_MISMATCH, "rank 0 has nothing, but rank 2 has \"more\", F32 [1]"},
	{DDP_ERR_MISMATCH, "rank 0 has \"conv1.weight\", F32 [2, 3], but rank 2 has "
			   "\"conv1.bias\", F32 [2, 3]"},
	{DDP_ERR_MISMATCH, "F32 [2, 3], but rank 2 has \"conv1.weight\", I32 [2, 3]"},
	{DDP_ERR_ARGUMENT, ": tensor \"large\" has no data"},
	{DDP_ERR_ARGUMENT, ": tensor 1, \"bn1.num_batches_tracked\", has an impossible"},
};

RANK_BODY(body_disagree)
{
	struct ddp_tensor tensors[4];
	size_t count = 3;

	model_set(3);
	memcpy(tensors, model.tensors, sizeof(model.tensors));
	tensors[3] = (struct ddp_tensor){"more", DDP_F32, 1, {1}, model.weight};
	if (rank == 2) {
		count -= disagreement == 1;
		count += disagreement == 2;
		if (disagreement == 0)
			tensors[0].shape[0] = 3, tensors[0].shape[1] = 2;
		if (disagreement == 3)
			tensors[0].name = "conv1.bias";
		if (disagreement == 4)
			tensors[0].type = DDP_I32;
		if (disagreement == 5)
			tensors[2].data = NULL;
		if (disagreement == 6)
			tensors[1].dimensions = 9;
	}
	RANK_CHECK(ddp_tensors_broadcast(ddp, tensors, count) ==
		   disagreements[disagreement].status);
	fprintf(stderr, "error: %s\n", ddp_error(ddp));
	RANK_CHECK(strstr(ddp_error(ddp), disagreements[disagreement].piece));
}

TEST_ROWS(test_disagree, disagreements)
{
	disagreement = _i;
	ranks_run("3", body_disagree);
}

UNIT_MAIN("checkpoint", scratch_use)
