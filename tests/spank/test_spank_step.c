/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spank_step.c - a step from srun to its last task: the tasks' variables, the messages if a
 * step or a task is refused, the requests to slurmctld, and the removal of the directory
 */
#include "config.h"

#include <fcntl.h>
#include <slurm/slurmdb.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "spank_test.h"

static const struct fake_component four = {"n1:0,1 n2:2,3"};

/*
 * Runs srun, which must succeed. After this call, a test may change the environment that nodes get.
 */
static void begin(struct fake_step *step)
{
	ck_assert_msg(fake_srun(step) == 0, "refused%s", fake_transcript());
	ck_assert_ptr_nonnull(fake_env_get(step->launched[0], "SLURM_DDP_STEP"));
}

/* Returns the step's directory, from the plan that srun made. */
static const char *made_directory(const struct fake_step *step)
{
	static char path[512];
	const char *plan = fake_env_get(step->launched[0], "SLURM_DDP_STEP");
	const char *at = plan ? strstr(plan, ";directory=") : NULL;

	ck_assert_msg(at, "no directory in %s%s", plan ? plan : "no plan", fake_transcript());
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(at + 11, ";"), at + 11);
	return path;
}

static void end(struct fake_step *step)
{
	fake_srun_exit(step);
	fake_step_clear(step);
}

/* --- Through all hooks -------------------------------------------------------------------- */

#define GPU "CUDA_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0 "
#define TWO_OF_FOUR "CUDA_VISIBLE_DEVICES=1,3 SLURM_STEP_GPUS=1,3 SLURM_SHARDS_ON_NODE=8"

/*
 * Each row: what srun, slurmctld and the environments say, and the tasks' variables that follow.
 * tests/cluster/identity.bats has the layouts of tasks.
 */
static const struct {
	const char *name;
	struct fake_component components[FAKE_COMPONENTS];
	const char *gres[2]; /* GRES in the node records of n1 and n2 */
	const char *want[4]; /* expected variables of each rank */
	unsigned said;
} steps[] = {
	{"arbitrary distribution, in both components",
	 {{"n2:1 n1:0"}, {"n4:3 n3:2"}},
	 .want = {"NODE_RANK=0", "NODE_RANK=1", "NODE_RANK=2", "NODE_RANK=3"}},
	{"shards on nodes with different numbers of shards",
	 {{"n1:0 n2:1", GPU "SLURM_SHARDS_ON_NODE=2"}},
	 {"gpu:1,shard:4", "gpu:1,shard:8"},
	 {"DDP_SHARE=0.5 DDP_DEVICE=0", "DDP_SHARE=0.25"}},
	/* MULTIPLE_SHARING_GRES_PJ of Slurm 23.11 */
	{"shards on two GPUs of four",
	 {{"n1:0,1", TWO_OF_FOUR}},
	 {"gpu:4,shard:32"},
	 {"-DDP_SHARE DDP_DEVICE=0", "-DDP_SHARE DDP_DEVICE=1"},
	 .said = 1},
};

TEST_ROWS(test_step, steps)
{
	const char *row = steps[_i].name;
	struct fake_step step = {.options = "--ddp"};

	memcpy(step.components, steps[_i].components, sizeof(step.components));
	fake_slurmctld.nodes[0] = (struct fake_node_record){"n1", "n1", steps[_i].gres[0]};
	fake_slurmctld.nodes[1] = (struct fake_node_record){"n2", "n2", steps[_i].gres[1]};
	fake_slurmctld.tres_per_node = steps[_i].gres[0] ? "gres:shard:2" : NULL;
	ck_assert_msg(fake_run(&step) == 0, "%s: refused%s", row, fake_transcript());
	for (uint32_t r = 0; r < fake_ranks(&step); r++) {
		ck_assert_int_eq(step.result[r], 0);
		expect_vars(row, &step, r, steps[_i].want[r]);
		expect_vars(row, &step, r, "DDP_JOB=alpha.4711.0 -DDP_ERROR -SLURM_DDP_STEP");
		expect_var(row, &step, r, "MASTER_ADDR", "n1");
		expect_var(row, &step, r, "MASTER_PORT", fake_var(&step, 0, "MASTER_PORT"));
		expect_var(row, &step, r, "DDP_RENDEZVOUS", fake_var(&step, 0, "DDP_RENDEZVOUS"));
	}
	expect_messages(row, FAKE_ANY, "", steps[_i].said);
	ck_assert_int_eq(unit_entries("."), 0);
	fake_step_clear(&step);
}

