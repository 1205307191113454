/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "info-cards.h"

void cards_good(struct info_card cards[4])
{
	memset(cards, 0, 4 * sizeof(cards[0]));
	for (int rank = 0; rank < 4; rank++) {
		struct info_card *card = &cards[rank];

		card->rank = rank;
		card->node_rank = rank / 2;
		card->local_rank = rank % 2;
		card->local_size = 2;
		card->cpu_mask[0] = UINT64_C(3) << (2 * (rank % 2));
		card->visible = 2;
		card->device = rank % 2;
		card->reached = rank == 2 ? 1 : -1;
		card->client = -1;
		snprintf(card->host, sizeof(card->host), "n%d", rank / 2 + 1);
		snprintf(card->uuid, sizeof(card->uuid), "GPU-%d", rank);
		snprintf(card->endpoint, sizeof(card->endpoint), "n1:1234");
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver 13.0");
		info_cpu_list(card->cpu_mask, card->cpu_list, sizeof(card->cpu_list));
	}
}

void cards_nothing(struct info_card *cards)
{
	(void)cards;
}

void cards_one_gpu(struct info_card *cards)
{
	memcpy(cards[3].uuid, cards[2].uuid, sizeof(cards[3].uuid));
}

void cards_one_gpu_shared(struct info_card *cards)
{
	cards_one_gpu(cards);
	cards[2].share = cards[3].share = 0.5;
}

void cards_same_uuid_elsewhere(struct info_card *cards)
{
	memcpy(cards[2].uuid, cards[0].uuid, sizeof(cards[2].uuid));
}

void cards_halves(struct info_card *cards, uint64_t free)
{
	cards_one_gpu_shared(cards);
	cards[2].total = cards[3].total = UINT64_C(64) << 30;
	cards[2].free = cards[3].free = free << 30;
}

void cards_enough_free(struct info_card *cards)
{
	cards_halves(cards, 64);
}

void cards_with_daemon(struct info_card *cards, enum ddp_mps_state state)
{
	for (int rank = 0; rank < 4; rank++) {
		cards[rank].mps = (int32_t)state;
		snprintf(cards[rank].mps_directory, sizeof(cards[rank].mps_directory), "/tmp/mps");
	}
}

char *cards_print_ranks(void (*report)(const struct info_report *, FILE *), struct info_card *cards,
			int ranks, const struct info_selftest *test)
{
	struct ddp_world world = {.size = ranks,
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

	info_sharing_find(cards, ranks);
	info_warn(cards, ranks, &found);
	report(&facts, out);
	fclose(out);
	return text;
}

char *cards_print(void (*report)(const struct info_report *, FILE *), struct info_card *cards,
		  const struct info_selftest *test)
{
	return cards_print_ranks(report, cards, 4, test);
}
