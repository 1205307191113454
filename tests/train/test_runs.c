/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_runs.c - whole trainings by ddp-train
 *
 * The results do not depend on the number of ranks or on kills. A signal stops a run, which can
 * then be resumed. An error is one line. The convolutions are direct, because otherwise the rule
 * chooses algorithms also by the batch of a rank.
 */
#include "config.h"

#include <ddp.h>
#include <endian.h>
#include <math.h>
#include <sched.h>
#include <sys/resource.h>

#include "program.h"

/* Each of 2 epochs has 10 steps of 16 samples. */
#define TRAINING "mnist --deterministic --samples 160 -e 2 --global-batch 16 -t 1"
#define LONG_TRAINING "mnist --deterministic --samples 480 -e 2 --global-batch 16 -t 1"

static struct program program; /* too large for a stack */

static uint64_t state; /* state of the random number generator */

/* --- Reference run ---------------------------------------------------------------------------- */

static int milliseconds; /* duration of the reference run */

static void begin_all(void)
{
	struct timespec begin, end;

	state = unit_seed((uint64_t)time(NULL));
	program_begin();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	program_run(&program, 0,
		    TRAINING " -n 2 -q -m reference.st "
			     "--log-every 1 --log-json reference.json");
	clock_gettime(CLOCK_MONOTONIC, &end);
	milliseconds =
		(int)((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
}

/* Kills the launcher. Its directory stays in TMPDIR. */
static bool is_launcher_killed;
static void kill_launcher(void)
{
	kill(program.pid, SIGKILL);
	is_launcher_killed = true;
}

static void end(void)
{
	if (is_launcher_killed)
		ck_assert_int_eq(system("rm -rf ../ddp-train-*"), 0);
	ck_assert_int_eq(program_count_files(program_directory, "ddp-train-"), 0);
}

static void check_reference(const char *what, const char *reference)
{
	char best[64];

	snprintf(best, sizeof(best), "%s.best", reference);
	ck_assert_msg(program_same_file("model.st", reference),
		      "%s: the weights are not those of the undisturbed run", what);
	ck_assert_msg(program_same_file("model.st.best", best),
		      "%s: the best weights are not those of the undisturbed run", what);
}

/* Fails unless stderr of the last run is one line, which contains [piece]. */
static void check_one_line(const char *piece)
{
	const char *text = program.errors;

	ck_assert_msg(program_is_one_line(text) && strstr(text, piece),
		      "not one line with \"%s\":\n%s", piece, text);
}

/* --- Output of a run ------------------------------------------------------------------------ */

enum { STEPS = 64 };

/* Returns the distance of two models' weights, relative to their size. */
static double difference(const char *one, const char *two)
{
	struct ddp_tensors *files[2];
	const struct ddp_tensor *list;
	double apart = 0, all = 0;
	size_t count;

	ck_assert_int_eq(ddp_tensors_open(&files[0], one, NULL), 0);
	ck_assert_int_eq(ddp_tensors_open(&files[1], two, NULL), 0);
	list = ddp_tensors_list(files[0], &count);
	ck_assert_uint_eq(count, 8);
	for (size_t i = 0; i < count; i++) {
		const float *a = list[i].data, *b = ddp_tensors_find(files[1], list[i].name)->data;

		for (uint64_t k = 0; k < ddp_tensor_count(&list[i]); k++) {
			apart += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
			all += (double)a[k] * (double)a[k];
		}
	}
	ddp_tensors_close(files[0]);
	ddp_tensors_close(files[1]);
	return sqrt(apart / all);
}

/* --- The number of ranks ---------------------------------------------------------------------- */

/*
 * Sums in another order differ by rounding. If two pixels of a max-pool differ by no more than
 * that, the gradient goes to the other pixel. Here this happens to a few pixels in a million, and
 * changes a layer's weights by less than a ten-thousandth. Adadelta is not used, because its first
 * steps are equally large for the smallest gradients: in five steps one such pixel changes the loss
 * by a thousandth (seen with oneDNN 3.7). Losses differ by 5e-5 at step 20 on AMD EPYC with oneDNN
 * 2.6.
 */
TEST(test_ranks)
{
	double losses[3][STEPS];

	for (int i = 0; i < 3; i++) {
		char path[32];

		snprintf(path, sizeof(path), "log-%d", i);
		program_run(&program, 0,
			    TRAINING " --optimizer sgd --lr 0.03 --steps 20 --log-every 1 -n %d -q "
				     "--log-json %s -m model-%d",
			    1 << i, path, i);
		ck_assert_int_eq(program_numbers(path, "step", "loss", losses[i], STEPS), 20);
	}
	for (int i = 1; i < 3; i++) {
		for (int step = 0; step < 20; step++)
			ck_assert_msg(fabs(losses[i][step] / losses[0][step] - 1) < 1e-4,
				      "step %d: loss %.9g with %d ranks, %.9g with 1", step + 1,
				      losses[i][step], 1 << i, losses[0][step]);
		ck_assert_double_lt(difference("model-0", i == 1 ? "model-1" : "model-2"), 1e-3);
	}
	/* The loss must decrease. */
	ck_assert_double_lt(losses[0][19], 0.9 * losses[0][0]);
}

/* Without -n the ranks divide --batch, so results do not depend on the number of ranks. */
TEST(test_shared)
{
	double batch[2];

	program_run(&program, 0, "mnist --samples 64 -e 1 -b 32 -q --log-json log");
	ck_assert_int_eq(program_numbers("log", "run", "batch", batch, 2), 1);
	ck_assert(batch[0] == 32);
	program_run(&program, 0, "mnist --samples 64 -e 1 -b 16 -n 2 -q --log-json log2");
	ck_assert_int_eq(program_numbers("log2", "run", "batch", batch, 2), 1);
	ck_assert(batch[0] == 32);
}

/* With virtual ranks, --batch is that of a virtual rank also without -n. */
TEST(test_shared_virtual)
{
	double batch[2];

	program_run(&program, 0,
		    "mnist --samples 64 -e 1 -b 4 --virtual-ranks 6 -q --log-json log");
	ck_assert_int_eq(program_numbers("log", "run", "batch", batch, 2), 1);
	ck_assert(batch[0] == 24);
}

/* The progress goes to a stderr that is a file, not a terminal. */
TEST(test_progress)
{
	static const char *const words[] = {"auto", "on", "off"};

	for (int i = 0; i < 3; i++) {
		program_run(&program, 0, "mnist --samples 64 -e 1 -b 32 -n 1 --progress %s",
			    words[i]);
		ck_assert_msg((strchr(program.errors, '\r') != NULL) == (i == 1), "%s: %s",
			      words[i], program.errors);
	}
}

TEST(test_again)
{
	program_run(&program, 0, TRAINING " -n 2 -q -m model.st");
	check_reference("the same again", "../reference.st");
}

/*
 * Algorithms of convolutions are chosen by a rule: nothing is timed before the first step or stored
 * in the user's directory, and a resume has the bits of the whole run.
 */
TEST(test_algorithms)
{
	static const char training[] = "mnist --samples 160 -e 2 --global-batch 16 -t 1 -n 2";
	char home[PATH_MAX];

	ck_assert_int_eq(mkdir("home", 0700), 0);
	ck_assert_int_eq(setenv("HOME", realpath("home", home), 1), 0);
	unsetenv("XDG_CACHE_HOME");
	program_run(&program, 0, "%s -m whole.st", training);
	ck_assert_msg(!strstr(program.output, "timing"), "%s", program.output);
	program_run(&program, 0, "%s -q -c state --steps 7", training);
	program_run(&program, 0, "%s -q -c state -m model.st", training);
	check_reference("a resume", "whole.st");
	ck_assert_int_eq(rmdir("home"), 0);
}

/*
 * An epoch whose loss or weights are not finite cannot be the best epoch. The run reports such an
 * epoch in a warning, in the last line and in the exit status.
 */
TEST(test_diverged)
{
	static const char line[] =
		"mnist --deterministic --samples 160 -b 8 -n 2 -c state -m model.st -q ";

	program_run(&program, 0, "%s-e 1", line);
	ck_assert_int_eq(rename("model.st.best", "first.st"), 0);
	program_run(&program, 4, "%s-e 3 --lr 1e38 --log-json log --checkpoint-steps 3", line);
	ck_assert(program_same_file("model.st.best", "first.st"));
	ck_assert_ptr_nonnull(
		strstr(program.output, "\nended early, but the loss or a weight is not finite: "));
	ck_assert_ptr_nonnull(strstr(program.output, ", after epoch 1\n"));
	check_one_line("ddp-train: warning: the loss or a weight is not finite any more, at step ");
	program_run(&program, 78, "mnist --samples 64 -n 2 -i model.st");
	check_one_line("--init model.st has a weight that is not finite (nan or inf). Give "
		       "another file.\n");
	program_read("log", program.output);
	ck_assert_ptr_nonnull(strstr(program.output, " or --clip.\", \"warning\": true"));
	ck_assert_ptr_null(strstr(program.output, "\"best\": true"));
	/*
	 * The newest checkpoint is the last one with finite weights. From it a run with a smaller
	 * rate resumes.
	 */
	program_run(&program, 0, "%s-e 3 --log-json log", line);
	program_read("log", program.output);
	ck_assert_ptr_nonnull(strstr(program.output, "resumed from the checkpoint of step 10 in "));
}

/* Without srun, only one node of a job is used, which the user may not expect. */
TEST(test_one_of_two_nodes)
{
	setenv("SLURM_JOB_ID", "5", 1);
	setenv("SLURM_JOB_NUM_NODES", "2", 1);
	program_run(&program, 0, "mnist --samples 64 -e 2 -b 64 -n 2 -t 1");
	check_one_line(
		"ddp-train: warning: this job has 2 nodes, and the training uses only one. ");
	ck_assert_ptr_nonnull(strstr(program.output, "\n2 epochs of 1 step, 64 samples a step\n"));
	unsetenv("SLURM_JOB_NUM_NODES");
	program_run(&program, 0, "mnist --samples 64 -e 2 -b 64 -n 2 -t 1");
	ck_assert_str_eq(program.errors, "");
}

/* Samples that are repeated to fill the end of an epoch are not counted. */
TEST_LOOP(test_samples, 1, unit_rows(3, 6))
{
	double number[2];

	program_run(&program, 0, "mnist --samples %d -n 2 -e 2 -q --log-json log", _i);
	ck_assert_int_eq(program_numbers("log", "run", "batch", number, 2), 1);
	ck_assert_double_eq(number[0], _i);
	ck_assert_int_eq(program_numbers("log", "epoch", "samples", number, 2), 2);
	ck_assert_double_eq(number[1], _i);
	ck_assert_int_eq(program_numbers("log", "end", "samples", number, 2), 1);
	ck_assert_double_eq(number[0], 2 * _i);
}

TEST(test_drawn_memory)
{
	program_run(&program, 76, "cifar -n 2 --samples 1000000000");
	check_one_line("the images of --samples 1,000,000,000, ");
	ck_assert_ptr_nonnull(strstr(program.errors, " of memory, but "));
	program_run(&program, 77, "mnist -n 2 --samples 1300000 -i nowhere");
	ck_assert_ptr_nonnull(strstr(program.output, "drawn images take up to 11"));
}

TEST(test_too_many_threads)
{
	cpu_set_t set;
	int cpus;

	sched_getaffinity(0, sizeof(set), &set);
	cpus = CPU_COUNT(&set);
	program_run(&program, 0, "mnist --samples 64 -e 1 -q -n 1 -t %d", cpus);
	ck_assert_str_eq(program.errors, "");
	program_run(&program, 0, "mnist --samples 64 -e 1 -q -n %d", cpus + 1);
	check_one_line(" ranks share ");
}

/* A rank has no more threads than CPUs. The table has the number of threads that compute. */
TEST_LOOP(test_threads, 0, 3)
{
	static const char *const options[] = {"-t 4", "", "-t 4 --virtual-ranks 2"};
	static const char *const threads[] = {"1", "1", "4"};
	char text[64];
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (size_t cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && found++ > 0)
			CPU_CLR(cpu, &set);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
	setenv("OMP_NUM_THREADS", "3", 1);
	program_run(&program, 0, "mnist --samples 64 -e 1 -n 1 --log-json log %s", options[_i]);
	ck_assert(!strstr(program.output, "rank 0 uses 1 thread instead of ") == (_i == 2));
	program_read("log", program.output);
	snprintf(text, sizeof(text), "\"threads\": %s}]}\n", threads[_i]);
	ck_assert_ptr_nonnull(strstr(program.output, text));
}

/* --- Write errors ------------------------------------------------------------------------------ */

static const struct {
	const char *options, *want;
	bool out; /* true: stdout cannot be written; false: the file in the options */
} unwritten[] = {
	{"-n 2", "ddp-train: warning: cannot write to stdout: No space left on device; ", true},
	{"-n 2 -q --log-json full",
	 "ddp-train: warning: cannot write the log full: No space left on device; ", false},
};

/* Rank 0 reports the error. The other ranks end with the same status and do not wait for rank 0. */
TEST_ROWS(test_output_error, unwritten)
{
	ck_assert_int_eq(symlink("/dev/full", unwritten[_i].out ? "output" : "full"), 0);
	program_run(&program, 77, "mnist --samples 64 -e 1 -t 1 %s", unwritten[_i].options);
	check_one_line(unwritten[_i].want);
}

/* If the reader of a FIFO ends, the run ends with an error, and does not wait. */
TEST(test_fifo)
{
	char byte;
	int fd;

	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	program_run(&program, 77, "mnist --samples 64 -e 1 -n 1 -q --log-json fifo");
	check_one_line("cannot write the log fifo: no process reads this FIFO. ");
	fd = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	program_start(&program, "mnist --samples 64 -e 1000000 -n 1 -q --log-json fifo");
	while (read(fd, &byte, 1) != 1)
		program_sleep(5);
	close(fd);
	do {
		program_sleep(5);
		program_read("errors", program.errors);
	} while (!strchr(program.errors, '\n'));
	kill(program.pid, SIGTERM);
	program_wait(&program);
	ck_assert_ptr_nonnull(strstr(program.errors, "cannot write the log fifo: Broken pipe; "));
}

TEST_LOOP(test_unwritten_help, 0, 3)
{
	static const char *const words[] = {"--help", "mnist --help", "--version"};

	ck_assert_int_eq(symlink("/dev/full", "output"), 0);
	program_run(&program, 1, "%s", words[_i]);
	check_one_line("ddp-train: cannot write to stdout: No space left on device\n");
}

/* With "ulimit -f", the run ends with an error that has the reason, not with a signal. */
TEST(test_file_limit)
{
	struct rlimit limit = {.rlim_cur = 100 << 10, .rlim_max = RLIM_INFINITY};

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	program_start(&program, "mnist --samples 64 -e 1 -n 2 -q -m model.st");
	program_wait(&program);
	ck_assert_msg(program.status > 64 && program.status < 128, "%d", program.status);
	ck_assert_msg(strstr(program.errors, ": File too large") &&
			      !strstr(program.errors, "killed by"),
		      "%s", program.errors);
}

/* --- Kills ------------------------------------------------------------------------------------- */

enum { ROUNDS_SHORT = 1, ROUNDS = 3, ROUNDS_LONG = 50 };

/*
 * One rank or all ranks are killed with SIGKILL at a random time. The resumed run gives the same
 * weights as the reference run.
 */
TEST_LOOP(test_killed, 0, getenv("DDP_LONG") ? ROUNDS_LONG : unit_rows(ROUNDS_SHORT, ROUNDS))
{
	static const char line[] = TRAINING " -n 2 -q -c state --checkpoint-steps 3 -m model.st";
	uint64_t seed = state + (uint64_t)_i * 2;
	pid_t ranks[4];
	int count;

	for (int i = 0; i < 8; i++)
		unit_random(&seed, 2);
	program_start(&program, line);
	program_sleep((int)unit_random(&seed, (uint32_t)milliseconds + 1));
	count = program_children(program.pid, ranks, 4);
	if (count > 0 && unit_random(&seed, 3) > 0)
		kill(ranks[unit_random(&seed, (uint32_t)count)], SIGKILL);
	else
		kill_launcher();
	program_wait(&program);
	program_run(&program, 0, "%s", line);
	check_reference("killed and gone on", "../reference.st");
}

/* --- Stop by a signal --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int number;
	bool one; /* send the signal to only one rank */
} stops[] = {
	{"SIGTERM", SIGTERM, false},
	{"SIGUSR1", SIGUSR1, false},
	{"SIGINT", SIGINT, false},
	{"SIGTERM", SIGTERM, true},
};

TEST_ROWS(test_stopped, stops)
{
	/* long enough that the signal arrives before the end */
	static const char line[] =
		LONG_TRAINING " -n 2 -c state --checkpoint-steps 4 -m model.st --progress off";
	pid_t ranks[4];

	program_start(&program, line);
	program_await("state", "checkpoint-0000000004.safetensors", 1);
	if (stops[_i].one) {
		ck_assert_int_eq(program_children(program.pid, ranks, 4), 2);
		kill(ranks[1], stops[_i].number);
	} else {
		kill(program.pid, stops[_i].number);
	}
	program_wait(&program);
	ck_assert_msg(program.status == 3, "ended with %d:\n%s%s", program.status, program.output,
		      program.errors);
	ck_assert_ptr_nonnull(strstr(program.output, "stopped by "));
	ck_assert_ptr_nonnull(strstr(program.output, stops[_i].name));
	ck_assert_int_eq(access("model.st", F_OK), -1);
	if (stops[_i].number != SIGTERM)
		return;
	program_run(&program, 0, "%s", line);
	if (access("../long.st", F_OK) < 0)
		program_run(&program, 0, LONG_TRAINING " -n 2 -q -m ../long.st");
	check_reference(stops[_i].name, "../long.st");
}

/* Writes MNIST's files for training or testing, with empty images of the digit 0. */
static void write_digits(const char *prefix, uint32_t count)
{
	const uint32_t numbers[] = {htobe32(0x801), htobe32(0x803), htobe32(count), htobe32(28),
				    htobe32(28)};
	char path[64];
	FILE *file;

	for (int images = 0; images < 2; images++) {
		snprintf(path, sizeof(path), "%s-%s-ubyte", prefix,
			 images ? "images-idx3" : "labels-idx1");
		file = fopen(path, "w");
		ck_assert_ptr_nonnull(file);
		ck_assert_uint_eq(fwrite(&numbers[images], 4, 1, file), 1);
		ck_assert_uint_eq(fwrite(&numbers[2], 4, images ? 3 : 1, file), images ? 3 : 1);
		ck_assert_int_eq(fclose(file), 0);
		ck_assert_int_eq(truncate(path, images ? 16 + 784 * (off_t)count : 8 + count), 0);
	}
}

#define EVALUATED                                                                            \
	"mnist --deterministic -d . -b 8 -e 1 -t 1 -n 2 -c state -m model.st --log-every 1 " \
	"--log-json log -q"

/*
 * A signal ends a long evaluation. The checkpoint then has all steps of the epoch, or of --steps.
 * The next run evaluates them, and saves the result.
 */
TEST_LOOP(test_stopped_in_evaluation, 1, 3)
{
	char command[256], slow[300], text[64];
	double number[2];

	write_digits("train", 32);
	write_digits("t10k", 400000);
	snprintf(command, sizeof(command), EVALUATED "%s", _i == 1 ? " --steps 1" : "");
	snprintf(slow, sizeof(slow), "%s --test-batch 1", command);
	program_start(&program, slow);
	snprintf(text, sizeof(text), "\"total\": %d,", _i);
	do {
		program_sleep(5);
		program_read("log", program.output);
	} while (!strstr(program.output, text));
	kill(program.pid, SIGTERM);
	program_wait(&program);
	ck_assert_msg(program.status == 3, "ended with %d:\n%s%s", program.status, program.output,
		      program.errors);
	snprintf(text, sizeof(text), "stopped by SIGTERM at step %d of epoch 1: ", _i);
	ck_assert_ptr_nonnull(strstr(program.output, text));
	ck_assert_int_eq(program_numbers("log", "epoch", "test_loss", number, 2), 0);
	snprintf(text, sizeof(text), "checkpoint-000000000%d.safetensors", _i);
	ck_assert_int_eq(program_count_files("state", text), 1);
	write_digits("t10k", 40);
	program_run(&program, 0, "%s", command);
	ck_assert_int_eq(program_numbers("log", "epoch", "total", number, 2), 1);
	ck_assert_double_eq(number[0], _i);
	ck_assert_int_eq(access("model.st.best", F_OK), 0);
	program_run(&program, 0, "%s", command);
	ck_assert_ptr_nonnull(strstr(program.output, "finished before"));
	ck_assert_ptr_nonnull(strstr(program.output, ", after epoch 1\n"));
}

/* A signal ends --evaluate, too. */
TEST(test_stopped_evaluation)
{
	write_digits("train", 32);
	write_digits("t10k", 400000);
	program_start(&program,
		      "mnist --deterministic -d . -t 1 -n 2 --evaluate -i ../reference.st "
		      "--test-batch 1 --log-json log");
	program_await(".", "log", 1);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	ck_assert_msg(program.status == 3, "ended with %d:\n%s%s", program.status, program.output,
		      program.errors);
	ck_assert_ptr_nonnull(strstr(program.output, "\nevaluation stopped by SIGTERM: "));
}

/* A second SIGINT ends the run during a long step. */
TEST(test_second_sigint)
{
	program_start(&program, "cifar --deterministic -b 512 -t 1 -n 1 --log-json log");
	program_await(".", "log", 1);
	kill(program.pid, SIGINT);
	program_sleep(600);
	ck_assert_int_eq(waitpid(program.pid, NULL, WNOHANG), 0);
	kill(program.pid, SIGINT);
	program_wait(&program);
	ck_assert_int_eq(program.status, -SIGINT);
}

/*
 * A run may resume with another number of ranks. Its next steps equal the reference run's. Rounding
 * errors grow tenfold in each later step.
 */
TEST_LOOP(test_resume_with_other_ranks, 0, 2)
{
	static const int numbers[] = {1, 4};
	double wanted[STEPS], got[STEPS];

	program_run(&program, 0, TRAINING " -n 2 -q -c state --steps 13");
	program_run(&program, 0,
		    TRAINING " -n %d -q -c state --steps 17 --log-every 1 --log-json log",
		    numbers[_i]);
	ck_assert_int_eq(program_numbers("../reference.json", "step", "loss", wanted, STEPS), 20);
	ck_assert_int_eq(program_numbers("log", "step", "loss", got, STEPS), 4);
	for (int i = 0; i < 4; i++)
		ck_assert_msg(fabs(got[i] / wanted[13 + i] - 1) < 1e-5,
			      "step %d: loss %.9g with %d ranks, %.9g with 2", 14 + i, got[i],
			      numbers[_i], wanted[13 + i]);
}

/*
 * A run may resume in an epoch with another batch. Epochs then have different numbers of steps:
 * here 5 of 32 samples and 10 of 16, then 20 of 16.
 */
TEST(test_resume_with_other_batch)
{
	double number[2];

	program_run(&program, 0,
		    "mnist --samples 320 -e 3 --global-batch 32 -q -c state --steps 5");
	program_run(&program, 0,
		    "mnist --samples 320 -e 3 --global-batch 16 -c state --steps 36 --log-json log "
		    "--log-every 1");
	ck_assert_int_eq(program_numbers("log", "run", "steps", number, 2), 1);
	ck_assert_double_eq(number[0], 20);
	ck_assert_ptr_nonnull(
		strstr(program.output, "\n3 epochs of 20 steps, 16 samples a step\n"));
	ck_assert_ptr_nonnull(strstr(program.output, "\nresumes from step 5 of 36\n"));
	ck_assert_ptr_nonnull(strstr(program.output, "\nepoch 1 step 15/15 "));
	ck_assert_ptr_nonnull(strstr(program.output, "\nepoch 2 step 20/20 "));
	ck_assert_ptr_nonnull(strstr(program.output, "\nepoch 3 step 1/20 "));
	program_run(&program, 0,
		    "mnist --samples 320 -e 3 --global-batch 32 -q -c state --log-json log2");
	ck_assert_int_eq(program_numbers("log2", "run", "end", number, 2), 1);
	ck_assert_double_eq(number[0], 46);
	ck_assert_int_eq(program_numbers("log", "epoch", "position", number, 2), 2);
	ck_assert_double_eq(number[0], 1);
	ck_assert_double_eq(number[1], 2);
	ck_assert_int_eq(program_numbers("log2", "epoch", "total", number, 2), 1);
	ck_assert_double_eq(number[0], 46);
}

/* Shortly before the job's time limit, the run stops after the current step. */
TEST(test_stop_before_time_limit)
{
	char when[32];

	snprintf(when, sizeof(when), "%lld", (long long)time(NULL) + 1000);
	setenv("SLURM_JOB_END_TIME", when, 1);
	program_run(&program, 3, TRAINING " -n 2 -c state --stop-before 1000");
	ck_assert_ptr_nonnull(strstr(program.output, "stopped as the job's time ends"));
	ck_assert_int_eq(program_count_files("state", "checkpoint-0000000001.safetensors"), 1);
	program_run(&program, 0, TRAINING " -n 2 -q -c state --stop-before 1 -m model.st");
	check_reference("out of time", "../reference.st");
}

/* --- Checkpoints and models -------------------------------------------------------------------- */

TEST(test_finished)
{
	program_run(&program, 0, TRAINING " -n 2 -q -c state");
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), 2);
	program_run(&program, 0, TRAINING " -n 2 -c state -m model.st");
	ck_assert_ptr_nonnull(strstr(program.output, "finished before"));
	check_reference("--save-model after the end", "../reference.st");
}

