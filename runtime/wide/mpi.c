/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.c - the engine between groups over MPI (ddp_mpi.so), for fabrics that UCX does not serve
 *
 * The ranks of a column have two communicators of their own: one for data, one for letters, which
 * are said out of turn. Data is received in the order in which it was sent, from any tag: a tag of
 * MPI's is too short for ours, so it is a hash of it, which is compared afterwards.
 *
 * MPI has no deadlines. What begins and ends it waits for other ranks, and is made in a thread
 * that can be left behind; all else is begun, and asked about from time to time. These calls wait
 * for nobody, but where a peer is gone one of them may never come back: a guard looks at how long
 * they take. When MPI holds memory that its owner wants back, it is not called any more, and ends
 * with the process.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#if HAVE_DECL_MPIX_COMM_ACK_FAILED
#include <mpi-ext.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bounded.h"
#include "host.h"

/*
 * How long a clean end waits for the goodbyes of the peers, on busy nodes, too: without them MPI is not ended, and its
 * launcher may take that for a failure. What follows them is waited for, too.
 */
#define GOODBYE UINT64_C(5000000000)
#define FINALIZE 10.0
/* How long letters may take to leave at any other end, and a request that is given up to end by itself. */
#define POSTING 50000000u
#define PATIENCE 20000000u
/* What a peer sent before its goodbye may come as much later than that. */
#define GRACE 200000000u
/* Microseconds that a rank stays after a failure: Slurm ends the others with it, and the guard of one has to hear why. */
#define LINGER 1500000u
/* MPI has nothing to wait on: a wait looks again after so long. */
#define NAP 100000u
/* How often the guard looks; after how many looks at one call it asks whether others have given up. */
#define GUARD_PERIOD 100000000u
#define LONG_CALL 10

