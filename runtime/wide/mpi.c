/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.c - the engine ddp_mpi.so, which sends data in host memory over MPI, for high-speed networks
 *
 * The ranks of a column have two communicators: one for messages, and one for control messages (an
 * abort note, a liveness query and its answer). MPI guarantees only 15 bits for a tag. So the MPI
 * tag of a message is a hash of its tag in host.h, and the receiver compares the hashes.
 *
 * If an MPI call returns an error, this rank reports the call and MPI's text, and exits. A call
 * that does not return is detected by the other ranks, at their time limit.
 */
#include "config.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bounded.h"
#include "host.h"

/* Time between two polls during a wait, in nanoseconds. MPI has no descriptor to wait on. */
#define POLL_NS 100000u
/* Time to wait for cancelled messages, and at the end for notes to be sent, in seconds. */
#define FLUSH_S 0.05
/*
 * Time that a rank waits after a failure before it exits, in microseconds. Its exit may end the
 * whole step, before other ranks have reported the failure.
 */
#define LINGER_US 1500000u

#ifdef OPEN_MPI
#define IS_OPEN_MPI true
#define LAUNCHER "srun --mpi=pmix"
static const char *const launched[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", NULL};
#else
#define IS_OPEN_MPI false
#define LAUNCHER "srun --mpi=pmi2"
static const char *const launched[] = {"PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", NULL};
#endif

struct card {
	uint32_t magic;
	int32_t rank; /* rank in MPI_COMM_WORLD */
};

enum { CARD_MAGIC = 0x69706d64, TAG_BITS = 15 };

enum control { CONTROL_NOTE, CONTROL_ASK, CONTROL_ANSWER };

struct peer {
	int place; /* peer's rank in the engine's communicators; -1: not in this column */
	bool answered;
};

/* An MPI request, and the request of host.h to which it belongs. */
struct slot {
	struct ddp_host_request *request; /* NULL for a control message */
	uint64_t tag;
	bool receive;
};

enum { INBOX = 0 }; /* number of the slot that receives control messages */

/*
 * Maximum number of MPI requests at the same time: the messages of one collective, and for each
 * peer the control messages (a note, a query, answers).
 */
#define SLOTS(size) (64 + 4 * (size))

struct ddp_host {
	int rank, size;
	bool ours;	  /* libddp initialized MPI, so it must finalize MPI */
	bool frozen;	  /* MPI must not be called any more */
	const char *call; /* name of the last MPI call, for an error report */
	void *owner;	  /* argument of [end] */
	ddp_host_end *end;
	int own; /* this rank in MPI_COMM_WORLD */

	struct peer *peers; /* [size] peers, by rank */
	/* world ranks in the order of the engine's communicators */
	int *members;
	MPI_Comm messages, control; /* MPI_COMM_NULL before meet() */

	int count; /* number of slots and requests in use */
	struct slot *slots;
	MPI_Request *requests;

	int noted; /* rank that sent the first note; -1: none */
	char note[DDP_HOST_NOTE], inbox[DDP_HOST_NOTE];
	char own_note[DDP_HOST_NOTE]; /* the note that this rank sent first */
};

/* --- Calls --------------------------------------------------------------------------------- */

static struct ddp_host *current; /* the open host; MPI's error handler gets no argument */

#define CALL(host, function, ...) ((host)->call = #function, function(__VA_ARGS__))

static bool is_truncation(int code)
{
	int class;

	return MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE;
}

/*
 * MPI's error handler: report the failed call and exit. A message that is longer than its receive
 * also ends here, because Open MPI may have written beyond the end of the buffer.
 */
static void fail(MPI_Comm *communicator, int *code, ...)
{
	struct ddp_host *host = current;
	char why[MPI_MAX_ERROR_STRING] = "", text[DDP_HOST_NOTE];
	int length;

	(void)communicator;
	if (!host || host->frozen)
		return;
	host->frozen = true;
	MPI_Error_string(*code, why, &length);
	snprintf(text, sizeof(text), "%s failed: %s%s", host->call, why,
		 is_truncation(*code) ? ", because a rank sent more than its peer expects" : "");
	host->end(host->owner, is_truncation(*code) ? DDP_ERR_MISMATCH : DDP_ERR_PEER, text);
}

static void set_error_handler(MPI_Comm communicator)
{
	MPI_Errhandler handler;

	MPI_Comm_create_errhandler(fail, &handler);
	MPI_Comm_set_errhandler(communicator, handler);
	MPI_Errhandler_free(&handler);
}

/* --- Control messages ---------------------------------------------------------------------- */

static bool has_slot(const struct ddp_host *host)
{
	return host->count < SLOTS(host->size);
}

static void receive_control(struct ddp_host *host)
{
	CALL(host, MPI_Irecv, host->inbox, sizeof(host->inbox), MPI_BYTE, MPI_ANY_SOURCE,
	     MPI_ANY_TAG, host->control, &host->requests[INBOX]);
}

/* Send a control message to [peer]. [text] must remain valid until the message was sent. */
static void send_control(struct ddp_host *host, int peer, enum control kind, const char *text)
{
	if (host->control == MPI_COMM_NULL || host->frozen || peer == host->rank ||
	    host->peers[peer].place < 0 || !has_slot(host))
		return;
	host->slots[host->count] = (struct slot){0};
	CALL(host, MPI_Isend, text, (int)strlen(text), MPI_BYTE, host->peers[peer].place, (int)kind,
	     host->control, &host->requests[host->count]);
	host->count++;
}

static void handle_control(struct ddp_host *host, const MPI_Status *status)
{
	int sender = host->members[status->MPI_SOURCE], size = 0;

	MPI_Get_count(status, MPI_BYTE, &size);
	switch ((enum control)status->MPI_TAG) {
	case CONTROL_NOTE:
		if (host->noted < 0)
			snprintf(host->note, sizeof(host->note), "%.*s", size, host->inbox);
		if (host->noted < 0)
			host->noted = sender;
		break;
	case CONTROL_ASK:
		send_control(host, sender, CONTROL_ANSWER, "");
		break;
	case CONTROL_ANSWER:
		host->peers[sender].answered = true;
		break;
	}
}

/* --- Messages ------------------------------------------------------------------------------ */

static int hash_of(uint64_t tag)
{
	return (int)(tag * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TAG_BITS));
}

