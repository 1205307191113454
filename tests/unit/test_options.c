/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "options.h"
#include "unit.h"

#include <stdarg.h>
#include <stdio.h>

/*
 * Each row of the option table has all its texts, and can be set in some way. No name appears
 * twice.
 */
TEST(test_table)
{
	for (int i = 0; i < DDP_OPT_COUNT; i++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)i);

		ck_assert(o->option || o->plugstack);
		ck_assert(o->manual && *o->manual);
		ck_assert_int_eq(!o->option, !o->help);
		if (o->option)
			ck_assert(strncmp(o->option, "ddp", 3) == 0 ||
				  strcmp(o->option, "no-ddp") == 0);
		if (o->environment)
			ck_assert(o->option && strncmp(o->environment, "SLURM_DDP", 9) == 0);
		if (o->plugstack)
			ck_assert_ptr_nonnull(o->argument);
		for (int j = 0; j < i; j++) {
			const struct ddp_option *p = ddp_option((enum ddp_option_id)j);

			ck_assert(!o->option || !p->option || strcmp(o->option, p->option) != 0);
			ck_assert(!o->environment || !p->environment ||
				  strcmp(o->environment, p->environment) != 0);
			ck_assert(!o->plugstack || !p->plugstack ||
				  strcmp(o->plugstack, p->plugstack) != 0);
		}
	}
}

TEST(test_defaults)
{
	struct ddp_values v;

	memset(&v, 0xaa, sizeof(v));
	ddp_values_init(&v);
	ck_assert(!v.enabled && !v.verbose);
	ck_assert_str_eq(v.directory, "");
	ck_assert_str_eq(v.suffix, "");
	ck_assert_uint_eq(v.ports.lo, 0);
	ck_assert_uint_eq(v.ports.hi, 0);
	ck_assert_uint_eq(v.site_ports.lo, 61000);
	ck_assert_uint_eq(v.site_ports.hi, 65533);
	ck_assert_uint_eq(v.local_rank, DDP_LOCAL_RANK_AUTO);
	ck_assert_uint_eq(v.share, DDP_SHARE_AUTO);
	ck_assert_uint_eq(v.shards_per_gpu, 0);
	ck_assert(!v.launcher_allowed);
	for (int i = 0; i < DDP_OPT_COUNT; i++)
		ck_assert_uint_eq(v.source[i], DDP_FROM_DEFAULT);
}

static char shown[DDP_PATH_SIZE];

static void __attribute__((format(printf, 1, 2))) show_one(const char *format, ...)
{
	size_t n = strlen(shown);
	va_list ap;

	if (n > 0)
		shown[n++] = ' ';
	va_start(ap, format);
	vsnprintf(shown + n, sizeof(shown) - n, format, ap);
	va_end(ap);
}

/* Returns the options that differ from their defaults. */
static const char *show(const struct ddp_values *v)
{
	shown[0] = '\0';
	if (v->enabled)
		show_one("on");
	if (v->verbose)
		show_one("verbose");
	if (v->directory[0])
		show_one("dir=%s", v->directory);
	if (v->ports.lo || v->ports.hi)
		show_one("ports=%u-%u", v->ports.lo, v->ports.hi);
	if (v->site_ports.lo != 61000 || v->site_ports.hi != 65533)
		show_one("site=%u-%u", v->site_ports.lo, v->site_ports.hi);
	if (v->suffix[0])
		show_one("suffix=%s", v->suffix);
	if (v->local_rank)
		show_one("local_rank=%u", v->local_rank);
	if (v->share)
		show_one("share=%u", v->share);
	if (v->launcher_allowed)
		show_one("allow");
	if (v->shards_per_gpu)
		show_one("shards=%u", v->shards_per_gpu);
	if (v->gpu_memory)
		show_one("memory=%llu", (unsigned long long)v->gpu_memory);
	return shown;
}

