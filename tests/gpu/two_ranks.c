/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks as two processes on one GPU. NCCL_HOSTID makes them two hosts to NCCL, which talks
 * over sockets then: slow, but the real protocol, the real failures.
 */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

enum { RANKS = 2, LARGE = 4 << 20 };

/* What the two processes share, instead of a rendezvous. */
struct shared {
	struct ddp_device_card cards[RANKS];
	uint8_t id[DDP_DEVICE_ID];
	int arrived[8]; /* by step */
};

static struct shared *shared;

/* Wait for the other rank at [step]. Returns false if it did not come in a minute. */
static bool meet(int step)
{
	struct ddp_watch watch = seconds(60);

	__atomic_add_fetch(&shared->arrived[step], 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->arrived[step], __ATOMIC_SEQ_CST) < RANKS) {
		if (ddp_watch_check(&watch, NULL) < 0)
			return false;
		usleep(1000);
	}
	return true;
}

static int connect_two(int rank, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(120);
	int status;

	setenv("NCCL_HOSTID", rank == 0 ? "ddp-test-0" : "ddp-test-1", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	setenv("NCCL_IB_DISABLE", "1", 0);
	status = open_engine(rank, RANKS, error);
	if (!status)
		status = engine->card(device, &shared->cards[rank], error);
	if (!status && rank == 0)
		status = engine->identity(device, shared->id, error);
	if (!meet(0) && !status)
		status = ddp_error_set(error, DDP_ERR_TIMEOUT, "the other process did not come");
	if (!status)
		status = engine->connect(device, shared->id, &watch, error);
	return status;
}

/* --- What works -------------------------------------------------------------------------- */

static void test_sizes(int rank)
{
	static const size_t counts[] = {1, 3, 1000, 65536, (1 << 20) + 3, LARGE};
	void *data = NULL;

	if (!ok(cudaMalloc(&data, LARGE * 8) == cudaSuccess, "device memory"))
		return;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		ok(all_reduce_is_exact(data, data, counts[i], DDP_F32, DDP_SUM, rank, RANKS),
		   "all-reduce of %zu f32, sum", counts[i]);
	for (enum ddp_type type = DDP_F32; type < DDP_TYPE_COUNT; type++) {
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			ok(all_reduce_is_exact(data, data, 10007, type, op, rank, RANKS),
			   "all-reduce of 10007 %s, %s", gpu_types[type].name, gpu_ops[op]);
	}
	cudaFree(data);
}

static void test_bytes(int rank)
{
	static char mine[5000], got[RANKS * 5000];
	struct ddp_error error = {0, ""};
	char *data = NULL;
	bool right = true;

	memset(mine, 'a' + rank, sizeof(mine));
	if (!ok(cudaMalloc((void **)&data, sizeof(got)) == cudaSuccess &&
			cudaMemcpy(data + (size_t)rank * sizeof(mine), mine, sizeof(mine),
				   cudaMemcpyHostToDevice) == cudaSuccess,
		"device memory for bytes"))
		return;
	OK_STATUS(engine->all_gather(device, data + (size_t)rank * sizeof(mine), data, sizeof(mine),
				     NULL, &error),
		  0, &error, "all-gather");
	OK_STATUS(wait_for(NULL, 60, &error), 0, &error, "waiting for it");
	cudaMemcpy(got, data, sizeof(got), cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < sizeof(got); i++)
		right = right && got[i] == (i < sizeof(mine) ? 'a' : 'b');
	ok(right, "the bytes of both ranks, in order");
	OK_STATUS(engine->broadcast(device, data, sizeof(mine), 1, NULL, &error), 0, &error,
		  "broadcast of what rank 1 has there");
	OK_STATUS(wait_for(NULL, 60, &error), 0, &error, "waiting for it");
	cudaMemcpy(got, data, sizeof(mine), cudaMemcpyDeviceToHost);
	ok(got[0] == 'a' && got[sizeof(mine) - 1] == 'a', "rank 1 had the bytes of rank 0");
	cudaFree(data);
}

static void test_memory(int rank)
{
	struct ddp_watch watch = seconds(60);
	struct ddp_error error = {0, ""};
	void *memory = NULL, *huge;

	OK_STATUS(engine->alloc(device, LARGE * 4, &memory, &watch, &error), 0, &error, "alloc");
	ok(memory && all_reduce_is_exact(memory, memory, LARGE, DDP_F32, DDP_SUM, rank, RANKS),
	   "all-reduce in registered memory");
	OK_STATUS(engine->free(device, memory, &error), 0, &error, "free");
	/* One rank alone asks for too much: both are told. */
	OK_STATUS(engine->alloc(device, rank == 1 ? (size_t)1 << 46 : 4096, &huge, &watch, &error),
		  DDP_ERR_MEMORY, &error, "no memory on one rank fails on both");
}

static void test_graph(int rank)
{
	cudaGraphExec_t runnable = NULL;
	struct ddp_error error = {0, ""};
	cudaGraph_t graph = NULL;
	cudaStream_t stream = NULL;
	int32_t *word = NULL, value = rank + 1;

	if (!ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
			cudaMalloc((void **)&word, sizeof(*word)) == cudaSuccess &&
			cudaMemcpy(word, &value, sizeof(value), cudaMemcpyHostToDevice) == 0 &&
			cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == 0,
		"capture begins"))
		return;
	OK_STATUS(engine->all_reduce(device, word, word, 1, DDP_I32, DDP_SUM, stream, &error), 0,
		  &error, "all-reduce in a capture");
	usleep(300000);
	ok(cudaStreamEndCapture(stream, &graph) == 0 &&
		   cudaGraphInstantiate(&runnable, graph, 0) == 0,
	   "captured");
	for (int i = 0; i < 4 && runnable; i++)
		cudaGraphLaunch(runnable, stream);
	OK_STATUS(wait_for(stream, 60, &error), 0, &error, "four replays end");
	cudaMemcpy(&value, word, sizeof(value), cudaMemcpyDeviceToHost);
	ok(value == 3 * 8, "1 + 2, then doubled three times");
	cudaGraphExecDestroy(runnable);
	cudaGraphDestroy(graph);
	cudaFree(word);
	cudaStreamDestroy(stream);
}

