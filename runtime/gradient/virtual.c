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

/* Doubles that go to other groups at a time: where few of them are on the way in a call, it waits for each. */
enum { STRETCH = 1 << 20 };

struct ddp_virtual {
	struct ddp *ddp;
	const struct ddp_layout *layout;
	const struct ddp_kernel_table *kernels;
	enum ddp_type type;
	size_t size;	/* of an element */
	size_t mine;	/* virtual ranks of this rank */
	size_t current; /* of these */
	int bits;	/* of a gradient as a whole number */
	char *kept; /* an arena for gradients of all but the last one, as their arena has them */
	size_t stretch;	   /* elements that are summed at a time with other groups, */
	double *sums;	   /* and an arena for them; NULL: there is no other group */
	const void **from; /* what a group of one host adds, and where it puts the sums */
	void **to;
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

/* An arena even for nothing. */
static int reserve(struct ddp *ddp, size_t bytes, void **memory)
{
	return ddp_arena_create(ddp, bytes ? bytes : DDP_VIEW_ALIGNMENT, memory);
}

int ddp_virtual_create(struct ddp_virtual **result, struct ddp *ddp,
		       const struct ddp_layout *layout, enum ddp_type type, size_t ranks)
{
	size_t size = (size_t)ddp->world.size, largest = ddp_layout_largest(layout);
	struct ddp_virtual *it = NULL;
	void *kept = NULL, *sums = NULL;
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
	it->stretch = largest < STRETCH ? largest : STRETCH;
	it->exponents = calloc(layout->view_count, sizeof(*it->exponents));
	it->from = calloc(ranks, sizeof(*it->from));
	it->to = calloc(size, sizeof(*it->to));
	if (!it->exponents || !it->from || !it->to)
		goto memory;
	forget(it);
	*result = it;
	status = reserve(ddp, (it->mine - 1) * layout->elements * it->size, &kept);
	if (status == 0 && ddp->engine)
		status = reserve(ddp, it->stretch * sizeof(double), &sums);
	it->kept = kept;
	it->sums = sums;
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
	free(it->from);
	free(it->to);
	free(it->exponents);
	free(it);
}

/* --- A bucket ---------------------------------------------------------------------------- */

/* A view of a bucket, with what lies between it and the next one, which is zero; or some of that. */
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

/* Some of a bucket: elements [at] to [end]; the view that has the first one is [view] or a later one. */
struct stretch {
	size_t at, end, view;
};

/* Whether there is more of a stretch: then the next [piece] of it, and what is left is behind that. */
static bool take(const struct ddp_virtual *it, size_t bucket, struct stretch *stretch,
		 struct piece *piece)
{
	size_t end;

	if (stretch->at == stretch->end)
		return false;
	for (;; stretch->view++) {
		*piece = piece_of(it, bucket, stretch->view);
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

/* --- Among ranks of one host -------------------------------------------------------------- */

/* Where member [index] has what this one has at [here] in an arena. */
static char *of_member(const struct ddp_virtual *it, const void *here, int index)
{
	size_t at;
	struct ddp_region *region = ddp_region_find(it->ddp->group, here, 1, &at);

	return (char *)ddp_region_part(region, index) + at;
}

/*
 * Each member adds an equal part of the bucket, all members' gradients there, and writes the sums to all. That the
 * others are ready to be read they have told with their exponents.
 */
static int sum_here(struct ddp_virtual *it, size_t bucket, char *data, double scale)
{
	size_t count = it->layout->buckets[bucket].count, unit = DDP_VIEW_ALIGNMENT / it->size;
	size_t members = (size_t)it->ddp->world.size, own = (size_t)it->ddp->world.rank;
	struct stretch stretch = {.at = count / unit * own / members * unit,
				  .end = count / unit * (own + 1) / members * unit,
				  .view = first_of(it, bucket)};
	struct piece piece;

	while (take(it, bucket, &stretch, &piece)) {
		size_t at = piece.offset * it->size, sources = 0;
		double in[2], out[2];

		for (size_t m = 0; m < members; m++) {
			it->to[m] = of_member(it, data, (int)m) + at;
			it->from[sources++] = it->to[m];
			for (size_t i = 0; i + 1 < it->mine; i++)
				it->from[sources++] =
					of_member(it, kept_at(it, i, bucket), (int)m) + at;
		}
		set_factors(in, 1, it->bits - exponent_of(&piece));
		set_factors(out, scale, exponent_of(&piece) - it->bits);
		it->kernels->whole(it->to, (int)members, it->from, (int)sources, piece.count,
				   it->type, in, out);
	}
	return ddp_barrier(it->ddp);
}

/* --- With other groups -------------------------------------------------------------------- */

static void enter(const struct ddp_virtual *it, size_t bucket, const struct piece *piece,
		  const char *data, double *sums)
{
	size_t at = piece->offset * it->size;
	double factor[2];

	set_factors(factor, 1, it->bits - exponent_of(piece));
	for (size_t i = 0; i + 1 < it->mine; i++)
		it->kernels->enter(sums, kept_at(it, i, bucket) + at, piece->count, it->type,
				   factor, i > 0);
	it->kernels->enter(sums, data + at, piece->count, it->type, factor, it->mine > 1);
}

static void leave(const struct ddp_virtual *it, const struct piece *piece, char *data,
		  const double *sums, double scale)
{
	double factor[2];

	set_factors(factor, scale, exponent_of(piece) - it->bits);
	it->kernels->leave(data + piece->offset * it->size, sums, piece->count, it->type, factor);
}

static int sum_stretch(struct ddp_virtual *it, size_t bucket, struct stretch stretch, char *data,
		       double scale)
{
	struct stretch again = stretch;
	size_t begin = stretch.at;
	struct piece piece;
	int status;

	while (take(it, bucket, &stretch, &piece))
		enter(it, bucket, &piece, data, it->sums + (piece.offset - begin));
	status = ddp_all_reduce(it->ddp, it->sums, it->sums, again.end - begin, DDP_F64, DDP_SUM);
	while (status == 0 && take(it, bucket, &again, &piece))
		leave(it, &piece, data, it->sums + (piece.offset - begin), scale);
	return status;
}

static int sum_there(struct ddp_virtual *it, size_t bucket, char *data, double scale)
{
	size_t count = it->layout->buckets[bucket].count, first = first_of(it, bucket);
	int status = 0;

	for (size_t at = 0; status == 0 && at < count; at += it->stretch) {
		size_t end = count - at < it->stretch ? count : at + it->stretch;

		status = sum_stretch(it, bucket, (struct stretch){at, end, first}, data, scale);
	}
	return status;
}

int ddp_virtual_sum(struct ddp_virtual *it, size_t bucket, void *arena, double scale)
{
	const struct ddp_bucket *whole = &it->layout->buckets[bucket];
	char *data = (char *)arena + whole->offset * it->size;
	int32_t *exponents = it->exponents + first_of(it, bucket);
	int status;

	look(it, bucket, NULL, data);
	status = ddp_all_reduce(it->ddp, exponents, exponents, whole->members, DDP_I32, DDP_MAX);
	if (status < 0)
		return status;
	return it->sums ? sum_there(it, bucket, data, scale) : sum_here(it, bucket, data, scale);
}

void ddp_virtual_next(struct ddp_virtual *it)
{
	if (ddp_virtual_is_last(it))
		forget(it);
	it->current = (it->current + 1) % it->mine;
}
