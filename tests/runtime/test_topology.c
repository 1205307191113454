/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>

#include "comm/topology.h"
#include "unit.h"

enum { MOST = 8 };

/*
 * A world as a string of letters, one for each rank, which name the rank's node. "abab" means that
 * ranks are assigned to nodes in turn. On a node with a capital letter the ranks cannot share
 * memory.
 */
struct row {
	const char *name, *nodes;
	bool shares;
	int groups, columns;
	int ranks[MOST]; /* expected ranks, ordered by group and member */
};

static const struct row rows[] = {
	{"one", "a", true, 1, 1, {0}},
	{"one node", "aaa", true, 1, 3, {0, 1, 2}},
	{"blocks", "aabb", true, 2, 2, {0, 1, 2, 3}},
	{"in turn", "abab", true, 2, 2, {0, 2, 1, 3}},
	{"uneven", "aaab", true, 2, 1, {0, 1, 2, 3}},
	{"uneven, in turn", "abcab", true, 3, 1, {0, 3, 1, 4, 2}},
	{"DDP_LOCAL=off", "aab", false, 3, 1, {0, 1, 2}},
	{"no sharing on the second node", "aaBB", true, 3, 1, {0, 1, 2, 3}},
	{"no sharing on the first node", "AAbb", true, 3, 1, {0, 1, 2, 3}},
	{"no sharing on one node, ranks in turns", "aBaB", true, 3, 1, {0, 2, 1, 3}},
	{"no sharing on any node", "AABB", true, 4, 1, {0, 1, 2, 3}},
	{"no sharing on any node, ranks in turns", "BABA", true, 4, 1, {0, 1, 2, 3}},
	{"one rank of a node cannot share", "aabB", true, 3, 1, {0, 1, 2, 3}},
};

static int make_cards(const char *nodes, bool shares, struct ddp_card *cards)
{
	int size = (int)strlen(nodes), count = 0;

	for (int rank = 0; rank < size; rank++)
		if (tolower(nodes[rank]) - 'a' + 1 > count)
			count = tolower(nodes[rank]) - 'a' + 1;
	for (int rank = 0; rank < size; rank++) {
		int node = tolower(nodes[rank]);

		cards[rank] =
			(struct ddp_card){.node_rank = node - 'a',
					  .node_count = count,
					  .sharing = shares ? DDP_SHARING_AUTO : DDP_SHARING_OFF,
					  .shares = shares && islower(nodes[rank])};
		for (int other = 0; other < size; other++) {
			cards[rank].local_size += tolower(nodes[other]) == node;
			cards[rank].local_rank += other < rank && tolower(nodes[other]) == node;
		}
		cards[rank].host[0] = 'n';
		cards[rank].host[1] = (char)node;
	}
	return size;
}

TEST_ROWS(test_layout, rows)
{
	const struct row *row = &rows[_i];
	struct ddp_topology *topology;
	struct ddp_card cards[MOST];
	struct ddp_error error = {0};
	int size = make_cards(row->nodes, row->shares, cards);

	ck_assert_msg(ddp_topology_create(&topology, cards, size, &error) == 0, "%s: %s", row->name,
		      error.text);
	unit_number(row->name, "groups", topology->groups, row->groups);
	unit_number(row->name, "columns", topology->columns, row->columns);
	for (int i = 0; i < size; i++)
		unit_number(row->name, "rank", topology->ranks[i], row->ranks[i]);
	for (int rank = 0; rank < size; rank++) {
		const struct ddp_place *place = &topology->places[rank];

		unit_number(row->name, "place",
			    ddp_topology_rank(topology, place->group, place->member), rank);
		unit_text(row->name, "host", topology->hosts[place->group], cards[rank].host);
	}
	ddp_topology_destroy(topology);
}

/*
 * A world, and the expected node index of each rank. Nodes are numbered in the order of their first
 * ranks.
 */
static const struct {
	const char *nodes, *order;
} orders[] = {
	{"a", "0"},	  {"aabb", "0011"},   {"abab", "0101"},	    {"bbaa", "0011"},
	{"baba", "0101"}, {"cabca", "01201"}, {"bcaacb", "012210"},
};

TEST_ROWS(test_order, orders)
{
	const char *nodes = orders[_i].nodes;
	struct ddp_card cards[MOST];
	int size = make_cards(nodes, _i % 2, cards);

	for (int rank = 0; rank < size; rank++)
		unit_number(nodes, "node", ddp_topology_node(cards, size, rank),
			    orders[_i].order[rank] - '0');
}

#define FIELD(name) offsetof(struct ddp_card, name), sizeof(((struct ddp_card *)NULL)->name)

/* Changes to the cards of ranks [first] to [last] in the world "aabb". Each is an error. */
static const struct {
	const char *name;
	int first, last;
	size_t at, bytes; /* the field that gets [value] */
	int value;
	const char *pieces;
} refusals[] = {
	{"the same local rank twice", 1, 1, FIELD(local_rank), 0, "ranks 0 and 1|local rank 0|na"},
	{"larger node", 2, 3, FIELD(local_size), 3, "rank 2 on nb|3 ranks|2 ranks"},
	{"larger first node", 0, 1, FIELD(local_size), 3, "rank 0 on na|3 ranks|2 ranks"},
	{"node rank out of range", 3, 3, FIELD(node_rank), 2, "rank 3 on nb|node 2 of 2"},
	{"more nodes", 0, 3, FIELD(node_count), 3, "3 nodes|no rank"},
	{"another DDP_LOCAL", 2, 2, FIELD(sharing), DDP_SHARING_OFF,
	 "DDP_LOCAL differs: rank 2 on nb has off, but rank 0 on na has auto"},
	{"unknown value", 1, 1, FIELD(sharing), 3, "rank 1 on na runs another release"},
	{"local rank out of range", 3, 3, FIELD(local_rank), 2, "rank 3 on nb|local rank 2"},
};

TEST_ROWS(test_refusal, refusals)
{
	struct ddp_topology *topology;
	struct ddp_card cards[MOST];
	struct ddp_error error = {0};
	int size = make_cards("aabb", true, cards);

	for (int rank = refusals[_i].first; rank <= refusals[_i].last; rank++)
		memcpy((char *)&cards[rank] + refusals[_i].at, &refusals[_i].value,
		       refusals[_i].bytes);
	ck_assert_int_eq(ddp_topology_create(&topology, cards, size, &error), DDP_ERR_MISMATCH);
	ck_assert_ptr_null(topology);
	unit_has(refusals[_i].name, error.text, refusals[_i].pieces);
}

UNIT_MAIN("topology", NULL)