static void test_preflight(void)
{
	static const int32_t apart[RANKS] = {0, 1};
	struct ddp_device_card cards[RANKS];
	struct ddp_error error = {0, ""};

	memcpy(cards, shared->cards, sizeof(cards));
	OK_STATUS(ddp_device_preflight(cards, apart, RANKS, &error), 0, &error,
		  "the preflight takes two hosts");
	cards[1].boot = cards[0].boot;
	OK_STATUS(ddp_device_preflight(cards, apart, RANKS, &error), DDP_ERR_MISMATCH, &error,
		  "and refuses one without shared memory: %.60s...", error.text);
}

static int work(int rank)
{
	struct ddp_error error = {0, ""};

	OK_STATUS(connect_two(rank, &error), 0, &error, "rank %d: open and connect", rank);
	if (tap_failed)
		return tap_end();
	test_preflight();
	test_sizes(rank);
	test_bytes(rank);
	test_memory(rank);
	test_graph(rank);
	OK_STATUS(engine->health(device, &error), 0, &error, "healthy to the end");
	engine->close(device);
	return tap_end();
}

/* --- What breaks ------------------------------------------------------------------------- */

/* Rank 1 is killed with an all-reduce under way. */
static int lose_peer(int rank)
{
	struct ddp_error error = {0, ""};
	void *data = NULL;
	uint64_t before;
	int status = 0;
	bool back;

	OK_STATUS(connect_two(rank, &error), 0, &error, "rank %d: open and connect", rank);
	ok(cudaMalloc(&data, LARGE * 4) == cudaSuccess, "device memory");
	if (tap_failed)
		return tap_end();
	before = ddp_now();
	for (int i = 0; i < 1000 && !status; i++) {
		before = ddp_now();
		status = engine->all_reduce(device, data, data, LARGE, DDP_F32, DDP_SUM, NULL,
					    &error);
		if (rank == 1 && i == 5)
			kill(getpid(), SIGKILL);
		if (!status)
			status = wait_for(NULL, 5, &error);
	}
	ok(status == DDP_ERR_TIMEOUT || status == DDP_ERR_PEER || status == DDP_ERR_ENGINE,
	   "a killed rank is noticed: %s", error.text);
	ok(ddp_now() - before < UINT64_C(10000000000), "in %.3f s",
	   (double)(ddp_now() - before) * 1e-9);
	before = ddp_now();
	back = engine->abort(device, 10);
	ok(back, "abort comes back, after %.3f s", (double)(ddp_now() - before) * 1e-9);
	engine->close(device);
	return tap_end();
}

/* Rank 1 never enters: connect() of rank 0 ends by its deadline. */
static int never_comes(int rank)
{
	struct ddp_error error = {0, ""};
	struct ddp_watch watch = seconds(3);
	uint8_t id[DDP_DEVICE_ID];
	uint64_t before;

	if (rank == 1)
		return EXIT_SUCCESS;
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	OK_STATUS(open_engine(0, RANKS, &error), 0, &error, "open");
	OK_STATUS(engine->identity(device, id, &error), 0, &error, "identity");
	before = ddp_now();
	OK_STATUS(engine->connect(device, id, &watch, &error), DDP_ERR_TIMEOUT, &error,
		  "connect() ends: %s", error.text);
	ok(ddp_now() - before < UINT64_C(6000000000), "in %.3f s",
	   (double)(ddp_now() - before) * 1e-9);
	ok(!engine->abort(device, 1), "what NCCL does not let go is left behind");
	engine->close(device);
	return tap_end();
}

/* --- The two processes ------------------------------------------------------------------- */

/*
 * CUDA is not to be forked, so this process never touches it. Rank 0 prints its lines, rank 1's
 * are told by its status.
 */
static int run_both(int (*rank_main)(int rank), const char *what, bool second_dies)
{
	pid_t pids[RANKS];
	int status[RANKS] = {0}, bad;

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int rank = 0; rank < RANKS; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0) {
			if (rank == 1 && !freopen("two_ranks.rank1", "a", stdout))
				_exit(EXIT_FAILURE);
			/* Threads that hang are left behind: no destructors. */
			status[0] = rank_main(rank);
			fflush(stdout);
			_exit(status[0]);
		}
	}
	for (int rank = 0; rank < RANKS; rank++)
		waitpid(pids[rank], &status[rank], 0);
	bad = status[0] != 0;
	if (second_dies)
		bad += !(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
	else
		bad += status[1] != 0;
	printf("%s 1 - %s: rank 0 ended with %d, rank 1 with %d\n", bad ? "not ok" : "ok", what,
	       status[0], status[1]);
	return bad;
}

/* In a process of its own, as it starts CUDA. */
static bool may_run(void)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		bool have = have_device("two_ranks");

		fflush(stdout);
		_exit(have ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

int main(void)
{
	int bad;

	if (!may_run())
		return EXIT_SUCCESS;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return EXIT_FAILURE;
	bad = run_both(work, "what works", false);
	bad += run_both(lose_peer, "a rank is killed", true);
	bad += run_both(never_comes, "a rank never comes", false);
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
