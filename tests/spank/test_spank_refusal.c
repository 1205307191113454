/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "spank_test.h"

static const struct fake_component four = {"n1:0,1 n2:2,3"};

/* Let srun succeed, then change what the nodes get. */
static void begin(struct fake_step *step)
{
	ck_assert_msg(fake_srun(step) == 0, "refused%s", fake_transcript());
	ck_assert_ptr_nonnull(fake_env_get(step->launched[0], "SLURM_DDP_STEP"));
}

static void end(struct fake_step *step)
{
	fake_srun_exit(step);
	fake_step_clear(step);
}

/* --- The plan ----------------------------------------------------------------------------- */

static const struct {
	const char *name, *plan, *why;
} plans[] = {
	{"none", NULL, "installed where srun ran"},
	{"empty", "", "install the same slurm-ddp"},
	{"older", "v0;nonce=00", "version \"v0\""},
	{"newer", "v2;nonce=00", "install the same slurm-ddp"},
	{"newer, v10", "v10;nonce=00", "version \"v10\""},
	{"no plan at all", "hello", "version \"hello\""},
	{"no value", "v1;nonce", "SLURM_DDP_STEP is malformed"},
	{"not a number", "v1;port=x", "unusable value for \"port\""},
	{"too large a number", "v1;port=4294967296", "unusable value for \"port\""},
	{"half an escape", "v1;node=%4", "unusable value for \"node\""},
	{"a zero byte", "v1;node=%00", "unusable value for \"node\""},
	{"too long a nonce", "v1;nonce=0123456789abcdef0", "unusable value for \"nonce\""},
	{"srun's problem", "v1;problem=no%20luck", "no luck"},
};

START_TEST(test_plan)
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
	/* One task of each node speaks, none where srun did. */
	expect_said(row, FAKE_ERROR, plans[_i].why, srun_said ? 0 : 2);
	expect_said(row, FAKE_ANY, "", srun_said ? 0 : 2);
	end(&step);
}
END_TEST

/* A srun of a later release may say more. */
START_TEST(test_unknown_key)
{
	struct fake_step step = {.options = "--ddp", .components = {four}};
	char *plan = NULL;

	begin(&step);
	ck_assert(asprintf(&plan, "%s;future=1;more=%%20",
			   fake_env_get(step.launched[0], "SLURM_DDP_STEP")) > 0);
	fake_env_set(&step.launched[0], "SLURM_DDP_STEP", plan);
	free(plan);
	fake_nodes(&step);
	for (uint32_t r = 0; r < 4; r++)
		expect_vars("unknown key", &step, r, "WORLD_SIZE=4 -DDP_ERROR");
	expect_silence("unknown key");
	end(&step);
}
END_TEST

/* --- The task ----------------------------------------------------------------------------- */

static const struct {
	const char *task_env, *why;
} tasks[] = {
	{"-SLURM_PROCID", "SLURM_PROCID"},
	{"SLURM_PROCID=x", "SLURM_PROCID=x is not a number"},
	{"SLURM_PROCID=4", "SLURM_PROCID=4 is not below SLURM_STEP_NUM_TASKS=4"},
	{"-SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
	{"SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NUM_TASKS=1"},
	{"SLURM_LOCALID=2", "SLURM_LOCALID=2 does not fit 2 tasks"},
	{"SLURM_NODEID=2", "SLURM_NODEID=2 is not below SLURM_STEP_NUM_NODES=2"},
	{"-SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_NODES"},
};

/* One task whose identity does not hold fails alone, with values of its own gone too. */
START_TEST(test_task)
{
	const char *row = tasks[_i].task_env;
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
			      strstr(fake_var(&step, 3, "DDP_ERROR"), tasks[_i].why),
		      "%s: %s", row, fake_transcript());
	expect_said(row, FAKE_ERROR, tasks[_i].why, 1);
	expect_said(row, FAKE_ANY, "", 1);
	end(&step);
}
END_TEST

/* --- The port ----------------------------------------------------------------------------- */

static int listener(uint16_t *port, int family)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *address =
		family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t size = family == AF_INET ? sizeof(v4) : sizeof(v6);
	int fd = socket(family, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, address, size) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, address, &size) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	*port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
	return fd;
}