static const struct {
	enum ddp_option_id id;
	const char *text;
	const char *want;
} good[] = {
	{DDP_OPT_DDP, NULL, "on"},
	{DDP_OPT_DDP, "1", "on"},
	{DDP_OPT_DDP, "yes", "on"},
	{DDP_OPT_DDP, "On", "on"},
	{DDP_OPT_DDP, "TRUE", "on"},
	{DDP_OPT_DDP, "0", ""},
	{DDP_OPT_DDP, "no", ""},
	{DDP_OPT_DDP, "off", ""},
	{DDP_OPT_DDP, "False", ""},
	{DDP_OPT_NO_DDP, NULL, ""},
	{DDP_OPT_NO_DDP, "0", "on"},
	{DDP_OPT_VERBOSE, NULL, "verbose"},
	{DDP_OPT_VERBOSE, "0", ""},
	{DDP_OPT_RDZV, "/scratch/%u/%j.%s/%n", "dir=/scratch/%u/%j.%s/%n"},
	{DDP_OPT_RDZV, "here", "dir=here"},
	{DDP_OPT_PORT, "29500", "ports=29500-29500"},
	{DDP_OPT_PORT, "20000-20100", "ports=20000-20100"},
	{DDP_OPT_PORTS, "62000-63000", "site=62000-63000"},
	{DDP_OPT_MASTER_SUFFIX, "-ib", "suffix=-ib"},
	{DDP_OPT_LOCAL_RANK, "auto", ""},
	{DDP_OPT_LOCAL_RANK, "task", "local_rank=1"},
	{DDP_OPT_LOCAL_RANK, "device", "local_rank=2"},
	{DDP_OPT_SHARE, "auto", ""},
	{DDP_OPT_SHARE, "off", "share=1"},
	{DDP_OPT_SHARE, "torch", "share=2"},
	{DDP_OPT_SHARDS_PER_GPU, "1", "shards=1"},
	{DDP_OPT_SHARDS_PER_GPU, "4294967295", "shards=4294967295"},
	{DDP_OPT_GPU_MEMORY, "80G", "memory=81920"},
	{DDP_OPT_GPU_MEMORY, "81559M", "memory=81559"},
	{DDP_OPT_GPU_MEMORY, "1M", "memory=1"},
	{DDP_OPT_GPU_MEMORY, "4194303G", "memory=4294966272"},
};

TEST_ROWS(test_good, good)
{
	struct ddp_message message = {""};
	struct ddp_values v;

	ddp_values_init(&v);
	ck_assert_int_eq(ddp_values_set(&v, good[_i].id, good[_i].text, DDP_FROM_COMMAND, &message),
			 0);
	unit_text(good[_i].text, "values", show(&v), good[_i].want);
	unit_text(good[_i].text, "message", message.text, "");
}

