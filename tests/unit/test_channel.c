/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "channel.h"
#include "unit.h"

/* Sets every field to a value that is not its default and not that of a neighbouring field. */
static void fill_channel(struct ddp_channel *c)
{
	memset(c, 0, sizeof(*c));
	strcpy(c->nonce, "0123456789abcdef");
	c->base_asked = 1;
	c->local_rank = 2;
	c->share = 3;
	c->verbose = 4;
	c->magic = 77;
	strcpy(c->from, "login1");
	c->run = 13;
	c->restart = 14;
	c->restarts_max = 15;
	strcpy(c->run_id, "big.42");
	strcpy(c->cluster, "big");
	c->job = 4294967295;
	c->step = 7;
	c->attempt = 8;
	strcpy(c->node, "n1");
	c->first_node = 2;
	strcpy(c->address, "10.0.0.1");
	c->port = 61000;
	strcpy(c->port_from, "computed");
	strcpy(c->directory, "/home/ann/\xc3\xa4\n\x7f");
	strcpy(c->failed, "/home/ann/.ddp/failed-1.7");
	strcpy(c->no_directory, "read-only");
	c->end_time = 18446744073709551615u;
	c->shards = 32;
	c->pid = 9;
	c->began = 10;
	c->standalone = 11;
	c->starts_ranks = 17;
	c->torchrun = 16;
	c->launcher_allowed = 17;
	strcpy(c->nproc, "gpu");
	strcpy(c->problem, "no port: say --ddp-port=P");
}

static const char full[] =
	"v2;nonce=0123456789abcdef;base_asked=1;local_rank=2;"
	"share=3;verbose=4;magic=77;from=login1;run=13;restart=14;restarts_max=15;run_id=big.42;cluster=big;job=4294967295;step=7;"
	"attempt=8;node=n1;first_node=2;address=10.0.0.1;port=61000;port_from=computed;"
	"directory=/home/ann/\xc3\xa4%0A%7F;failed=/home/ann/.ddp/failed-1.7;no_directory=read-only;"
	"end_time=18446744073709551615;shards=32;pid=9;began=10;standalone=11;starts_ranks=17;torchrun=16;launcher_allowed=17;nproc=gpu;problem=no%20port:%20say%20--ddp-port%3DP";

TEST(test_encode)
{
	char text[DDP_CHANNEL_SIZE];
	struct ddp_channel channel;

	fill_channel(&channel);
	ck_assert_int_eq(ddp_channel_encode(&channel, text, sizeof(text)), 0);
	ck_assert_str_eq(text, full);
}

TEST(test_decode)
{
	struct ddp_message message = {""};
	struct ddp_channel want, got;

	fill_channel(&want);
	memset(&got, 0xaa, sizeof(got));
	ck_assert_int_eq(ddp_channel_decode(full, &got, &message), 0);
	ck_assert_mem_eq(&got, &want, sizeof(got));
	ck_assert_str_eq(message.text, "");
}

/* If the buffer is too small, ddp_channel_encode() fails. It does not truncate. */
TEST(test_encode_small_buffer)
{
	char text[sizeof(full)];
	struct ddp_channel channel;

	fill_channel(&channel);
	for (size_t size = 0; size < sizeof(full); size++)
		ck_assert_int_eq(ddp_channel_encode(&channel, text, size), -1);
	memset(&channel, 0, sizeof(channel));
	ck_assert_int_eq(ddp_channel_encode(&channel, text, 3), 0);
	ck_assert_str_eq(text, "v2");
}

