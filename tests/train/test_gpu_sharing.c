/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_sharing.c - ranks that share a GPU, and the description of the sharing */
#include "config.h"

#include <stdio.h>

#include "gpu-sharing.h"
#include "unit.h"

enum { MOST = 66 };

/* Each letter is a rank, and names the rank's GPU. Upper-case ranks are on another node. */
static const struct {
	const char *name, *ranks;
	const char *shares;  /* share of each rank, in tenths; "": unknown */
	const char *host_id; /* a letter for each rank; "": unset */
	const char *served;  /* 'y': MPS serves the rank; "": no MPS */
	const char *text;    /* expected description */
} rows[] = {
	{"one", "a", "", "", "", ""},
	{"one each", "abc", "", "", "", ""},
	{"two", "aa", "", "", "", "2 ranks share GPU 3, 50 % of its memory each, by time-slicing"},
	{"four", "aaaa", "", "", "yyyy", "4 ranks share GPU 3, 25 % of its memory each, by MPS"},
	{"and one alone", "aba", "", "", "",
	 "2 ranks share GPU 3, 50 % of its memory each, by time-slicing"},
	{"unevenly", "ababa", "", "", "yyyyn",
	 "5 ranks share 2 GPUs, 33.3 to 50 % of its memory each, some by MPS"},
	{"as given", "aa", "22", "", "",
	 "2 ranks share GPU 3, 20 % of its memory each, by time-slicing"},
	{"as given for one rank", "aa", "30", "", "",
	 "2 ranks share GPU 3, 30 to 50 % of its memory each, by time-slicing"},
	{"different hosts", "aa", "", "xy", "", ""},
	{"different hosts in pairs", "aaaa", "", "xyxy", "",
	 "4 ranks share 2 GPUs, 50 % of its memory each, by time-slicing"},
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
		seats[i].index = 3;
	}
	return size;
}

TEST_ROWS(test_description, rows)
{
	struct sharing_seat seats[MOST];
	int size = fill_seats(seats, rows[_i].ranks);
	char text[256];

	for (int i = 0; i < size; i++) {
		if (*rows[_i].shares)
			seats[i].share = 0.1 * (rows[_i].shares[i] - '0');
		if (*rows[_i].host_id)
			seats[i].host_id[0] = rows[_i].host_id[i];
		seats[i].mps = *rows[_i].served && rows[_i].served[i] == 'y';
	}
	sharing_divide(seats, size);
	sharing_describe(seats, size, text, sizeof(text));
	unit_text(rows[_i].name, "text", text, rows[_i].text);
}

/* Two GPUs without a known name do not count as one GPU. */
TEST(test_unknown)
{
	struct sharing_seat seats[MOST];

	fill_seats(seats, "aa");
	seats[0].device[0] = seats[1].device[0] = '\0';
	sharing_divide(seats, 2);
	ck_assert_int_eq(sharing_ranks(seats, 2, &seats[1]), 1);
	ck_assert(!(seats[0].share > 0));
}

UNIT_MAIN("sharing", NULL)
