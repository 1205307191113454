/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_info.c - ddp-info: warnings, table, JSON and the description of shared GPUs, for given data
 * of all ranks
 */
#include "config.h"

#include <sys/wait.h>

#include "base/mps.h"
#include "info/info.h"
#include "unit.h"

/* --- Data of ranks ------------------------------------------------------------------------ */

/* Four ranks on two nodes. Each rank has its own GPU and two CPUs, so that there is no warning. */
static void cards_good(struct info_card cards[4])
{
	memset(cards, 0, 4 * sizeof(cards[0]));
	for (int rank = 0; rank < 4; rank++) {
		struct info_card *card = &cards[rank];

		card->rank = rank;
		card->node_rank = rank / 2;
		card->local_rank = rank % 2;
		card->local_size = card->group_size = 2;
		CPU_SET(2 * (size_t)(rank % 2), &card->cpus);
		CPU_SET(2 * (size_t)(rank % 2) + 1, &card->cpus);
		card->own_cpus = 2;
		card->visible = 2;
		card->device = rank % 2;
		card->reached = rank == 2 ? 1 : -1;
		card->client = -1;
		snprintf(card->host, sizeof(card->host), "n%d", rank / 2 + 1);
		snprintf(card->uuid, sizeof(card->uuid), "GPU-%d", rank);
		snprintf(card->endpoint, sizeof(card->endpoint), "n1:1234");
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver 13.0");
		ddp_list_cpus(&card->cpus, card->cpu_list, sizeof(card->cpu_list));
	}
}

#define CHANGE(name, ...)                         \
	static void name(struct info_card *cards) \
	{                                         \
		__VA_ARGS__;                      \
	}

CHANGE(cards_nothing, (void)cards)

/*
 * Changes that put ranks 2 and 3 on one GPU: without shares; with half of the GPU for each rank;
 * and with halves of its 64 GiB of memory, of which [free] GiB are free.
 */
CHANGE(cards_one_gpu, memcpy(cards[3].uuid, cards[2].uuid, sizeof(cards[3].uuid)))
CHANGE(cards_one_gpu_shared, cards_one_gpu(cards); cards[2].share = cards[3].share = 0.5)
CHANGE(cards_same_uuid_elsewhere, memcpy(cards[2].uuid, cards[0].uuid, sizeof(cards[2].uuid)))

static void cards_halves(struct info_card *cards, uint64_t free)
{
	cards_one_gpu_shared(cards);
	cards[2].total = cards[3].total = UINT64_C(64) << 30;
	cards[2].free = cards[3].free = free << 30;
}

CHANGE(cards_enough_free, cards_halves(cards, 64))

/* Gives all ranks the same MPS directory. [state] is the state of its daemon. */
static void cards_with_daemon(struct info_card *cards, enum ddp_mps_state state)
{
	for (int rank = 0; rank < 4; rank++) {
		cards[rank].mps = (int32_t)state;
		snprintf(cards[rank].mps_directory, sizeof(cards[rank].mps_directory), "/tmp/mps");
	}
}

/* Returns the output of [report] for [ranks] ranks, including warnings. The caller frees it. */
static char *cards_print_ranks(void (*report)(const struct info_report *, struct ddp_text *),
			       struct info_card *cards, int ranks, const struct info_selftest *test)
{
	struct ddp_world world = {.size = ranks,
				  .node_count = 2,
				  .job = "tux.1.0",
				  .source = "srun --ddp or ddp-exec",
				  .method = "file",
				  .wide = "tcp"};
	struct info_warnings found, advice;
	struct info_report facts = {&world, cards, &found, &advice, test};
	struct ddp_text text = {.data = NULL};

	info_sharing_find(cards, ranks);
	info_warn(cards, ranks, &found);
	info_advise(cards, ranks, &advice);
	report(&facts, &text);
	return text.data;
}

static char *cards_print(void (*report)(const struct info_report *, struct ddp_text *),
			 struct info_card *cards, const struct info_selftest *test)
{
	return cards_print_ranks(report, cards, 4, test);
}

/* --- Warnings ---------------------------------------------------------------------------- */

CHANGE(shares_of_1_2, cards_one_gpu(cards); cards[2].share = 0.5; cards[3].share = 0.7)

static void thirds(struct info_card *cards)
{
	for (int rank = 1; rank < 4; rank++) {
		memcpy(cards[rank].uuid, cards[1].uuid, sizeof(cards[rank].uuid));
		memcpy(cards[rank].host, cards[1].host, sizeof(cards[rank].host));
		cards[rank].node_rank = 0;
		cards[rank].share = 0.33333334;
	}
}

