/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that adds the memory of ranks that share a GPU, against the CPU's own of local/kernel.h: to the bit. */
#include "arrays.h"
#include "device/sum.h"
#include "local/kernel.h"

enum { MOST = DDP_SHARD_SOURCES, GUARD = 5 };

static const struct {
	const char *name;
	enum ddp_type type;
} types[] = {
#define ROW(type, bytes, text) {text, DDP_##type},
	DDP_TYPE_MAP(ROW)
#undef ROW
};

static const char *const ops[] = {[DDP_SUM] = "sum", [DDP_MAX] = "max", [DDP_MIN] = "min"};

/* Around a pack of each type, around GROUP sources, and more than a grid of one processor does at once. */
static const size_t counts[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 255, 1024, 1029};
static const int ranks[] = {1, 2, 3, 4, 5, 8, 9, 64};

/* --- Data --------------------------------------------------------------------------------------- */

/* What compares, adds or rounds like nothing else, among numbers of all sizes. */
static double rare(uint64_t *random)
{
	const double numbers[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0,
				  -0.0,	       0x1p-149,	 0x1p-24,	    65504,
				  0x1p127};

	return draw(random, 20)
		       ? ldexp((double)draw(random, 1 << 24) - (1 << 23), (int)draw(random, 8) - 23)
		       : numbers[draw(random, ROWS(numbers))];
}

static void fill(unsigned char *bytes, size_t count, enum ddp_type type, uint64_t *random)
{
	size_t size = ddp_type_size(type);

	for (size_t i = 0; i < count; i++) {
		double number = rare(random);
		float narrow = (float)number;
		uint16_t half = bits16((float)rounded(number, type), type);
		uint64_t any = (uint64_t)draw(random, UINT32_MAX) << 32 | draw(random, UINT32_MAX);
		const void *from = type == DDP_F64			 ? (const void *)&number
				   : type == DDP_F32			 ? (const void *)&narrow
				   : type == DDP_BF16 || type == DDP_F16 ? (const void *)&half
									 : (const void *)&any;

		memcpy(bytes + i * size, from, size);
	}
}

static bool is_nan(const unsigned char *bytes, enum ddp_type type)
{
	uint16_t half;
	double number;
	float narrow;

	memcpy(&half, bytes, sizeof(half));
	if (type == DDP_F32)
		memcpy(&narrow, bytes, sizeof(narrow));
	else
		narrow = type == DDP_BF16 || type == DDP_F16 ? value16(half, type) : 0;
	if (type != DDP_F64)
		return isnan(narrow);
	memcpy(&number, bytes, sizeof(number));
	return isnan(number);
}

/* The first element that differs, [count]: none. A NaN is like any other. */
static size_t compare(const unsigned char *got, const unsigned char *want, size_t count,
		      enum ddp_type type)
{
	size_t size = ddp_type_size(type);

	for (size_t i = 0; i < count; i++)
		if (memcmp(got + i * size, want + i * size, size) != 0 &&
		    !(is_nan(got + i * size, type) && is_nan(want + i * size, type)))
			return i;
	return count;
}

/* --- One sum ------------------------------------------------------------------------------------ */

/* Which arrays are written: all sources, the first, or one that is none. */
enum place { ALL, FIRST, APART, PLACES };

static const char *const places[] = {"into all", "into the first", "apart"};

struct sum {
	enum ddp_type type;
	enum ddp_op op;
	enum place place;
	int sources, targets;
	size_t count, guard; /* elements; and behind them, which stay */
	size_t skews[MOST + 1];
	unsigned char *host[MOST + 1];
	void *memory[MOST + 1];
};

static void make(struct sum *sum, uint64_t *random)
{
	size_t size = ddp_type_size(sum->type), all;

	sum->targets = sum->place == ALL ? sum->sources : 1;
	for (int s = 0; s <= sum->sources; s++) {
		all = sum->skews[s] + sum->count + sum->guard;
		sum->host[s] = malloc(all * size);
		fill(sum->host[s], all, sum->type, random);
		sum->memory[s] = bytes_make(all * size, sum->host[s]);
	}
}

static int target_of(const struct sum *sum, int target)
{
	return sum->place == APART ? sum->sources : target;
}

