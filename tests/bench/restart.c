/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart DIR - libddp's side of bench-restart: a rank that reports its first all-reduce
 *
 * After its first all-reduce the rank writes "PID SECONDS" to DIR/up-RANK.N, where N is the number
 * of its earlier starts. If N is 0, the rank then continues with all-reduces until a rank is
 * killed.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "ddp.h"

static int report_first_all_reduce(const char *directory, int rank)
{
	struct timespec now;
	char path[512];
	int n = 0, fd;
	FILE *file;

	clock_gettime(CLOCK_REALTIME, &now);
	do {
		snprintf(path, sizeof(path), "%s/up-%d.%d", directory, rank, n);
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	} while (fd < 0 && ++n < 100);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file) {
		perror(path);
		_exit(1);
	}
	fprintf(file, "%d %lld.%06ld\n", (int)getpid(), (long long)now.tv_sec, now.tv_nsec / 1000);
	fclose(file);
	return n;
}

int main(int argc, char **argv)
{
	static float vector[1 << 16];
	struct ddp *ddp;

	if (argc != 2) {
		fputs("usage: restart DIR\n", stderr);
		return 2;
	}
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	for (int i = 0, attempt = 0; i == 0 || attempt == 0; i++) {
		if (ddp_all_reduce(ddp, vector, vector, 1 << 16, DDP_F32, DDP_SUM) < 0)
			ddp_exit(ddp);
		if (i == 0)
			attempt = report_first_all_reduce(argv[1], ddp_world(ddp)->rank);
		else
			usleep(1000);
	}
	ddp_destroy(ddp);
	return 0;
}
