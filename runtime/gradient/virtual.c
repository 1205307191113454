/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ddp-private.h"
#include "local/kernel.h"
#include "virtual.h"

/* Bits of a whole number that can be added to others, and of one gradient among them. */
enum { BITS_OF_SUM = 53, BITS_AT_MOST = 51 };

struct ddp_virtual {
	struct ddp *ddp;
	const struct ddp_layout *layout;
	const struct ddp_kernel_table *kernels;
	enum ddp_type type;
	size_t size;	    /* of an element */
	size_t mine;	    /* virtual ranks of this rank */
	size_t current;	    /* of these */
	int bits;	    /* of a gradient as a whole number */
	char *kept;	    /* gradients of all but the last one, as the arena has them */
	double *sums;	    /* an arena for the largest bucket */
	int32_t *exponents; /* of each view, from the last one on, as buckets have them */
};

/* --- Create ------------------------------------------------------------------------------ */

static int refuse(struct ddp *ddp, size_t ranks)
{
	size_t size = (size_t)ddp->world.size, less = ranks;

	if (ranks > DDP_VIRTUAL_MOST)
		return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
				     "gradients: %zu virtual ranks: give %d at most", ranks,
				     DDP_VIRTUAL_MOST);
	while (less > size || ranks % less != 0)
		less--;
	return ddp_error_set(
		&ddp->error, DDP_ERR_ARGUMENT,
		"gradients: %zu ranks cannot share %zu virtual ranks evenly: start %zu "
		"rank%s, or give %zu virtual ranks",
		size, ranks, less, less == 1 ? "" : "s", (ranks + size - 1) / size * size);
}

/* The whole numbers of [ranks] virtual ranks, each up to 2^bits, add up to 2^53 at most. */
static int bits_of(size_t ranks)
{
	int bits = BITS_OF_SUM;

	while (ranks > (size_t)1 << (BITS_OF_SUM - bits))
		bits--;
	return bits < BITS_AT_MOST ? bits : BITS_AT_MOST;
}

/* No gradient has one so small. */
static void forget(struct ddp_virtual *it)
{
	for (size_t i = 0; i < it->layout->view_count; i++)
		it->exponents[i] = INT_MIN;
}

int ddp_virtual_create(struct ddp_virtual **result, struct ddp *ddp,
		       const struct ddp_layout *layout, enum ddp_type type, size_t ranks)
{
	size_t size = (size_t)ddp->world.size, room = ddp_layout_largest(layout) * sizeof(double);
	struct ddp_virtual *it = NULL;
	void *sums = NULL;
	int status;

	*result = NULL;
	if (ranks > DDP_VIRTUAL_MOST || ranks % size != 0)
		return refuse(ddp, ranks);
	it = calloc(1, sizeof(*it));
	if (!it)
		goto memory;
	it->ddp = ddp;
	it->layout = layout;
	it->kernels = ddp_kernel_table(ddp->simd);
	it->type = type;
	it->size = ddp_type_size(type);
	it->mine = ranks / size;
	it->bits = bits_of(ranks);
	it->exponents = calloc(layout->view_count, sizeof(*it->exponents));
	it->kept = malloc((it->mine - 1) * layout->elements * it->size + 1);
	if (!it->exponents || !it->kept)
		goto memory;
	forget(it);
	status = ddp_arena_create(ddp, room ? room : DDP_VIEW_ALIGNMENT, &sums);
	it->sums = sums;
	*result = it;
	return status;
memory:
	ddp_virtual_destroy(it);
	return ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
			     "gradients: out of memory for those of %zu virtual ranks",
			     ranks / size);
}

void ddp_virtual_destroy(struct ddp_virtual *it)
{
	if (!it)
		return;
	free(it->kept);
	free(it->exponents);
	free(it);
}

/* --- A bucket ---------------------------------------------------------------------------- */

/* A view of a bucket, with what lies between it and the next one, which is zero. */
struct piece {
	size_t offset, count; /* in the bucket */
	int32_t *exponent;
};

/* How many views come before those of [bucket], in the order of buckets. */
static size_t first_of(const struct ddp_virtual *it, size_t bucket)
{
	size_t first = 0;

	for (size_t i = 0; i < bucket; i++)
		first += it->layout->buckets[i].members;
	return first;
}