CHANGE(less_free, cards_halves(cards, 40))
CHANGE(tiny, cards_halves(cards, 64); cards[3].share = 1.0 / 256; cards[2].context = 512 << 20)
CHANGE(ended_daemon, cards_with_daemon(cards, DDP_MPS_STALE))
CHANGE(limits_without_daemon, cards_with_daemon(cards, DDP_MPS_NONE); cards[1].threads = 25)
CHANGE(not_a_client_of_daemon, cards_with_daemon(cards, DDP_MPS_SERVES); cards[1].client = 0)

static void exclusive_mode(struct info_card *cards)
{
	cards_one_gpu_shared(cards);
	for (int rank = 0; rank < 4; rank++)
		cards[rank].exclusive = 1;
}

CHANGE(exclusive_mode_mps, exclusive_mode(cards); cards[2].client = cards[3].client = 1)
CHANGE(driver_error, snprintf(cards[3].trouble, sizeof(cards[3].trouble), "no such thing (999)"))

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
	for (size_t cpu = 4; cpu < 8; cpu++)
		CPU_SET(cpu, &cards[2].cpus);
	snprintf(cards[2].host, sizeof(cards[2].host), "n1");
}

static void same_cpu(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++) {
		CPU_ZERO(&cards[rank].cpus);
		CPU_SET(0, &cards[rank].cpus);
	}
}

static void unreachable(struct info_card *cards)
{
	cards[2].reached = 0;
	snprintf(cards[2].why_not, sizeof(cards[2].why_not), "No route to host");
}

CHANGE(less_shm, cards[1].shm = cards[3].shm = 64 << 20; cards[0].shm = UINT64_C(4) << 30)
CHANGE(other_driver, snprintf(cards[3].libraries, sizeof(cards[3].libraries), "CUDA driver 12.4"))

static void four_gpus(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++)
		cards[rank].whole = cards[rank].visible = 4;
}

CHANGE(own_pairs, four_gpus(cards); cards[1].device = cards[3].device = 2)

static const struct {
	const char *name;
	void (*change)(struct info_card *cards);
	int count;
	const char *pieces;
} warnings[] = {
	{"two tasks for four GPUs", four_gpus, 1,
	 "n1 has 2 tasks for 4 GPUs. Use --ntasks-per-node=4 to use all."},
	{"two GPUs for each of two tasks", own_pairs, 0, NULL},
	{"no warning", cards_nothing, 0, NULL},
	{"two ranks on a GPU", cards_one_gpu, 1, "ranks 2 and 3|GPU-2|n2|--gres=shard"},
	{"shares of more than a GPU", shares_of_1_2, 1, "ranks 2-3 on GPU-2 on n2|1.2 |DDP_SHARE"},
	{"shares of a whole GPU, rounded", thirds, 0, NULL},
	{"less memory free than the shares", less_free, 1,
	 "ranks 2-3 may use 64.0 GiB of GPU-2 on n2|40.0 GiB"},
	{"enough memory free", cards_enough_free, 0, NULL},
	{"a share too small for a context", tiny, 1,
	 "rank 3's share of GPU-2 on n2 is 256 MiB|512 MiB"},
	{"exclusive mode", exclusive_mode, 1, "GPU-2 on n2|exclusive mode|ranks 2-3 share"},
	{"exclusive mode under MPS", exclusive_mode_mps, 0, NULL},
	{"a daemon that has ended", ended_daemon, 1,
	 "/tmp/mps on n1|without MPS|nvidia-cuda-mps-control"},
	{"limits without a daemon", limits_without_daemon, 1,
	 "rank 1 on n1|" DDP_MPS_THREADS "|not enforced|/tmp/mps"},
	{"a rank that is not a client of the daemon", not_a_client_of_daemon, 1,
	 "/tmp/mps on n1|rank 1 does not use|GPU-1"},
	{"a driver that returns an error", driver_error, 1,
	 "rank 3 on n2|device 1|no such thing (999)"},
	{"two ranks on a GPU, shares", cards_one_gpu_shared, 0, NULL},
	{"the same UUID on two nodes", cards_same_uuid_elsewhere, 0, NULL},
	{"each task sees only its GPU", own_gpu_alone, 1, "rank 0 on n1|--gpu-bind=none"},
	{"different numbers of ranks per node", three_and_one, 1,
	 "n1 has 3|n2 has 1|--ntasks-per-node"},
	{"one CPU", same_cpu, 1, "2 ranks on n1|1 CPU |--cpus-per-task"},
	{"unreachable endpoint", unreachable, 1, "n1:1234|from n2|No route|--ddp-master-suffix"},
	{"small /dev/shm", less_shm, 1, "/dev/shm of rank 1 on n1 has 64 MiB|--shm-size"},
	{"other driver", other_driver, 1, "rank 3 on n2|12.4|13.0"},
};

