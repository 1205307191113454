/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "comm/context.h"
#include "local/kernel.h"
#include "reducer.h"

/* Elements converted at a time, so that the f32 in between stays in the first cache. */
#define PIECE 2048u

void ddp_reducer_factors(enum ddp_type wire, int size, double sum, double *before, double *after)
{
	double power = 1;

	if (wire == DDP_F16) {
		while (power < size)
			power *= 2;
	}
	*before = 1 / power;
	*after = sum * power;
}

int ddp_reducer_create(struct ddp_reducer *reducer, struct ddp *ddp, enum ddp_type type,
		       enum ddp_type wire, double scale, size_t largest)
{
	size_t bytes = largest * ddp_type_size(wire);

	*reducer = (struct ddp_reducer){.ddp = ddp, .type = type, .wire = wire, .scale = scale};
	if (wire == type)
		return 0;
	return ddp_arena_create(ddp, bytes ? bytes : 1, &reducer->packed);
}

static void pack(const struct ddp_reducer *reducer, const void *data, size_t count, double factor)
{
	size_t size = ddp_type_size(reducer->wire);
	const float *f32 = data;
	const double *f64 = data;
	float piece[PIECE];

	for (size_t i = 0; i < count; i += PIECE) {
		size_t part = count - i < PIECE ? count - i : PIECE;

		for (size_t j = 0; j < part; j++) {
			if (reducer->type == DDP_F64)
				piece[j] = (float)(f64[i + j] * factor);
			else
				piece[j] = f32[i + j] * (float)factor;
		}
		ddp_convert((char *)reducer->packed + i * size, reducer->wire, piece, DDP_F32, part,
			    reducer->ddp->simd);
	}
}

static void unpack(const struct ddp_reducer *reducer, void *data, size_t count, double factor)
{
	size_t size = ddp_type_size(reducer->wire);
	float *f32 = data;
	double *f64 = data;
	float piece[PIECE];

	for (size_t i = 0; i < count; i += PIECE) {
		size_t part = count - i < PIECE ? count - i : PIECE;

		ddp_convert(piece, DDP_F32, (char *)reducer->packed + i * size, reducer->wire, part,
			    reducer->ddp->simd);
		for (size_t j = 0; j < part; j++) {
			if (reducer->type == DDP_F64)
				f64[i + j] = (double)piece[j] * factor;
			else
				f32[i + j] = piece[j] * (float)factor;
		}
	}
}

/* --- On a device ------------------------------------------------------------------------- */

static int convert(const struct ddp_reducer *reducer, void *to, enum ddp_type to_type,
		   const void *from, enum ddp_type from_type, size_t count, double factor)
{
	struct ddp *ddp = reducer->ddp;

	return ddp_fail_call(ddp, ddp->device_module->convert(reducer->stream, to, to_type, from,
							      from_type, count, (float)factor,
							      &ddp->error));
}

static int sum_there(const struct ddp_reducer *reducer, void *data, size_t count,
		     enum ddp_type type, double scale)
{
	int status = ddp_device_all_reduce(reducer->ddp, data, data, count, type, DDP_SUM,
					   reducer->stream);

	if (status < 0 || scale == 1)
		return status;
	return convert(reducer, data, type, data, type, count, scale);
}

/* --- Either way -------------------------------------------------------------------------- */

static int sum(const struct ddp_reducer *reducer, void *data, size_t count, enum ddp_type type,
	       double scale)
{
	if (reducer->device)
		return sum_there(reducer, data, count, type, scale);
	return ddp_all_reduce_scaled(reducer->ddp, data, data, count, type, DDP_SUM, scale);
}

static int sum_packed(const struct ddp_reducer *reducer, void *data, size_t count)
{
	double before, after;
	int status = 0;

	ddp_reducer_factors(reducer->wire, reducer->ddp->world.size, reducer->scale, &before,
			    &after);
	if (reducer->device)
		status = convert(reducer, reducer->packed, reducer->wire, data, reducer->type,
				 count, before);
	else
		pack(reducer, data, count, before);
	if (status == 0)
		status = sum(reducer, reducer->packed, count, reducer->wire, 1);
	if (status < 0)
		return status;
	if (reducer->device)
		return convert(reducer, data, reducer->type, reducer->packed, reducer->wire, count,
			       after);
	unpack(reducer, data, count, after);
	return 0;
}

int ddp_reducer_run(const struct ddp_reducer *reducer, void *data, size_t count, size_t exact)
{
	size_t packed = count - exact;
	int status = 0;

	if (reducer->wire == reducer->type)
		return sum(reducer, data, count, reducer->type, reducer->scale);
	if (packed > 0)
		status = sum_packed(reducer, data, packed);
	if (status < 0 || exact == 0)
		return status;
	return sum(reducer, (char *)data + packed * ddp_type_size(reducer->type), exact,
		   reducer->type, reducer->scale);
}
