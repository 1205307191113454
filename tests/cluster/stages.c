/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - a training in which rank RANK is killed at stage STAGE of ddp-run's first attempt
 *
 *     stages STAGE RANK
 *
 * STAGE is start, rendezvous, sum, checkpoint, exit or none. At the stages rendezvous and sum
 * another rank does not arrive, so that RANK is still waiting there when it is killed. At the end
 * each rank prints a value that depends on all steps.
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
static bool first_attempt, is_victim, is_late;

static bool is_at(const char *name)
{
	return first_attempt && strcmp(stage, name) == 0;
}

static void *kill_after_300_ms(void *unused)
{
	(void)unused;
	usleep(300000);
	raise(SIGKILL);
	return NULL;
}

/* Kills this process when a file with the temporary name of a checkpoint appears. */
static void *kill_in_write(void *unused)
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

static void start_thread(void *(*run)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, NULL) != 0)
		abort();
}

/* At stage [name], the late rank pauses forever. The victim waits for that rank and is killed. */
static void reach_stage(const char *name)
{
	if (!is_at(name))
		return;
	if (is_late)
		pause();
	if (is_victim)
		start_thread(kill_after_300_ms);
}

/* Slurm may not end a rank that starts while it ends the step. So wait until all ranks run. */
static void wait_for_all(int rank, int size)
{
	char name[32];
	FILE *file;

	snprintf(name, sizeof(name), "started-%d", rank);
	file = fopen(name, "w");
	if (!file)
		abort();
	fclose(file);
	for (int i = 0; i < size; i++) {
		snprintf(name, sizeof(name), "started-%d", i);
		while (access(name, F_OK) < 0)
			usleep(10000);
	}
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
	first_attempt = strcmp(getenv("DDP_RESTART"), "0") == 0;
	is_victim = first_attempt && rank == atoi(argv[2]);
	is_late = first_attempt && rank == (atoi(argv[2]) + 1) % size;
	if (is_at("start"))
		wait_for_all(rank, size);
	if (is_victim && is_at("start"))
		raise(SIGKILL);
	reach_stage("rendezvous");
	if (ddp_init(&ddp, NULL) < 0 ||
	    ddp_checkpoint_load(ddp, directory, &step, state, 1, NULL, 0) < 0)
		ddp_exit(ddp);
	for (; step < STEPS; step++) {
		if (step == FATAL)
			reach_stage("sum");
		sum = weights[0] / 2 + (float)rank;
		if (ddp_all_reduce(ddp, &sum, &sum, 1, DDP_F32, DDP_SUM) < 0)
			ddp_exit(ddp);
		weights[0] = sum;
		if (step == FATAL && is_victim && is_at("checkpoint"))
			start_thread(kill_in_write);
		if (ddp_checkpoint_save(ddp, directory, step + 1, state, 1, NULL, 0, 2) < 0)
			ddp_exit(ddp);
	}
	printf("rank %d reached %.9g\n", rank, (double)weights[0]);
	fflush(stdout);
	ddp_destroy(ddp);
	if (is_victim && is_at("exit"))
		raise(SIGKILL);
	free(weights);
	return 0;
}
