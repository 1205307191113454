/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "double.h"
#include "unit.h"

struct shared {
	const struct double_options *options;
	void (*body)(struct ddp *ddp, void *argument);
	void *argument;
	pthread_barrier_t barrier;
	const void *slots[DOUBLE_RANKS];
	struct double_notes notes;
};

/* What stands for a handle; the library sees its first member alone. */
struct rank {
	struct ddp ddp;
	struct shared *shared;
	int reduces;
	void *arenas[8];
	int arena_count;
	pthread_t thread;
};

static int failures;

void double_failed(const char *file, int line, const char *condition, const char *format, ...)
{
	char text[2048];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, condition, text);
	__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

static void *live(void *argument)
{
	struct rank *rank = argument;

	rank->shared->body(&rank->ddp, rank->shared->argument);
	return NULL;
}

static void prepare(struct rank *rank, struct shared *shared, int number)
{
	rank->shared = shared;
	rank->ddp.world.rank = number;
	rank->ddp.world.size = shared->options->size;
	/* Nobody looks inside, whether it is there is what counts. */
	if (shared->options->wide)
		rank->ddp.engine = (const struct ddp_host_engine *)shared;
}

struct double_notes double_run(const struct double_options *options,
			       void (*body)(struct ddp *ddp, void *argument), void *argument)
{
	struct shared shared = {.options = options, .body = body, .argument = argument};
	struct rank *ranks = calloc((size_t)options->size, sizeof(*ranks));

	ck_assert_ptr_nonnull(ranks);
	pthread_barrier_init(&shared.barrier, NULL, (unsigned)options->size);
	__atomic_store_n(&failures, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < options->size; i++) {
		prepare(&ranks[i], &shared, i);
		ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, live, &ranks[i]), 0);
	}
	for (int i = 0; i < options->size; i++) {
		pthread_join(ranks[i].thread, NULL);
		for (int j = 0; j < ranks[i].arena_count; j++)
			free(ranks[i].arenas[j]);
	}
	pthread_barrier_destroy(&shared.barrier);
	free(ranks);
	ck_assert_msg(failures == 0, "%d expectations did not hold, see above", failures);
	return shared.notes;
}

int double_reduces(const struct ddp *ddp)
{
	return ((const struct rank *)ddp)->reduces;
}

/* --- Types ------------------------------------------------------------------------------ */

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (isnan(value))
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* By the definition: the nearest multiple of the last place, ties to even. */
static uint16_t to_f16(float value)
{
	int sign = signbit(value) ? 0x8000 : 0, exponent = -14;
	double size = fabs((double)value);

	if (isnan(value))
		return 0x7e00;
	if (size >= 65520)
		return (uint16_t)(sign | 0x7c00);
	if (size >= 0x1p-14)
		exponent = ilogb(size);
	return (uint16_t)(sign |
			  ((exponent + 14) * 1024 + (int)nearbyint(ldexp(size, 10 - exponent))));
}

static float from_f16(uint16_t half)
{
	int exponent = half >> 10 & 31, mantissa = half & 1023;
	double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);

	if (exponent == 31)
		size = mantissa ? NAN : INFINITY;
	return (float)(half & 0x8000 ? -size : size);
}

__attribute__((weak)) size_t ddp_type_size(enum ddp_type type)
{
	return type == DDP_F64 ? 8 : type == DDP_F32 ? 4 : 2;
}

static float load(const void *from, enum ddp_type type, size_t index)
{
	if (type == DDP_BF16)
		return from_bf16(((const uint16_t *)from)[index]);
	if (type == DDP_F16)
		return from_f16(((const uint16_t *)from)[index]);
	return ((const float *)from)[index];
}

static void store(void *to, enum ddp_type type, size_t index, float value)
{
	if (type == DDP_BF16)
		((uint16_t *)to)[index] = to_bf16(value);
	else if (type == DDP_F16)
		((uint16_t *)to)[index] = to_f16(value);
	else
		((float *)to)[index] = value;
}

