/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lag.c - the trainer with an engine that reports steps late, and with ranks that lack the
 * engine
 *
 * The engine is the module fake_cuda.c, which computes with the CPU engine. So the results must be
 * the CPU engine's.
 */
#include "config.h"

#include <ddp.h>
#include <dlfcn.h>
#include <math.h>

#include "program.h"

/* Each of 2 epochs has 10 steps of 32 samples. Every step has another learning rate. */
#define TRAINING "mnist --deterministic --samples 320 -e 2 --global-batch 32 -t 1 --warmup 2"
#define LONG_TRAINING "mnist --deterministic --samples 640 -e 2 --global-batch 32 -t 1 --warmup 2"

enum { STEPS = 64, ALL_STEPS = 20 };

static struct program program; /* too large for a stack */

/* --- Test directory with a fake GPU ----------------------------------------------------------- */

/* Links the device modules that use host memory. The directory "bare" has no ddp_gpu.so. */
static void make_host_modules(void)
{
	ck_assert_int_eq(mkdir("bare", 0700), 0);
	program_borrow(HOST_MODULES "/ddp_nccl.so", "bare/ddp_nccl.so");
	program_borrow(HOST_MODULES "/ddp_nccl.so", "modules/ddp_nccl.so");
	program_borrow(HOST_MODULES "/ddp_gpu.so", "modules/ddp_gpu.so");
	setenv("DDP_HOST_GPU", "a", 1);
}

/* Links all modules. The fake engine is linked both as the GPU engine and as the driver library. */
static void make_modules(void)
{
	program_begin();
	ck_assert_int_eq(mkdir("modules", 0700), 0);
	ck_assert_int_eq(mkdir("driver", 0700), 0);
	make_host_modules();
	program_modules("fake_cuda");
	program_borrow("modules/ddp_cuda.so", "driver/libcuda.so.1");
}

static void begin_all(void)
{
	char path[PATH_MAX];

	make_modules();
	program_run(&program, 0,
		    TRAINING " --engine cpu -n 2 -q -m reference.st --log-every 1 "
			     "--log-json reference.json");
	snprintf(path, sizeof(path), "%s/driver", program_directory);
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3", 1);
	setenv("FAKE_DEVICES", "4", 1);
	program_run(&program, 0, TRAINING " --engine cuda -n 2 -q --steps 1");
}

/* Creates a directory for this test, beside the directory of the reference run. */
static void begin(void)
{
	char name[] = "test-XXXXXX";

	ck_assert_int_eq(chdir(program_directory), 0);
	ck_assert_ptr_nonnull(mkdtemp(name));
	ck_assert_int_eq(chdir(name), 0);
}

static void check_model(const char *what, const char *reference)
{
	ck_assert_msg(program_same_file("model.st", reference), "%s: the weights differ from %s",
		      what, reference);
}

/* --- Late results ----------------------------------------------------------------------------- */

static const struct {
	const char *name, *lag, *burst;
} lags[] = {
	{"no lag", "0", "1"},
	{"some steps at once", "5", "3"},
	{"eight steps behind", "8", "1"},
	{"one step behind", "1", "1"},
};

static void set_lag(int row)
{
	setenv("FAKE_LAG", lags[row].lag, 1);
	setenv("FAKE_BURST", lags[row].burst, 1);
}

/*
 * Compares numbers of the test's log with [reference], the log of a run outside the test's
 * directory.
 */
static void check_numbers_of(const char *reference, const char *what, const char *event,
			     const char *key, int want)
{
	double wanted[STEPS], got[STEPS];

	ck_assert_int_eq(program_numbers(reference, event, key, wanted, STEPS), want);
	unit_number(what, key, program_numbers("log", event, key, got, STEPS), want);
	for (int i = 0; i < want; i++)
		ck_assert_msg(fabs(got[i] - wanted[i]) <= 1e-12 * fabs(wanted[i]),
			      "%s, %s %d: %s is %.17g, not %.17g", what, event, i + 1, key, got[i],
			      wanted[i]);
}

static void check_numbers(const char *what, const char *event, const char *key, int want)
{
	check_numbers_of("../reference.json", what, event, key, want);
}