#ifdef OPEN_MPI
#define LAUNCHER "srun --mpi=pmix"
static const char *const launched[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", NULL};
#else
#define LAUNCHER "srun --mpi=pmi2"
static const char *const launched[] = {"PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", NULL};
#endif

/* What a rank publishes: who it is to MPI. */
struct card {
	uint32_t magic;
	int32_t rank; /* of MPI_COMM_WORLD */
};

enum { CARD_MAGIC = 0x69706d64 };

/* A letter's tag. */
enum letter_kind { LETTER_NOTE, LETTER_BYE, LETTER_ASK, LETTER_ANSWER };

struct peer {
	int rank;     /* of MPI_COMM_WORLD, -1: not connected */
	int place;    /* in our communicators */
	uint64_t bye; /* when it left in peace, 0: it has not */
	bool failed;  /* a message from or to it did */
	bool answered;
};

/* Something that MPI was asked for: a message, or a letter. */
struct slot {
	struct ddp_host_request *request; /* NULL: a letter */
	char *letter;			  /* that goes out */
	uint64_t tag, mask;		  /* of a receive */
	bool receive;
};

enum { INBOX = 0 }; /* the slot in which letters come in */

/* What watches over the thread that calls MPI. The lock is of all that follows it. */
struct guard {
	struct ddp_watch watch; /* of the owner; its deadline is not used */
	ddp_host_end *end;
	pthread_t thread;
	bool runs;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t calls; /* that began */
	bool inside;	/* MPI is in the last of them */
	bool over;	/* the thread is to end */
};

struct ddp_host {
	const struct ddp_log *log;
	int rank, size;
	bool ours;		   /* we began MPI, and end it */
	bool joined;		   /* there are communicators */
	bool frozen;		   /* MPI is not to be called any more */
	struct ddp_bounded *stuck; /* a call that has not come back */
	struct guard guard;
	struct card card;

	struct peer *peers; /* [size] */
	int *members;	    /* [count_members], their ranks in our communicators' order */
	int count_members;
	MPI_Comm data, letters;
	int tag_bits;

	int count, room; /* slots */
	struct slot *slots;
	MPI_Request *requests;
	MPI_Status *statuses;
	int *ended;

	int posted; /* letters on their way */
	bool byes;
	int lost; /* the first peer with which a message failed, -1: none */
	bool dead; /* MPI says that it has died, and Slurm, which MPI tells, is about to end the job */
	char why[MPI_MAX_ERROR_STRING];
	int noted; /* who sent the note, -1: none */
	char note[DDP_HOST_NOTE], inbox[DDP_HOST_NOTE];
};

/* --- Calls that wait for nobody, and may not come back ------------------------------------ */

/* The thread that is in MPI, 0: none. */
static atomic_uintptr_t in_mpi;

/* MPI writes to peers that are gone, which ends nobody; what else writes to nobody ends as by default. */
static void pipe_broke(int number)
{
	if (atomic_load(&in_mpi) == (uintptr_t)pthread_self())
		return;
	signal(number, SIG_DFL);
	raise(number);
}

static void survive_pipes(void)
{
	struct sigaction action;

	sigaction(SIGPIPE, NULL, &action);
	if (action.sa_handler == SIG_DFL)
		signal(SIGPIPE, pipe_broke);
}

static void enter(struct ddp_host *host)
{
	pthread_mutex_lock(&host->guard.lock);
	host->guard.calls++;
	host->guard.inside = true;
	pthread_mutex_unlock(&host->guard.lock);
	atomic_store(&in_mpi, (uintptr_t)pthread_self());
}

/* MPI has come back. Where the guard has given it up, this waits for the end. */
static void leave(struct ddp_host *host)
{
	atomic_store(&in_mpi, 0);
	pthread_mutex_lock(&host->guard.lock);
	host->guard.inside = false;
	pthread_mutex_unlock(&host->guard.lock);
}

/*
 * MPI is in a call for so long. With the lock, and the caller in MPI, all that is its own is the
 * guard's for the while; it does not call MPI.
 */
static void look_at_call(struct ddp_host *host, double seconds)
{
	const struct ddp_watch *watch = &host->guard.watch;
	struct ddp_error error = {0};
	int status = 0;

	host->frozen = true;
	if (watch->check)
		status = watch->check(watch->owner, &error);
	if (status == 0 && seconds >= watch->limit)
		status = ddp_error_set(&error, DDP_ERR_TIMEOUT,
				       "MPI did not come back from a call in %g s", watch->limit);
	if (status < 0)
		host->guard.end(watch->owner, status, error.text);
	host->frozen = false;
}

/* It counts looks, not time: a process that is stopped is in no call for longer. */
static void *keep_guard(void *argument)
{
	struct ddp_host *host = argument;
	struct guard *guard = &host->guard;
	uint64_t call = 0;
	int looks = 0;

	pthread_mutex_lock(&guard->lock);
	while (!guard->over) {
		uint64_t until = ddp_now() + GUARD_PERIOD;

		looks = guard->inside && guard->calls == call ? looks + 1 : 0;
		call = guard->calls;
		if (looks >= LONG_CALL)
			look_at_call(host, looks * (GUARD_PERIOD * 1e-9));
		pthread_cond_timedwait(&guard->changed, &guard->lock,
				       &(struct timespec){(time_t)(until / 1000000000u),
							  (long)(until % 1000000000u)});
	}
	pthread_mutex_unlock(&guard->lock);
	return NULL;
}

static int start_guard(struct ddp_host *host, struct ddp_error *error)
{
	struct guard *guard = &host->guard;

	errno = ddp_thread_start(&guard->thread, keep_guard, host);
	if (errno)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot start a thread");
	guard->runs = true;
	return 0;
}

static void stop_guard(struct guard *guard)
{
	if (!guard->runs)
		return;
	pthread_mutex_lock(&guard->lock);
	guard->over = true;
	pthread_cond_signal(&guard->changed);
	pthread_mutex_unlock(&guard->lock);
	pthread_join(guard->thread, NULL);
	guard->runs = false;
}

/* --- Slots ---------------------------------------------------------------------------- */

/* A free slot at the end of the list, NULL: no memory. It counts when MPI has its request. */
static struct slot *new_slot(struct ddp_host *host)
{
	int room = host->room ? 2 * host->room : 32;
	void *slots, *requests, *statuses, *ended;

	if (host->count < host->room)
		return &host->slots[host->count];
	if ((slots = realloc(host->slots, (size_t)room * sizeof(*host->slots))))
		host->slots = slots;
	if ((requests = realloc(host->requests, (size_t)room * sizeof(MPI_Request))))
		host->requests = requests;
	if ((statuses = realloc(host->statuses, (size_t)room * sizeof(MPI_Status))))
		host->statuses = statuses;
	if ((ended = realloc(host->ended, (size_t)room * sizeof(int))))
		host->ended = ended;
	if (!slots || !requests || !statuses || !ended)
		return NULL;
	host->room = room;
	return &host->slots[host->count];
}

static int find_slot(const struct ddp_host *host, const struct ddp_host_request *request)
{
	int i = host->count;

	while (--i >= 0 && host->slots[i].request != request)
		;
	return i;
}

static uint64_t hash_of(const struct ddp_host *host, uint64_t tag)
{
	return tag * UINT64_C(0x9e3779b97f4a7c15) >> (64 - host->tag_bits);
}

static bool has_left(const struct peer *peer)
{
	return peer->failed || (peer->bye && ddp_now() - peer->bye >= GRACE);
}

/* A call of MPI's failed on [peer]. Returns what that is for us. */
static int blame(struct ddp_host *host, int peer, int code)
{
	int class = MPI_ERR_OTHER, length;

	MPI_Error_class(code, &class);
	if (class == MPI_ERR_TRUNCATE)
		return DDP_ERR_MISMATCH;
	host->peers[peer].failed = true;
	if (host->lost < 0 && !host->peers[peer].bye) {
		host->lost = peer;
		MPI_Error_string(code, host->why, &length);
#if HAVE_DECL_MPIX_COMM_ACK_FAILED
		host->dead = class == MPIX_ERR_PROC_FAILED;
#endif
	}
	return DDP_ERR_PEER;
}

/*
 * Over ob1 Open MPI 5 ends the process that loses a peer, unless its fault tolerance is on: then it says who has died.
 * That leaves no other way to a fabric than ob1, and is asked for where ob1 was chosen.
 */
static void ask_for_deaths(void)
{
#if HAVE_DECL_MPIX_COMM_ACK_FAILED
	const char *pml = getenv("OMPI_MCA_pml");

	if (pml && strcmp(pml, "ob1") == 0)
		setenv("OMPI_MCA_mpi_ft_enable", "1", 0);
#endif
}

/*
 * A receive from anybody, as that of letters, tells of a death, and goes on once MPI is told that it was seen.
 * Returns whether [code] was that.
 */
static bool look_at_deaths(struct ddp_host *host, int code)
{
#if HAVE_DECL_MPIX_COMM_ACK_FAILED
	MPI_Group dead, all;
	int count, place, known;

	if (code != MPIX_ERR_PROC_FAILED_PENDING)
		return false;
	enter(host);
	MPIX_Comm_get_failed(host->letters, &dead);
	MPI_Comm_group(host->letters, &all);
	MPI_Group_size(dead, &count);
	for (int i = 0; i < count; i++) {
		MPI_Group_translate_ranks(dead, 1, &i, all, &place);
		blame(host, host->members[place], MPIX_ERR_PROC_FAILED);
	}
	MPIX_Comm_ack_failed(host->letters, count, &known);
	MPI_Group_free(&all);
	MPI_Group_free(&dead);
	leave(host);
	return true;
#else
	(void)host;
	(void)code;
	return false;
#endif
}

/* --- Letters -------------------------------------------------------------------------- */

static void await_letter(struct ddp_host *host)
{
	int code;

	enter(host);
	code = MPI_Irecv(host->inbox, sizeof(host->inbox), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
			 host->letters, &host->requests[INBOX]);
	leave(host);
	if (code != MPI_SUCCESS)
		host->requests[INBOX] = MPI_REQUEST_NULL;
}

/* Send one, if [peer] can be reached; [text] may be NULL. */
static void send_letter(struct ddp_host *host, int peer, enum letter_kind kind, const char *text)
{
	size_t size = text ? strnlen(text, DDP_HOST_NOTE - 1) : 0;
	struct slot *slot;
	int code;

	if (!host->joined || host->frozen || host->peers[peer].rank < 0 ||
	    has_left(&host->peers[peer]) || !(slot = new_slot(host)))
		return;
	*slot = (struct slot){.letter = malloc(size + 1)};
	if (!slot->letter)
		return;
	if (size)
		memcpy(slot->letter, text, size);
	enter(host);
	code = MPI_Isend(slot->letter, (int)size, MPI_BYTE, host->peers[peer].place, (int)kind,
			 host->letters, &host->requests[host->count]);
	leave(host);
	if (code != MPI_SUCCESS) {
		free(slot->letter);
		return;
	}
	host->count++;
	host->posted++;
}

static void letter_came(struct ddp_host *host, const MPI_Status *status)
{
	int sender = host->members[status->MPI_SOURCE], size = 0;

	MPI_Get_count(status, MPI_BYTE, &size);
	switch ((enum letter_kind)status->MPI_TAG) {
	case LETTER_NOTE:
		if (host->noted < 0)
			snprintf(host->note, sizeof(host->note), "%.*s", size, host->inbox);
		if (host->noted < 0)
			host->noted = sender;
		break;
	case LETTER_BYE:
		host->peers[sender].bye = ddp_now();
		host->byes = true;
		break;
	case LETTER_ASK:
		send_letter(host, sender, LETTER_ANSWER, NULL);
		break;
	case LETTER_ANSWER:
		host->peers[sender].answered = true;
		break;
	}
}

/* --- Messages ------------------------------------------------------------------------- */

static void message_ended(struct ddp_host *host, const struct slot *slot, const MPI_Status *status,
			  int code)
{
	struct ddp_host_request *request = slot->request;
	int cancelled = 0, size = 0;

	if (code != MPI_SUCCESS) {
		request->status = blame(host, request->peer, code);
		return;
	}
	MPI_Test_cancelled(status, &cancelled);
	if (cancelled) {
		request->status =
			has_left(&host->peers[request->peer]) ? DDP_ERR_PEER : DDP_ERR_ABORTED;
		return;
	}
	if (slot->receive) {
		/* Where the hash is another one, so are the bits that the caller looks at. */
		bool same = (uint64_t)status->MPI_TAG == hash_of(host, slot->tag);

		MPI_Get_count(status, MPI_BYTE, &size);
		request->bytes = (size_t)size;
		request->tag = same ? slot->tag : slot->tag ^ ~slot->mask;
	}
	request->status = 1;
}

static void end_slot(struct ddp_host *host, int i, const MPI_Status *status, int code)
{
	struct slot slot = host->slots[i];

	if (i == INBOX) {
		if (look_at_deaths(host, code))
			return;
		if (code == MPI_SUCCESS)
			letter_came(host, status);
		await_letter(host);
	} else if (slot.request) {
		message_ended(host, &slot, status, code);
	} else {
		free(slot.letter);
		host->posted--;
	}
}

/* The last slots take the places of those that have ended. */
static void close_gaps(struct ddp_host *host)
{
	for (int i = host->count - 1; i > INBOX; i--)
		if (host->requests[i] == MPI_REQUEST_NULL) {
			host->count--;
			host->slots[i] = host->slots[host->count];
			host->requests[i] = host->requests[host->count];
		}
}

static void cancel_slot(struct ddp_host *host, int i)
{
	enter(host);
	MPI_Cancel(&host->requests[i]);
	leave(host);
}

/* End the receives from peers that have left: what they sent before has had its time to come. */
static void end_receives(struct ddp_host *host)
{
	for (int i = INBOX + 1; i < host->count; i++) {
		const struct slot *slot = &host->slots[i];

		if (slot->receive && has_left(&host->peers[slot->request->peer]))
			cancel_slot(host, i);
	}
}

static int mpi_progress(struct ddp_host *host)
{
	int ended = 0, code;

	if (!host->joined || host->frozen)
		return 0;
	if (host->byes)
		end_receives(host);
	enter(host);
	code = MPI_Testsome(host->count, host->requests, &ended, host->ended, host->statuses);
	leave(host);
	if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
		host->frozen = true;
		return 0;
	}
	if (ended == MPI_UNDEFINED || ended == 0)
		return 0;
	for (int i = 0; i < ended; i++)
		end_slot(host, host->ended[i], &host->statuses[i],
			 code == MPI_SUCCESS ? MPI_SUCCESS : host->statuses[i].MPI_ERROR);
	close_gaps(host);
	return 1;
}