/* If --save-model is new at a resume, FILE.best gets the best weights that can still be had. */
TEST(test_late_model)
{
	static const char line[] = TRAINING " -n 2 -c state --lr 0 -m";

	program_run(&program, 0, TRAINING " -n 2 -q -c state");
	program_run(&program, 0, "%s model.st -e 3", line);
	ck_assert(program_same_file("model.st.best", "../reference.st.best"));
	program_run(&program, 0, "%s late.st -e 3", line);
	check_one_line(
		"late.st.best does not exist, so the best weights, those of epoch 2, are lost\n");
	ck_assert_int_eq(access("late.st.best", F_OK), -1);
	program_run(&program, 0, "%s late.st -e 4", line);
	check_one_line(", are lost. The file gets the best weights from here on.\n");
	ck_assert_int_eq(access("late.st.best", F_OK), 0);
}

static const struct {
	const char *obstacle; /* directory with the name of a file that the run writes */
	const char *options, *output, *errors;
} unsaved[] = {
	{"state/checkpoint-0000000015.safetensors", "-c state --checkpoint-steps 5 -m model.st",
	 "\ncheckpoint  state\n",
	 "; the checkpoint of step 10 in state is kept, and the same command without --fresh resumes from "
	 "it; model.st.best has the weights after epoch 1\n"},
	{"state/checkpoint-0000000005.safetensors", "-c state --checkpoint-steps 5 -m model.st",
	 "ended by an error at step 5: ",
	 "; there is no checkpoint in state yet, so the same command starts over\n"},
	{"model.st.best", "-m model.st", "ended by an error at step ",
	 "; no checkpoint is kept, because --checkpoint DIR is not given\n"},
};

