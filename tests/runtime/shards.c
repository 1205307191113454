/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "host-stream.h"
#include "local/kernel.h"
#include "shards.h"

enum { PATH_SIZE = 512 };

const struct shards_layout *shards_layout;

static char directory[64];
static int (*deed)(int rank);

/* --- Modules ----------------------------------------------------------------------------- */

static const char *const modules[][2] = {
	{HOST, "ddp_shard.so"}, {HOST, "ddp_nccl.so"}, {MODULES, "ddp_ucx.so"}};

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

void shards_use(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, set_up, tear_down);
}

/* --- Worlds ------------------------------------------------------------------------------ */

static int run(int rank)
{
	char gpu[2] = {shards_layout->gpus[rank], '\0'};

	setenv("DDP_HOST_GPU", gpu, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	return deed(rank);
}

void shards_start(struct ranks *ranks, const struct shards_layout *layout, int (*body)(int rank))
{
	shards_layout = layout;
	deed = body;
	ranks_start(ranks, layout->nodes, run);
	ck_assert_int_eq((int)strlen(layout->gpus), ranks->size);
}

void shards_run(const struct shards_layout *layout, int (*body)(int rank))
{
	shards_layout = layout;
	deed = body;
	ranks_run(layout->nodes, run);
}

struct ddp *shards_join(void)
{
	struct ddp *ddp = ranks_join();

	RANK_OK(ddp, ddp_device_join(ddp));
	return ddp;
}

bool shards_shared(void)
{
	const char *gpus = shards_layout->gpus;

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

/* Between -8 and 8, so that 16 bits hold the sums of some, and of many sizes. */
static float a_float(uint64_t bits)
{
	float small = (float)(int32_t)(bits & 0xffffff) / 0x1p24f;

	small *= (float)(1 << (bits >> 24 & 3)) / (float)(1 << (bits >> 28 & 7));
	return bits >> 63 ? -small : small;
}

void shards_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt)
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

/* The sum of the ranks on [gpu]. */
static void add_gpu(void *sum, char gpu, enum ddp_type type, enum ddp_op op, size_t count,
		    unsigned int salt, enum ddp_simd simd)
{
	size_t bytes = count * ddp_type_size(type);
	const void *from[RANKS_MOST];
	void *all[RANKS_MOST];
	int sources = 0;

	for (int rank = 0; shards_layout->gpus[rank]; rank++) {
		if (shards_layout->gpus[rank] != gpu)
			continue;
		all[sources] = malloc(bytes + 1);
		RANK_CHECK(all[sources]);
		shards_values(all[sources], type, count, rank, salt);
		from[sources] = all[sources];
		sources++;
	}
	ddp_kernel_get(type, op, simd)(&sum, 1, from, sources, count, 1);
	for (int i = 0; i < sources; i++)
		free(all[i]);
}

void shards_expect(void *want, enum ddp_type type, enum ddp_op op, size_t count, unsigned int salt)
{
	const char *gpus = shards_layout->gpus;
	size_t bytes = count * ddp_type_size(type);
	const void *from[RANKS_MOST];
	void *sums[RANKS_MOST];
	enum ddp_simd simd;
	int shards = 0;

	RANK_CHECK(ddp_simd_choose(&simd, NULL) == 0);
	for (size_t rank = 0; gpus[rank]; rank++) {
		if (memchr(gpus, gpus[rank], rank))
			continue;
		sums[shards] = malloc(bytes + 1);
		RANK_CHECK(sums[shards]);
		add_gpu(sums[shards], gpus[rank], type, op, count, salt, simd);
		from[shards] = sums[shards];
		shards++;
	}
	ddp_kernel_get(type, op, simd)(&want, 1, from, shards, count, 1);
	for (int i = 0; i < shards; i++)
		free(sums[i]);
}

void shards_sum_some(struct ddp *ddp, float *data, unsigned int salt)
{
	static float want[SHARDS_COUNT], got[SHARDS_COUNT];

	for (unsigned int i = 0; i < SHARDS_AHEAD; i++) {
		shards_values(got, DDP_F32, SHARDS_COUNT, ddp_world(ddp)->rank, salt + i);
		shards_in(data + i * SHARDS_COUNT, got, sizeof(got));
	}
	for (unsigned int i = 0; i < SHARDS_AHEAD; i++)
		RANK_OK(ddp,
			ddp_device_all_reduce(ddp, data + i * SHARDS_COUNT, data + i * SHARDS_COUNT,
					      SHARDS_COUNT, DDP_F32, DDP_SUM, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	for (unsigned int i = 0; i < SHARDS_AHEAD; i++) {
		shards_expect(want, DDP_F32, DDP_SUM, SHARDS_COUNT, salt + i);
		shards_out(got, data + i * SHARDS_COUNT, sizeof(got));
		/* A leader that was freed meanwhile sums what it had enqueued: who reads then looks again. */
		if (memcmp(got, want, sizeof(got)) != 0)
			RANK_OK(ddp, ddp_device_wait(ddp, NULL));
		RANK_CHECK(memcmp(got, want, sizeof(got)) == 0);
	}
}

/* --- The device ---------------------------------------------------------------------------- */

void shards_in(void *device, const void *host, size_t bytes)
{
	memcpy(device, host, bytes);
}

void shards_out(void *host, const void *device, size_t bytes)
{
	memcpy(host, device, bytes);
}

void *shards_foreign(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	RANK_CHECK(memory);
	return memory;
}

void shards_foreign_free(void *memory)
{
	free(memory);
}

void *shards_stream(void)
{
	struct host_stream *stream = host_stream_open();

	RANK_CHECK(stream);
	return stream;
}

void shards_stream_close(void *stream)
{
	RANK_CHECK(host_stream_close(stream));
}

void shards_stream_capture(void *stream, bool captured)
{
	host_stream_capture(stream, captured);
}

int shards_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	RANK_CHECK(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "ddp-device") != NULL;
	fclose(file);
	return count;
}
