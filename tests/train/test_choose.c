/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_choose.c - choice of algorithms: rank 0 times them, stores its choices and restores them; a
 * rank may lack the chosen algorithm
 *
 * The library of this test has the plain loops and a second algorithm. The second one gives the
 * same results, but is slower or faster, and is missing on some ranks.
 */
#include "config.h"

#include <time.h>

#include "net/memo.h"
#include "networks.h"
#include "ranks.h"
#include "workshop.h"

static struct {
	bool refuses; /* the second algorithm is missing */
	bool slow[2]; /* whether each algorithm is slow */
	int chosen;   /* algorithm of the forward pass of the last layer */
	int runs;     /* runs of the forward pass */
	char said[128];
	const char *names[2];
} library;

static enum ddp_type type = DDP_F32; /* of the engine */

/* Uses CPU time, because the engine does not count time spent waiting. */
static void take_a_while(void)
{
	clock_t begin = clock();

	while (library.slow[library.chosen] && clock() < begin + CLOCKS_PER_SEC / 300)
		;
}

static int two_algorithms(const struct math_layer *layer, enum math_pass pass)
{
	(void)layer;
	return pass == MATH_FORWARD ? 2 : 1;
}

static const char *name_of(const struct math_layer *layer, enum math_pass pass, int number)
{
	(void)layer;
	(void)pass;
	return library.names[number];
}

static int choose(struct math_layer *layer, enum math_pass pass, int number,
		  struct ddp_error *error)
{
	(void)layer;
	if (number == 1 && library.refuses)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "not on this CPU");
	if (pass == MATH_FORWARD)
		library.chosen = number;
	return 0;
}

static int forward(struct math_layer *layer, size_t count, const void *x, void *y,
		   struct ddp_error *error)
{
	library.runs++;
	take_a_while();
	return math_plain.forward(layer, count, x, y, error);
}

static struct math make_library(void)
{
	struct math math = math_plain;

	library.names[0] = "direct";
	library.names[1] = "quick";
	math.algorithms = two_algorithms;
	math.algorithm = name_of;
	math.choose = choose;
	math.forward = forward;
	return math;
}

static void say(void *listener, const char *text)
{
	snprintf(listener, sizeof(library.said), "%s", text);
}

/*
 * Returns the engine's choices, in memory that the caller frees. [before] is setup->choices; NULL:
 * the engine chooses.
 */
static char *choices_of(const struct math *math, const char *before, bool exact)
{
	struct workshop shop;
	char *choices;

	workshop_open(&shop, &odd);
	shop.setup.choices = before;
	shop.setup.exact = exact;
	shop.setup.type = type;
	shop.setup.say = say;
	shop.setup.listener = library.said;
	library.said[0] = '\0';
	library.runs = 0;
	workshop_engine(&shop, math);
	choices = strdup(engine_cpu.choices(shop.engine));
	workshop_close(&shop);
	return choices;
}

static void expect(const struct math *math, const char *before, bool exact, const char *want)
{
	char *got = choices_of(math, before, exact);

	unit_text(before ? before : "chosen", "choice", got, want);
	free(got);
}

#define SOME(conv1, conv2, gradients, fc)                                              \
	"conv1 forward " conv1 ", conv2 forward " conv2 ", conv2 gradients " gradients \
	", fc forward " fc
#define ALL(name) SOME(name, name, "list", name)

static char directory[] = "/tmp/ddp-choose.XXXXXX";

static void begin(void)
{
	ck_assert_ptr_nonnull(mkdtemp(strcpy(directory, "/tmp/ddp-choose.XXXXXX")));
	setenv("XDG_CACHE_HOME", directory, 1);
}

static void end(void)
{
	unit_remove(directory);
}

/*
 * The faster algorithm is chosen. Later the choice is read from the memo (a file of choices),
 * without timing.
 */
TEST_LOOP(test_fastest, 0, 2)
{
	struct math math = make_library();

	library.slow[_i] = true;
	expect(&math, NULL, false, _i == 0 ? ALL("quick") : ALL("direct"));
	ck_assert_int_gt(library.runs, 0);
	ck_assert_str_eq(library.said,
			 "timing algorithms of 3 convolutions, once for this machine and shape");
	library.slow[_i] = false;
	library.slow[1 - _i] = true;
	expect(&math, NULL, false, _i == 0 ? ALL("quick") : ALL("direct"));
	ck_assert_int_eq(library.runs, 0);
	ck_assert_str_eq(library.said, "");
	/* A name in the memo that the library does not have is ignored. */
	library.names[1 - _i] = "other";
	expect(&math, NULL, false, _i == 0 ? ALL("direct") : ALL("quick"));
	ck_assert_int_gt(library.runs, 0);
}

