/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - every call of the engine between devices, for real, on one GPU
 *
 *	nccl 1		one rank
 *	nccl 2		two, as two processes that NCCL_HOSTID makes two hosts to NCCL, which talks over sockets then:
 *			slow, but the real protocol; then one of them is killed, or never comes
 *
 * Data are small integers, so that sums are exact in every type and order.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cards.h"
#include "tap.h"

enum { RANKS = 2, LARGE = 4 << 20, BYTES = 5000 };

/* What the two processes share, instead of a rendezvous. */
struct shared {
	struct ddp_device_card cards[RANKS];
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

/* Wait for the other rank. Returns false if it did not come in a minute. */
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
	return engine ? engine->open(&device, rank, size, 0, &log, error) : error->status;
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
	if (!status)
		status = engine->card(device, &shared->cards[rank], error);
	if (!status && rank == 0)
		status = engine->identity(device, shared->id, error);
	if (!meet(size) && !status)
		status = ddp_error_set(error, DDP_ERR_TIMEOUT, "the other process did not come");
	return status ? status : engine->connect(device, shared->id, &watch, error);
}

static int wait_for(void *stream, double limit, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(limit);

	return engine->wait(device, stream, &watch, error);
}

/* --- Data -------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t bytes;
} types[DDP_TYPE_COUNT] = {
#define TYPE(name, bytes, text) {text, bytes},
	DDP_TYPE_MAP(TYPE)
#undef TYPE
};

static const char *const ops[DDP_OP_COUNT] = {
	[DDP_SUM] = "sum", [DDP_MAX] = "max", [DDP_MIN] = "min"};

/* 0 to 18: exact in both. */
static uint16_t float_bits16(unsigned int value, bool bf16)
{
	float f = (float)value;
	uint32_t bits, exponent;

	memcpy(&bits, &f, sizeof(bits));
	if (bf16)
		return (uint16_t)(bits >> 16);
	if (value == 0)
		return 0;
	exponent = (bits >> 23) - 127 + 15;
	return (uint16_t)(exponent << 10 | (bits >> 13 & 0x3ff));
}

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
		((uint16_t *)data)[i] = float_bits16(value, type == DDP_BF16);
	}
}

/* What rank [rank] sends as element [i]: 0 to 9, another series for each rank. */
static unsigned int sample(size_t i, int rank)
{
	return (unsigned int)((i * 7 + (size_t)rank * 3 + 1) % 10);
}

/* What all ranks together make of element [i]. */
static unsigned int expected(size_t i, int size, enum ddp_op op)
{
	unsigned int value = sample(i, 0), next = sample(i, 1);

	if (size == 1)
		return value;
	if (op == DDP_SUM)
		return value + next;
	return (op == DDP_MAX) == (next > value) ? next : value;
}

