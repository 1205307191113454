/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-train itself on emulated GPUs: virtual ranks, whose weights are the same to the bit on any number of ranks and
 * GPUs, together and one after the other.
 */
#include "config.h"

#include <ddp.h>

#include "program.h"

static struct program program; /* too large for a stack */

/* The last batch of mnist's epoch is a smaller one; cifar has BatchNorm and augmentation. */
static const struct {
	const char *line;
	int steps, ranks; /* in all; at most */
} rows[] = {
	{"mnist --samples 52 -b 4 --virtual-ranks 4 --test-batch 4", 5, 4},
	{"cifar --samples 6 -b 1 --virtual-ranks 2 --test-batch 1", 2, 2},
};

/* [ranks] of [gpus], up to [steps]. */
static void train(int row, const char *gpus, int ranks, int steps, const char *more)
{
	setenv("CUDA_VISIBLE_DEVICES", gpus, 1);
	program_run(&program, 0, "%s --engine cuda --deterministic --steps %d -n %d -q %s",
		    rows[row].line, steps, ranks, more);
	ck_assert_msg(strstr(program.output, "emulated"), "no GPU was used:\n%s", program.output);
}

static double test_loss(const char *log)
{
	double losses[4];
	int count = program_numbers(log, "epoch", "test_loss", losses, 4);

	ck_assert_int_ge(count, 1);
	return losses[count - 1];
}

static void check(const char *what)
{
	ck_assert_msg(program_same_file("model.st", "reference.st"), "%s: the weights are others",
		      what);
	ck_assert_msg(test_loss("log") == test_loss("log-0"), "%s: test loss %.17g, not %.17g",
		      what, test_loss("log"), test_loss("log-0"));
}

TEST_ROWS(test_virtual_ranks, rows)
{
	int steps = rows[_i].steps, ranks = rows[_i].ranks;

	train(_i, "0,1,2,3", ranks, steps, "-m reference.st --log-json log-0");
	train(_i, "0", 1, steps, "-m model.st --log-json log");
	check("one rank");
	train(_i, "0", 2, steps, "-m model.st --log-json log");
	check("two ranks that share a GPU");
	train(_i, "0,1,2,3", ranks, steps / 2, "-c state");
	train(_i, "0", 1, steps, "-c state -m model.st --log-json log");
	check("two runs of other numbers of ranks");
}

/* What is not deterministic is refused, in one line that says what to add. */
TEST(test_refused)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, ddp_exit_status(DDP_ERR_UNSUPPORTED),
		    "mnist --samples 16 -b 4 -n 2 --steps 1 --engine cuda --virtual-ranks 4");
	UNIT_SAYS("refused", program.errors, "--virtual-ranks 4", "--deterministic");
	ck_assert_ptr_eq(strchr(program.errors, '\n'), strrchr(program.errors, '\n'));
}

/* Without virtual ranks it stays as it was: a step is a graph. */
TEST(test_plain)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, 0, "mnist --samples 16 -b 4 -n 1 --steps 3 --engine cuda -q");
	ck_assert_ptr_nonnull(strstr(program.output, "emulated"));
}

static void begin_all(void)
{
	program_begin();
	program_modules("emulated_cuda");
}

/* Each test in a directory of its own. */
static void begin(void)
{
	char name[] = "test-XXXXXX";

	ck_assert_int_eq(chdir(program_directory), 0);
	ck_assert_ptr_nonnull(mkdtemp(name));
	ck_assert_int_eq(chdir(name), 0);
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, program_end);
	tcase_add_checked_fixture(tcase, begin, NULL);
}

UNIT_MAIN("emulated", fill)
