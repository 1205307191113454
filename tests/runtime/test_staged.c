/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_staged.c - collectives of ranks that share GPUs and are therefore staged (summed in host
 * memory): the results have the same bits as collectives in host memory
 *
 * Ranks are processes. Devices are emulated in host memory, with streams that delay operations at
 * random (nccl-host.c).
 */
#include "config.h"

#include "gpus.h"
#include "host-stream.h"

/*
 * Layouts with one shared GPU, with different numbers of ranks per GPU, with ranks assigned to GPUs
 * in turn, with several nodes, and with one rank per GPU.
 */
static const struct gpus_layout layouts[] = {
	{"1", "a"},	 {"2", "aa"},	   {"3", "aaa"},	{"8", "aaaaaaaa"}, {"5", "ababa"},
	{"6", "abbccc"}, {"2,3", "aabbb"}, {"3,1,2", "aabcdd"}, {"1,1", "aa"}};

enum { MEMORY = 1 << 19, MARGIN = 64 };

/* --- All-reduce -------------------------------------------------------------------------- */

/*
 * Memory of an all-reduce's input and output: libddp's or other device memory, aligned or
 * unaligned.
 */
enum place { DIRECT, DIRECT_ODD, FOREIGN, FOREIGN_ODD };

static const struct {
	enum place send, recv;
	bool same;
} memory_pairs[] = {
	{DIRECT, DIRECT, true},		  {DIRECT, DIRECT, false},	{FOREIGN, DIRECT, false},
	{DIRECT, FOREIGN, false},	  {FOREIGN, FOREIGN, true},	{FOREIGN, FOREIGN, false},
	{FOREIGN_ODD, FOREIGN_ODD, true}, {FOREIGN_ODD, DIRECT, false}, {DIRECT, DIRECT_ODD, false},
};

static const size_t counts[] = {0, 1, 7, 129, 1001, 33333};

struct memories {
	char *direct, *foreign; /* the input is in the first half, the output in the second */
	void *stream;
};

static char *find(const struct memories *memories, enum place place, bool receive)
{
	char *base = place == DIRECT || place == DIRECT_ODD ? memories->direct : memories->foreign;

	base += receive ? MEMORY + MARGIN : MARGIN;
	return place == DIRECT_ODD || place == FOREIGN_ODD ? base + 1 : base;
}

/* Reduces [count] elements. Checks the result and the bytes around it. */
static void reduce_and_check(struct ddp *ddp, const struct memories *memories, int pair,
			     size_t count, enum ddp_type type, enum ddp_op op, unsigned int salt)
{
	char *recv = find(memories, memory_pairs[pair].recv, true);
	char *send =
		memory_pairs[pair].same ? recv : find(memories, memory_pairs[pair].send, false);
	size_t bytes = count * ddp_type_size(type);
	void *stream = salt % 2 ? memories->stream : NULL;
	char *buffer = malloc(bytes + 2 * MARGIN), *want = malloc(bytes + 2 * MARGIN);

	RANK_CHECK(buffer && want);
	memset(want, 0x5a, bytes + 2 * MARGIN);
	memcpy(recv - MARGIN, want, bytes + 2 * MARGIN);
	gpus_values(buffer, type, count, ddp_world(ddp)->rank, salt);
	memcpy(send, buffer, bytes);
	RANK_OK(ddp, ddp_device_all_reduce(ddp, send, recv, count, type, op, stream));
	gpus_expect(ddp, want + MARGIN, type, op, count, salt);
	RANK_OK(ddp, ddp_device_wait(ddp, stream));
	memcpy(buffer, recv - MARGIN, bytes + 2 * MARGIN);
	RANK_CHECK(memcmp(buffer, want, bytes + 2 * MARGIN) == 0);
	free(buffer);
	free(want);
}

static void get_memories(struct ddp *ddp, struct memories *memories)
{
	void *direct;

	RANK_OK(ddp, ddp_device_alloc(ddp, 2 * (MEMORY + MARGIN), &direct));
	memories->direct = direct;
	memories->foreign = gpus_foreign(2 * (MEMORY + MARGIN));
	memories->stream = gpus_stream();
}

static void free_memories(struct ddp *ddp, struct memories *memories)
{
	RANK_OK(ddp, ddp_device_free(ddp, memories->direct));
	free(memories->foreign);
	gpus_stream_close(memories->stream);
}

/*
 * Pairs of type and operation that this layout tests: a fourth of all pairs; with DDP_LONG, all
 * pairs.
 */
static int first_kind, kind_step = 1;

