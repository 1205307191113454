/* SPDX-License-Identifier: Apache-2.0 */
/* What ddp-info makes of the cards of all ranks: warnings, table, JSON */
#include "config.h"

#include <stdio.h>

#include "info/report.h"
#include "unit.h"

/* --- CPU lists --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint64_t words[2];
	const char *want;
} lists[] = {
	{"none", {0, 0}, ""},
	{"one", {1, 0}, "0"},
	{"range", {0xff, 0}, "0-7"},
	{"two ranges", {0xf00f, 0}, "0-3,12-15"},
	{"over a word", {UINT64_C(1) << 63, 3}, "63-65"},
	{"single ones", {0x15, 0}, "0,2,4"},
};

START_TEST(test_cpu_list)
{
	uint64_t mask[16] = {lists[_i].words[0], lists[_i].words[1]};
	char text[64], small[12];

	info_cpu_list(mask, text, sizeof(text));
	unit_text(lists[_i].name, "list", text, lists[_i].want);
	memset(mask, 0x55, sizeof(mask));
	info_cpu_list(mask, small, sizeof(small));
	unit_text(lists[_i].name, "cut list", small, "0,2,4,6...");
}
END_TEST

/* --- Warnings ---------------------------------------------------------------------------- */

/* Four ranks on two nodes, each with a GPU and two CPUs of its own, and nothing wrong. */
static void good(struct info_card cards[4])
{
	memset(cards, 0, 4 * sizeof(cards[0]));
	for (int rank = 0; rank < 4; rank++) {
		struct info_card *card = &cards[rank];

		card->rank = rank;
		card->node_rank = rank / 2;
		card->local_rank = rank % 2;
		card->local_size = 2;
		card->cpus = 2;
		card->cpu_mask[0] = UINT64_C(3) << (2 * (rank % 2));
		card->visible = 2;
		card->device = rank % 2;
		card->reached = rank == 2 ? 1 : -1;
		snprintf(card->host, sizeof(card->host), "n%d", rank / 2 + 1);
		snprintf(card->uuid, sizeof(card->uuid), "GPU-%d", rank);
		snprintf(card->endpoint, sizeof(card->endpoint), "n1:1234");
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver 13.0");
		info_cpu_list(card->cpu_mask, card->cpu_list, sizeof(card->cpu_list));
	}
}

static void nothing(struct info_card *cards)
{
	(void)cards;
}

static void one_gpu(struct info_card *cards)
{
	memcpy(cards[3].uuid, cards[2].uuid, sizeof(cards[3].uuid));
}

static void one_gpu_shared(struct info_card *cards)
{
	one_gpu(cards);
	cards[2].share = cards[3].share = 0.5;
}

static void same_uuid_elsewhere(struct info_card *cards)
{
	memcpy(cards[2].uuid, cards[0].uuid, sizeof(cards[2].uuid));
}

static void own_gpu_alone(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++)
		cards[rank].visible = 1;
}

static void three_and_one(struct info_card *cards)
{
	cards[2].node_rank = 0;
	cards[2].local_rank = 2;
	for (int rank = 0; rank < 3; rank++)
		cards[rank].local_size = 3;
	cards[3].local_size = 1;
	cards[3].local_rank = 0;
	cards[2].cpu_mask[0] = 0xf0;
	snprintf(cards[2].host, sizeof(cards[2].host), "n1");
}

static void same_cpu(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++)
		cards[rank].cpu_mask[0] = 1;
}

static void no_way(struct info_card *cards)
{
	cards[2].reached = 0;
	snprintf(cards[2].why_not, sizeof(cards[2].why_not), "No route to host");
}

static void other_driver(struct info_card *cards)
{
	snprintf(cards[3].libraries, sizeof(cards[3].libraries), "CUDA driver 12.4");
}

