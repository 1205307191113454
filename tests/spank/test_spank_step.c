/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <slurm/slurm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "spank_test.h"

/* --- Shapes: who am I, and do all agree? --------------------------------------------------- */

static const struct {
	const char *name;
	struct fake_component components[FAKE_COMPONENTS];
	const char *host; /* of rank 0 */
	const char *options, *env;
	bool export_none;
	unsigned uneven; /* times that this is said */
} shapes[] = {
	{"one task", {{"n1:0"}}, "n1"},
	{"one node", {{"n1:0,1,2"}}, "n1"},
	{"two nodes", {{"n1:0,1 n2:2,3"}}, "n1"},
	{"cyclic", {{"n1:0,2 n2:1,3"}}, "n1"},
	{"one task a node", {{"n1:0 n2:1 n3:2"}}, "n1"},
	{"uneven", {{"n1:0,1,2 n2:3"}}, "n1", .uneven = 1},
	{"compressed list", {{"n01:0 n02:1 n03:2", .list = "n[01-03]"}}, "n01"},
	{"arbitrary", {{"n1:1,2 n2:0,3", .list = "n[1-2]"}}, "n2"},
	{"task 0 on the last node", {{"n1:1 n2:2 n3:0", .list = "n[1-3]"}}, "n3"},
	{"task 0 last on its node", {{"n1:1 n2:3,2,0", .list = "n[1-2]"}}, "n2", .uneven = 1},
	{"het", {{"n2:0,1"}, {"n1:2"}}, "n2", .uneven = 1},
	{"het, three", {{"n3:0"}, {"n1:1"}, {"n2:2"}}, "n3"},
	{"het job", {{"n2:0,1"}, {"n1:2,3", .job = 4712}}, "n2"},
	{"het job by SLURM_DDP", {{"n2:0"}, {"n1:1", .job = 4712}}, "n2", "", "SLURM_DDP=1"},
	{"het, export none", {{"n2:0"}, {"n1:1"}}, "n2", "--ddp", "A=1", .export_none = true},
	{"export none", {{"n1:0 n2:1"}}, "n1", "--ddp", "A=1", .export_none = true},
	{"in a batch script", {{"n1:0 n2:1"}}, "n1", "--ddp", "SLURM_PROCID=0 SLURM_NTASKS=9"},
	{"preserve-env", {{"n1:0"}}, "n1", "--ddp", "SLURM_NTASKS=6 SLURM_NNODES=3"},
};

static void expect_number(const char *row, const struct fake_step *step, uint32_t rank,
			  const char *names, uint32_t want)
{
	char *copy = strdup(names), *rest = copy, *name, digits[16];

	snprintf(digits, sizeof(digits), "%u", want);
	while ((name = strsep(&rest, " ")))
		expect_var(row, step, rank, name, digits);
	free(copy);
}

/* The numbers of every task follow from the layout; what all must agree on is equal. */
static void expect_world(const char *row, const struct fake_step *step)
{
	static const char *const equal[] = {"MASTER_ADDR",  "MASTER_PORT",   "DDP_RENDEZVOUS",
					    "DDP_JOB",	    "DDP_INIT_FILE", "NCCL_SOCKET_MAGIC",
					    "NCCL_RAS_ADDR"};
	uint32_t tasks[FAKE_LOCAL], node = 0, nodes = 0, size = fake_ranks(step);
	char name[64];

	for (int pass = 0; pass < 2; pass++)
		for (int c = 0; c < FAKE_COMPONENTS; c++) {
			const char *at = step->components[c].layout;
			int n;

			for (; at && (n = fake_layout_next(&at, name, tasks)) >= 0; node++) {
				if (pass == 0) {
					nodes++;
					continue;
				}
				for (int i = 0; i < n; i++) {
					uint32_t r = tasks[i];

					expect_number(row, step, r, "RANK DDP_RANK ROLE_RANK", r);
					expect_number(row, step, r,
						      "WORLD_SIZE DDP_SIZE ROLE_WORLD_SIZE", size);
					expect_number(row, step, r, "LOCAL_RANK DDP_LOCAL_RANK",
						      (uint32_t)i);
					expect_number(row, step, r,
						      "LOCAL_WORLD_SIZE DDP_LOCAL_SIZE",
						      (uint32_t)n);
					expect_number(row, step, r,
						      "NODE_RANK GROUP_RANK DDP_NODE_RANK",
						      node - nodes);
					expect_number(row, step, r, "GROUP_WORLD_SIZE", nodes);
				}
			}
		}
	for (uint32_t r = 0; r < size; r++) {
		ck_assert_msg(step->result[r] == 0, "%s: rank %u fails%s", row, r,
			      fake_transcript());
		expect_vars(row, step, r,
			    "ROLE_NAME=default DDP_ATTEMPT=0 -DDP_ERROR -SLURM_DDP_STEP");
		for (int e = 0; e < ROWS(equal); e++) {
			ck_assert_msg(fake_var(step, 0, equal[e]), "%s: no %s", row, equal[e]);
			expect_var(row, step, r, equal[e], fake_var(step, 0, equal[e]));
		}
	}
}

