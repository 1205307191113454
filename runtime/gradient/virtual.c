/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.c - round gradients to multiples of one quantum, and sum them exactly */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel.h"
#include "comm/comm.h"
#include "virtual.h"

/*
 * BITS_OF_SUM: a double represents integers of up to so many bits exactly. BITS_AT_MOST: the most
 * bits that one gradient has as an integer.
 */
enum { BITS_OF_SUM = 53, BITS_AT_MOST = 51 };

/* Doubles per all-reduce with other groups. In smaller all-reduces latency would dominate. */
enum { STRETCH = 1 << 20 };

struct ddp_virtual {
	struct ddp *ddp;
	const struct ddp_layout *layout;
	const struct ddp_kernel_table *kernels;
	enum ddp_type type;
	size_t size;	/* bytes of an element */
	size_t mine;	/* number of virtual ranks that this rank runs */
	size_t current; /* index of the virtual rank that this rank now runs */
	int bits;	/* number of bits of a gradient that was converted to an integer */
	/* gradients of this rank's virtual ranks except the last, each with the arena's layout */
	char *kept;
	size_t stretch;	   /* number of elements in each all-reduce with other groups */
	double *sums;	   /* buffer for [stretch] elements, or NULL if there is no other group */
	const void **from; /* sources and targets of a sum within one host */
	void **to;
	/* exponent of the largest gradient of each view, in bucket order (the last view first) */
	int32_t *exponents;
};

/* --- Creation ---------------------------------------------------------------------------- */

/* All ranks return this error: compare_options() has checked that they have the same number. */
static int refuse(struct ddp *ddp, size_t ranks)
{
	size_t size = (size_t)ddp_world(ddp)->size, less = ranks;

	if (ranks > DDP_VIRTUAL_MOST)
		return ddp_report(ddp, DDP_ERR_ARGUMENT,
				  "gradients: %zu virtual ranks are too many. Use at most %d.",
				  ranks, DDP_VIRTUAL_MOST);
	while (less > size || ranks % less != 0)
		less--;
	return ddp_report(ddp, DDP_ERR_ARGUMENT,
			  "gradients: %zu ranks cannot share %zu virtual ranks evenly. Start %zu "
			  "rank%s, or use %zu virtual ranks.",
			  size, ranks, less, less == 1 ? "" : "s",
			  (ranks + size - 1) / size * size);
}

/* Largest number of bits such that [ranks] integers of at most 2^bits add up to 2^53 at most. */
static int bits_of(size_t ranks)
{
	int bits = BITS_OF_SUM;

	while (ranks > (size_t)1 << (BITS_OF_SUM - bits))
		bits--;
	return bits < BITS_AT_MOST ? bits : BITS_AT_MOST;
}

/* Reset all exponents to a value below that of any gradient. */
static void reset_exponents(struct ddp_virtual *virtual)
{
	for (size_t i = 0; i < virtual->layout->view_count; i++)
		virtual->exponents[i] = INT_MIN;
}

/* Create an arena of [bytes], or of the smallest size if [bytes] is 0. */
static int reserve(struct ddp *ddp, size_t bytes, void **memory)
{
	return ddp_arena_create(ddp, bytes ? bytes : DDP_VIEW_ALIGNMENT, memory);
}

int ddp_virtual_create(struct ddp_virtual **result, struct ddp *ddp,
		       const struct ddp_layout *layout, enum ddp_type type, enum ddp_simd simd,
		       size_t ranks)
{
	size_t size = (size_t)ddp_world(ddp)->size, largest = ddp_layout_largest(layout);
	struct ddp_virtual *virtual = NULL;
	void *kept = NULL, *sums = NULL;
	int status;

	*result = NULL;
	if (ranks > DDP_VIRTUAL_MOST || ranks % size != 0)
		return refuse(ddp, ranks);
	virtual = calloc(1, sizeof(*virtual));
	if (!virtual)
		goto memory;
	virtual->ddp = ddp;
	virtual->layout = layout;
	virtual->kernels = ddp_kernel_table(simd);
	virtual->type = type;
	virtual->size = ddp_type_size(type);
	virtual->mine = ranks / size;
	virtual->bits = bits_of(ranks);
	virtual->stretch = largest < STRETCH ? largest : STRETCH;
	virtual->exponents = calloc(layout->view_count, sizeof(*virtual->exponents));
	virtual->from = calloc(ranks, sizeof(*virtual->from));
	virtual->to = calloc(size, sizeof(*virtual->to));
	if (!virtual->exponents || !virtual->from || !virtual->to)
		goto memory;
	reset_exponents(virtual);
	*result = virtual;
	status = reserve(ddp, (virtual->mine - 1) * layout->elements * virtual->size, &kept);
	if (status == 0 && strcmp(ddp_world(ddp)->wide, "none") != 0)
		status = reserve(ddp, virtual->stretch * sizeof(double), &sums);
	virtual->kept = kept;
	virtual->sums = sums;
	return status;
memory:
	ddp_virtual_destroy(virtual);
	return ddp_fail_with(ddp, DDP_ERR_MEMORY, "gradients: out of memory for %zu virtual ranks",
			     ranks / size);
}