static void do_both(struct sum *sum, int processors)
{
	void *to[MOST], *plain_to[MOST];
	const void *from[MOST], *plain_from[MOST];
	size_t size = ddp_type_size(sum->type);

	for (int s = 0; s < sum->sources; s++) {
		from[s] = (char *)sum->memory[s] + sum->skews[s] * size;
		plain_from[s] = sum->host[s] + sum->skews[s] * size;
	}
	for (int t = 0; t < sum->targets; t++) {
		int at = target_of(sum, t);

		to[t] = (char *)sum->memory[at] + sum->skews[at] * size;
		plain_to[t] = sum->host[at] + sum->skews[at] * size;
	}
	ddp_shard_kernel_sum(arrays_stream, processors, to, sum->targets, from, sum->sources,
			     sum->count, sum->type, sum->op);
	ddp_kernel_get(sum->type, sum->op, DDP_SIMD_PLAIN)(plain_to, sum->targets, plain_from,
							   sum->sources, sum->count, 1);
}

static void compare_all(const struct sum *sum)
{
	size_t size = ddp_type_size(sum->type), all, at;
	struct ddp_error error = {0, ""};
	unsigned char *got;

	arrays_check(device_check(arrays_device, "the sum", &error), &error);
	for (int s = 0; s <= sum->sources; s++) {
		all = sum->skews[s] + sum->count + sum->guard;
		got = malloc(all * size);
		bytes_fetch(got, sum->memory[s], all * size);
		at = compare(got, sum->host[s], all, sum->type);
		if (at < all && !arrays_wrong[0])
			snprintf(
				arrays_wrong, sizeof(arrays_wrong),
				"%d sources of %zu, %s: array %d differs at %zu (the first is %zu)",
				sum->sources, sum->count, places[sum->place], s, at, sum->skews[s]);
		free(got);
	}
}

static void check(struct sum *sum, int processors, uint64_t *random)
{
	make(sum, random);
	do_both(sum, processors);
	compare_all(sum);
	for (int s = 0; s <= sum->sources; s++) {
		device_free(arrays_device, sum->memory[s]);
		free(sum->host[s]);
	}
}

/* --- Many --------------------------------------------------------------------------------------- */

/* All arrays alike, or each for itself: [skew] elements, at most 15, behind a multiple of 16 bytes. */
static void skew(struct sum *sum, size_t by, bool alike, uint64_t *random)
{
	for (int s = 0; s <= sum->sources; s++)
		sum->skews[s] = alike ? by : draw(random, 4);
}

static void test_counts(enum ddp_type type, const char *name, enum ddp_op op)
{
	uint64_t random = arrays_seed + type * 8 + op;

	for (int c = 0; c < ROWS(counts); c += arrays_stride()) {
		for (int r = 0; r < ROWS(ranks); r++) {
			struct sum sum = {.type = type, .op = op, .sources = ranks[r]};

			sum.count = counts[c];
			sum.guard = draw(&random, 2) * GUARD;
			sum.place = (enum place)draw(&random, PLACES);
			skew(&sum, draw(&random, 2) * draw(&random, 16), draw(&random, 4) > 0,
			     &random);
			check(&sum, (int)draw(&random, 200) + 1, &random);
		}
	}
	array_row("%s of %s: 1 to 64 ranks, 1 to %zu elements, aligned and not", ops[op], name,
		  counts[ROWS(counts) - 1]);
}

/* More than the grid has threads. */
static void test_rounds(enum ddp_type type, const char *name)
{
	uint64_t random = arrays_seed + type;

	for (enum place place = ALL; place < PLACES; place++) {
		struct sum sum = {.type = type, .place = place, .sources = 2 + (int)place};

		sum.count = 3 * 16 * 256 * 16 / ddp_type_size(type) + 3;
		skew(&sum, 1, place != FIRST, &random);
		check(&sum, 1, &random);
	}
	array_row("sum of %s: three rounds of a grid, %s", name, "into all, into the first, apart");
}

int main(void)
{
	if (!arrays_begin("the kernel of shared GPUs"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(types); t++) {
		for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++)
			test_counts(types[t].type, types[t].name, op);
		test_rounds(types[t].type, types[t].name);
	}
	return arrays_end();
}
