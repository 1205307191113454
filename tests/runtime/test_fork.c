/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fork.c - forked children of ranks: they cannot act for their parents, and hold no connection
 *
 * Ranks are processes. Rank 1 forks, as a program with data loader's workers does.
 */
#include "config.h"

#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "ranks.h"

/*
 * Under AddressSanitizer: the search for leaks at the exit of a child waits for the allocator's lock,
 * which another thread of the parent may have held at the fork.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static const char *const layouts[] = {"2", "1,1", "2,1"};

enum { COUNT = 1000 };

/* Objects of rank 1 that its children inherit. */
static struct ddp *inherited;
static struct ddp_gradients *gradients;
static float *arena;

/* --- Calls of a child -------------------------------------------------------------------------- */

enum { CALLS = 35 };

/* Makes call [number], each with correct arguments but for two. Returns its status. */
static int call(struct ddp *ddp, int number)
{
	const struct ddp_parameter parameter = {"bias", 1};
	const struct ddp_tensor tensor = {"bias", DDP_F32, 1, {1}, arena};
	struct ddp_evaluation evaluation = {0};
	float all[RANKS_MOST], mean = 0, m2 = 0;
	struct ddp_gradients *more;
	double count = 1;
	uint64_t step;
	void *memory;

	switch (number) {
	case 0:
		return ddp_barrier(ddp);
	case 1:
		return ddp_all_reduce(ddp, arena, arena, COUNT, DDP_F32, DDP_SUM);
	case 2:
		return ddp_all_reduce(ddp, arena, arena, COUNT, DDP_TYPE_COUNT, DDP_SUM);
	case 3:
		return ddp_broadcast(ddp, arena, sizeof(*arena), 1);
	case 4:
		return ddp_broadcast(ddp, arena, sizeof(*arena), -1);
	case 5:
		return ddp_all_gather(ddp, arena, all, sizeof(*arena));
	case 6:
		return ddp_agree(ddp, DDP_ERR_FILE, "a file is missing");
	case 7:
		return ddp_arena_create(ddp, 64, &memory);
	case 8:
		return ddp_shared_create(ddp, 64, &memory);
	case 9:
		return ddp_arena_destroy(ddp, arena);
	case 10:
		return ddp_device_join(ddp);
	case 11:
		return ddp_device_all_reduce(ddp, arena, arena, 1, DDP_F32, DDP_SUM, NULL);
	case 12:
		return ddp_device_broadcast(ddp, arena, 1, 0, NULL);
	case 13:
		return ddp_device_all_gather(ddp, arena, arena, 1, NULL);
	case 14:
		return ddp_device_wait(ddp, NULL);
	case 15:
		return ddp_device_check(ddp);
	case 16:
		return ddp_device_alloc(ddp, 64, &memory);
	case 17:
		return ddp_device_free(ddp, NULL);
	case 18:
		return ddp_gradients_create(&more, ddp, NULL, &parameter, 1);
	case 19:
		return ddp_gradients_ready(gradients, 0);
	case 20:
		return ddp_gradients_finish(gradients);
	case 21:
		return ddp_gradients_ready_on(gradients, 0, NULL);
	case 22:
		return ddp_gradients_finish_on(gradients, NULL);
	case 23:
		return ddp_gradients_place(gradients, arena, NULL, NULL);
	case 24:
		return isnan(ddp_gradients_norm(gradients)) ? ddp_status(ddp) : 0;
	case 25:
		return isnan(ddp_gradients_clip(gradients, 1e-3)) ? ddp_status(ddp) : 0;
	case 26:
		ddp_gradients_destroy(gradients);
		break;
	case 27:
		return ddp_all_reduce_moments(ddp, &count, &mean, &m2, 1);
	case 28:
		return ddp_evaluation_reduce(ddp, &evaluation);
	case 29:
		return ddp_tensors_broadcast(ddp, &tensor, 1);
	case 30:
		return ddp_checkpoint_save(ddp, "state", 1, NULL, 0, NULL, 0, 0);
	case 31:
		return ddp_checkpoint_load(ddp, "state", &step, NULL, 0, NULL, 0);
	case 32:
		ddp_abort(ddp, "a worker has no data");
		return ddp_status(ddp);
	case 33:
		ddp_beat(ddp);
		return ddp_status(ddp);
	default:
		ddp_destroy(ddp);
	}
	return ddp_barrier(ddp);
}

static void destroy_inherited(void)
{
	ddp_destroy(inherited);
}

/*
 * Starts a child in which call [number] must fail. The child ends as many programs do: exit() calls
 * ddp_destroy(). Every second child calls ddp_exit() instead.
 */
static pid_t start_child(struct ddp *ddp, int number)
{
	pid_t child = fork();
	int status;

	if (child != 0)
		return child;
	status = call(ddp, number);
	if (status != DDP_ERR_STATE) {
		fprintf(stderr, "call %d of a child returned %d: %s\n", number, status,
			ddp_error(ddp));
		_exit(98);
	}
	if (number % 2)
		ddp_exit(ddp);
	exit(0);
}