/* If a file cannot be written, the run still prints its summary, and says how to continue. */
TEST_ROWS(test_unsaved, unsaved)
{
	ck_assert_int_eq(mkdir("state", 0700), 0);
	ck_assert_int_eq(mkdir(unsaved[_i].obstacle, 0700), 0);
	program_run(&program, 77, TRAINING " -n 2 %s %s", unsaved[_i].options,
		    strstr(unsaved[_i].options, "-c ") ? "--fresh" : "");
	ck_assert_msg(strstr(program.output, "\nrank  node "), "no table:\n%s", program.output);
	ck_assert_msg(strstr(program.output, unsaved[_i].output), "%s", program.output);
	ck_assert_ptr_null(strstr(program.output, "\nmodel "));
	ck_assert_ptr_nonnull(strstr(program.errors, unsaved[_i].obstacle));
	ck_assert_msg(strstr(program.errors, unsaved[_i].errors), "%s", program.errors);
	ck_assert_msg(strchr(program.errors, '\n')[1] == '\0', "not one line:\n%s", program.errors);
	/* the run can continue after the obstacle was removed */
	ck_assert_int_eq(rmdir(unsaved[_i].obstacle), 0);
	program_run(&program, 0, TRAINING " -n 2 -q -m model.st %s", unsaved[_i].options);
	check_reference("gone on with room", "../reference.st");
}

