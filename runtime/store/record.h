/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - what a rank says of itself, in bytes
 *
 * Every file of a store, and every blob that goes through a resource manager, begins with a
 * head, which says whose it is; its layout is the same in all releases, so that a rank of
 * another release can be named. The body of a rank's record is a list of keys and values.
 *
 * Pure: no I/O, little endian whatever the machine, no trust in what is read.
 */
#ifndef DDP_STORE_RECORD_H
#define DDP_STORE_RECORD_H

#include "base/error.h"
#include "world/identity.h"

#define DDP_RECORD_FORMAT 1 /* of bodies; the head stays */

enum {
	DDP_STORE_KEY = 32,	 /* bytes of a key, its end included */
	DDP_STORE_KEYS = 256,	 /* of a rank between two fences */
	DDP_STORE_VALUE = 65536, /* bytes of all values of a rank between two fences */
	DDP_RECORD_HEAD = 160,	 /* bytes of a head */
	DDP_RECORD_BODY = DDP_STORE_VALUE + DDP_STORE_KEYS * (DDP_STORE_KEY + 4), /* at most */
};

enum ddp_record_kind {
	DDP_RECORD_OF_HELLO = 1, /* rank 0 began an attempt */
	DDP_RECORD_OF_RANK,	 /* a rank is at a fence */
	DDP_RECORD_OF_ALL,	 /* a table */
	DDP_RECORD_OF_ABORT,	 /* a rank gave up; the body is its text */
};

/* A head. */
struct ddp_record {
	unsigned format;
	enum ddp_record_kind kind;
	uint64_t attempt; /* random number of the attempt to meet that it belongs to */
	uint64_t process; /* random number of the process that wrote it */
	uint64_t job;	  /* hash of the job's name */
	uint32_t rank, size, fence, pid;
	uint64_t length; /* of the body */
	uint32_t check;	 /* CRC-32C of the body; 0 for a table, whose parts have their own */
	char release[24];
	char host[64];
};

/*
 * What [identity]'s process says of itself: everything but kind, attempt, fence, length, check.
 * Returns 0, or DDP_ERR_SYSTEM where there are no random numbers.
 */
int ddp_record_init(struct ddp_record *record, const struct ddp_identity *identity,
		    struct ddp_error *error);

/* Set length and check of [record] for [body]. */
void ddp_record_seal(struct ddp_record *record, const void *body, size_t size);

/* Write [record] as a head into [head]. */
void ddp_record_encode(const struct ddp_record *record, uint8_t head[DDP_RECORD_HEAD]);

/*
 * Read the head at the beginning of the [size] bytes of [data]; [name] is for messages.
 * Returns 0, or DDP_ERR_FORMAT where it is none or damaged.
 */
int ddp_record_decode(struct ddp_record *record, const void *data, size_t size, const char *name,
		      struct ddp_error *error);

/*
 * Check that [record] comes from the same release, the same job and a world of the same size
 * as [mine].
 * Returns 0, or DDP_ERR_MISMATCH with a text that names both ranks.
 */
int ddp_record_match(const struct ddp_record *record, const struct ddp_record *mine,
		     struct ddp_error *error);

/*
 * As ddp_record_decode(), of [data] that must be the whole record, with a body that is well.
 * Where [mine] is given the head is matched first: another release may have other bodies.
 */
int ddp_record_read(struct ddp_record *record, const struct ddp_record *mine, const void *data,
		    size_t size, const char *name, struct ddp_error *error);

/* --- Keys and values: the body of a rank's record ---------------------------------------- */

/* Zeros are "none". */
struct ddp_values {
	uint8_t *body;
	size_t size, bytes; /* of the body, and of the values in it */
	unsigned count;
};

/*
 * Add a copy of [value] under [key], which is new.
 * Returns 0, DDP_ERR_ARGUMENT or DDP_ERR_MEMORY.
 */
int ddp_values_put(struct ddp_values *values, const char *key, const void *value, size_t size,
		   struct ddp_error *error);

/* Free what [values] has, and make it "none". */
void ddp_values_clear(struct ddp_values *values);

/*
 * The record of a rank at a fence, [mine] with [values].
 * Returns memory that the caller frees, with its [size]; NULL where there is none.
 */
uint8_t *ddp_values_encode(const struct ddp_values *values, const struct ddp_record *mine,
			   size_t *size);

/*
 * Copy what [body], rank [rank]'s, has under [key] into [value]; [size] is the room there, then
 * the bytes that [key] has.
 * Returns 0; DDP_ERR_ARGUMENT where there is no such key; DDP_ERR_FORMAT where it is larger
 * than the room, or [body] is no list of keys and values.
 */
int ddp_values_get(const uint8_t *body, size_t length, int rank, const char *key, void *value,
		   size_t *size, struct ddp_error *error);

#endif /* DDP_STORE_RECORD_H */
