/* SPDX-License-Identifier: Apache-2.0 */
/* What ddp-info says of ranks that share a GPU: how, how much each may have, and who enforces it */
#include "config.h"

#include "info-cards.h"
#include "unit.h"

static void limited(struct info_card *cards)
{
	cards_halves(cards, 64);
	cards_with_daemon(cards, DDP_MPS_SERVES);
	cards[2].threads = cards[3].threads = 50;
}

static void all_limited(struct info_card *cards)
{
	limited(cards);
	snprintf(cards[2].memory_limit, sizeof(cards[2].memory_limit), "32G");
	snprintf(cards[3].memory_limit, sizeof(cards[3].memory_limit), "32G");
}

static void memory_limited(struct info_card *cards)
{
	all_limited(cards);
	cards[2].threads = 0;
}

static void limits_differ(struct info_card *cards)
{
	limited(cards);
	cards[3].threads = 12.5;
	cards[3].share = 0.125;
}

static void one_unlimited(struct info_card *cards)
{
	limited(cards);
	cards[3].threads = 0;
}

/* The driver knows better than a socket. */
static void not_a_client(struct info_card *cards)
{
	limited(cards);
	cards[2].client = cards[3].client = 0;
}

static void client(struct info_card *cards)
{
	limited(cards);
	cards_with_daemon(cards, DDP_MPS_NONE);
	cards[2].client = cards[3].client = 1;
}

static void stale_limited(struct info_card *cards)
{
	limited(cards);
	cards_with_daemon(cards, DDP_MPS_STALE);
}

static void two_gpus(struct info_card *cards)
{
	cards_halves(cards, 64);
	memcpy(cards[1].uuid, cards[0].uuid, sizeof(cards[1].uuid));
	cards[0].share = cards[1].share = 0.5;
	cards[0].total = cards[1].total = cards[2].total;
}

/* Without a driver, Slurm's numbers are known. */
static void by_slot(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++) {
		cards[rank].uuid[0] = '\0';
		snprintf(cards[rank].slot, sizeof(cards[rank].slot), "%d", rank / 3);
		cards[rank].share = 0.25;
	}
}

static void part_of_own(struct info_card *cards)
{
	cards[1].share = 0.25;
	cards[1].total = UINT64_C(64) << 30;
}

static const struct {
	const char *name;
	void (*change)(struct info_card *cards);
	const char *lines; /* of the table, between the ranks and the warnings */
} sharings[] = {
	{"nobody", cards_nothing, ""},
	{"one name on two nodes", cards_same_uuid_elsewhere, ""},
	{"no share", cards_one_gpu,
	 "2 ranks (2-3) share GPU-2 on n2 by time-slicing: their kernels take turns; no share is "
	 "known; nothing is enforced\n"},
	{"no driver to ask", cards_one_gpu_shared,
	 "2 ranks (2-3) share GPU-2 on n2 by time-slicing: their kernels take turns; 0.5 of it "
	 "each; by agreement, nothing enforces it\n"},
	{"halves", cards_enough_free,
	 "2 ranks (2-3) share GPU-2 on n2 by time-slicing: their kernels take turns; 0.5 of it "
	 "each, 32.0 of 64.0 GiB; by agreement, nothing enforces it\n"},
	{"MPS", limited,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS (threads limited to 50 %); 0.5 of it each, "
	 "32.0 of 64.0 GiB; MPS enforces the limit of threads, memory is kept to by agreement\n"},
	{"MPS, memory too", all_limited,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS (threads limited to 50 %, memory to 32G); "
	 "0.5 of it each, 32.0 of 64.0 GiB; MPS enforces both limits\n"},
	{"MPS, memory alone", memory_limited,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS (memory limited to 32G); 0.5 of it each, "
	 "32.0 of 64.0 GiB; MPS enforces the limit of memory\n"},
	{"MPS, limits that differ", limits_differ,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS (threads limited to 12.5 to 50 %); 0.125 to "
	 "0.5 of it each; MPS enforces the limit of threads, memory is kept to by agreement\n"},
	{"MPS, one without a limit", one_unlimited,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS, without limits; 0.5 of it each, 32.0 of "
	 "64.0 GiB; by agreement, nothing enforces it\n"},
	{"MPS of others", not_a_client,
	 "2 ranks (2-3) share GPU-2 on n2 by time-slicing: their kernels take turns; 0.5 of it "
	 "each, 32.0 of 64.0 GiB; by agreement, nothing enforces it\n"},
	{"MPS that only the driver sees", client,
	 "2 ranks (2-3) share GPU-2 on n2 through MPS (threads limited to 50 %); 0.5 of it each, "
	 "32.0 of 64.0 GiB; MPS enforces the limit of threads, memory is kept to by agreement\n"},
	{"MPS that is gone", stale_limited,
	 "2 ranks (2-3) share GPU-2 on n2 by time-slicing: their kernels take turns; 0.5 of it "
	 "each, 32.0 of 64.0 GiB; by agreement, nothing enforces it\n"},
	{"two GPUs alike", two_gpus,
	 "2 ranks (0-1) share GPU-0 on n1 by time-slicing: their kernels take turns; 0.5 of it "
	 "each, 32.0 of 64.0 GiB; by agreement, nothing enforces it; likewise 1 more GPU\n"},
	{"numbers of Slurm's", by_slot,
	 "2 ranks (0-1) share GPU 0 of n1 by time-slicing: their kernels take turns; 0.25 of it "
	 "each; by agreement, nothing enforces it\n"
	 "rank 2 shares GPU 0 of n2 by time-slicing: its own and others' kernels take turns; 0.25 "
	 "of it; by agreement, nothing enforces it; likewise 1 more GPU\n"},
	{"a rank with a part", part_of_own,
	 "rank 1 shares GPU-1 on n1 by time-slicing: its own and others' kernels take turns; 0.25 "
	 "of it, 16.0 of 64.0 GiB; by agreement, nothing enforces it\n"},
};

