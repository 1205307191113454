/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endless.c - ranks that call all-reduce until the test ends them
 *
 * After some all-reduces, each rank writes its process id to the file up-<rank>.
 */
#include <stdio.h>

#include <unistd.h>

#include <ddp.h>

static void write_pid(int rank)
{
	char name[32];
	FILE *file;

	snprintf(name, sizeof(name), "up-%d", rank);
	file = fopen(name, "w");
	if (!file)
		return;
	fprintf(file, "%ld\n", (long)getpid());
	fclose(file);
}

int main(void)
{
	struct ddp *ddp;
	void *arena;

	if (ddp_init(&ddp, NULL) < 0 || ddp_arena_create(ddp, 4000000, &arena) < 0)
		ddp_exit(ddp);
	for (int i = 0;; i++) {
		if (ddp_all_reduce(ddp, arena, arena, i % 2 ? 1000000 : 3, DDP_F32, DDP_MAX) < 0)
			ddp_exit(ddp);
		if (i == 10)
			write_pid(ddp_world(ddp)->rank);
	}
}
