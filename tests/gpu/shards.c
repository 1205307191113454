/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share one GPU, with the whole of libddp: 2, 4 and 8 processes whose sums are those of the CPU to
 * the bit, in their shares of memory; and what is left when one of them is killed.
 *
 *	shards [RANKS]		so many alone, and none is killed
 *
 * DDP_LONG: 50 are killed and not 6. DDP_SEED: other numbers, and other moments.
 */
#include "config.h"

#include "base/card-memory.h"
#include "base/watch.h"
#include "local/kernel.h"
#include "shards.h"

enum {
	LARGE = 3 << 20,       /* elements of f32: more than what is staged at once */
	ROOM = LARGE * 4 + 64, /* bytes */
	AHEAD = 100,	       /* sums that are enqueued before one is waited for */
	SLACK = 64 << 20,      /* bytes of the GPU that may come and go by themselves */
};

static const char *const types[] = {
#define TYPE(name, bytes, text) [DDP_##name] = text,
	DDP_TYPE_MAP(TYPE)
#undef TYPE
};
static const char *const ops[] = {[DDP_SUM] = "sum", [DDP_MAX] = "max", [DDP_MIN] = "min"};

static uint64_t seed = 1;

/* --- Numbers ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* What [rank] has in this call: floats of many sizes, so that the order of a sum shows; any integers. */
static void fill(void *data, enum ddp_type type, size_t count, int rank, uint64_t call)
{
	size_t unit = ddp_type_size(type);
	char *to = data;

	for (size_t i = 0; i < count; i++) {
		uint64_t bits = mix(i * 1000003 + (uint64_t)rank * 7919 + call * 104729 + seed);
		float number = (float)((double)(int32_t)(uint32_t)bits * 0x1p-31) *
			       (float)(1 << (bits >> 60));
		double wide = (double)number;

		if (type == DDP_BF16 || type == DDP_F16)
			ddp_convert(to + i * unit, type, &number, DDP_F32, 1, DDP_SIMD_PLAIN);
		else
			memcpy(to + i * unit,
			       type == DDP_F32	 ? (const void *)&number
			       : type == DDP_F64 ? (const void *)&wide
						 : (const void *)&bits,
			       unit);
	}
}

/* What all ranks' numbers come to, by the CPU, in the order of ranks. */
static void *expect(enum ddp_type type, enum ddp_op op, size_t count, int size, uint64_t call)
{
	size_t bytes = count * ddp_type_size(type);
	void *all[RANKS_MOST] = {NULL};
	const void *from[RANKS_MOST];

	for (int rank = 0; rank < size; rank++) {
		all[rank] = malloc(bytes + 1);
		fill(all[rank], type, count, rank, call);
		from[rank] = all[rank];
	}
	ddp_kernel_get(type, op, DDP_SIMD_PLAIN)(all, 1, from, size, count, 1);
	for (int rank = 1; rank < size; rank++)
		free(all[rank]);
	return all[0];
}

static uint64_t digest(uint64_t before, const void *data, size_t bytes)
{
	const unsigned char *from = data;

	for (size_t i = 0; i < bytes; i++)
		before = (before ^ from[i]) * 0x100000001b3u;
	return before;
}

/* --- All-reduce --------------------------------------------------------------------------- */

struct place {
	struct ddp *ddp;
	int rank, size;
	void *send, *recv; /* of the device */
	uint64_t calls, digest;
};

/* Whether one all-reduce has the CPU's bits. */
static bool is_exact(struct place *place, size_t count, enum ddp_type type, enum ddp_op op)
{
	size_t bytes = count * ddp_type_size(type);
	void *mine = malloc(bytes + 1), *got = malloc(bytes + 1), *want;
	bool good;

	want = expect(type, op, count, place->size, ++place->calls);
	fill(mine, type, count, place->rank, place->calls);
	good = device_in(place->send, mine, bytes) &&
	       WORKS(place->ddp, ddp_device_all_reduce(place->ddp, place->send, place->recv, count,
						       type, op, NULL)) &&
	       WORKS(place->ddp, ddp_device_wait(place->ddp, NULL)) &&
	       device_out(got, place->recv, bytes) && memcmp(got, want, bytes) == 0;
	place->digest = digest(place->digest, got, bytes);
	free(mine);
	free(got);
	free(want);
	return good;
}

