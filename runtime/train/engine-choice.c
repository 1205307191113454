/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-choice.c - available engines, and the choice of one for all ranks
 *
 * The CPU engine is built in; other engines are modules. All ranks must use the same engine: ranks
 * on GPUs and ranks on CPUs cannot sum gradients together, and ranks that share a GPU must also
 * share memory. Each rank reports its GPU, or why it has none, and all ranks make the same choice.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/xalloc.h"
#include "gpu-sharing.h"
#include "run.h"

/* --- Engines ------------------------------------------------------------------------------ */

#define DRIVER "libcuda.so.1"

const struct engine_class *engine_find_cuda(const struct ddp_log *log, struct ddp_error *error)
{
	const struct engine_class *class =
		ddp_module_open("cuda", "engine", ENGINE_VERSION, sizeof(*class), log, error);

	return class && class->devices(NULL, 0, error) >= 0 ? class : NULL;
}

bool engine_has_driver(struct ddp_error *error)
{
	void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);

	if (!driver)
		ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			      "this node has no driver for GPUs (" DRIVER ")");
	return driver != NULL;
}

enum { OFFER_DEVICES = 64 };

/* GPU of a rank, or the reason why it has none. */
struct offer {
	struct ddp_error error; /* reason why the rank has no GPU */
	int32_t driver;		/* the rank's node has a driver, or the rank was given a GPU */
	int32_t wants;		/* index of --engine in its list of values */
	struct sharing_seat seat;
};

enum { WANTS_AUTO, WANTS_CPU, WANTS_CUDA }; /* in the order of train-options.def */

/* --- This rank ----------------------------------------------------------------------------- */

static int refuse_index(int index, int count, struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	return ddp_error_set(
		error, DDP_ERR_UNSUPPORTED,
		"this rank's GPU is number %d, but only %d %s visible (CUDA_VISIBLE_DEVICES is %s%.200s)",
		index, count, count == 1 ? "is" : "are", visible ? "" : "unset",
		visible ? visible : "");
}

static int find_device(const struct engine_class *class, int index, char *name,
		       struct ddp_error *error)
{
	static char names[OFFER_DEVICES][ENGINE_DEVICE_NAME];
	int count;

	if (index < 0)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "no GPU is visible. Request one from Slurm, as with "
				     "--gres=gpu:1, or check CUDA_VISIBLE_DEVICES.");
	count = class->devices(names, OFFER_DEVICES, error);
	if (count < 0)
		return count;
	if (index >= count)
		return refuse_index(index, count, error);
	if (index < OFFER_DEVICES)
		snprintf(name, ENGINE_DEVICE_NAME, "%s", names[index]);
	return 0;
}

/* Returns the GPU engine, or NULL with the reason in offer->error. */
static const struct engine_class *find_engine(const struct run *run, struct offer *offer)
{
	const struct engine_class *class = NULL;
	struct ddp_log log;

	if (ddp_log_open(&log, NULL) == 0)
		ddp_log_name(&log, run->world->rank, run->world->host);
	offer->wants = option_word(run->options, OPTION_ENGINE);
	sharing_fill_seat(&offer->seat, run->world);
	if (offer->wants == WANTS_CPU) {
		ddp_error_set(&offer->error, DDP_ERR_UNSUPPORTED,
			      "it was started with --engine cpu");
		return NULL;
	}
	offer->driver = engine_has_driver(&offer->error);
	if (offer->driver || offer->wants == WANTS_CUDA)
		class = engine_find_cuda(&log, &offer->error);
	if (class && find_device(class, run->world->device, offer->seat.device, &offer->error) == 0)
		offer->error.status = 0;
	else
		class = NULL;
	/*
	 * A rank that was given a GPU counts as having a driver, so that a warning is printed if
	 * the ranks compute on CPUs.
	 */
	offer->driver = offer->driver || run->world->device >= 0;
	return class;
}

/* --- All ranks ----------------------------------------------------------------------------- */

/* Reason why the ranks cannot use GPUs, or "" if they can. */
struct obstacle {
	char text[DDP_ERROR_SIZE];
};