static const struct {
	const char *name, *options, *env; /* %u is the port */
	int family;
	bool taken;
	const char *remedy;
} ports[] = {
	{"option", "--ddp --ddp-port=%u", "", AF_INET, true, "--ddp-port=LO-HI"},
	{"option, IPv6", "--ddp --ddp-port=%u", "", AF_INET6, true, "--ddp-port=LO-HI"},
	{"user's", "--ddp", "MASTER_PORT=%u", AF_INET, true, "unset MASTER_PORT"},
	/* Somebody else's store is no business of this node's ports. */
	{"user's own server", "--ddp", "MASTER_ADDR=server MASTER_PORT=%u", AF_INET, false, NULL},
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
START_TEST(test_port)
{
	const char *row = ports[_i].name;
	char options[64], env[64], said[64];
	struct fake_step step = {.options = options, .env = env, .components = {four}};
	uint16_t port = 0;
	int fd = listener(&port, ports[_i].family);

	if (fd < 0 && ports[_i].family == AF_INET6)
		return;
	ck_assert_int_ge(fd, 0);
	snprintf(options, sizeof(options), ports[_i].options, port);
	snprintf(env, sizeof(env), ports[_i].env, port);
	begin(&step);
	fake_nodes(&step);
	close(fd);
	ck_assert_int_eq(step.result[0], ports[_i].taken ? -1 : 0);
	for (uint32_t r = 1; r < 4; r++)
		ck_assert_int_eq(step.result[r], 0);
	if (ports[_i].taken) {
		snprintf(said, sizeof(said), "port %u of n1", port);
		expect_pieces(row, FAKE_ERROR, said);
		expect_pieces(row, FAKE_ERROR, ports[_i].remedy);
		expect_vars(row, &step, 0,
			    "-RANK -WORLD_SIZE -MASTER_ADDR -MASTER_PORT -DDP_INIT_FILE");
		ck_assert_ptr_nonnull(fake_var(&step, 0, "DDP_ERROR"));
	}
	expect_said(row, FAKE_ERROR, "", ports[_i].taken);
	end(&step);
}
END_TEST
#pragma GCC diagnostic pop

static const char *const wrong_ports[] = {"abc", "0", "65536", "-1", "+5", "1e3"};

/* Known in srun already, so it is said there; by --ddp as by SLURM_DDP. */
START_TEST(test_wrong_port)
{
	char env[64], said[64];
	struct fake_step step = {.env = env, .components = {four}};

	for (int by_env = 0; by_env < 2; by_env++) {
		snprintf(env, sizeof(env), "MASTER_PORT=%s %s", wrong_ports[_i],
			 by_env ? "SLURM_DDP=1" : "");
		step.options = by_env ? "" : "--ddp";
		ck_assert_int_eq(fake_run(&step), -1);
		snprintf(said, sizeof(said), "MASTER_PORT=%s|1 to 65535|unset it", wrong_ports[_i]);
		expect_pieces(wrong_ports[_i], FAKE_ERROR, said);
		expect_said(wrong_ports[_i], FAKE_ANY, "", 1);
		if (!fake_option_refused(&step))
			expect_refused(wrong_ports[_i], &step, "MASTER_PORT");
		ck_assert_int_eq(count_entries("."), 0);
		fake_step_clear(&step);
		fake_forget();
	}
}
END_TEST

/* --- No answers --------------------------------------------------------------------------- */

START_TEST(test_no_slurmctld)
{
	struct fake_step one = {.options = "--ddp", .components = {{"n1:0,1"}}};
	struct fake_step many = {
		.options = "--ddp", .env = "SLURM_DISTRIBUTION=arbitrary", .components = {four}};

	fake_slurmctld.down = true;
	ck_assert_int_eq(fake_run(&one), 0);
	for (uint32_t r = 0; r < 2; r++)
		expect_vars("one node", &one, r,
			    "MASTER_ADDR=n1 WORLD_SIZE=2 -DDP_ERROR -DDP_END_TIME");
	expect_silence("one node");
	fake_step_clear(&one);

	ck_assert_int_eq(fake_run(&many), -1);
	expect_pieces("many", FAKE_ERROR, "slurmctld|rank 0 of step 4711.0|MASTER_ADDR");
	expect_said("many", FAKE_ANY, "", 1);
	expect_refused("many", &many, "slurmctld");
	ck_assert_int_eq(count_entries("."), 0);
	fake_step_clear(&many);
}
END_TEST

/* --- The directory, on the nodes ------------------------------------------------------------ */

static void hide(struct fake_step *step)
{
	(void)step;
	ck_assert_int_eq(rename(".ddp", "hidden"), 0);
}

static void show(void)
{
	ck_assert_int_eq(rename("hidden", ".ddp"), 0);
}

/* Not shared: asked for or not makes the difference. */
START_TEST(test_not_shared)
{
	char options[200], host[256] = "", said[600];
	struct fake_step step = {.options = "--ddp", .components = {four}};

	gethostname(host, sizeof(host) - 1);
	begin(&step);
	hide(&step);
	fake_nodes(&step);
	for (uint32_t r = 0; r < 4; r++)
		expect_vars(
			"not asked for", &step, r,
			"WORLD_SIZE=4 MASTER_ADDR=n1 -DDP_ERROR -DDP_RENDEZVOUS -DDP_INIT_METHOD "
			"-DDP_INIT_FILE");
	snprintf(said, sizeof(said),
		 "no rendezvous directory|node n1|%s/.ddp/|with %s, where srun ran|--ddp-rdzv",
		 spank_dir, host);
	expect_pieces("not asked for", FAKE_LOG, said);
	/* Each node that does not see it says so. */
	expect_said("not asked for", FAKE_LOG, "no rendezvous directory: node n2", 1);
	expect_said("not asked for", FAKE_ANY, "", 2);
	show();
	end(&step);
	fake_forget();

	snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s", spank_dir);
	step.options = options;
	begin(&step);
	hide(&step);
	fake_nodes(&step);
	expect_refused("asked for", &step, "does not share");
	snprintf(said, sizeof(said), "node n1|node n2|%s/.ddp/|with %s, where srun ran", spank_dir,
		 host);
	expect_pieces("asked for", FAKE_ERROR, said);
	expect_said("asked for", FAKE_ANY, "", 2);
	show();
	end(&step);
	ck_assert_int_eq(count_entries("."), 0);
}
END_TEST

/* A directory of the same name, but not the one that srun made: another file system. */
START_TEST(test_look_alike)
{
	char path[512];
	const char *plan, *at;
	struct fake_step step = {.options = "--ddp --ddp-rdzv=.", .components = {{"n1:0,1"}}};

	begin(&step);
	plan = fake_env_get(step.launched[0], "SLURM_DDP_STEP");
	at = strstr(plan, ";directory=") + 11;
	snprintf(path, sizeof(path), "%.*s/step", (int)strcspn(at, ";"), at);
	write_text(path, "v1;nonce=00112233445566ff;complete=1\n");
	fake_nodes(&step);
	expect_refused("look-alike", &step, "another step's");
	expect_said("look-alike", FAKE_ANY, "", 1);
	end(&step);
}
END_TEST

/* A later component learns all from the directory, so it cannot do without. */
START_TEST(test_het_not_shared)
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
	expect_said("later", FAKE_ERROR, "", 1);
	show();
	end(&step);
}
END_TEST