/*
 * The plugin escapes a control character in a user's value, so that the value cannot begin a new
 * line in slurmd's log.
 */
TEST(test_forged_line)
{
	struct fake_step step = {.options = "--ddp --ddp-verbose",
				 .env = "RANK=5\nslurmd:\x1b[2J OMP_NUM_THREADS=\x07",
				 .components = {{"n1:0,1"}}};

	ck_assert_int_eq(fake_run(&step), 0);
	expect_messages("forged", FAKE_LOG, "RANK=5\\x0aslurmd:\\x1b[2J of your environment", 1);
	expect_messages("forged", FAKE_LOG, "kept OMP_NUM_THREADS=\\x07 (yours)", 1);
	fake_step_clear(&step);
}

/*
 * Other users can often read a step's output. So messages and DDP_ERROR must not contain the
 * secrets that admit a peer: the nonce and the magic number.
 */
TEST(test_secrets)
{
	struct fake_step step = {.options = "--ddp --ddp-verbose --ddp-rdzv=.",
				 .components = {{"n1:0,1"}}};
	const char *nonce, *plan;
	char digits[17];

	begin(&step);
	plan = fake_env_get(step.launched[0], "SLURM_DDP_STEP");
	nonce = strstr(plan, "nonce=");
	ck_assert(nonce && strstr(plan, ";magic="));
	snprintf(digits, sizeof(digits), "%.16s", nonce + 6);
	fake_nodes(&step);
	ck_assert(strstr(fake_var(&step, 0, "DDP_RENDEZVOUS"), digits));
	ck_assert_ptr_nonnull(fake_var(&step, 0, "NCCL_SOCKET_MAGIC"));
	expect_messages("verbose", FAKE_ANY, digits, 0);
	expect_messages("verbose", FAKE_ANY, fake_var(&step, 0, "NCCL_SOCKET_MAGIC"), 0);
	expect_pieces("verbose", FAKE_LOG, "set DDP_RENDEZVOUS=/|-* (made for this step)");
	ck_assert_int_eq(rename(".ddp", "hidden"), 0);
	fake_forget();
	for (uint32_t r = 0; r < 2; r++) {
		fake_env_free(step.task[r]);
		step.task[r] = NULL;
	}
	fake_nodes(&step);
	expect_refused("not shared", &step, "does not share");
	expect_messages("not shared", FAKE_ANY, digits, 0);
	ck_assert_ptr_null(strstr(fake_var(&step, 0, "DDP_ERROR"), digits));
	ck_assert_int_eq(rename("hidden", ".ddp"), 0);
	end(&step);
}

/* --- Requests to slurmctld ----------------------------------------------------------------- */

/* srun requests the step's layout only if the plugin needs it, and makes no request twice. */
TEST(test_requests)
{
	struct fake_step one = {.options = "--ddp", .components = {{"n1:0,1"}}};
	struct fake_step many = {.options = "--ddp", .components = {{"n1:0 n2:1"}}};
	struct fake_step arbitrary = {.options = "--ddp", .components = {{"n1:1 n2:0"}}};
	struct fake_step shards = {.options = "--ddp", .components = {{"n1:0,1"}}};
	/*
	 * Since 26.05 the nodes of a step may be in any order. So srun requests the layout of every
	 * step with several nodes.
	 */
	unsigned layouts = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0);

	ck_assert_int_eq(fake_run(&one), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, 0);
	fake_step_clear(&one);
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	ck_assert_int_eq(fake_run(&many), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, layouts);
	ck_assert_uint_eq(fake_slurmctld.asked.steps, 0);
	ck_assert_uint_le(fake_slurmctld.asked.node, 1);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 0);
	ck_assert_uint_eq(fake_slurmctld.asked.job, 1);
	fake_step_clear(&many);
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	ck_assert_int_eq(fake_run(&arbitrary), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, 1);
	fake_step_clear(&arbitrary);
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	fake_slurmctld.tres_per_node = "gres:shard:2";
	ck_assert_int_eq(fake_run(&shards), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.job, 1);
	fake_step_clear(&shards);
}