#define NAME_OF_50 "12345678901234567890123456789012345678901234567890"
#define NAME_OF_250 NAME_OF_50 NAME_OF_50 NAME_OF_50 NAME_OF_50 NAME_OF_50

/*
 * These errors are reported before the first step, not when the first checkpoint or the model is
 * written.
 */
static const struct {
	const char *name;
	mode_t kind; /* kind of the file "there" */
	const char *options, *error;
} unwritable[] = {
	{"no permission", S_IFDIR, "-c there", "there"},
	{"a directory as model", S_IFDIR, "-m there", "cannot write there: it is a directory"},
	{"a device as model", S_IFCHR, "-m there", "cannot write there: it is not a plain file"},
	{"a FIFO as model", S_IFIFO, "-m there", "cannot write there: it is not a plain file"},
	{"a device as page", S_IFCHR, "-r there", "cannot write there: it is not a plain file"},
	{"a long name", S_IFDIR, "-m there" NAME_OF_250, ": File name too long"},
};

TEST_ROWS(test_unwritable, unwritable)
{
	mode_t kind = unwritable[_i].kind;
	struct stat info;

	/* root may write to every directory, but nobody can create a file in this one */
	if (kind != S_IFDIR)
		(void)mknod("there", kind | 0600, kind == S_IFCHR ? 0xeeee : 0);
	else if (geteuid() == 0)
		ck_assert_int_eq(symlink("/proc/self", "there"), 0);
	else
		ck_assert_int_eq(mkdir("there", 0500), 0);
	if (stat("there", &info) < 0)
		return; /* only root can create a device, and not in every container */
	program_run(&program, 77, TRAINING " -n 2 %s", unwritable[_i].options);
	UNIT_SAYS(unwritable[_i].name, program.errors, unwritable[_i].error);
	ck_assert_msg(!strstr(program.output, "epoch"), "%s: it trained:\n%s", unwritable[_i].name,
		      program.output);
	ck_assert_int_eq(stat("there", &info), 0);
	ck_assert_uint_eq(info.st_mode & S_IFMT, kind);
	ck_assert_int_eq(program_count_files(".", "there"), 1);
}

