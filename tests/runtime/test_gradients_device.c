/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gradients_device.c - sums of gradients in device memory have the same bits as in host memory
 *
 * Devices are emulated in host memory. Each rank has one, or several ranks share one. Streams delay
 * operations at random.
 */
#include "config.h"

#include <math.h>

#include "gpus.h"
#include "host-stream.h"

/*
 * The parameters in forward order. options_of() sets limits that make three buckets of them: [e d],
 * [c b], [a counts].
 */
static const struct ddp_parameter parameters[] = {{"counts", 5}, {"a", 3},  {"b", 40},
						  {"c", 9001},	 {"d", 17}, {"e", 1}};

enum { PARAMETERS = 6, BUCKETS = 3, STREAMS = 2 };

static const struct gpus_layout layouts[] = {{"1", "a"},    {"2", "ab"},    {"4", "abcd"},
					     {"2", "aa"},   {"4", "aaaa"},  {"4", "aabb"},
					     {"1,1", "aa"}, {"2,2", "abcb"}};

static const struct {
	const char *name;
	enum ddp_type wire;
	bool sum;
} kinds[] = {
	{"mean", DDP_F32, false},
	{"sum", DDP_F32, true},
	{"mean, bf16", DDP_BF16, false},
	{"sum, f16", DDP_F16, true},
};

/*
 * Orders in which gradients become ready. -1 ends a list. The empty list is for a captured backward
 * pass.
 */
static const int orders[][PARAMETERS] = {
	{5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {-1}, {3, 5, 0, 4, 1, 2}, {4, 2, -1}, {5, 4, 3, -1},
};

static struct ddp_gradients_options options_of(int kind, bool device)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;

	options.first_bytes = 60;
	options.bucket_bytes = 500;
	options.wire = kinds[kind].wire;
	options.sum = kinds[kind].sum;
	options.exact = 1;
	options.device = device;
	return options;
}

/* --- Work on streams ---------------------------------------------------------------------- */

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static bool run_copy(void *argument)
{
	const struct copy *copy = argument;

	memcpy(copy->to, copy->from, copy->bytes);
	return true;
}

static void copy_on(void *stream, void *to, const void *from, size_t bytes)
{
	struct copy copy = {to, from, bytes};

	host_stream_add(stream, run_copy, &copy, sizeof(copy));
}

struct device {
	struct ddp *ddp;
	struct ddp_gradients *gradients;
	void *memory, *streams[STREAMS];
	uint64_t progress, summed; /* number of summed buckets: from libddp; expected */
};

static void open_device(struct device *device, struct ddp *ddp,
			const struct ddp_gradients_options *options, bool own)
{
	device->ddp = ddp;
	device->progress = 7;
	device->summed = 0;
	RANK_OK(ddp,
		ddp_gradients_create(&device->gradients, ddp, options, parameters, PARAMETERS));
	RANK_CHECK(ddp_gradients_view(device->gradients, 0) == NULL);
	RANK_OK(ddp,
		ddp_device_alloc(ddp, ddp_gradients_bytes(device->gradients), &device->memory));
	for (int i = 0; i < STREAMS; i++)
		device->streams[i] = gpus_stream();
	RANK_OK(ddp, ddp_gradients_place(device->gradients, device->memory,
					 own ? NULL : device->streams[1], &device->progress));
}

static void close_device(struct device *device)
{
	ddp_gradients_destroy(device->gradients);
	RANK_OK(device->ddp, ddp_device_free(device->ddp, device->memory));
	for (int i = 0; i < STREAMS; i++)
		gpus_stream_close(device->streams[i]);
}

/* --- Against host memory ------------------------------------------------------------------ */

/* Fills [to] with values of various magnitudes. Parameter 0 has counts that 16 bits cannot hold. */
static void fill(float *to, size_t parameter, int rank, unsigned int step)
{
	size_t count = parameters[parameter].count;

	if (parameter > 0)
		gpus_values(to, DDP_F32, count, rank, step * PARAMETERS + (unsigned)parameter);
	for (size_t i = 0; parameter == 0 && i < count; i++)
		to[i] = (float)(100003 * (rank + 1) + (int)(step + i));
}