static void expect_url(const char *row, const struct fake_step *step, uint32_t rank)
{
	char url[512];

	snprintf(url, sizeof(url), "file://%s/store", fake_var(step, rank, "DDP_RENDEZVOUS"));
	expect_var(row, step, rank, "DDP_INIT_FILE", url);
	snprintf(url + strlen(url), 64, "?rank=%u&world_size=%u", rank, fake_ranks(step));
	expect_var(row, step, rank, "DDP_INIT_METHOD", url);
}

START_TEST(test_shape)
{
	const char *row = shapes[_i].name;
	struct fake_step step = {
		.options = shapes[_i].options ? shapes[_i].options : "--ddp",
		.env = shapes[_i].env,
		.export_none = shapes[_i].export_none,
	};

	memcpy(step.components, shapes[_i].components, sizeof(step.components));
	ck_assert_msg(fake_run(&step) == 0, "%s: refused%s", row, fake_transcript());
	expect_world(row, &step);
	expect_var(row, &step, 0, "MASTER_ADDR", shapes[_i].host);
	expect_var(row, &step, 0, "DDP_JOB", "alpha.4711.0");
	for (uint32_t r = 0; r < fake_ranks(&step); r++)
		expect_url(row, &step, r);
	if (shapes[_i].export_none)
		expect_var(row, &step, 0, "A", NULL);
	expect_said(row, FAKE_LOG, "different numbers of tasks", shapes[_i].uneven);
	expect_said(row, FAKE_ANY, "", shapes[_i].uneven);
	ck_assert_int_eq(count_entries("."), 0);
	fake_step_clear(&step);
}
END_TEST

/* The layout is asked for only where it is needed, and each thing at most once. */
START_TEST(test_questions)
{
	struct fake_step one = {.options = "--ddp", .components = {{"n1:0,1"}}};
	struct fake_step many = {.options = "--ddp", .components = {{"n1:0 n2:1"}}};
	struct fake_step by_hand = {.options = "--ddp", .components = {{"n1:1 n2:0"}}};

	ck_assert_int_eq(fake_run(&one), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, 0);
	fake_step_clear(&one);
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	ck_assert_int_eq(fake_run(&many), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, 0);
	ck_assert_uint_eq(fake_slurmctld.asked.steps, 0);
	ck_assert_uint_le(fake_slurmctld.asked.node, 1);
	ck_assert_uint_eq(fake_slurmctld.asked.nodes, 0);
	ck_assert_uint_eq(fake_slurmctld.asked.job, 1);
	fake_step_clear(&many);
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	ck_assert_int_eq(fake_run(&by_hand), 0);
	ck_assert_uint_eq(fake_slurmctld.asked.layout, 1);
	fake_step_clear(&by_hand);
}
END_TEST

