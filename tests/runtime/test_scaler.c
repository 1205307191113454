/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include <ddp.h>

#include "unit.h"

/* One update of PyTorch's _amp_update_scale_ by hand. */
static const struct {
	const char *name;
	struct ddp_scaler before;
	bool found;
	float scale;
	int32_t good;
} updates[] = {
	{"a good step", {65536, 2, 0.5, 2000, 0}, false, 65536, 1},
	{"one before growth", {65536, 2, 0.5, 2000, 1998}, false, 65536, 1999},
	{"growth", {65536, 2, 0.5, 2000, 1999}, false, 131072, 0},
	{"overflow", {65536, 2, 0.5, 2000, 1999}, true, 32768, 0},
	{"overflow at once", {65536, 2, 0.5, 2000, 0}, true, 32768, 0},
	{"interval 1", {1, 2, 0.5, 1, 0}, false, 2, 0},
	{"growth to infinity is not adopted", {0x1p127f, 2, 0.5, 10, 9}, false, 0x1p127f, 0},
	{"growth to the largest", {0x1p126f, 2, 0.5, 10, 9}, false, 0x1p127f, 0},
	{"no growth past the interval", {8, 2, 0.5, 3, 5}, false, 8, 6},
	{"backoff has no lower end", {0x1p-149f, 2, 0.5, 3, 2}, true, 0, 0},
	/* 3 * 1.1 is 3.3000000000000003 in double and 3.3 rounded to float. */
	{"factors are doubles", {3, 1.1, 0.9, 1, 0}, false, 3.3f, 0},
	{"backoff by 0.9", {3, 1.1, 0.9, 1, 0}, true, 2.7f, 0},
};

START_TEST(test_update)
{
	struct ddp_scaler scaler = updates[_i].before;

	ddp_scaler_update(&scaler, updates[_i].found);
	ck_assert_msg(scaler.scale == updates[_i].scale, "%s: scale is %a, want %a",
		      updates[_i].name, (double)scaler.scale, (double)updates[_i].scale);
	unit_number(updates[_i].name, "good steps", scaler.good_steps, updates[_i].good);
}
END_TEST

START_TEST(test_start)
{
	struct ddp_scaler scaler = DDP_SCALER_INIT;

	for (int i = 0; i < 2000; i++) {
		ck_assert_float_eq(scaler.scale, 65536);
		ddp_scaler_update(&scaler, false);
	}
	ck_assert_float_eq(scaler.scale, 131072);
	ddp_scaler_update(&scaler, true);
	ck_assert_float_eq(scaler.scale, 65536);
	ck_assert_int_eq(scaler.good_steps, 0);
}
END_TEST

static const struct {
	const char *name;
	float scale, gradient, want;
	bool found;
} divisions[] = {
	{"power of two", 65536, 3, 3 * 0x1p-16f, false},
	{"zero", 65536, 0, 0, false},
	/* The inverse is rounded to float first: a division would give 0x1.99999ap-2. */
	{"a third of 1.2", 3, 1.2f, 0x1.99999cp-2f, false},
	{"ten", 10, 7, 7 * 0.1f, false},
	{"largest", 2, 0x1.fffffep127f, 0x1.fffffep126f, false},
	{"infinity", 2, INFINITY, INFINITY, true},
	{"minus infinity", 2, -INFINITY, -INFINITY, true},
	{"nan", 2, NAN, NAN, true},
	/* Looked at before the division, as PyTorch does. */
	{"overflow by a scale below one", 0.5, 0x1.fffffep127f, INFINITY, false},
};

START_TEST(test_unscale)
{
	struct ddp_scaler scaler = DDP_SCALER_INIT;
	/* At each place, so that no vector's end is forgotten. */
	float gradients[37];

	scaler.scale = divisions[_i].scale;
	for (size_t at = 0; at < 37; at++) {
		for (size_t i = 0; i < 37; i++)
			gradients[i] = i == at ? divisions[_i].gradient : 1;
		ck_assert_msg(ddp_scaler_unscale(&scaler, gradients, 37) == divisions[_i].found,
			      "%s at %zu", divisions[_i].name, at);
		if (isnan(divisions[_i].want))
			ck_assert_float_nan(gradients[at]);
		else
			ck_assert_msg(gradients[at] == divisions[_i].want, "%s: %a, want %a",
				      divisions[_i].name, (double)gradients[at],
				      (double)divisions[_i].want);
		ck_assert_float_eq(gradients[(at + 1) % 37], (float)(1 / (double)scaler.scale));
	}
	ck_assert(!ddp_scaler_unscale(&scaler, NULL, 0));
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_update, updates);
	tcase_add_test(tcase, test_start);
	UNIT_ROWS(tcase, test_unscale, divisions);
}

int main(void)
{
	return unit_run("scaler", fill);
}