/* Begin a message. [at] is the receiver's memory, or the sender's, which is only read. */
static int begin(struct ddp_host *host, int peer, struct slot what, void *at, size_t bytes,
		 struct ddp_error *error)
{
	struct ddp_host_request *request = what.request;
	struct slot *slot = new_slot(host);
	MPI_Request *handle = &host->requests[host->count];
	int place = host->peers[peer].place, code;

	request->peer = peer;
	request->status = 0;
	if (!slot)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	if (bytes > INT_MAX)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "a message of %zu bytes is too long for MPI", bytes);
	if (!host->joined || host->frozen || has_left(&host->peers[peer])) {
		request->status = DDP_ERR_PEER;
		return 0;
	}
	*slot = what;
	enter(host);
	code = what.receive
		       ? MPI_Irecv(at, (int)bytes, MPI_BYTE, place, MPI_ANY_TAG, host->data, handle)
		       : MPI_Isend(at, (int)bytes, MPI_BYTE, place, (int)hash_of(host, what.tag),
				   host->data, handle);
	leave(host);
	if (code == MPI_SUCCESS)
		host->count++;
	else
		request->status = blame(host, peer, code);
	return 0;
}

static int mpi_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	return begin(host, peer, (struct slot){.request = request, .tag = tag},
		     (void *)(uintptr_t)data, bytes, error);
}