GPUS_BODY(body_all_reduce)
{
	struct memories memories;
	unsigned int salt = 0;

	RANK_CHECK(ddp_device_captures(ddp) == !gpus_shared());
	RANK_CHECK(strncmp(ddp_device_path(ddp), gpus_shared() ? "staged" : "NCCL 2.28.9", 6) == 0);
	get_memories(ddp, &memories);
	for (int kind = first_kind; kind < (int)DDP_TYPE_COUNT * DDP_OP_COUNT; kind += kind_step)
		for (int i = 0; i < ROWS(counts); i++, salt++) {
			enum ddp_type type = (enum ddp_type)(kind / DDP_OP_COUNT);
			size_t most = MEMORY / 2 / ddp_type_size(type);

			reduce_and_check(ddp, &memories, (int)(salt * 5 % ROWS(memory_pairs)),
					 counts[i] < most ? counts[i] : most, type,
					 (enum ddp_op)(kind % DDP_OP_COUNT), salt);
		}
	for (int pair = 0; pair < ROWS(memory_pairs); pair++)
		reduce_and_check(ddp, &memories, pair, 1001, DDP_F32, DDP_SUM, salt++);
	free_memories(ddp, &memories);
}

TEST_ROWS(test_all_reduce, layouts)
{
	kind_step = getenv("DDP_LONG") ? 1 : 4;
	first_kind = _i % kind_step;
	gpus_run(&layouts[_i], body_all_reduce);
}

static const struct gpus_layout few_layouts[] = {{"3", "aaa"}, {"5", "aabbb"}, {"2,1", "aab"}};

/* The data do not fit in the pinned memory, and their size is not a multiple of its size. */
GPUS_TEST(test_large, few_layouts)
{
	enum { COUNT = (9 << 20) / 4 + 5 };
	float *data = gpus_foreign(COUNT * sizeof(float));
	float *want = malloc(COUNT * sizeof(float));

	RANK_CHECK(want);
	gpus_values(data, DDP_F32, COUNT, rank, 3);
	RANK_OK(ddp, ddp_device_all_reduce(ddp, data, data, COUNT, DDP_F32, DDP_SUM, NULL));
	gpus_expect(ddp, want, DDP_F32, DDP_SUM, COUNT, 3);
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	RANK_CHECK(memcmp(data, want, COUNT * sizeof(float)) == 0);
	RANK_CHECK(ddp_device_all_reduce(ddp, data, data, SIZE_MAX / 2, DDP_F32, DDP_SUM, NULL) ==
		   DDP_ERR_ARGUMENT);
	RANK_CHECK(ddp_device_all_gather(ddp, data, data, SIZE_MAX / 2 + 1, NULL) ==
		   DDP_ERR_ARGUMENT);
	RANK_CHECK(ddp_device_broadcast(ddp, data, 1, ddp_world(ddp)->size, NULL) ==
		   DDP_ERR_ARGUMENT);
	RANK_CHECK(ddp_device_free(ddp, data) == DDP_ERR_ARGUMENT);
	free(data);
	free(want);
}

/*
 * With NCCL_MULTI_RANK_GPU_ENABLE=1, libddp uses NCCL on shared devices. Then it disables NVLS,
 * which would fail.
 */
GPUS_BODY(body_nccl_on_shared_device)
{
	const char *nvls = getenv("NCCL_NVLS_ENABLE");

	(void)rank;
	RANK_CHECK(ddp_device_captures(ddp));
	RANK_CHECK(strncmp(ddp_device_path(ddp), "NCCL 2.30.3, ", 13) == 0);
	RANK_CHECK(strstr(ddp_device_path(ddp), "2 ranks share "));
	RANK_CHECK(nvls && strcmp(nvls, "0") == 0);
}