/* Request [at] has ended: free its slot, and move the last request to this index. */
static void end_request(struct ddp_host *host, int at, const MPI_Status *status)
{
	const struct slot slot = host->slots[at];
	struct ddp_host_request *request = slot.request;
	int cancelled = 0, size = 0;

	if (at == INBOX) {
		handle_control(host, status);
		receive_control(host);
		return;
	}
	host->count--;
	host->slots[at] = host->slots[host->count];
	host->requests[at] = host->requests[host->count];
	if (!request)
		return;
	MPI_Test_cancelled(status, &cancelled);
	if (slot.receive && !cancelled) {
		MPI_Get_count(status, MPI_BYTE, &size);
		request->bytes = (size_t)size;
		request->tag = status->MPI_TAG == hash_of(slot.tag) ? slot.tag : ~slot.tag;
	}
	request->status = cancelled ? DDP_ERR_ABORTED : 1;
}

static int progress(struct ddp_host *host)
{
	int at, ended = 1, happened = 0;
	MPI_Status status;

	while (host->count > 0 && !host->frozen) {
		CALL(host, MPI_Testany, host->count, host->requests, &at, &ended, &status);
		if (!ended || at == MPI_UNDEFINED)
			break;
		end_request(host, at, &status);
		happened = 1;
	}
	return happened;
}

/* Start to send [bytes] from [data] to [peer], or to receive [bytes] from [peer] to [data]. */
static int start(struct ddp_host *host, int peer, struct slot slot, void *data, size_t bytes,
		 struct ddp_error *error)
{
	int place = host->peers[peer].place;

	slot.request->status = 0;
	if (!has_slot(host))
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	host->slots[host->count] = slot;
	if (slot.receive)
		CALL(host, MPI_Irecv, data, (int)bytes, MPI_BYTE, place, MPI_ANY_TAG,
		     host->messages, &host->requests[host->count]);
	else
		CALL(host, MPI_Isend, data, (int)bytes, MPI_BYTE, place, hash_of(slot.tag),
		     host->messages, &host->requests[host->count]);
	host->count++;
	return 0;
}

