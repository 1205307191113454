/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c - ranks that pass wrong arguments to a collective: first all ranks, then the last one only
 *
 * The argument is the collective's name. A rank for which the world continued after the first part
 * makes the file refused-<rank>, because Slurm can lose the output of ranks that then fail.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <ddp.h>

static float data[64], all[64 * 64];

static int call(struct ddp *ddp, const char *name, bool refused)
{
	if (strcmp(name, "ddp_all_reduce") == 0)
		return ddp_all_reduce(ddp, data, data, 64, refused ? DDP_TYPE_COUNT : DDP_F32,
				      DDP_SUM);
	if (strcmp(name, "ddp_broadcast") == 0)
		return ddp_broadcast(ddp, data, sizeof(data), refused ? -1 : 0);
	return ddp_all_gather(ddp, data, all, refused ? SIZE_MAX / 2 + 1 : sizeof(data));
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct ddp_world *world;
	struct ddp *ddp;
	char path[32];

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	world = ddp_world(ddp);
	for (int i = 0; i < 3; i++)
		if (call(ddp, name, true) != DDP_ERR_ARGUMENT || call(ddp, name, false) < 0)
			ddp_exit(ddp);
	snprintf(path, sizeof(path), "refused-%d", world->rank);
	fclose(fopen(path, "w"));
	/* No rank's last call ends the world before the other ranks have made their files. */
	if (ddp_barrier(ddp) < 0 || call(ddp, name, world->rank == world->size - 1) < 0 ||
	    ddp_barrier(ddp) < 0)
		ddp_exit(ddp);
	return 0;
}
