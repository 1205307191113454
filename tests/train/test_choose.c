/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_choose.c - choice of algorithms by a rule, which all ranks follow alike
 *
 * The library of these tests has the plain loops, and algorithms with names of oneDNN that do the
 * same, and records which of them are chosen.
 */
#include "config.h"

#include "base/type.h"
#include "networks.h"
#include "ranks.h"
#include "workshop.h"

/* --- Library ---------------------------------------------------------------------------------- */

static const char *const algorithms[] = {"direct", "direct2", "blocked", "columns", "winograd"};

static struct {
	const char *describe;
	int count;	 /* of algorithms */
	char chosen[64]; /* algorithms in the order of layers and passes */
} library;

static const char *describe(void)
{
	return library.describe;
}

static bool has_any(enum ddp_type type, struct ddp_error *error)
{
	(void)type, (void)error;
	return true;
}

static int count_algorithms(const struct math_layer *layer, enum math_pass pass)
{
	(void)layer, (void)pass;
	return library.count;
}

static const char *name_algorithm(const struct math_layer *layer, enum math_pass pass, int number)
{
	(void)layer, (void)pass;
	return algorithms[number];
}

static void choose(struct math_layer *layer, enum math_pass pass, int number)
{
	size_t length = strlen(library.chosen);

	(void)layer, (void)pass;
	snprintf(library.chosen + length, sizeof(library.chosen) - length, "%s%s",
		 length > 0 ? " " : "", algorithms[number]);
}

static struct math make_library(const char *describes, int count)
{
	struct math math = math_plain;

	library.describe = describes;
	library.count = count;
	library.chosen[0] = '\0';
	math.describe = describe;
	math.has = has_any;
	math.algorithms = count_algorithms;
	math.algorithm = name_algorithm;
	math.choose = choose;
	return math;
}

/* --- Rule ------------------------------------------------------------------------------------- */

#define SHAPE(image, in_, out_, window, step, pad_, first_) \
	.layer = {.height = (image),                        \
		  .width = (image),                         \
		  .in = (in_),                              \
		  .out = (out_),                            \
		  .size = (window),                         \
		  .stride = (step),                         \
		  .pad = (pad_),                            \
		  .first = (first_)}

/* Algorithms of the passes forward, data and weights, for each level and type. */
static const struct {
	const char *name;
	struct math_options layer;
	const char *f32[3];  /* by level */
	const char *bf16[2]; /* AVX512, AMX */
} rules[] = {
	{"mnist conv1",
	 SHAPE(28, 1, 32, 3, 1, 0, true),
	 {"direct direct", "direct direct", "direct direct"},
	 {"direct direct", "direct2 direct2"}},
	{"mnist conv2",
	 SHAPE(26, 32, 64, 3, 1, 0, false),
	 {"direct direct direct", "winograd winograd winograd", "winograd winograd winograd"},
	 {"direct direct direct", "direct direct direct"}},
	{"cifar conv1",
	 SHAPE(32, 3, 64, 3, 1, 1, true),
	 {"direct direct", "direct direct", "direct direct"},
	 {"direct direct", "direct direct"}},
	{"cifar layer1",
	 SHAPE(32, 64, 64, 3, 1, 1, false),
	 {"direct direct direct", "winograd winograd winograd", "winograd winograd winograd"},
	 {"direct direct direct", "direct direct direct"}},
	{"cifar layer3.0.conv1",
	 SHAPE(16, 128, 256, 3, 2, 1, false),
	 {"direct direct direct", "direct direct direct", "direct direct direct"},
	 {"direct direct direct", "direct direct columns"}},
	{"cifar layer3.0.downsample",
	 SHAPE(16, 128, 256, 1, 2, 0, false),
	 {"direct direct direct", "direct direct direct", "direct direct direct"},
	 {"direct direct direct", "direct columns columns"}},
	{"cifar layer4.0.conv1",
	 SHAPE(8, 256, 512, 3, 2, 1, false),
	 {"columns columns columns", "blocked blocked columns", "blocked blocked columns"},
	 {"blocked blocked columns", "columns columns columns"}},
	{"cifar layer4.0.conv2",
	 SHAPE(4, 512, 512, 3, 1, 1, false),
	 {"columns columns columns", "winograd winograd winograd", "winograd winograd winograd"},
	 {"blocked blocked columns", "columns columns columns"}},
};

