/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "base/kernel.h"
#include "unit.h"

enum { SOURCES = 8, TARGETS = 3, LARGEST = 1031, BUFFER_BYTES = (LARGEST + 8) * 8, GUARD = 0x5a };

static const size_t counts[] = {0,  1,	2,  3,	5,   7,	  8,   15,  16,	 17,  31,     32,
				33, 63, 64, 65, 127, 128, 129, 255, 257, 511, LARGEST};

static const char *const type_names[] = {
#define TYPE_NAME(name, bytes, text) #name,
	DDP_TYPE_MAP(TYPE_NAME)
#undef TYPE_NAME
};

static const char *const op_names[] = {"sum", "max", "min"};

/* For inner loops: faster than Check's assertions, which record every call. */
#define REQUIRE(condition, ...)                    \
	do {                                       \
		if (!(condition))                  \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

/*
 * The best instruction set of this CPU. Under valgrind, the best one that valgrind supports. The
 * tests use worse ones too.
 */
static enum ddp_simd best;

/* --- Numbers without the kernels ------------------------------------------------------------ */

static double f16_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);

	if (exponent == 31)
		value = mantissa ? NAN : INFINITY;
	return bits >> 15 ? -value : value;
}

static double bf16_value(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

/* Element [i] of [from] as a double. 64-bit integers in these tests are small enough for that. */
static double get(const void *from, enum ddp_type type, size_t i)
{
	switch (type) {
	case DDP_F32:
		return (double)((const float *)from)[i];
	case DDP_F64:
		return ((const double *)from)[i];
	case DDP_BF16:
		return bf16_value(((const uint16_t *)from)[i]);
	case DDP_F16:
		return f16_value(((const uint16_t *)from)[i]);
	case DDP_I32:
		return ((const int32_t *)from)[i];
	case DDP_I64:
		return (double)((const int64_t *)from)[i];
	default:
		return ((const uint8_t *)from)[i];
	}
}

static void put(void *to, enum ddp_type type, size_t i, double value)
{
	switch (type) {
	case DDP_I32:
		((int32_t *)to)[i] = (int32_t)value;
		break;
	case DDP_I64:
		((int64_t *)to)[i] = (int64_t)value;
		break;
	case DDP_U8:
		((uint8_t *)to)[i] = (uint8_t)value;
		break;
	default:
		ddp_convert((char *)to + i * ddp_type_size(type), type, &value, DDP_F64, 1,
			    DDP_SIMD_PLAIN);
	}
}

/* --- Reductions ----------------------------------------------------------------------------- */

struct arrays {
	_Alignas(64) char from[SOURCES][BUFFER_BYTES], to[TARGETS][BUFFER_BYTES],
		want[BUFFER_BYTES];
};

static bool is_float(enum ddp_type type)
{
	return type < DDP_I32;
}

static int64_t get_integer(const void *from, enum ddp_type type, size_t i)
{
	if (type == DDP_I32)
		return ((const int32_t *)from)[i];
	return type == DDP_I64 ? ((const int64_t *)from)[i] : ((const uint8_t *)from)[i];
}

static void put_integer(void *to, enum ddp_type type, size_t i, int64_t value)
{
	if (type == DDP_I32)
		((int32_t *)to)[i] = (int32_t)value;
	else if (type == DDP_I64)
		((int64_t *)to)[i] = value;
	else
		((uint8_t *)to)[i] = (uint8_t)value;
}

/*
 * Fills the elements with random bits, with numbers between -8 and 8, and with infinities, NaN and
 * the largest numbers of the types.
 */
static void fill(struct arrays *arrays, enum ddp_type type, size_t at, size_t count,
		 uint64_t *state)
{
	static const double specials[] = {INFINITY, -INFINITY, NAN, 65504, -65504, 0x1.fep127};

	for (int s = 0; s < SOURCES; s++)
		for (size_t i = at; i < at + count; i++) {
			double number = ((double)unit_random(state, 1u << 31) - 0x1p30) * 0x1p-27;
			uint64_t bits = (uint64_t)unit_random(state, UINT32_MAX) << 32 |
					unit_random(state, UINT32_MAX);
			uint32_t kind = unit_random(state, 32);

			if (!is_float(type))
				put_integer(arrays->from[s], type, i,
					    (int64_t)(kind % 2 ? bits : bits >> 59));
			else if (kind == 0)
				put(arrays->from[s], type, i,
				    specials[unit_random(state, ROWS(specials))]);
			else if (kind % 2)
				put(arrays->from[s], type, i, number);
			else
				memcpy(arrays->from[s] + i * ddp_type_size(type), &bits,
				       ddp_type_size(type));
		}
}

static void check_guards(const char *row, const struct arrays *arrays, int targets, size_t begin,
			 size_t end)
{
	for (int t = 0; t < targets; t++)
		for (size_t b = 0; b < BUFFER_BYTES; b++)
			REQUIRE((b >= begin && b < end) || arrays->to[t][b] == GUARD,
				"%s: byte %zu of target %d was written, outside of %zu to %zu", row,
				b, t, begin, end);
}

struct shape {
	enum ddp_type type;
	enum ddp_op op;
	enum ddp_simd simd;
	int sources, targets;
	size_t at, count; /* position and number in elements */
	double scale;
};

static void describe_shape(const struct shape *shape, char row[128])
{
	snprintf(row, 128, "%s %s, %s, %d sources, %d targets, %zu from %zu, scale %g",
		 type_names[shape->type], op_names[shape->op], ddp_simd_name(shape->simd),
		 shape->sources, shape->targets, shape->count, shape->at, shape->scale);
}

/*
 * Runs the kernel on [arrays]. Every target must equal [arrays]->want, and all other memory must be
 * unchanged.
 */
static void check_kernel(struct arrays *arrays, const struct shape *shape)
{
	size_t size = ddp_type_size(shape->type), begin = shape->at * size;
	size_t end = begin + shape->count * size;
	const void *from[SOURCES];
	void *to[TARGETS];
	char row[128];

	describe_shape(shape, row);
	memset(arrays->to, GUARD, sizeof(arrays->to));
	for (int s = 0; s < shape->sources; s++)
		from[s] = arrays->from[s] + begin;
	for (int t = 0; t < shape->targets; t++)
		to[t] = arrays->to[t] + begin;
	/* The last target array is also the last source array. */
	memcpy(to[shape->targets - 1], from[shape->sources - 1], end - begin);
	from[shape->sources - 1] = to[shape->targets - 1];
	ddp_kernel_get(shape->type, shape->op, shape->simd)(
		to, shape->targets, from, shape->sources, shape->count, shape->scale);
	check_guards(row, arrays, shape->targets, begin, end);
	for (int t = 0; t < shape->targets; t++)
		for (size_t i = 0; i < shape->count; i++) {
			const char *got = (char *)to[t] + i * size;
			const char *want = arrays->want + begin + i * size;
			bool both_nan = is_float(shape->type) && isnan(get(got, shape->type, 0)) &&
					isnan(get(want, shape->type, 0));

			REQUIRE(both_nan || memcmp(got, want, size) == 0,
				"%s: element %zu of target %d is %g, want %g", row, i, t,
				get(got, shape->type, 0), get(want, shape->type, 0));
		}
}

/* Integer sums wrap around on overflow, and comparisons are signed. */
static int64_t combine_integers(enum ddp_op op, int64_t a, int64_t b)
{
	if (op == DDP_SUM)
		return (int64_t)((uint64_t)a + (uint64_t)b);
	return (op == DDP_MAX) == (b > a) ? b : a;
}

/* A sum of f64 is computed in double, all others in float. If an operand is NaN, so is the result. */
static double combine(enum ddp_op op, enum ddp_type type, double a, double b)
{
	volatile float single = (float)a + (float)b;

	if (isnan(a) || isnan(b))
		return NAN;
	if (op == DDP_SUM)
		return type == DDP_F64 ? a + b : (double)single;
	return (op == DDP_MAX) == (b > a) ? b : a;
}

/*
 * Computes the expected results without vectors. Sources are combined in order, and the result is
 * rounded once.
 */
static void compute_want(struct arrays *arrays, const struct shape *shape)
{
	enum ddp_type type = shape->type;

	for (size_t i = shape->at; i < shape->at + shape->count; i++) {
		int64_t integer = is_float(type) ? 0 : get_integer(arrays->from[0], type, i);
		double value = get(arrays->from[0], type, i);
		volatile float single;

		for (int s = 1; s < shape->sources; s++) {
			if (is_float(type))
				value = combine(shape->op, type, value,
						get(arrays->from[s], type, i));
			else
				integer = combine_integers(shape->op, integer,
							   get_integer(arrays->from[s], type, i));
		}
		single = (float)value * (float)shape->scale;
		if (shape->op == DDP_SUM)
			value = type == DDP_F64 ? value * shape->scale : (double)single;
		if (is_float(type))
			put(arrays->want, type, i, value);
		else
			put_integer(arrays->want, type, i, integer);
	}
}

TEST_LOOP(test_reductions, 0, (int)DDP_TYPE_COUNT *DDP_OP_COUNT)
{
	static struct arrays arrays;
	struct shape shape = {.type = (enum ddp_type)(_i / DDP_OP_COUNT),
			      .op = (enum ddp_op)(_i % DDP_OP_COUNT)};
	uint64_t state = 0x9e3779b97f4a7c15;

	for (int c = 0; c < ROWS(counts); c++)
		for (int i = 0; i < 3; i++) {
			shape.count = counts[c];
			shape.at = (size_t)i * 3;
			shape.sources = 1 + (3 * c + i) % SOURCES;
			shape.targets = 1 + i;
			shape.scale = i == 1 ? 1.0 / 3 : 1;
			fill(&arrays, shape.type, shape.at, shape.count, &state);
			compute_want(&arrays, &shape);
			for (shape.simd = 0; shape.simd <= best; shape.simd++)
				check_kernel(&arrays, &shape);
		}
}

/* --- Conversions ---------------------------------------------------------------------------- */

enum { ALL = 65536 };

static const enum ddp_type halves[] = {DDP_BF16, DDP_F16};

/* Every 16-bit value is exact in f32 and has the same bits after conversion back. */
TEST_ROWS(test_widen, halves)
{
	static uint16_t bits[ALL], back[ALL];
	static float wide[ALL], plain[ALL];
	enum ddp_type type = halves[_i];
	uint16_t quiet = type == DDP_F16 ? 0x0200 : 0x0040;

	for (int i = 0; i < ALL; i++)
		bits[i] = (uint16_t)i;
	ddp_convert(plain, DDP_F32, bits, type, ALL, DDP_SIMD_PLAIN);
	for (enum ddp_simd simd = 0; simd <= best; simd++) {
		ddp_convert(wide, DDP_F32, bits, type, ALL, simd);
		ddp_convert(back, type, wide, DDP_F32, ALL, simd);
		REQUIRE(memcmp(wide, plain, sizeof(wide)) == 0, "%s differs from plain",
			ddp_simd_name(simd));
		for (size_t i = 0; i < ALL; i++) {
			double want = get(bits, type, i);
			uint16_t same = isnan(want) ? bits[i] | quiet : bits[i];

			REQUIRE((double)wide[i] == want || (isnan(wide[i]) && isnan(want)),
				"%s %04zx is %g, want %g", type_names[type], i, (double)wide[i],
				want);
			REQUIRE(back[i] == same, "%s %04zx comes back as %04x", type_names[type], i,
				back[i]);
		}
	}
}

static float add_ulps(float value, int steps)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits += (uint32_t)steps;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/*
 * Rounding between two neighbouring values: a number just below the middle rounds down, one just
 * above rounds up, and the middle rounds to the even value. The value after the largest one is
 * infinity.
 */
TEST_ROWS(test_narrow, halves)
{
	enum ddp_type type = halves[_i];
	uint16_t infinite = type == DDP_F16 ? 0x7c00 : 0x7f80;
	uint16_t got[6];

	for (enum ddp_simd simd = 0; simd <= best; simd++)
		for (uint16_t low = 0; low < infinite; low++) {
			double below = get(&low, type, 0), above;
			uint16_t high = (uint16_t)(low + 1), even = low & 1 ? high : low;
			float in[6];
			double between[3];

			above = high < infinite ? get(&high, type, 0)
						: 2 * below - get(&(uint16_t){(uint16_t)(low - 1)},
								  type, 0);
			in[1] = (float)((below + above) / 2);
			in[0] = add_ulps(in[1], -1);
			in[2] = add_ulps(in[1], 1);
			for (int i = 0; i < 3; i++) {
				in[3 + i] = -in[i];
				between[i] = (double)in[i];
			}
			REQUIRE(between[0] > below && between[2] < above, "%04x", low);
			ddp_convert(got, type, in, DDP_F32, 6, simd);
			for (int i = 0; i < 6; i++) {
				uint16_t want = i % 3 == 0 ? low : i % 3 == 1 ? even : high;

				want |= i < 3 ? 0 : 0x8000;
				REQUIRE(got[i] == want, "%s, %s: %a is %04x, want %04x",
					type_names[type], ddp_simd_name(simd), (double)in[i],
					got[i], want);
			}
		}
}

static const struct {
	enum ddp_type type;
	double value;
	uint16_t want;
} singles[] = {
	{DDP_BF16, 1, 0x3f80},
	{DDP_BF16, 0x1.01p0, 0x3f80}, /* a middle, rounded to even */
	/* if it were first rounded to f32, it would become a middle */
	{DDP_BF16, 0x1.0100000000001p0, 0x3f81},
	{DDP_BF16, 0x1.02fffffffffffp0, 0x3f81}, /* the same, just below the middle */
	{DDP_BF16, 0x1p-133, 0x0001},
	{DDP_BF16, 0x1p-134, 0x0000},
	{DDP_BF16, 0x1.8p-134, 0x0001},
	{DDP_BF16, 1e300, 0x7f80},
	{DDP_BF16, -1e300, 0xff80},
	{DDP_F16, 0x1.002p0, 0x3c00},
	{DDP_F16, 0x1.0020000000001p0, 0x3c01},
	{DDP_F16, 65519.999999, 0x7bff},
	{DDP_F16, 65520, 0x7c00},
	{DDP_F16, 0x1p-25, 0x0000},
	{DDP_F16, 0x1.000000000001p-25, 0x0001},
	{DDP_F16, -0.0, 0x8000},
};

/* Conversion from f64 rounds once. */
TEST_ROWS(test_from_f64, singles)
{
	uint16_t got[3] = {0};
	double in[3] = {0, singles[_i].value, 0};

	for (enum ddp_simd simd = 0; simd <= best; simd++) {
		ddp_convert(got, singles[_i].type, in, DDP_F64, 3, simd);
		REQUIRE(got[1] == singles[_i].want, "%s, %s: %a is %04x, want %04x",
			type_names[singles[_i].type], ddp_simd_name(simd), in[1], got[1],
			singles[_i].want);
	}
}

/* All lengths, and all pairs of floating types. A kernel must not write beyond the end. */
TEST(test_lengths)
{
	static const enum ddp_type types[] = {DDP_F32, DDP_F64, DDP_BF16, DDP_F16};
	enum { N = 600 };
	_Alignas(8) static char from[N * 8], to[N * 8];

	for (int pair = 0; pair < 16; pair++)
		for (size_t count = 0; count < N; count += 1 + count / 4) {
			enum ddp_type a = types[pair / 4], b = types[pair % 4];
			size_t end = count * ddp_type_size(b);

			for (size_t i = 0; i < count; i++)
				put(from, a, i, (double)(i % 100) - 50);
			memset(to, GUARD, sizeof(to));
			ddp_convert(to, b, from, a, count, best);
			for (size_t i = 0; i < count; i++)
				REQUIRE(get(to, b, i) == (double)(i % 100) - 50,
					"%s to %s, element %zu of %zu", type_names[a],
					type_names[b], i, count);
			for (; end < sizeof(to); end++)
				REQUIRE(to[end] == GUARD, "byte %zu", end);
		}
}

/* --- Choosing ------------------------------------------------------------------------------- */

TEST(test_choose)
{
	enum ddp_simd simd = DDP_SIMD_COUNT;
	struct ddp_error error = {0};

	for (enum ddp_simd asked = 0; asked < DDP_SIMD_COUNT; asked++) {
		int status;

		setenv("DDP_SIMD", ddp_simd_name(asked), 1);
		status = ddp_simd_choose(&simd, &error);
		if (asked <= best) {
			ck_assert_int_eq(status, 0);
			ck_assert_int_eq(simd, asked);
		} else if (status < 0) {
			ck_assert_int_eq(status, DDP_ERR_ENVIRONMENT);
			ck_assert(strstr(error.text, "this CPU does not support DDP_SIMD="));
		}
	}
	setenv("DDP_SIMD", "mmx", 1);
	ck_assert_int_eq(ddp_simd_choose(&simd, &error), DDP_ERR_ENVIRONMENT);
	ck_assert_str_eq(error.text, "DDP_SIMD=mmx is not one of plain, avx2, avx512");
	unsetenv("DDP_SIMD");
	ck_assert_int_eq(ddp_simd_choose(&simd, &error), 0);
	ck_assert_int_ge(simd, best);
}

int main(void)
{
	if (ddp_simd_choose(&best, NULL) < 0)
		return EXIT_FAILURE;
	return unit_run("kernel", NULL);
}
