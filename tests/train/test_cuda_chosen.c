/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plans the convolutions of the GPU engine take, and what they say where none will do, on a GPU
 * that is not there (pretend.h)
 */
#include "config.h"

#include <stdio.h>

#include "cuda/dense.h"
#include "pretend-test.h"

/* A layer of a network's kind, without gradients of what it reads. */
static struct conv_options plain(void)
{
	return (struct conv_options){
		.name = "whole",
		.height = 7,
		.width = 6,
		.in = 8,
		.out = 16,
		.size = 3,
		.stride = 1,
		.pad = 1,
		.bias = true,
		.relu = true,
		.first = true,
		.type = DDP_BF16,
		.batch = 3,
	};
}

/* What was chosen, given what was known; a copy, to be freed. */
static char *choose(const struct conv_options *options, const char *known)
{
	struct ddp_error error = {0};
	struct conv *conv = NULL;
	char *text;

	pretend_restart();
	ck_assert_msg(conv_create(&conv, pretend_device(), options, known, &error) == 0, "%s",
		      error.text);
	text = strdup(conv_choices(conv));
	conv_destroy(conv);
	pretend_nothing_left();
	return text;
}

START_TEST(test_fastest)
{
	struct conv_options options = plain();
	char *first, *third, *equal = choose(&options, NULL);

	pretend.times[0] = 0.25f;
	first = choose(&options, NULL);
	ck_assert_int_gt(pretend.timed, 3);
	ck_assert_str_eq(first, equal);
	pretend.times[0] = 3;
	pretend.times[2] = 0.5f;
	third = choose(&options, NULL);
	ck_assert_str_ne(first, third);
	ck_assert_ptr_nonnull(strstr(first, "whole.forward=forward 3x7x6x8 to 16, 3x3, stride 1, "
					    "pad 1, bias, ReLU; BF16; sm_90, cuDNN "));
	ck_assert_ptr_nonnull(strstr(first, "\nwhole.back-weights=back-weights 3x7x6x8 to 16, "));
	free(equal);
	free(first);
	free(third);
}
END_TEST

START_TEST(test_saved)
{
	struct conv_options options = plain();
	char *chosen, *again;

	pretend.times[2] = 0.5f;
	chosen = choose(&options, NULL);
	memset(pretend.times, 0, sizeof(pretend.times));
	again = choose(&options, chosen);
	ck_assert_str_eq(again, chosen);
	ck_assert_int_eq(pretend.timed, 0);
	ck_assert_int_eq(pretend.runs, 2);
	free(again);
	options.name = "other";
	again = choose(&options, chosen);
	ck_assert_int_eq(pretend.timed, 0);
	ck_assert_int_eq(strncmp(again, "other.forward=", 14), 0);
	free(again);
	options.batch++;
	again = choose(&options, chosen);
	ck_assert_int_gt(pretend.timed, 0);
	free(again);
	free(chosen);
}
END_TEST

/* Layers of one shape have one plan, though the second one's others would have been faster. */
START_TEST(test_one_shape_one_plan)
{
	struct conv_options options = plain();
	struct conv *first = NULL, *second = NULL;
	char other[4096];

	pretend.times[0] = 0.25f;
	ck_assert_int_eq(conv_create(&first, pretend_device(), &options, NULL, NULL), 0);
	pretend_restart();
	pretend.times[0] = 9;
	options.name = "other";
	ck_assert_int_eq(conv_create(&second, pretend_device(), &options, NULL, NULL), 0);
	ck_assert_int_eq(pretend.timed, 0);
	snprintf(other, sizeof(other), "%s", strchr(conv_choices(second), '='));
	ck_assert_int_eq(strncmp(other, strchr(conv_choices(first), '='), strcspn(other, "\n")), 0);
	conv_destroy(second);
	conv_destroy(first);
	pretend_nothing_left();
}
END_TEST

/* A plan that this cuDNN cannot build is as good as none. */
START_TEST(test_saved_by_another)
{
	struct conv_options options = plain();
	char *chosen = choose(&options, NULL), *again, *line = chosen;
	char broken[4096] = "";

	for (; *line; line += strcspn(line, "\n") + 1) {
		char *plan = strstr(line, ": ");

		snprintf(broken + strlen(broken), sizeof(broken) - strlen(broken),
			 "%.*s: whole 9999 77:1\n", (int)(plan - line), line);
	}
	again = choose(&options, broken);
	ck_assert_str_eq(again, chosen);
	ck_assert_int_gt(pretend.timed, 0);
	free(again);
	free(chosen);
}
END_TEST

/* A plan that was saved and does not run makes way for others. */
START_TEST(test_saved_does_not_run)
{
	struct conv_options options = plain();
	char *chosen = choose(&options, NULL), *again;

	pretend.broken = 1;
	again = choose(&options, chosen);
	ck_assert_int_gt(pretend.timed, 0);
	free(again);
	free(chosen);
}
END_TEST