static int mpi_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	return start(host, peer, (struct slot){.request = request, .tag = tag},
		     (void *)(uintptr_t)data, bytes, error);
}

static int mpi_recv(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	return start(host, peer, (struct slot){.request = request, .tag = tag, .receive = true},
		     data, bytes, error);
}

static int mpi_progress(struct ddp_host *host, uint64_t nanoseconds)
{
	int happened = progress(host);

	if (!happened && nanoseconds)
		nanosleep(&(struct timespec){.tv_nsec = nanoseconds < POLL_NS ? (long)nanoseconds
									      : POLL_NS},
			  NULL);
	return happened;
}

static bool has_messages(const struct ddp_host *host)
{
	for (int i = 0; i < host->count; i++)
		if (host->slots[i].request)
			return true;
	return false;
}

/*
 * Cancel all receives. MPI cancels only receives for which no data has arrived. If MPI still uses
 * the buffers of other receives after FLUSH_S, MPI is not called any more.
 */
static void mpi_cancel(struct ddp_host *host)
{
	struct ddp_watch watch = ddp_watch_start(FLUSH_S, NULL, NULL);

	for (int i = INBOX + 1; i < host->count && !host->frozen; i++)
		if (host->slots[i].receive)
			CALL(host, MPI_Cancel, &host->requests[i]);
	while (has_messages(host) && !host->frozen && ddp_watch_check(&watch, NULL) == 0)
		progress(host);
	host->frozen = host->frozen || has_messages(host);
}

/* --- Start and end ------------------------------------------------------------------------- */

static void initialize(void *argument)
{
	int provided;

	(void)argument;
	MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
}

/*
 * Initialize MPI, and then restore the signal handlers that MPI and its libraries have replaced.
 * Runs in a thread, because the caller may have to abandon the call.
 */
static void initialize_bounded(void *argument)
{
	ddp_module_keep_handlers(initialize, argument);
}

/*
 * Open the library of Open MPI again with global symbols, because its components need these
 * symbols.
 */
static void show_library(void)
{
	Dl_info info;

	if (dladdr((void *)(uintptr_t)MPI_Init_thread, &info))
		(void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/* Write the name of the loaded library, such as "Open MPI v4.1.4" or "MPICH Version: 4.0.2". */
static void mpi_describe(struct ddp_host *host, char *name, size_t size)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "", *tab;
	int length;

	(void)host;
	MPI_Get_library_version(text, &length);
	while ((tab = strchr(text, '\t')))
		*tab = ' ';
	snprintf(name, size, "%.*s", (int)strcspn(text, ",\n"), text);
}

static int no_launcher(const struct ddp_host *host, int ranks, struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"the job has %d ranks, but MPI was started for %d. Start the job with " LAUNCHER
		", or choose another engine (DDP_WIDE).",
		host->size, ranks);
}

static int check_library(struct ddp_error *error)
{
	char name[80];
	int flag;

	mpi_describe(NULL, name, sizeof(name));
	if ((strncmp(name, "Open MPI", 8) == 0) != IS_OPEN_MPI)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"the program has loaded %s, but libddp was built for another MPI. "
			"Configure libddp with --with-mpi=MPICC, the compiler of that MPI.",
			name);
	MPI_Finalized(&flag);
	if (flag)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"MPI was finalized in this process and cannot be initialized again. Call "
			"MPI_Init_thread() before the first ddp_init(), and MPI_Finalize() after "
			"the last.");
	return 0;
}

/* Initialize MPI, unless the program has done so. */
static int start_mpi(struct ddp_host *host, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_bounded *left = NULL;
	int initialized, status, i = 0;
	char nothing = 0;

	MPI_Initialized(&initialized);
	if (initialized)
		return 0;
	while (launched[i] && !getenv(launched[i]))
		i++;
	if (!launched[i])
		return no_launcher(host, 1, error);
	ddp_error_clear(error);
	status = ddp_bounded_call(&left, initialize_bounded, &nothing, sizeof(nothing), watch,
				  error);
	ddp_bounded_leave(left);
	host->ours = status == 0;
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		return ddp_error_set(error, status,
				     "MPI_Init did not return within %g s, because not all ranks "
				     "called it",
				     watch->limit);
	return status;
}

