/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight-gpu.c - test all GPUs with matrix products
 *
 * The GPUs are tested at the same time, each by one thread, because a job uses them that way. The
 * driver, which card.c loads, compiles the kernel below, so nodes need no CUDA libraries.
 *
 * In the kernel, each warp multiplies a 16 x 16 by a 16 x 8 matrix of bf16 on tensor cores, and
 * adds up the products in registers. The elements are small integers, so all sums are exact in f32,
 * and the expected value of every element is known.
 */
#include "config.h"

#include "info.h"
#include "node-tests.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpu-memory.h"
#include "base/watch.h"

#define COPY_BYTES ((size_t)64 << 20)
#define PRODUCT_TIME 2.0 /* seconds */

enum {
	COPIES = 8,
	ROWS = 16,
	COLUMNS = 8,
	DEPTH = 16,
	LANES = 32,
	LANE_WORDS = 6,	 /* number of words of the two matrices that a lane holds */
	SUMS = 4,	 /* number of independent sums of a warp; each has 4 elements per lane */
	THREADS = 256,	 /* threads per block */
	BLOCKS_EACH = 2, /* blocks per multiprocessor */
	PRODUCTS = 100000,
	AMPERE = 8, /* major compute capability of the first GPUs that support bf16 */
	/* Values of CUdevice_attribute. */
	ATTRIBUTE_PROCESSORS = 16,
	ATTRIBUTE_MAJOR = 75
};

#define MMA(a, b, c, d)                                                        \
	"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "                 \
	"{%f" #a ",%f" #b ",%f" #c ",%f" #d "},{%r6,%r7,%r8,%r9},{%r10,%r11}," \
	"{%f" #a ",%f" #b ",%f" #c ",%f" #d "};\n"