/* The error message has the option, the value and the remedy. */
static const struct {
	enum ddp_option_id id;
	const char *text;
	enum ddp_source source;
	const char *pieces[4];
} bad[] = {
	{DDP_OPT_DDP, "maybe", DDP_FROM_ENVIRONMENT, {"SLURM_DDP=maybe", "1", "0"}},
	{DDP_OPT_DDP, "2", DDP_FROM_ENVIRONMENT, {"SLURM_DDP=2", "1", "0"}},
	{DDP_OPT_DDP, "11", DDP_FROM_ENVIRONMENT, {"SLURM_DDP=11"}},
	{DDP_OPT_VERBOSE, "very", DDP_FROM_ENVIRONMENT, {"SLURM_DDP_VERBOSE=very", "1", "0"}},
	{DDP_OPT_RDZV, NULL, DDP_FROM_COMMAND, {"--ddp-rdzv", "needs a value", "DIR"}},
	{DDP_OPT_RDZV, "", DDP_FROM_COMMAND, {"--ddp-rdzv", "needs a value", "DIR"}},
	{DDP_OPT_RDZV, "/a?b", DDP_FROM_COMMAND, {"--ddp-rdzv=/a?b", "Choose another"}},
	{DDP_OPT_RDZV, "/a#b", DDP_FROM_ENVIRONMENT, {"SLURM_DDP_RDZV=/a#b", "Choose another"}},
	{DDP_OPT_RDZV, "/a%d", DDP_FROM_PLUGSTACK, {"rdzv=/a%d", "j (job)"}},
	{DDP_OPT_PORT, "", DDP_FROM_COMMAND, {"--ddp-port", "needs a value", "P|LO-HI"}},
	{DDP_OPT_PORT, "0", DDP_FROM_COMMAND, {"--ddp-port=0", "Write P or LO-HI"}},
	{DDP_OPT_PORT, "70000", DDP_FROM_ENVIRONMENT, {"SLURM_DDP_PORT=70000", "1 to 65535"}},
	{DDP_OPT_PORT, "9-8", DDP_FROM_COMMAND, {"--ddp-port=9-8", "Write P or LO-HI"}},
	{DDP_OPT_PORTS, "high", DDP_FROM_PLUGSTACK, {"ports=high", "Write P or LO-HI"}},
	{DDP_OPT_MASTER_SUFFIX, "/ib", DDP_FROM_COMMAND, {"--ddp-master-suffix=/ib", "letters"}},
	{DDP_OPT_LOCAL_RANK,
	 "gpu",
	 DDP_FROM_COMMAND,
	 {"--ddp-local-rank=gpu", "Choose one of", "auto|task|device"}},
	{DDP_OPT_LOCAL_RANK, "tas", DDP_FROM_COMMAND, {"--ddp-local-rank=tas", "Choose one of"}},
	{DDP_OPT_LOCAL_RANK, "tasks", DDP_FROM_COMMAND, {"--ddp-local-rank=tasks"}},
	{DDP_OPT_LOCAL_RANK, "auto|task", DDP_FROM_COMMAND, {"--ddp-local-rank=auto|task"}},
	{DDP_OPT_LOCAL_RANK, "|", DDP_FROM_COMMAND, {"--ddp-local-rank=|"}},
	{DDP_OPT_SHARE, "Torch", DDP_FROM_PLUGSTACK, {"share=Torch", "auto|off|torch"}},
	{DDP_OPT_SHARE, "on", DDP_FROM_ENVIRONMENT, {"SLURM_DDP_SHARE=on", "auto|off|torch"}},
	{DDP_OPT_SHARDS_PER_GPU, "0", DDP_FROM_PLUGSTACK, {"shards_per_gpu=0", "from 1 up"}},
	{DDP_OPT_SHARDS_PER_GPU,
	 "4294967296",
	 DDP_FROM_PLUGSTACK,
	 {"shards_per_gpu=4294967296", "from 1 up"}},
	{DDP_OPT_GPU_MEMORY, "80", DDP_FROM_PLUGSTACK, {"gpu_memory=80", "such as 80G"}},
	{DDP_OPT_GPU_MEMORY, "0G", DDP_FROM_PLUGSTACK, {"gpu_memory=0G", "such as 80G"}},
	{DDP_OPT_GPU_MEMORY, "G", DDP_FROM_PLUGSTACK, {"gpu_memory=G", "such as 80G"}},
	{DDP_OPT_GPU_MEMORY, "80GB", DDP_FROM_PLUGSTACK, {"gpu_memory=80GB", "such as 80G"}},
	{DDP_OPT_GPU_MEMORY, "1.5G", DDP_FROM_PLUGSTACK, {"gpu_memory=1.5G", "such as 80G"}},
	{DDP_OPT_GPU_MEMORY, "4194304G", DDP_FROM_PLUGSTACK, {"gpu_memory=4194304G", "such as"}},
	{DDP_OPT_SHARDS_PER_GPU,
	 NULL,
	 DDP_FROM_PLUGSTACK,
	 {"shards_per_gpu", "needs a value", "N"}},
};

TEST_ROWS(test_bad, bad)
{
	const char *name = bad[_i].text ? bad[_i].text : "(null)";
	struct ddp_message message = {""};
	struct ddp_values v, before;

	memset(&v, 0, sizeof(v));
	ddp_values_init(&v);
	ck_assert_int_eq(ddp_values_set(&v, DDP_OPT_DDP, NULL, DDP_FROM_COMMAND, &message), 0);
	before = v;
	ck_assert_int_eq(ddp_values_set(&v, bad[_i].id, bad[_i].text, bad[_i].source, &message),
			 -1);
	unit_pieces(name, message.text, bad[_i].pieces);
	ck_assert_mem_eq(&v, &before, sizeof(v));
}

/* The message ends with the remedy, even if the value is very long. */
TEST(test_long)
{
	char text[8000];

	memset(text, 'x', sizeof(text) - 1);
	text[0] = '%';
	text[sizeof(text) - 1] = '\0';
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		struct ddp_message message = {""};
		struct ddp_values v;

		ddp_values_init(&v);
		ck_assert_int_eq(ddp_values_set(&v, (enum ddp_option_id)id, text, DDP_FROM_COMMAND,
						&message),
				 -1);
		ck_assert_uint_lt(strlen(message.text), 400);
	}
}

struct setting {
	enum ddp_option_id id;
	const char *text;
	enum ddp_source source;
};

#define FROM(source, option, text)                        \
	{                                                 \
		DDP_OPT_##option, text, DDP_FROM_##source \
	}
#define PLUGSTACK(option, text) FROM(PLUGSTACK, option, text)
#define ENVIRONMENT(option, text) FROM(ENVIRONMENT, option, text)
#define COMMAND(option, text) FROM(COMMAND, option, text)

/*
 * A value on the command line overrides the environment, and the environment overrides
 * plugstack.conf. The order in which they are read does not matter.
 */
