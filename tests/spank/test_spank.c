/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spank.c - the hooks of the built plugin: results and side effects, and how they receive
 * options and contexts
 *
 * tests/unit tests the rules that decide. tests/cluster tests what users see.
 */
#include "config.h"

#include <slurm/slurm.h>

#include "spank_test.h"

/*
 * The program exports names that the plugin uses internally, as libslurm exports thousands of
 * names. The test fails if the dynamic loader lets the plugin call these functions in place of its
 * own.
 */
int ddp_format(void);
int ddp_fail(void);
int ddp_say(void);
int ddp_plan_make(void);
int ddp_srun_init(void);
int xstrdup(void);

#define WRONGLY_BOUND(name)                                     \
	int name(void)                                          \
	{                                                       \
		fake_die("the plugin calls the host's " #name); \
	}
WRONGLY_BOUND(ddp_format)
WRONGLY_BOUND(ddp_fail)
WRONGLY_BOUND(ddp_say)
WRONGLY_BOUND(ddp_plan_make)
WRONGLY_BOUND(ddp_srun_init)
WRONGLY_BOUND(xstrdup)

/* --- Without --ddp ------------------------------------------------------------------------ */

static const struct {
	const char *name;
	const char *options, *inherited, *env, *srun_conf, *stepd_conf;
} without_ddp[] = {
	{.name = "plain"},
	{.name = "SLURM_DDP=0", .env = "SLURM_DDP=0"},
	{.name = "--no-ddp over #SBATCH", .options = "--no-ddp", .inherited = "--ddp"},
	{.name = "an own world", .env = "RANK=5 WORLD_SIZE=9 MASTER_ADDR=me LOCAL_RANK=3"},
	{.name = "wrong plugstack in srun", .srun_conf = "rdzvv=/x"},
	{.name = "wrong plugstack in stepd", .stepd_conf = "ports=5-1"},
	{.name = "wrong values of no use", .env = "SLURM_DDP_PORT=x SLURM_DDP_RDZV=/a?"},
};

TEST_ROWS(test_no_change_without_ddp, without_ddp)
{
	const char *row = without_ddp[_i].name;
	struct fake_step step = {
		.options = without_ddp[_i].options,
		.inherited = without_ddp[_i].inherited,
		.env = without_ddp[_i].env,
		.srun_conf = without_ddp[_i].srun_conf,
		.stepd_conf = without_ddp[_i].stepd_conf,
		.components = {{.layout = "n1:0,1 n2:2",
				.step_env = "CUDA_VISIBLE_DEVICES=0 SLURM_SHARDS_ON_NODE=1"}},
	};

	ck_assert_int_eq(fake_srun(&step), 0);
	ck_assert_int_eq(unit_entries("."), 0);
	fake_nodes(&step);
	fake_srun_exit(&step);
	ck_assert_msg(!step.srun_changed, "%s: srun's environment is changed", row);
	for (uint32_t r = 0; r < 3; r++) {
		ck_assert_msg(!step.task_changed[r], "%s: rank %u is changed", row, r);
		ck_assert_int_eq(step.result[r], 0);
	}
	ck_assert_int_eq(unit_entries("."), 0);
	ck_assert_msg(fake_questions() == 0, "%s: srun sent a request to slurmctld", row);
	expect_silence(row);
	fake_step_clear(&step);
}

/*
 * If srun or sbatch runs without --ddp, the plugin removes an inherited SLURM_DDP_STEP, and ignores
 * bad values in ddp-run's variables.
 */
TEST(test_inherited_plan_removed)
{
	static const spank_context_t contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR};

	for (int i = 0; i < ROWS(contexts); i++) {
		struct spank_handle *p = fake_process(contexts[i], "submit", NULL);

		setenv("SLURM_DDP_STEP", "v1;nonce=0123456789abcdef;complete=1", 1);
		setenv("SLURM_DDP_OTHER", "stays", 1);
		setenv("SLURM_DDP_RESTART", "x", 1);
		ck_assert_int_eq(fake_hook(p, "init"), 0);
		ck_assert_int_eq(fake_hook(p, "init_post_opt"), 0);
		ck_assert_ptr_null(getenv("SLURM_DDP_STEP"));
		ck_assert_ptr_nonnull(getenv("SLURM_DDP_OTHER"));
		fake_hook(p, "exit");
		fake_process_end(p);
		expect_silence("inherited");
	}
}