/*
 * If srun knows the address of rank 0's node, it does not request the node's record. slurmctld has
 * no records of nodes of another cluster.
 */
TEST(test_known_address)
{
	static slurmdb_cluster_rec_t other;
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0 n2:1"}}};

	fake_slurmctld.nodes[0] = (struct fake_node_record){"n1", "10.0.0.9", NULL, "10.0.0.1"};
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.node, 0);
	expect_var("known", &step, 1, "MASTER_ADDR", "10.0.0.1");
	fake_step_clear(&step);
	fake_slurmctld.nodes[0].configured = "n1";
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.node, 0);
	expect_var("its name", &step, 1, "MASTER_ADDR", "n1");
	fake_step_clear(&step);
	working_cluster_rec = &other;
	ck_assert_int_eq(fake_run(&step), 0);
	working_cluster_rec = NULL;
	ck_assert_uint_eq(fake_slurmctld.asked.node, 1);
	expect_var("another cluster", &step, 1, "MASTER_ADDR", "10.0.0.9");
	fake_step_clear(&step);
}

/*
 * If the step has shards, srun requests the nodes' shards, with one request even for a large step.
 */
TEST(test_shard_requests)
{
	struct fake_step step = {
		.options = "--ddp",
		.components = {{"n1:0 n2:1 n3:2 n4:3 n5:4",
				.step_env = GPU "SLURM_SHARDS_ON_NODE=2"}},
	};

	fake_slurmctld.tres_per_node = "gres:gpu:1";
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 0);
	ck_assert_uint_le(fake_slurmctld.asked.node, 1);
	fake_step_clear(&step);
	fake_slurmctld.tres_per_node = "gres:shard:2";
	for (int i = 0; i < 5; i++)
		fake_slurmctld.nodes[i] =
			(struct fake_node_record){&"n1\0n2\0n3\0n4\0n5"[3 * i], NULL,
						  i == 3 ? "gpu:1,shard:8" : "gpu:1,shard:4"};
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 1);
	ck_assert_uint_le(fake_slurmctld.asked.node, 2);
	for (uint32_t r = 0; r < 5; r++)
		expect_var("five nodes", &step, r, "DDP_SHARE", r == 3 ? "0.25" : "0.5");
	fake_step_clear(&step);
}

/* --- Refusals on the nodes ---------------------------------------------------------------- */

/*
 * Bad plans: task_init fails for each task, all other hooks succeed, and one task of each node
 * prints the reason. tests/unit tests the decoder with more cases.
 */
static const struct {
	const char *name, *plan, *why;
} plans[] = {
	{"none", NULL, "installed where srun ran"},
	{"newer version", "v10;nonce=00", "version \"v10\""},
	{"no value", "v1;nonce", "SLURM_DDP_STEP is malformed"},
	{"problem found by srun", "v1;problem=no%20luck", "no luck"},
};

TEST_ROWS(test_plan, plans)
{
	const char *row = plans[_i].name;
	struct fake_step step = {.options = "--ddp", .components = {four}};
	bool srun_said = plans[_i].plan && strstr(plans[_i].plan, "problem=");

	begin(&step);
	if (plans[_i].plan)
		fake_env_set(&step.launched[0], "SLURM_DDP_STEP", plans[_i].plan);
	else
		fake_env_unset(step.launched[0], "SLURM_DDP_STEP");
	fake_nodes(&step);
	expect_refused(row, &step, plans[_i].why);
	/* One task of each node prints the error. If srun has already printed it, no task does. */
	expect_messages(row, FAKE_ERROR, plans[_i].why, srun_said ? 0 : 2);
	expect_messages(row, FAKE_ANY, "", srun_said ? 0 : 2);
	end(&step);
}

/*
 * If one task's variables contradict each other, only this task fails. Variables of the user that
 * set an identity are unset too.
 */