static int check_world(struct ddp_host *host, struct ddp_error *error)
{
	int level, ranks;

	MPI_Query_thread(&level);
	if (level < MPI_THREAD_SERIALIZED)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"MPI was initialized without thread support. Call MPI_Init_thread() with "
			"MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE.");
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < host->size)
		return no_launcher(host, ranks, error);
	MPI_Comm_rank(MPI_COMM_WORLD, &host->own);
	return 0;
}

static void free_host(struct ddp_host *host)
{
	free(host->slots);
	free(host->requests);
	free(host->members);
	free(host->peers);
	free(host);
}

static void mpi_close(struct ddp_host *host, bool clean)
{
	struct ddp_watch watch = ddp_watch_start(FLUSH_S, NULL, NULL);

	if (!host)
		return;
	/*
	 * Do not free MPI's buffers. The process exits without MPI_Finalize(), because that would
	 * wait for all ranks.
	 */
	if (!clean) {
		while (!host->frozen && host->count > INBOX + 1 &&
		       ddp_watch_check(&watch, NULL) == 0)
			progress(host);
		host->frozen = true;
		return;
	}
	if (host->control != MPI_COMM_NULL) {
		MPI_Cancel(&host->requests[INBOX]);
		MPI_Waitall(host->count, host->requests, MPI_STATUSES_IGNORE);
		MPI_Comm_free(&host->control);
		MPI_Comm_free(&host->messages);
	}
	current = NULL;
	if (host->ours)
		MPI_Finalize();
	free_host(host);
}

static int mpi_open(struct ddp_host **opened, const struct ddp_host_setup *setup,
		    struct ddp_host_card *card, struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	int size = setup->size, status;

	*opened = NULL;
	if (host) {
		host->peers = calloc((size_t)size, sizeof(*host->peers));
		host->members = calloc((size_t)size, sizeof(*host->members));
		host->slots = calloc((size_t)SLOTS(size), sizeof(*host->slots));
		host->requests = calloc((size_t)SLOTS(size), sizeof(*host->requests));
	}
	if (!host || !host->peers || !host->members || !host->slots || !host->requests) {
		if (host)
			free_host(host);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for MPI");
	}
	for (int i = 0; i < size; i++)
		host->peers[i].place = -1;
	host->rank = setup->rank;
	host->size = size;
	host->owner = setup->watch->owner;
	host->end = setup->end;
	host->messages = host->control = MPI_COMM_NULL;
	host->noted = -1;
	show_library();
	status = check_library(error);
	if (status == 0)
		status = start_mpi(host, setup->watch, error);
	if (status == 0)
		status = check_world(host, error);
	if (status < 0) {
		free_host(host); /* MPI does not use any memory of the engine yet, so free it */
		return status;
	}
	card->rank = setup->rank;
	card->bytes = sizeof(struct card);
	memcpy(card->data, &(struct card){CARD_MAGIC, host->own}, sizeof(struct card));
	*opened = host;
	return 0;
}

/* Find out which rank in MPI_COMM_WORLD the peer of [card] has, and store that rank in [worlds]. */
static int read_card(const struct ddp_host *host, const struct ddp_host_card *card, int *worlds,
		     struct ddp_error *error)
{
	struct card its;

	memcpy(&its, card->data, sizeof(its));
	if (card->bytes != sizeof(its) || its.magic != CARD_MAGIC)
		return ddp_error_set(error, DDP_ERR_MISMATCH, "rank %d does not use the engine mpi",
				     card->rank);
	if (its.rank == host->own)
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"rank %d and rank %d are both rank %d of MPI_COMM_WORLD. Start the job "
			"with one " LAUNCHER ".",
			host->rank, card->rank, its.rank);
	worlds[card->rank] = its.rank;
	return 0;
}

/* Arguments of make_communicators(). */
struct making {
	struct ddp_host *host;
	const int *ranks; /* ranks of MPI_COMM_WORLD */
	int count;
};

/*
 * Create the engine's communicators, which are separate from the program's communicators. Runs in a
 * thread, because the caller may have to abandon the call: if a rank is missing, or if the network
 * does not work, these calls do not return.
 */
