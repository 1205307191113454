/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan.h"
#include "unit.h"

static const struct {
	const char *program;
	bool launcher;
} programs[] = {
	{"orted", true},
	{"/usr/bin/orted", true},
	{"./prted", true},
	{"orterun", true},
	{"prterun", true},
	{"mpirun", true},
	{"mpiexec", true},
	{"/opt/intel/bin/hydra_bstrap_proxy", true},
	{"hydra_pmi_proxy", true},
	{"pmi_proxy", true},
	{"python3", false},
	{"torchrun", false},
	{"orted/train", false},
	{"orted2", false},
	{"xorted", false},
	{"my_hydra_", false},
	{"hydra", false},
	{"/usr/bin/", false},
	{"", false},
};

static const struct {
	const char *program;
	bool ours;
} ours[] = {
	{"ddp-train", true},
	{"/opt/ddp/bin/ddp-train", true},
	{"./ddp-info", true},
	{"ddp-ranks", true},
	{"ddp-train2", false},
	{"my-ddp-train", false},
	{"ddp-train/x", false},
	{"python3", false},
	{"", false},
};

START_TEST(test_ours)
{
	unit_number(ours[_i].program, "ours", ddp_is_ours(ours[_i].program), ours[_i].ours);
}
END_TEST

START_TEST(test_launcher)
{
	unit_number(programs[_i].program, "launcher", ddp_is_launcher(programs[_i].program),
		    programs[_i].launcher);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_launcher, programs);
	UNIT_ROWS(tcase, test_ours, ours);
}

int main(void)
{
	return unit_run("launcher", fill);
}