static const struct {
	const char *name;
	struct setting settings[4];
	int n;
	const char *want;
} precedence[] = {
	{"all three",
	 {PLUGSTACK(RDZV, "/p"), ENVIRONMENT(RDZV, "/e"), COMMAND(RDZV, "/c")},
	 3,
	 "dir=/c"},
	{"all three, in reverse order",
	 {COMMAND(RDZV, "/c"), ENVIRONMENT(RDZV, "/e"), PLUGSTACK(RDZV, "/p")},
	 3,
	 "dir=/c"},
	{"environment over plugstack",
	 {ENVIRONMENT(SHARE, "torch"), PLUGSTACK(SHARE, "off")},
	 2,
	 "share=2"},
	{"plugstack alone", {PLUGSTACK(SHARE, "off")}, 1, "share=1"},
	{"back to the default", {COMMAND(SHARE, "auto"), PLUGSTACK(SHARE, "off")}, 2, ""},
	{"the last of a source", {COMMAND(PORT, "1"), COMMAND(PORT, "2")}, 2, "ports=2-2"},
	{"--no-ddp over SLURM_DDP", {COMMAND(NO_DDP, NULL), ENVIRONMENT(DDP, "1")}, 2, ""},
	{"--ddp over SLURM_DDP=0", {COMMAND(DDP, NULL), ENVIRONMENT(DDP, "0")}, 2, "on"},
	{"--ddp --no-ddp", {COMMAND(DDP, NULL), COMMAND(NO_DDP, NULL)}, 2, ""},
	{"--no-ddp --ddp", {COMMAND(NO_DDP, NULL), COMMAND(DDP, NULL)}, 2, "on"},
	{"the port ranges of the user and of the site are separate",
	 {COMMAND(PORT, "7"), PLUGSTACK(PORTS, "62000-62001")},
	 2,
	 "ports=7-7 site=62000-62001"},
	{"one option does not shadow another",
	 {COMMAND(DDP, NULL), ENVIRONMENT(VERBOSE, "1"), PLUGSTACK(MASTER_SUFFIX, "-ib")},
	 3,
	 "on verbose suffix=-ib"},
};

TEST_ROWS(test_precedence, precedence)
{
	struct ddp_message message = {""};
	struct ddp_values v;

	ddp_values_init(&v);
	for (int i = 0; i < precedence[_i].n; i++) {
		const struct setting *s = &precedence[_i].settings[i];

		ck_assert_int_eq(ddp_values_set(&v, s->id, s->text, s->source, &message), 0);
	}
	unit_text(precedence[_i].name, "values", show(&v), precedence[_i].want);
}

/* A wrong value is an error even if a source of higher precedence has already set the option. */
TEST(test_weaker_is_checked)
{
	struct ddp_message message = {""};
	struct ddp_values v;

	ddp_values_init(&v);
	ck_assert_int_eq(ddp_values_set(&v, DDP_OPT_PORT, "7", DDP_FROM_COMMAND, &message), 0);
	ck_assert_int_eq(ddp_values_set(&v, DDP_OPT_PORT, "x", DDP_FROM_ENVIRONMENT, &message), -1);
	ck_assert_ptr_nonnull(strstr(message.text, "SLURM_DDP_PORT=x"));
	ck_assert_str_eq(show(&v), "ports=7-7");
}