/*
 * Finds the first rank that has no GPU. Sets [obstacle] to the reason, preceded by the number of
 * the rank if there are several ranks.
 */
static bool find_missing(const struct offer *offers, int size, struct obstacle *obstacle)
{
	for (int rank = 0; rank < size; rank++) {
		const struct offer *offer = &offers[rank];

		if (offer->error.status >= 0)
			continue;
		if (size == 1)
			snprintf(obstacle->text, sizeof(obstacle->text), "%s", offer->error.text);
		else
			snprintf(obstacle->text, sizeof(obstacle->text), "rank %d on %.63s: %.800s",
				 rank, offer->seat.host, offer->error.text);
		return true;
	}
	return false;
}

/*
 * Connects the devices of ranks that share GPUs, early enough to choose CPUs if that fails. Errors
 * are equal on all ranks. Virtual ranks need no connection, as they are summed in host memory.
 */
static int join(struct run *run, const struct sharing_seat *seats, struct obstacle *obstacle)
{
	struct ddp_error error;
	bool shared = false;
	int status;

	for (int rank = 0; rank < run->world->size && !shared; rank++)
		shared = sharing_ranks(seats, run->world->size, &seats[rank]) > 1;
	if (!shared || option_count(run->options, OPTION_VIRTUAL_RANKS) > 0)
		return 0;
	status = run->class->join(run->ddp, &error);
	if (status < 0 && ddp_is_peer_error(status))
		return ddp_error_set(&run->error, status, "%s", error.text);
	if (status < 0)
		snprintf(obstacle->text, sizeof(obstacle->text), "%s", error.text);
	return 0;
}

/* Sets the share of its GPU that each rank gets, and the text that describes the sharing. */
static void note_sharing(struct run *run, struct sharing_seat *seats)
{
	int size = run->world->size;

	sharing_divide(seats, size);
	sharing_describe(seats, size, run->sharing, sizeof(run->sharing));
	run->share = seats[run->world->rank].share;
}

/* Chooses the CPU engine, or fails if a rank has --engine cuda. */
static int choose_cpus(struct run *run, const struct offer *offers, const struct obstacle *obstacle)
{
	bool cuda = false, driver = false;

	for (int rank = 0; rank < run->world->size; rank++) {
		cuda = cuda || offers[rank].wants == WANTS_CUDA;
		driver = driver || offers[rank].driver;
	}
	run->class = &engine_cpu;
	if (cuda) {
		run->shared = true;
		return ddp_error_set(&run->error, DDP_ERR_UNSUPPORTED, "--engine cuda: %s",
				     obstacle->text);
	}
	/* If no rank has a driver, CPUs are the expected choice and no warning is needed. */
	if (driver)
		snprintf(run->why, sizeof(run->why), "computing on CPUs: %s", obstacle->text);
	return 0;
}

static int decide(struct run *run, const struct engine_class *class, const struct offer *offers,
		  struct sharing_seat *seats)
{
	int size = run->world->size;
	struct obstacle obstacle = {""};
	int status;

	for (int rank = 0; rank < size; rank++)
		seats[rank] = offers[rank].seat;
	run->class = class;
	if (find_missing(offers, size, &obstacle))
		return choose_cpus(run, offers, &obstacle);
	status = join(run, seats, &obstacle);
	if (status < 0)
		return status;
	if (*obstacle.text)
		return choose_cpus(run, offers, &obstacle);
	note_sharing(run, seats);
	return 0;
}

int run_find_engine(struct run *run)
{
	size_t size = (size_t)run->world->size;
	struct offer mine, *offers = ddp_xcalloc(size, sizeof(*offers), "devices of all ranks");
	struct sharing_seat *seats = ddp_xcalloc(size, sizeof(*seats), "devices of all ranks");
	const struct engine_class *class;
	int status;

	memset(&mine, 0, sizeof(mine));
	class = find_engine(run, &mine);
	status = ddp_all_gather(run->ddp, &mine, offers, sizeof(mine));
	status = status < 0 ? run_pass_on(run, status) : decide(run, class, offers, seats);
	free(seats);
	free(offers);
	return status;
}