void ddp_virtual_destroy(struct ddp_virtual *virtual)
{
	if (!virtual)
		return;
	free(virtual->from);
	free(virtual->to);
	free(virtual->exponents);
	free(virtual);
}

/* --- Pieces of a bucket ------------------------------------------------------------------ */

/* A piece is a whole view of a bucket, including its zero padding, or a part of a view. */
struct piece {
	size_t offset, count; /* position in the bucket, and size, both in elements */
	int32_t *exponent;
};

/* Returns the number of views in all buckets before [bucket]. */
static size_t first_of(const struct ddp_virtual *virtual, size_t bucket)
{
	size_t first = 0;

	for (size_t i = 0; i < bucket; i++)
		first += virtual->layout->buckets[i].members;
	return first;
}

/* Returns view [index], counted in bucket order, as a piece. The view must be in [bucket]. */
static struct piece piece_of(const struct ddp_virtual *virtual, size_t bucket, size_t index)
{
	const struct ddp_bucket *whole = &virtual->layout->buckets[bucket];
	const struct ddp_view *view = &virtual->layout
					       ->views[virtual->layout->view_count - 1 - index];
	size_t step = DDP_VIEW_ALIGNMENT / virtual->size;

	return (struct piece){view->offset - whole->offset, (view->count + step - 1) / step * step,
			      &virtual->exponents[index]};
}

static char *kept_at(const struct ddp_virtual *virtual, size_t which, size_t bucket)
{
	return virtual->kept +
	       (which * virtual->layout->elements + virtual->layout->buckets[bucket].offset) *
		       virtual->size;
}

/*
 * Raise the exponent of each view in [bucket] to the exponent of the view's largest gradient in
 * [from]. Unless [to] is NULL, also copy the bucket from [from] to [to].
 */
static void update_exponents(struct ddp_virtual *virtual, size_t bucket, char *to, const char *from)
{
	size_t first = first_of(virtual, bucket),
	       members = virtual->layout->buckets[bucket].members;

	for (size_t i = first; i < first + members; i++) {
		struct piece piece = piece_of(virtual, bucket, i);
		size_t at = piece.offset * virtual->size;
		double largest = virtual->kernels->largest(to ? to + at : NULL, from + at,
							   piece.count, virtual->type);
		int exponent;

		if (largest == 0)
			continue;
		(void)frexp(largest, &exponent);
		if (exponent > *piece.exponent)
			*piece.exponent = exponent;
	}
}

bool ddp_virtual_is_last(const struct ddp_virtual *virtual)
{
	return virtual->current + 1 == virtual->mine;
}

static const char *at_bucket(const struct ddp_virtual *virtual, size_t bucket, const void *arena)
{
	return (const char *)arena + virtual->layout->buckets[bucket].offset * virtual->size;
}

void ddp_virtual_keep(struct ddp_virtual *virtual, size_t bucket, const void *arena)
{
	update_exponents(virtual, bucket, kept_at(virtual, virtual->current, bucket),
			 at_bucket(virtual, bucket, arena));
}

/* The factor [scale] * 2^[exponent] can be outside of double's range, so it is split into two. */
static void set_factors(double factor[2], double scale, int exponent)
{
	factor[0] = ldexp(scale, exponent / 2);
	factor[1] = ldexp(1, exponent - exponent / 2);
}

/*
 * Returns the exponent of the piece's view. If the view has no exponent, it contains only inf, NaN
 * and zeros. Then any exponent works, and 0 is returned.
 */
static int exponent_of(const struct piece *piece)
{
	return *piece->exponent == INT_MIN ? 0 : *piece->exponent;
}

/* Elements [at] to [end] of a bucket; element [at] is in view [view] or a later one. */
struct stretch {
	size_t at, end, view;
};

/*
 * Remove the next piece from [stretch] and write it to [piece]. A piece is within one view. Returns
 * false if the stretch is empty.
 */
static bool next_piece(const struct ddp_virtual *virtual, size_t bucket, struct stretch *stretch,
		       struct piece *piece)
{
	size_t end;

	if (stretch->at == stretch->end)
		return false;
	for (;; stretch->view++) {
		*piece = piece_of(virtual, bucket, stretch->view);
		end = piece->offset + piece->count;
		if (end > stretch->at)
			break;
	}
	end = end < stretch->end ? end : stretch->end;
	piece->offset = stretch->at;
	piece->count = end - stretch->at;
	stretch->at = end;
	return true;
}

/* --- Sums among the ranks of one host ----------------------------------------------------- */

/*
 * [own_address] is in an arena of this rank. Returns the same place in the arena of member [index].
 */
static char *member_address(const struct ddp_virtual *virtual, const void *own_address, int index)
{
	return ddp_arena_of(virtual->ddp, own_address, index);
}