/* Returns the process that holds the lock on [path]; 0: no process. */
static pid_t lock_owner(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETLK, &lock), 0);
	close(fd);
	return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

/* A run holds a lock on its directory until it ends. */
TEST(test_lock)
{
	pid_t ranks[4], owner;

	program_start(&program, "mnist --samples 320 -e 1000 -b 16 -t 1 -n 2 -q -c state");
	program_await("state", ".lock", 1);
	while ((owner = lock_owner("state/.lock")) == 0)
		program_sleep(5);
	ck_assert_int_eq(program_children(program.pid, ranks, 4), 2);
	ck_assert(owner == ranks[0] || owner == ranks[1]);
	kill_launcher();
	program_wait(&program);
	program_run(&program, 0, "mnist --samples 320 -b 16 -t 1 -n 2 -q -c state --steps 1");
}

/* Owners in the lock file. Process 17 on node n9 holds the lock. */
static const struct {
	const char *owner;
	int status;
	const char *pieces;
} locked[] = {
	{"tux.41.7 0 0 n9 17", 77,
	 "--checkpoint state is in use by process 17 on n9, job tux.41.7|remove state/.lock"},
	/* node n9 died and ddp-run restarted the program; the server may keep the lock */
	{"tux.42.7 0 0 n9 17", 0, NULL},
};