TEST(test_one_bad_task)
{
	const char *row = "SLURM_PROCID=4";
	struct fake_step step = {
		.options = "--ddp",
		.env = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=me MASTER_PORT=901 LOCAL_RANK=0",
		.components = {four},
	};
	struct spank_handle *node;

	step.components[0].task_env[1] = row;
	begin(&step);
	fake_forget();
	node = fake_node_begin(&step, 0, "n2");
	fake_node_task(&step, node, 2);
	fake_node_task(&step, node, 3);
	fake_node_end(node);
	ck_assert_int_eq(step.result[2], 0);
	expect_vars(row, &step, 2, "RANK=2 -DDP_ERROR");
	ck_assert_int_eq(step.result[3], -1);
	expect_vars(row, &step, 3,
		    "-RANK -WORLD_SIZE -LOCAL_RANK -MASTER_ADDR -MASTER_PORT -SLURM_DDP_STEP");
	ck_assert_msg(fake_var(&step, 3, "DDP_ERROR") &&
			      strstr(fake_var(&step, 3, "DDP_ERROR"),
				     "SLURM_PROCID=4 is not below SLURM_STEP_NUM_TASKS=4"),
		      "%s: %s", row, fake_transcript());
	expect_messages(row, FAKE_ERROR, "SLURM_PROCID=4 is not below SLURM_STEP_NUM_TASKS=4", 1);
	expect_messages(row, FAKE_ANY, "", 1);
	end(&step);
}

static void hide(struct fake_step *step)
{
	(void)step;
	ck_assert_int_eq(rename(".ddp", "hidden"), 0);
}

static void show(void)
{
	ck_assert_int_eq(rename("hidden", ".ddp"), 0);
}

/*
 * The directory has the right name but belongs to another step, as on a file system that is not
 * shared.
 */
TEST(test_directory_of_another_step)
{
	char path[600];
	struct fake_step step = {.options = "--ddp --ddp-rdzv=.", .components = {{"n1:0,1"}}};

	begin(&step);
	snprintf(path, sizeof(path), "%s/step", made_directory(&step));
	write_text(path, "v1;nonce=00112233445566ff;complete=1\n");
	fake_nodes(&step);
	expect_refused("look-alike", &step, "another step's");
	expect_messages("look-alike", FAKE_ANY, "", 1);
	end(&step);
}

/*
 * Components other than the first read the step's decisions from the directory. Without the
 * directory they fail.
 */
TEST(test_het_not_shared)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n2:0"}, {"n1:1,2"}}};

	begin(&step);
	hide(&step);
	fake_nodes(&step);
	expect_vars("first", &step, 0, "RANK=0 WORLD_SIZE=3 -DDP_ERROR -DDP_INIT_FILE");
	for (uint32_t r = 1; r < 3; r++) {
		ck_assert_int_eq(step.result[r], -1);
		expect_vars("later", &step, r, "-RANK -WORLD_SIZE -MASTER_ADDR -SLURM_DDP_STEP");
		ck_assert(strstr(fake_var(&step, r, "DDP_ERROR"), "heterogeneous"));
	}
	expect_pieces("later", FAKE_ERROR, "heterogeneous step needs a directory|--ddp-rdzv=DIR");
	expect_messages("later", FAKE_ERROR, "", 1);
	show();
	end(&step);
}

/*
 * A heterogeneous step refuses a template with %n, because later components do not know rank 0's
 * node.
 */
TEST(test_het_template)
{
	struct fake_step step = {.options = "--ddp --ddp-rdzv=r/%n",
				 .components = {{"n2:0"}, {"n1:1"}}};

	ck_assert_int_eq(fake_run(&step), -1);
	expect_pieces("%n", FAKE_ERROR, "%n|heterogeneous");
	fake_step_clear(&step);
	fake_forget();
	step.options = "--ddp --ddp-rdzv=r/%j-%s-%u";
	ck_assert_int_eq(fake_run(&step), 0);
	expect_var("%j", &step, 1, "DDP_RENDEZVOUS", fake_var(&step, 0, "DDP_RENDEZVOUS"));
	expect_silence("%j");
	fake_step_clear(&step);
}