static void one_step(struct device *device, struct ddp_gradients *host, int step)
{
	const int *order = orders[step % ROWS(orders)];
	struct ddp *ddp = device->ddp;
	int rank = ddp_world(ddp)->rank;
	size_t all, bytes;
	float *values, *got, *want = ddp_gradients_all(host, &all);

	bytes = all * sizeof(float);
	values = calloc(all, sizeof(*values));
	got = malloc(bytes);
	RANK_CHECK(values && got);
	for (size_t p = 0; p < PARAMETERS; p++)
		fill(values + ddp_gradients_offset(host, p), p, rank, (unsigned int)step);
	memcpy(want, values, bytes);
	RANK_OK(ddp, ddp_gradients_finish(host));
	/*
	 * Operations on the two streams write gradients before the program declares them ready.
	 * Operations on the last stream write the remaining gradients.
	 */
	for (int i = 0; i < PARAMETERS && order[i] >= 0; i++) {
		size_t p = (size_t)order[i], at = ddp_gradients_offset(host, p);
		void *stream = device->streams[i % 3 == 2];

		copy_on(stream, ddp_gradients_view(device->gradients, p), values + at,
			parameters[p].count * sizeof(float));
		RANK_OK(ddp, ddp_gradients_ready_on(device->gradients, p, stream));
	}
	for (size_t p = 0; p < PARAMETERS; p++) {
		bool is_ready = false;

		for (int i = 0; i < PARAMETERS && order[i] >= 0; i++)
			is_ready = is_ready || order[i] == (int)p;
		if (!is_ready)
			copy_on(device->streams[0], ddp_gradients_view(device->gradients, p),
				values + ddp_gradients_offset(host, p),
				parameters[p].count * sizeof(float));
	}
	RANK_OK(ddp, ddp_gradients_finish_on(device->gradients, device->streams[0]));
	copy_on(device->streams[0], got, device->memory, bytes);
	RANK_OK(ddp, ddp_device_wait(ddp, device->streams[0]));
	RANK_CHECK(memcmp(got, want, bytes) == 0);
	device->summed += ddp_world(ddp)->size > 1 ? BUCKETS : 0;
	RANK_CHECK(__atomic_load_n(&device->progress, __ATOMIC_ACQUIRE) == device->summed);
	free(values);
	free(got);
}

static int kind;

GPUS_BODY(body_steps)
{
	struct ddp_gradients_options options = options_of(kind, true);
	struct ddp_gradients *host;
	struct device device;

	/* A single rank sends no data, so its values are not rounded. */
	if (ddp_world(ddp)->size == 1)
		options.wire = DDP_F32;
	for (int own = 0; own < 2; own++) {
		open_device(&device, ddp, &options, own);
		options.device = false;
		RANK_OK(ddp, ddp_gradients_create(&host, ddp, &options, parameters, PARAMETERS));
		options.device = true;
		RANK_CHECK(ddp_gradients_buckets(device.gradients) == BUCKETS);
		for (int step = 0; step < ROWS(orders) + 1; step++)
			one_step(&device, host, step);
		ddp_gradients_destroy(host);
		close_device(&device);
	}
}

/* Each layout with two of the kinds. */
TEST_LOOP(test_steps, 0, 2 * ROWS(layouts))
{
	kind = (_i + _i / ROWS(layouts) * 2) % ROWS(kinds);
	gpus_run(&layouts[_i % ROWS(layouts)], body_steps);
}

/* --- Calls between steps ---------------------------------------------------------------- */

/* Whether to clear the gradients' memory, and to place it again, after each step. */
static const struct {
	const char *name;
	bool clear, place;
	int layout;
} between[] = {
	{"cleared", true, false, 1},	 {"cleared, shared", true, false, 4},
	{"placed", false, true, 1},	 {"placed, shared", false, true, 4},
	{"both, shared", true, true, 3},
};

