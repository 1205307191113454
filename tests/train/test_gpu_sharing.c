/* SPDX-License-Identifier: Apache-2.0 */
/* Who shares a GPU, whether that can be, and what is said of it. */
#include "config.h"

#include <stdio.h>

#include "gpu-sharing.h"
#include "unit.h"

enum { MOST = 66 };

/* Each letter is a rank, on the GPU of that name; in upper case on another node. */
static const struct {
	const char *name, *ranks;
	const char *shares; /* of each rank, in tenths; "": nobody said */
	const char *posing; /* a letter for each rank; "": none */
	const char *served; /* 'y': by MPS; "": none */
	const char *text;   /* what is told */
} rows[] = {
	{"one", "a", "", "", "", ""},
	{"one each", "abc", "", "", "", ""},
	{"two", "aa", "", "", "", "2 ranks share GPU 3, half of its memory each, by time-slicing"},
	{"four", "aaaa", "", "", "yyyy",
	 "4 ranks share GPU 3, a quarter of its memory each, by MPS"},
	{"seven", "aaaaaaa", "", "", "",
	 "7 ranks share GPU 3, a seventh of its memory each, by time-slicing"},
	{"eleven", "aaaaaaaaaaa", "", "", "",
	 "11 ranks share GPU 3, 9.09 % of its memory each, by time-slicing"},
	{"and one alone", "aba", "", "", "",
	 "2 ranks share GPU 3, half of its memory each, by time-slicing"},
	{"two GPUs", "abab", "", "", "",
	 "4 ranks share 2 GPUs, 2 on each, half of its memory each, by time-slicing"},
	{"unevenly", "ababa", "", "", "yyyyn",
	 "5 ranks share 2 GPUs, 2 to 3 on each, a third to half of its memory each, some by MPS, "
	 "some by time-slicing"},
	{"as is said", "aa", "22", "", "",
	 "2 ranks share GPU 3, a fifth of its memory each, by time-slicing"},
	{"as is said of one", "aa", "30", "", "",
	 "2 ranks share GPU 3, 30 % to half of its memory each, by time-slicing"},
	{"more than there is", "aaa", "444", "", "",
	 "3 ranks share GPU 3, 40 % of its memory each, by time-slicing; DDP_SHARE gives away more "
	 "than there is"},
	{"posing", "aa", "", "xy", "", ""},
	{"posing in pairs", "aaaa", "", "xyxy", "",
	 "4 ranks share 2 GPUs, 2 on each, half of its memory each, by time-slicing"},
};

static int fill_seats(struct sharing_seat *seats, const char *ranks)
{
	int size = (int)strlen(ranks);

	memset(seats, 0, MOST * sizeof(*seats));
	for (int i = 0; i < size; i++) {
		bool upper = ranks[i] < 'a';

		snprintf(seats[i].device, sizeof(seats[i].device), "GPU-%c",
			 ranks[i] + 'a' * upper - 'A' * upper);
		snprintf(seats[i].host, sizeof(seats[i].host), "n%d", upper);
		seats[i].node = upper;
		seats[i].index = 3;
		seats[i].memory = 1;
	}
	return size;
}

TEST_ROWS(test_told, rows)
{
	struct sharing_seat seats[MOST];
	int size = fill_seats(seats, rows[_i].ranks);
	char text[256];

	for (int i = 0; i < size; i++) {
		if (*rows[_i].shares)
			seats[i].share = 0.1 * (rows[_i].shares[i] - '0');
		if (*rows[_i].posing)
			seats[i].posing[0] = rows[_i].posing[i];
		seats[i].mps = *rows[_i].served && rows[_i].served[i] == 'y';
	}
	ck_assert(!sharing_hinders(seats, size, text, sizeof(text)));
	sharing_divide(seats, size);
	sharing_tell(seats, size, text, sizeof(text));
	unit_text(rows[_i].name, "text", text, rows[_i].text);
}

TEST(test_slices)
{
	struct sharing_seat seats[MOST];
	char text[256];

	fill_seats(seats, "aa");
	strcpy(seats[0].device, "MIG-1");
	strcpy(seats[1].device, "MIG-1");
	sharing_divide(seats, 2);
	sharing_tell(seats, 2, text, sizeof(text));
	unit_text("slices", "text", text,
		  "2 ranks share a MIG slice, half of its memory each, by time-slicing");
	/* Two that nobody knows are not one. */
	seats[0].device[0] = seats[1].device[0] = '\0';
	seats[0].share = seats[1].share = 0;
	sharing_divide(seats, 2);
	ck_assert_int_eq(sharing_ranks(seats, 2, &seats[1]), 1);
	ck_assert(!(seats[0].share > 0));
}

TEST(test_hindered)
{
	struct sharing_seat seats[MOST];
	char text[512], many[MOST + 1];

	fill_seats(seats, "abA");
	ck_assert(sharing_hinders(seats, 3, text, sizeof(text)));
	ck_assert_ptr_nonnull(
		strstr(text, "ranks 0 and 2 are both on GPU-a of n0, but not of one"));
	fill_seats(seats, "bacc");
	seats[3].memory = 0;
	ck_assert(sharing_hinders(seats, 4, text, sizeof(text)));
	ck_assert_ptr_nonnull(strstr(text, "ranks 2 and 3 are both on GPU-c of n0, and share no"));
	seats[3].device[0] = 'X';
	ck_assert(!sharing_hinders(seats, 4, text, sizeof(text)));
	memset(many, 'a', MOST);
	many[65] = '\0';
	fill_seats(seats, many);
	ck_assert(sharing_hinders(seats, 65, text, sizeof(text)));
	ck_assert_ptr_nonnull(strstr(text, "65 ranks are on GPU-a of n0, and 64 at most"));
	ck_assert(!sharing_hinders(seats, 64, text, sizeof(text)));
}

UNIT_MAIN("sharing", NULL)
