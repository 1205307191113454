/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher.h"

#include <stddef.h>
#include <string.h>

bool ddp_is_launcher(const char *program)
{
	static const char *const names[] = {
		"orted", "prted", "orterun", "prterun", "pmi_proxy", "mpirun", "mpiexec",
	};
	const char *slash = strrchr(program, '/');
	const char *name = slash ? slash + 1 : program;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strncmp(name, "hydra_", 6) == 0;
}