static int mpi_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		    size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	return begin(host, peer,
		     (struct slot){.request = request, .tag = tag, .mask = mask, .receive = true},
		     data, bytes, error);
}

static void mpi_idle(struct ddp_host *host, uint64_t nanoseconds)
{
	(void)host;
	nanosleep(&(struct timespec){.tv_nsec = nanoseconds < NAP ? (long)nanoseconds : NAP}, NULL);
}

/* Let letters leave. */
static void post_letters(struct ddp_host *host)
{
	uint64_t until = ddp_now() + POSTING;

	while (host->joined && !host->frozen && host->posted > 0 && ddp_now() < until)
		mpi_progress(host);
}

/*
 * MPI gives a receive back as long as nothing has come for it, and a send never. What it does not
 * give back, it does not get to touch: nobody calls it again.
 */
static void mpi_cancel(struct ddp_host *host, struct ddp_host_request *request)
{
	uint64_t until = ddp_now() + PATIENCE;
	int i = find_slot(host, request);

	if (request->status != 0)
		return;
	if (i >= 0 && host->slots[i].receive && !host->frozen)
		cancel_slot(host, i);
	while (request->status == 0 && !host->frozen && !host->dead && ddp_now() < until)
		mpi_progress(host);
	if (request->status == 0 && !host->dead)
		post_letters(host);
	if (request->status != 0)
		return;
	host->frozen = true;
	request->status = DDP_ERR_ABORTED;
	ddp_log_print(host->log, DDP_LEVEL_DEBUG, "mpi",
		      "a message from or to rank %d cannot be cancelled: MPI is left as it is",
		      request->peer);
}

