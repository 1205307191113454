/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - encode, decode and compare records, and find keys and values in them */
#include "config.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/checksum.h"
#include "record.h"

#define MAGIC UINT32_C(0x1e706464) /* the characters "ddp" and 0x1e, which is not printable */

/* Layout of a head in a file, little endian. This layout never changes; bodies get new fields. */
struct head {
	uint32_t magic;
	uint16_t format, kind;
	uint64_t meeting, process, job;
	uint32_t rank, size, fence, pid;
	uint64_t length;
	uint32_t check, zero;
	char release[24], host[64]; /* padded with zeros */
	uint32_t head_check, zero_too;
};

_Static_assert(sizeof(struct head) == DDP_RECORD_HEAD, "a head has no holes");

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

static uint32_t check_head(const struct head *head)
{
	return htole32(ddp_crc32c(0, head, offsetof(struct head, head_check)));
}

void ddp_record_encode(const struct ddp_record *record, uint8_t bytes[DDP_RECORD_HEAD])
{
	struct head head = {
		.magic = htole32(MAGIC),
		.format = htole16((uint16_t)record->format),
		.kind = htole16((uint16_t)record->kind),
		.meeting = htole64(record->meeting),
		.process = htole64(record->process),
		.job = htole64(record->job),
		.rank = htole32(record->rank),
		.size = htole32(record->size),
		.fence = htole32(record->fence),
		.pid = htole32(record->pid),
		.length = htole64(record->length),
		.check = htole32(record->check),
	};

	memcpy(head.release, record->release, strlen(record->release));
	memcpy(head.host, record->host, strlen(record->host));
	head.head_check = check_head(&head);
	memcpy(bytes, &head, sizeof(head));
}

/* Copy a text that messages will contain. Characters other than printable ASCII are replaced. */
static void get_text(const char *from, char *text, size_t size)
{
	snprintf(text, size, "%.*s", (int)size - 1, from);
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

int ddp_record_decode(struct ddp_record *record, const void *data, size_t size, const char *name,
		      struct ddp_error *error)
{
	struct head head;

	if (size < sizeof(head))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s has %zu bytes, too few for a record of libddp", name,
				     size);
	memcpy(&head, data, sizeof(head));
	if (head.magic != htole32(MAGIC))
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is not a record of libddp", name);
	if (head.head_check != check_head(&head) || head.zero != 0 || head.zero_too != 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is damaged: the checksum of the head is wrong", name);
	*record = (struct ddp_record){
		.format = le16toh(head.format),
		.kind = (enum ddp_record_kind)le16toh(head.kind),
		.meeting = le64toh(head.meeting),
		.process = le64toh(head.process),
		.job = le64toh(head.job),
		.rank = le32toh(head.rank),
		.size = le32toh(head.size),
		.fence = le32toh(head.fence),
		.pid = le32toh(head.pid),
		.length = le64toh(head.length),
		.check = le32toh(head.check),
	};
	get_text(head.release, record->release, sizeof(record->release));
	get_text(head.host, record->host, sizeof(record->host));
	return 0;
}

int ddp_record_match(const struct ddp_record *record, const struct ddp_record *mine,
		     struct ddp_error *error)
{
	if (strcmp(record->release, mine->release) != 0 || record->format != mine->format)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s has libddp %s (format %u), but rank %u on %s "
				     "has %s (format %u). Install one release on all nodes.",
				     record->rank, record->host, record->release, record->format,
				     mine->rank, mine->host, mine->release, mine->format);
	if (record->job != mine->job)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s (process %u) and rank %u on %s (process %u) "
				     "are of different jobs, but use the same rendezvous. Give "
				     "each job its own directory.",
				     record->rank, record->host, record->pid, mine->rank,
				     mine->host, mine->pid);
	if (record->size != mine->size)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %u on %s says the world has %u ranks, but rank %u on "
				     "%s says %u",
				     record->rank, record->host, record->size, mine->rank,
				     mine->host, mine->size);
	return 0;
}

