/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - encode and decode the step's data that srun passes to its tasks */
#include "config.h"

#include "channel.h"

#include <stdio.h>
#include <string.h>

#include "contract.h"

static const char version[] = "v2";

enum field_kind { TEXT, U32, U64 };

struct field {
	const char *key;
	enum field_kind kind;
	size_t offset, size;
};

/* A row of the table of fields. [type] is the field's enum field_kind. */
#define FIELD(name, type)                                                                 \
	{                                                                                 \
		.key = #name, .kind = type, .offset = offsetof(struct ddp_channel, name), \
		.size = sizeof(((struct ddp_channel *)0)->name)                           \
	}

/* clang-format off */
static const struct field fields[] = {
	FIELD(nonce, TEXT),
	FIELD(base_asked, U32),
	FIELD(local_rank, U32),
	FIELD(share, U32),
	FIELD(verbose, U32),
	FIELD(magic, U64),
	FIELD(from, TEXT),
	FIELD(run, U32),
	FIELD(restart, U32),
	FIELD(restarts_max, U32),
	FIELD(run_id, TEXT),
	FIELD(cluster, TEXT),
	FIELD(job, U32),
	FIELD(step, U32),
	FIELD(attempt, U32),
	FIELD(node, TEXT),
	FIELD(first_node, U32),
	FIELD(address, TEXT),
	FIELD(port, U32),
	FIELD(port_from, TEXT),
	FIELD(reserved_first, U32),
	FIELD(directory, TEXT),
	FIELD(failed, TEXT),
	FIELD(no_directory, TEXT),
	FIELD(end_time, U64),
	FIELD(shards, U32),
	FIELD(pid, U32),
	FIELD(began, U64),
	FIELD(standalone, U32),
	FIELD(starts_ranks, U32),
	FIELD(torchrun, U32),
	FIELD(launcher_allowed, U32),
	FIELD(nproc, TEXT),
	FIELD(problem, TEXT),
};
/* clang-format on */

enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static bool is_plain(unsigned char c)
{
	return c > ' ' && c != ';' && c != '%' && c != '=' && c != 0x7f;
}

int ddp_list_add(char *buf, size_t size, const char *name, const char *value)
{
	size_t begin = strlen(buf), used = begin;

	if (ddp_format(buf + used, size - used, begin ? ";%s=" : "%s=", name) < 0)
		goto full;
	used += strlen(buf + used);
	for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
		if (used + 4 > size)
			goto full;
		if (is_plain(*p))
			buf[used++] = (char)*p;
		else
			used += (size_t)sprintf(buf + used, "%%%02X", *p);
	}
	if (used >= size)
		goto full;
	buf[used] = '\0';
	return 0;
full:
	buf[begin] = '\0';
	return -1;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decode the [n] bytes at [p], in which ddp_list_add() has escaped characters, to [value]. */
static int unescape(const char *p, size_t n, char *value, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (c == '%') {
			int hi = n - i > 2 ? hex(p[i + 1]) : -1;
			int lo = n - i > 2 ? hex(p[i + 2]) : -1;

			if (hi < 0 || lo < 0 || (hi == 0 && lo == 0))
				return -1;
			c = (char)(hi * 16 + lo);
			i += 2;
		}
		if (used + 1 >= size)
			return -1;
		value[used++] = c;
	}
	value[used] = '\0';
	return 0;
}

int ddp_list_get(const char *list, const char *name, char *value, size_t size)
{
	size_t n = strlen(name);

	for (const char *p = list; p && *p;) {
		size_t length = strcspn(p, ";");

		if (strncmp(p, name, n) == 0 && p[n] == '=')
			return unescape(p + n + 1, length - n - 1, value, size);
		p += length;
		p += *p == ';';
	}
	return -1;
}

static int encode_field(const struct ddp_channel *channel, const struct field *f, char *buf,
			size_t size)
{
	const void *at = (const char *)channel + f->offset;
	uint64_t number;
	char digits[24];

	if (f->kind == TEXT)
		return *(const char *)at ? ddp_list_add(buf, size, f->key, at) : 0;
	number = f->kind == U32 ? *(const uint32_t *)at : *(const uint64_t *)at;
	if (number == 0)
		return 0;
	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	return ddp_list_add(buf, size, f->key, digits);
}

int ddp_channel_encode(const struct ddp_channel *channel, char *buf, size_t size)
{
	if (ddp_format(buf, size, "%s", version) < 0)
		return -1;
	for (size_t i = 0; i < N_FIELDS; i++)
		if (encode_field(channel, &fields[i], buf, size) < 0)
			return -1;
	return 0;
}

static int decode_field(const struct field *f, const char *value, size_t n,
			struct ddp_channel *channel)
{
	void *at = (char *)channel + f->offset;
	uint64_t number;

	if (f->kind == TEXT)
		return unescape(value, n, at, f->size);
	if (ddp_parse_number_n(value, n, 0, f->kind == U32 ? UINT32_MAX : UINT64_MAX, &number) < 0)
		return -1;
	if (f->kind == U32)
		*(uint32_t *)at = (uint32_t)number;
	else
		*(uint64_t *)at = number;
	return 0;
}

static const struct field *find_field(const char *key, size_t n)
{
	for (size_t i = 0; i < N_FIELDS; i++)
		if (strlen(fields[i].key) == n && memcmp(fields[i].key, key, n) == 0)
			return &fields[i];
	return NULL;
}

int ddp_channel_decode(const char *text, struct ddp_channel *channel, struct ddp_message *message)
{
	size_t n = strcspn(text, ";\n");

	memset(channel, 0, sizeof(*channel));
	if (n != sizeof(version) - 1 || memcmp(text, version, n) != 0)
		return ddp_fail(
			message,
			"srun's plugin uses version \"%.*s\" of %s, and this node's plugin uses "
			"\"%s\". Install the same slurm-ddp on both",
			n < 20 ? (int)n : 20, text, DDP_CHANNEL_NAME, version);
	for (const char *p = text + n; *p == ';';) {
		const char *key = ++p, *equals;
		const struct field *f;

		p += strcspn(p, ";\n");
		equals = memchr(key, '=', (size_t)(p - key));
		if (!equals)
			return ddp_fail(message, "%s is malformed", DDP_CHANNEL_NAME);
		f = find_field(key, (size_t)(equals - key));
		if (f && decode_field(f, equals + 1, (size_t)(p - equals - 1), channel) < 0)
			return ddp_fail(message, "%s has an unusable value for \"%s\"",
					DDP_CHANNEL_NAME, f->key);
	}
	return 0;
}

int ddp_channel_directory_name(const struct ddp_channel *channel, char *name, size_t size)
{
	if (strchr(channel->cluster, '/'))
		return -1;
	return ddp_format(name, size, "%s-%u.%u.%u-%s", channel->cluster, channel->job,
			  channel->step, channel->attempt, channel->nonce);
}

const char *ddp_users_value(char *const *env, const char *name)
{
	const char *value = ddp_env_filled(env, name);
	const char *ours = ddp_env_get(env, DDP_NAME(DDP_OURS));
	char was[DDP_PATH_SIZE];

	if (value && ours && ddp_list_get(ours, name, was, sizeof(was)) == 0 &&
	    strcmp(value, was) == 0)
		return NULL;
	return value;
}