/* --- Begin and end, which wait for others ------------------------------------------------- */

static const int guarded[] = {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGHUP};
enum { GUARDED = sizeof(guarded) / sizeof(guarded[0]) };

/* What handles signal [number] but for UCX, which takes some where MPI is linked with it, and has them given back. */
static struct sigaction handler_of(int number)
{
	void (*give_back)(int number) = NULL;
	struct sigaction action;
	void *library;
	Dl_info info;

	sigaction(number, NULL, &action);
	if (!dladdr((void *)(uintptr_t)action.sa_handler, &info) ||
	    !strstr(info.dli_fname, "/libucs.so"))
		return action;
	library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (library)
		give_back = (void (*)(int))(uintptr_t)dlsym(library, "ucs_debug_disable_signal");
	if (give_back)
		give_back(number);
	if (library)
		dlclose(library);
	sigaction(number, NULL, &action);
	return action;
}

/* MPI, and what it loads, may set handlers of signals; they are the program's. */
static void begin_mpi(void *argument)
{
	struct sigaction before[GUARDED];
	int provided;

	(void)argument;
	for (int i = 0; i < GUARDED; i++)
		before[i] = handler_of(guarded[i]);
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS)
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < GUARDED; i++)
		sigaction(guarded[i], &before[i], NULL);
}