/* All-reduce [count] elements from [send] to [recv], device memory, and compare every bit. */
static bool all_reduce_is_exact(void *send, void *recv, size_t count, enum ddp_type type,
				enum ddp_op op, int rank, int size)
{
	size_t bytes = count * types[type].bytes;
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

/* --- What works -------------------------------------------------------------------------- */

static void test_all_reduce(int rank, int size)
{
	static const size_t counts[] = {1, 3, 1000, 65536, (1 << 20) + 3, LARGE};
	char *data = NULL;

	if (!ok(cudaMalloc((void **)&data, LARGE * 8) == cudaSuccess, "device memory"))
		return;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		ok(all_reduce_is_exact(data, data, counts[i], DDP_F32, DDP_SUM, rank, size),
		   "all-reduce of %zu f32, sum", counts[i]);
	for (enum ddp_type type = DDP_F32; type < DDP_TYPE_COUNT; type++) {
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			ok(all_reduce_is_exact(data, op == DDP_MAX ? data : data + LARGE * 4, 10007,
					       type, op, rank, size),
			   "all-reduce of 10007 %s, %s", types[type].name, ops[op]);
	}
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
	/* The last rank has its own there, the others what is not to stay. */
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
	struct ddp_watch watch = seconds(60);
	struct ddp_error error = {0, ""}, refused = {0, ""};
	void *memory = NULL, *huge;

	OK_STATUS(engine->alloc(device, LARGE * 4, &memory, &watch, &error), 0, &error, "alloc");
	OK_STATUS(engine->enroll(device, memory, true, &refused, &watch, &error), 0, &error,
		  "enroll");
	ok(refused.status == 0, "all of it: %s", refused.text);
	ok(memory && all_reduce_is_exact(memory, memory, LARGE, DDP_F32, DDP_SUM, rank, size),
	   "all-reduce in registered memory");
	OK_STATUS(engine->free(device, memory, &error), 0, &error, "free");
	OK_STATUS(engine->free(device, memory, &error), DDP_ERR_ARGUMENT, &error, "double free");
	OK_STATUS(engine->alloc(device, (size_t)1 << 46, &huge, &watch, &error), DDP_ERR_MEMORY,
		  &error, "too much");
	OK_STATUS(engine->alloc(device, 1, &memory, &watch, &error), 0, &error,
		  "and the engine works on; close() frees this");
}

/* The watchdog looks while a capture of the strictest kind is under way. */
static void test_graph(int rank, int size)
{
	cudaGraphExec_t runnable = NULL;
	struct ddp_error error = {0, ""};
	cudaGraph_t graph = NULL;
	cudaStream_t stream = NULL;
	int32_t *word = NULL, sum = 0;

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
	ok(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the watchdog broke no capture");
	ok(graph && cudaGraphInstantiate(&runnable, graph, 0) == cudaSuccess, "instantiated");
	for (int i = 1; i <= 4 && runnable; i++) {
		int32_t value = i * (rank + 1);

		ok(cudaMemcpy(word, &value, sizeof(value), cudaMemcpyHostToDevice) == 0 &&
			   cudaGraphLaunch(runnable, stream) == cudaSuccess,
		   "replayed");
		OK_STATUS(wait_for(stream, 60, &error), 0, &error, "waiting for the replay");
		ok(cudaMemcpy(&sum, word + 1, sizeof(sum), cudaMemcpyDeviceToHost) == 0 &&
			   sum == i * size * (size + 1) / 2,
		   "the replay reduced what was there then");
	}
	cudaGraphExecDestroy(runnable);
	cudaGraphDestroy(graph);
	cudaFree(word);
	cudaStreamDestroy(stream);
}

static void test_card(void)
{
	const struct ddp_device_card *card = &shared->cards[0];

	ok(card->version >= 21800 && card->boot != 0, "card: version %d, %s on %s",
	   (int)card->version, card->uuid, card->host);
	ok(strlen(card->uuid) == 40, "card: the UUID has 40 characters");
}

static void test_preflight(void)
{
	static const struct ddp_place apart[RANKS] = {{0, 0}, {1, 0}};
	struct ddp_device_card cards[RANKS];
	struct ddp_error error = {0, ""};
	struct ddp_topology *sharing;

	memcpy(cards, shared->cards, sizeof(cards));
	OK_STATUS(ddp_sharing_create(&sharing, cards, apart, RANKS, &error), 0, &error,
		  "the preflight takes two hosts");
	ddp_topology_destroy(sharing);
	cards[1].boot = cards[0].boot;
	OK_STATUS(ddp_sharing_create(&sharing, cards, apart, RANKS, &error), DDP_ERR_MISMATCH,
		  &error, "and refuses one without shared memory: %.60s...", error.text);
}

static int work(int rank, int size)
{
	struct ddp_error error = {0, ""};

	OK_STATUS(join(rank, size, &error), 0, &error, "rank %d: open and connect", rank);
	if (tap_failed)
		return tap_end();
	if (rank == 0)
		test_card();
	if (size > 1)
		test_preflight();
	test_all_reduce(rank, size);
	test_bytes(rank, size);
	test_memory(rank, size);
	test_graph(rank, size);
	OK_STATUS(engine->health(device, &error), 0, &error, "healthy to the end");
	engine->close(device);
	return tap_end();
}

/* --- What breaks ------------------------------------------------------------------------- */

static void CUDART_CB hold(void *microseconds)
{
	usleep(*(const unsigned int *)microseconds);
}

/* A stream that does not end in time. */
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
	OK_STATUS(wait_for(stream, 0.2, &error), DDP_ERR_TIMEOUT, &error, "wait() ends in time: %s",
		  error.text);
	ok(ddp_now() - before < 1200000000u, "after %.3f s", (double)(ddp_now() - before) * 1e-9);
	OK_STATUS(engine->health(device, &error), DDP_ERR_TIMEOUT, &error, "the engine is lost");
	ok(engine->abort(device, 10), "abort comes back");
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
	engine->close(device);
	return tap_end();
}

/* Rank 1 is killed with an all-reduce under way. */
static int lose_peer(int rank, int size)
{
	struct ddp_error error = {0, ""};
	void *data = NULL;
	uint64_t before;
	int status = 0;
	bool back;

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
	ok(ddp_now() - before < UINT64_C(10000000000), "in %.3f s",
	   (double)(ddp_now() - before) * 1e-9);
	before = ddp_now();
	back = engine->abort(device, 10);
	ok(back, "abort comes back, after %.3f s", (double)(ddp_now() - before) * 1e-9);
	engine->close(device);
	return tap_end();
}

/* Rank 1 never enters: connect() of rank 0 ends by its deadline. */
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

/* --- Processes --------------------------------------------------------------------------- */

/*
 * CUDA is not to be forked, so this process never touches it. Rank 0 prints its lines, rank 1's
 * go to a file, and are told by its status.
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
			/* Threads that hang are left behind: no destructors. */
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
