/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "endpoint.h"
#include "unit.h"

#include <stdio.h>

static const struct {
	const char *text;
	int rc;
	uint32_t lo, hi;
} ranges[] = {
	{"1", 0, 1, 1},
	{"29500", 0, 29500, 29500},
	{"65535", 0, 65535, 65535},
	{"61000-65533", 0, 61000, 65533},
	{"5-5", 0, 5, 5},
	{"1-65535", 0, 1, 65535},
	{"0", -1, 0, 0},
	{"65536", -1, 0, 0},
	{"2-1", -1, 0, 0},
	{"1-65536", -1, 0, 0},
	{"0-5", -1, 0, 0},
	{"-5", -1, 0, 0},
	{"5-", -1, 0, 0},
	{"-", -1, 0, 0},
	{"", -1, 0, 0},
	{"1-2-3", -1, 0, 0},
	{"1,2", -1, 0, 0},
	{"http", -1, 0, 0},
	{" 1", -1, 0, 0},
};

TEST_ROWS(test_range, ranges)
{
	const char *text = ranges[_i].text;
	struct ddp_port_range range = {7, 7};
	struct ddp_message message = {""};
	char shown[40];

	unit_number(text, "return", ddp_ports_parse(text, "--ddp-port", &range, &message),
		    ranges[_i].rc);
	if (ranges[_i].rc == 0) {
		unit_number(text, "lo", range.lo, ranges[_i].lo);
		unit_number(text, "hi", range.hi, ranges[_i].hi);
	} else {
		snprintf(shown, sizeof(shown), "--ddp-port=%s ", text);
		ck_assert_ptr_nonnull(strstr(message.text, shown));
		ck_assert_ptr_nonnull(
			strstr(message.text, "Write P or LO-HI, with numbers from 1 to 65535"));
		ck_assert_uint_eq(range.lo, 7);
	}
}

static const struct {
	const char *list;
	size_t room, found;
	uint32_t ports[4];
} reserved[] = {
	{"18001-18004", 2, 2, {18001, 18002}},
	{"18001-18004,18010", 4, 4, {18001, 18002, 18003, 18004}},
	{"18001,18010", 4, 2, {18001, 18010}},
	{"18001-18002,18010-18012", 4, 4, {18001, 18002, 18010, 18011}},
	{"18001", 2, 1, {18001}},
	{"18001", 0, 0, {0}},
	{"65535", 2, 1, {65535}},
	{"18001-18001", 2, 1, {18001}},
	{"", 2, 0, {0}},
	{"(null)", 2, 0, {0}},
	{"x", 2, 0, {0}},
	{"0", 2, 0, {0}},
	{"18002-18001", 2, 0, {0}},
	{"18001-", 2, 0, {0}},
	{"18001,", 2, 0, {0}},
	{"18001,x", 2, 0, {0}},
	{"65535-65536", 2, 0, {0}},
};

TEST_ROWS(test_reserved, reserved)
{
	uint32_t ports[4] = {0};
	size_t found = ddp_ports_reserved(reserved[_i].list, ports, reserved[_i].room);

	unit_number(reserved[_i].list, "found", (int64_t)found, (int64_t)reserved[_i].found);
	for (size_t i = 0; i < found; i++)
		unit_number(reserved[_i].list, "port", ports[i], reserved[_i].ports[i]);
}

#define LINUX                \
	{                    \
		32768, 60999 \
	}
#define DEFAULT              \
	{                    \
		61000, 65533 \
	}

static const struct {
	struct ddp_port_range range, ephemeral;
	uint64_t index;
	uint32_t port;
} computed[] = {
	{DEFAULT, LINUX, 0, 61000},
	{DEFAULT, LINUX, 1, 61002},
	{DEFAULT, LINUX, 2266, 65532},
	{DEFAULT, LINUX, 2267, 61000},
	{DEFAULT, LINUX, UINT64_MAX, 61000 + 2 * (UINT64_MAX % 2267)},
	/* range below the ephemeral range */
	{{20001, 20006}, LINUX, 0, 20002},
	{{20001, 20006}, LINUX, 1, 20004},
	{{20001, 20006}, LINUX, 2, 20002},
	{{32764, 32767}, LINUX, 3, 32766},
	/* even ports on both sides of the ephemeral range */
	{{32764, 61003}, LINUX, 0, 32764},
	{{32764, 61003}, LINUX, 1, 32766},
	{{32764, 61003}, LINUX, 2, 61000},
	{{32764, 61003}, LINUX, 3, 61002},
	{{32764, 61003}, LINUX, 4, 32764},
	/* both ports of a pair must be outside the ephemeral range */
	{{32766, 61001}, {32767, 60999}, 0, 61000},
	{{32766, 61001}, {32767, 60999}, 1, 61000},
	{{1, 65535}, {3, 65533}, 0, 65534},
	/* the ephemeral range ends at an even port inside the range */
	{{60000, 61003}, {32768, 60998}, 0, 61000},
	{{60000, 61003}, {32768, 60998}, 1, 61002},
	/* the whole range is ephemeral */
	{{40000, 40003}, LINUX, 0, 40000},
	{{40000, 40003}, LINUX, 1, 40002},
	{{1024, 65535}, {1, 65535}, 5, 1034},
	{LINUX, LINUX, 1, 32770},
	/* a range of one port */
	{{29500, 29500}, LINUX, 12345, 29500},
	{{29501, 29501}, LINUX, 12345, 29501},
	{{40001, 40001}, LINUX, 12345, 40001},
	{{65535, 65535}, LINUX, 12345, 65535},
	/* ephemeral range unknown */
	{{61000, 61003}, {0, 0}, 1, 61002},
};

