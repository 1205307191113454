/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "spank_test.h"

static const char *const one_node = "n1:0,1";

/* The step's directory, as its tasks would get it, between srun's part and the nodes'. */
static const char *made_directory(const struct fake_step *step)
{
	static char path[512];
	const char *plan = fake_env_get(step->launched[0], "SLURM_DDP_STEP");
	const char *at = plan ? strstr(plan, ";directory=") : NULL;

	ck_assert_msg(at, "no directory in %s%s", plan ? plan : "no plan", fake_transcript());
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(at + 11, ";"), at + 11);
	return path;
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* --- Making and removing ------------------------------------------------------------------ */

static const struct {
	const char *name;
	const char *options, *env, *conf; /* options and values get the test's directory in front */
	const char *there;		  /* a directory that exists before */
	const char *base;		  /* where .ddp must be */
	int left;			  /* entries of the test's directory at the end */
} places[] = {
	{"working directory", .base = "."},
	{"an option", "--ddp-rdzv=/here", .there = "here", .base = "here", .left = 1},
	{"made for it", "--ddp-rdzv=/a/b/c", .base = "a/b/c"},
	{"partly made for it", "--ddp-rdzv=/a/b/c", .there = "a", .base = "a/b/c", .left = 1},
	{"a slash at the end", "--ddp-rdzv=/a/b/", .base = "a/b"},
	{"placeholders", "--ddp-rdzv=/j%j/s%s-%n", .base = "j4711/s2-n1"},
	{"by variable", .env = "SLURM_DDP_RDZV=/v", .base = "v"},
	{"by plugstack", .conf = "rdzv=/p%j", .base = "p4711"},
	{"option over variable", "--ddp-rdzv=/o", "SLURM_DDP_RDZV=/v", .base = "o"},
	{"relative", "--ddp-rdzv=r/%j", .base = "r/4711"},
};

/* "--x=/here" with the test's directory before the slash. */
static char *placed(const char *text)
{
	const char *slash = text ? strstr(text, "=/") : NULL;
	char *out = NULL;
	int n = slash ? asprintf(&out, "%.*s%s%s", (int)(slash + 1 - text), text, spank_dir,
				 slash + 1)
		      : asprintf(&out, "%s", text ? text : "");

	ck_assert_int_ge(n, 0);
	return out;
}

static void expect_made(const char *row, const struct fake_step *step, const char *base)
{
	const char *directory = made_directory(step);
	char path[600];

	snprintf(path, sizeof(path), "%s/.ddp", base);
	ck_assert_msg(mode_of(path) == 0700, "%s: %s has mode %o", row, path, mode_of(path));
	ck_assert_int_eq(count_entries(path), 1);
	snprintf(path, sizeof(path), "/%s/.ddp/alpha-4711.2.0-",
		 strcmp(base, ".") == 0 ? "" : base);
	ck_assert_msg(strstr(directory, "/.ddp/alpha-4711.2.0-"), "%s: %s", row, directory);
	ck_assert_msg(mode_of(directory) == 0700, "%s: %s has mode %o", row, directory,
		      mode_of(directory));
	ck_assert_int_eq(count_entries(directory), 1);
	snprintf(path, sizeof(path), "%s/step", directory);
	ck_assert_msg(mode_of(path) == 0600, "%s: %s has mode %o", row, path, mode_of(path));
}

START_TEST(test_place)
{
	const char *row = places[_i].name;
	char *where = placed(places[_i].options), *conf = placed(places[_i].conf);
	char *env = placed(places[_i].env), options[600], store[600];
	struct fake_step step = {.step = 2,
				 .options = options,
				 .env = env,
				 .srun_conf = conf,
				 .components = {{one_node}}};

	snprintf(options, sizeof(options), "--ddp %s", where);
	if (places[_i].there)
		ck_assert_int_eq(mkdir(places[_i].there, 0755), 0);
	ck_assert_msg(fake_srun(&step) == 0, "%s: refused%s", row, fake_transcript());
	expect_made(row, &step, places[_i].base);
	fake_nodes(&step);
	expect_var(row, &step, 1, "DDP_RENDEZVOUS", made_directory(&step));
	snprintf(store, sizeof(store), "%s/store", made_directory(&step));
	write_text(store, "what the job left");
	fake_srun_exit(&step);
	ck_assert_msg(count_entries(".") == places[_i].left, "%s: something is left", row);
	expect_silence(row);
	fake_step_clear(&step);
	free(where);
	free(conf);
	free(env);
}
END_TEST

