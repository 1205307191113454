/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - tests of ddp_nccl.so on one GPU
 *
 *     nccl 1    one rank
 *     nccl 2    two processes. Different NCCL_HOSTIDs make NCCL treat them as two hosts, so that
 *               they communicate through sockets. In the last tests one process is killed or is
 *               missing
 *
 * Data are small integers, so that sums are exact in all types and orders.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/type.h"
#include "device/device-engine.h"
#include "number-host.h"
#include "tap.h"

enum { RANKS = 2, LARGE = 4 << 20, BYTES = 5000 };

/* Memory that the two processes share, in place of a rendezvous. */
struct shared {
	struct ddp_gpu gpus[RANKS];
	uint8_t id[DDP_DEVICE_ID];
	int arrived;
};

static struct shared *shared;

static const struct ddp_device_engine *engine;
static struct ddp_device *device;

static struct ddp_watch seconds(double limit)
{
	return ddp_watch_start(limit, NULL, NULL);
}

/* Waits for the other rank. Returns false if it does not arrive within a minute. */
static bool meet(int size)
{
	struct ddp_watch watch = seconds(60);

	__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < size) {
		if (ddp_watch_check(&watch, NULL) < 0)
			return false;
		usleep(1000);
	}
	return true;
}

static int open_engine(int rank, int size, struct ddp_error *error)
{
	static struct ddp_log log;

	ddp_log_open(&log, NULL);
	ddp_log_name(&log, rank, "gpu");
	engine =
		ddp_module_open("nccl", "device", DDP_DEVICE_VERSION, sizeof(*engine), &log, error);
	return engine ? engine->open(&device, &shared->gpus[rank], rank, size, 0, &log, error)
		      : error->status;
}