static const char kernel[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .entry product(.param .u64 in,.param .u64 out,.param .u32 count){\n"
	".reg .pred %p;\n.reg .b32 %r<12>;\n.reg .f32 %f<16>;\n.reg .b64 %d<4>;\n"
	"ld.param.u64 %d0,[in];\nld.param.u64 %d1,[out];\nld.param.u32 %r0,[count];\n"
	"cvta.to.global.u64 %d0,%d0;\ncvta.to.global.u64 %d1,%d1;\n"
	"mov.u32 %r1,%tid.x;\nmov.u32 %r2,%ctaid.x;\nmov.u32 %r3,%ntid.x;\n"
	"mad.lo.u32 %r4,%r2,%r3,%r1;\nand.b32 %r5,%r1,31;\n"
	"mul.wide.u32 %d2,%r5,24;\nadd.u64 %d0,%d0,%d2;\n"
	"ld.global.u32 %r6,[%d0];\nld.global.u32 %r7,[%d0+4];\nld.global.u32 %r8,[%d0+8];\n"
	"ld.global.u32 %r9,[%d0+12];\nld.global.u32 %r10,[%d0+16];\nld.global.u32 %r11,[%d0+20];\n"
	"mov.f32 %f0,0f00000000;\nmov.f32 %f1,%f0;\nmov.f32 %f2,%f0;\nmov.f32 %f3,%f0;\n"
	"mov.f32 %f4,%f0;\nmov.f32 %f5,%f0;\nmov.f32 %f6,%f0;\nmov.f32 %f7,%f0;\n"
	"mov.f32 %f8,%f0;\nmov.f32 %f9,%f0;\nmov.f32 %f10,%f0;\nmov.f32 %f11,%f0;\n"
	"mov.f32 %f12,%f0;\nmov.f32 %f13,%f0;\nmov.f32 %f14,%f0;\nmov.f32 %f15,%f0;\n"
	"next:\n" MMA(0, 1, 2, 3) MMA(4, 5, 6, 7) MMA(8, 9, 10, 11) MMA(
		12, 13, 14,
		15) "sub.u32 %r0,%r0,1;\nsetp.ne.u32 %p,%r0,0;\n@%p bra next;\n"
		    "mul.wide.u32 %d3,%r4,64;\nadd.u64 %d1,%d1,%d3;\n"
		    "st.global.v4.f32 [%d1],{%f0,%f1,%f2,%f3};\nst.global.v4.f32 [%d1+16],{%f4,%f5,%f6,%f7};\n"
		    "st.global.v4.f32 [%d1+32],{%f8,%f9,%f10,%f11};\n"
		    "st.global.v4.f32 [%d1+48],{%f12,%f13,%f14,%f15};\nret;\n}\n";

static struct info_driver driver;

/* --- The product --------------------------------------------------------------------------- */

static int left_at(int row, int k)
{
	return (row + k) % 4 - 1;
}

static int right_at(int k, int column)
{
	return (3 * k + column) % 5 - 2;
}

/* Returns two numbers as bf16, which is the upper half of a float. */
static uint32_t pack(int low, int high)
{
	float values[2] = {(float)low, (float)high};
	uint32_t bits[2];

	memcpy(bits, values, sizeof(bits));
	return bits[0] >> 16 | (bits[1] & 0xffff0000);
}

/*
 * Fill in the words of the two matrices that each lane holds. The layout is that of "Matrix
 * Fragments for mma.m16n8k16" in the PTX manual.
 */
static void fill_lanes(uint32_t words[LANES][LANE_WORDS])
{
	for (int lane = 0; lane < LANES; lane++) {
		int row = lane / 4, k = lane % 4 * 2;

		for (int i = 0; i < 4; i++) {
			int r = row + (i % 2) * 8, c = k + (i / 2) * 8;

			words[lane][i] = pack(left_at(r, c), left_at(r, c + 1));
		}
		for (int i = 0; i < 2; i++)
			words[lane][4 + i] =
				pack(right_at(k + i * 8, row), right_at(k + i * 8 + 1, row));
	}
}

static float expected(int lane, int element)
{
	int row = lane / 4 + element / 2 * 8, column = lane % 4 * 2 + element % 2, sum = 0;

	for (int k = 0; k < DEPTH; k++)
		sum += left_at(row, k) * right_at(k, column);
	return (float)sum * PRODUCTS;
}

static size_t count_wrong(const float *out, size_t threads)
{
	size_t wrong = 0;

	for (size_t thread = 0; thread < threads; thread++)
		for (int i = 0; i < 4 * SUMS; i++)
			wrong += out[thread * 4 * SUMS + (size_t)i] !=
				 expected((int)(thread % LANES), i % 4);
	return wrong;
}

/* --- One GPU ------------------------------------------------------------------------------- */

struct gpu {
	pthread_t thread;
	int index, device, processors;
	char name[64], uuid[48];
};

/* Return from the function if a call of the driver fails. */
#define TRY(call)                      \
	do {                           \
		int failed = (call);   \
		if (failed)            \
			return failed; \
	} while (0)

static int test_copy(const struct gpu *gpu)
{
	unsigned long long memory;
	double best = (double)INFINITY;
	void *host;

	TRY(driver.pin(&host, COPY_BYTES));
	TRY(driver.alloc(&memory, COPY_BYTES));
	memset(host, 1, COPY_BYTES);
	for (int i = 0; i < COPIES; i++) {
		double started = ddp_seconds();

		TRY(driver.in(memory, host, COPY_BYTES));
		best = fmin(best, ddp_seconds() - started);
	}
	info_preflight_say("rate", "GPU copy", gpu->name, COPY_BYTES / best * 1e-9, "GB/s",
			   "GPU %d", gpu->index);
	TRY(driver.release_memory(memory));
	return driver.unpin(host);
}

/*
 * Report the rate of the PCIe link in one direction, which ddp-run compares with other nodes. This
 * also shows a slow slot, since NVML's maximum is the lower one of the GPU's and the slot's.
 */
static void test_link(const struct gpu *gpu, const struct ddp_gpu_health *health)
{
	static const double lane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563}; /* GB/s */
	unsigned generation = health->generation;

	if (generation > 0 && generation < sizeof(lane) / sizeof(lane[0]) && health->width > 0)
		info_preflight_say("rate", "GPU PCIe", gpu->name, health->width * lane[generation],
				   "GB/s", "GPU %d: generation %u, %u lanes", gpu->index,
				   generation, health->width);
}

/*
 * Report the state of the GPU. The GPU must be under load, because an idle one lowers its clocks
 * and its PCIe generation.
 */
static void test_health(const struct gpu *gpu)
{
	struct ddp_gpu_health health;
	const char *event = "fact";
	char text[160] = "";

	if (!ddp_gpu_read_health(gpu->uuid, &health))
		return;
	if (health.ecc_errors > 0)
		snprintf(text, sizeof(text), ": %llu uncorrected ECC errors", health.ecc_errors);
	else if (health.remap_failed)
		snprintf(text, sizeof(text), ": a memory row could not be remapped");
	if (*text)
		event = "failed";
	else if (health.remap_pending)
		snprintf(text, sizeof(text), ": memory rows will be remapped at the next reset");
	else if (health.is_hot || health.is_slowed)
		snprintf(text, sizeof(text), ": its clocks are reduced%s",
			 health.is_hot ? " for temperature" : " by hardware");
	else if (health.width < health.width_most)
		snprintf(text, sizeof(text), ": PCIe with %u of %u lanes", health.width,
			 health.width_most);
	else if (health.generation < health.generation_most)
		snprintf(text, sizeof(text), ": PCIe of generation %u of %u", health.generation,
			 health.generation_most);
	test_link(gpu, &health);
	if (*text && strcmp(event, "fact") == 0)
		event = "slow";
	info_preflight_say(event, "GPU state", gpu->name, (double)NAN, "", "GPU %d%s", gpu->index,
			   text);
}

static int run_product(const struct gpu *gpu, size_t *wrong, double *rate)
{
	size_t threads = (size_t)gpu->processors * BLOCKS_EACH * THREADS;
	size_t bytes = threads * 4 * SUMS * sizeof(float);
	unsigned blocks = (unsigned)gpu->processors * BLOCKS_EACH, count = PRODUCTS;
	unsigned long long in, out;
	uint32_t words[LANES][LANE_WORDS];
	void *arguments[] = {&in, &out, &count}, *module, *function;
	double started, took = 0, launches = 0;
	bool is_known = false;
	float *host = malloc(bytes);

	if (!host)
		return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
	fill_lanes(words);
	TRY(driver.load(&module, kernel));
	TRY(driver.find(&function, module, "product"));
	TRY(driver.alloc(&in, sizeof(words)));
	TRY(driver.alloc(&out, bytes));
	TRY(driver.in(in, words, sizeof(words)));
	started = ddp_seconds();
	do {
		TRY(driver.launch(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
		if (!is_known && took >= PRODUCT_TIME / 2) {
			test_health(gpu);
			is_known = true;
		}
		TRY(driver.wait());
		launches++;
		took = ddp_seconds() - started;
	} while (took < PRODUCT_TIME);
	if (!is_known)
		test_health(gpu);
	TRY(driver.out(host, out, bytes));
	*wrong = count_wrong(host, threads);
	*rate = launches * (double)threads / LANES * SUMS * PRODUCTS * 2 * ROWS * COLUMNS * DEPTH /
		took;
	TRY(driver.release_memory(in));
	TRY(driver.release_memory(out));
	free(host);
	return 0;
}

static int test_product(const struct gpu *gpu)
{
	size_t wrong = 0;
	double rate = 0;
	int major = 0;

	if (driver.attribute(&major, ATTRIBUTE_MAJOR, gpu->device) != 0 || major < AMPERE) {
		test_health(gpu);
		return 0;
	}
	TRY(run_product(gpu, &wrong, &rate));
	if (wrong > 0)
		info_preflight_say("failed", "GPU product", gpu->name, (double)NAN, "",
				   "GPU %d: %zu elements of bf16 products are wrong", gpu->index,
				   wrong);
	else
		info_preflight_say("rate", "GPU product", gpu->name, rate * 1e-12, "TFLOP/s",
				   "GPU %d", gpu->index);
	return 0;
}

static int test_calls(struct gpu *gpu)
{
	unsigned char id[DDP_GPU_UUID];
	void *context;

	TRY(driver.get(&gpu->device, gpu->index));
	TRY(driver.name(gpu->name, (int)sizeof(gpu->name), gpu->device));
	TRY(driver.uuid(id, gpu->device));
	TRY(driver.attribute(&gpu->processors, ATTRIBUTE_PROCESSORS, gpu->device));
	ddp_gpu_print_uuid(gpu->uuid, sizeof(gpu->uuid), id, false);
	TRY(driver.retain(&context, gpu->device));
	TRY(driver.current(context));
	TRY(test_copy(gpu));
	TRY(test_product(gpu));
	return driver.release(gpu->device);
}

static void *test_gpu(void *data)
{
	struct gpu *gpu = data;
	int result = test_calls(gpu);

	if (result != 0)
		info_preflight_say("failed", "GPU state", gpu->name, (double)NAN, "",
				   "GPU %d: %s (%d)", gpu->index,
				   info_driver_error(&driver, result), result);
	return NULL;
}

/* --- All GPUs ------------------------------------------------------------------------------ */

/* Returns the number of GPUs that Slurm allocated to this step. */
static int count_given(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int count = info_visible_devices(list);

	/* A process can use only one MIG slice in CUDA, even if it has several. */
	if (list && strncmp(list, "MIG-", 4) == 0)
		return 1;
	return count > 0 ? count : 0;
}

void info_preflight_gpu_name(int index, char *name, size_t size)
{
	int device;

	if (!info_driver_load(&driver) || driver.init(0) != 0 || driver.get(&device, index) != 0 ||
	    driver.name(name, (int)size, device) != 0)
		*name = '\0';
}

int info_preflight_gpus(void)
{
	static struct gpu gpus[INFO_GPUS_MOST];
	int given = count_given(), seen = 0, started = 0, version, result;
	char name[64];

	if (!info_driver_load(&driver)) {
		if (given > 0)
			info_preflight_say("fact", "devices", "", given, "",
					   "not tested: there is no CUDA driver");
		return 0;
	}
	result = driver.init(0);
	if (result == 0)
		result = driver.count(&seen);
	if (seen == 0 && given == 0)
		return 0;
	if (result != 0 || seen < given) {
		info_preflight_say("failed", "devices", "", seen, "",
				   "the driver finds %d of %d GPUs%s%s", seen, given,
				   result ? ": " : "",
				   result ? info_driver_error(&driver, result) : "");
		return 0;
	}
	info_preflight_gpu_name(0, name, sizeof(name));
	info_preflight_say("config", "devices", name, seen, "", "%s", "");
	if (driver.version(&version) == 0)
		info_preflight_say("config", "CUDA driver", name, version / 1000.0, "CUDA", "%s",
				   "");
	seen = seen < INFO_GPUS_MOST ? seen : INFO_GPUS_MOST;
	for (; started < seen; started++) {
		gpus[started] = (struct gpu){.index = started};
		if (pthread_create(&gpus[started].thread, NULL, test_gpu, &gpus[started]) != 0)
			break;
	}
	if (started < seen)
		info_preflight_say("failed", "devices", "", (double)NAN, "",
				   "cannot start a thread for GPU %d", started);
	for (int i = 0; i < started; i++)
		pthread_join(gpus[i].thread, NULL);
	return seen;
}