/* Each line of the log, and each sum, equals the same line or sum of an engine without lag. */
TEST_LOOP(test_sums, 0, unit_rows(2, ROWS(lags)))
{
	set_lag(_i);
	program_run(&program, 0,
		    TRAINING " --engine cuda -n 2 -q -m model.st --log-every 1 --log-json log");
	check_model(lags[_i].name, "../reference.st");
	check_numbers(lags[_i].name, "step", "total", ALL_STEPS);
	check_numbers(lags[_i].name, "step", "step", ALL_STEPS);
	check_numbers(lags[_i].name, "step", "loss", ALL_STEPS);
	check_numbers(lags[_i].name, "step", "top1", ALL_STEPS);
	check_numbers(lags[_i].name, "epoch", "train_loss", 2);
	check_numbers(lags[_i].name, "epoch", "train_top1", 2);
	check_numbers(lags[_i].name, "epoch", "test_loss", 2);
	check_numbers(lags[_i].name, "end", "samples", 1);
}

/* Lines at timed intervals include only finished steps, and every step is in one line. */
TEST_LOOP(test_intervals, 0, unit_rows(2, ROWS(lags)))
{
	double totals[STEPS], samples[STEPS], losses[STEPS], each[STEPS], all = 0, before = 0;
	double rates[STEPS], wanted[STEPS];
	int intervals;

	set_lag(_i);
	program_run(&program, 0, TRAINING " --engine cuda -n 2 -q --log-json log");
	intervals = program_numbers("log", "step", "total", totals, STEPS);
	ck_assert_int_eq(program_numbers("log", "step", "samples", samples, STEPS), intervals);
	ck_assert_int_eq(program_numbers("log", "step", "loss", losses, STEPS), intervals);
	ck_assert_int_eq(program_numbers("log", "step", "lr", rates, STEPS), intervals);
	program_numbers("../reference.json", "step", "loss", each, STEPS);
	program_numbers("../reference.json", "step", "lr", wanted, STEPS);
	for (int i = 0; i < intervals; i++) {
		double loss = 0;

		for (int step = (int)before; step < (int)totals[i]; step++)
			loss += each[step] / (totals[i] - before);
		ck_assert_msg(fabs(losses[i] - loss) <= 1e-9 * loss,
			      "%s, line %d of steps %g to %g: loss %.17g, not %.17g", lags[_i].name,
			      i + 1, before + 1, totals[i], losses[i], loss);
		ck_assert(samples[i] == 32 * (totals[i] - before));
		ck_assert_msg(rates[i] == wanted[(int)totals[i] - 1],
			      "%s, line %d: the rate of step %g is logged as %g, not %g",
			      lags[_i].name, i + 1, totals[i], rates[i],
			      wanted[(int)totals[i] - 1]);
		before = totals[i];
		all += samples[i];
	}
	ck_assert(all == 2 * 320);
	check_numbers(lags[_i].name, "epoch", "train_loss", 2);
}

/* --- Stopping and resuming -------------------------------------------------------------------- */

/* A checkpoint, and a stop by a signal, include the steps that are in progress at that moment. */
TEST_LOOP(test_stopped, 1, unit_rows(2, 3))
{
	/* long enough that the signal arrives before the end */
	static const char line[] = LONG_TRAINING
		" --engine cuda -n 2 -c state --checkpoint-steps 4 -m model.st --progress off";
	pid_t ranks[4];

	set_lag(0);
	if (access("../long.st", F_OK) < 0)
		program_run(&program, 0,
			    LONG_TRAINING " --engine cuda -n 2 -q -m ../long.st "
					  "--log-json ../long.json");
	set_lag(_i);
	program_start(&program, line);
	program_await("state", "checkpoint-0000000004.safetensors", 1);
	ck_assert_int_eq(program_children(program.pid, ranks, 4), 2);
	kill(ranks[1], SIGTERM);
	program_wait(&program);
	ck_assert_msg(program.status == 3, "ended with %d:\n%s%s", program.status, program.output,
		      program.errors);
	ck_assert_ptr_nonnull(strstr(program.output, "stopped by SIGTERM at step "));
	program_run(&program, 0, "%s --log-json log", line);
	check_model(lags[_i].name, "../long.st");
	check_numbers_of("../long.json", lags[_i].name, "epoch", "train_loss", 2);
}

