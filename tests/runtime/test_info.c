/* SPDX-License-Identifier: Apache-2.0 */
/* What ddp-info makes of the cards of all ranks: warnings, table, JSON */
#include "config.h"

#include "info-cards.h"
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

static void too_much(struct info_card *cards)
{
	cards_one_gpu(cards);
	cards[2].share = 0.5;
	cards[3].share = 0.7;
}

static void thirds(struct info_card *cards)
{
	for (int rank = 1; rank < 4; rank++) {
		memcpy(cards[rank].uuid, cards[1].uuid, sizeof(cards[rank].uuid));
		memcpy(cards[rank].host, cards[1].host, sizeof(cards[rank].host));
		cards[rank].node_rank = 0;
		cards[rank].share = 0.33333334;
	}
}

static void less_free(struct info_card *cards)
{
	cards_halves(cards, 40);
}

static void tiny(struct info_card *cards)
{
	cards_halves(cards, 64);
	cards[3].share = 1.0 / 256;
	cards[2].context = 512 << 20;
}

static void stale(struct info_card *cards)
{
	cards_with_daemon(cards, DDP_MPS_STALE);
}

static void vain(struct info_card *cards)
{
	cards_with_daemon(cards, DDP_MPS_NONE);
	cards[1].threads = 25;
}

static void left_out(struct info_card *cards)
{
	cards_with_daemon(cards, DDP_MPS_SERVES);
	cards[1].client = 0;
}

static void kept_apart(struct info_card *cards)
{
	cards_one_gpu_shared(cards);
	cards[2].apart = cards[0].apart = 1;
}

static void one_at_a_time(struct info_card *cards)
{
	cards_one_gpu_shared(cards);
	for (int rank = 0; rank < 4; rank++)
		cards[rank].exclusive = 1;
}

static void one_at_a_time_mps(struct info_card *cards)
{
	one_at_a_time(cards);
	cards[2].client = cards[3].client = 1;
}

static void refused(struct info_card *cards)
{
	snprintf(cards[3].trouble, sizeof(cards[3].trouble), "no such thing (999)");
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
	{"all well", cards_nothing, 0, {NULL}},
	{"two ranks on a GPU", cards_one_gpu, 1, {"ranks 2 and 3", "GPU-2", "n2", "--gres=shard"}},
	{"shares of more than there is",
	 too_much,
	 1,
	 {"ranks 2-3 on GPU-2 on n2", "1.2 ", "DDP_SHARE"}},
	{"shares of a whole, rounded", thirds, 0, {NULL}},
	{"less is free", less_free, 1, {"ranks 2-3 may take 64.0 GiB of GPU-2 on n2", "40.0 GiB"}},
	{"as much is free", cards_enough_free, 0, {NULL}},
	{"no room for a context", tiny, 1, {"rank 3's share of GPU-2 on n2 is 256 MiB", "512 MiB"}},
	{"no memory in common",
	 kept_apart,
	 1,
	 {"ranks 2 and 3 share GPU-2 on n2", "DDP_LOCAL=off"}},
	{"exclusive mode", one_at_a_time, 1, {"GPU-2 on n2", "exclusive mode", "ranks 2-3 share"}},
	{"exclusive mode under MPS", one_at_a_time_mps, 0, {NULL}},
	{"a daemon that is gone",
	 stale,
	 1,
	 {"/tmp/mps on n1", "without MPS", "nvidia-cuda-mps-control"}},
	{"limits and no daemon",
	 vain,
	 1,
	 {"rank 1 on n1", DDP_MPS_THREADS, "limit nothing", "/tmp/mps"}},
	{"a daemon of somebody else",
	 left_out,
	 1,
	 {"/tmp/mps on n1", "rank 1 runs without", "GPU-1"}},
	{"a driver that refuses", refused, 1, {"rank 3 on n2", "device 1", "no such thing (999)"}},
	{"two ranks on a GPU, shares", cards_one_gpu_shared, 0, {NULL}},
	{"one name on two nodes", cards_same_uuid_elsewhere, 0, {NULL}},
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

	cards_good(cards);
	warnings[_i].change(cards);
	info_sharing_find(cards, 4);
	info_warn(cards, 4, &got);
	ck_assert_msg(got.count == warnings[_i].count, "%s: %d warnings, want %d: %s",
		      warnings[_i].name, got.count, warnings[_i].count,
		      got.count ? got.text[0] : "");
	if (got.count)
		unit_pieces(warnings[_i].name, got.text[0], warnings[_i].pieces);
}
END_TEST

/* --- The report -------------------------------------------------------------------------- */

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

	cards_good(cards);
	text = cards_print(info_report_table, cards, NULL);
	ck_assert_ptr_null(strstr(text, "share"));
	ck_assert_ptr_null(strstr(text, "warning"));
	ck_assert_ptr_null(strstr(text, "all-reduce"));
	free(text);
	no_way(&cards[0]);
	cards[0].reached = 1;
	text = cards_print(info_report_table, cards, NULL);
	unit_pieces("table", text, pieces);
	free(text);
}
END_TEST

START_TEST(test_selftest_lines)
{
	static const struct info_selftest test = {
		false, 2, {{4, 1e-6, 5e-7, 0}, {4 << 20, 1e-3, 9e-4, 17}}};
	static const char *const table[] = {"4 B ",	 "exact", "4 MiB ", "WRONG in 17 elements",
					    "4.19 GB/s", NULL};
	static const char *const json[] = {"\"selftest\": [", "\"wrong_elements\": 17",
					   "\"bytes\": 4194304", NULL};
	struct info_card cards[4];
	char *text;

	ck_assert_uint_eq(info_selftest_wrong(&test), 17);
	cards_good(cards);
	text = cards_print(info_report_table, cards, &test);
	unit_pieces("table", text, table);
	free(text);
	text = cards_print(info_report_json, cards, &test);
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

	cards_good(cards);
	snprintf(cards[0].host, sizeof(cards[0].host), "a\"b\\\001");
	text = cards_print(info_report_json, cards, NULL);
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