GPUS_BODY(body_between)
{
	struct ddp_gradients_options options = options_of(2, true);
	struct ddp_gradients *host;
	struct device device;

	open_device(&device, ddp, &options, false);
	options.device = false;
	RANK_OK(ddp, ddp_gradients_create(&host, ddp, &options, parameters, PARAMETERS));
	for (int step = 0; step < 4; step++) {
		one_step(&device, host, step);
		if (between[kind].clear)
			memset(device.memory, 0, ddp_gradients_bytes(device.gradients));
		if (!between[kind].place)
			continue;
		RANK_OK(ddp, ddp_gradients_place(device.gradients, device.memory, device.streams[1],
						 &device.progress));
		device.summed = 0;
	}
	ddp_gradients_destroy(host);
	close_device(&device);
}

TEST_ROWS(test_between_steps, between)
{
	kind = _i;
	gpus_run(&layouts[between[_i].layout], body_between);
}

/* --- Without sync ----------------------------------------------------------------------- */

GPUS_BODY(body_accumulate)
{
	struct ddp_gradients_options options = options_of(0, true);
	struct device device;
	float *first;

	open_device(&device, ddp, &options, true);
	first = ddp_gradients_view(device.gradients, 1);
	first[2] = (float)(rank + 1);
	ddp_gradients_set_sync(device.gradients, false);
	for (size_t p = PARAMETERS; p-- > 0;)
		RANK_OK(ddp, ddp_gradients_ready_on(device.gradients, p, device.streams[0]));
	RANK_OK(ddp, ddp_gradients_finish_on(device.gradients, device.streams[0]));
	RANK_OK(ddp, ddp_device_wait(ddp, device.streams[0]));
	RANK_CHECK(first[2] == (float)(rank + 1) && device.progress == 0);
	ddp_gradients_set_sync(device.gradients, true);
	RANK_OK(ddp, ddp_gradients_finish_on(device.gradients, device.streams[0]));
	RANK_OK(ddp, ddp_device_wait(ddp, device.streams[0]));
	RANK_CHECK(first[2] == 1.5f && device.progress == BUCKETS);
	close_device(&device);
}

/* Indices of layouts: two ranks with a GPU each, and two ranks that share a GPU. */
static const int accumulating[] = {1, 3};

TEST_ROWS(test_accumulate, accumulating)
{
	gpus_run(&layouts[accumulating[_i]], body_accumulate);
}

/* --- Errors ------------------------------------------------------------------------------- */

static void expect_error(struct ddp *ddp, int status, int want, const char *piece)
{
	if (status != want || !strstr(ddp_error(ddp), piece))
		fprintf(stderr, "status %d, not %d: %s\n", status, want, ddp_error(ddp));
	RANK_CHECK(status == want && strstr(ddp_error(ddp), piece));
}