TEST(test_nccl_on_shared_device)
{
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	gpus_run(&few_layouts[2], body_nccl_on_shared_device);
	unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

/* --- Broadcast and all-gather -------------------------------------------------------------- */

enum { LARGE = 4 << 20 };
static const size_t sizes[] = {0, 1, 7, 8, 9, 1003, LARGE + 13};

static void broadcast_and_check(struct ddp *ddp, char *data, size_t bytes, int root,
				unsigned int salt)
{
	char *buffer = malloc(bytes + 1), *want = malloc(bytes + 1);

	RANK_CHECK(buffer && want);
	gpus_values(want, DDP_U8, bytes, root, salt);
	gpus_values(buffer, DDP_U8, bytes, ddp_world(ddp)->rank, salt);
	buffer[bytes] = want[bytes] = 7;
	memcpy(data, buffer, bytes + 1);
	RANK_OK(ddp, ddp_device_broadcast(ddp, data, bytes, root, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	memcpy(buffer, data, bytes + 1);
	RANK_CHECK(memcmp(buffer, want, bytes + 1) == 0);
	free(buffer);
	free(want);
}

static void gather_and_check(struct ddp *ddp, char *data, size_t bytes, bool in_place,
			     unsigned int salt)
{
	size_t size = (size_t)ddp_world(ddp)->size, rank = (size_t)ddp_world(ddp)->rank;
	char *buffer = malloc(size * bytes + 1), *want = malloc(size * bytes + 1);
	char *send = in_place ? data + rank * bytes : gpus_foreign(bytes);

	RANK_CHECK(buffer && want);
	memset(buffer, 0x33, size * bytes + 1);
	memcpy(want, buffer, size * bytes + 1);
	memcpy(data, buffer, size * bytes + 1);
	for (size_t i = 0; i < size; i++)
		gpus_values(want + i * bytes, DDP_U8, bytes, (int)i, salt);
	memcpy(send, want + rank * bytes, bytes);
	RANK_OK(ddp, ddp_device_all_gather(ddp, send, data, bytes, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	memcpy(buffer, data, size * bytes + 1);
	RANK_CHECK(memcmp(buffer, want, size * bytes + 1) == 0);
	if (!in_place)
		free(send);
	free(buffer);
	free(want);
}

static const struct gpus_layout bytes_layouts[] = {{"3", "aaa"}, {"3,1", "abac"}};

GPUS_TEST(test_bytes, bytes_layouts)
{
	size_t size = (size_t)ddp_world(ddp)->size;
	size_t most = sizes[ROWS(sizes) - 1] * size + 16;
	char *memories[2] = {NULL, gpus_foreign(most)};
	unsigned int salt = 0;
	void *direct;

	RANK_OK(ddp, ddp_device_alloc(ddp, most, &direct));
	memories[0] = direct;
	for (int i = 0; i < ROWS(sizes); i++)
		for (int kind = 0; kind < 2; kind++) {
			/*
			 * More data than fit in the pinned memory are slow, so each collective is
			 * tested with them only once: with the last root, or with all parts
			 * together.
			 */
			bool large = sizes[i] > LARGE;
			size_t part = large ? sizes[i] / size + 1 : sizes[i];

			for (int root = large ? (int)size - 1 : 0; root < (int)size; root++, salt++)
				broadcast_and_check(ddp, memories[kind] + salt % 9, sizes[i], root,
						    salt);
			gather_and_check(ddp, memories[kind], part, salt % 2, salt);
			gather_and_check(ddp, memories[kind], part, salt % 2 == 0, salt + 1);
		}
	RANK_OK(ddp, ddp_device_free(ddp, direct));
	free(memories[1]);
}

/* --- Many enqueued all-reduces ------------------------------------------------------------ */

static const struct gpus_layout ahead[] = {{"4", "aaaa"}, {"4", "aabb"}, {"2,1", "aab"}};

GPUS_TEST(test_many_enqueued, ahead)
{
	enum { ROUNDS = 100, COUNT = 5 };
	static float want[COUNT], got[COUNT];
	void *memory;
	float *data;

	RANK_OK(ddp, ddp_device_alloc(ddp, ROUNDS * COUNT * sizeof(float), &memory));
	data = memory;
	for (int round = 0; round < ROUNDS; round++) {
		gpus_values(got, DDP_F32, COUNT, rank, (unsigned int)round);
		memcpy(data + round * COUNT, got, sizeof(got));
	}
	for (int round = 0; round < ROUNDS; round++)
		RANK_OK(ddp, ddp_device_all_reduce(ddp, data + round * COUNT, data + round * COUNT,
						   COUNT, DDP_F32, DDP_SUM, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	for (int round = 0; round < ROUNDS; round++) {
		gpus_expect(ddp, want, DDP_F32, DDP_SUM, COUNT, (unsigned int)round);
		memcpy(got, data + round * COUNT, sizeof(got));
		RANK_CHECK(memcmp(got, want, sizeof(got)) == 0);
	}
	RANK_OK(ddp, ddp_device_free(ddp, memory));
}

/* The output of each all-reduce is the input of the next one, sometimes on another stream. */
GPUS_TEST(test_streams, few_layouts)
{
	void *streams[] = {NULL, gpus_stream(), gpus_stream()};
	uint8_t *data[2] = {NULL, gpus_foreign(1)}, value, want = 0;
	uint8_t size = (uint8_t)ddp_world(ddp)->size;
	void *memory;

	RANK_OK(ddp, ddp_device_alloc(ddp, 1, &memory));
	data[0] = memory;
	value = (uint8_t)(rank + 1);
	memcpy(data[0], &value, 1);
	for (uint8_t i = 0; i < size; i++)
		want = (uint8_t)(want + i + 1);
	for (int round = 0; round < 60; round++) {
		RANK_OK(ddp, ddp_device_all_reduce(ddp, data[round % 2], data[(round + 1) % 2], 1,
						   DDP_U8, DDP_SUM, streams[round / 3 % 3]));
		want = round > 0 ? (uint8_t)(want * size) : want;
	}
	RANK_OK(ddp, ddp_device_wait(ddp, streams[59 / 3 % 3]));
	memcpy(&value, data[0], 1);
	RANK_CHECK(value == want);
	gpus_stream_close(streams[1]);
	gpus_stream_close(streams[2]);
	RANK_OK(ddp, ddp_device_free(ddp, memory));
	free(data[1]);
}

/* --- Captures ------------------------------------------------------------------------------ */

GPUS_TEST(test_capture, few_layouts)
{
	void *stream = gpus_stream();
	float *data = gpus_foreign(sizeof(*data));

	*data = 1;
	host_stream_capture(stream, true);
	RANK_CHECK(ddp_device_all_reduce(ddp, data, data, 1, DDP_F32, DDP_SUM, stream) ==
		   DDP_ERR_STATE);
	RANK_CHECK(strstr(ddp_error(ddp), "captured") && strstr(ddp_error(ddp), "CUDA graph"));
	RANK_CHECK(ddp_device_broadcast(ddp, data, 4, 0, stream) == DDP_ERR_STATE);
	RANK_CHECK(ddp_device_all_gather(ddp, data, data, 0, stream) == DDP_ERR_STATE);
	RANK_CHECK(ddp_device_wait(ddp, stream) == DDP_ERR_STATE);
	host_stream_capture(stream, false);
	RANK_OK(ddp, ddp_device_all_reduce(ddp, data, data, 1, DDP_F32, DDP_SUM, stream));
	RANK_OK(ddp, ddp_device_wait(ddp, stream));
	RANK_CHECK(*data == (float)ddp_world(ddp)->size);
	gpus_stream_close(stream);
	free(data);
}

/* --- Leaks ----------------------------------------------------------------------------------- */

static void alloc_and_free(struct ddp *ddp)
{
	void *memory[8];

	for (int i = 0; i < 8; i++) {
		RANK_OK(ddp, ddp_device_alloc(ddp, (size_t)1 << (2 * i), &memory[i]));
		RANK_OK(ddp,
			ddp_device_all_reduce(ddp, memory[i], memory[i], 1, DDP_U8, DDP_MAX, NULL));
	}
	for (int i = 0; i < 7; i++)
		RANK_OK(ddp, ddp_device_free(ddp, memory[(i * 3) % 7]));
	RANK_OK(ddp, ddp_device_free(ddp, memory[7]));
	RANK_OK(ddp, ddp_device_free(ddp, NULL));
}

static int body_memory_left_allocated(int rank)
{
	struct ddp *ddp = gpus_join();
	void *left;

	(void)rank;
	for (int i = 0; i < 5; i++)
		alloc_and_free(ddp);
	RANK_OK(ddp, ddp_device_alloc(ddp, 100, &left));
	RANK_OK(ddp, ddp_device_all_reduce(ddp, left, left, 25, DDP_F32, DDP_SUM, NULL));
	ddp_destroy(ddp); /* while memory is still allocated */
	return 0;
}

TEST_ROWS(test_memory_left_allocated, few_layouts)
{
	gpus_run(&few_layouts[_i], body_memory_left_allocated);
}

/* --- Memory limit ------------------------------------------------------------------------------ */

static int body_memory_limit(int rank)
{
	struct ddp *ddp;
	void *memory, *more;

	setenv("DDP_SHARE", rank == 1 ? "0.25" : "0.5", 1);
	ddp = gpus_join();
	for (int i = 0; i < 3; i++) {
		RANK_OK(ddp, ddp_device_alloc(ddp, 200 << 20, &memory));
		RANK_CHECK(ddp_device_alloc(ddp, 60 << 20, &more) == DDP_ERR_MEMORY && !more);
		RANK_CHECK(strstr(ddp_error(ddp), "rank 1") && strstr(ddp_error(ddp), "60 MiB") &&
			   strstr(ddp_error(ddp), "256 MiB") && strstr(ddp_error(ddp), "200 MiB"));
		RANK_OK(ddp, ddp_device_free(ddp, memory));
	}
	ddp_destroy(ddp);
	return 0;
}

static const struct gpus_layout both_paths[] = {{"2", "aa"}, {"2", "ab"}};

TEST_ROWS(test_memory_limit, both_paths)
{
	gpus_run(&both_paths[_i], body_memory_limit);
}

UNIT_MAIN("staged", gpus_use)