/* Whatever the job put there goes, links included but not what they lead to. */
START_TEST(test_removal)
{
	struct fake_step step = {.options = "--ddp", .components = {{one_node}}};
	char path[700];

	ck_assert(mkdir("precious", 0755) == 0);
	write_text("precious/file", "mine");
	ck_assert_int_eq(fake_srun(&step), 0);
	snprintf(path, sizeof(path), "%s/d", made_directory(&step));
	ck_assert(mkdir(path, 0755) == 0);
	strcat(path, "/link");
	ck_assert(symlink(in_dir("precious"), path) == 0);
	snprintf(path, sizeof(path), "%s/link", made_directory(&step));
	ck_assert(symlink(in_dir("precious/file"), path) == 0);
	ck_assert(mkdir(in_dir(".ddp/failed-4711.0"), 0700) == 0);
	fake_srun_exit(&step);
	ck_assert_int_eq(count_entries("precious"), 1);
	ck_assert_int_eq(count_entries(".ddp"), 1);
	ck_assert_int_eq(count_entries(".ddp/failed-4711.0"), 0);
	fake_step_clear(&step);
}
END_TEST

/* Somebody swapped the directory for a link: the link goes, what it leads to stays. */
START_TEST(test_removal_swapped)
{
	struct fake_step step = {.options = "--ddp", .components = {{one_node}}};

	ck_assert(mkdir("precious", 0755) == 0);
	write_text("precious/file", "mine");
	ck_assert_int_eq(fake_srun(&step), 0);
	ck_assert(rename(made_directory(&step), "moved") == 0);
	ck_assert(symlink(in_dir("precious"), made_directory(&step)) == 0);
	fake_srun_exit(&step);
	ck_assert_int_eq(count_entries("precious"), 1);
	fake_step_clear(&step);
}
END_TEST

/* exit runs at the end of srun's children too. */
START_TEST(test_exit_in_child)
{
	struct fake_step step = {.options = "--ddp", .components = {{one_node}}};
	int status = -1;
	pid_t child;

	ck_assert_int_eq(fake_srun(&step), 0);
	child = fork();
	if (child == 0) {
		fake_hook(step.srun, "exit");
		_exit(0);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	ck_assert_int_eq(count_entries(made_directory(&step)), 1);
	fake_srun_exit(&step);
	ck_assert_int_eq(count_entries("."), 0);
	fake_step_clear(&step);
}
END_TEST

/* --- Refusing ----------------------------------------------------------------------------- */

static void link_as_parent(void)
{
	ck_assert(mkdir("base", 0755) == 0 && mkdir("elsewhere", 0700) == 0 &&
		  symlink(in_dir("elsewhere"), "base/.ddp") == 0);
}

static void file_as_parent(void)
{
	ck_assert_int_eq(mkdir("base", 0755), 0);
	write_text("base/.ddp", "");
}

static void file_as_base(void)
{
	write_text("base", "");
}

static void open_base(void)
{
	ck_assert(mkdir("base", 0777) == 0 && chmod("base", 0777) == 0);
}

static void open_parent(void)
{
	ck_assert(mkdir("base", 0755) == 0 && mkdir("base/.ddp", 0777) == 0 &&
		  chmod("base/.ddp", 0777) == 0);
}

static void foreign_parent(void)
{
	ck_assert(mkdir("base", 0755) == 0 && chmod("base", 01777) == 0 &&
		  mkdir("base/.ddp", 0755) == 0);
}

static void read_only_base(void)
{
	ck_assert(mkdir("base", 0555) == 0);
}

static void missing_below_read_only(void)
{
	ck_assert(mkdir("base", 0555) == 0);
}

static const struct {
	const char *name;
	void (*prepare)(void);
	const char *base;
	bool nobody; /* as another user than the one who prepared */
	const char *pieces;
} refusals[] = {
	{".ddp is a link", link_as_parent, "base", false, "base/.ddp|symbolic link|--ddp-rdzv"},
	{".ddp is a file", file_as_parent, "base", false, "base/.ddp|--ddp-rdzv"},
	{"a file", file_as_base, "base", false, "base|Not a directory|--ddp-rdzv"},
	{"below a file", file_as_base, "base/x", false, "base/x|Not a directory|--ddp-rdzv"},
	{"writable for all", open_base, "base", false, "base|writable for everybody|--ddp-rdzv"},
	{".ddp writable for all", open_parent, "base", false,
	 "base/.ddp|writable for everybody|chmod 700"},
	{"foreign .ddp", foreign_parent, "base", true, "base/.ddp|user 0|--ddp-rdzv"},
	{"read-only", read_only_base, "base", true, "base|Permission denied|--ddp-rdzv"},
	{"below read-only", missing_below_read_only, "base/x", true,
	 "base/x|Permission denied|--ddp-rdzv"},
};

/* A directory that was asked for is refused by srun; nothing is made, nothing is left. */
START_TEST(test_refusal)
{
	const char *row = refusals[_i].name;
	char options[300];
	struct fake_step step = {.options = options, .components = {{one_node}}};
	int before;

	refusals[_i].prepare();
	before = count_entries("base");
	if (refusals[_i].nobody && !become_nobody())
		return;
	/* An absolute path is looked at with the option, any other once the step exists. */
	for (int late = 0; late < 2; late++) {
		snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s%s%s", late ? "" : spank_dir,
			 late ? "" : "/", refusals[_i].base);
		ck_assert_msg(fake_run(&step) == -1, "%s: taken", row);
		expect_pieces(row, FAKE_ERROR, refusals[_i].pieces);
		expect_said(row, FAKE_ANY, "", 1);
		if (!fake_option_refused(&step))
			expect_refused(row, &step, "base");
		fake_step_clear(&step);
		fake_forget();
	}
	become_root();
	ck_assert_int_eq(count_entries("base"), before);
}
END_TEST

