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
		ck_assert_ptr_nonnull(strstr(message.text, "write P or LO-HI, 1 to 65535"));
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
	uint64_t hash;
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

	snprintf(row, sizeof(row), "%u-%u without %u-%u, hash %llu", computed[_i].range.lo,
		 computed[_i].range.hi, computed[_i].ephemeral.lo, computed[_i].ephemeral.hi,
		 (unsigned long long)computed[_i].hash);
	unit_number(row, "port",
		    ddp_port_compute(computed[_i].range, computed[_i].ephemeral, computed[_i].hash),
		    computed[_i].port);
}

/*
 * The port is even, and the next port is in the range too. Neither is ephemeral if the range allows
 * that.
 */
TEST(test_compute_property)
{
	uint64_t state = 0x5eed;

	for (int i = 0; i < 20000; i++) {
		struct ddp_port_range range, ephemeral;
		uint32_t port;

		range.lo = 1 + unit_random(&state, 65533);
		range.hi = range.lo + 2 + unit_random(&state, 65534 - range.lo);
		ephemeral.lo = 1 + unit_random(&state, 65535);
		ephemeral.hi = ephemeral.lo + unit_random(&state, 65536 - ephemeral.lo);
		port = ddp_port_compute(range, ephemeral, unit_random(&state, UINT32_MAX));
		ck_assert_uint_eq(port % 2, 0);
		ck_assert_uint_ge(port, range.lo);
		ck_assert_uint_lt(port, range.hi);
		/*
		 * 3 ports on one side of the ephemeral range always include an even port and the
		 * next one.
		 */
		if (range.lo + 3 <= ephemeral.lo || range.hi >= ephemeral.hi + 3)
			ck_assert(port + 1 < ephemeral.lo || port > ephemeral.hi);
	}
}

/*
 * Computes the ports of 64000 consecutive steps, in a range with 32 ports. Each port is expected
 * 2000 times, with a deviation of about 45. The seed is fixed, so the result is always the same.
 */
static void check_spread(const char *row, uint64_t (*hash)(uint32_t i))
{
	uint32_t hits[32] = {0};
	double chi = 0;

	for (uint32_t i = 0; i < 64000; i++) {
		uint32_t port = ddp_port_compute((struct ddp_port_range){62000, 62063},
						 (struct ddp_port_range)LINUX, hash(i));

		hits[(port - 62000) / 2]++;
	}
	for (int i = 0; i < 32; i++)
		chi += ((double)hits[i] - 2000) * ((double)hits[i] - 2000) / 2000;
	/* With 31 degrees of freedom, chi square exceeds 61.1 with a probability of 0.001. */
	ck_assert_msg(chi < 61.1, "%s: chi square is %.1f", row, chi);
}

static uint64_t hash_of_job(uint32_t i)
{
	return ddp_step_hash("cluster", i, 0, 0);
}

static uint64_t hash_of_step(uint32_t i)
{
	return ddp_step_hash("cluster", 4711, i, 0);
}

static uint64_t hash_of_attempt(uint32_t i)
{
	return ddp_step_hash("cluster", 4711, 0, i);
}

static uint64_t hash_of_cluster(uint32_t i)
{
	char name[16];

	snprintf(name, sizeof(name), "c%u", i);
	return ddp_step_hash(name, 4711, 0, 0);
}

TEST(test_spread)
{
	check_spread("jobs", hash_of_job);
	check_spread("steps", hash_of_step);
	check_spread("attempts", hash_of_attempt);
	check_spread("clusters", hash_of_cluster);
}

static int compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

TEST(test_hash_differs)
{
	static uint64_t h[4 * 40 * 40 * 4];
	static const char *const clusters[] = {"", "a", "b", "ab"};
	size_t n = 0;

	for (uint32_t c = 0; c < 4; c++)
		for (uint32_t job = 0; job < 40; job++)
			for (uint32_t step = 0; step < 40; step++)
				for (uint32_t attempt = 0; attempt < 4; attempt++)
					h[n++] = ddp_step_hash(clusters[c], job, step, attempt);
	qsort(h, n, sizeof(h[0]), compare);
	for (size_t i = 1; i < n; i++)
		ck_assert(h[i] != h[i - 1]);
	ck_assert(ddp_step_hash("c", 1, 11, 0) != ddp_step_hash("c", 11, 1, 0));
	/* the hash must be the same on every machine and in every version */
	ck_assert_uint_eq(ddp_step_hash("c", 7, 0, 0), 0x70296c4aa021e924);
}

/*
 * Steps that run on a node at the same time should have different ports. The default range has 2267
 * pairs of ports, so 1 of 2267 pairs of steps gets the same port. The test compares 100 pairs of
 * successive steps in each of 1000 jobs, and expects 44 collisions.
 */
TEST(test_collisions)
{
	const struct ddp_port_range ephemeral = LINUX;
	uint32_t met = 0;

	for (uint32_t job = 1000; job < 2000; job++)
		for (uint32_t step = 0; step < 100; step++)
			met += ddp_port_compute(DDP_PORTS_DEFAULT, ephemeral,
						ddp_step_hash("c", job, step, 0)) ==
			       ddp_port_compute(DDP_PORTS_DEFAULT, ephemeral,
						ddp_step_hash("c", job, step + 1, 0));
	ck_assert_uint_lt(met, 70);
	ck_assert_uint_gt(met, 20);
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
