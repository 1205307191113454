/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "nodelist.h"
#include "unit.h"

#include <stdio.h>

static const struct {
	const char *list;
	const char *names; /* all names, with a comma after each */
} lists[] = {
	{"n1", "n1,"},
	{"login", "login,"},
	{"n1,n2", "n1,n2,"},
	{"n2,n1", "n2,n1,"},
	{"n[1-3]", "n1,n2,n3,"},
	{"n[1,3]", "n1,n3,"},
	{"n[3,1-2]", "n3,n1,n2,"},
	{"n[01-03]", "n01,n02,n03,"},
	{"n[08-11]", "n08,n09,n10,n11,"},
	{"n[8-11]", "n8,n9,n10,n11,"},
	{"n[001,2]", "n001,n2,"},
	{"n[0-0]", "n0,"},
	{"gpu[01-03,7],login-2,r[1-2]n[0-1]x",
	 "gpu01,gpu02,gpu03,gpu7,login-2,r1n0x,r1n1x,r2n0x,r2n1x,"},
	{"a[1-2][3-4]", "a13,a14,a23,a24,"},
	{"[1-2]", "1,2,"},
	{"[1-2]x", "1x,2x,"},
	{"x[1]y[2]z", "x1y2z,"},
	{"alpha,beta", "alpha,beta,"},
	{"linux[1,2]", "linux1,linux2,"},
	{"my-node-[1-2].example.org", "my-node-1.example.org,my-node-2.example.org,"},
	{"n[999999999999999998-999999999999999999]", "n999999999999999998,n999999999999999999,"},
};

static const struct {
	const char *list;
	bool plain;
} orders_of_names[] = {
	{"n1", true},	     {"login", true},	     {"n[1-3]", true},	  {"n[01-03]", true},
	{"n[1,3-4]", true},  {"n[1-2,5-7]", true},   {"[1-2]", true},	  {"n4,n3a", false},
	{"n3a,n4", false},   {"n[1-2],m1", false},   {"n[3,1-2]", false}, {"n[1,1]", false},
	{"n[1-3,3]", false}, {"n[001,2]", false},    {"n[9,10]", false},  {"n[1-2]x", false},
	{"x[1]y[2]", false}, {"a[1-2][3-4]", false}, {"n[1-2],", false},  {"n[1", false},
	{"", false},
};

TEST_ROWS(test_plain, orders_of_names)
{
	const char *list = orders_of_names[_i].list;

	unit_number(list, "plain", ddp_nodelist_is_plain(list), orders_of_names[_i].plain);
}

static const char *const broken[] = {
	"",
	",",
	"n1,",
	",n1",
	"n1,,n2",
	"n[",
	"n[1",
	"n[]",
	"n[1",
	"n]",
	"n[1]]",
	"n[1,]",
	"n[,1]",
	"n[1-]",
	"n[-1]",
	"n[2-1]",
	"n[a]",
	"n[1-2-3]",
	"n[1:3]",
	"n[[1]]",
	"n 1",
	"n1 ,n2",
	"n\t1",
	"n[1-2",
	"n[1 -2]",
	"n[+1]",
	"n[1]2-3]",
	"a[1],b[",
	"n[0-9][",
	"n[1-2],",
	"n[0-10000000]",
	"n[1000000000000000000]",
	"n[1]n[1]n[1]n[1]n[1]n[1]n[1]n[1]n[1]",
	"n[0-999][0-999][0-1]",
	"n[0-999999],m",
	"n[0-499999,0-499999,7]",
};

TEST_ROWS(test_list, lists)
{
	const char *list = lists[_i].list;
	char all[512] = "", name[DDP_NODE_SIZE], next[DDP_NODE_SIZE];
	struct ddp_nodelist way;
	size_t i = 0;

	ddp_nodelist_begin(&way, list);
	for (; ddp_nodelist_nth(list, i, name, sizeof(name)) == 0; i++) {
		strcat(all, name);
		strcat(all, ",");
		ck_assert_int_eq(ddp_nodelist_next(&way, next, sizeof(next)), 0);
		unit_text(list, "next", next, name);
	}
	ck_assert_int_eq(ddp_nodelist_next(&way, next, sizeof(next)), -1);
	unit_text(list, "names", all, lists[_i].names);
	unit_number(list, "count", ddp_nodelist_count(list), (int64_t)i);
}