/* --- Contexts ----------------------------------------------------------------------------- */

TEST(test_sbatch)
{
	struct spank_handle *p = fake_process(S_CTX_ALLOCATOR, "submit", "rdzvv=/x");

	setenv("SLURM_DDP", "1", 1);
	setenv("MASTER_PORT", "abc", 1);
	ck_assert_int_eq(fake_hook(p, "init"), 0);
	ck_assert_int_eq(fake_option(p, "ddp", NULL), 0);
	ck_assert_int_eq(fake_option(p, "ddp-port", "700-800"), 0);
	ck_assert_int_eq(fake_option(p, "ddp-port", "700-800"), 0);
	ck_assert_int_eq(fake_hook(p, "init_post_opt"), 0);
	ck_assert_int_eq(fake_hook(p, "exit"), 0);
	ck_assert_ptr_null(getenv("SLURM_DDP_STEP"));
	ck_assert_int_eq(unit_entries("."), 0);
	ck_assert_uint_eq(fake_questions(), 0);
	expect_silence("sbatch");
	fake_process_end(p);
}

TEST(test_slurmd)
{
	struct spank_handle *p = fake_process(S_CTX_SLURMD, "n1", "shards_per_gpu=0");

	ck_assert_int_eq(fake_hook(p, "init"), 0);
	expect_pieces("slurmd", FAKE_ERROR, "plugstack.conf|shards_per_gpu=0");
	expect_messages("slurmd", FAKE_ANY, "", 1);
	fake_hook(p, "slurmd_exit");
	fake_hook(p, "exit");
	fake_process_end(p);
	fake_forget();

	p = fake_process(S_CTX_SLURMD, "n1",
			 "shards_per_gpu=8 ports=700-800 rdzv=/shared/%u share=off");
	ck_assert_int_eq(fake_hook(p, "init"), 0);
	fake_process_end(p);
	p = fake_process(S_CTX_JOB_SCRIPT, "n1", "nonsense");
	fake_hook(p, "init");
	fake_hook(p, "init_post_opt");
	fake_hook(p, "job_prolog");
	fake_hook(p, "job_epilog");
	fake_hook(p, "exit");
	fake_process_end(p);
	expect_silence("prolog");
}

static const uint32_t special_steps[] = {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
					 SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP};

TEST_ROWS(test_special_step, special_steps)
{
	struct fake_step step = {
		.step = special_steps[_i], .inherited = "--ddp", .components = {{"n1:0"}}};

	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert(!step.task_changed[0]);
	ck_assert_int_eq(unit_entries("."), 0);
	expect_silence("special");
	fake_step_clear(&step);
}

/* The plugin leaves no open descriptor and no thread, even if it refuses the step. */
TEST(test_resources)
{
	static const char *const options[] = {"", "--ddp", "--ddp --ddp-verbose",
					      "--ddp --ddp-rdzv=/dev/null/x"};
	struct fake_step step = {.components = {{.layout = "n1:0,1 n2:2"}}};
	int files = unit_entries("/proc/self/fd"), threads = unit_entries("/proc/self/task");

	for (int i = 0; i < ROWS(options); i++) {
		step.options = options[i];
		fake_run(&step);
		fake_step_clear(&step);
		ck_assert_msg(unit_entries("/proc/self/fd") == files,
			      "\"%s\": an open file is left", options[i]);
		ck_assert_int_eq(unit_entries("/proc/self/task"), threads);
	}
}

UNIT_MAIN("spank", spank_use)