static void end_mpi(void *argument)
{
	struct ddp_host *host = *(struct ddp_host **)argument;

	if (host->joined) {
		MPI_Cancel(&host->requests[INBOX]);
		MPI_Wait(&host->requests[INBOX], MPI_STATUS_IGNORE);
		MPI_Comm_free(&host->letters);
		MPI_Comm_free(&host->data);
	}
	if (host->ours)
		MPI_Finalize();
}

struct joining {
	struct ddp_host *host;
	int code;
};

/* The ranks of the column, in our order, in communicators that no message of the program's is in. */
static void join_column(void *argument)
{
	struct joining *joining = argument;
	struct ddp_host *host = joining->host;
	MPI_Group world, group;
	int *ranks = calloc((size_t)host->count_members, sizeof(*ranks));

	joining->code = MPI_ERR_NO_MEM;
	if (!ranks)
		return;
	for (int i = 0; i < host->count_members; i++)
		ranks[i] = host->peers[host->members[i]].rank;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, host->count_members, ranks, &group);
	free(ranks);
	joining->code = MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &host->data);
	if (joining->code == MPI_SUCCESS) {
		MPI_Comm_set_errhandler(host->data, MPI_ERRORS_RETURN);
		joining->code = MPI_Comm_dup(host->data, &host->letters);
	}
	if (joining->code == MPI_SUCCESS)
		MPI_Comm_set_errhandler(host->letters, MPI_ERRORS_RETURN);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
}

/* --- Open --------------------------------------------------------------------------------- */

/* "Open MPI v4.1.4" or "MPICH Version: 4.0.2", of the library that is here. */
static void name_library(char *name, size_t size)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;

	MPI_Get_library_version(text, &length);
	text[strcspn(text, ",\n")] = '\0';
	for (char *at = text; *at; at++)
		if (*at == '\t')
			*at = ' ';
	snprintf(name, size, "%s", text);
}

/* Open MPI's components look for it among the symbols that all can see. */
static void show_library(void)
{
	void *inside = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
	Dl_info info;

	if (!inside)
		inside = (void *)(uintptr_t)MPI_Init_thread;
	if (dladdr(inside, &info))
		(void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int no_launcher(const struct ddp_host *host, int ranks, struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"MPI was not started for the %d ranks of the job but for %d: begin it with " LAUNCHER
		", or choose another engine (DDP_WIDE)",
		host->size, ranks);
}

static int check_library(struct ddp_error *error)
{
	char name[80];
	int flag;

	name_library(name, sizeof(name));
#ifdef OPEN_MPI
	flag = strncmp(name, "Open MPI", 8) == 0;
#else
	flag = strncmp(name, "Open MPI", 8) != 0;
#endif
	if (!flag)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"the program has %s, libddp was built for another MPI: configure "
			"--with-mpi=MPICC names the compiler of one",
			name);
	MPI_Finalized(&flag);
	if (flag)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"MPI has ended in this process and cannot begin again: call "
			"MPI_Init_thread() before the first ddp_init() and MPI_Finalize() after "
			"the last");
	return 0;
}

/* Begin MPI, unless the program has. */
static int begin_world(struct ddp_host *host, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	int begun, status, i = 0;
	char nothing = 0;

	MPI_Initialized(&begun);
	if (begun)
		return 0;
	while (launched[i] && !getenv(launched[i]))
		i++;
	if (!launched[i])
		return no_launcher(host, 1, error);
	host->ours = true;
	ask_for_deaths();
	ddp_error_clear(error);
	status = ddp_bounded_call(&host->stuck, begin_mpi, &nothing, sizeof(nothing), watch, error);
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		return ddp_error_set(error, status,
				     "MPI_Init did not come back in %g s: not all ranks called it",
				     watch->limit);
	return status;
}