static void check_rule(int row, enum ddp_type type, size_t batch, enum choose_level level,
		       const char *want)
{
	struct math_options layer = rules[row].layer;
	bool winograd = type == DDP_F32 && layer.size == 3 && layer.stride == 1;
	struct math math = make_library("", winograd ? 5 : 4);
	char got[64] = "";

	layer.type = type;
	layer.batch = batch;
	for (enum math_pass pass = MATH_FORWARD; pass < MATH_PASSES; pass++) {
		int number;

		if (pass == MATH_BACK_DATA && layer.first)
			continue;
		number = choose_algorithm(&math, NULL, &layer, pass, level);
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", *got ? " " : "",
			 algorithms[number]);
	}
	unit_text(rules[row].name, ddp_type_name(type), got, want);
}

TEST_ROWS(test_rule, rules)
{
	for (enum choose_level level = CHOOSE_AVX2; level <= CHOOSE_AMX; level++)
		check_rule(_i, DDP_F32, 64, level, rules[_i].f32[level]);
	for (enum choose_level level = CHOOSE_AVX512; level <= CHOOSE_AMX; level++)
		check_rule(_i, DDP_BF16, 64, level, rules[_i].bf16[level - CHOOSE_AVX512]);
}

/* In a small batch, the last convolutions of cifar have too few pixels for Winograd. */
TEST(test_small_batch)
{
	check_rule(ROWS(rules) - 1, DDP_F32, 16, CHOOSE_AVX512, "blocked blocked columns");
}

/* --- Engine ----------------------------------------------------------------------------------- */

/* Opens an engine and checks the algorithms and the lists that it chooses. */
static void expect(const char *describes, int count, enum ddp_type type, bool exact,
		   const char *want, int lists)
{
	struct math math = make_library(describes, count);
	struct workshop shop;
	int found = 0;

	workshop_open(&shop, &like_mnist);
	shop.setup.type = type;
	shop.setup.exact = exact;
	workshop_engine(&shop, &math);
	for (int i = 0; i < shop.engine->program->op_count; i++)
		found += shop.engine->program->ops[i].listed;
	unit_text(describes, ddp_type_name(type), library.chosen, want);
	unit_number(describes, "lists", found, lists);
	workshop_close(&shop);
}

static const struct {
	const char *describe;
	int count; /* of algorithms */
	enum ddp_type type;
	bool exact;
	/*
	 * of conv0: forward, weights; of conv1: forward, data, weights; of conv2: forward and,
	 * without a list, data, weights
	 */
	const char *want;
	int lists;
} choices[] = {
	{"plain C", 5, DDP_F32, false, "direct direct direct direct direct direct", 1},
	{"oneDNN, AVX2", 5, DDP_F32, false, "direct direct direct direct direct direct", 1},
	{"oneDNN, AVX512_CORE", 5, DDP_F32, false, "direct direct direct direct direct winograd",
	 1},
	{"oneDNN, AVX10_1_512", 5, DDP_F32, false, "direct direct direct direct direct winograd",
	 1},
	{"oneDNN, AVX512_CORE_AMX", 5, DDP_F32, false,
	 "direct direct direct direct direct winograd", 1},
	{"oneDNN, AVX512_CORE_AMX", 5, DDP_F32, true, "", 0},
	{"oneDNN, AVX512_CORE_BF16", 4, DDP_BF16, false,
	 "direct direct direct direct direct direct", 1},
	{"oneDNN, AVX512_CORE_AMX", 4, DDP_BF16, false,
	 "direct2 direct2 direct direct direct direct direct direct", 0},
	/* a library without Winograd, and one with a single algorithm */
	{"oneDNN, AVX512_CORE_AMX", 4, DDP_F32, false, "direct direct direct direct direct direct",
	 1},
	{"oneDNN, AVX512_CORE_AMX", 1, DDP_BF16, false,
	 "direct direct direct direct direct direct direct direct", 0},
};

TEST_ROWS(test_engine, choices)
{
	expect(choices[_i].describe, choices[_i].count, choices[_i].type, choices[_i].exact,
	       choices[_i].want, choices[_i].lists);
}

/* All ranks follow the rule for the fewest instructions. */
static int alike(int rank)
{
	(void)rank;
	expect("oneDNN, AVX512_CORE_AMX", 5, DDP_F32, false,
	       "direct direct direct direct direct winograd", 1);
	return 0;
}

static int apart(int rank)
{
	expect(rank == 1 ? "oneDNN, AVX2" : "oneDNN, AVX512_CORE", 5, DDP_F32, false,
	       "direct direct direct direct direct direct", 1);
	return 0;
}

TEST(test_ranks)
{
	ranks_run("2", alike);
	ranks_run("2", apart);
}

UNIT_MAIN("choose", NULL)