TEST_ROWS(test_locked, locked)
{
	static const char *const contract[][2] = {
		{"DDP_RANK", "0"},	 {"DDP_SIZE", "1"},	 {"DDP_LOCAL_RANK", "0"},
		{"DDP_LOCAL_SIZE", "1"}, {"DDP_NODE_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"},
		{"DDP_JOB", "tux.42.8"}, {"DDP_ATTEMPT", "0"},	 {"DDP_RESTART", "1"},
	};
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const char *owner = locked[_i].owner;
	int fd;

	ck_assert_int_eq(mkdir("state", 0700), 0);
	fd = open("state/.lock", O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, owner, strlen(owner)), (ssize_t)strlen(owner));
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	for (int i = 0; i < ROWS(contract); i++)
		setenv(contract[i][0], contract[i][1], 1);
	program_run(&program, locked[_i].status, "mnist --samples 64 -e 1 -b 16 -q -c state");
	unit_has(owner, program.errors, locked[_i].pieces);
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), locked[_i].status == 0);
	if (locked[_i].status == 0)
		return;
	/* An evaluation needs no lock. It fails because there is no checkpoint yet. */
	program_run(&program, 77, "mnist --samples 64 -q -c state --evaluate");
	UNIT_SAYS(owner, program.errors, "there is no checkpoint in state");
	close(fd);
	program_run(&program, 0, "mnist --samples 64 -e 1 -b 16 -q -c state");
}

/*
 * A fresh run keeps the old checkpoints until it has written its first one. Then it removes them,
 * although their step numbers are larger.
 */
TEST(test_fresh)
{
	program_run(&program, 0, "mnist --samples 64 -e 3 -b 32 -n 1 -q -c state");
	program_run(&program, 0, "mnist --samples 64 -e 1 -b 32 -n 1 -q -c state --fresh --seed 5");
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), 1);
	ck_assert_int_eq(program_count_files("state", "checkpoint-0000000002"), 1);
	program_run(&program, 0, "mnist --samples 64 -e 2 -b 32 -n 1 -c state --seed 5");
	ck_assert_ptr_nonnull(strstr(program.output, "checkpoint of step 2 in state"));
}

/* Sets the variables of attempt [restart] under ddp-run, which starts step [step] of job 42. */
static void set_attempt(int step, int restart)
{
	static const char *const contract[][2] = {
		{"DDP_RANK", "0"},	 {"DDP_SIZE", "1"},	 {"DDP_LOCAL_RANK", "0"},
		{"DDP_LOCAL_SIZE", "1"}, {"DDP_NODE_RANK", "0"}, {"GROUP_WORLD_SIZE", "1"},
		{"DDP_ATTEMPT", "0"}};
	char text[32];

	for (int i = 0; i < ROWS(contract); i++)
		setenv(contract[i][0], contract[i][1], 1);
	snprintf(text, sizeof(text), "tux.42.%d", step);
	setenv("DDP_JOB", text, 1);
	snprintf(text, sizeof(text), "%d", restart);
	setenv("DDP_RESTART", text, 1);
}

/*
 * A restart by ddp-run resumes from the checkpoints that its earlier attempts wrote, in spite of
 * --fresh, and from no others.
 */
TEST(test_fresh_restart)
{
	static const char line[] = "mnist --samples 64 -b 32 -c state --fresh";

	set_attempt(0, 0);
	program_run(&program, 0, "mnist --samples 64 -b 32 -e 3 -q -c state");
	set_attempt(1, 0);
	program_run(&program, 77, "%s -e 2 --log-json nowhere/log", line);
	set_attempt(2, 1);
	program_run(&program, 0, "%s -e 2 --steps 3", line);
	ck_assert_ptr_null(strstr(program.output, "resumed from"));
	ck_assert_int_eq(program_count_files("state", "checkpoint-0000000003"), 1);
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), 2);
	set_attempt(3, 2);
	program_run(&program, 0, "%s -e 3 --keep 1", line);
	ck_assert_ptr_nonnull(strstr(program.output, "resumed from the checkpoint of step 3 in "));
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), 1);
	set_attempt(4, 0);
	program_run(&program, 0, "%s -e 1", line);
	ck_assert_ptr_null(strstr(program.output, "resumed from"));
}