RANK_BODY(body_errors)
{
	struct ddp_gradients_options options = options_of(0, true);
	struct ddp_gradients *gradients, *host;
	char memory[64];

	options.type = options.wire = DDP_F64;
	expect_error(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, PARAMETERS),
		     DDP_ERR_ARGUMENT, "DDP_F32");
	options = options_of(0, true);
	options.exact = PARAMETERS + 1;
	expect_error(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, PARAMETERS),
		     DDP_ERR_ARGUMENT, "exact is 7");
	options = options_of(0, true);
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, PARAMETERS));
	expect_error(ddp, ddp_gradients_ready_on(gradients, 0, NULL), DDP_ERR_STATE, "place");
	expect_error(ddp, ddp_gradients_place(gradients, memory, NULL, NULL), DDP_ERR_STATE,
		     "ddp_device_join");
	RANK_OK(ddp, ddp_device_join(ddp));
	expect_error(ddp, ddp_gradients_place(gradients, NULL, NULL, NULL), DDP_ERR_ARGUMENT,
		     "memory is NULL");
	RANK_OK(ddp, ddp_gradients_place(gradients, memory, NULL, NULL));
	expect_error(ddp, ddp_gradients_ready(gradients, 0), DDP_ERR_STATE, "ready_on");
	expect_error(ddp, ddp_gradients_finish(gradients), DDP_ERR_STATE, "finish_on");
	expect_error(ddp, ddp_gradients_ready_on(gradients, 9, NULL), DDP_ERR_ARGUMENT,
		     "not exist");
	RANK_OK(ddp, ddp_gradients_ready_on(gradients, 0, NULL));
	expect_error(ddp, ddp_gradients_ready_on(gradients, 0, NULL), DDP_ERR_STATE, "second time");
	RANK_CHECK(isnan(ddp_gradients_norm(gradients)) && isnan(ddp_gradients_clip(gradients, 1)));
	expect_error(ddp, ddp_status(ddp), DDP_ERR_UNSUPPORTED, "host memory");
	/*
	 * A program that was compiled with an older ddp.h passes shorter options. Members beyond
	 * [size] must be ignored.
	 */
	memset(&options.exact, 0xff,
	       sizeof(options) - offsetof(struct ddp_gradients_options, exact));
	options.size = offsetof(struct ddp_gradients_options, exact);
	RANK_OK(ddp, ddp_gradients_create(&host, ddp, &options, parameters, PARAMETERS));
	RANK_CHECK(ddp_gradients_bytes(host) == 0 && ddp_gradients_view(host, 0));
	expect_error(ddp, ddp_gradients_place(host, memory, NULL, NULL), DDP_ERR_ARGUMENT,
		     "not created for a device");
	expect_error(ddp, ddp_gradients_ready_on(host, 0, NULL), DDP_ERR_STATE, "host memory");
	ddp_gradients_destroy(host);
	ddp_gradients_destroy(gradients);
}

TEST(test_errors)
{
	gpus_run(&layouts[1], body_errors);
}

/* --- A rank that is lost ------------------------------------------------------------------ */

static int body_lost(int rank)
{
	struct ddp *ddp = gpus_join();
	struct ddp_gradients_options options = options_of(0, true);
	struct device device;
	int status = 0;

	open_device(&device, ddp, &options, true);
	for (int step = 0; status == 0; step++) {
		for (size_t p = PARAMETERS; status == 0 && p-- > 0;) {
			if (rank == 1 && step == 3 && p == 2)
				raise(SIGKILL);
			status = ddp_gradients_ready_on(device.gradients, p, device.streams[0]);
		}
		if (status == 0)
			status = ddp_gradients_finish_on(device.gradients, device.streams[0]);
		if (status == 0)
			status = ddp_device_wait(ddp, device.streams[0]);
	}
	RANK_CHECK(ddp_is_peer_error(status) ||
		   (status == DDP_ERR_ENGINE && getenv("DDP_HOST_VAGUE")));
	RANK_CHECK(ddp_gradients_finish_on(device.gradients, device.streams[0]) == status);
	/* The first call that frees memory ends the operations that wait for the lost rank. */
	(void)ddp_device_free(ddp, NULL);
	while (!host_stream_idle(device.streams[0]))
		host_sleep(100);
	ddp_exit(ddp);
	return 0;
}

static const struct {
	int layout;
	bool vague; /* NCCL's error does not mention a peer */
} losses[] = {{1, false}, {2, false}, {3, false}, {4, false}, {1, true}, {2, true}};

TEST_ROWS(test_lost, losses)
{
	static struct ranks ranks;

	setenv("DDP_TIMEOUT", "20", 1);
	if (losses[_i].vague)
		setenv("DDP_HOST_VAGUE", "1", 1);
	gpus_start(&ranks, &layouts[losses[_i].layout], body_lost);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != 1)
			ck_assert_msg(ranks.statuses[rank] > 64 && ranks.statuses[rank] < 128,
				      "%d: rank %d ended with %d: %s", _i, rank,
				      ranks.statuses[rank], ranks.text[rank]);
	ck_assert_int_eq(ranks.statuses[1], -SIGKILL);
}

UNIT_MAIN("gradients on devices", gpus_use)