/* Reads the metadata [key] of the newest checkpoint in "state". */
static void metadata(const char *path, const char *key, char *value, size_t size)
{
	struct ddp_tensors *file;
	const char *text;

	ck_assert_int_eq(ddp_tensors_open(&file, path, NULL), 0);
	text = ddp_tensors_metadata(file, key);
	snprintf(value, size, "%s", text ? text : "(none)");
	ddp_tensors_close(file);
}

/* The loss scale is on the device. A checkpoint has the scale after the last step. */
TEST_LOOP(test_skipped, 1, 2)
{
	static const char training[] =
		TRAINING " --engine cuda --amp fp16 -n 2 -q -c state -m model.st";
	static const char last[] = "state/checkpoint-0000000020.safetensors";
	char value[64];

	set_lag(0);
	if (access("../skipped.st", F_OK) < 0)
		program_run(&program, 0,
			    TRAINING " --engine cuda --amp fp16 -n 2 -q -m ../skipped.st");
	ck_assert(!program_same_file("../skipped.st", "../reference.st"));
	set_lag(_i);
	for (int steps = 7; steps < ALL_STEPS; steps += 7)
		program_run(&program, 0, "%s --steps %d", training, steps);
	program_run(&program, 0, "%s", training);
	check_model(lags[_i].name, "../skipped.st");
	metadata(last, "train.updates", value, sizeof(value));
	unit_text(lags[_i].name, "updates", value, "16"); /* four of five steps */
	metadata(last, "train.good-steps", value, sizeof(value));
	unit_text(lags[_i].name, "good steps", value, "0");
	metadata(last, "train.scale", value, sizeof(value));
	unit_text(lags[_i].name, "scale", value, "4096"); /* 65536 halved four times */
}

/* A run moves from the CPU to the GPU and back. */
TEST_LOOP(test_moved, 1, 2)
{
	set_lag(_i);
	program_run(&program, 0, TRAINING " --engine cpu -n 2 -q -c state --steps 7");
	program_run(&program, 0, TRAINING " --engine cuda -n 2 -c state --steps 14");
	ck_assert_ptr_nonnull(strstr(program.output, ", cuda engine (was cpu)"));
	program_run(&program, 0, TRAINING " --engine cpu -n 2 -c state -m model.st");
	ck_assert_ptr_nonnull(strstr(program.output, ", cpu engine (was cuda)"));
	check_model(lags[_i].name, "../reference.st");
}

/* --- Choice of the engine ---------------------------------------------------------------------- */

#define SHORT "mnist --deterministic --samples 64 -e 1 -t 1 "