TEST(test_changes)
{
	program_run(&program, 0, "mnist --samples 64 -e 1 -b 32 -n 1 -q -c state");
	program_run(&program, 0, "mnist --samples 64 -e 2 -b 8 -n 2 -c state --lr 0.5");
	ck_assert_ptr_nonnull(strstr(program.output, "2 ranks (was 1)"));
	ck_assert_ptr_nonnull(strstr(program.output, "16 samples a step (was 32)"));
	ck_assert_ptr_nonnull(strstr(program.output, "--lr 0.5 (was 1.0)"));
	ck_assert_ptr_nonnull(strstr(program.output, "--epochs 2 (was 1)"));
	ck_assert_ptr_null(strstr(program.output, "--seed"));
	program_run(&program, 0, "mnist --samples 64 -e 3 -b 8 -n 1 -c state");
	ck_assert_ptr_nonnull(strstr(program.output, ", 1 rank (was 2), "));
}

/* The saved model has the accuracy that the run printed. */
TEST(test_evaluate)
{
	double wanted[4], got[4];

	ck_assert_int_eq(program_numbers("../reference.json", "epoch", "test_loss", wanted, 4), 2);
	program_run(&program, 0,
		    "mnist --deterministic --samples 160 -n 2 --evaluate -i ../reference.st "
		    "--log-json log -q");
	ck_assert_int_eq(program_numbers("log", "epoch", "test_loss", got, 4), 1);
	ck_assert_msg(got[0] == wanted[1], "loss %.9g, but %.9g while training", got[0], wanted[1]);
	ck_assert_msg(strncmp(program.output, "\nevaluated: test loss ", 22) == 0, "%s",
		      program.output);
}

/* An evaluation needs the same network only. Optimizer and images may be others. */
TEST(test_evaluate_others)
{
	static const char *const options[] = {"--samples 64", "--samples 160 --seed 3", "-d ."};

	write_digits("train", 160);
	write_digits("t10k", 40);
	program_run(&program, 0, TRAINING " -n 1 -q -c state --steps 1 -o sgd --momentum 0");
	for (int i = 0; i < ROWS(options); i++) {
		program_run(&program, 0, "mnist --evaluate -c state -n 2 %s", options[i]);
		ck_assert_ptr_nonnull(strstr(program.output, "evaluates the checkpoint of step 1"));
		ck_assert_ptr_null(strstr(program.output, "best test top1"));
	}
	ck_assert_int_eq(program_count_files("state", "checkpoint-"), 1);
	program_run(&program, 65, "cifar --samples 64 --evaluate -c state -n 2");
	check_one_line(
		"(network mnist, not cifar). Give the same network, or another directory.\n");
}

/*
 * The newest checkpoint is evaluated, which need not be that of the best epoch. The rate of its
 * epoch is 0, so its result is not better.
 */
TEST(test_evaluate_newest)
{
	double epochs[4];
	char best[64];

	program_run(&program, 0, "mnist --samples 160 -b 16 -n 1 -e 2 -q -c state");
	ck_assert_int_eq(sscanf(strstr(program.output, "best test top1 "), "%63[^\n]", best), 1);
	program_run(&program, 0, "mnist --samples 160 -b 16 -n 1 -e 3 -q -c state --lr 0");
	ck_assert_ptr_nonnull(strstr(program.output, best));
	program_run(&program, 0, "mnist --samples 160 -n 1 --evaluate -c state --log-json log");
	ck_assert_int_eq(program_numbers("log", "epoch", "epoch", epochs, 4), 1);
	ck_assert_double_eq(epochs[0], 3);
	ck_assert_ptr_nonnull(strstr(program.output, best));
}

static const struct {
	const char *options, *mean, *deviation;
} constants[] = {
	{"mnist --samples 8", "[0.1307]", "[0.3081]"},
	{"cifar --samples 8", "[0.4914, 0.4822, 0.4465]", "[0.2470, 0.2435, 0.2616]"},
	{"cifar -d .", "[0.5071, 0.4865, 0.4409]", "[0.2673, 0.2564, 0.2762]"},
};

/* The saved model has the constants of normalisation, and CIFAR-100 has its own. */
TEST_ROWS(test_normalisation, constants)
{
	struct ddp_tensors *file;

	for (int test = 0; test < 2; test++) {
		const char *name = test ? "test.bin" : "train.bin";

		close(open(name, O_CREAT | O_WRONLY, 0600));
		ck_assert_int_eq(truncate(name, 8 * 3074), 0);
	}
	program_run(&program, 0, "%s -e 1 -b 4 -n 1 -q -m model.st", constants[_i].options);
	ck_assert_int_eq(ddp_tensors_open(&file, "model.st", NULL), 0);
	ck_assert_str_eq(ddp_tensors_metadata(file, "mean"), constants[_i].mean);
	ck_assert_str_eq(ddp_tensors_metadata(file, "std"), constants[_i].deviation);
	ddp_tensors_close(file);
}

/* A training can start from given weights. */
TEST(test_init)
{
	double one[STEPS], two[STEPS];

	program_run(&program, 0,
		    TRAINING " -n 2 -q -i ../reference.st --steps 2 --log-every 1 --log-json log");
	program_run(&program, 0, TRAINING " -n 2 -q --steps 2 --log-every 1 --log-json log2");
	ck_assert_int_eq(program_numbers("log", "step", "loss", one, STEPS), 2);
	ck_assert_int_eq(program_numbers("log2", "step", "loss", two, STEPS), 2);
	ck_assert_double_lt(one[0], 0.8 * two[0]);
}

static int64_t batches_of(const char *path)
{
	struct ddp_tensors *file;
	int64_t batches;

	ck_assert_int_eq(ddp_tensors_open(&file, path, NULL), 0);
	batches = *(const int64_t *)ddp_tensors_find(file, "bn1.num_batches_tracked")->data;
	ddp_tensors_close(file);
	return batches;
}

/* As after PyTorch's load_state_dict(), the steps are added to the file's num_batches_tracked. */
TEST(test_init_batches)
{
	static const char line[] = "cifar --samples 8 -b 4 -n 2 -e 1 -q -m model.st";

	program_run(&program, 0, "%s", line);
	ck_assert_int_eq(batches_of("model.st"), 1);
	program_run(&program, 0, "%s -i model.st -c state", line);
	ck_assert_int_eq(batches_of("model.st"), 2);
	program_run(&program, 0, "%s -e 3 -c state", line);
	ck_assert_int_eq(batches_of("model.st"), 4);
}

/* --- Equal bits on any number of ranks ----------------------------------------------------------- */

