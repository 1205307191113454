/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are on one device, from what they tell of it */
#include "config.h"

#include <stdio.h>

#include "device/cards.h"
#include "unit.h"

/* Letters are devices, of one host; a capital is the same device as another kernel has it. */
static const struct {
	const char *devices;
	bool shared;
	int shards;
	const char *places; /* shard and member of each rank */
} rows[] = {
	{"a", false, 1, "00"},
	{"ab", false, 2, "0010"},
	{"aa", true, 1, "0001"},
	{"aaaaaaaa", true, 1, "0001020304050607"},
	{"aabb", true, 2, "00011011"},
	{"abab", true, 2, "00100111"},
	{"abbccc", true, 3, "001011202122"},
	{"baab", true, 2, "00101101"},
	{"aA", false, 2, "0010"},
	{"aAaA", true, 2, "00100111"},
	{"abcdefgha", true, 8, "001020304050607001"},
};

static void write_cards(const char *devices, struct ddp_device_card *cards)
{
	for (int rank = 0; devices[rank]; rank++) {
		bool other = devices[rank] < 'a';

		cards[rank] = (struct ddp_device_card){.rank = rank, .boot = other ? 2 : 1};
		snprintf(cards[rank].uuid, sizeof(cards[rank].uuid), "GPU-%c",
			 other ? devices[rank] + 'a' - 'A' : devices[rank]);
	}
}

START_TEST(test_places)
{
	struct ddp_device_card cards[16];
	struct ddp_sharing *sharing;
	const char *row = rows[_i].devices;
	int size = (int)strlen(row);

	write_cards(row, cards);
	ck_assert_int_eq(ddp_sharing_create(&sharing, cards, size, NULL), 0);
	unit_number(row, "shared", sharing->shared, rows[_i].shared);
	unit_number(row, "shards", sharing->shards, rows[_i].shards);
	for (int rank = 0; rank < size; rank++) {
		const struct ddp_place *place = &sharing->places[rank];

		unit_number(row, "shard", place->group, rows[_i].places[2 * rank] - '0');
		unit_number(row, "member", place->member, rows[_i].places[2 * rank + 1] - '0');
		unit_number(row, "rank", ddp_sharing_rank(sharing, place->group, place->member),
			    rank);
		ck_assert_int_lt(place->member, ddp_sharing_members(sharing, place->group));
	}
	unit_number(row, "all", sharing->first[sharing->shards], size);
	unit_number(row, "leader", ddp_sharing_rank(sharing, 0, 0), 0);
	ddp_sharing_destroy(sharing);
	ddp_sharing_destroy(NULL);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_places, rows);
}

int main(void)
{
	return unit_run("sharing", fill);
}