/* View number [index] in the order of buckets, which is one of [bucket]. */
static struct piece piece_of(const struct ddp_virtual *it, size_t bucket, size_t index)
{
	const struct ddp_bucket *whole = &it->layout->buckets[bucket];
	const struct ddp_view *view = &it->layout->views[it->layout->view_count - 1 - index];
	size_t step = DDP_VIEW_ALIGNMENT / it->size;

	return (struct piece){view->offset - whole->offset, (view->count + step - 1) / step * step,
			      &it->exponents[index]};
}

static char *kept_at(const struct ddp_virtual *it, size_t which, size_t bucket)
{
	return it->kept +
	       (which * it->layout->elements + it->layout->buckets[bucket].offset) * it->size;
}

/* Copy a bucket to [to], unless that is NULL, and look for larger exponents in it. */
static void look(struct ddp_virtual *it, size_t bucket, char *to, const char *from)
{
	size_t first = first_of(it, bucket), members = it->layout->buckets[bucket].members;

	for (size_t i = first; i < first + members; i++) {
		struct piece piece = piece_of(it, bucket, i);
		size_t at = piece.offset * it->size;
		double largest =
			it->kernels->largest(to ? to + at : NULL, from + at, piece.count, it->type);
		int exponent;

		if (largest == 0)
			continue;
		(void)frexp(largest, &exponent);
		if (exponent > *piece.exponent)
			*piece.exponent = exponent;
	}
}

bool ddp_virtual_is_last(const struct ddp_virtual *it)
{
	return it->current + 1 == it->mine;
}

static const char *at_bucket(const struct ddp_virtual *it, size_t bucket, const void *arena)
{
	return (const char *)arena + it->layout->buckets[bucket].offset * it->size;
}

void ddp_virtual_keep(struct ddp_virtual *it, size_t bucket, const void *arena)
{
	look(it, bucket, kept_at(it, it->current, bucket), at_bucket(it, bucket, arena));
}

/*
 * Two factors, since one for doubles may be no double: [scale] times the power of two of [exponent].
 */
static void set_factors(double factor[2], double scale, int exponent)
{
	factor[0] = ldexp(scale, exponent / 2);
	factor[1] = ldexp(1, exponent - exponent / 2);
}

/* All numbers of a view without one are inf, nan or zero: any exponent will do. */
static int exponent_of(const struct piece *piece)
{
	return *piece->exponent == INT_MIN ? 0 : *piece->exponent;
}

static void enter(const struct ddp_virtual *it, size_t bucket, const struct piece *piece,
		  const char *data)
{
	size_t at = piece->offset * it->size;
	double factor[2];

	set_factors(factor, 1, it->bits - exponent_of(piece));
	for (size_t i = 0; i + 1 < it->mine; i++)
		it->kernels->enter(it->sums + piece->offset, kept_at(it, i, bucket) + at,
				   piece->count, it->type, factor, i > 0);
	it->kernels->enter(it->sums + piece->offset, data + at, piece->count, it->type, factor,
			   it->mine > 1);
}

int ddp_virtual_sum(struct ddp_virtual *it, size_t bucket, void *arena, double scale)
{
	const struct ddp_bucket *whole = &it->layout->buckets[bucket];
	char *data = (char *)arena + whole->offset * it->size;
	size_t first = first_of(it, bucket), end = first + whole->members;
	int32_t *exponents = it->exponents + first;
	int status;

	look(it, bucket, NULL, data);
	status = ddp_all_reduce(it->ddp, exponents, exponents, whole->members, DDP_I32, DDP_MAX);
	if (status < 0)
		return status;
	for (size_t i = first; i < end; i++) {
		struct piece piece = piece_of(it, bucket, i);

		enter(it, bucket, &piece, data);
	}
	status = ddp_all_reduce(it->ddp, it->sums, it->sums, whole->count, DDP_F64, DDP_SUM);
	if (status < 0)
		return status;
	for (size_t i = first; i < end; i++) {
		struct piece piece = piece_of(it, bucket, i);
		double factor[2];

		set_factors(factor, scale, exponent_of(&piece) - it->bits);
		it->kernels->leave(data + piece.offset * it->size, it->sums + piece.offset,
				   piece.count, it->type, factor);
	}
	return 0;
}

void ddp_virtual_next(struct ddp_virtual *it)
{
	if (ddp_virtual_is_last(it))
		forget(it);
	it->current = (it->current + 1) % it->mine;
}