static int look_at_world(struct ddp_host *host, struct ddp_error *error)
{
	int level, ranks, found, *bound;

	MPI_Query_thread(&level);
	if (level < MPI_THREAD_SERIALIZED)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "MPI was begun without threads: call MPI_Init_thread() with "
				     "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < host->size)
		return no_launcher(host, ranks, error);
	MPI_Comm_rank(MPI_COMM_WORLD, &ranks);
	host->card = (struct card){CARD_MAGIC, ranks};
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
	for (host->tag_bits = 15; found && host->tag_bits < 30; host->tag_bits++)
		if (*bound >> (host->tag_bits + 1) == 0)
			break;
	return 0;
}

static int mpi_address(struct ddp_host *host, const void **data, size_t *size,
		       struct ddp_error *error)
{
	(void)error;
	*data = &host->card;
	*size = sizeof(host->card);
	return 0;
}

static int mpi_connect(struct ddp_host *host, int peer, const void *data, size_t size,
		       struct ddp_error *error)
{
	struct card card;

	if (size != sizeof(card) || memcpy(&card, data, size) != &card || card.magic != CARD_MAGIC)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %d uses another engine than MPI", peer);
	if (card.rank == host->card.rank)
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"rank %d and rank %d are both rank %d of MPI_COMM_WORLD: begin the job "
			"with one " LAUNCHER,
			host->rank, peer, card.rank);
	host->peers[peer].rank = card.rank;
	return 0;
}

/* MPI itself knows its ranks from strangers, or does not. */
static int mpi_pass(struct ddp_host *host, const void **data, size_t *size, struct ddp_error *error)
{
	return mpi_address(host, data, size, error);
}

static int mpi_admit(struct ddp_host *host, int peer, const void *data, size_t size,
		     struct ddp_error *error)
{
	if (size == sizeof(struct card) &&
	    ((const struct card *)data)->rank == host->peers[peer].rank)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT, "rank %d: a damaged pass of MPI", peer);
}

static int mpi_meet(struct ddp_host *host, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct joining joining = {.host = host};
	int status;

	host->peers[host->rank].rank = host->card.rank;
	for (int i = 0; i < host->size; i++)
		if (host->peers[i].rank >= 0) {
			host->peers[i].place = host->count_members;
			host->members[host->count_members++] = i;
		}
	if (host->count_members == 1)
		return 0;
	ddp_error_clear(error);
	status = ddp_bounded_call(&host->stuck, join_column, &joining, sizeof(joining), watch,
				  error);
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		return ddp_error_set(error, status,
				     "not all of %d ranks came to MPI's group in %g s",
				     host->count_members, watch->limit);
	if (status == 0 && joining.code != MPI_SUCCESS)
		status = ddp_error_set(error, DDP_ERR_ENGINE, "MPI cannot make a group of %d ranks",
				       host->count_members);
	if (status == 0 && !new_slot(host))
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for MPI");
	if (status == 0)
		status = start_guard(host, error);
	if (status < 0)
		return status;
	host->slots[host->count++] = (struct slot){.receive = true};
	host->joined = true;
	await_letter(host);
	return 0;
}

/* --- Others ------------------------------------------------------------------------------- */

static int mpi_broken(struct ddp_host *host, int *peer, char *why, size_t size)
{
	if (host->lost < 0)
		return 0;
	*peer = host->lost;
	snprintf(why, size, "%s", host->why);
	return host->dead ? 2 : 1;
}

static void mpi_note(struct ddp_host *host, int peer, const char *text)
{
	send_letter(host, peer, LETTER_NOTE, text);
}

static int mpi_noted(struct ddp_host *host, int *peer, char *text, size_t size)
{
	if (host->noted < 0)
		return 0;
	*peer = host->noted;
	snprintf(text, size, "%s", host->note);
	return 1;
}

static void mpi_ask(struct ddp_host *host, int peer)
{
	host->peers[peer].answered = false;
	send_letter(host, peer, LETTER_ASK, NULL);
}