static void test_sums(struct place *place, const char *where)
{
	static const size_t counts[] = {1, 3, 1000, 65536 + 3, LARGE};
	bool good = true;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		good = is_exact(place, counts[i], DDP_F32, DDP_SUM) && good;
	ok(good, "%s: 1 to %d f32", where, LARGE);
	for (enum ddp_type type = DDP_F32; type < DDP_TYPE_COUNT; type++) {
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			ok(is_exact(place, 10007, type, op), "%s: %s of 10007 %s", where, ops[op],
			   types[type]);
	}
}

/* One behind the other, each of what the one before left. */
static void test_ahead(struct place *place)
{
	int32_t value = 1, want = 1;
	bool good = device_in(place->send, &value, sizeof(value));

	for (int i = 0; i < AHEAD && good; i++) {
		want = (int32_t)((uint32_t)want * (uint32_t)place->size);
		good = WORKS(place->ddp, ddp_device_all_reduce(place->ddp, place->send, place->send,
							       1, DDP_I32, DDP_SUM, NULL));
	}
	good = good && WORKS(place->ddp, ddp_device_wait(place->ddp, NULL)) &&
	       device_out(&value, place->send, sizeof(value));
	ok(good && value == want, "%d sums, each of what the one before left", AHEAD);
}

/* --- Bytes -------------------------------------------------------------------------------- */

static void test_broadcast(struct place *place)
{
	enum { BYTES = 5001 };
	char *mine = malloc(BYTES), *got = malloc(BYTES);
	bool good = true;

	for (int root = 0; root < place->size && good; root++) {
		memset(mine, 'a' + place->rank, BYTES);
		good = device_in(place->send, mine, BYTES) &&
		       WORKS(place->ddp,
			     ddp_device_broadcast(place->ddp, place->send, BYTES, root, NULL)) &&
		       WORKS(place->ddp, ddp_device_wait(place->ddp, NULL)) &&
		       device_out(got, place->send, BYTES);
		for (size_t i = 0; i < BYTES; i++)
			good = good && got[i] == 'a' + root;
	}
	ok(good, "broadcast of %d bytes from each rank", BYTES);
	free(mine);
	free(got);
}

static void test_all_gather(struct place *place)
{
	enum { BYTES = 4099 };
	size_t all = (size_t)place->size * BYTES;
	char *mine = malloc(BYTES), *got = malloc(all);
	bool good;

	memset(mine, 'a' + place->rank, BYTES);
	good = device_in(place->send, mine, BYTES) &&
	       WORKS(place->ddp,
		     ddp_device_all_gather(place->ddp, place->send, place->recv, BYTES, NULL)) &&
	       WORKS(place->ddp, ddp_device_wait(place->ddp, NULL)) &&
	       device_out(got, place->recv, all);
	for (size_t i = 0; i < all; i++)
		good = good && got[i] == 'a' + (int)(i / BYTES);
	ok(good, "all-gather of %d bytes", BYTES);
	free(mine);
	free(got);
}

/* --- Memory ------------------------------------------------------------------------------- */

/* More than the share is refused on all, and the world goes on. */
static void test_share(struct place *place)
{
#ifndef SHARDS_ON_HOST
	size_t share = common->total / (size_t)place->size;
	void *memory;
	int status = ddp_device_alloc(place->ddp, share + SLACK, &memory);

	ok(status == DDP_ERR_MEMORY && !memory, "more than a share: %s", ddp_error(place->ddp));
	ok(is_exact(place, 1000, DDP_F32, DDP_SUM), "the world goes on");
#else
	(void)place;
#endif
}

