/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gpu_choice.c - the engine, devices and number of ranks that ddp-train chooses
 *
 * The GPU engine is the module fake_cuda.c, which computes with the CPU engine. So the results must
 * be the CPU engine's.
 */
#include "config.h"

#include <dlfcn.h>

#include "program.h"

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
	snprintf(path, sizeof(path), "%s/driver", program_directory);
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3", 1);
	setenv("FAKE_DEVICES", "4", 1);
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
	 "warning: computing on CPUs: rank 0 on |: no GPU is visible. |--gres=gpu:1"},
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
	 "cpu: ", "computing on CPUs: rank 0 on |: this node has no driver for GPUs"},
	{"no driver, CUDA_VISIBLE_DEVICES unset", "LD_LIBRARY_PATH= -CUDA_VISIBLE_DEVICES",
	 SHORT "-n 2", 0, "cpu: ", "!computing on CPUs"},
	{"no driver, --engine cuda", "DDP_MODULES=/nowhere", SHORT "--engine cuda", 67, NULL,
	 "--engine cuda: there is no engine cuda: |Install it"},
	{"a share that is not one", "DDP_SHARE=0.5x", SHORT "-n 2", 2, NULL, "DDP_SHARE"},
	{"self-test", NULL, "mnist --self-test", 0, "self-test passed: GPU 0, |; mnist f32 | bf16 ",
	 NULL},
	{"self-test without a GPU", "CUDA_VISIBLE_DEVICES=", "mnist --self-test", 1, NULL,
	 "self-test of mnist on cuda with --amp off failed|--engine cuda: "},
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
	{"default precision", NULL, SHORT "-n 1", 0, "fake, tf32", NULL},
	{"only f32", NULL, SHORT "-n 1 --amp off", 0, "fake|!tf32", NULL},
	{"precision", NULL, SHORT "-n 1 --amp tf32 --deterministic", 0,
	 "fake, tf32, deterministic, exact", NULL},
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
	if (choices[_i].status > 1)
		ck_assert_msg(program_is_one_line(program.errors), "%s: not one line:\n%s",
			      choices[_i].name, program.errors);
}

/* A process that was started with SIGCHLD ignored can count GPUs too. */
TEST(test_ignored)
{
	FILE *script = fopen("ignoring", "w");

	ck_assert_ptr_nonnull(script);
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

/* A run moves from the CPU to the GPU and back. */
TEST(test_moved)
{
	static const char training[] =
		"mnist --deterministic --samples 64 -e 1 -b 8 -t 1 -n 2 -m model.st";

	program_run(&program, 0, "%s -q --engine cpu", training);
	ck_assert_int_eq(rename("model.st", "reference.st"), 0);
	program_run(&program, 0, "%s -q --engine cpu -c state --steps 1", training);
	program_run(&program, 0, "%s --engine cuda -c state --steps 2", training);
	ck_assert_ptr_nonnull(strstr(program.output, ", cuda engine (was cpu)"));
	program_run(&program, 0, "%s --engine cpu -c state", training);
	ck_assert_ptr_nonnull(strstr(program.output, ", cpu engine (was cuda)"));
	ck_assert(program_same_file("model.st", "reference.st"));
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, program_end);
	tcase_add_checked_fixture(tcase, program_enter, NULL);
}

UNIT_MAIN("gpu choice", fill)
