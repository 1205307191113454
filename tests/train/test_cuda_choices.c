/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of convolutions as text: written, found again, joined */
#include "config.h"

#include <stdio.h>

#include "cuda/choices.h"
#include "unit.h"

static const struct conv_options conv2 = {
	.name = "conv2",
	.height = 26,
	.width = 24,
	.in = 32,
	.out = 64,
	.size = 3,
	.stride = 2,
	.pad = 1,
	.bias = true,
	.relu = true,
	.type = DDP_BF16,
};

static const struct choices_place h100 = {9, 0, 91900, (size_t)36 << 20};

/* --- Keys ----------------------------------------------------------------------------------- */

static const struct {
	const char *name, *pass;
	enum ddp_type type;
	bool tf32, deterministic;
	const char *key;
} keys[] = {
	{"bf16", "forward", DDP_BF16, false, false,
	 "forward 64x26x24x32 to 64, 3x3, stride 2, pad 1, bias, ReLU; BF16; sm_90, cuDNN 91900, 36 MiB"},
	{"tf32 is of f32 alone", "forward", DDP_F16, true, false,
	 "forward 64x26x24x32 to 64, 3x3, stride 2, pad 1, bias, ReLU; F16; sm_90, cuDNN 91900, 36 MiB"},
	{"f32", "forward", DDP_F32, false, false,
	 "forward 64x26x24x32 to 64, 3x3, stride 2, pad 1, bias, ReLU; F32; sm_90, cuDNN 91900, 36 MiB"},
	{"tf32", "forward", DDP_F32, true, false,
	 "forward 64x26x24x32 to 64, 3x3, stride 2, pad 1, bias, ReLU; F32 as tf32; sm_90, "
	 "cuDNN 91900, 36 MiB"},
	{"backwards there is no bias", "back-data", DDP_BF16, false, true,
	 "back-data 64x26x24x32 to 64, 3x3, stride 2, pad 1; BF16, deterministic; sm_90, "
	 "cuDNN 91900, 36 MiB"},
};

START_TEST(test_key)
{
	struct conv_options options = conv2;
	char key[CHOICES_KEY];

	options.type = keys[_i].type;
	options.tf32 = keys[_i].tf32;
	options.deterministic = keys[_i].deterministic;
	choices_key(&options, keys[_i].pass, 64, &h100, key);
	unit_text(keys[_i].name, "key", key, keys[_i].key);
}
END_TEST

/* --- Lines ---------------------------------------------------------------------------------- */

/* [plan] is what is found in a file of them, as text; NULL: nothing. */
static const struct {
	const char *name, *choices, *key, *plan;
} finds[] = {
	{"nothing is known", NULL, "k", NULL},
	{"nothing is known yet", "", "k", NULL},
	{"without knobs", "conv2.forward=k: whole 0\n", "k", "whole 0"},
	{"with knobs", "conv2.forward=k: pieces 38 2:1 13:64\n", "k", "pieces 38 2:1 13:64"},
	{"of another layer", "a=k: whole 1\nb.back-data=l: whole 2\n", "l", "whole 2"},
	{"the last is the newest", "a=k: whole 1\nb=k: whole 2\n", "k", "whole 2"},
	{"without the last line's end", "a=k: whole 3", "k", "whole 3"},
	{"large", "a=k: whole 9223372036854775807 0:9223372036854775807\n", "k",
	 "whole 9223372036854775807 0:9223372036854775807"},
	{"too large", "a=k: whole 9223372036854775808\n", "k", NULL},
	{"a key that begins so", "a=kk: whole 1\n", "k", NULL},
	{"a key that ends so", "a=kk: whole 1\n", "kk", "whole 1"},
	{"a key in a name", "k: whole 1\n", "k", NULL},
	{"a key in another line", "a\n=k: whole 1\n", "k", "whole 1"},
	{"a damaged line does not hide one", "a=k: whole 1\nb=k: whole\n", "k", "whole 1"},
	{"choices of CPUs", "conv2 forward winograd, conv2 gradients list", "conv2", NULL},
	{"no form", "a=k: 1\n", "k", NULL},
	{"another form", "a=k: wholes 1\n", "k", NULL},
	{"no engine", "a=k: whole \n", "k", NULL},
	{"a negative engine", "a=k: whole -1\n", "k", NULL},
	{"half a knob", "a=k: whole 1 2\n", "k", NULL},
	{"half a knob more", "a=k: whole 1 2:\n", "k", NULL},
	{"a negative knob", "a=k: whole 1 2:-3\n", "k", NULL},
	{"words behind it", "a=k: whole 1 2:3 slow\n", "k", NULL},
	{"a comma", "a=k: whole 1,2:3\n", "k", NULL},
	{"cut short", "a=k:", "k", NULL},
	{"cut shorter", "a=k", "k", NULL},
};

