/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher.h"
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

START_TEST(test_launcher)
{
	unit_number(programs[_i].program, "launcher", ddp_is_launcher(programs[_i].program),
		    programs[_i].launcher);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_launcher, programs);
}

int main(void)
{
	return unit_run("launcher", fill);
}