static const struct {
	const char *name;
	const char *env[8];
	int rc;
	const char *want;
	const char *pieces[3];
	bool command; /* the command line has --ddp */
} environments[] = {
	{.name = "nothing", .env = {"HOME=/root"}, .want = ""},
	{.name = "all",
	 .env = {"SLURM_DDP=1", "SLURM_DDP_RDZV=/s", "SLURM_DDP_PORT=8-9",
		 "SLURM_DDP_MASTER_SUFFIX=-ib", "SLURM_DDP_LOCAL_RANK=task", "SLURM_DDP_SHARE=off",
		 "SLURM_DDP_VERBOSE=yes"},
	 .want = "on verbose dir=/s ports=8-9 suffix=-ib local_rank=1 share=1"},
	{.name = "empty is not set",
	 .env = {"SLURM_DDP=", "SLURM_DDP_PORT=", "SLURM_DDP_VERBOSE="},
	 .want = ""},
	{.name = "off", .env = {"SLURM_DDP=0"}, .want = ""},
	{.name = "off, under --ddp", .env = {"SLURM_DDP=0"}, .command = true, .want = "on"},
	{.name = "the channel is no option", .env = {"SLURM_DDP_STEP=v1;job=1"}, .want = ""},
	{.name = "no name for these",
	 .env = {"SLURM_DDP=1", "SLURM_DDP_PORTS=8-9", "SLURM_DDP_SHARDS_PER_GPU=4"},
	 .want = "on"},
	{.name = "wrong flag",
	 .env = {"SLURM_DDP=maybe"},
	 .rc = -1,
	 .want = "",
	 .pieces = {"SLURM_DDP=maybe", "neither 1 nor 0"}},
	{.name = "wrong word",
	 .env = {"SLURM_DDP=1", "SLURM_DDP_SHARE=all"},
	 .rc = -1,
	 .want = "on",
	 .pieces = {"SLURM_DDP_SHARE=all", "Choose one of auto|off|torch"}},
	{.name = "wrong word, under --ddp",
	 .env = {"SLURM_DDP_SHARE=all"},
	 .command = true,
	 .rc = -1,
	 .want = "on",
	 .pieces = {"SLURM_DDP_SHARE=all", "Choose one of auto|off|torch"}},
	{.name = "wrong values without --ddp are ignored",
	 .env = {"SLURM_DDP_SHARE=all", "SLURM_DDP_PORT=x", "SLURM_DDP_VERBOSE=1"},
	 .want = "verbose"},
	{.name = "wrong values with SLURM_DDP=0 are ignored",
	 .env = {"SLURM_DDP=0", "SLURM_DDP_PORT=x", "SLURM_DDP_RDZV=/s"},
	 .want = "dir=/s"},
};

TEST_ROWS(test_environment, environments)
{
	const char *name = environments[_i].name;
	struct ddp_message message = {""};
	struct ddp_values v;

	ddp_values_init(&v);
	if (environments[_i].command)
		ck_assert_int_eq(ddp_values_set(&v, DDP_OPT_DDP, NULL, DDP_FROM_COMMAND, &message),
				 0);
	unit_number(name, "return",
		    ddp_values_from_env(&v, unit_env(environments[_i].env), &message),
		    environments[_i].rc);
	unit_text(name, "values", show(&v), environments[_i].want);
	unit_pieces(name, message.text, environments[_i].pieces);
}

static const struct {
	const char *name;
	const char *argv[8];
	int argc, rc;
	const char *want;
	const char *pieces[4];
} lines[] = {
	{"nothing", {NULL}, 0, 0, "", {NULL}},
	{"all",
	 {"rdzv=/s/%u", "ports=62000-63000", "master_suffix=.ib", "local_rank=device",
	  "share=torch", "shards_per_gpu=16", "gpu_memory=8G"},
	 7,
	 0,
	 "dir=/s/%u site=62000-63000 suffix=.ib local_rank=2 share=2 shards=16 memory=8192",
	 {NULL}},
	{"an equals sign in the value", {"rdzv=/s/a=b"}, 1, 0, "dir=/s/a=b", {NULL}},
	{"unknown", {"colour=red"}, 1, -1, "", {"\"colour=red\"", "spank-ddp(8)"}},
	{"the name of the srun option is not an argument",
	 {"ddp-rdzv=/s"},
	 1,
	 -1,
	 "",
	 {"\"ddp-rdzv=/s\""}},
	{"an abbreviated name", {"rdz=/s"}, 1, -1, "", {"\"rdz=/s\""}},
	{"a name with a suffix", {"rdzvs=/s"}, 1, -1, "", {"\"rdzvs=/s\""}},
	{"ddp is not an argument", {"ddp"}, 1, -1, "", {"\"ddp\""}},
	{"no value", {"rdzv"}, 1, -1, "", {"rdzv needs a value", "DIR"}},
	{"empty value", {"rdzv="}, 1, -1, "", {"rdzv needs a value", "DIR"}},
	{"empty", {""}, 1, -1, "", {"\"\""}},
	{"wrong value",
	 {"share=off", "ports=all"},
	 2,
	 -1,
	 "share=1",
	 {"ports=all", "Write P or LO-HI"}},
};

TEST_ROWS(test_plugstack, lines)
{
	struct ddp_message message = {""};
	struct ddp_values v;

	ddp_values_init(&v);
	unit_number(lines[_i].name, "return",
		    ddp_values_from_plugstack(&v, lines[_i].argc, unit_env(lines[_i].argv),
					      &message),
		    lines[_i].rc);
	unit_text(lines[_i].name, "values", show(&v), lines[_i].want);
	unit_pieces(lines[_i].name, message.text, lines[_i].pieces);
	ck_assert_int_eq(message.text[0] != '\0', lines[_i].rc < 0);
}

UNIT_MAIN("options", NULL)