TEST_ROWS(test_warning, warnings)
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
		unit_has(warnings[_i].name, got.text[0], warnings[_i].pieces);
}

static void one_each(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++) {
		cards[rank].node_rank = rank;
		cards[rank].local_rank = cards[rank].device = 0;
		cards[rank].local_size = 1;
	}
}

CHANGE(one_for_four, one_each(cards); four_gpus(cards))

static void many_cpus(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++)
		cards[rank].node_cpus = 64;
}

static void no_gpus(struct info_card *cards)
{
	many_cpus(cards);
	for (int rank = 0; rank < 4; rank++)
		cards[rank].device = -1;
}

CHANGE(five_cpus, cards[0].node_cpus = 5)
CHANGE(six_cpus, cards[0].node_cpus = 6)

static const struct {
	const char *name;
	void (*change)(struct info_card *cards);
	const char *text; /* NULL: no advice */
} advice[] = {
	{"nothing known", cards_nothing, NULL},
	{"one task for four GPUs", one_for_four,
	 "n1 has 1 task for 4 GPUs. Use --ntasks-per-node=4, unless the task starts a process for each "
	 "GPU, like torchrun."},
	{"few CPUs", many_cpus,
	 "n1 has 2 CPUs for each rank with a GPU, of 64 on the node. Use --cpus-per-task=8 to give its "
	 "data loaders more CPUs, if they are free."},
	{"few CPUs, one more for each", six_cpus,
	 "n1 has 2 CPUs for each rank with a GPU, of 6 on the node. Use --cpus-per-task=3 to give its "
	 "data loaders more CPUs, if they are free."},
	{"few CPUs, none for each", five_cpus, NULL},
	{"few CPUs, no GPU", no_gpus, NULL},
};

TEST_ROWS(test_advice, advice)
{
	struct info_warnings got, warned;
	struct info_card cards[4];

	cards_good(cards);
	advice[_i].change(cards);
	info_sharing_find(cards, 4);
	info_warn(cards, 4, &warned);
	info_advise(cards, 4, &got);
	unit_number(advice[_i].name, "warnings", warned.count, 0);
	unit_text(advice[_i].name, "advice", got.count ? got.text[0] : NULL, advice[_i].text);
}

/* --- The report -------------------------------------------------------------------------- */

TEST(test_table)
{
	static const char *const pieces[] = {
		"tux.1.0: 4 ranks on 2 nodes, started by srun --ddp or ddp-exec, rendezvous by file, between nodes: tcp",
		"rank  node  local",
		"GPU-3",
		"yes",
		"warning: rank 0's endpoint",
		NULL};
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	text = cards_print(info_report_table, cards, NULL);
	ck_assert_ptr_null(strstr(text, "  share"));
	ck_assert_ptr_nonnull(strstr(text, "\nwithin nodes: shared memory\n"));
	ck_assert_ptr_null(strstr(text, "warning"));
	ck_assert_ptr_null(strstr(text, "all-reduce"));
	free(text);
	unreachable(&cards[0]);
	cards[0].reached = 1;
	text = cards_print(info_report_table, cards, NULL);
	unit_pieces("table", text, pieces);
	free(text);
}

/* Number of ranks in each rank's group, and the line that the report must have for them. */
static const struct {
	int sizes[4];
	const char *line;
} within[] = {
	{{2, 2, 2, 2}, "within nodes: shared memory\n"},
	{{2, 2, 1, 1}, "within nodes: shared memory; tcp on n2\n"},
	{{1, 1, 1, 1}, "within nodes: tcp\n"},
};

TEST_ROWS(test_within_nodes, within)
{
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	for (int rank = 0; rank < 4; rank++)
		cards[rank].group_size = within[_i].sizes[rank];
	text = cards_print(info_report_table, cards, NULL);
	UNIT_SAYS(within[_i].line, text, within[_i].line);
	free(text);
	for (int rank = 0; rank < 4; rank++)
		cards[rank].local_size = 1;
	text = cards_print(info_report_table, cards, NULL);
	ck_assert_ptr_null(strstr(text, "within"));
	free(text);
}