TEST_ROWS(test_compute, computed)
{
	char row[96];

	snprintf(row, sizeof(row), "%u-%u without %u-%u, index %llu", computed[_i].range.lo,
		 computed[_i].range.hi, computed[_i].ephemeral.lo, computed[_i].ephemeral.hi,
		 (unsigned long long)computed[_i].index);
	unit_number(row, "port",
		    ddp_port_compute(computed[_i].range, computed[_i].ephemeral,
				     computed[_i].index),
		    computed[_i].port);
}

/* The hash is the same on every machine and in every release. */
TEST(test_hash)
{
	ck_assert_uint_eq(ddp_job_hash("c", 7, 0), 0xffbfa4b6f689caf7);
	ck_assert_uint_eq(ddp_job_hash("ab", 4711, 1), 0x49984d9593e1bc5d);
}

static const struct {
	const char *address, *node;
	bool is_node;
} names[] = {
	{"n1", "n1", true},
	{"N1", "n1", true},
	{"n1.example.org", "n1", true},
	{"n1", "n1.example.org", true},
	{"n1.example.org", "n1.example.org", true},
	{"n1.example.org", "n1.example.com", false},
	{"n10", "n1", false},
	{"n1", "n10", false},
	{"n1-ib", "n1", false},
	{"10.0.0.1", "10", false},
	{"10.0.0.1", "10.0.0.1", true},
	{"::1", "n1", false},
	{"", "n1", false},
};

TEST_ROWS(test_names, names)
{
	unit_number(names[_i].address, names[_i].node,
		    ddp_address_is_node(names[_i].address, names[_i].node), names[_i].is_node);
}

static const struct {
	const char *name, *addr, *suffix, *want;
} addresses[] = {
	{"n1", "n1", NULL, "n1"},
	{"n1", "n1", "", "n1"},
	{"n1", "10.0.0.1", NULL, "10.0.0.1"},
	{"n1", "10.0.0.1", "", "10.0.0.1"},
	{"n1", NULL, NULL, "n1"},
	{"n1", "", NULL, "n1"},
	{"n1", "10.0.0.1", "-ib", "n1-ib"},
	{"n1", "n1", ".fast.example.org", "n1.fast.example.org"},
	{"n1", NULL, "i", "n1i"},
	{"n1", "fe80::1", NULL, "fe80::1"},
};

TEST_ROWS(test_address, addresses)
{
	char buf[32];

	ck_assert_int_eq(ddp_address_choose(addresses[_i].name, addresses[_i].addr,
					    addresses[_i].suffix, buf, sizeof(buf)),
			 0);
	unit_text(addresses[_i].name, "address", buf, addresses[_i].want);
	ck_assert_int_eq(ddp_address_choose(addresses[_i].name, addresses[_i].addr,
					    addresses[_i].suffix, buf, strlen(addresses[_i].want)),
			 -1);
}

static const struct {
	const char *suffix;
	int rc;
	const char *pieces;
} suffixes[] = {
	{"-ib", 0, NULL},
	{".fast.example.org", 0, NULL},
	{"i", 0, NULL},
	{"_0", 0, NULL},
	{"1234567890123456789012345678901234567890123456789012345678901234", 0, NULL},
	{"12345678901234567890123456789012345678901234567890123456789012345", -1,
	 "master_suffix|longer than 64"},
	{"", -1, "master_suffix is empty|-ib"},
	{"-ib ", -1, "master_suffix=-ib |letters, digits"},
	{":1", -1, "master_suffix=:1|letters, digits"},
	{"/x", -1, "master_suffix=/x"},
	{"-\xc3\xa4", -1, "master_suffix=-"},
	{";a", -1, "master_suffix=;a"},
};

TEST_ROWS(test_suffix, suffixes)
{
	struct ddp_message message = {""};
	const char *suffix = suffixes[_i].suffix;

	unit_number(suffix, "return", ddp_suffix_check(suffix, "master_suffix", &message),
		    suffixes[_i].rc);
	unit_has(suffix, message.text, suffixes[_i].pieces);
}

UNIT_MAIN("endpoint", NULL)