/* A step inside a step: the outer's values are ours, the user's own stay the user's. */
START_TEST(test_nested)
{
	struct fake_step outer = {
		.job = 4711,
		.step = 3,
		.options = "--ddp",
		.env = "OMP_NUM_THREADS=7",
		.components = {{"n1:0 n2:1", .step_env = "CUDA_VISIBLE_DEVICES=0,1"}}};
	struct fake_step inner = {.job = 4711,
				  .step = 4,
				  .options = "--ddp",
				  .components = {{"n2:0,1", .step_env = "-CUDA_VISIBLE_DEVICES"}}};
	const char *row = "nested";

	ck_assert_int_eq(fake_run(&outer), 0);
	expect_vars(row, &outer, 1, "PET_NNODES=2 OMP_NUM_THREADS=7 MASTER_ADDR=n1");
	fake_env_become(outer.task[1]);
	fake_slurmctld.layout = NULL;
	ck_assert_int_eq(fake_run(&inner), 0);
	for (uint32_t r = 0; r < 2; r++)
		expect_vars(row, &inner, r,
			    "MASTER_ADDR=n2 WORLD_SIZE=2 DDP_JOB=alpha.4711.4 OMP_NUM_THREADS=7 "
			    "-PET_NNODES -PET_RDZV_ID -DDP_DEVICE");
	ck_assert_str_ne(fake_var(&inner, 0, "MASTER_PORT"), fake_var(&outer, 0, "MASTER_PORT"));
	ck_assert_str_ne(fake_var(&inner, 0, "NCCL_SOCKET_MAGIC"),
			 fake_var(&outer, 0, "NCCL_SOCKET_MAGIC"));
	ck_assert_str_ne(fake_var(&inner, 0, "DDP_RENDEZVOUS"),
			 fake_var(&outer, 0, "DDP_RENDEZVOUS"));
	expect_silence(row);
	fake_step_clear(&outer);
	fake_step_clear(&inner);
}
END_TEST

/* --- The endpoint ------------------------------------------------------------------------- */

static const struct {
	const char *name, *options, *env, *srun_conf;
	const char *reserved, *address; /* slurmctld's */
	const char *want;
	const char *said;
	uint32_t job, step;
} endpoints[] = {
	{"user's", "--ddp", "MASTER_ADDR=10.1.1.1 MASTER_PORT=901", .reserved = "911-914",
	 .want = "MASTER_ADDR=10.1.1.1 MASTER_PORT=901 NCCL_RAS_ADDR=localhost:902"},
	{"user's port", "--ddp", "MASTER_PORT=901",
	 .want = "MASTER_ADDR=n1 MASTER_PORT=901 NCCL_RAS_ADDR=localhost:902"},
	{"user's last port", "--ddp", "MASTER_ADDR=me MASTER_PORT=65535",
	 .want = "MASTER_PORT=65535 -NCCL_RAS_ADDR"},
	{"user's over option", "--ddp --ddp-port=921", "MASTER_PORT=901", .want = "MASTER_PORT=901",
	 .said = "--ddp-port is not"},
	{"empty is not the user's", "--ddp", "MASTER_ADDR= MASTER_PORT=", .reserved = "911",
	 .want = "MASTER_ADDR=n1 MASTER_PORT=911"},
	{"reserved", "--ddp", .reserved = "911-914",
	 .want = "MASTER_PORT=911 NCCL_RAS_ADDR=localhost:912"},
	{"reserved, one", "--ddp", .reserved = "911", .want = "MASTER_PORT=911 -NCCL_RAS_ADDR"},
	{"reserved, apart", "--ddp", .reserved = "911,921",
	 .want = "MASTER_PORT=911 NCCL_RAS_ADDR=localhost:921"},
	{"reserved, malformed", "--ddp", .reserved = "9x", .srun_conf = "ports=2000-2999",
	 .want = "MASTER_PORT=2560"},
	{"option", "--ddp --ddp-port=921", .reserved = "911-914",
	 .want = "MASTER_PORT=921 NCCL_RAS_ADDR=localhost:922"},
	{"option by SLURM_DDP_PORT", "--ddp", "SLURM_DDP_PORT=921", .reserved = "911-914",
	 .want = "MASTER_PORT=921"},
	{"option over SLURM_DDP_PORT", "--ddp --ddp-port=923", "SLURM_DDP_PORT=921",
	 .want = "MASTER_PORT=923"},
	{"range", "--ddp --ddp-port=2000-2999", .want = "MASTER_PORT=2560"},
	{"computed", "--ddp", .srun_conf = "ports=2000-2999",
	 .want = "MASTER_PORT=2560 NCCL_SOCKET_MAGIC=0xd1c48c584972c558"},
	{"computed, another step", "--ddp", .srun_conf = "ports=2000-2999", .step = 1,
	 .want = "MASTER_PORT=2828"},
	{"computed, another job", "--ddp", .srun_conf = "ports=2000-2999", .job = 4712,
	 .want = "MASTER_PORT=2624"},
	{"computed, requeued", "--ddp", "SLURM_RESTART_COUNT=1", "ports=2000-2999",
	 .want = "MASTER_PORT=2796 DDP_ATTEMPT=1"},
	{"computed, another cluster", "--ddp", "SLURM_CLUSTER_NAME=beta", "ports=2000-2999",
	 .want = "MASTER_PORT=2594 DDP_JOB=beta.4711.0"},
	{"NodeAddr", "--ddp", .address = "10.0.0.7", .want = "MASTER_ADDR=10.0.0.7"},
	{"NodeAddr is NodeName", "--ddp", .address = "n1", .want = "MASTER_ADDR=n1"},
	{"suffix", "--ddp --ddp-master-suffix=-ib", .address = "10.0.0.7",
	 .want = "MASTER_ADDR=n1-ib"},
	{"suffix by plugstack", "--ddp", .srun_conf = "master_suffix=-hs",
	 .want = "MASTER_ADDR=n1-hs"},
	{"suffix over plugstack", "--ddp --ddp-master-suffix=-ib", .srun_conf = "master_suffix=-hs",
	 .want = "MASTER_ADDR=n1-ib"},
	{"user's over suffix", "--ddp --ddp-master-suffix=-ib", "MASTER_ADDR=me",
	 .want = "MASTER_ADDR=me"},
};