START_TEST(test_find)
{
	struct choices_plan plan = {.engine = -7};
	char text[CHOICES_PLAN];
	bool found = choices_find(finds[_i].choices, finds[_i].key, &plan);

	unit_number(finds[_i].name, "found", found, finds[_i].plan != NULL);
	if (found) {
		choices_format(&plan, text);
		unit_text(finds[_i].name, "plan", text, finds[_i].plan);
	} else {
		unit_number(finds[_i].name, "engine, untouched", plan.engine, -7);
	}
}
END_TEST

/* More knobs than there is room for are no plan; as many as there is room for are one. */
START_TEST(test_most_knobs)
{
	struct choices_plan plan = {.whole = true, .engine = INT64_MAX}, found;
	char text[CHOICES_PLAN], line[CHOICES_PLAN + 64];

	for (plan.count = 0; plan.count < CHOICES_KNOBS; plan.count++)
		plan.knobs[plan.count] = (struct choices_knob){plan.count, 1 << plan.count % 30};
	choices_format(&plan, text);
	snprintf(line, sizeof(line), "a=k: %s\n", text);
	ck_assert(choices_find(line, "k", &found));
	ck_assert(choices_same(&plan, &found));
	snprintf(line, sizeof(line), "a=k: %s 44:1\n", text);
	ck_assert(!choices_find(line, "k", &found));
}
END_TEST

START_TEST(test_round_trip)
{
	uint64_t state = 20261121;

	for (int round = 0; round < 300; round++) {
		struct choices_plan plan = {.whole = unit_random(&state, 2) != 0,
					    .engine = unit_random(&state, 100),
					    .count = (int)unit_random(&state, 12)};
		struct choices_plan found, other;
		char text[CHOICES_PLAN], line[CHOICES_PLAN + 64];

		for (int i = 0; i < plan.count; i++)
			plan.knobs[i] = (struct choices_knob){unit_random(&state, 44),
							      unit_random(&state, 1u << 31)};
		choices_format(&plan, text);
		snprintf(line, sizeof(line), "layer1.0.conv1.test=a, b; c: %s\n", text);
		ck_assert_msg(choices_find(line, "a, b; c", &found), "%s", line);
		ck_assert_msg(choices_same(&plan, &found), "%s", line);
		other = found;
		other.whole = !other.whole;
		ck_assert(!choices_same(&plan, &other));
		other = found;
		other.engine++;
		ck_assert(!choices_same(&plan, &other));
		other = found;
		other.knobs[other.count++] = (struct choices_knob){0, 0};
		ck_assert(!choices_same(&plan, &other));
		other.count -= 2;
		if (plan.count == 0)
			continue;
		ck_assert(!choices_same(&plan, &other));
		other = found;
		other.knobs[other.count - 1].value++;
		ck_assert(!choices_same(&plan, &other));
	}
}
END_TEST

/* --- Joining -------------------------------------------------------------------------------- */

static const struct {
	const char *name, *old, *more, *joined;
} joins[] = {
	{"nothing", NULL, NULL, ""},
	{"nothing new", "a=k: whole 1\n", NULL, "a=k: whole 1\n"},
	{"the first", NULL, "a=k: whole 1\n", "a=k: whole 1\n"},
	{"another", "a=k: whole 1\n", "a=l: whole 1\n", "a=k: whole 1\na=l: whole 1\n"},
	{"the same again", "a=k: whole 1\n", "a=k: whole 1\n", "a=k: whole 1\n"},
	{"the same of another layer", "a=k: whole 1\n", "b=k: whole 1\n", "a=k: whole 1\n"},
	{"twice in one", NULL, "a=k: whole 1\nb=k: whole 1\n", "a=k: whole 1\n"},
	{"another plan for a key", "a=k: whole 1\n", "a=k: whole 12\n",
	 "a=k: whole 1\na=k: whole 12\n"},
	{"the beginning of a plan", "a=k: whole 12\n", "a=k: whole 1\n",
	 "a=k: whole 12\na=k: whole 1\n"},
	{"a line without an end", "a=k: whole 1", "a=l: whole 1", "a=k: whole 1\na=l: whole 1\n"},
	{"empty lines", "", "\n\na=k: whole 1\n\n", "a=k: whole 1\n"},
};

START_TEST(test_join)
{
	char *text = choices_join(joins[_i].old, joins[_i].more);

	unit_text(joins[_i].name, "text", text, joins[_i].joined);
	free(text);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_key, keys);
	UNIT_ROWS(tcase, test_find, finds);
	tcase_add_test(tcase, test_most_knobs);
	tcase_add_test(tcase, test_round_trip);
	UNIT_ROWS(tcase, test_join, joins);
}

int main(void)
{
	return unit_run("cuda_choices", fill);
}