/* A directory whose name depends on rank 0's node is not to be found by later components. */
START_TEST(test_het_template)
{
	char options[200];
	struct fake_step step = {.options = options, .components = {{"n2:0"}, {"n1:1"}}};

	snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s/%%n", spank_dir);
	ck_assert_int_eq(fake_run(&step), -1);
	expect_pieces("%n", FAKE_ERROR, "%n|heterogeneous");
	fake_step_clear(&step);
	fake_forget();
	snprintf(options, sizeof(options), "--ddp --ddp-rdzv=%s/%%j-%%s-%%u", spank_dir);
	ck_assert_int_eq(fake_run(&step), 0);
	expect_var("%j", &step, 1, "DDP_RENDEZVOUS", fake_var(&step, 0, "DDP_RENDEZVOUS"));
	expect_silence("%j");
	fake_step_clear(&step);
}
END_TEST

static void fill(TCase *tcase)
{
	SPANK_ROWS(tcase, test_plan, plans);
	tcase_add_test(tcase, test_unknown_key);
	SPANK_ROWS(tcase, test_task, tasks);
	SPANK_ROWS(tcase, test_port, ports);
	SPANK_ROWS(tcase, test_wrong_port, wrong_ports);
	tcase_add_test(tcase, test_no_slurmctld);
	tcase_add_test(tcase, test_not_shared);
	tcase_add_test(tcase, test_look_alike);
	tcase_add_test(tcase, test_het_not_shared);
	tcase_add_test(tcase, test_het_template);
}

int main(void)
{
	return spank_run("refusal", fill);
}