START_TEST(test_endpoint)
{
	const char *row = endpoints[_i].name;
	struct fake_step step = {
		.options = endpoints[_i].options,
		.env = endpoints[_i].env,
		.srun_conf = endpoints[_i].srun_conf,
		.job = endpoints[_i].job,
		.step = endpoints[_i].step,
		.components = {{"n1:0 n2:1"}},
	};

	fake_slurmctld.reserved_ports = endpoints[_i].reserved;
	fake_slurmctld.nodes[0] = (struct fake_node_record){"n1", endpoints[_i].address, NULL};
	ck_assert_msg(fake_run(&step) == 0, "%s: refused%s", row, fake_transcript());
	for (uint32_t r = 0; r < 2; r++) {
		expect_vars(row, &step, r, endpoints[_i].want);
		expect_vars(row, &step, r, "WORLD_SIZE=2 -DDP_ERROR");
	}
	expect_said(row, FAKE_LOG, endpoints[_i].said ? endpoints[_i].said : "",
		    endpoints[_i].said != NULL);
	fake_step_clear(&step);
}
END_TEST

/* Bare torchrun takes one task a node; its values follow the user's endpoint. */
START_TEST(test_torchrun)
{
	struct fake_step step = {
		.options = "--ddp",
		.env = "MASTER_PORT=901 PET_RDZV_ID=mine",
		.components = {{"n1:0 n2:1", .step_env = "CUDA_VISIBLE_DEVICES=0,1,2"}},
	};

	ck_assert_int_eq(fake_run(&step), 0);
	for (uint32_t r = 0; r < 2; r++) {
		expect_vars(
			"torchrun", &step, r,
			"PET_NNODES=2 PET_NPROC_PER_NODE=3 PET_MASTER_ADDR=n1 PET_MASTER_PORT=901 "
			"PET_RDZV_BACKEND=static PET_RDZV_ENDPOINT=n1:901 PET_RDZV_ID=mine");
		expect_var("torchrun", &step, r, "PET_NODE_RANK", r ? "1" : "0");
	}
	fake_step_clear(&step);
}
END_TEST

/* What the user set and the plugin replaces is told once; what others left is cleared away. */
START_TEST(test_own_values)
{
	struct fake_step step = {
		.options = "--ddp",
		.env = "WORLD_SIZE=9 LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=3 NCCL_RAS_ADDR=me:1 "
		       "TORCHELASTIC_USE_AGENT_STORE=True DDP_ERROR=old DDP_SHARE=0.1 NCCL_DEBUG=INFO "
		       "TORCHELASTIC_RUN_ID=mine",
		.components = {{"n1:0,1 n2:2,3"}},
	};

	fake_slurmctld.end = 1900000000;
	ck_assert_int_eq(fake_run(&step), 0);
	for (uint32_t r = 0; r < 4; r++)
		expect_vars("own", &step, r,
			    "WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=3 NCCL_RAS_ADDR=me:1 "
			    "-TORCHELASTIC_USE_AGENT_STORE -DDP_ERROR -DDP_SHARE NCCL_DEBUG=INFO "
			    "TORCHELASTIC_RUN_ID=mine DDP_END_TIME=1900000000");
	expect_said("own", FAKE_LOG, "WORLD_SIZE=9 of your environment is replaced", 1);
	expect_said("own", FAKE_ANY, "", 1);
	fake_step_clear(&step);
}
END_TEST

