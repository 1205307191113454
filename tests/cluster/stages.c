/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - a training of which one rank is killed at a chosen stage, in the first attempt of ddp-run
 *
 *	stages STAGE RANK
 *
 * Where the others wait for a rank at that stage, another one does not come, so that it is surely there. All print what they
 * have reached in the end, which follows from all steps before.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ddp.h>

enum { STEPS = 5, FATAL = 2, FLOATS = 4 << 20 };

static const char directory[] = "stages-state";
static const char *stage;
static bool first, doomed, late;

static bool is_at(const char *name)
{
	return first && strcmp(stage, name) == 0;
}

static void *die_soon(void *unused)
{
	(void)unused;
	usleep(300000);
	raise(SIGKILL);
	return NULL;
}

/* Once there is a file that has begun and not yet got its name. */
static void *die_in_write(void *unused)
{
	(void)unused;
	for (;;) {
		DIR *dir = opendir(directory);
		struct dirent *entry;
		struct stat st;

		while (dir && (entry = readdir(dir)))
			if (!strstr(entry->d_name, ".safetensors") ||
			    strlen(entry->d_name) > strlen("checkpoint-0000000001.safetensors"))
				if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 &&
				    S_ISREG(st.st_mode) && st.st_size > 0)
					raise(SIGKILL);
		if (dir)
			closedir(dir);
	}
	return NULL;
}

static void begin(void *(*run)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, NULL) != 0)
		abort();
}

/* Others wait for [late], and so does the rank that is doomed. */
static void meet(const char *name)
{
	if (!is_at(name))
		return;
	if (late)
		pause();
	if (doomed)
		begin(die_soon);
}

int main(int argc, char **argv)
{
	int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE"));
	float *weights = calloc(FLOATS, sizeof(*weights)), sum;
	struct ddp_tensor state[] = {{"weights", DDP_F32, 1, {FLOATS}, weights}};
	struct ddp *ddp;
	uint64_t step = 0;

	if (argc != 3 || !weights)
		return 2;
	stage = argv[1];
	first = strcmp(getenv("DDP_RESTART"), "0") == 0;
	doomed = first && rank == atoi(argv[2]);
	late = first && rank == (atoi(argv[2]) + 1) % size;
	if (doomed && is_at("start"))
		raise(SIGKILL);
	meet("rendezvous");
	if (ddp_init(&ddp, NULL) < 0 ||
	    ddp_checkpoint_load(ddp, directory, &step, state, 1, NULL, 0) < 0)
		ddp_exit(ddp);
	for (; step < STEPS; step++) {
		if (step == FATAL)
			meet("sum");
		sum = weights[0] / 2 + (float)rank;
		if (ddp_all_reduce(ddp, &sum, &sum, 1, DDP_F32, DDP_SUM) < 0)
			ddp_exit(ddp);
		weights[0] = sum;
		if (step == FATAL && doomed && is_at("checkpoint"))
			begin(die_in_write);
		if (ddp_checkpoint_save(ddp, directory, step + 1, state, 1, NULL, 0, 2) < 0)
			ddp_exit(ddp);
	}
	printf("rank %d reached %.9g\n", rank, (double)weights[0]);
	fflush(stdout);
	ddp_destroy(ddp);
	if (doomed && is_at("exit"))
		raise(SIGKILL);
	free(weights);
	return 0;
}