TEST(test_selftest_lines)
{
	static const struct info_selftest test = {
		false, "", 2, {{4, 1e-6, 5e-7, 0}, {4 << 20, 1e-3, 9e-4, 17}}};
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

TEST(test_json)
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

/* --- Shared GPUs ------------------------------------------------------------------------- */

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

CHANGE(memory_limited, all_limited(cards); cards[2].threads = 0)
CHANGE(limits_differ, limited(cards); cards[3].threads = 12.5; cards[3].share = 0.125)
CHANGE(one_unlimited, limited(cards); cards[3].threads = 0)

/* Even if the daemon has a socket, the driver's answer counts. */
CHANGE(not_a_client, limited(cards); cards[2].client = cards[3].client = 0)

static void client(struct info_card *cards)
{
	limited(cards);
	cards_with_daemon(cards, DDP_MPS_NONE);
	cards[2].client = cards[3].client = 1;
}

CHANGE(stale_limited, limited(cards); cards_with_daemon(cards, DDP_MPS_STALE))

/* Without a driver, Slurm's numbers identify the GPUs. */
static void known_by_slot(struct info_card *cards)
{
	for (int rank = 0; rank < 4; rank++) {
		cards[rank].uuid[0] = '\0';
		snprintf(cards[rank].slot, sizeof(cards[rank].slot), "%d", rank / 3);
		cards[rank].share = 0.25;
	}
}

CHANGE(part_of_own, cards[1].share = 0.25; cards[1].total = UINT64_C(64) << 30)

static const struct {
	const char *name;
	void (*change)(struct info_card *cards);
	const char *piece; /* piece of the ranks' table; "!": the table lacks it */
} sharings[] = {
	{"no shared GPU", cards_nothing, "!MPS"},
	{"the same UUID on two nodes", cards_same_uuid_elsewhere, "!MPS"},
	{"no share", cards_one_gpu, "2-3        no "},
	{"halves", cards_enough_free, "0.5  2-3        no "},
	{"MPS", limited, "0.5  2-3        50 % of threads "},
	{"MPS, memory limited too", all_limited, " 50 % of threads, 32G of memory "},
	{"MPS, only memory limited", memory_limited, " 32G of memory "},
	{"MPS, limits that differ", limits_differ, " 12.5 % of threads "},
	{"MPS, one without a limit", one_unlimited, " no limits "},
	{"MPS daemon of which the ranks are no clients", not_a_client, "2-3        no "},
	{"MPS that only the driver reports", client, " 50 % of threads "},
	{"MPS daemon that has ended", stale_limited, "2-3        no "},
	{"GPUs known by Slurm's numbers", known_by_slot, "0.25  0-1        no "},
	{"a rank with a part of a GPU", part_of_own, "0.25  no "},
};

TEST_ROWS(test_sharing, sharings)
{
	const char *piece = sharings[_i].piece;
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	sharings[_i].change(cards);
	text = cards_print(info_report_table, cards, NULL);
	ck_assert_msg(*piece == '!' ? !strstr(text, piece + 1) : strstr(text, piece) != NULL,
		      "%s: %s", sharings[_i].name, text);
	free(text);
}

TEST(test_sharing_column)
{
	static const char *const pieces[] = {"share  shared by", "0.25  0-1 ", "0.25  - ", NULL};
	struct info_card cards[4];
	char *text;

	cards_good(cards);
	known_by_slot(cards);
	text = cards_print(info_report_table, cards, NULL);
	unit_pieces("column", text, pieces);
	free(text);
}

TEST(test_sharing_json)
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
	known_by_slot(cards);
	text = cards_print(info_report_json, cards, NULL);
	unit_pieces("none", text, none);
	free(text);
}

/* --- The program -------------------------------------------------------------------------- */

/* If the output cannot be written, or stdout is closed, that is an error. */
TEST_LOOP(test_output_error, 0, 4)
{
	static const char *const words[] = {"--help >/dev/full", "--version >&-",
					    "--no-test >/dev/full", "--json --max-bytes 4 >&-"};
	char line[512];

	snprintf(line, sizeof(line), "exec %s/runtime/info/ddp-info %s 2>/dev/null",
		 getenv("top_builddir"), words[_i]);
	ck_assert_int_eq(WEXITSTATUS(system(line)), 1);
}

UNIT_MAIN("info", NULL)