/* Where nobody asked for a directory, env:// goes on and one line tells. */
START_TEST(test_no_directory)
{
	const char *row = refusals[_i].name;
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1 n2:2,3"}}};

	if (strcmp(refusals[_i].base, "base") != 0)
		return;
	refusals[_i].prepare();
	if (chdir("base") < 0 || (refusals[_i].nobody && !become_nobody()))
		return;
	ck_assert_int_eq(fake_run(&step), 0);
	for (uint32_t r = 0; r < 4; r++)
		expect_vars(
			row, &step, r,
			"MASTER_ADDR=n1 WORLD_SIZE=4 -DDP_RENDEZVOUS -DDP_INIT_METHOD -DDP_INIT_FILE "
			"-DDP_ERROR");
	expect_said(row, FAKE_LOG, "no rendezvous directory", 1);
	expect_said(row, FAKE_ANY, "", 1);
	fake_step_clear(&step);
}
END_TEST

START_TEST(test_sticky_base)
{
	char options[200];
	struct fake_step step = {.options = options, .components = {{one_node}}};

	ck_assert(mkdir("base", 0777) == 0 && chmod("base", 01777) == 0);
	snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s/base", spank_dir);
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_ptr_nonnull(fake_var(&step, 0, "DDP_RENDEZVOUS"));
	ck_assert_int_eq(count_entries("base"), 0);
	fake_step_clear(&step);
}
END_TEST

/* A disk that takes a directory but not a byte. */
START_TEST(test_full)
{
	struct rlimit was, none;
	char options[200];
	struct fake_step step = {.options = options, .components = {{one_node}}};
	int rc;

	snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s/base", spank_dir);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	none = (struct rlimit){0, was.rlim_max};
	/* The plugin is opened before the limit holds. */
	fake_process_end(fake_process(S_CTX_ERROR, "", NULL));
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
	rc = fake_srun(&step);
	setrlimit(RLIMIT_FSIZE, &was);
	signal(SIGXFSZ, SIG_DFL);
	ck_assert_int_eq(rc, -1);
	expect_pieces("full", FAKE_ERROR, "cannot write|base/.ddp/alpha-4711.0.0-|--ddp-rdzv");
	ck_assert_int_eq(count_entries("."), 0);
	fake_srun_exit(&step);
	fake_step_clear(&step);
}
END_TEST

/* A path that no URL can carry: the directory is there, the URLs are not. */
START_TEST(test_path_for_url)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0 n2:1"}}};

	ck_assert(mkdir("a?b", 0755) == 0 && chdir("a?b") == 0);
	ck_assert_int_eq(fake_run(&step), 0);
	for (uint32_t r = 0; r < 2; r++) {
		expect_vars("url", &step, r, "-DDP_INIT_METHOD -DDP_INIT_FILE MASTER_ADDR=n1");
		ck_assert_ptr_nonnull(fake_var(&step, r, "DDP_RENDEZVOUS"));
	}
	expect_said("url", FAKE_LOG, "which a URL cannot carry", 1);
	expect_said("url", FAKE_ANY, "", 1);
	fake_step_clear(&step);
}
END_TEST

static void fill(TCase *tcase)
{
	SPANK_ROWS(tcase, test_place, places);
	tcase_add_test(tcase, test_removal);
	tcase_add_test(tcase, test_removal_swapped);
	tcase_add_test(tcase, test_exit_in_child);
	SPANK_ROWS(tcase, test_refusal, refusals);
	SPANK_ROWS(tcase, test_no_directory, refusals);
	tcase_add_test(tcase, test_sticky_base);
	tcase_add_test(tcase, test_full);
	tcase_add_test(tcase, test_path_for_url);
}

int main(void)
{
	return spank_run("rendezvous", fill);
}