static bool mpi_answered(struct ddp_host *host, int peer)
{
	return host->peers[peer].answered;
}

static void mpi_describe(struct ddp_host *host, char *text, size_t size)
{
	(void)host;
	name_library(text, size);
}

/* --- Close -------------------------------------------------------------------------------- */

static bool all_said_bye(const struct ddp_host *host)
{
	for (int i = 0; i < host->count_members; i++)
		if (host->members[i] != host->rank && !host->peers[host->members[i]].bye)
			return false;
	return true;
}

/* Returns whether all are well: MPI can then end without waiting for who does not come. */
static bool say_bye(struct ddp_host *host)
{
	uint64_t until = ddp_now() + GOODBYE;

	for (int i = 0; i < host->count_members; i++)
		if (host->members[i] != host->rank)
			send_letter(host, host->members[i], LETTER_BYE, NULL);
	while ((host->posted > 0 || !all_said_bye(host)) && !host->frozen && ddp_now() < until)
		if (!mpi_progress(host))
			mpi_idle(host, NAP);
	return host->posted == 0 && all_said_bye(host) && !host->frozen;
}

static bool end_world(struct ddp_host *host)
{
	struct ddp_watch watch = ddp_watch_start(FINALIZE, NULL, NULL);

	return ddp_bounded_call(&host->stuck, end_mpi, &host, sizeof(host), &watch, NULL) == 0;
}

static void mpi_close(struct ddp_host *host, bool clean)
{
	if (!host)
		return;
	if (clean)
		clean = say_bye(host);
	else
		post_letters(host);
	stop_guard(&host->guard);
	/* What MPI still holds, it keeps: also where the process goes on. */
	if (host->stuck || (clean ? !end_world(host) : host->joined)) {
		ddp_bounded_leave(host->stuck);
		return;
	}
	pthread_cond_destroy(&host->guard.changed);
	pthread_mutex_destroy(&host->guard.lock);
	free(host->slots);
	free(host->requests);
	free(host->statuses);
	free(host->ended);
	free(host->members);
	free(host->peers);
	free(host);
}

static void prepare_guard(struct guard *guard, const struct ddp_watch *watch, ddp_host_end *end)
{
	pthread_condattr_t attributes;

	guard->watch = *watch;
	guard->end = end;
	pthread_mutex_init(&guard->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&guard->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static int mpi_open(struct ddp_host **opened, int rank, int size, const struct ddp_watch *watch,
		    ddp_host_end *end, const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	int status;

	*opened = NULL;
	if (host) {
		host->peers = calloc((size_t)size, sizeof(*host->peers));
		host->members = calloc((size_t)size, sizeof(*host->members));
	}
	if (!host || !host->peers || !host->members) {
		free(host ? host->peers : NULL);
		free(host);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for MPI");
	}
	for (int i = 0; i < size; i++)
		host->peers[i].rank = -1;
	host->log = log;
	host->rank = rank;
	host->size = size;
	host->lost = host->noted = -1;
	prepare_guard(&host->guard, watch, end);
	survive_pipes();
	show_library();
	status = check_library(error);
	if (status == 0)
		status = begin_world(host, watch, error);
	if (status == 0)
		status = look_at_world(host, error);
	if (status < 0)
		mpi_close(host, false);
	else
		*opened = host;
	return status;
}

DDP_API const struct ddp_host_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_HOST_VERSION, sizeof(struct ddp_host_engine), "wide", "mpi",
		 PACKAGE_VERSION},
	.linger = LINGER,
	.open = mpi_open,
	.address = mpi_address,
	.connect = mpi_connect,
	.pass = mpi_pass,
	.admit = mpi_admit,
	.meet = mpi_meet,
	.send = mpi_send,
	.recv = mpi_recv,
	.progress = mpi_progress,
	.idle = mpi_idle,
	.cancel = mpi_cancel,
	.broken = mpi_broken,
	.note = mpi_note,
	.noted = mpi_noted,
	.ask = mpi_ask,
	.answered = mpi_answered,
	.describe = mpi_describe,
	.close = mpi_close,
};