/* What the driver counts for this process, where it tells. */
static void test_held(struct place *place)
{
#ifndef SHARDS_ON_HOST
	struct cudaDeviceProp properties;
	char uuid[48] = "GPU-";
	size_t at = 4, held, share = common->total / (size_t)place->size;

	if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
		return;
	for (int i = 0; i < 16; i++)
		at += (size_t)snprintf(uuid + at, sizeof(uuid) - at, "%s%02x",
				       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				       (unsigned char)properties.uuid.bytes[i]);
	held = ddp_card_held(uuid);
	if (held == 0)
		ok(true, "memory of this process # skip the driver does not tell it here");
	else
		ok(held <= share, "this rank holds %zu MiB of its %zu", held >> 20, share >> 20);
#else
	(void)place;
#endif
}

static void test_captured(struct place *place)
{
#ifndef SHARDS_ON_HOST
	cudaStream_t stream = NULL;
	cudaGraph_t graph = NULL;
	int status;

	if (!ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
			cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == 0,
		"a capture"))
		return;
	status = ddp_device_all_reduce(place->ddp, place->send, place->send, 1, DDP_I32, DDP_SUM,
				       stream);
	ok(status < 0, "refuses a sum: %s", ddp_error(place->ddp));
	if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph)
		cudaGraphDestroy(graph);
	cudaStreamDestroy(stream);
	ok(is_exact(place, 1000, DDP_F32, DDP_SUM), "and the world goes on");
#else
	(void)place;
#endif
}

/* --- What works --------------------------------------------------------------------------- */

static void test_all(struct place *place)
{
	char *arena = NULL, *other = NULL, *plain = device_plain(ROOM);

	ok(!ddp_device_captures(place->ddp), "sums are not part of graphs");
	if (!WORKS(place->ddp, ddp_device_alloc(place->ddp, ROOM, (void **)&arena)) ||
	    !WORKS(place->ddp, ddp_device_alloc(place->ddp, ROOM, (void **)&other)) ||
	    !ok(plain != NULL, "memory of libddp's and of our own"))
		return;
	place->send = place->recv = arena;
	test_sums(place, "in an arena");
	place->send = place->recv = arena + 8;
	test_sums(place, "in the midst of one");
	place->recv = other;
	test_sums(place, "from one to another");
	place->send = place->recv = plain;
	test_sums(place, "in memory of our own");
	place->send = arena;
	place->recv = other;
	test_ahead(place);
	test_broadcast(place);
	test_all_gather(place);
	test_captured(place);
	test_share(place);
	test_held(place);
	WORKS(place->ddp, ddp_device_free(place->ddp, other));
	WORKS(place->ddp, ddp_device_free(place->ddp, arena));
	device_plain_free(plain);
}