int ddp_record_read(struct ddp_record *record, const struct ddp_record *mine, const void *data,
		    size_t size, const char *name, struct ddp_error *error)
{
	int status = ddp_record_decode(record, data, size, name, error);

	if (status == 0 && mine)
		status = ddp_record_match(record, mine, error);
	if (status < 0)
		return status;
	if (record->length != size - DDP_RECORD_HEAD)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s has %zu bytes, but its head says %llu", name, size,
				     (unsigned long long)record->length + DDP_RECORD_HEAD);
	if (ddp_crc32c(0, (const uint8_t *)data + DDP_RECORD_HEAD, size - DDP_RECORD_HEAD) !=
	    record->check)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is damaged: the checksum is wrong",
				     name);
	return 0;
}

/* --- Keys and values: length of the key, key, length of the value, value ----------------- */

/*
 * Find [key] in [body], and set [value] to its [size] bytes.
 * Returns 1; 0 if the key is missing; -1 if [body] is not a valid list of keys and values.
 */
static int find(const uint8_t *body, size_t length, const char *key, const uint8_t **value,
		size_t *size)
{
	size_t key_size = strlen(key);

	while (length > 0) {
		size_t used = 1 + (size_t)body[0];
		uint32_t bytes;

		if (body[0] == 0 || body[0] >= DDP_STORE_KEY || length < used + sizeof(bytes))
			return -1;
		memcpy(&bytes, body + used, sizeof(bytes));
		used += sizeof(bytes);
		*value = body + used;
		*size = le32toh(bytes);
		if (*size > length - used)
			return -1;
		if (body[0] == key_size && memcmp(body + 1, key, key_size) == 0)
			return 1;
		used += *size;
		body += used;
		length -= used;
	}
	return 0;
}

int ddp_values_put(struct ddp_values *values, const char *key, const void *value, size_t size,
		   struct ddp_error *error)
{
	size_t key_size = strlen(key), other_size;
	uint32_t bytes = htole32((uint32_t)size);
	const uint8_t *other;
	uint8_t *body;

	if (key_size == 0 || key_size >= DDP_STORE_KEY)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: key \"%.40s\" must have 1 to %d characters", key,
				     DDP_STORE_KEY - 1);
	if (find(values->body, values->size, key, &other, &other_size) != 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: key \"%s\" was put twice before one fence", key);
	if (size > DDP_STORE_VALUE - values->bytes || values->count >= DDP_STORE_KEYS)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: key \"%s\" with %zu bytes does not fit. Put at "
				     "most %d keys and %d bytes between two fences.",
				     key, size, DDP_STORE_KEYS, DDP_STORE_VALUE);
	body = realloc(values->body, values->size + 1 + key_size + sizeof(bytes) + size);
	if (!body)
		return ddp_error_set(error, DDP_ERR_MEMORY, "rendezvous: no memory for key \"%s\"",
				     key);
	values->body = body;
	body += values->size;
	*body++ = (uint8_t)key_size;
	body = mempcpy(body, key, key_size);
	body = mempcpy(body, &bytes, sizeof(bytes));
	if (size > 0)
		body = mempcpy(body, value, size);
	values->size = (size_t)(body - values->body);
	values->bytes += size;
	values->count++;
	return 0;
}

void ddp_values_clear(struct ddp_values *values)
{
	free(values->body);
	*values = (struct ddp_values){0};
}

uint8_t *ddp_values_encode(const struct ddp_values *values, const struct ddp_record *mine,
			   size_t *size)
{
	struct ddp_record record = *mine;
	uint8_t *data = malloc(DDP_RECORD_HEAD + values->size);

	if (!data)
		return NULL;
	record.kind = DDP_RECORD_OF_RANK;
	ddp_record_seal(&record, values->body, values->size);
	ddp_record_encode(&record, data);
	if (values->size > 0)
		memcpy(data + DDP_RECORD_HEAD, values->body, values->size);
	*size = DDP_RECORD_HEAD + values->size;
	return data;
}

int ddp_values_get(const uint8_t *body, size_t length, int rank, const char *key, void *value,
		   size_t *size, struct ddp_error *error)
{
	const uint8_t *from;
	size_t bytes;
	int found = find(body, length, key, &from, &bytes), status = 0;

	if (found < 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "rendezvous: the record of rank %d is not a list of keys",
				     rank);
	if (found == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: rank %d did not put \"%.40s\"", rank, key);
	if (bytes > *size)
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "rendezvous: \"%s\" of rank %d has %zu bytes, but at most "
				       "%zu are expected",
				       key, rank, bytes, *size);
	else if (bytes > 0)
		memcpy(value, from, bytes);
	*size = bytes;
	return status;
}
