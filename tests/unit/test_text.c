/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/hide.h"
#include "format.h"
#include "unit.h"

static const struct {
	const char *text;
	uint64_t lo, hi;
	int rc;
	uint64_t value;
} numbers[] = {
	{"0", 0, 9, 0, 0},
	{"9", 0, 9, 0, 9},
	{"10", 0, 9, -1, 0},
	{"1", 1, 1, 0, 1},
	{"0", 1, 9, -1, 0},
	{"007", 0, 9, 0, 7},
	{"4294967295", 0, UINT32_MAX, 0, UINT32_MAX},
	{"4294967296", 0, UINT32_MAX, -1, 0},
	{"18446744073709551615", 0, UINT64_MAX, 0, UINT64_MAX},
	{"18446744073709551616", 0, UINT64_MAX, -1, 0},
	{"18446744073709551625", 0, UINT64_MAX, -1, 0},
	{"99999999999999999999", 0, UINT64_MAX, -1, 0},
	{"", 0, 9, -1, 0},
	{NULL, 0, 9, -1, 0},
	{"-1", 0, 9, -1, 0},
	{"+1", 0, 9, -1, 0},
	{" 1", 0, 9, -1, 0},
	{"1 ", 0, 9, -1, 0},
	{"1\n", 0, 9, -1, 0},
	{"0x1", 0, 9, -1, 0},
	{"1.0", 0, 9, -1, 0},
	{"1e1", 0, 99, -1, 0},
	{"/", 0, 99, -1, 0},
	{":", 0, 99, -1, 0},
	{"\xb2", 0, 999, -1, 0},
};

TEST_ROWS(test_number, numbers)
{
	const char *name = numbers[_i].text ? numbers[_i].text : "(null)";
	uint64_t value = 4711;
	int rc = ddp_parse_number(numbers[_i].text, numbers[_i].lo, numbers[_i].hi, &value);

	unit_number(name, "return", rc, numbers[_i].rc);
	ck_assert_uint_eq(value, rc < 0 ? 4711 : numbers[_i].value);
}

static const struct {
	const char *name, *value, *filled;
} lookups[] = {
	{"RANK", "3", "3"},    {"RAN", NULL, NULL},	 {"RANKS", "all", "all"},
	{"EMPTY", "", NULL},   {"EQUALS", "a=b", "a=b"}, {"TWICE", "first", "first"},
	{"WORLD", NULL, NULL}, {"", NULL, NULL},
};

TEST_ROWS(test_env, lookups)
{
	static const char *const env[] = {"RANKS=all",	"RANK=3",      "WORLD",	       "EMPTY=",
					  "EQUALS=a=b", "TWICE=first", "TWICE=second", NULL};
	const char *name = lookups[_i].name;

	unit_text(name, "value", ddp_env_get(unit_env(env), name), lookups[_i].value);
	unit_text(name, "filled", ddp_env_filled(unit_env(env), name), lookups[_i].filled);
	unit_text(name, "of no environment", ddp_env_get(NULL, name), NULL);
	unit_text(name, "filled of no environment", ddp_env_filled(NULL, name), NULL);
}

#define DIRECTORY "/home/ann/.ddp/big-42.7.0-"

static const struct {
	const char *text, *shown;
} hidden[] = {
	{"", ""},
	{DIRECTORY "0123456789abcdef", DIRECTORY "*"},
	{"cannot write in " DIRECTORY "0123456789abcdef/step: No space",
	 "cannot write in " DIRECTORY "*/step: No space"},
	{"file://" DIRECTORY "0123456789abcdef/store?rank=0", "file://" DIRECTORY "*/store?rank=0"},
	{DIRECTORY "0123456789abcdef " DIRECTORY "fedcba9876543210.",
	 DIRECTORY "* " DIRECTORY "*."},
	{"/x/.ddp/a-b-c-1.0.0-0123456789abcdef'", "/x/.ddp/a-b-c-1.0.0-*'"},
	{"/x/.ddp/failed-42.7/rank-0", "/x/.ddp/failed-42.7/rank-0"},
	{"/x/.ddp/0123456789abcdef", "/x/.ddp/0123456789abcdef"},
	{"/x/.ddp/a-0123456789abcdef0", "/x/.ddp/a-0123456789abcdef0"},
	{"/x/.ddp/", "/x/.ddp/"},
};

TEST_ROWS(test_hide, hidden)
{
	struct ddp_message message;
	char text[256];

	strcpy(text, hidden[_i].text);
	ddp_hide(text);
	unit_text(hidden[_i].text, "shown", text, hidden[_i].shown);
	(void)ddp_fail(&message, "%s", hidden[_i].text);
	unit_text(hidden[_i].text, "message", message.text, hidden[_i].shown);
}

TEST(test_escape)
{
	char text[64], little[8];

	ddp_escape("RANK=5\n[2026] error: forged \x1b[2J\x7f \xc3\xa4", text, sizeof(text));
	ck_assert_str_eq(text, "RANK=5\\x0a[2026] error: forged \\x1b[2J\\x7f \xc3\xa4");
	ddp_escape("abcd\nefgh", little, sizeof(little));
	ck_assert_str_eq(little, "abcd");
	ddp_escape("", little, 1);
	ck_assert_str_eq(little, "");
}

UNIT_MAIN("text", NULL)