static const struct {
	const char *name;
	const char *env; /* "NAME=VALUE" sets, "-NAME" unsets a variable */
	const char *line;
	int status;
	const char *out, *err; /* expected pieces; a piece after "!" must be missing */
} choices[] = {
	{"all have one", NULL, SHORT "-n 2", 0,
	 "2 ranks on 1 node, cuda: fake|GPU 0, Fake 9000 |GPU 1, Fake 9000 |12.1 GiB",
	 "!computing on CPUs"},
	{"one has none", "FAKE_NONE=1", SHORT "-n 2", 0,
	 "cpu: ", "warning: computing on CPUs: rank 1 on |: the driver is for CUDA 9.2"},
	{"one has none, and must", "FAKE_NONE=1", SHORT "-n 2 --engine cuda", 67, NULL,
	 "--engine cuda: rank 1 on |: the driver is for CUDA 9.2"},
	{"none is visible", "CUDA_VISIBLE_DEVICES=", SHORT "-n 2", 0, NULL,
	 "warning: computing on CPUs: rank 0 on |: no GPU is visible: |--gres=gpu:1"},
	{"less than the list says", "FAKE_DEVICES=1", SHORT "-n 2 --engine cuda", 67, NULL,
	 "rank 1 on |this rank's GPU is number 1, but only 1 is visible|is 0,1,2,3"},
	{"one for two", "CUDA_VISIBLE_DEVICES=3", SHORT "-n 2", 0,
	 "2 ranks share GPU 0, 50 % of its memory each, by time-slicing|2 ranks on 1 node, cuda: fake|share 0.500",
	 "!computing on CPUs"},
	{"three for two with a share", "CUDA_VISIBLE_DEVICES=0,1 DDP_SHARE=0.5", SHORT "-n 3 -b 4",
	 0, "2 ranks share GPU 0, 25 % of its memory each, by time-slicing|share 0.250", NULL},
	{"one for two without shared memory", "CUDA_VISIBLE_DEVICES=3 DDP_LOCAL=off", SHORT "-n 2",
	 0, "2 ranks share GPU 0|2 ranks on 1 node, cuda: fake", "!computing on CPUs"},
	{"one for two, one rank without ddp_gpu.so", "CUDA_VISIBLE_DEVICES=3 FAKE_BARE=1",
	 SHORT "-n 2", 0, "2 ranks on 1 node, cpu: |!2 ranks share",
	 "computing on CPUs: rank 1 on |ddp_gpu.so"},
	{"one for two, one rank without ddp_gpu.so, --engine cuda",
	 "CUDA_VISIBLE_DEVICES=3 FAKE_BARE=0", SHORT "-n 2 --engine cuda", 67, NULL,
	 "--engine cuda: rank 0 on |ddp_gpu.so"},
	{"one for three, one rank cannot open it", "CUDA_VISIBLE_DEVICES=3 DDP_HOST_FAIL=open:1:1",
	 SHORT "-n 3 -b 4", 0,
	 "3 ranks on 1 node, cpu: ", "computing on CPUs: rank 1 on |open() fails, as asked"},
	{"one for three, one rank cannot open it, --engine cuda",
	 "CUDA_VISIBLE_DEVICES=3 DDP_HOST_FAIL=open:2:1", SHORT "-n 3 -b 4 --engine cuda", 67, NULL,
	 "--engine cuda: rank 2 on |open() fails, as asked"},
	{"one for each rank, none shared", "FAKE_BARE=1", SHORT "-n 2 --engine cuda", 0,
	 "2 ranks on 1 node, cuda: fake", NULL},
	{"one for one", "CUDA_VISIBLE_DEVICES=3", SHORT, 0, "1 rank|cuda: fake", NULL},
	{"--engine cpu", NULL, SHORT "-n 2 --engine cpu", 0, "cpu: |!computing on", NULL},
	{"broken for one", "FAKE_DEVICES=0", SHORT "--engine cuda", 67, NULL,
	 "--engine cuda: all GPUs are broken"},
	{"no driver, CUDA_VISIBLE_DEVICES set", "LD_LIBRARY_PATH=", SHORT "-n 2", 0,
	 "cpu: ", "computing on CPUs: rank 0 on |: no driver for GPUs"},
	{"no driver, CUDA_VISIBLE_DEVICES unset", "LD_LIBRARY_PATH= -CUDA_VISIBLE_DEVICES",
	 SHORT "-n 2", 0, "cpu: ", "!computing on CPUs"},
	{"no driver, --engine cuda", "DDP_MODULES=/nowhere", SHORT "--engine cuda", 67, NULL,
	 "--engine cuda: no engine cuda: |install it"},
	{"a precision that CPUs do not support", "FAKE_NONE=1", SHORT "-n 2 --amp fp16", 67, NULL,
	 "a CPU trains in f32 or bf16|computing on CPUs: rank 1 on |CUDA 9.2"},
	/* Rows about the number of ranks. */
	{"one rank for each GPU", NULL, SHORT, 0, "4 ranks on 1 node, cuda: fake", NULL},
	{"one rank for each visible GPU", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", SHORT "-n all", 0,
	 "2 ranks on 1 node, cuda: fake", NULL},
	{"three visible GPUs, the batch is divided by two", "CUDA_VISIBLE_DEVICES=1,2,3", SHORT, 0,
	 "2 ranks on 1 node, cuda: fake|64 samples a step", NULL},
	{"three visible GPUs, batch per rank", "CUDA_VISIBLE_DEVICES=1,2,3", SHORT "-n all -b 16",
	 0, "3 ranks on 1 node, cuda: fake|48 samples a step", NULL},
	{"one rank, as a process has one MIG slice", "CUDA_VISIBLE_DEVICES=MIG-a,MIG-b",
	 SHORT "-n all", 0, "1 rank on 1 node, cuda: fake|GPU 0, Fake 9000 |!GPU 1", NULL},
	/* A job without GPUs must not use the node's GPUs, which belong to other jobs. */
	{"a job without GPUs", "SLURM_JOB_ID=5 -CUDA_VISIBLE_DEVICES", SHORT, 0, "!cuda",
	 "computing on CPUs: |no GPU is visible"},
	/* Rows about the engine's options. */
	{"default precision", NULL, SHORT "-n 1", 0, "fake, 0 behind, tf32", NULL},
	{"only f32", NULL, SHORT "-n 1 --amp off", 0, "fake, 0 behind|!tf32", NULL},
	{"precision", NULL, SHORT "-n 1 --amp tf32 --deterministic", 0,
	 "fake, 0 behind, tf32, deterministic, exact", NULL},
};