static bool has_any(enum ddp_type wanted, struct ddp_error *error)
{
	(void)wanted, (void)error;
	return true;
}

static const char *amx(void)
{
	return "oneDNN, AVX512_CORE_AMX";
}

/* Dense passes are chosen over lists for bfloat16 with AMX only. */
TEST(test_dense)
{
	struct math math = math_plain;

	expect(&math, NULL, false, "conv2 gradients list");
	math.describe = amx;
	expect(&math, NULL, false, "conv2 gradients list");
	type = DDP_BF16;
	math.has = has_any;
	expect(&math, NULL, false, "conv2 gradients dense");
	math.describe = math_plain.describe;
	expect(&math, NULL, false, "conv2 gradients list");
	type = DDP_F32;
}

static const struct {
	const char *before, *after;
} restored[] = {
	{ALL("quick"), ALL("quick")},
	{"", SOME("direct", "direct", "dense", "direct")},
	{"fc forward quick", SOME("direct", "direct", "dense", "quick")},
	{"conv1 forward gone, conv2 gradients list, conv2 forward quick",
	 SOME("direct", "quick", "list", "direct")},
	{"conv11 forward quick, xconv1 forward quick, conv2 gradients gone",
	 SOME("direct", "direct", "dense", "direct")},
};

/* A run uses the choices of an earlier run without timing. */
TEST_ROWS(test_restored, restored)
{
	struct math math = make_library();

	library.slow[0] = library.slow[1] = false;
	expect(&math, restored[_i].before, false, restored[_i].after);
	ck_assert_int_eq(library.runs, 0);
}

TEST(test_exact)
{
	struct math math = make_library();

	library.slow[0] = true;
	expect(&math, ALL("quick"), true,
	       "conv1 forward direct, conv2 forward direct, fc forward direct");
	ck_assert_int_eq(library.runs, 0);
}

/* The algorithm that is fastest on rank 0 is missing on rank 1. */
static int one_refuses(int rank)
{
	struct math math = make_library();

	library.refuses = rank == 1;
	library.slow[0] = true;
	expect(&math, NULL, false, ALL("direct"));
	return 0;
}

/* Rank 1's library has the algorithms in the opposite order. */
static int one_differs(int rank)
{
	struct math math = make_library();

	if (rank == 1) {
		library.names[0] = "quick";
		library.names[1] = "direct";
	}
	expect(&math, ALL("quick"), false, ALL("quick"));
	return 0;
}

TEST(test_ranks)
{
	ranks_run("2", one_refuses);
	ranks_run("2", one_differs);
}

/* --- Memo ------------------------------------------------------------------------------------- */

static void write_file(const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/slurm-ddp", directory);
	mkdir(path, 0700);
	strcat(path, "/algorithms");
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

#define TITLE "slurm-ddp algorithms 1\n"

static const struct {
	const char *text, *value; /* text of the file; its value for the key "a b" */
} files[] = {
	{TITLE "a b\tone\n", "one"},
	{TITLE "a\tno\na b\tone\na b\ttwo\n", "one"},
	{TITLE "a bc\tno\n", NULL},
	{TITLE "a b\tone", NULL}, /* incomplete */
	{TITLE "a b\ta value that is longer than the buffer for it\n", NULL},
	{"slurm-ddp algorithms 2\na b\tone\n", NULL},
	{"", NULL},
	{"\n", NULL},
};

/* An incomplete file, or one of another program, is ignored and then replaced. */
TEST_ROWS(test_memo, files)
{
	struct memo memo;
	char value[16] = "";
	bool found;

	write_file(files[_i].text);
	memo_open(&memo);
	found = memo_find(&memo, "a b", value, sizeof(value));
	unit_text(files[_i].text, "value", found ? value : NULL, files[_i].value);
	memo_add(&memo, "new", "three");
	memo_close(&memo);
	memo_open(&memo);
	ck_assert(memo_find(&memo, "new", value, sizeof(value)));
	unit_text(files[_i].text, "new", value, "three");
	found = memo_find(&memo, "a b", value, sizeof(value));
	unit_text(files[_i].text, "value after", found ? value : NULL, files[_i].value);
	memo_close(&memo);
}

/* If there is no directory for the memo, nothing is stored, and that is no error. */
TEST(test_no_memo)
{
	struct memo memo;
	char value[16];

	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	memo_open(&memo);
	memo_add(&memo, "a", "b");
	ck_assert(memo_find(&memo, "a", value, sizeof(value)));
	memo_close(&memo);
	setenv("XDG_CACHE_HOME", "/proc/no such directory", 1);
	memo_open(&memo);
	memo_add(&memo, "a", "b");
	memo_close(&memo);
}

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, begin, end);
}

UNIT_MAIN("choose", fill)
