/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format.h"
#include "unit.h"

static const struct {
	const char *template, *path;
} good[] = {
	{"/scratch", "/scratch"},
	{"/scratch/%u", "/scratch/ann"},
	{"/scratch/%u/%j.%s/%n", "/scratch/ann/42.7/n1"},
	{"%j%j%s", "42427"},
	{"relative/dir", "relative/dir"},
	{"/with blank/%u", "/with blank/ann"},
	{"/\xc3\xa4", "/\xc3\xa4"},
	{"/a&b=c;d", "/a&b=c;d"},
	{"%u", "ann"},
};

static const struct {
	const char *template;
	const char *pieces;
} bad[] = {
	{"", "--ddp-rdzv|empty|Give a directory"},
	{"/a?b", "--ddp-rdzv=/a?b|'?'|Choose another directory"},
	{"/a#b", "--ddp-rdzv=/a#b|'#'|Choose another directory"},
	{"~/a", "--ddp-rdzv=~/a|contains '~'|%u"},
	{"/scratch/$USER", "--ddp-rdzv=/scratch/$USER|contains '$'|%u"},
	{"/a%", "--ddp-rdzv=/a%|%|j (job)"},
	{"/a%%b", "--ddp-rdzv=/a%%b|s (step)"},
	{"/a%x", "--ddp-rdzv=/a%x|u (user)"},
	{"/a%J", "--ddp-rdzv=/a%J|n (rank 0's node)"},
	{"/a% j", "--ddp-rdzv=/a% j|%"},
	{"/a\nb", "--ddp-rdzv|control character"},
	{"/a\tb", "--ddp-rdzv|control character"},
	{"/a\x7f", "--ddp-rdzv|control character"},
};

static const struct ddp_template_values all = {
	.job = "42", .step = "7", .user = "ann", .node = "n1"};

TEST_ROWS(test_good, good)
{
	struct ddp_message message = {""};
	char path[DDP_PATH_SIZE];

	ck_assert_int_eq(ddp_template_check(good[_i].template, "--ddp-rdzv", &message), 0);
	ck_assert_int_eq(ddp_template_expand(good[_i].template, &all, path, sizeof(path), &message),
			 0);
	unit_text(good[_i].template, "path", path, good[_i].path);
	unit_text(good[_i].template, "message", message.text, "");
}

TEST_ROWS(test_bad, bad)
{
	struct ddp_message message = {""};

	ck_assert_int_eq(ddp_template_check(bad[_i].template, "--ddp-rdzv", &message), -1);
	unit_has(bad[_i].template, message.text, bad[_i].pieces);
}

/* The message ends with the remedy, even if the value is very long. */
TEST(test_long)
{
	struct ddp_message message = {""};
	char text[DDP_PATH_SIZE];

	memset(text, 'x', sizeof(text));
	text[DDP_PATH_SIZE / 2 - 1] = '\0';
	ck_assert_int_eq(ddp_template_check(text, "rdzv", &message), 0);
	text[5] = '?';
	ck_assert_int_eq(ddp_template_check(text, "rdzv", &message), -1);
	ck_assert_ptr_nonnull(strstr(message.text, "Choose another directory"));
	text[5] = '%';
	ck_assert_int_eq(ddp_template_check(text, "rdzv", &message), -1);
	ck_assert_ptr_nonnull(strstr(message.text, "u (user)"));
	text[5] = text[DDP_PATH_SIZE / 2 - 1] = 'x';
	text[DDP_PATH_SIZE / 2] = '\0';
	ck_assert_int_eq(ddp_template_check(text, "rdzv", &message), -1);
	ck_assert_ptr_nonnull(strstr(message.text, "rdzv is longer than 2047 characters"));
}

static const struct {
	const char *template;
	struct ddp_template_values values;
	const char *piece;
} unknown[] = {
	{"/a/%j",
	 {.step = "7", .user = "ann", .node = "n1"},
	 "the value of %j in /a/%j is not known"},
	{"/a/%s",
	 {.job = "42", .user = "ann", .node = "n1"},
	 "the value of %s in /a/%s is not known"},
	{"/a/%u",
	 {.job = "42", .step = "7", .node = "n1"},
	 "the value of %u in /a/%u is not known"},
	{"/a/%n",
	 {.job = "42", .step = "7", .user = "ann"},
	 "the value of %n in /a/%n is not known"},
	{"/a/%x", {.job = "42"}, "the value of %x in /a/%x is not known"},
	{"/a/%", {.job = "42"}, "is not known"},
};

TEST_ROWS(test_unknown, unknown)
{
	struct ddp_message message = {""};
	char path[64];

	ck_assert_int_eq(ddp_template_expand(unknown[_i].template, &unknown[_i].values, path,
					     sizeof(path), &message),
			 -1);
	ck_assert_ptr_nonnull(strstr(message.text, unknown[_i].piece));
}

TEST(test_expand_fits)
{
	struct ddp_message message = {""};
	char path[8] = "";

	ck_assert_int_eq(ddp_template_expand("/ab/ann", &all, path, 8, &message), 0);
	ck_assert_str_eq(path, "/ab/ann");
	ck_assert_int_eq(ddp_template_expand("/ab/%u", &all, path, 8, &message), 0);
	ck_assert_str_eq(path, "/ab/ann");
	ck_assert_int_eq(ddp_template_expand("/abc/%u", &all, path, 8, &message), -1);
	ck_assert_ptr_nonnull(strstr(message.text, "too long"));
	ck_assert_int_eq(ddp_template_expand("/ab/%uz", &all, path, 8, &message), -1);
	ck_assert_int_eq(ddp_template_expand("", &all, path, 0, &message), -1);
	ck_assert_int_eq(ddp_template_expand("", &all, path, 1, &message), 0);
	ck_assert_str_eq(path, "");
}

static const struct {
	const char *path;
	bool fits;
} urls[] = {
	{"/a/b", true},	  {"/a b", true},   {"/a=b;c&d", true}, {"/\xc3\xa4", true},
	{"/a?b", false},  {"/a#b", false},  {"/a%20b", false},	{"?", false},
	{"/a\tb", false}, {"/a\nb", false}, {"/a\rb", false},	{"", true},
};

TEST_ROWS(test_url, urls)
{
	unit_number(urls[_i].path, "fits", ddp_path_fits_url(urls[_i].path), urls[_i].fits);
}

UNIT_MAIN("template", NULL)