TEST_ROWS(test_broken, broken)
{
	unit_number(broken[_i], "count", ddp_nodelist_count(broken[_i]), -1);
}

/* The longest list and the longest name that are accepted. */
TEST(test_limits)
{
	char name[8];

	ck_assert_int_eq(ddp_nodelist_nth(NULL, 0, name, sizeof(name)), -1);
	ck_assert_int_eq(ddp_nodelist_count(NULL), -1);
	ck_assert_int_eq(ddp_nodelist_count("n[0-999999]"), 1000000);
	ck_assert_int_eq(ddp_nodelist_count("n[000-999][000-999]"), 1000000);
	ck_assert_int_eq(ddp_nodelist_nth("n[000-999][000-999]", 999999, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "n999999");
	ck_assert_int_eq(ddp_nodelist_nth("n[000-999][000-999]", 12345, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "n012345");
	ck_assert_int_eq(ddp_nodelist_nth("n[000-999][000-999]", 1000000, name, sizeof(name)), -1);
	ck_assert_int_eq(ddp_nodelist_nth("n[0000000-0000001]", 0, name, sizeof(name)), -1);
	ck_assert_int_eq(ddp_nodelist_nth("node[1-2]xyz", 0, name, sizeof(name)), -1);
	ck_assert_int_eq(ddp_nodelist_nth("node[1-2]xy", 0, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "node1xy");
	ck_assert_int_eq(ddp_nodelist_nth("n1", 0, name, 0), -1);
	ck_assert_int_eq(ddp_nodelist_nth("n1", 0, name, 1), -1);
	ck_assert_int_eq(ddp_nodelist_nth("n[1]n[1]n[1]n[1]", 0, name, sizeof(name)), -1);
}

static const struct {
	const char *tasks;
	int uneven;
} tasks[] = {
	{"1", 0},	   {"2(x3)", 0},       {"2(x3),1", 1}, {"2(x3),2", 0},	{"3,1", 1},
	{"1,1,1", 0},	   {"1,1,2(x2)", 1},   {"2,2,1", 1},   {"4(x1000)", 0}, {"1,2,1", 1},
	{"4294967295", 0}, {"4294967296", -1}, {"", -1},       {",", -1},	{"2,", -1},
	{",2", -1},	   {"2(x)", -1},       {"2(x0)", -1},  {"2(3)", -1},	{"2(x3", -1},
	{"2x3)", -1},	   {"(x3)", -1},       {"2(x3)4", -1}, {"2(x3),a", -1}, {"a", -1},
	{"-1", -1},	   {"2 ,2", -1},       {"2(x-1)", -1}, {"2(", -1},	{"2)", -1},
};

static const struct {
	const char *tasks;
	uint64_t nodes;
	int64_t most; /* -1: error */
} mosts[] = {
	{"2(x3),1", 0, 0},   {"2(x3),1", 1, 2},	 {"2(x3),1", 4, 2},   {"2(x3),1", 5, -1},
	{"1,3", 1, 1},	     {"1,3", 2, 3},	 {"1(x2),7,2", 2, 1}, {"1(x2),7,2", 3, 7},
	{"1(x2),7,2", 4, 7}, {"x", 1, -1},	 {"", 1, -1},	      {"1,x", 2, -1},
	{"1,x", 1, 1},	     {"2(x0),1", 2, -1},
};

TEST_ROWS(test_most, mosts)
{
	uint64_t most = 77;
	int rc = ddp_tasks_most(mosts[_i].tasks, mosts[_i].nodes, &most);

	unit_number(mosts[_i].tasks, "most", rc < 0 ? -1 : (int64_t)most, mosts[_i].most);
}

TEST_ROWS(test_uneven, tasks)
{
	unit_number(tasks[_i].tasks, "uneven", ddp_tasks_uneven(tasks[_i].tasks), tasks[_i].uneven);
}

UNIT_MAIN("nodelist", NULL)