static int work(int rank, int size)
{
	struct place place = {.ddp = join(rank), .rank = rank, .size = size};

	if (!ok(place.ddp != NULL, "rank %d of %d has joined", rank, size))
		return tap_end();
	test_all(&place);
	if (rank == 0)
		common->digest = place.digest;
	ddp_destroy(place.ddp);
	return tap_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Two worlds compute the same bits; results were compared with the CPU's besides. */
static void test_world(int size)
{
	uint64_t first;

	ranks_run(size, work, "sums, bytes and memory are right");
	first = common->digest;
	if (size > 2)
		return;
	ranks_run(size, work, "once more");
	ok(common->digest == first, "two runs have the same bits");
}

/* --- What breaks --------------------------------------------------------------------------- */

/* Sums without end, until one fails. */
static int lose(int rank, int size)
{
	struct ddp *ddp;
	void *arena;
	int status;

	(void)size;
	put_number("DDP_TIMEOUT", 60);
	ddp = join(rank);
	if (!ddp)
		return RANK_LEFT;
	status = ddp_device_alloc(ddp, ROOM, &arena);
	for (int i = 0; status == 0; i++) {
		if (i == 1)
			__atomic_add_fetch(&common->under_way, 1, __ATOMIC_SEQ_CST);
		for (int k = 0; k < 8 && status == 0; k++)
			status = ddp_device_all_reduce(ddp, arena, arena, LARGE, DDP_F32, DDP_MAX,
						       NULL);
		if (status == 0)
			status = ddp_device_wait(ddp, NULL);
	}
	printf("# rank %d left: %s\n", rank, ddp_error(ddp));
	status = ddp_status(ddp);
	ddp_destroy(ddp);
	return ddp_is_peer_error(status) ? RANK_LEFT : EXIT_FAILURE;
}

static void pause_for(uint64_t microseconds)
{
	struct ddp_watch watch = ddp_watch_start(3600, NULL, NULL);

	ddp_watch_sleep(&watch, microseconds * 1000);
}

/* All have begun, or one of them has ended already. */
static void await_all(const struct ranks *ranks)
{
	siginfo_t info = {.si_pid = 0};

	while (__atomic_load_n(&common->under_way, __ATOMIC_SEQ_CST) < ranks->size &&
	       waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
		pause_for(1000);
}

/* Rank [victim] is killed: in the midst of sums, or of whatever comes before. */
static void test_killed(int size, int victim, bool early, uint64_t microseconds)
{
	struct ranks ranks;
	uint64_t begin;
	int wrong;

	if (!ranks_start(&ranks, size, lose))
		return;
	if (!early)
		await_all(&ranks);
	pause_for(microseconds);
	begin = ddp_now();
	if (ranks.pids[victim] > 0)
		kill(ranks.pids[victim], SIGKILL);
	wrong = ranks_wait(&ranks, RANK_LEFT, victim);
	ok(wrong == 0, "%s of %d killed %.3f s after %s: the others leave, in %.3f s",
	   victim ? "a follower" : "the leader", size, (double)microseconds * 1e-6,
	   early ? "it was started" : "all had begun", (double)(ddp_now() - begin) * 1e-9);
}

static int short_work(int rank, int size)
{
	struct place place = {.ddp = join(rank), .rank = rank, .size = size};
	bool good = false;

	if (!place.ddp)
		return EXIT_FAILURE;
	if (WORKS(place.ddp, ddp_device_alloc(place.ddp, ROOM, &place.send))) {
		place.recv = place.send;
		good = is_exact(&place, 65536 + 3, DDP_F32, DDP_SUM);
	}
	ddp_destroy(place.ddp);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* What dead processes had comes back by and by. */
static void test_free(size_t before)
{
	for (int i = 0; i < 100; i++) {
		if (!alone(look_at_memory) || common->free + SLACK >= before)
			break;
		pause_for(100000);
	}
	ok(common->free + SLACK >= before, "of the GPU %zu MiB are free, %zu were before",
	   common->free >> 20, before >> 20);
}

static void test_kills(void)
{
	int count = getenv("DDP_LONG") ? 50 : 6;

	for (int i = 0; i < count; i++) {
		uint64_t random = mix(seed * 77 + (uint64_t)i);
		int size = 2 + (int)(random % 3);
		int victim = i % 2 ? 1 + (int)((random >> 8) % (uint64_t)(size - 1)) : 0;
		bool early = i % 5 == 4;

		test_killed(size, victim, early, (random >> 20) % (early ? 1500000 : 200000));
	}
	ranks_run(2, short_work, "the GPU is good for others afterwards");
}

int main(int argc, char **argv)
{
	const char *text = getenv("DDP_SEED");
	size_t before;

	if (text)
		seed = strtoull(text, NULL, 0);
	printf("# DDP_SEED=%llu\n", (unsigned long long)seed);
	if (!shards_begin("ranks that share a GPU"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	before = common->free;
	for (int size = 2; size <= 8; size *= 2)
		if (argc < 2 || atoi(argv[1]) == size)
			test_world(size);
	if (argc < 2)
		test_kills();
	test_free(before);
	return tap_end();
}