/* Who looks at the output sees rank 0's variables, and a line for each other rank. */
START_TEST(test_verbose)
{
	struct fake_step step = {.options = "--ddp --ddp-verbose",
				 .env = "MASTER_PORT=901",
				 .components = {{"n1:0,1 n2:2,3"}}};

	ck_assert_int_eq(fake_run(&step), 0);
	expect_pieces("verbose", FAKE_LOG,
		      "rank 0 on n1: set RANK=0|rank 0 on n1: set MASTER_ADDR=n1|"
		      "rank 0 on n1: kept MASTER_PORT=901 (yours)|rank 3 of 4 on n2: local 1 of 2");
	expect_said("verbose", FAKE_LOG, "set WORLD_SIZE=4 ", 1);
	expect_said("verbose", FAKE_LOG, "rank 3 of 4", 1);
	fake_step_clear(&step);
}
END_TEST

/* --- Steps that are none of ours ----------------------------------------------------------- */

static const char *const launchers[] = {"orted",
					"/opt/ompi/bin/orted",
					"prted",
					"hydra_bstrap_proxy",
					"/usr/bin/hydra_pmi_proxy",
					"pmi_proxy",
					"mpiexec"};

START_TEST(test_launcher)
{
	const char *row = launchers[_i];
	struct fake_step step = {
		.options = "--ddp --ddp-verbose", .program = row, .components = {{"n1:0 n2:1"}}};

	ck_assert_int_eq(fake_srun(&step), 0);
	ck_assert_msg(!fake_env_get(step.launched[0], "SLURM_DDP_STEP"), "%s: has a plan", row);
	ck_assert_int_eq(count_entries("."), 0);
	fake_nodes(&step);
	fake_srun_exit(&step);
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_msg(!step.task_changed[r], "%s: rank %u is changed", row, r);
	expect_silence(row);
	fake_step_clear(&step);
}
END_TEST

static const uint32_t special_steps[] = {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
					 SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP};

START_TEST(test_special_step)
{
	struct fake_step step = {
		.step = special_steps[_i], .inherited = "--ddp", .components = {{"n1:0"}}};

	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert(!step.task_changed[0]);
	ck_assert_int_eq(count_entries("."), 0);
	expect_silence("special");
	fake_step_clear(&step);
}
END_TEST

/* srun's host lacks the plugin, and a batch script's environment has another step's plan. */
START_TEST(test_stale_plan)
{
	struct fake_step step = {.components = {{"n1:0 n2:1"}}};

	ck_assert_int_eq(fake_srun(&step), 0);
	fake_env_set(&step.launched[0], "SLURM_DDP_STEP",
		     "v1;nonce=0123456789abcdef;complete=1;cluster=alpha;job=4711;step=9;node=n9;"
		     "address=n9;port=901");
	fake_nodes(&step);
	for (uint32_t r = 0; r < 2; r++)
		expect_vars("stale", &step, r, "-RANK -MASTER_ADDR -DDP_ERROR");
	expect_silence("stale");
	fake_srun_exit(&step);
	fake_step_clear(&step);
}
END_TEST

static void fill(TCase *tcase)
{
	SPANK_ROWS(tcase, test_shape, shapes);
	tcase_add_test(tcase, test_questions);
	tcase_add_test(tcase, test_nested);
	SPANK_ROWS(tcase, test_endpoint, endpoints);
	tcase_add_test(tcase, test_torchrun);
	tcase_add_test(tcase, test_own_values);
	tcase_add_test(tcase, test_verbose);
	SPANK_ROWS(tcase, test_launcher, launchers);
	SPANK_ROWS(tcase, test_special_step, special_steps);
	tcase_add_test(tcase, test_stale_plan);
}

int main(void)
{
	return spank_run("step", fill);
}
