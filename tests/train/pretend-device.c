/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "pretend-private.h"
#include "pretend.h"

struct device {
	struct device_info info;
	bool capturing;
};

struct device_graph {
	int plan; /* the one that was captured */
};

struct pretend pretend;

static struct device the_device = {
	.info = {.name = "NVIDIA H200", .index = 3, .major = 9, .minor = 0, .limit = 1 << 30},
};

struct device *pretend_device(void)
{
	return &the_device;
}

const struct device_info *device_info(const struct device *device)
{
	return &device->info;
}

void *device_stream(const struct device *device, enum device_stream stream)
{
	(void)device;
	(void)stream;
	return NULL;
}

/* As much as was asked for and no more, so that sanitizers see what goes beyond; and full of garbage. */
int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	(void)device;
	if (pretend.exhausted > 0 && bytes >= pretend.exhausted)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: out of memory; %s", what, remedy);
	if (posix_memalign(memory, 256, bytes) != 0)
		abort();
	memset(*memory, 0xff, bytes);
	pretend.allocations++;
	return 0;
}

void device_free(struct device *device, void *memory)
{
	(void)device;
	if (memory)
		pretend.allocations--;
	free(memory);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	(void)device;
	(void)stream;
	(void)error;
	return 0;
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	(void)device;
	(void)what;
	(void)error;
	return 0;
}

bool pretend_is_capturing(void)
{
	return the_device.capturing;
}

int device_capture_begin(struct device *device, struct ddp_error *error)
{
	(void)error;
	device->capturing = true;
	return 0;
}

int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error)
{
	(void)error;
	device->capturing = false;
	*graph = calloc(1, sizeof(**graph));
	(*graph)->plan = pretend_last_plan();
	return 0;
}

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error)
{
	(void)device;
	(void)error;
	pretend_launched(graph->plan);
	return 0;
}

void device_graph_destroy(struct device_graph *graph)
{
	free(graph);
}

/* --- Kernels -------------------------------------------------------------------------------- */

/* f16 by hand: clang 14 has no _Float16 on this processor. */
static double from_f16(uint16_t bits)
{
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	double size = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
		      : exponent == 0 ? ldexp(fraction, -24)
				      : ldexp(1024 + fraction, exponent - 25);

	return bits >> 15 ? -size : size;
}

/* To nearest, ties to even. */
static uint16_t to_f16(double value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs(value);
	int exponent = 0;

	if (isnan(size))
		return 0x7fff;
	frexp(size, &exponent);
	if (exponent < -13)
		exponent = -13;
	size = nearbyint(ldexp(size, 11 - exponent));
	if (size >= 2048) {
		size /= 2;
		exponent++;
	}
	if (isinf(size) || exponent > 16)
		return sign | 0x7c00;
	if (size < 1024)
		return (uint16_t)(sign | (uint16_t)size);
	return (uint16_t)(sign | (exponent + 14) << 10 | ((int)size - 1024));
}

double pretend_load(const void *array, size_t index, enum ddp_type type)
{
	uint32_t bits = 0;
	float value;

	if (type == DDP_F32)
		return ((const float *)array)[index];
	if (type == DDP_F16)
		return from_f16(((const uint16_t *)array)[index]);
	bits = (uint32_t)((const uint16_t *)array)[index] << 16;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

void pretend_store(void *array, size_t index, enum ddp_type type, double value)
{
	float narrow = (float)value;
	uint32_t bits;

	if (type == DDP_F32) {
		((float *)array)[index] = narrow;
	} else if (type == DDP_F16) {
		((uint16_t *)array)[index] = to_f16((double)narrow);
	} else {
		memcpy(&bits, &narrow, sizeof(bits));
		bits += 0x7fff + (bits >> 16 & 1);
		((uint16_t *)array)[index] = (uint16_t)(bits >> 16);
	}
}

void kernel_bias(void *stream, void *y, const float *bias, size_t rows, size_t channels, bool relu,
		 enum ddp_type type)
{
	(void)stream;
	for (size_t i = 0; i < rows * channels; i++) {
		double value = pretend_load(y, i, type) + (double)bias[i % channels];

		pretend_store(y, i, type, relu && value < 0 ? 0 : value);
	}
}

void kernel_relu(void *stream, const void *x, void *y, size_t count, enum ddp_type type)
{
	(void)stream;
	for (size_t i = 0; i < count; i++) {
		double value = pretend_load(x, i, type);

		pretend_store(y, i, type, value < 0 ? 0 : value);
	}
}

void kernel_narrow(void *stream, const float *from, void *to, size_t count, enum ddp_type type)
{
	(void)stream;
	for (size_t i = 0; i < count; i++)
		pretend_store(to, i, type, (double)from[i]);
}

void kernel_widen(void *stream, const void *from, float *to, size_t count, enum ddp_type type)
{
	(void)stream;
	for (size_t i = 0; i < count; i++)
		to[i] = (float)pretend_load(from, i, type);
}