static const struct {
	const char *text;
	int rc;
	uint32_t job;
	const char *node;
	const char *piece;
} texts[] = {
	{"v2", 0, 0, "", ""},
	{"v2;job=5", 0, 5, "", ""},
	{"v2;job=5\n", 0, 5, "", ""},
	{"v2;job=5\n;job=6", 0, 5, "", ""},
	{"v2\n", 0, 0, "", ""},
	{"v2;job=5;job=6", 0, 6, "", ""},
	{"v2;later=x;job=5;even_later=%zz", 0, 5, "", ""},
	{"v2;jo=4;jobs=6;job=5", 0, 5, "", ""},
	{"v2;node=n1=n2", 0, 0, "n1=n2", ""},
	{"v2;node=", 0, 0, "", ""},
	{"v2;node=n1;node=x", 0, 0, "x", ""},
	{"v2;node=%41%3b", -1, 0, "", "unusable value for \"node\""},
	{"v2;node=%41%3B", 0, 0, "A;", ""},
	{"v2;node=a%4", -1, 0, "", "unusable value for \"node\""},
	{"v2;node=a%", -1, 0, "", "unusable value for \"node\""},
	{"v2;node=a%4;step=1", -1, 0, "", "unusable value for \"node\""},
	{"v2;node=%00", -1, 0, "", "unusable value for \"node\""},
	{"v2;node=%0G", -1, 0, "", "unusable value for \"node\""},
	{"v2;nonce=0123456789abcdef0", -1, 0, "", "unusable value for \"nonce\""},
	{"v2;job=", -1, 0, "", "unusable value for \"job\""},
	{"v2;job=x", -1, 0, "", "unusable value for \"job\""},
	{"v2;job=-1", -1, 0, "", "unusable value for \"job\""},
	{"v2;job=4294967296", -1, 0, "", "unusable value for \"job\""},
	{"v2;end_time=18446744073709551616", -1, 0, "", "unusable value for \"end_time\""},
	{"v2;job", -1, 0, "", "malformed"},
	{"v2;", -1, 0, "", "malformed"},
	{"v2;;job=5", -1, 0, "", "malformed"},
	{"v2;job=5;", -1, 5, "", "malformed"},
	{"", -1, 0, "", "Install the same slurm-ddp"},
	{"v1;job=5", -1, 0, "", "version \"v1\" of SLURM_DDP_STEP"},
	{"v10", -1, 0, "", "version \"v10\""},
	{"v", -1, 0, "", "version \"v\""},
	{"job=5", -1, 0, "", "version \"job=5\""},
	{"a version name that goes on and on", -1, 0, "", "version \"a version name that \""},
};

TEST_ROWS(test_texts, texts)
{
	struct ddp_message message = {""};
	struct ddp_channel channel;
	const char *text = texts[_i].text;

	memset(&channel, 0xaa, sizeof(channel));
	unit_number(text, "return", ddp_channel_decode(text, &channel, &message), texts[_i].rc);
	ck_assert_msg(strstr(message.text, texts[_i].piece), "%s: %s", text, message.text);
	if (texts[_i].rc == 0) {
		unit_number(text, "job", channel.job, texts[_i].job);
		unit_text(text, "node", channel.node, texts[_i].node);
		unit_text(text, "message", message.text, "");
	}
}

TEST(test_list)
{
	char list[64] = "", value[16];

	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "A", "1"), 0);
	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "AB", "x;y=z%"), 0);
	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "B", ""), 0);
	ck_assert_str_eq(list, "A=1;AB=x%3By%3Dz%25;B=");
	ck_assert_int_eq(ddp_list_get(list, "A", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "1");
	ck_assert_int_eq(ddp_list_get(list, "AB", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "x;y=z%");
	ck_assert_int_eq(ddp_list_get(list, "B", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "");
	ck_assert_int_eq(ddp_list_get(list, "C", value, sizeof(value)), -1);
	ck_assert_int_eq(ddp_list_get("", "A", value, sizeof(value)), -1);
	ck_assert_int_eq(ddp_list_get("A", "A", value, sizeof(value)), -1);
	ck_assert_int_eq(ddp_list_get("XA=1", "A", value, sizeof(value)), -1);
}

TEST(test_list_small_buffer)
{
	char list[16] = "A=1", value[4];

	/* ";B=%3B" ends at byte 9 of the 16. ";C=1%3B2" would end at byte 17. */
	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "B", ";"), 0);
	ck_assert_str_eq(list, "A=1;B=%3B");
	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "C", "1;2"), -1);
	ck_assert_str_eq(list, "A=1;B=%3B");
	ck_assert_int_eq(ddp_list_add(list, sizeof(list), "LONGER", ""), -1);
	ck_assert_str_eq(list, "A=1;B=%3B");
	ck_assert_int_eq(ddp_list_get("A=abc", "A", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "abc");
	ck_assert_int_eq(ddp_list_get("A=abcd", "A", value, sizeof(value)), -1);
}

TEST(test_directory)
{
	struct ddp_channel channel;
	char name[64];

	fill_channel(&channel);
	channel.job = 42;
	ck_assert_int_eq(ddp_channel_directory_name(&channel, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "big-42.7.8-0123456789abcdef");
	ck_assert_int_eq(ddp_channel_directory_name(&channel, name, 27), -1);
	ck_assert_int_eq(ddp_channel_directory_name(&channel, name, 28), 0);
	strcpy(channel.cluster, "../big");
	ck_assert_int_eq(ddp_channel_directory_name(&channel, name, sizeof(name)), -1);
}

UNIT_MAIN("channel", NULL)