/* --- The directory at srun's end ----------------------------------------------------------- */

/*
 * A symbolic link has replaced the directory. srun may remove the link, but not the link's target.
 */
TEST(test_removal_swapped)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	ck_assert(mkdir("precious", 0755) == 0);
	write_text("precious/file", "mine");
	ck_assert_int_eq(fake_srun(&step), 0);
	ck_assert(rename(made_directory(&step), "moved") == 0);
	ck_assert(symlink("../precious", made_directory(&step)) == 0);
	fake_srun_exit(&step);
	ck_assert_int_eq(unit_entries("precious"), 1);
	fake_step_clear(&step);
}

/* Children that srun forks run the exit hook too. There the hook must not remove the directory. */
TEST(test_exit_in_child)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};
	int status = -1;
	pid_t child;

	ck_assert_int_eq(fake_srun(&step), 0);
	child = fork();
	if (child == 0) {
		fake_hook(step.srun, "exit");
		_exit(0);
	}
	ck_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	ck_assert_int_eq(unit_entries(made_directory(&step)), 1);
	fake_srun_exit(&step);
	ck_assert_int_eq(unit_entries("."), 0);
	fake_step_clear(&step);
}

/* --- Leftovers of earlier steps ------------------------------------------------------------ */

/*
 * Entries of .ddp that an earlier srun left. The next --ddp step removes an entry unless it
 * [stays].
 */
static const struct {
	const char *what;
	const char *name;   /* name of the entry; %s is replaced by the nonce */
	const char *record; /* contents without nonce, host and process; NULL: no record */
	int days;	    /* age in days */
	bool stays;
} leftovers[] = {
	{
		"killed srun, step ended",
		"alpha-4000.0.0-%s",
		"cluster=alpha;job=4000;complete=1",
	},
	{"unreadable record, recent", "alpha-4000.0.0-%s", "port=x", .stays = true},
	{"unreadable record, old", "alpha-4000.0.0-%s", "port=x", .days = 2, .stays = true},
	{"start time of srun unknown, recent", "alpha-4000.0.0-%s",
	 "cluster=alpha;job=4000;complete=1;began=0;pid=4194304", .stays = true},
	{"start time of srun unknown, old", "alpha-4000.0.0-%s",
	 "cluster=alpha;job=4000;complete=1;began=0;pid=4194304", .days = 2},
	{"incomplete, recent", "alpha-4000.0.0-%s", "cluster=alpha;job=4000", .stays = true},
	{"failures", "failed-4000.0", NULL, .days = 9, .stays = true},
	{"failures of a cluster called failed", "failed-4000.0.0-%s", NULL, .days = 9,
	 .stays = true},
};

static const char nonce[] = "00112233445566ff";

static void write_record(const char *record, const char *directory)
{
	char path[700], text[1024], host[256] = "";

	gethostname(host, sizeof(host) - 1);
	snprintf(path, sizeof(path), "%s/step", directory);
	snprintf(text, sizeof(text), "v1;nonce=%s;from=%s;pid=%u;began=1;%s\n", nonce, host,
		 (unsigned)getpid(), record);
	write_text(path, text);
}

static void grow_old(const char *path, int days)
{
	struct timespec then[2] = {{.tv_sec = time(NULL) - days * 86400 - 60}, {0}};

	then[1] = then[0];
	ck_assert_int_eq(utimensat(AT_FDCWD, path, then, 0), 0);
}