static void check_pieces(const char *what, const char *text, const char *pieces)
{
	char copy[512];

	snprintf(copy, sizeof(copy), "%s", pieces ? pieces : "");
	for (char *piece = strtok(copy, "|"); piece; piece = strtok(NULL, "|")) {
		bool want = *piece != '!';

		ck_assert_msg((strstr(text, piece + !want) != NULL) == want,
			      "%s: \"%s\" is %s:\n%s", what, piece + !want,
			      want ? "missing" : "there", text);
	}
}

TEST_ROWS(test_choice, choices)
{
	struct unit_words words;

	set_lag(0);
	for (char **env = unit_words(&words, choices[_i].env ? choices[_i].env : ""); *env; env++)
		if (**env == '-')
			unsetenv(*env + 1);
		else
			putenv(*env);
	if (strncmp(choices[_i].name, "no driver", 9) == 0 && dlopen("libcuda.so.1", RTLD_LAZY))
		return; /* this machine has a driver */
	program_run(&program, choices[_i].status, "%s", choices[_i].line);
	check_pieces(choices[_i].name, program.output, choices[_i].out);
	check_pieces(choices[_i].name, program.errors, choices[_i].err);
	if (choices[_i].status != 0)
		ck_assert_msg(program_is_one_line(program.errors), "%s: not one line:\n%s",
			      choices[_i].name, program.errors);
}

/* A process that was started with SIGCHLD ignored can count GPUs too. */
TEST(test_ignored)
{
	FILE *script = fopen("ignoring", "w");

	ck_assert_ptr_nonnull(script);
	set_lag(0);
	fprintf(script, "#!/bin/sh\nexec env --ignore-signal=CHLD '%s' \"$@\"\n", program_path);
	ck_assert_int_eq(fchmod(fileno(script), 0700), 0);
	ck_assert_int_eq(fclose(script), 0);
	snprintf(program_path, sizeof(program_path), "./ignoring");
	program_run(&program, 0, SHORT);
	ck_assert_msg(strstr(program.output, "4 ranks on 1 node, cuda: fake"), "%s",
		      program.output);
}

/* If a rank is lost, that is an error, and ddp-train does not fall back to CPUs. */
TEST(test_lost)
{
	set_lag(0);
	setenv("CUDA_VISIBLE_DEVICES", "3", 1);
	setenv("FAKE_LOST", "1", 1);
	program_run(&program, 128 + SIGKILL, SHORT "-n 3 -b 4");
	ck_assert_msg(strstr(program.errors, "rank 1 was killed by signal 9") &&
			      strstr(program.errors, "ddp[0@"),
		      "%s", program.errors);
	ck_assert_msg(!strstr(program.output, "cpu: ") &&
			      !strstr(program.errors, "computing on CPUs"),
		      "%s%s", program.output, program.errors);
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, program_end);
	tcase_add_checked_fixture(tcase, begin, NULL);
}

UNIT_MAIN("lag", fill)
