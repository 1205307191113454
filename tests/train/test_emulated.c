/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_emulated.c - ddp-train on emulated GPUs
 *
 * With virtual ranks the weights have the same bits on any number of ranks and GPUs, even if a run
 * is resumed on another number. Another test kills a rank that shares a GPU.
 */
#include "config.h"

#include <ddp.h>

#include "program.h"

static struct program program; /* too large for a stack */

/*
 * The last batch of mnist's epoch is short. cifar has BatchNorm and augmentation. fp16 has a loss
 * scale. The first row takes the least time, since sanitizers run it alone.
 */
static const struct {
	const char *line;
	int steps, ranks; /* total number of steps; largest number of ranks */
} rows[] = {
	{"mnist --samples 12 -b 1 --virtual-ranks 4 --test-batch 4 --amp fp16 --clip 0.5", 3, 4},
	{"mnist --samples 52 -b 4 --virtual-ranks 4 --test-batch 4 --optimizer sgd --lr 0.05", 5,
	 4},
	{"cifar --samples 6 -b 1 --virtual-ranks 2 --test-batch 1", 2, 2},
};

/* Trains with [ranks] ranks on [gpus] until step [steps]. */
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

TEST_LOOP(test_virtual_ranks, 0, unit_rows(1, ROWS(rows)))
{
	int steps = rows[_i].steps, ranks = rows[_i].ranks;

	train(_i, "0,1,2,3", ranks, steps, "-m reference.st --log-json log-0");
	train(_i, "0", 1, steps, "-m model.st --log-json log");
	check("one rank");
	if (!strstr(rows[_i].line, "fp16")) { /* CPUs have no fp16 */
		program_run(&program, 0, "%s --engine cpu --steps %d -n 1 -q --log-json log-cpu",
			    rows[_i].line, steps);
		ck_assert_double_eq_tol(test_loss("log"), test_loss("log-cpu"), 1e-3);
	}
	for (int sharing = 2; sharing <= ranks; sharing += 2) {
		train(_i, "0", sharing, steps, "-m model.st --log-json log");
		check("ranks that share a GPU");
	}
	train(_i, "0,1,2,3", ranks, steps / 2, "-c state");
	train(_i, "0", 1, steps, "-c state -m model.st --log-json log");
	check("two runs of other numbers of ranks");
}

static const char *const killed[] = {"--virtual-ranks 4", ""};

/*
 * One of four ranks that share a GPU is killed at a random time. Then the same command resumes the
 * run, and the weights are the same as without the kill.
 */
TEST_LOOP(test_killed, 0, unit_rows(1, ROWS(killed)))
{
	uint64_t seed = unit_seed((uint64_t)getpid());
	char line[512];
	pid_t ranks[4];
	int count;

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	snprintf(line, sizeof(line),
		 "mnist --samples 24 -b 1 --test-batch 4 --engine cuda --deterministic --steps 5 "
		 "-n 4 -q %s",
		 killed[_i]);
	program_run(&program, 0, "%s -m reference.st --log-json log-0", line);
	strcat(line, " -c state --checkpoint-steps 1 -m model.st --log-json log");
	program_start(&program, line);
	program_sleep((int)unit_random(&seed, 3000));
	count = program_children(program.pid, ranks, 4);
	kill(count > 0 ? ranks[unit_random(&seed, (uint32_t)count)] : program.pid, SIGKILL);
	program_wait(&program);
	program_run(&program, 0, "%s", line);
	check("killed and continued");
}

/* Options that give other bits on other ranks are rejected, and the message says what to use. */
TEST(test_refused)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, ddp_exit_status(DDP_ERR_UNSUPPORTED),
		    "mnist --samples 16 -b 4 -n 2 --steps 1 --engine cuda --virtual-ranks 4");
	UNIT_SAYS("refused", program.errors, "--virtual-ranks 4", "--deterministic");
	ck_assert_ptr_eq(strchr(program.errors, '\n'), strrchr(program.errors, '\n'));
}

/* Without virtual ranks, a step runs as a graph. */
TEST(test_plain)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, 0, "mnist --samples 16 -b 4 -n 1 --steps 3 --engine cuda -q");
	ck_assert_ptr_nonnull(strstr(program.output, "emulated"));
}

TEST(test_self_test)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, 0, "mnist --self-test");
	ck_assert_msg(program_is_one_line(program.output), "%s", program.output);
	UNIT_SAYS("self-test", program.output, "self-test passed: GPU 0, ", "; mnist f32 ",
		  " bf16 ");
}

TEST(test_self_test_without_gpu)
{
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	program_run(&program, 1, "mnist --self-test");
	UNIT_SAYS("self-test", program.errors, "self-test: mnist on cuda with --amp off failed",
		  "--engine cuda: ");
}

/* As long as no GPU has run this release, a training on GPUs begins with this. */
TEST(test_first_line)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	program_run(&program, 0, "mnist --samples 16 -b 4 -n 1 --steps 1 --engine cuda");
	ck_assert_msg(strncmp(program.output,
			      "engine cuda: this release has not been run on a GPU; ", 53) == 0,
		      "%s", program.output);
}

static void begin_all(void)
{
	program_begin();
	ck_assert_int_eq(mkdir("modules", 0700), 0);
	program_borrow(HOST_MODULES "/ddp_gpu.so", "modules/ddp_gpu.so");
	program_modules("emulated_cuda");
}

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
