/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info-cards.h - cards of ranks as ddp-info has them, of sound ones and of some that share a GPU, and its report
 */
#ifndef DDP_TESTS_INFO_CARDS_H
#define DDP_TESTS_INFO_CARDS_H

#include <stdio.h>

#include "info/info.h"
#include "mps.h"

/* Four ranks on two nodes, each with a GPU and two CPUs of its own, and nothing wrong. */
void cards_good(struct info_card cards[4]);

/* What tests change of them: nothing; the device of rank 0 has its name on the other node too. */
void cards_nothing(struct info_card *cards);
void cards_same_uuid_elsewhere(struct info_card *cards);

/* Ranks 2 and 3 are on one GPU; have half of it each; and it has 64 GiB, of which so many, or all, are free. */
void cards_one_gpu(struct info_card *cards);
void cards_one_gpu_shared(struct info_card *cards);
void cards_halves(struct info_card *cards, uint64_t free);
void cards_enough_free(struct info_card *cards);

/* All ranks look for a daemon of MPS at one place, and find this. */
void cards_with_daemon(struct info_card *cards, enum ddp_mps_state state);

/* What [report] writes of [ranks], or of four, with what looks wrong. To be freed. */
char *cards_print_ranks(void (*report)(const struct info_report *, FILE *), struct info_card *cards,
			int ranks, const struct info_selftest *test);
char *cards_print(void (*report)(const struct info_report *, FILE *), struct info_card *cards,
		  const struct info_selftest *test);

#endif /* DDP_TESTS_INFO_CARDS_H */