static void make_communicators(void *argument)
{
	const struct making *making = argument;
	struct ddp_host *host = making->host;
	MPI_Group world, group;

	current = host;
	if (host->ours)
		set_error_handler(MPI_COMM_WORLD);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, making->count, making->ranks, &group);
	CALL(host, MPI_Comm_create_group, MPI_COMM_WORLD, group, 0, &host->messages);
	set_error_handler(host->messages);
	CALL(host, MPI_Comm_dup, host->messages, &host->control);
	set_error_handler(host->control);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
}

/*
 * Call make_communicators() with a time limit. During this call, this thread does not call MPI,
 * since there are no requests. Frees [ranks], except if the call was abandoned and still uses them.
 */
static int join_communicators(struct ddp_host *host, int *ranks, int count,
			      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct making making = {host, ranks, count};
	struct ddp_bounded *left = NULL;
	int status;

	ddp_error_clear(error);
	status = ddp_bounded_call(&left, make_communicators, &making, sizeof(making), watch, error);
	host->frozen = status < 0;
	if (!left)
		free(ranks);
	ddp_bounded_leave(left);
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		return ddp_error_set(error, status,
				     "%s did not return within %g s, because a rank is missing or "
				     "the fabric does not work",
				     host->call, watch->limit);
	if (status < 0)
		return status;
	host->slots[host->count++] = (struct slot){.receive = true};
	receive_control(host);
	return 0;
}

static int mpi_meet(struct ddp_host *host, const struct ddp_host_card *cards, int count,
		    const struct ddp_watch *watch, struct ddp_error *error)
{
	int *worlds = malloc((size_t)host->size * sizeof(*worlds));
	int status = 0, place = 0;

	if (!worlds)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for MPI");
	for (int i = 0; i < host->size; i++)
		worlds[i] = i == host->rank ? host->own : -1;
	for (int i = 0; i < count && status == 0; i++)
		status = read_card(host, &cards[i], worlds, error);
	/* All ranks must list the communicators' members in the same order: that of world ranks. */
	for (int i = 0; i < host->size && status == 0; i++) {
		if (worlds[i] < 0)
			continue;
		host->members[place] = i;
		host->peers[i].place = place;
		worlds[place++] = worlds[i];
	}
	if (status == 0 && count > 0)
		return join_communicators(host, worlds, place, watch, error);
	free(worlds);
	return status;
}

/* --- Failures ------------------------------------------------------------------------------ */

static void send_to_all(struct ddp_host *host, enum control kind, const char *text)
{
	for (int i = 0; i < host->size; i++)
		send_control(host, i, kind, text);
}

/* Send a note to all peers. Only the first note is sent, since peers ignore later notes. */
static void mpi_note(struct ddp_host *host, const char *text)
{
	if (*host->own_note)
		return;
	snprintf(host->own_note, sizeof(host->own_note), "%s", text);
	send_to_all(host, CONTROL_NOTE, host->own_note);
}

/* Returns notes only. If a peer is lost, fail() ends this process. */
static enum ddp_host_event mpi_event(struct ddp_host *host, int *peer, char *text, size_t size)
{
	if (host->noted < 0)
		return DDP_HOST_QUIET;
	*peer = host->noted;
	snprintf(text, size, "%s", host->note);
	return DDP_HOST_NOTED;
}

static int mpi_silent(struct ddp_host *host, bool ask, int *first)
{
	int silent = 0;

	for (int i = 0; i < host->size && ask; i++)
		host->peers[i].answered = i == host->rank || host->peers[i].place < 0;
	if (ask)
		send_to_all(host, CONTROL_ASK, "");
	for (int i = host->size - 1; i >= 0; i--)
		if (!host->peers[i].answered) {
			*first = i;
			silent++;
		}
	return silent;
}

DDP_API const struct ddp_host_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_HOST_VERSION, sizeof(struct ddp_host_engine), "wide", "mpi",
		 PACKAGE_VERSION},
	.linger = LINGER_US,
	.all_peers = true,
	.open = mpi_open,
	.meet = mpi_meet,
	.send = mpi_send,
	.recv = mpi_recv,
	.progress = mpi_progress,
	.cancel = mpi_cancel,
	.event = mpi_event,
	.note = mpi_note,
	.silent = mpi_silent,
	.describe = mpi_describe,
	.close = mpi_close,
};