/*
 * Sum [bucket] in shared memory. Each member reads one equal part of the bucket from all members,
 * sums it, and writes the sums to all members. No barrier is needed before this, because all
 * members' gradients are complete once the all-reduce of the exponents has ended.
 */
static int sum_in_group(struct ddp_virtual *virtual, size_t bucket, char *data, double scale)
{
	size_t count = virtual->layout->buckets[bucket].count,
	       unit = DDP_VIEW_ALIGNMENT / virtual->size;
	const struct ddp_world *world = ddp_world(virtual->ddp);
	size_t members = (size_t)world->size, own = (size_t)world->rank;
	struct stretch stretch = {.at = count / unit * own / members * unit,
				  .end = count / unit * (own + 1) / members * unit,
				  .view = first_of(virtual, bucket)};
	struct piece piece;

	while (next_piece(virtual, bucket, &stretch, &piece)) {
		size_t at = piece.offset * virtual->size, sources = 0;
		double in[2], out[2];

		for (size_t m = 0; m < members; m++) {
			virtual->to[m] = member_address(virtual, data, (int)m) + at;
			virtual->from[sources++] = virtual->to[m];
			for (size_t i = 0; i + 1 < virtual->mine; i++)
				virtual->from[sources++] = member_address(virtual,
									  kept_at(virtual, i,
										  bucket),
									  (int)m) +
							   at;
		}
		set_factors(in, 1, virtual->bits - exponent_of(&piece));
		set_factors(out, scale, exponent_of(&piece) - virtual->bits);
		virtual->kernels->whole(virtual->to, (int)members, virtual->from, (int)sources,
					piece.count, virtual->type, in, out);
	}
	return ddp_barrier(virtual->ddp);
}

/* --- Sums with other groups --------------------------------------------------------------- */

static void enter(const struct ddp_virtual *virtual, size_t bucket, const struct piece *piece,
		  const char *data, double *sums)
{
	size_t at = piece->offset * virtual->size;
	double factor[2];

	set_factors(factor, 1, virtual->bits - exponent_of(piece));
	for (size_t i = 0; i + 1 < virtual->mine; i++)
		virtual->kernels->enter(sums, kept_at(virtual, i, bucket) + at, piece->count,
					virtual->type, factor, i > 0);
	virtual->kernels->enter(sums, data + at, piece->count, virtual->type, factor,
				virtual->mine > 1);
}

static void leave(const struct ddp_virtual *virtual, const struct piece *piece, char *data,
		  const double *sums, double scale)
{
	double factor[2];

	set_factors(factor, scale, exponent_of(piece) - virtual->bits);
	virtual->kernels->leave(data + piece->offset * virtual->size, sums, piece->count,
				virtual->type, factor);
}

static int sum_stretch(struct ddp_virtual *virtual, size_t bucket, struct stretch stretch,
		       char *data, double scale)
{
	struct stretch again = stretch;
	size_t begin = stretch.at;
	struct piece piece;
	int status;

	while (next_piece(virtual, bucket, &stretch, &piece))
		enter(virtual, bucket, &piece, data, virtual->sums + (piece.offset - begin));
	status = ddp_all_reduce(virtual->ddp, virtual->sums, virtual->sums, again.end - begin,
				DDP_F64, DDP_SUM);
	while (status == 0 && next_piece(virtual, bucket, &again, &piece))
		leave(virtual, &piece, data, virtual->sums + (piece.offset - begin), scale);
	return status;
}

static int sum_with_groups(struct ddp_virtual *virtual, size_t bucket, char *data, double scale)
{
	size_t count = virtual->layout->buckets[bucket].count, first = first_of(virtual, bucket);
	int status = 0;

	for (size_t at = 0; status == 0 && at < count; at += virtual->stretch) {
		size_t end = count - at < virtual->stretch ? count : at + virtual->stretch;

		status =
			sum_stretch(virtual, bucket, (struct stretch){at, end, first}, data, scale);
	}
	return status;
}

int ddp_virtual_sum(struct ddp_virtual *virtual, size_t bucket, void *arena, double scale)
{
	const struct ddp_bucket *whole = &virtual->layout->buckets[bucket];
	char *data = (char *)arena + whole->offset * virtual->size;
	int32_t *exponents = virtual->exponents + first_of(virtual, bucket);
	int status;

	update_exponents(virtual, bucket, NULL, data);
	status = ddp_all_reduce(virtual->ddp, exponents, exponents, whole->members, DDP_I32,
				DDP_MAX);
	if (status < 0)
		return status;
	return virtual->sums ? sum_with_groups(virtual, bucket, data, scale)
			     : sum_in_group(virtual, bucket, data, scale);
}

void ddp_virtual_next(struct ddp_virtual *virtual)
{
	if (ddp_virtual_is_last(virtual))
		reset_exponents(virtual);
	virtual->current = (virtual->current + 1) % virtual->mine;
}