static const char *make_leftover(int i)
{
	static char path[600];
	int n = snprintf(path, sizeof(path), ".ddp/");

	ck_assert(mkdir(".ddp", 0700) == 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(path + n, sizeof(path) - (size_t)n, leftovers[i].name, nonce);
#pragma GCC diagnostic pop
	ck_assert(mkdir(path, 0700) == 0);
	if (leftovers[i].record)
		write_record(leftovers[i].record, path);
	if (leftovers[i].days)
		grow_old(path, leftovers[i].days);
	return path;
}

TEST_ROWS(test_leftover, leftovers)
{
	const char *row = leftovers[_i].what, *path = make_leftover(_i);
	struct fake_step step = {
		.options = "--ddp", .env = "SLURM_RESTART_COUNT=1", .components = {{"n1:0,1"}}};
	bool stays;

	ck_assert_int_eq(fake_run(&step), 0);
	stays = access(path, F_OK) == 0;
	ck_assert_msg(stays == leftovers[_i].stays, "%s: is %s", row, stays ? "left" : "removed");
	ck_assert_int_eq(unit_entries("."), stays);
	expect_silence(row);
	fake_step_clear(&step);
}

/*
 * Clusters that share a directory may use the same job ids. So a step replaces old records of its
 * own cluster only.
 */
TEST(test_failure_records)
{
	static const char *const directories[] = {".ddp/failed-alpha-4711.0",
						  ".ddp/failed-beta-4711.0", ".ddp/failed-4711.0"};
	struct fake_step step = {
		.options = "--ddp", .env = "SLURM_DDP_RESTART=0", .components = {{"n1:0,1"}}};
	char path[64];

	ck_assert_int_eq(mkdir(".ddp", 0700), 0);
	for (int i = 0; i < ROWS(directories); i++) {
		ck_assert_int_eq(mkdir(directories[i], 0700), 0);
		snprintf(path, sizeof(path), "%s/summary", directories[i]);
		write_text(path, "old");
	}
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_lt(access(".ddp/failed-alpha-4711.0/summary", F_OK), 0);
	ck_assert_int_eq(access(".ddp/failed-alpha-4711.0/task-1", F_OK), 0);
	ck_assert_int_eq(access(".ddp/failed-beta-4711.0/summary", F_OK), 0);
	ck_assert_int_eq(access(".ddp/failed-4711.0/summary", F_OK), 0);
	fake_step_clear(&step);
}

/* If slurmctld does not answer, nothing is removed. */
TEST(test_slurmctld_down)
{
	const char *path = make_leftover(0);
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	fake_slurmctld.down = true;
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	fake_step_clear(&step);
}

#ifdef STEPMGR_ENABLED
/*
 * With slurmstepmgr, slurmctld's list does not contain the step of a suspended job. So nothing is
 * removed until the job has completed.
 */
TEST(test_step_manager)
{
	static const char path[] = ".ddp/alpha-4711.7.0-00112233445566ff";
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	ck_assert(mkdir(".ddp", 0700) == 0 && mkdir(path, 0700) == 0);
	write_record("cluster=alpha;job=4711;step=7;complete=1", path);
	fake_slurmctld.job_flags = STEPMGR_ENABLED;
	fake_slurmctld.job_state = JOB_SUSPENDED;
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	fake_step_clear(&step);
	fake_slurmctld.job_state = JOB_COMPLETE;
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_lt(access(path, F_OK), 0);
	fake_step_clear(&step);
}
#endif

/*
 * slurmctld serves all users. So each srun requests the states of at most 4 steps, and the next
 * srun continues with the others.
 */
TEST(test_many_leftovers)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};
	char path[64];

	ck_assert_int_eq(mkdir(".ddp", 0700), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), ".ddp/alpha-40%02d.0.0-%s", i, nonce);
		ck_assert_int_eq(mkdir(path, 0700), 0);
		write_record(leftovers[0].record, path);
	}
	for (int left = 16; left >= 0; left -= 4) {
		fake_slurmctld.asked.steps = 0;
		ck_assert_int_eq(fake_run(&step), 0);
		ck_assert_uint_eq(fake_slurmctld.asked.steps, 4);
		ck_assert_int_eq(unit_entries(".ddp"), left > 0 ? left : -1);
		fake_step_clear(&step);
	}
}

/* A symbolic link that has the name of a leftover is not followed. */
TEST(test_leftover_is_link)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	ck_assert(mkdir(".ddp", 0700) == 0 && mkdir("precious", 0700) == 0);
	write_text("precious/file", "mine");
	grow_old("precious", 9);
	ck_assert(symlink("../precious", ".ddp/alpha-4000.0.0-00112233445566ff") == 0);
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(unit_entries("precious"), 1);
	fake_step_clear(&step);
}

UNIT_MAIN("step", spank_use)