static const struct {
	const char *name;
	void (*change)(struct info_card *cards);
	int count;
	const char *pieces[5];
} warnings[] = {
	{"all well", nothing, 0, {NULL}},
	{"two ranks on a GPU", one_gpu, 1, {"ranks 2 and 3", "GPU-2", "n2", "--gres=shard"}},
	{"two ranks on a GPU, shares", one_gpu_shared, 0, {NULL}},
	{"one name on two nodes", same_uuid_elsewhere, 0, {NULL}},
	{"own GPU alone", own_gpu_alone, 1, {"rank 0 on n1", "--gpu-bind=none"}},
	{"uneven", three_and_one, 1, {"n1 has 3", "n2 has 1", "--ntasks-per-node"}},
	{"one CPU", same_cpu, 1, {"2 ranks on n1", "1 CPU ", "--cpus-per-task"}},
	{"no way", no_way, 1, {"n1:1234", "from n2", "No route", "--ddp-master-suffix"}},
	{"other driver", other_driver, 1, {"rank 3 on n2", "12.4", "13.0"}},
};

START_TEST(test_warning)
{
	struct info_warnings got;
	struct info_card cards[4];

	good(cards);
	warnings[_i].change(cards);
	info_warn(cards, 4, &got);
	ck_assert_msg(got.count == warnings[_i].count, "%s: %d warnings, want %d: %s",
		      warnings[_i].name, got.count, warnings[_i].count,
		      got.count ? got.text[0] : "");
	if (got.count)
		unit_pieces(warnings[_i].name, got.text[0], warnings[_i].pieces);
}
END_TEST

/* --- The report -------------------------------------------------------------------------- */

static char *print(void (*report)(const struct info_report *, FILE *), struct info_card *cards,
		   const struct info_selftest *test)
{
	struct ddp_world world = {.size = 4,
				  .node_count = 2,
				  .job = "tux.1.0",
				  .source = "srun --ddp",
				  .method = "file",
				  .wide = "ucx"};
	struct info_warnings found;
	struct info_report facts = {&world, cards, &found, test};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	info_warn(cards, 4, &found);
	report(&facts, out);
	fclose(out);
	return text;
}

START_TEST(test_table)
{
	static const char *const pieces[] = {
		"tux.1.0: 4 ranks on 2 nodes, started by srun --ddp, met by file, between nodes: ucx",
		"rank  node  local",
		"GPU-3",
		"yes",
		"warning: rank 0's endpoint",
		NULL};
	struct info_card cards[4];
	char *text;

	good(cards);
	text = print(info_report_table, cards, NULL);
	ck_assert_ptr_null(strstr(text, "share"));
	ck_assert_ptr_null(strstr(text, "warning"));
	ck_assert_ptr_null(strstr(text, "all-reduce"));
	free(text);
	no_way(&cards[0]);
	cards[0].reached = 1;
	text = print(info_report_table, cards, NULL);
	unit_pieces("table", text, pieces);
	free(text);
}
END_TEST

START_TEST(test_selftest_lines)
{
	static const struct info_selftest test = {2,
						  {{4, 1e-6, 5e-7, 0}, {4 << 20, 1e-3, 9e-4, 17}}};
	static const char *const table[] = {"4 B ",	 "exact", "4 MiB ", "WRONG in 17 elements",
					    "4.19 GB/s", NULL};
	static const char *const json[] = {"\"selftest\": [", "\"wrong_elements\": 17",
					   "\"bytes\": 4194304", NULL};
	struct info_card cards[4];
	char *text;

	ck_assert_uint_eq(info_selftest_wrong(&test), 17);
	good(cards);
	text = print(info_report_table, cards, &test);
	unit_pieces("table", text, table);
	free(text);
	text = print(info_report_json, cards, &test);
	unit_pieces("json", text, json);
	free(text);
}
END_TEST

START_TEST(test_json)
{
	static const char *const pieces[] = {"\"size\": 4",
					     "\"job\": \"tux.1.0\"",
					     "\"node\": \"a\\\"b\\\\\\u0001\"",
					     "\"share\": null",
					     "\"selftest\": null",
					     "\"endpoint_reached\": true",
					     NULL};
	struct info_card cards[4];
	char *text;

	good(cards);
	snprintf(cards[0].host, sizeof(cards[0].host), "a\"b\\\001");
	text = print(info_report_json, cards, NULL);
	unit_pieces("json", text, pieces);
	free(text);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_cpu_list, lists);
	UNIT_ROWS(tcase, test_warning, warnings);
	tcase_add_test(tcase, test_table);
	tcase_add_test(tcase, test_selftest_lines);
	tcase_add_test(tcase, test_json);
}

int main(void)
{
	return unit_run("info", fill);
}