/* The last batch of an epoch is short. */
static const struct {
	const char *line;
	int steps, ranks; /* total number of steps; largest number of ranks */
} virtuals[] = {
	{"mnist --samples 86 -e 2 -b 4 --virtual-ranks 4", 12, 4},
	{"mnist --samples 86 -e 1 -b 4 --virtual-ranks 4 --amp bf16 --clip 1 -o adamw", 6, 4},
	{"cifar --samples 22 -b 2 --virtual-ranks 4", 3, 2}, /* with BatchNorm */
};

static void check_virtual(const char *what)
{
	ck_assert_msg(program_same_file("model.st", "reference.st"),
		      "%s: the weights are not those of the undisturbed run", what);
}

/*
 * Runs with one rank, with several ranks, with the TCP engine, and resumed with other numbers of
 * ranks.
 */
TEST_LOOP(test_virtual_ranks, 0, unit_rows(1, ROWS(virtuals)))
{
	const char *line = virtuals[_i].line;
	int steps = virtuals[_i].steps, ranks = virtuals[_i].ranks;
	double losses[2][STEPS];

	if (strstr(line, "bf16") && system("grep -qw avx512_bf16 /proc/cpuinfo") != 0)
		return; /* oneDNN does not support bf16 on this CPU */
	program_run(&program, 0, "%s --steps %d -n %d -q -m reference.st --log-json log-0", line,
		    steps, ranks);
	program_run(&program, 0, "%s --steps %d -n 1 -q -m model.st --log-json log-1", line, steps);
	check_virtual("one rank");
	for (int i = 0; i < 2; i++) {
		char log[8];

		snprintf(log, sizeof(log), "log-%d", i);
		ck_assert_int_ge(program_numbers(log, "epoch", "test_loss", losses[i], STEPS), 1);
		ck_assert_msg(losses[i][0] == losses[0][0], "%s: test losses %.17g and %.17g", line,
			      losses[0][0], losses[1][0]);
	}
	setenv("DDP_LOCAL", "off", 1);
	program_run(&program, 0, "%s --steps %d -n 2 -q -m model.st", line, steps);
	unsetenv("DDP_LOCAL");
	check_virtual("two ranks that share no memory");
	program_run(&program, 0, "%s --steps %d -n %d -q -c state", line, steps / 3, ranks);
	program_run(&program, 0, "%s --steps %d -n 1 -q -c state", line, 2 * steps / 3);
	program_run(&program, 0, "%s --steps %d -n 2 -q -c state -m model.st", line, steps);
	check_virtual("three runs of other numbers of ranks");
}

/* --- Rejected options --------------------------------------------------------------------------- */

static const struct {
	const char *line;
	int status;
	const char *pieces;
} refused[] = {
	{"mnist -n 2 --global-batch 33", 65, "33 samples|2 ranks|32 or 34"},
	{"mnist -n 3 --global-batch 2", 65, "2 samples|3 ranks"},
	{"mnist -n 3 --virtual-ranks 4", 65,
	 "--virtual-ranks 4|3 ranks|Start 2 ranks|--virtual-ranks 6"},
	{"mnist -n 2 --virtual-ranks 4 --global-batch 6", 65, "6 samples|4 virtual ranks|4 or 8"},
	{"mnist -n 2 --virtual-ranks 4 --wire bf16", 2, "--wire bf16|--virtual-ranks"},
	{"cifar -n 2 --virtual-ranks 4 --sync-bn", 2, "--sync-bn|--virtual-ranks"},
	{"mnist -n 2 -d nowhere", 77, "nowhere"},
	{"mnist -n 2 -i nowhere", 77, "nowhere|No such file"},
	{"mnist -n 2 -i ../reference.json", 78, "reference.json"},
	{"cifar -n 2 --samples 64 -i ../reference.st", 78, "reference.st"},
	{"mnist -n 2 -m nowhere/model", 77, "--save-model nowhere/model"},
	{"mnist -n 2 -c /proc/nowhere", 77, "/proc/nowhere"},
	{"mnist -n 2 --log-json nowhere/log", 77, "nowhere/log"},
	{"mnist -n 2 --report nowhere/page", 77, "nowhere/page"},
	{"mnist -n 2 --tensorboard /proc/nowhere", 77, "/proc/nowhere"},
	{"mnist -n 2 --evaluate -c nowhere", 77, "no checkpoint in nowhere to evaluate"},
	{"mnist -n 2 --amp fp16 --samples 64", 67, "--amp"},
	{"mnist -n 2 --amp tf32 --samples 64", 67, "--amp=tf32 needs a GPU|--amp=off"},
	{"mnist -n 2 --engine cuda --samples 64", 67, "--engine cuda: rank 0 on "},
	{"cifar -n 2 --samples 64 -c ../state", 65, "network mnist, not cifar|--fresh"},
	{"mnist -n 2 --samples 64 -c ../state", 65, "images 160, not 64"},
	{TRAINING " -n 2 -c ../state --seed 4", 65, "seed 1, not 4|--seed"},
	{TRAINING " -n 2 -c ../state -o sgd", 65, "optimizer adadelta, not sgd"},
	{TRAINING " -n 2 -c ../sgd -o sgd --momentum 0", 65, "--momentum 0.9, not 0.|--fresh"},
	{"mnist -n 2 -d . -c ../state", 65, "160 drawn digits|not MNIST in ., 160 images|--fresh"},
};

TEST_ROWS(test_refused, refused)
{
	const char *text;

	if (access("../state", F_OK) < 0)
		program_run(&program, 0, TRAINING " -n 1 -q -c ../state --steps 1");
	if (access("../sgd", F_OK) < 0)
		program_run(&program, 0, TRAINING " -n 1 -q -c ../sgd --steps 1 -o sgd");
	if (strstr(refused[_i].line, "-d . ")) {
		write_digits("train", 160);
		write_digits("t10k", 27);
	}
	program_run(&program, refused[_i].status, "%s", refused[_i].line);
	text = program.errors;
	unit_has(refused[_i].line, text, refused[_i].pieces);
	ck_assert_msg(program_is_one_line(text), "%s: not one line:\n%s", refused[_i].line, text);
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, program_end);
	tcase_add_checked_fixture(tcase, program_enter, end);
}

UNIT_MAIN("runs", fill)
