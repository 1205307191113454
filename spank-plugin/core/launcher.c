/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher.h"

#include <stddef.h>
#include <string.h>

static const char *base_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	return slash ? slash + 1 : program;
}

bool ddp_is_ours(const char *program)
{
	const char *name = base_name(program);

	return strcmp(name, "ddp-train") == 0 || strcmp(name, "ddp-info") == 0 ||
	       strcmp(name, "ddp-ranks") == 0;
}

bool ddp_is_launcher(const char *program)
{
	static const char *const names[] = {
		"orted", "prted", "orterun", "prterun", "pmi_proxy", "mpirun", "mpiexec",
	};
	const char *name = base_name(program);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strncmp(name, "hydra_", 6) == 0;
}