static int join(int rank, int size, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(120);
	int status;

	if (size > 1)
		setenv("NCCL_HOSTID", rank == 0 ? "ddp-test-0" : "ddp-test-1", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	setenv("NCCL_IB_DISABLE", "1", 0);
	status = open_engine(rank, size, error);
	if (!status && rank == 0)
		status = engine->identity(device, shared->id, error);
	if (!meet(size) && !status)
		status = ddp_error_set(error, DDP_ERR_TIMEOUT, "the other process did not arrive");
	return status ? status : engine->connect(device, shared->id, &watch, error);
}

static int wait_for(void *stream, double limit, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(limit);

	return engine->wait(device, stream, NULL, 0, &watch, error);
}

/* --- Data ------------------------------------------------------------------------------- */

static void put(void *data, size_t i, enum ddp_type type, unsigned int value)
{
	switch (type) {
	case DDP_F32:
		((float *)data)[i] = (float)value;
		break;
	case DDP_F64:
		((double *)data)[i] = value;
		break;
	case DDP_I32:
		((int32_t *)data)[i] = (int32_t)value;
		break;
	case DDP_I64:
		((int64_t *)data)[i] = value;
		break;
	case DDP_U8:
		((uint8_t *)data)[i] = (uint8_t)value;
		break;
	default:
		((uint16_t *)data)[i] = type == DDP_BF16 ? number_to_bf16((float)value)
							 : number_to_f16((float)value);
	}
}

/* Returns element [i] of rank [rank]. Values are 0 to 9. */
static unsigned int sample(size_t i, int rank)
{
	return (unsigned int)((i * 7 + (size_t)rank * 3 + 1) % 10);
}

/* Returns element [i] of the expected result. */
static unsigned int expected(size_t i, int size, enum ddp_op op)
{
	unsigned int value = sample(i, 0), next = sample(i, 1);

	if (size == 1)
		return value;
	if (op == DDP_SUM)
		return value + next;
	return (op == DDP_MAX) == (next > value) ? next : value;
}

/* All-reduces [count] elements in device memory from [send] to [recv], and compares all bits. */
static bool all_reduce_is_exact(void *send, void *recv, size_t count, enum ddp_type type,
				enum ddp_op op, int rank, int size)
{
	size_t bytes = count * ddp_type_size(type);
	char *data = malloc(3 * bytes), *want = data + bytes, *got = want + bytes;
	struct ddp_error error = {0, ""};
	bool good;

	for (size_t i = 0; i < count; i++) {
		put(data, i, type, sample(i, rank));
		put(want, i, type, expected(i, size, op));
	}
	good = cudaMemcpy(send, data, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
	if (engine->all_reduce(device, send, recv, count, type, op, NULL, &error) < 0 ||
	    wait_for(NULL, 60, &error) < 0) {
		printf("# %s\n", error.text);
		good = false;
	}
	good = good && cudaMemcpy(got, recv, bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
	       memcmp(got, want, bytes) == 0;
	free(data);
	return good;
}

/* --- Collectives ------------------------------------------------------------------------ */

static void test_all_reduce(int rank, int size)
{
	static const size_t counts[] = {1, 3, 1000, 65536, (1 << 20) + 3, LARGE};
	char *data = NULL;

	if (!ok(cudaMalloc((void **)&data, LARGE * 8) == cudaSuccess, "device memory"))
		return;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		ok(all_reduce_is_exact(data, data, counts[i], DDP_F32, DDP_SUM, rank, size),
		   "all-reduce of %zu f32 in place", counts[i]);
	for (enum ddp_type type = DDP_F32; type < DDP_TYPE_COUNT; type++)
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			ok(all_reduce_is_exact(data, op == DDP_MAX ? data : data + LARGE * 4, 10007,
					       type, op, rank, size),
			   "all-reduce of 10007 %s, %s", ddp_type_name(type), ddp_op_name(op));
	cudaFree(data);
}

static void test_bytes(int rank, int size)
{
	static char mine[BYTES], got[RANKS * BYTES];
	size_t all = (size_t)size * BYTES;
	struct ddp_error error = {0, ""};
	char *data = NULL, *own;
	bool right = true;

	memset(mine, 'a' + rank, BYTES);
	if (!ok(cudaMalloc((void **)&data, all) == cudaSuccess, "device memory for bytes"))
		return;
	own = data + (size_t)rank * BYTES;
	cudaMemcpy(own, mine, BYTES, cudaMemcpyHostToDevice);
	OK_STATUS(engine->all_gather(device, own, data, BYTES, NULL, &error), 0, &error,
		  "all-gather");
	OK_STATUS(wait_for(NULL, 60, &error), 0, &error, "waiting for it");
	cudaMemcpy(got, data, all, cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < all; i++)
		right = right && got[i] == (char)('a' + (int)(i / BYTES));
	ok(right, "the bytes of all ranks, in order");
	/* the last rank sends its bytes, and the other ranks' bytes must be replaced */
	cudaMemcpy(data, mine, BYTES, cudaMemcpyHostToDevice);
	OK_STATUS(engine->broadcast(device, data, BYTES, size - 1, NULL, &error), 0, &error,
		  "broadcast");
	OK_STATUS(wait_for(NULL, 60, &error), 0, &error, "waiting for it");
	cudaMemcpy(got, data, BYTES, cudaMemcpyDeviceToHost);
	ok(got[0] == 'a' + size - 1 && got[BYTES - 1] == 'a' + size - 1, "the last rank's bytes");
	cudaFree(data);
}

static void test_memory(int rank, int size)
{
	struct ddp_error error = {0, ""};
	void *memory = NULL, *huge;
	size_t freed = 0;

	OK_STATUS(engine->alloc(device, LARGE * 4, &memory, &error), 0, &error, "alloc");
	ok(memory && all_reduce_is_exact(memory, memory, LARGE, DDP_F32, DDP_SUM, rank, size),
	   "all-reduce in memory of the engine");
	OK_STATUS(engine->free(device, memory, &freed, &error), 0, &error, "free");
	OK_STATUS(engine->free(device, memory, &freed, &error), DDP_ERR_ARGUMENT, &error,
		  "double free");
	OK_STATUS(engine->alloc(device, (size_t)1 << 46, &huge, &error), DDP_ERR_MEMORY, &error,
		  "too much");
	OK_STATUS(engine->alloc(device, 1, &memory, &error), 0, &error,
		  "and the engine works on; close() frees this");
}

/* The engine's watchdog runs during a capture in CUDA's strictest mode. */
static void test_graph(int rank, int size)
{
	cudaGraphExec_t runnable = NULL;
	struct ddp_error error = {0, ""};
	cudaGraph_t graph = NULL;
	cudaStream_t stream = NULL;
	int32_t *word = NULL, sum = 0;
	bool right = true;

	if (!ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
			cudaMalloc((void **)&word, 2 * sizeof(*word)) == cudaSuccess &&
			cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess,
		"capture begins"))
		return;
	OK_STATUS(engine->all_reduce(device, word, word + 1, 1, DDP_I32, DDP_SUM, stream, &error),
		  0, &error, "all-reduce in a capture");
	OK_STATUS(wait_for(stream, 1, &error), DDP_ERR_STATE, &error,
		  "wait() in a capture is refused");
	usleep(500000);
	ok(cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph &&
		   cudaGraphInstantiate(&runnable, graph, 0) == cudaSuccess,
	   "the capture ends with a graph");
	for (int i = 1; i <= 4 && runnable && right; i++) {
		int32_t value = i * (rank + 1);

		right = cudaMemcpy(word, &value, sizeof(value), cudaMemcpyHostToDevice) == 0 &&
			cudaGraphLaunch(runnable, stream) == cudaSuccess &&
			wait_for(stream, 60, &error) == 0 &&
			cudaMemcpy(&sum, word + 1, sizeof(sum), cudaMemcpyDeviceToHost) == 0 &&
			sum == i * size * (size + 1) / 2;
	}
	ok(right, "four launches sum the values of their time: %d %s", (int)sum, error.text);
	cudaGraphExecDestroy(runnable);
	cudaGraphDestroy(graph);
	cudaFree(word);
	cudaStreamDestroy(stream);
}

/*
 * For GPUs on two hosts libddp selects NCCL. For two ranks on one GPU of a host it selects staged
 * sums.
 */
static void test_cards(int size)
{
	struct ddp_gpu gpus[RANKS];
	struct ddp_error error = {0, ""};
	char why[128] = "";

	memcpy(gpus, shared->gpus, sizeof(gpus));
	ok(gpus[0].version >= 22403 && gpus[0].boot != 0 && strlen(gpus[0].uuid) == 40,
	   "version %d of NCCL, %s on %s", (int)gpus[0].version, gpus[0].uuid, gpus[0].host);
	if (size == 1)
		return;
	OK_STATUS(ddp_device_choose(gpus, RANKS, why, sizeof(why), &error), 0, &error,
		  "NCCL for two hosts");
	gpus[1].boot = gpus[0].boot;
	OK_STATUS(ddp_device_choose(gpus, RANKS, why, sizeof(why), &error), 1, &error,
		  "staged sums for one host: %s", why);
}

static int work(int rank, int size)
{
	struct ddp_error error = {0, ""};

	OK_STATUS(join(rank, size, &error), 0, &error, "rank %d: open and connect", rank);
	if (tap_failed)
		return tap_end();
	test_cards(size);
	test_all_reduce(rank, size);
	test_bytes(rank, size);
	test_memory(rank, size);
	test_graph(rank, size);
	OK_STATUS(engine->health(device, &error), 0, &error, "healthy to the end");
	engine->close(device);
	return tap_end();
}

/* --- Failures --------------------------------------------------------------------------- */

static void ok_within(uint64_t since, double limit_s, const char *what)
{
	double took = (double)(ddp_now() - since) * 1e-9;

	ok(took < limit_s, "%s after %.3f s", what, took);
}

static void CUDART_CB hold(void *microseconds)
{
	usleep(*(const unsigned int *)microseconds);
}

/* A wait for a stream that does not end returns at its timeout. */
static int deadline(int rank, int size)
{
	static unsigned int held = 1500000;
	struct ddp_error error = {0, ""};
	cudaStream_t stream = NULL;
	uint64_t before;

	OK_STATUS(join(rank, size, &error), 0, &error, "open and connect");
	ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
		   cudaLaunchHostFunc(stream, hold, &held) == cudaSuccess,
	   "a stream that is held up");
	if (tap_failed)
		return tap_end();
	before = ddp_now();
	OK_STATUS(wait_for(stream, 0.2, &error), DDP_ERR_TIMEOUT, &error, "wait() times out: %s",
		  error.text);
	ok_within(before, 1.2, "wait() ends");
	OK_STATUS(engine->health(device, &error), DDP_ERR_TIMEOUT, &error, "the engine is lost");
	ok(engine->abort(device, 10), "abort() ends");
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
	engine->close(device);
	return tap_end();
}

/* Rank 1 is killed during an all-reduce. */
static int lose_peer(int rank, int size)
{
	struct ddp_error error = {0, ""};
	void *data = NULL;
	uint64_t before;
	int status = 0;

	OK_STATUS(join(rank, size, &error), 0, &error, "rank %d: open and connect", rank);
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
	ok_within(before, 10, "the last all-reduce ends");
	ok(engine->abort(device, 10), "abort() ends");
	engine->close(device);
	return tap_end();
}

/* Rank 1 never calls connect(), so rank 0's connect() ends at its deadline. */
static int never_comes(int rank, int size)
{
	struct ddp_error error = {0, ""};
	struct ddp_watch watch = seconds(3);
	uint8_t id[DDP_DEVICE_ID];
	uint64_t before;

	if (rank == 1)
		return EXIT_SUCCESS;
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	OK_STATUS(open_engine(0, size, &error), 0, &error, "open");
	if (tap_failed)
		return tap_end();
	OK_STATUS(engine->identity(device, id, &error), 0, &error, "identity");
	before = ddp_now();
	OK_STATUS(engine->connect(device, id, &watch, &error), DDP_ERR_TIMEOUT, &error,
		  "connect() times out: %s", error.text);
	ok_within(before, 6, "connect() ends");
	ok(!engine->abort(device, 1), "abort() reports a thread that NCCL does not end");
	engine->close(device);
	return tap_end();
}

/* --- Processes --------------------------------------------------------------------------- */

/*
 * CUDA does not work after a fork, so this process never uses CUDA. Rank 1 writes its TAP lines to
 * the file nccl.rank1.
 */
static int run(int (*rank_main)(int rank, int size), int size, const char *what, bool second_dies)
{
	int status[RANKS] = {0}, bad;
	pid_t pids[RANKS];

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int rank = 0; rank < size; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0) {
			if (rank == 1 && !freopen("nccl.rank1", "a", stdout))
				_exit(EXIT_FAILURE);
			/* Hanging threads remain, so destructors must not run. */
			status[0] = rank_main(rank, size);
			fflush(stdout);
			_exit(status[0]);
		}
	}
	for (int rank = 0; rank < size; rank++)
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

int main(int argc, char **argv)
{
	int size = argc == 2 ? atoi(argv[1]) : 0, bad;

	if (size < 1 || size > RANKS) {
		fprintf(stderr, "usage: nccl 1|2\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return EXIT_FAILURE;
	bad = run(work, size, "what works", false);
	if (size == 1)
		return bad + run(deadline, 1, "what does not end", false) ? EXIT_FAILURE
									  : EXIT_SUCCESS;
	bad += run(lose_peer, 2, "a rank is killed", true);
	bad += run(never_comes, 2, "a rank never comes", false);
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
