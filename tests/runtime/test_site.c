/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_site.c - ddp-info --check: checks of files, settings and node states on one host, and the
 * comparison of several hosts
 */
#include "config.h"

#include "base/file.h"
#include "info/site.h"
#include "unit.h"

/* --- Files of a host ------------------------------------------------------------------------ */

static char directory[64];

static void write_file(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	/* Replace "@" by the directory's name. */
	for (; *text; text++)
		if (*text == '@')
			fputs(directory, file);
		else
			fputc(*text, file);
	fclose(file);
}

static void make_directory(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void setup(void)
{
	unit_directory(directory, sizeof(directory));
	chmod(directory, 0755);
}

static void teardown(void)
{
	unit_remove(directory);
}

/* --- Settings -------------------------------------------------------------------------------- */

static const struct {
	const char *text, *name, *value;
} setting_rows[] = {
	{"", "MpiParams", NULL},
	{"MpiParams               = ports=12000-12999\n", "MpiParams", "ports=12000-12999"},
	{"Configuration data\nSLURM_VERSION   = 24.11.5\nX = 1\n", "SLURM_VERSION", "24.11.5"},
	{"MpiParams = (null)\n", "MpiParams", NULL},
	{"MpiParams =\n", "MpiParams", NULL},
	{"SlurmdPort = 1\n", "SlurmdP", NULL},
	{"#PlugStackConfig=/a\nplugstackconfig=/b # c\n", "PlugStackConfig", "/b"},
	{"PlugStackConfig=/b", "PlugStackConfig", "/b"},
	{"X = 1234567890123456789012345678901234567890\n", "X", NULL},
};

TEST_ROWS(setting_is_read, setting_rows)
{
	char value[32];
	bool found =
		site_setting(setting_rows[_i].text, setting_rows[_i].name, value, sizeof(value));

	unit_text(setting_rows[_i].text, "value", found ? value : NULL, setting_rows[_i].value);
}
END_TEST

TEST(settings_that_are_not_read_are_left_out)
{
	struct ddp_text config = {.data = NULL};

	site_settings_keep("Configuration data as of today\nAccountingStorageHost = x\n"
			   "SrunPortRange           = 60001-63000\nSlurmdPort = 6818\n"
			   "Slurmctld(primary) at x is UP",
			   &config);
	ck_assert_str_eq(config.data, "SrunPortRange           = 60001-63000\nSlurmdPort = 6818\n");
	ddp_text_free(&config);
}
END_TEST

static const struct {
	const char *state;
	enum site_ask ask;
} state_rows[] = {
	{"idle", SITE_ASK},	 {"mixed", SITE_ASK},	    {"planned", SITE_ASK},
	{"idle-", SITE_ASK},	 {"allocated", SITE_BUSY},  {"allocated+", SITE_BUSY},
	{"reserved", SITE_BUSY}, {"idle$", SITE_BUSY},	    {"idle*", SITE_AWAY},
	{"idle~", SITE_AWAY},	 {"allocated*", SITE_AWAY}, {"mixed@", SITE_AWAY},
	{"down", SITE_AWAY},	 {"drained", SITE_AWAY},    {"draining", SITE_AWAY},
	{"unknown", SITE_AWAY},	 {"", SITE_AWAY},
};

TEST_ROWS(node_state_decides_whether_it_is_checked, state_rows)
{
	unit_number(state_rows[_i].state, "ask", site_node_state(state_rows[_i].state),
		    state_rows[_i].ask);
}
END_TEST

/* --- plugstack.conf -------------------------------------------------------------------------- */

TEST(stack_is_read_as_slurm_reads_it)
{
	struct site_stack stack = {.lines = NULL};
	char path[256];

	make_directory("d");
	write_file("d/b.conf", "required\tspank_pyxis.so a  b=c # no more\n");
	write_file("d/a.conf", "# nothing\n\n   optional /x/first.so#y\n");
	write_file("d/c.txt", "optional /x/never.so\n");
	write_file("plugstack.conf",
		   "include d/*.conf\noptonal /x/y.so\nOptional /x/y.so\noptional\n"
		   "include @/nothing/*.conf\ninclude @/plugstack.conf\n"
		   "optional /x/ddp.so");
	snprintf(path, sizeof(path), "%s/plugstack.conf", directory);
	site_stack_read(&stack, path);
	/* The file includes itself. The parser stops at some depth. */
	ck_assert_uint_ge(stack.count, 4);
	ck_assert_str_eq(stack.lines[0].path, "/x/first.so");
	ck_assert(!stack.lines[0].required);
	ck_assert_uint_eq(stack.lines[0].number, 3);
	ck_assert_int_eq(stack.lines[0].count, 0);
	ck_assert_str_eq(stack.lines[1].path, "spank_pyxis.so");
	ck_assert(stack.lines[1].required);
	ck_assert_int_eq(stack.lines[1].count, 2);
	ck_assert_str_eq(stack.lines[1].arguments[1], "b=c");
	ck_assert_str_eq(stack.lines[stack.count - 1].path, "/x/ddp.so");
	UNIT_SAYS("ignored", stack.ignored.data, ":2: \"optonal\"\n", ":3: \"Optional\"\n",
		  ":4: \"optional\"\n");
	ck_assert_ptr_null(stack.unreadable.data);
	site_stack_free(&stack);
}
END_TEST

/*
 * Contents of plugstack.conf and Slurm's settings, and the findings that are expected. "@" stands
 * for the directory.
 */
static const struct {
	const char *name, *plugstack, *settings;
	const char *says, *not ;
} host_rows[] = {
	{"correct",
	 "optional @/spank_pyxis.so\noptional @/ddp.so ports=61000-65533 rdzv=@/free/%u\n",
	 "MpiParams = ports=12000-12099\nSrunPortRange = 60001-60999\n",
	 "0\tplugstack.conf\t@/plugstack.conf:2: optional @/ddp.so\t\n|0\torder\tafter pyxis (@/plugstack.conf:1)\t\n|0\targuments\tports=61000-65533 rdzv=@/free/%u\t\n|0\trendezvous\trdzv=@/free/%u; other users cannot change @/free\t\n",
	 "1\tplugstack.conf"},
	{"required", "required @/ddp.so\n", "",
	 "1\tplugstack.conf\t@/plugstack.conf:1: required @/ddp.so\twrite optional", NULL},
	{"twice", "optional @/ddp.so\noptional @/ddp.so ports=x\n", "",
	 "1\tplugstack.conf\t@/plugstack.conf:2 loads ddp.so once more\t|0\targuments\tnone\t\n",
	 NULL},
	{"twice, the first of them missing",
	 "optional @/none/ddp.so\noptional @/ddp.so ports=62000\n", "",
	 "0\tplugstack.conf\t@/plugstack.conf:2: optional @/ddp.so\t|1\tplugstack.conf\t@/plugstack.conf:1 names @/none/ddp.so, which does not exist\t",
	 "once more"},
	{"quotes", "optional \"@/ddp.so\" ports=62000\n", "",
	 "2\tplugstack.conf\t@/plugstack.conf:1: optional \"@/ddp.so\" ports=62000 has quotes\tcorrect",
	 "no line"},
	{"CR LF", "# a comment\r\noptional @/ddp.so\r\n", "",
	 "2\tplugstack.conf\t@/plugstack.conf:2: optional @/ddp.so ends in CR LF\tcorrect",
	 "no line"},
	{"CR LF, behind an argument", "optional @/ddp.so ports=62000\r\n", "",
	 "1\tplugstack.conf\t@/plugstack.conf:1: optional @/ddp.so ports=62000 ends in CR LF\tcorrect",
	 "no line"},
	{"an include in quotes", "include '@/more.conf'\n", "",
	 "2\tplugstack.conf\t@/plugstack.conf:1: include '@/more.conf' has quotes\tcorrect",
	 "no line"},
	{"an include that matches no file", "include @/non*.conf\n", "",
	 "1\tplugstack.conf\t@/plugstack.conf:1: include @/non*.conf matches no file\t|2\tplugstack.conf\tno line",
	 NULL},
	{"an include that matches no file, beside a line that loads ddp.so",
	 "include @/non*.conf\noptional @/ddp.so\n", "",
	 "0\tplugstack.conf\t@/plugstack.conf:2: optional", "matches no file"},
	{"no line", "optional /x/y.so\n", "",
	 "2\tplugstack.conf\tno line of @/plugstack.conf loads ddp.so", "arguments"},
	{"misspelt word", "optinal @/ddp.so\n", "",
	 "1\tplugstack.conf\t@/plugstack.conf:1: \"optinal\" is not a word|2\tplugstack.conf\tno line",
	 NULL},
	{"pyxis after ddp.so", "optional @/ddp.so\nrequired /usr/lib/spank_pyxis.so\n", "",
	 "2\torder\t@/plugstack.conf:2 loads pyxis after @/plugstack.conf:1 loads ddp.so\t", NULL},
	{"unknown argument", "optional @/ddp.so rdvz=/x\n", "",
	 "2\targuments\t@/plugstack.conf:1: there is no argument \"rdvz=/x\"", NULL},
	{"invalid value", "optional @/ddp.so ports=70000\n", "",
	 "2\targuments\t@/plugstack.conf:1: ports=70000 is not a port", NULL},
	{"argument that may differ between nodes", "optional @/ddp.so gpu_memory=80G\n", "",
	 "0\targuments\tnone\t\n", NULL},
	{"no library", "optional @/none/ddp.so\n", "",
	 "2\tddp.so\tcannot read @/none/ddp.so: No such file", NULL},
	{"no plugin", "optional ddp.so\n", "PluginDir = /nothing:@\n",
	 "2\tddp.so\t@/ddp.so is not a Slurm plugin", NULL},
	{"ports overlap SrunPortRange", "optional @/ddp.so ports=62000-62999\n",
	 "MpiParams = ports=12000-12099\nSrunPortRange = 62500-63000\n",
	 "1\tports\t62000-62999, from which MASTER_PORT is computed, and SrunPortRange 62500-63000 overlap\t|0\tMpiParams\tSlurm reserves 12000-12099 for steps\t\n",
	 NULL},
	{"MpiParams overlap SrunPortRange", "optional @/ddp.so\n",
	 "MpiParams = ports=12000-12099\nSrunPortRange = 12099-12200\n",
	 "1\tMpiParams\tits ports 12000-12099 and SrunPortRange 12099-12200 overlap\t", NULL},
	{"privileged ports", "optional @/ddp.so ports=1-2\n", "MpiParams = ports=12000-12099\n",
	 "1\tports\t1-2, from which MASTER_PORT is computed: only root may use ports below ", NULL},
	{"no MpiParams", "optional @/ddp.so\n", "MpiParams = (null)\n",
	 "1\tMpiParams\tno ports are reserved", NULL},
	{"missing directory", "optional @/ddp.so rdzv=@/none/%u\n", "",
	 "2\trendezvous\trdzv=@/none/%u: cannot open @/none: No such file", NULL},
	{"directory writable for everybody", "optional @/ddp.so rdzv=@/open/%u\n", "",
	 "2\trendezvous\trdzv=@/open/%u: @/open is writable for everybody and not sticky", NULL},
	{"one directory for all users", "optional @/ddp.so rdzv=@/free\n", "",
	 "1\trendezvous\trdzv=@/free is one directory for all users\twrite rdzv=DIR/%u", NULL},
	{"relative directory", "optional @/ddp.so rdzv=x\n", "",
	 "0\trendezvous\trdzv=x, below each step's working directory\t\n", NULL},
	{"/tmp private to a job", "optional @/ddp.so rdzv=/tmp/%u\n",
	 "JobContainerType = job_container/tmpfs\n",
	 "2\trendezvous\trdzv=/tmp/%u: with job_container/tmpfs each job has its own /tmp\t", NULL},
	{"/dev/shm private to a job, newer Slurm", "optional @/ddp.so rdzv=/dev/shm/a%u\n",
	 "NamespaceType = namespace/linux\n",
	 "2\trendezvous\trdzv=/dev/shm/a%u: with namespace/linux each job has its own /dev/shm\t",
	 NULL},
};

static void expand(const char *text, char *to, size_t size)
{
	size_t used = 0;

	for (; *text && used < size - 128; text++)
		if (*text == '@')
			used += (size_t)snprintf(to + used, size - used, "%s", directory);
		else
			to[used++] = *text;
	to[used] = '\0';
}

TEST_ROWS(host_is_checked, host_rows)
{
	char config[1024], settings[512], pieces[2048], conf[256];
	struct ddp_text lines = {.data = NULL};
	struct site_found found;

	make_directory("free");
	make_directory("open");
	snprintf(conf, sizeof(conf), "%s/free", directory);
	ck_assert_int_eq(chmod(conf, 01777), 0);
	snprintf(conf, sizeof(conf), "%s/open", directory);
	ck_assert_int_eq(chmod(conf, 0777), 0);
	write_file("slurm.conf", "PlugStackConfig=@/plugstack.conf\n");
	write_file("ddp.so", "\177ELF");
	write_file("plugstack.conf", host_rows[_i].plugstack);
	snprintf(conf, sizeof(conf), "%s/slurm.conf", directory);
	setenv("SLURM_CONF", conf, 1);
	expand(host_rows[_i].settings, settings, sizeof(settings));
	snprintf(config, sizeof(config), "SlurmdUser = me(%u)\nSlurmUser = me(%u)\n%s", geteuid(),
		 geteuid(), settings);
	site_check_host(config, &found, &lines);
	expand(host_rows[_i].says, pieces, sizeof(pieces));
	unit_has(host_rows[_i].name, lines.data, pieces);
	if (host_rows[_i].not )
		ck_assert_msg(!strstr(lines.data, host_rows[_i].not ),
			      "%s: unexpected finding in\n%s", host_rows[_i].name, lines.data);
	ddp_text_free(&lines);
}
END_TEST

/*
 * A full disk, a quota or a read-only export shows only when a file is written. So the check writes
 * a file to the rendezvous directory.
 */
TEST(step_writes_a_file)
{
	struct ddp_text lines = {.data = NULL};
	struct site_found found;
	char path[256];

	setenv("SLURM_CONF", "/nonexistent", 1);
	setenv("DDP_RANK", "0", 1);
	setenv("DDP_RENDEZVOUS", directory, 1);
	site_check_host(SITE_STEP "=1\n", &found, &lines);
	UNIT_SAYS("there", lines.data, "0\tstep\tsrun --ddp made the task a rank, and the ");
	ck_assert_int_eq(unit_entries(directory), 0);
	ddp_text_free(&lines);
	snprintf(path, sizeof(path), "%s/none", directory);
	setenv("DDP_RENDEZVOUS", path, 1);
	site_check_host(SITE_STEP "=1\n", &found, &lines);
	UNIT_SAYS("not there", lines.data,
		  "2\tstep\tcannot write to the directory that srun created: ");
	ddp_text_free(&lines);
}
END_TEST

/* A file that root loads must not be writable for other users. */
TEST(files_of_others_are_reported)
{
	struct ddp_text lines = {.data = NULL};
	struct site_found found;
	char path[256];

	write_file("slurm.conf", "");
	write_file("ddp.so", "\177ELF");
	write_file("plugstack.conf", "optional @/ddp.so\n");
	snprintf(path, sizeof(path), "%s/slurm.conf", directory);
	setenv("SLURM_CONF", path, 1);
	snprintf(path, sizeof(path), "%s/plugstack.conf", directory);
	ck_assert_int_eq(chmod(path, 0666), 0);
	/*
	 * The files belong to this user: not to a Slurm user, and to root only if root runs the
	 * test.
	 */
	site_check_host("SlurmdUser = x(99999)\nSlurmUser = x(99999)\n", &found, &lines);
	UNIT_SAYS("plugstack.conf", lines.data, "2\tplugstack.conf\t",
		  geteuid() == 0 ? " is writable for everybody, and the plugins it loads"
				 : " belongs to user ");
	ddp_text_free(&lines);
}
END_TEST

/* A truncated or damaged library is not accepted, and the parser reads nothing beyond its end. */
TEST(damaged_library_is_rejected)
{
	struct ddp_error error;
	size_t size;
	char *data, series[8];
	uint64_t state = unit_seed(17);

	ck_assert_int_eq(ddp_file_read("/proc/self/exe", 256u << 20, &data, &size, &error), 0);
	ck_assert(!site_library_series(data, size, series));
	for (int i = 0; i < 300; i++) {
		size_t cut = unit_random(&state, (uint32_t)(i % 3 ? size : 4096));
		char *copy = malloc(cut + 1);

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, data, cut);
		for (int damage = 0; damage < 8 && cut > 64; damage++)
			copy[16 + unit_random(&state, 48)] = (char)unit_random(&state, 256);
		(void)site_library_series(copy, cut, series);
		free(copy);
	}
	free(data);
}
END_TEST

