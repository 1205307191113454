/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "spank_test.h"

/* What an earlier srun left in .ddp, and whether the next --ddp step may remove it. */
static const struct {
	const char *what;
	const char *name;   /* of the entry */
	const char *record; /* without nonce, host and process; NULL: none */
	bool here;	    /* the record's srun was on this host */
	bool lives;	    /* and is this very process */
	int days;	    /* its age */
	bool stays;
} leftovers[] = {
	{"killed srun, step ended", "alpha-4000.0.0-%s", "cluster=alpha;job=4000;complete=1", true},
	{"killed srun, step goes on", "alpha-4100.1.0-%s",
	 "cluster=alpha;job=4100;step=1;complete=1", true, .stays = true},
	{"another step of a job that goes on", "alpha-4100.0.0-%s",
	 "cluster=alpha;job=4100;complete=1", true},
	{"srun lives", "alpha-4000.0.0-%s", "cluster=alpha;job=4000;complete=1", true, true,
	 .stays = true},
	{"srun lives, old", "alpha-4000.0.0-%s", "cluster=alpha;job=4000;complete=1", true, true, 9,
	 .stays = true},
	{"srun elsewhere", "alpha-4000.0.0-%s", "cluster=alpha;job=4000;complete=1", .stays = true},
	{"srun elsewhere, old", "alpha-4000.0.0-%s", "cluster=alpha;job=4000;complete=1",
	 .days = 2},
	{"srun elsewhere, old, goes on", "alpha-4100.1.0-%s",
	 "cluster=alpha;job=4100;step=1;complete=1", .days = 2, .stays = true},
	{"this job before it was requeued", "alpha-4711.0.0-%s",
	 "cluster=alpha;job=4711;complete=1", true},
	{"this job's other srun", "alpha-4711.0.1-%s",
	 "cluster=alpha;job=4711;attempt=1;complete=1", true, .stays = true},
	{"another cluster's", "beta-4000.0.0-%s", "cluster=beta;job=4000;complete=1", true,
	 .days = 9, .stays = true},
	{"another cluster's by its record", "alpha-4000.0.0-%s", "cluster=beta;job=4000;complete=1",
	 true, .days = 9, .stays = true},
	{"a cluster whose name begins alike", "alpha2-4000.0.0-%s",
	 "cluster=alpha2;job=4000;complete=1", true, .days = 9, .stays = true},
	{"no record, young", "alpha-4000.0.0-%s", NULL, .stays = true},
	{"no record, old", "alpha-4000.0.0-%s", NULL, .days = 2},
	{"unreadable, young", "alpha-4000.0.0-%s", "port=x", .stays = true},
	{"unreadable, old", "alpha-4000.0.0-%s", "port=x", .days = 2},
	{"incomplete, young", "alpha-4000.0.0-%s", "cluster=alpha;job=4000", .stays = true},
	{"failures", "failed-4000.0", NULL, .days = 9, .stays = true},
	{"failures of a cluster called failed", "failed-4000.0.0-%s", NULL, .days = 9,
	 .stays = true},
	{"somebody's own", "alpha-notes", NULL, .days = 9, .stays = true},
};

static const char nonce[] = "00112233445566ff";

/* When this process began, from the kernel's table, as the record has it. */
static unsigned long long began(void)
{
	char line[1024] = "", *p;
	FILE *file = fopen("/proc/self/stat", "r");

	ck_assert(file && fgets(line, sizeof(line), file));
	fclose(file);
	p = strrchr(line, ')') + 1;
	for (int field = 2; field < 21; field++)
		p = strchr(p + 1, ' ');
	return strtoull(p, NULL, 10);
}

static void write_record(int i, const char *directory)
{
	char path[700], text[1024], host[256] = "";

	gethostname(host, sizeof(host) - 1);
	snprintf(path, sizeof(path), "%s/step", directory);
	snprintf(text, sizeof(text), "v1;nonce=%s;from=%s;pid=%u;began=%llu;%s\n", nonce,
		 leftovers[i].here ? host : "elsewhere", (unsigned)getpid(),
		 leftovers[i].lives ? began() : 1, leftovers[i].record);
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
	int n = snprintf(path, sizeof(path), "%s/.ddp/", spank_dir);

	ck_assert(mkdir(".ddp", 0700) == 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(path + n, sizeof(path) - (size_t)n, leftovers[i].name, nonce);
#pragma GCC diagnostic pop
	ck_assert(mkdir(path, 0700) == 0);
	if (leftovers[i].record)
		write_record(i, path);
	if (leftovers[i].days)
		grow_old(path, leftovers[i].days);
	fake_slurmctld.living[0].job = 4100;
	fake_slurmctld.living[0].step = 1;
	return path;
}

START_TEST(test_leftover)
{
	const char *row = leftovers[_i].what, *path = make_leftover(_i);
	struct fake_step step = {
		.options = "--ddp", .env = "SLURM_RESTART_COUNT=1", .components = {{"n1:0,1"}}};
	bool stays;

	ck_assert_int_eq(fake_run(&step), 0);
	stays = access(path, F_OK) == 0;
	ck_assert_msg(stays == leftovers[_i].stays, "%s: is %s", row, stays ? "left" : "removed");
	ck_assert_int_eq(count_entries("."), stays);
	expect_silence(row);
	fake_step_clear(&step);
}
END_TEST

/* slurmctld does not say that the step ended: nothing is removed. */
START_TEST(test_no_answer)
{
	const char *path = make_leftover(0);
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	fake_slurmctld.down = true;
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	fake_step_clear(&step);
}
END_TEST

/* A step without --ddp cleans nothing up. */
START_TEST(test_unasked)
{
	const char *path = make_leftover(0);
	struct fake_step step = {.components = {{"n1:0,1"}}};

	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	fake_step_clear(&step);
}
END_TEST

/* A link under a leftover's name leads nowhere. */
START_TEST(test_link)
{
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	ck_assert(mkdir(".ddp", 0700) == 0 && mkdir("precious", 0700) == 0);
	write_text("precious/file", "mine");
	grow_old("precious", 9);
	ck_assert(symlink("../precious", ".ddp/alpha-4000.0.0-00112233445566ff") == 0);
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(count_entries("precious"), 1);
	fake_step_clear(&step);
}
END_TEST

/* Another user's directory is none of ours, however old. */
START_TEST(test_foreign)
{
	const char *path = make_leftover(12);
	struct fake_step step = {.options = "--ddp", .components = {{"n1:0,1"}}};

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(path, 65534, 65534), 0);
	ck_assert_int_eq(fake_run(&step), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	fake_step_clear(&step);
}
END_TEST

static void fill(TCase *tcase)
{
	SPANK_ROWS(tcase, test_leftover, leftovers);
	tcase_add_test(tcase, test_no_answer);
	tcase_add_test(tcase, test_unasked);
	tcase_add_test(tcase, test_link);
	tcase_add_test(tcase, test_foreign);
}

int main(void)
{
	return spank_run("leftovers", fill);
}
