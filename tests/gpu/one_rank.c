/* SPDX-License-Identifier: Apache-2.0 */
/* One rank on one GPU: every call of the engine, for real. */
#include "config.h"

#include <unistd.h>

#include "gpu.h"

enum { COUNT = 100003 };

static int connect_alone(struct ddp_error *error)
{
	struct ddp_watch watch = seconds(120);
	uint8_t id[DDP_DEVICE_ID];
	int status;

	status = open_engine(0, 1, error);
	if (!status)
		status = engine->identity(device, id, error);
	if (!status)
		status = engine->connect(device, id, &watch, error);
	return status;
}

static void test_card(void)
{
	struct ddp_device_card card;
	char text[512];

	if (!ok(engine->card(device, &card, NULL) == 0, "card"))
		return;
	ok(card.version >= 21800 && card.boot != 0, "card: version %d, %s on %s", (int)card.version,
	   card.uuid, card.host);
	ok(strlen(card.uuid) == 40, "card: the UUID has 40 characters");
	engine->describe(device, text, sizeof(text));
	ok(strstr(text, card.uuid) != NULL, "describe: %s", text);
}

static void test_all_reduce(void)
{
	void *send = NULL, *recv = NULL;

	if (!ok(cudaMalloc(&send, COUNT * 8) == cudaSuccess &&
			cudaMalloc(&recv, COUNT * 8) == cudaSuccess,
		"device memory for all-reduce"))
		return;
	for (enum ddp_type type = DDP_F32; type < DDP_TYPE_COUNT; type++) {
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			ok(all_reduce_is_exact(send, recv, COUNT, type, op, 0, 1),
			   "all-reduce of one rank, %s, %s", gpu_types[type].name, gpu_ops[op]);
	}
	cudaFree(send);
	cudaFree(recv);
}

static void test_bytes(void)
{
	static char sent[COUNT], got[COUNT];
	struct ddp_error error = {0, ""};
	void *send = NULL, *recv = NULL;

	for (size_t i = 0; i < COUNT; i++)
		sent[i] = (char)(i * 13);
	if (!ok(cudaMalloc(&send, COUNT) == cudaSuccess &&
			cudaMalloc(&recv, COUNT) == cudaSuccess &&
			cudaMemcpy(send, sent, COUNT, cudaMemcpyHostToDevice) == cudaSuccess,
		"device memory for bytes"))
		return;
	OK_STATUS(engine->broadcast(device, send, COUNT, 0, NULL, &error), 0, &error, "broadcast");
	OK_STATUS(engine->all_gather(device, send, recv, COUNT, NULL, &error), 0, &error,
		  "all-gather");
	OK_STATUS(wait_for(NULL, 60, &error), 0, &error, "waiting for both");
	ok(cudaMemcpy(got, recv, COUNT, cudaMemcpyDeviceToHost) == cudaSuccess &&
		   memcmp(sent, got, COUNT) == 0,
	   "the bytes arrived");
	cudaFree(send);
	cudaFree(recv);
}

static void test_memory(void)
{
	struct ddp_watch watch = seconds(60);
	struct ddp_error error = {0, ""};
	void *memory = NULL, *huge;

	OK_STATUS(engine->alloc(device, COUNT * 4, &memory, &watch, &error), 0, &error, "alloc");
	ok(memory && all_reduce_is_exact(memory, memory, COUNT, DDP_F32, DDP_SUM, 0, 1),
	   "all-reduce in memory of the engine");
	OK_STATUS(engine->free(device, memory, &error), 0, &error, "free");
	OK_STATUS(engine->free(device, memory, &error), DDP_ERR_ARGUMENT, &error, "double free");
	OK_STATUS(engine->alloc(device, (size_t)1 << 46, &huge, &watch, &error), DDP_ERR_MEMORY,
		  &error, "more than there is is refused");
	OK_STATUS(engine->alloc(device, 1, &memory, &watch, &error), 0, &error,
		  "and the engine works on; close() frees this");
}

/* The watchdog looks while a capture of the strictest kind is under way. */
static void test_graph(void)
{
	cudaGraphExec_t runnable = NULL;
	struct ddp_error error = {0, ""};
	cudaGraph_t graph = NULL;
	cudaStream_t stream = NULL;
	int32_t *word = NULL, value = 0;
	int status = DDP_ERR_ENGINE;

	if (!ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
			cudaMalloc((void **)&word, 2 * sizeof(*word)) == cudaSuccess &&
			cudaMemset(word, 0, 2 * sizeof(*word)) == cudaSuccess &&
			cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess,
		"capture begins"))
		return;
	status = engine->all_reduce(device, word, word + 1, 1, DDP_I32, DDP_SUM, stream, &error);
	OK_STATUS(status, 0, &error, "all-reduce in a capture");
	OK_STATUS(wait_for(stream, 1, &error), DDP_ERR_STATE, &error,
		  "wait() in a capture is refused");
	usleep(500000);
	ok(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the watchdog broke no capture");
	ok(graph && cudaGraphInstantiate(&runnable, graph, 0) == cudaSuccess, "instantiated");
	value = 42;
	ok(runnable && cudaMemcpy(word, &value, sizeof(value), cudaMemcpyHostToDevice) == 0 &&
		   cudaGraphLaunch(runnable, stream) == cudaSuccess,
	   "replayed");
	OK_STATUS(wait_for(stream, 60, &error), 0, &error, "waiting for the replay");
	value = 0;
	ok(cudaMemcpy(&value, word + 1, sizeof(value), cudaMemcpyDeviceToHost) == 0 && value == 42,
	   "the replay reduced what was there then");
	cudaGraphExecDestroy(runnable);
	cudaGraphDestroy(graph);
	cudaFree(word);
	cudaStreamDestroy(stream);
}

static void CUDART_CB hold(void *microseconds)
{
	usleep(*(const unsigned int *)microseconds);
}

static void test_deadline(void)
{
	static unsigned int held = 1500000;
	struct ddp_error error = {0, ""};
	cudaStream_t stream = NULL;
	uint64_t before;

	ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
		   cudaLaunchHostFunc(stream, hold, &held) == cudaSuccess,
	   "a stream that is held up");
	before = ddp_now();
	OK_STATUS(wait_for(stream, 0.2, &error), DDP_ERR_TIMEOUT, &error, "wait() ends in time: %s",
		  error.text);
	ok(ddp_now() - before < 1200000000u, "after %.3f s", (double)(ddp_now() - before) * 1e-9);
	OK_STATUS(engine->health(device, &error), DDP_ERR_TIMEOUT, &error, "the engine is lost");
	ok(engine->abort(device, 10), "abort comes back");
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
}

int main(void)
{
	struct ddp_error error = {0, ""};

	if (!have_device("one_rank"))
		return EXIT_SUCCESS;
	OK_STATUS(connect_alone(&error), 0, &error, "open and connect");
	if (tap_failed)
		return tap_end();
	test_card();
	test_all_reduce();
	test_bytes();
	test_memory();
	test_graph();
	OK_STATUS(engine->health(device, &error), 0, &error, "healthy so far");
	engine->close(device);
	OK_STATUS(connect_alone(&error), 0, &error, "again after close()");
	test_deadline();
	engine->close(device);
	return tap_end();
}
