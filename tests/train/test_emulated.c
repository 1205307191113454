/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_emulated.c - ddp-train on emulated GPUs
 *
 * With virtual ranks the weights have the same bits on any number of ranks and GPUs, even if a run
 * is resumed on another number. Another test kills a rank that shares a GPU.
 */
#include "config.h"

#include <ddp.h>
#include <math.h>

#include "program.h"

static struct program program; /* too large for a stack */

/*
 * The last batch of mnist's epoch is short. cifar has BatchNorm and augmentation. fp16 has a loss
 * scale, and AdamW a number of steps. The first row takes the least time, since sanitizers run it alone.
 */
static const struct {
	const char *line;
	int steps, ranks; /* total number of steps; largest number of ranks */
} rows[] = {
	{"mnist --samples 12 -b 1 --virtual-ranks 4 --test-batch 4 --amp fp16 --clip 0.5 -o adamw",
	 3, 4},
	{"mnist --samples 26 -b 2 --virtual-ranks 4 --test-batch 4 --optimizer sgd --lr 0.05", 4,
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
		 "mnist --samples 16 -b 1 --test-batch 4 --engine cuda --deterministic --steps 4 "
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

/* --- Late results ------------------------------------------------------------------------------ */

/*
 * Without virtual ranks and other ranks on the GPU, a step runs as a graph, and the engine reports
 * it several steps later.
 */
#define GRAPHS \
	"mnist --samples 20 -e 2 --global-batch 2 -t 1 -n 1 --warmup 2 --test-batch 4 -o sgd "
#define ON_GPUS "--engine cuda --deterministic --progress off "

enum { STEPS = 32, ALL_STEPS = 20 };

static void on_one_gpu(void)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
}

/* Compares numbers of the logs "log" and "log-cpu", which have [want] objects of [event]. */
static void check_numbers(const char *event, const char *key, int want, double tolerance)
{
	double wanted[STEPS], got[STEPS];

	ck_assert_int_eq(program_numbers("log-cpu", event, key, wanted, STEPS), want);
	unit_number(event, key, program_numbers("log", event, key, got, STEPS), want);
	for (int i = 0; i < want; i++)
		ck_assert_msg(fabs(got[i] - wanted[i]) <= tolerance * fabs(wanted[i]),
			      "%s %d: %s is %.17g, not %.17g", event, i + 1, key, got[i],
			      wanted[i]);
}

/* Lines at timed intervals include only finished steps, and every step is in one line. */
static void check_intervals(void)
{
	double totals[STEPS], samples[STEPS], rates[STEPS], wanted[STEPS], before = 0;
	int intervals = program_numbers("log", "step", "total", totals, STEPS);

	ck_assert_int_eq(program_numbers("log", "step", "samples", samples, STEPS), intervals);
	ck_assert_int_eq(program_numbers("log", "step", "lr", rates, STEPS), intervals);
	program_numbers("log-cpu", "step", "lr", wanted, STEPS);
	for (int i = 0; i < intervals; before = totals[i++]) {
		ck_assert_double_eq(samples[i], 2 * (totals[i] - before));
		ck_assert_double_eq(rates[i], wanted[(int)totals[i] - 1]);
	}
	ck_assert_double_eq(before, ALL_STEPS);
}

/* Each line of the log, and each sum, is that of the CPU engine, which reports steps at once. */
TEST(test_log)
{
	on_one_gpu();
	program_run(&program, 0, GRAPHS ON_GPUS "--amp off -q --log-every 1 --log-json log");
	program_run(&program, 0, GRAPHS "--engine cpu -q --log-every 1 --log-json log-cpu");
	check_numbers("step", "total", ALL_STEPS, 0);
	check_numbers("step", "step", ALL_STEPS, 0);
	check_numbers("step", "lr", ALL_STEPS, 0);
	check_numbers("step", "samples", ALL_STEPS, 0);
	check_numbers("step", "top1", ALL_STEPS, 0);
	check_numbers("step", "loss", ALL_STEPS, 1e-3);
	check_numbers("epoch", "train_loss", 2, 1e-3);
	check_numbers("epoch", "test_loss", 2, 1e-3);
	check_numbers("end", "samples", 1, 0);
	program_run(&program, 0, GRAPHS ON_GPUS "-q --log-json log");
	check_intervals();
}

/* A resumed epoch has the training loss of all its steps, also of those before the checkpoint. */
static void check_train_losses(void)
{
	double wanted[8], got[8];
	int count = program_numbers("log", "epoch", "train_loss", got, 8);

	ck_assert_int_eq(program_numbers("log-0", "epoch", "train_loss", wanted, 8), 2);
	ck_assert_int_ge(count, 2);
	for (int i = 0; i < 2; i++)
		ck_assert_double_eq_tol(got[count - 2 + i], wanted[i], 1e-12 * wanted[i]);
}

/*
 * A checkpoint, and a stop by a signal, include the steps that are in progress at that moment. A
 * killed run resumes from a checkpoint between steps, a stopped run from its last step.
 */
TEST_LOOP(test_stopped, 0, 2)
{
	static const char line[] =
		GRAPHS ON_GPUS "-c state --checkpoint-steps 4 -m model.st --log-json log";

	on_one_gpu();
	program_run(&program, 0, GRAPHS ON_GPUS "-q -m reference.st --log-json log-0");
	program_start(&program, line);
	program_await("state", "checkpoint-0000000004.safetensors", 1);
	kill(program.pid, _i == 0 ? SIGTERM : SIGKILL);
	program_wait(&program);
	ck_assert_msg(program.status == (_i == 0 ? 3 : -SIGKILL), "ended with %d:\n%s%s",
		      program.status, program.output, program.errors);
	ck_assert(_i == 1 || strstr(program.output, "stopped by SIGTERM at step "));
	program_run(&program, 0, "%s", line);
	check("stopped and continued");
	check_train_losses();
}

enum { SCALED_STEPS = 8 };

/* Returns the number of metadata [key] in the checkpoint of step [step]. */
static double metadata(int step, const char *key)
{
	struct ddp_tensors *file;
	char path[64];
	double number;

	snprintf(path, sizeof(path), "state/checkpoint-%010d.safetensors", step);
	ck_assert_int_eq(ddp_tensors_open(&file, path, NULL), 0);
	ck_assert_ptr_nonnull(ddp_tensors_metadata(file, key));
	number = strtod(ddp_tensors_metadata(file, key), NULL);
	ddp_tensors_close(file);
	return number;
}

/* A checkpoint between two steps counts all steps before it. */
TEST(test_checkpoint_between_steps)
{
	on_one_gpu();
	program_run(&program, 0, GRAPHS ON_GPUS "-q -c state --steps 6 --checkpoint-steps 5");
	ck_assert_double_eq(metadata(5, "train.updates"), 5);
	ck_assert_double_eq(metadata(6, "train.updates"), 6);
}

/*
 * The loss scale is on the device. A checkpoint has the scale after the last step. With batches of
 * one sample, gradients overflow at the first scale, so that steps are skipped and halve it.
 */
TEST(test_skipped)
{
	static const char line[] = "mnist --samples 8 -e 1 -b 1 -n 1 -t 1 --test-batch 4 -o sgd "
				   "--amp fp16 -q -m model.st --log-json log " ON_GPUS;
	double updates;

	on_one_gpu();
	program_run(&program, 0, "%s", line);
	ck_assert_int_eq(rename("model.st", "reference.st"), 0);
	ck_assert_int_eq(rename("log", "log-0"), 0);
	program_run(&program, 0, "%s -c state --steps 1", line);
	program_run(&program, 0, "%s -c state", line);
	check("continued after a skipped step");
	updates = metadata(SCALED_STEPS, "train.updates");
	ck_assert(updates > 0 && updates < SCALED_STEPS);
	ck_assert_double_eq(metadata(SCALED_STEPS, "train.scale"),
			    65536 / pow(2, SCALED_STEPS - updates));
}

/* As long as no GPU has run this release, a training on GPUs begins with the first line. */
TEST(test_first_lines)
{
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	setenv("DDP_EMULATED_SLOW", "conv2, gradient of weights", 1);
	program_run(&program, 0, "mnist --samples 16 -b 4 -n 1 --steps 1 --engine cuda");
	ck_assert_msg(strncmp(program.output,
			      "engine cuda: this release has not been run on a GPU. ", 53) == 0,
		      "%s", program.output);
	UNIT_SAYS(
		"start", program.output, "CUDA 13.0", "sm_90", "GPU 0, emulated",
		"\nplans of convolutions chosen in ",
		"\ncuDNN has only a slow engine for conv2, gradient of weights. Lower --batch.\n");
}

static void begin_all(void)
{
	program_begin();
	ck_assert_int_eq(mkdir("modules", 0700), 0);
	program_borrow(HOST_MODULES "/ddp_gpu.so", "modules/ddp_gpu.so");
	program_modules("emulated_cuda");
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, program_end);
	tcase_add_checked_fixture(tcase, program_enter, NULL);
}

UNIT_MAIN("emulated", fill)