START_TEST(test_deterministic)
{
	struct conv_options options = plain();
	char *text;

	options.deterministic = true;
	pretend.times[2] = 0.5f;
	text = choose(&options, NULL);
	ck_assert_int_eq(pretend.timed, 0);
	ck_assert_int_eq(pretend.runs, 2);
	ck_assert_ptr_nonnull(strstr(text, ", deterministic; "));
	free(text);
}
END_TEST

START_TEST(test_those_that_fail_are_out)
{
	struct conv_options options = plain();
	char *first = choose(&options, NULL), *text;

	pretend.broken = 1;
	text = choose(&options, NULL);
	ck_assert_str_ne(text, first);
	free(text);
	pretend.broken = 0;
	pretend.uncapturable = 1;
	pretend.times[0] = 0.25f;
	text = choose(&options, NULL);
	ck_assert_str_ne(text, first);
	free(text);
	free(first);
}
END_TEST

static const struct {
	const char *name, *layer;
	enum ddp_type type;
	size_t batch;
	int pad, broken;
	size_t exhausted;
	int err;
	const char *pieces[8];
} failures[] = {
	{"none runs",
	 "conv2",
	 DDP_F16,
	 2,
	 0,
	 999,
	 0,
	 DDP_ERR_ENGINE,
	 {"GPU 3 (NVIDIA H200)", "conv2, forward pass", "2x26x26x32 to 64, 3x3, stride 1, pad 0",
	  "F16", "cuDNN 9.", "CUDNN_STATUS_EXECUTION_FAILED"}},
	{"no graph",
	 "conv9",
	 DDP_BF16,
	 2,
	 -1,
	 0,
	 0,
	 DDP_ERR_UNSUPPORTED,
	 {"GPU 3 (NVIDIA H200)", "conv9, forward pass", "pad -1, BF16", "cuDNN 9.", "has no plan",
	  "CUDNN_STATUS_"}},
	{"far too large",
	 "conv2",
	 DDP_BF16,
	 (size_t)1 << 24,
	 0,
	 0,
	 0,
	 DDP_ERR_MEMORY,
	 {"GPU 3 (NVIDIA H200)", "conv2, forward pass (16777216x26x26x32", "of 1024 MiB",
	  "lower --batch"}},
	{"no memory",
	 "conv2",
	 DDP_F32,
	 2,
	 0,
	 0,
	 100000,
	 DDP_ERR_MEMORY,
	 {"trying the plans of a convolution", "lower --batch"}},
};

START_TEST(test_failure)
{
	struct conv_options options = {
		.name = failures[_i].layer,
		.height = 26,
		.width = 26,
		.in = 32,
		.out = 64,
		.size = 3,
		.stride = 1,
		.pad = failures[_i].pad,
		.type = failures[_i].type,
		.batch = failures[_i].batch,
	};
	struct ddp_error error = {0};
	struct conv *conv = NULL;
	int err;

	pretend_restart();
	pretend.broken = failures[_i].broken;
	pretend.exhausted = failures[_i].exhausted;
	err = conv_create(&conv, pretend_device(), &options, NULL, &error);
	unit_number(failures[_i].name, "status", err, failures[_i].err);
	ck_assert_ptr_null(conv);
	unit_pieces(failures[_i].name, error.text, failures[_i].pieces);
	pretend_nothing_left();
}
END_TEST

/* Layers of one device have one handle of each library. */
START_TEST(test_handles_are_shared)
{
	struct conv_options options = plain();
	struct dense_options flat = {.name = "fc", .in = 8, .out = 8, .batch = 2};
	struct dense *dense = NULL;
	struct conv *conv = NULL;

	ck_assert_int_eq(conv_create(&conv, pretend_device(), &options, NULL, NULL), 0);
	ck_assert_int_eq(pretend.handles, 2);
	ck_assert_int_eq(dense_create(&dense, pretend_device(), &flat, NULL), 0);
	ck_assert_int_eq(pretend.handles, 2);
	conv_destroy(conv);
	ck_assert_int_eq(pretend.handles, 2);
	dense_destroy(dense);
	pretend_nothing_left();
	conv_destroy(NULL);
	dense_destroy(NULL);
}
END_TEST

static void fill(TCase *tcase)
{
	tcase_add_test(tcase, test_fastest);
	tcase_add_test(tcase, test_saved);
	tcase_add_test(tcase, test_one_shape_one_plan);
	tcase_add_test(tcase, test_saved_by_another);
	tcase_add_test(tcase, test_saved_does_not_run);
	tcase_add_test(tcase, test_deterministic);
	tcase_add_test(tcase, test_those_that_fail_are_out);
	UNIT_ROWS(tcase, test_failure, failures);
	tcase_add_test(tcase, test_handles_are_shared);
}

int main(void)
{
	return pretend_run("cuda_chosen", fill);
}
