/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/kernel.h"
#include "gpus.h"
#include "host-stream.h"

enum { PATH_SIZE = 512 };

const struct gpus_layout *gpus_layout;

static char directory[64];
static int (*rank_body)(int rank);

/* --- Modules ----------------------------------------------------------------------------- */

static const char *const modules[][2] = {{HOST, "ddp_gpu.so"}, {HOST, "ddp_nccl.so"}};

static void set_up(void)
{
	snprintf(directory, sizeof(directory), "/tmp/ddp-modules.XXXXXX");
	if (!mkdtemp(directory))
		abort();
	for (int i = 0; i < ROWS(modules); i++) {
		char from[PATH_SIZE], to[PATH_SIZE];

		snprintf(from, sizeof(from), "%s/%s", modules[i][0], modules[i][1]);
		snprintf(to, sizeof(to), "%s/%s", directory, modules[i][1]);
		if (symlink(from, to) < 0)
			abort();
	}
	setenv("DDP_MODULES", directory, 1);
}

static void tear_down(void)
{
	unit_remove(directory);
}

void gpus_use(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, set_up, tear_down);
}

/* --- Worlds ------------------------------------------------------------------------------ */

static int run(int rank)
{
	char gpu[2] = {gpus_layout->gpus[rank], '\0'};

	setenv("DDP_HOST_GPU", gpu, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	return rank_body(rank);
}

void gpus_start(struct ranks *ranks, const struct gpus_layout *layout, int (*body)(int rank))
{
	gpus_layout = layout;
	rank_body = body;
	ranks_start(ranks, layout->nodes, run);
	ck_assert_int_eq((int)strlen(layout->gpus), ranks->size);
}

void gpus_run(const struct gpus_layout *layout, int (*body)(int rank))
{
	gpus_layout = layout;
	rank_body = body;
	ranks_run(layout->nodes, run);
}

struct ddp *gpus_join(void)
{
	struct ddp *ddp = ranks_join();

	RANK_OK(ddp, ddp_device_join(ddp));
	return ddp;
}

bool gpus_shared(void)
{
	const char *gpus = gpus_layout->gpus;

	for (size_t i = 1; gpus[i]; i++)
		if (memchr(gpus, gpus[i], i))
			return true;
	return false;
}

/* --- Numbers ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/*
 * Returns a number between -8 and 8, of random magnitude. Sums of a few such numbers fit in 16-bit
 * floats.
 */
static float a_float(uint64_t bits)
{
	float small = (float)(int32_t)(bits & 0xffffff) / 0x1p24f;

	small *= (float)(1 << (bits >> 24 & 3)) / (float)(1 << (bits >> 28 & 7));
	return bits >> 63 ? -small : small;
}

void gpus_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt)
{
	size_t unit = ddp_type_size(type);

	for (size_t i = 0; i < count; i++) {
		uint64_t bits =
			mix(i * 1000003 + (uint64_t)rank * 7919 + (uint64_t)salt * 104729 + 1);
		float number = a_float(bits);
		double wide = (double)number * (1 + 0x1p-40);
		void *at = (char *)data + i * unit;

		if (type == DDP_F32)
			memcpy(at, &number, unit);
		else if (type == DDP_F64)
			memcpy(at, &wide, unit);
		else if (type == DDP_BF16 || type == DDP_F16)
			ddp_convert(at, type, &number, DDP_F32, 1, DDP_SIMD_PLAIN);
		else
			memcpy(at, &bits, unit);
	}
}

void gpus_expect(struct ddp *ddp, void *want, enum ddp_type type, enum ddp_op op, size_t count,
		 unsigned int salt)
{
	gpus_values(want, type, count, ddp_world(ddp)->rank, salt);
	RANK_OK(ddp, ddp_all_reduce(ddp, want, want, count, type, op));
}

void gpus_sum_some(struct ddp *ddp, float *data, unsigned int salt)
{
	static float want[GPUS_COUNT], got[GPUS_COUNT];

	for (unsigned int i = 0; i < GPUS_AHEAD; i++) {
		gpus_values(got, DDP_F32, GPUS_COUNT, ddp_world(ddp)->rank, salt + i);
		memcpy(data + i * GPUS_COUNT, got, sizeof(got));
	}
	for (unsigned int i = 0; i < GPUS_AHEAD; i++)
		RANK_OK(ddp,
			ddp_device_all_reduce(ddp, data + i * GPUS_COUNT, data + i * GPUS_COUNT,
					      GPUS_COUNT, DDP_F32, DDP_SUM, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	for (unsigned int i = 0; i < GPUS_AHEAD; i++) {
		gpus_expect(ddp, want, DDP_F32, DDP_SUM, GPUS_COUNT, salt + i);
		memcpy(got, data + i * GPUS_COUNT, sizeof(got));
		RANK_CHECK(memcmp(got, want, sizeof(got)) == 0);
	}
}

/* --- Device memory ------------------------------------------------------------------------ */

void *gpus_foreign(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	RANK_CHECK(memory);
	return memory;
}

void *gpus_stream(void)
{
	struct host_stream *stream = host_stream_open();

	RANK_CHECK(stream);
	return stream;
}

void gpus_stream_close(void *stream)
{
	RANK_CHECK(host_stream_close(stream));
}
