/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/checksum.h"
#include "record.h"

#define MAGIC UINT32_C(0x1e706464) /* "ddp" and a byte that no text has */

/* Where things are in a head. This never changes; new things go into bodies. */
enum {
	AT_MAGIC = 0,
	AT_FORMAT = 4,
	AT_KIND = 6,
	AT_ATTEMPT = 8,
	AT_PROCESS = 16,
	AT_JOB = 24,
	AT_RANK = 32,
	AT_SIZE = 36,
	AT_FENCE = 40,
	AT_PID = 44,
	AT_LENGTH = 48,
	AT_CHECK = 56,
	AT_ZERO = 60,
	AT_RELEASE = 64,
	AT_HOST = 88,
	AT_HEAD_CHECK = 152,
	AT_ZERO_TOO = 156,
};

static void put16(uint8_t *at, uint16_t value)
{
	value = htole16(value);
	memcpy(at, &value, sizeof(value));
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void put64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

/* Texts end up in messages: what is not plain ASCII does not. */
static void get_text(const uint8_t *at, char *text, size_t size)
{
	size_t length = strnlen((const char *)at, size - 1);

	memcpy(text, at, length);
	text[length] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

/* --- Heads ------------------------------------------------------------------------------ */

int ddp_record_init(struct ddp_record *record, const struct ddp_identity *identity,
		    struct ddp_error *error)
{
	*record = (struct ddp_record){
		.format = DDP_RECORD_FORMAT,
		.job = ddp_hash(DDP_HASH_INIT, identity->job, strlen(identity->job)),
		.rank = (uint32_t)identity->rank,
		.size = (uint32_t)identity->size,
		.pid = (uint32_t)getpid(),
	};
	snprintf(record->release, sizeof(record->release), "%s", PACKAGE_VERSION);
	snprintf(record->host, sizeof(record->host), "%.63s", identity->host);
	if (getrandom(&record->process, sizeof(record->process), 0) != sizeof(record->process))
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "no random numbers (getrandom)");
	return 0;
}

void ddp_record_seal(struct ddp_record *record, const void *body, size_t size)
{
	record->length = size;
	record->check = ddp_crc32c(0, body, size);
}

void ddp_record_encode(const struct ddp_record *record, uint8_t head[DDP_RECORD_HEAD])
{
	memset(head, 0, DDP_RECORD_HEAD);
	put32(head + AT_MAGIC, MAGIC);
	put16(head + AT_FORMAT, (uint16_t)record->format);
	put16(head + AT_KIND, (uint16_t)record->kind);
	put64(head + AT_ATTEMPT, record->attempt);
	put64(head + AT_PROCESS, record->process);
	put64(head + AT_JOB, record->job);
	put32(head + AT_RANK, record->rank);
	put32(head + AT_SIZE, record->size);
	put32(head + AT_FENCE, record->fence);
	put32(head + AT_PID, record->pid);
	put64(head + AT_LENGTH, record->length);
	put32(head + AT_CHECK, record->check);
	memcpy(head + AT_RELEASE, record->release, strlen(record->release));
	memcpy(head + AT_HOST, record->host, strlen(record->host));
	put32(head + AT_HEAD_CHECK, ddp_crc32c(0, head, AT_HEAD_CHECK));
}

int ddp_record_decode(struct ddp_record *record, const void *data, size_t size, const char *name,
		      struct ddp_error *error)
{
	const uint8_t *head = data;

	if (size < DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: %zu bytes are too few for a record of libddp", name,
				     size);
	if (get32(head + AT_MAGIC) != MAGIC)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: not a record of libddp", name);
	if (get32(head + AT_HEAD_CHECK) != ddp_crc32c(0, head, AT_HEAD_CHECK) ||
	    get32(head + AT_ZERO) != 0 || get32(head + AT_ZERO_TOO) != 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: damaged, the checksum of its head is wrong", name);
	*record = (struct ddp_record){
		.format = get16(head + AT_FORMAT),
		.kind = (enum ddp_record_kind)get16(head + AT_KIND),
		.attempt = get64(head + AT_ATTEMPT),
		.process = get64(head + AT_PROCESS),
		.job = get64(head + AT_JOB),
		.rank = get32(head + AT_RANK),
		.size = get32(head + AT_SIZE),
		.fence = get32(head + AT_FENCE),
		.pid = get32(head + AT_PID),
		.length = get64(head + AT_LENGTH),
		.check = get32(head + AT_CHECK),
	};
	get_text(head + AT_RELEASE, record->release, sizeof(record->release));
	get_text(head + AT_HOST, record->host, sizeof(record->host));
	return 0;
}

int ddp_record_whole(const struct ddp_record *record, const void *data, size_t size,
		     const char *name, struct ddp_error *error)
{
	if (size < DDP_RECORD_HEAD || record->length != size - DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: it has %zu bytes, its head says %llu", name, size,
				     (unsigned long long)record->length + DDP_RECORD_HEAD);
	if (ddp_crc32c(0, (const uint8_t *)data + DDP_RECORD_HEAD, size - DDP_RECORD_HEAD) !=
	    record->check)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: damaged, its checksum is wrong",
				     name);
	return 0;
}

int ddp_record_match(const struct ddp_record *record, const struct ddp_record *mine,
		     struct ddp_error *error)
{
	if (strcmp(record->release, mine->release) != 0 || record->format != mine->format)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s has libddp %s (format %u), rank %u on %s has "
				     "%s (format %u): install one release on all nodes",
				     record->rank, record->host, record->release, record->format,
				     mine->rank, mine->host, mine->release, mine->format);
	if (record->job != mine->job)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s (process %u) and rank %u on %s (process %u) "
				     "are of different jobs, but have the same rendezvous",
				     record->rank, record->host, record->pid, mine->rank,
				     mine->host, mine->pid);
	if (record->size != mine->size)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s says the world has %u ranks, rank %u on %s "
				     "says %u",
				     record->rank, record->host, record->size, mine->rank,
				     mine->host, mine->size);
	return 0;
}