START_TEST(test_sharing)
{
	struct info_card cards[4];
	char *text, *begin, *end;

	cards_good(cards);
	sharings[_i].change(cards);
	text = cards_print(info_report_table, cards, NULL);
	begin = strstr(text, "\n\n");
	ck_assert_ptr_nonnull(begin);
	begin = strstr(begin + 2, "\n\n"); /* the end of the ranks */
	begin = begin ? begin + 2 : text + strlen(text);
	end = strstr(begin, "\nwarning: ");
	if (end)
		*end = '\0';
	else if (strncmp(begin, "warning: ", 9) == 0)
		*begin = '\0';
	unit_text(sharings[_i].name, "sharing", begin, sharings[_i].lines);
	free(text);
}
END_TEST

/* As large a share, but not as many ranks. */
START_TEST(test_sharing_counts)
{
	static const char *const pieces[] = {"\n3 ranks (0-2) share GPU 0 of n1 by ",
					     "\n2 ranks (3-4) share GPU 1 of n1 by ", NULL};
	struct info_card cards[5];
	char *text;

	cards_good(cards);
	for (int rank = 0; rank < 5; rank++) {
		cards[rank] = cards[0];
		cards[rank].rank = rank;
		cards[rank].share = 0.25;
		cards[rank].uuid[0] = '\0';
		snprintf(cards[rank].slot, sizeof(cards[rank].slot), "%d", rank / 3);
	}
	text = cards_print_ranks(info_report_table, cards, 5, NULL);
	unit_pieces("counts", text, pieces);
	free(text);
}
END_TEST

START_TEST(test_sharing_column)
{
	static const char *const pieces[] = {"share  shared by", "0.25  0-1 ", "0.25  - ", NULL};
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	by_slot(cards);
	text = cards_print(info_report_table, cards, NULL);
	unit_pieces("column", text, pieces);
	free(text);
}
END_TEST

START_TEST(test_sharing_json)
{
	static const char *const limits[] = {
		"\"sharing\": [\n  {\"mode\": \"MPS\", \"ranks\": [2, 3], \"node\": \"n2\", "
		"\"uuid\": \"GPU-2\", \"gpu_of_node\": null, \"share_sum\": 1, "
		"\"mps_daemon\": \"serves\", \"mps_directory\": \"/tmp/mps\", "
		"\"mps_threads\": 50, \"mps_memory\": \"32G\", "
		"\"enforced\": [\"threads\", \"memory\"]}],",
		"\"memory_total\": 68719476736", "\"memory_share\": 34359738368", NULL};
	static const char *const none[] = {
		"{\"mode\": \"time-slicing\"",
		"\"ranks\": [0, 1]",
		"\"ranks\": [2]",
		"\"mps_daemon\": null, \"mps_directory\": null, \"mps_threads\": null, "
		"\"mps_memory\": null, \"enforced\": []}",
		"\"gpu_of_node\": \"1\"",
		NULL};
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	all_limited(cards);
	text = cards_print(info_report_json, cards, NULL);
	unit_pieces("limits", text, limits);
	free(text);
	cards_good(cards);
	by_slot(cards);
	text = cards_print(info_report_json, cards, NULL);
	unit_pieces("none", text, none);
	free(text);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_sharing, sharings);
	tcase_add_test(tcase, test_sharing_counts);
	tcase_add_test(tcase, test_sharing_column);
	tcase_add_test(tcase, test_sharing_json);
}

int main(void)
{
	return unit_run("info_sharing", fill);
}