__attribute__((weak)) void ddp_convert(void *to, enum ddp_type to_type, const void *from,
				       enum ddp_type from_type, size_t count, enum ddp_simd simd)
{
	(void)simd;
	for (size_t i = 0; i < count; i++)
		store(to, to_type, i, load(from, from_type, i));
}

/* --- Collectives ------------------------------------------------------------------------ */

/* All ranks show what they send; until depart() it stays where it is. */
static struct shared *meet(struct ddp *ddp, const void *send)
{
	struct shared *shared = ((struct rank *)ddp)->shared;

	shared->slots[ddp->world.rank] = send;
	pthread_barrier_wait(&shared->barrier);
	return shared;
}

static void depart(struct shared *shared)
{
	pthread_barrier_wait(&shared->barrier);
}

int ddp_fail_call(struct ddp *ddp, int status)
{
	EXPECT(ddp->error.status == status, "status %d, error %d", status, ddp->error.status);
	return status;
}

int ddp_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes)
{
	struct shared *shared = meet(ddp, send);

	for (int i = 0; i < ddp->world.size; i++)
		memcpy((char *)recv + (size_t)i * bytes, shared->slots[i], bytes);
	depart(shared);
	return 0;
}

int ddp_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root)
{
	struct shared *shared = meet(ddp, buffer);

	if (ddp->world.rank != root)
		memcpy(buffer, shared->slots[root], bytes);
	depart(shared);
	return 0;
}

/* By this ranks compare numbers. */
int ddp_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count, enum ddp_type type,
		   enum ddp_op op)
{
	struct shared *shared = meet(ddp, send);
	int64_t least = INT64_MAX;

	EXPECT(count == 1 && type == DDP_I64 && op == DDP_MIN, "an all-reduce of another kind");
	for (int i = 0; i < ddp->world.size; i++)
		if (*(const int64_t *)shared->slots[i] < least)
			least = *(const int64_t *)shared->slots[i];
	depart(shared);
	*(int64_t *)recv = least;
	return 0;
}

int ddp_barrier(struct ddp *ddp)
{
	depart(meet(ddp, NULL));
	return 0;
}

int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory)
{
	struct rank *rank = (struct rank *)ddp;
	size_t whole = (bytes + 63) / 64 * 64;

	*memory = aligned_alloc(64, whole);
	memset(*memory, 0, whole);
	rank->arenas[rank->arena_count++] = *memory;
	return 0;
}

static void sum(const struct shared *shared, void *to, size_t count, enum ddp_type type,
		double scale)
{
	for (size_t i = 0; i < count; i++) {
		double f64 = 0;
		float f32 = 0;

		for (int rank = 0; rank < shared->options->size; rank++) {
			if (type == DDP_F64)
				f64 += ((const double *)shared->slots[rank])[i];
			else
				f32 += load(shared->slots[rank], type, i);
		}
		if (type == DDP_F64)
			((double *)to)[i] = f64 * scale;
		else
			store(to, type, i, f32 * (float)scale);
	}
}

int ddp_all_reduce_scaled(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, double scale)
{
	struct rank *rank = (struct rank *)ddp;
	struct shared *shared = rank->shared;
	void *result;

	EXPECT(op == DDP_SUM, "operation %d", (int)op);
	if (ddp->world.rank == 0 && rank->reduces < DOUBLE_NOTES)
		shared->notes.counts[shared->notes.reduces++] = count;
	rank->reduces++;
	if (shared->options->fails_at && rank->reduces >= shared->options->fails_at)
		return ddp_error_set(&ddp->error, DDP_ERR_PEER, "all-reduce %d: rank 9 is gone",
				     rank->reduces);
	result = malloc(count ? count * ddp_type_size(type) : 1);
	meet(ddp, send);
	sum(shared, result, count, type, scale);
	depart(shared);
	memcpy(recv, result, count * ddp_type_size(type));
	free(result);
	return 0;
}

/* These have no devices. */
int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream)
{
	(void)send, (void)recv, (void)count, (void)type, (void)op, (void)stream;
	return ddp_error_set(&ddp->error, DDP_ERR_STATE, "ranks that are threads have no devices");
}