/* --- Puts: length of the key, key, length of the value, value ---------------------------- */

struct put {
	const uint8_t *key, *value;
	size_t key_size, value_size;
};

/* Returns the bytes of the put at the beginning of [body], 0 where there is none. */
static size_t put_parse(const uint8_t *body, size_t length, struct put *put)
{
	size_t used;

	if (length < 1)
		return 0;
	put->key = body + 1;
	put->key_size = body[0];
	used = 1 + put->key_size;
	if (put->key_size == 0 || put->key_size >= DDP_STORE_KEY || length < used + 4)
		return 0;
	put->value_size = get32(body + used);
	put->value = body + used + 4;
	used += 4;
	return put->value_size > length - used ? 0 : used + put->value_size;
}

/* Returns 1 with the [put] of [key], 0 if there is none, -1 if [body] is no list of puts. */
static int put_find(const uint8_t *body, size_t length, const char *key, struct put *put)
{
	size_t size = strlen(key);

	while (length > 0) {
		size_t used = put_parse(body, length, put);

		if (used == 0)
			return -1;
		if (put->key_size == size && memcmp(put->key, key, size) == 0)
			return 1;
		body += used;
		length -= used;
	}
	return 0;
}

int ddp_values_put(struct ddp_values *puts, const char *key, const void *value, size_t size,
		   struct ddp_error *error)
{
	size_t key_size = strlen(key), more = 1 + key_size + 4 + size;
	uint8_t *body;
	struct put put;

	if (key_size == 0 || key_size >= DDP_STORE_KEY)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: key \"%.40s\" must have 1 to %d characters", key,
				     DDP_STORE_KEY - 1);
	if (put_find(puts->body, puts->size, key, &put) != 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: key \"%s\" was put twice before one fence", key);
	if (size > DDP_STORE_VALUE - puts->values || puts->count >= DDP_RECORD_PUTS)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: no room for key \"%s\" with %zu bytes: between "
				     "two fences a rank may put %d keys and %d bytes",
				     key, size, DDP_RECORD_PUTS, DDP_STORE_VALUE);
	body = realloc(puts->body, puts->size + more);
	if (!body)
		return ddp_error_set(error, DDP_ERR_MEMORY, "rendezvous: no memory for key \"%s\"",
				     key);
	puts->body = body;
	body += puts->size;
	body[0] = (uint8_t)key_size;
	memcpy(body + 1, key, key_size);
	put32(body + 1 + key_size, (uint32_t)size);
	if (size > 0)
		memcpy(body + 1 + key_size + 4, value, size);
	puts->size += more;
	puts->values += size;
	puts->count++;
	return 0;
}

void ddp_values_clear(struct ddp_values *puts)
{
	free(puts->body);
	*puts = (struct ddp_values){0};
}

int ddp_values_get(const uint8_t *body, size_t length, int rank, const char *key, void *value,
		   size_t *size, struct ddp_error *error)
{
	size_t room = *size;
	struct put put;
	int found = put_find(body, length, key, &put);

	if (found < 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "rendezvous: the record of rank %d is no list of keys", rank);
	if (found == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: rank %d did not put \"%.40s\"", rank, key);
	*size = put.value_size;
	if (put.value_size > room)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "rendezvous: \"%s\" of rank %d has %zu bytes, at most %zu are "
				     "expected",
				     key, rank, put.value_size, room);
	if (put.value_size > 0)
		memcpy(value, put.value, put.value_size);
	return 0;
}

/* --- The index of a table ---------------------------------------------------------------- */

/* An entry of another attempt, or at another rank's place, has another checksum. */
static uint32_t index_check(const uint8_t *entry, uint64_t attempt, uint32_t rank)
{
	uint8_t place[12];

	put64(place, attempt);
	put32(place + 8, rank);
	return ddp_crc32c(ddp_crc32c(0, place, sizeof(place)), entry, 12);
}

void ddp_index_encode(const struct ddp_index *index, uint64_t attempt, uint32_t rank,
		      uint8_t entry[DDP_INDEX_ENTRY])
{
	put64(entry, index->offset);
	put32(entry + 8, index->size);
	put32(entry + 12, index_check(entry, attempt, rank));
}

int ddp_index_decode(struct ddp_index *index, uint64_t attempt, uint32_t rank, uint64_t file_size,
		     const uint8_t entry[DDP_INDEX_ENTRY], const char *name,
		     struct ddp_error *error)
{
	index->offset = get64(entry);
	index->size = get32(entry + 8);
	if (get32(entry + 12) != index_check(entry, attempt, rank))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: damaged, the checksum of rank %u's entry is wrong", name,
				     rank);
	if (index->offset > file_size || index->size > file_size - index->offset ||
	    index->size < DDP_RECORD_HEAD || index->size > DDP_RECORD_HEAD + DDP_RECORD_BODY)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: the record of rank %u is not within its %llu bytes", name,
				     rank, (unsigned long long)file_size);
	return 0;
}