/* --- The verdicts of several hosts ------------------------------------------------------------ */

TEST(hosts_with_equal_findings_are_one_row)
{
	static const char well[] = "0\tddp.so\tA\t\n0\targuments\tnone\t\n1\tports\tB\tC\n";
	struct site_report report = {.count = 0};

	site_add_lines(&report, NULL, well);
	site_add_lines(&report, "n1", well);
	site_add_lines(&report, "n2", "0\tddp.so\tA\t\n0\targuments\trdzv=x\t\n2\tports\tD\t\n");
	site_add_lines(&report, "n3", "2\tddp.so\tE\tF\n");
	site_compare(&report);
	ck_assert_uint_eq(report.count, 6);
	/* Rows about the same subject are adjacent. */
	ck_assert_str_eq(report.rows[0].finding, "A");
	ck_assert(report.rows[0].here);
	ck_assert_str_eq(report.rows[0].nodes.data, "n1,n2");
	ck_assert_str_eq(report.rows[1].finding, "E");
	ck_assert_str_eq(report.rows[1].remedy, "F");
	ck_assert_int_eq(report.rows[1].level, SITE_WRONG);
	ck_assert(!report.rows[1].here);
	ck_assert_int_eq(report.rows[2].level, SITE_OK);
	ck_assert_str_eq(report.rows[2].finding, "none");
	/* The hosts differ in a setting that should be equal on all hosts. */
	ck_assert_int_eq(report.rows[3].level, SITE_WARNING);
	ck_assert_str_eq(report.rows[3].finding, "rdzv=x");
	ck_assert_str_eq(report.rows[3].remedy,
			 "other hosts have: none; use the same on all hosts");
	ck_assert_str_eq(report.rows[4].finding, "B");
	ck_assert_str_eq(report.rows[5].finding, "D");
	site_report_free(&report);
}
END_TEST

static void use(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
}

UNIT_MAIN("site", use)