/* All-reduce calls that must have the right sums, while children of rank 1 run. */
static void check_sums(struct ddp *ddp, int rank)
{
	int size = ddp_world(ddp)->size;

	for (int i = 0; i < 20; i++) {
		float x = (float)(rank + i), sum = (float)(size * (size - 1) / 2 + size * i);

		RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
		RANK_CHECK(x == sum);
	}
}

static int wait_for(pid_t child)
{
	int status;

	RANK_CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/*
 * The ranks call collectives while the children run, and after each child has ended. The gradients
 * have values, so that a child that changed shared memory would change the ranks' norm.
 */
static int body_calls(int rank)
{
	const struct ddp_parameter parameter = {"weight", COUNT};
	struct ddp *ddp = ranks_join();
	float *view;

	RANK_OK(ddp, ddp_arena_create(ddp, COUNT * sizeof(*arena), (void **)&arena));
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, NULL, &parameter, 1));
	view = ddp_gradients_view(gradients, 0);
	for (int i = 0; i < COUNT; i++)
		view[i] = 1;
	inherited = ddp;
	RANK_CHECK(atexit(destroy_inherited) == 0);
	for (int i = 0; i < CALLS; i++) {
		pid_t child = rank == 1 ? start_child(ddp, i) : 0;

		check_sums(ddp, rank);
		if (child)
			RANK_CHECK(wait_for(child) == (i % 2 ? ddp_exit_status(DDP_ERR_STATE) : 0));
		RANK_OK(ddp, ddp_barrier(ddp));
	}
	RANK_CHECK(fabs(ddp_gradients_norm(gradients) - sqrt(COUNT)) < 1e-6);
	RANK_CHECK(ddp_status(ddp) == 0);
	ddp_gradients_destroy(gradients);
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_no_call_of_a_child_reaches_the_world, layouts)
{
	ranks_run(layouts[_i], body_calls);
}

/* A child without an error ends with 0, and its output is complete. */
RANKS_TEST(test_exit_of_a_child_flushes_and_ends_it, layouts)
{
	char text[32] = "";
	pid_t child = rank == 1 ? fork() : 0;
	FILE *file;

	if (rank == 1 && child == 0) {
		RANK_CHECK(freopen("child", "w", stdout));
		printf("the last line");
		ddp_exit(ddp);
	}
	check_sums(ddp, rank);
	if (rank != 1)
		return;
	RANK_CHECK(wait_for(child) == 0);
	file = fopen("child", "r");
	RANK_CHECK(file && fgets(text, sizeof(text), file) && fclose(file) == 0);
	RANK_CHECK(strcmp(text, "the last line") == 0);
}

/* --- Children of another thread during ddp_init() -------------------------------------------- */

/* Returns the number of TCP sockets of this process. */
static int count_tcp_sockets(void)
{
	int count = 0, domain, type;
	socklen_t size = sizeof(int);

	for (int fd = 0; fd < 1024; fd++)
		count += getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
			 getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
			 domain == AF_INET && type == SOCK_STREAM;
	return count;
}

static atomic_bool joined;

/*
 * Forks until the rank has joined, at least once while it has a socket. A child fails if it has a
 * socket.
 */
static void *fork_children(void *argument)
{
	int forked = 0, failed = 0;

	while (!atomic_load(&joined) || forked == 0) {
		int sockets = count_tcp_sockets();
		pid_t child = sockets > 0 ? fork() : -1;

		if (child == 0)
			_exit(count_tcp_sockets());
		if (child < 0)
			continue;
		failed += wait_for(child) != 0;
		if (forked++ == 0)
			close(open("forked", O_CREAT | O_WRONLY, 0600));
	}
	RANK_CHECK(failed == 0);
	return argument;
}

/* Rank 0 joins after rank 1 has forked, so rank 1 forks while its listener waits for rank 0. */
static struct ddp *join_late(void)
{
	struct ddp *ddp;
	pthread_t thread;
	bool forks = strcmp(getenv("RANK"), "1") == 0;

	if (forks)
		RANK_CHECK(pthread_create(&thread, NULL, fork_children, NULL) == 0);
	while (!forks && access("forked", F_OK) < 0)
		usleep(1000);
	ddp = ranks_join();
	atomic_store(&joined, true);
	if (forks)
		RANK_CHECK(pthread_join(thread, NULL) == 0);
	return ddp;
}

RANK_BODY_OF(body_fork_in_init, join_late)
{
	check_sums(ddp, rank);
}

TEST(test_child_of_another_thread_during_init_has_no_sockets)
{
	ranks_run("1,1,1", body_fork_in_init);
}

UNIT_MAIN("fork", NULL)
