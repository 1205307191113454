/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - what the programs of tests/gpu share that call CUDA: the engine between devices, exact data
 *
 * Small integers, so that sums are exact in every type and order.
 */
#ifndef DDP_TESTS_GPU_H
#define DDP_TESTS_GPU_H

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "wide/device.h"

/* Returns whether there is a device; else the whole program is skipped with the reason. */
static inline bool have_device(const char *program)
{
	cudaError_t result;
	int count = 0;

	result = cudaGetDeviceCount(&count);
	if (result == cudaSuccess && count > 0)
		return true;
	printf("1..1\nok 1 - %s # skip no GPU: %s\n", program,
	       result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
	return false;
}

/* --- The engine -------------------------------------------------------------------------- */

static const struct ddp_device_engine *engine;
static struct ddp_device *device;

static inline struct ddp_watch seconds(double limit)
{
	return ddp_watch_start(limit, NULL, NULL);
}

static inline int open_engine(int rank, int size, struct ddp_error *error)
{
	static struct ddp_log log;

	ddp_log_open(&log, NULL);
	ddp_log_name(&log, rank, "gpu");
	engine =
		ddp_module_open("nccl", "device", DDP_DEVICE_VERSION, sizeof(*engine), &log, error);
	return engine ? engine->open(&device, rank, size, 0, 1, &log, error) : error->status;
}

static inline int wait_for(void *stream, double limit, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(limit);

	return engine->wait(device, stream, &watch, error);
}

/* --- Data -------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t bytes;
} gpu_types[DDP_TYPE_COUNT] = {
#define GPU_TYPE(name, bytes, text) {text, bytes},
	DDP_TYPE_MAP(GPU_TYPE)
#undef GPU_TYPE
};

static const char *const gpu_ops[DDP_OP_COUNT] = {
	[DDP_SUM] = "sum", [DDP_MAX] = "max", [DDP_MIN] = "min"};

/* 16-bit floats of 0 to 15: enough for ranks whose sums stay below 256, exact in both. */
static inline uint16_t float_bits16(unsigned int value, bool bf16)
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

/* Element [i] of [data] becomes [value], less than 256. */
static inline void put(void *data, size_t i, enum ddp_type type, unsigned int value)
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
static inline unsigned int sample(size_t i, int rank)
{
	return (unsigned int)((i * 7 + (size_t)rank * 3 + 1) % 10);
}

/* What all [ranks] together make of element [i]. */
static inline unsigned int expected(size_t i, int ranks, enum ddp_op op)
{
	unsigned int value = sample(i, 0), next;

	for (int rank = 1; rank < ranks; rank++) {
		next = sample(i, rank);
		if (op == DDP_SUM)
			value += next;
		else if ((op == DDP_MAX) == (next > value))
			value = next;
	}
	return value;
}

/* [count] elements of [rank], on the heap. */
static inline void *make_samples(size_t count, enum ddp_type type, int rank)
{
	void *data = malloc(count * gpu_types[type].bytes);

	for (size_t i = 0; data && i < count; i++)
		put(data, i, type, sample(i, rank));
	return data;
}

static inline void *make_expected(size_t count, enum ddp_type type, int ranks, enum ddp_op op)
{
	void *data = malloc(count * gpu_types[type].bytes);

	for (size_t i = 0; data && i < count; i++)
		put(data, i, type, expected(i, ranks, op));
	return data;
}

/*
 * All-reduce [count] elements from [send] to [recv], device memory, and compare every bit.
 * Returns whether all are right.
 */
static inline bool all_reduce_is_exact(void *send, void *recv, size_t count, enum ddp_type type,
				       enum ddp_op op, int rank, int ranks)
{
	size_t bytes = count * gpu_types[type].bytes;
	void *mine = make_samples(count, type, rank);
	void *want = make_expected(count, type, ranks, op);
	void *got = malloc(bytes);
	struct ddp_error error = {0, ""};
	bool good = false;

	if (!mine || !want || !got || cudaMemcpy(send, mine, bytes, cudaMemcpyHostToDevice))
		goto out;
	if (engine->all_reduce(device, send, recv, count, type, op, NULL, &error) < 0 ||
	    wait_for(NULL, 60, &error) < 0) {
		printf("# %s\n", error.text);
		goto out;
	}
	if (!cudaMemcpy(got, recv, bytes, cudaMemcpyDeviceToHost))
		good = memcmp(got, want, bytes) == 0;
out:
	free(got);
	free(want);
	free(mine);
	return good;
}

#endif /* DDP_TESTS_GPU_H */
