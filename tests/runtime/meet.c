/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet - test program for the store, run under srun: meet [-m METHOD] [-t SECONDS] [-a] [-w MS]
 *
 * Reads the rank's identity from the environment. Then puts a key, fences and gets that key from
 * all ranks, twice, and prints one line. -m: rendezvous method; -t: timeout; -a: rank 1 aborts
 * after the first fence; -w: rank 1 starts MS milliseconds late.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"

extern char **environ;

static struct ddp_identity identity;
static struct ddp_store *store;
static struct ddp_error error;

static int leave(void)
{
	fprintf(stderr, "meet: rank %d: %s\n", identity.rank, error.text);
	ddp_store_close(store, false);
	return ddp_exit_status(error.status);
}

/*
 * Puts a value that depends on [fence], fences and checks the values of all ranks. Returns 0 or
 * DDP_ERR_x.
 */
static int meet(int fence, const struct ddp_watch *watch)
{
	int mine = 1000 * fence + identity.rank, status;

	status = ddp_store_put(store, "number", &mine, sizeof(mine), &error);
	if (status == 0)
		status = ddp_store_fence(store, watch, &error);
	for (int i = 0; status == 0 && i < identity.size; i++) {
		size_t size = sizeof(mine);

		status = ddp_store_get(store, i, "number", &mine, &size, &error);
		if (status == 0 && mine != 1000 * fence + i) {
			snprintf(error.text, sizeof(error.text), "rank %d put %d", i, mine);
			return error.status = DDP_ERR_FORMAT;
		}
	}
	return status;
}

int main(int argc, char **argv)
{
	char host[256] = "", directory[4096] = "";
	struct ddp_surroundings around = {
		.hostname = host, .directory = directory, .process = getpid(), .parent = getppid()};
	const char *method = NULL;
	double seconds = 30;
	int option, abort_requested = 0, late_ms = 0;
	struct ddp_watch watch;

	while ((option = getopt(argc, argv, "m:t:aw:")) != -1) {
		if (option == 'm')
			method = optarg;
		else if (option == 't')
			seconds = atof(optarg);
		else if (option == 'a')
			abort_requested = 1;
		else if (option == 'w')
			late_ms = atoi(optarg);
		else
			return 2;
	}
	gethostname(host, sizeof(host) - 1);
	if (!getcwd(directory, sizeof(directory)) ||
	    ddp_identity_read(environ, &around, &identity, &error) < 0)
		return leave();
	if (identity.rank == 1 && late_ms)
		usleep((useconds_t)late_ms * 1000);
	watch = ddp_watch_start(seconds, NULL, NULL);
	if (ddp_store_open(&store, method, &identity, NULL, &watch, &error) < 0 ||
	    meet(0, &watch) < 0)
		return leave();
	if (abort_requested && identity.rank == 1) {
		usleep(200000);
		ddp_store_abort(store, "requested by -a");
		ddp_error_set(&error, DDP_ERR_STATE, "aborted");
		return leave();
	}
	if (meet(1, &watch) < 0)
		return leave();
	printf("rank %d of %d met by %s\n", identity.rank, identity.size, store->method->head.name);
	ddp_store_close(store, true);
	return 0;
}
