/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - encoding of the records that ranks exchange at a rendezvous
 *
 * A record is a head and a body. The head names the process that wrote the record. The layout of
 * the head is the same in all releases, so that a message can name a rank of another release. The
 * body of a rank's record is a list of keys and values. The file store writes each record to a
 * file. The PMIx store puts each record as the value of a PMIx key.
 *
 * The functions do no I/O, encode numbers in little endian on every machine, and check all input.
 */
#ifndef DDP_STORE_RECORD_H
#define DDP_STORE_RECORD_H

#include "base/error.h"
#include "identity/identity.h"

#define DDP_RECORD_FORMAT 1 /* format of bodies; that of heads never changes */

enum {
	DDP_STORE_KEY = 32,	 /* bytes of a key with its terminating zero */
	DDP_STORE_KEYS = 256,	 /* maximum keys that a rank puts between two fences */
	DDP_STORE_VALUE = 65536, /* maximum bytes that a rank puts between two fences */
	DDP_RECORD_HEAD = 160,	 /* bytes of a head */
	/* maximum bytes of a body */
	DDP_RECORD_BODY = DDP_STORE_VALUE + DDP_STORE_KEYS * (DDP_STORE_KEY + 4),
};

enum ddp_record_kind {
	DDP_RECORD_OF_HELLO = 1, /* rank 0 started a meeting */
	DDP_RECORD_OF_RANK,	 /* a rank reached a fence */
	DDP_RECORD_OF_ALL,	 /* the table of a fence */
	DDP_RECORD_OF_ABORT,	 /* a rank aborted; the body is its reason */
};

/* A decoded head. */
struct ddp_record {
	unsigned format;
	enum ddp_record_kind kind;
	uint64_t meeting; /* random number of the meeting */
	uint64_t process; /* random number of the process that wrote the record */
	uint64_t job;	  /* hash of the job's name */
	uint32_t rank, size, fence, pid;
	uint64_t length; /* bytes of the body */
	/* CRC-32C of the body; 0 for a table, in which each record has its own checksum */
	uint32_t check;
	char release[24];
	char host[64];
};

/*
 * Initialize [record] for the process of [identity]. The caller sets the members kind, meeting,
 * fence, length and check.
 * Returns 0, or DDP_ERR_SYSTEM if the system has no random numbers.
 */
int ddp_record_init(struct ddp_record *record, const struct ddp_identity *identity,
		    struct ddp_error *error);

/* Set the members length and check of [record] to the length and the checksum of [body]. */
void ddp_record_seal(struct ddp_record *record, const void *body, size_t size);

void ddp_record_encode(const struct ddp_record *record, uint8_t head[DDP_RECORD_HEAD]);

/*
 * Decode the head at the start of [data]. [name] is the name of the data in error texts.
 * Returns 0, or DDP_ERR_FORMAT if there is no valid head.
 */
int ddp_record_decode(struct ddp_record *record, const void *data, size_t size, const char *name,
		      struct ddp_error *error);

/*
 * Check that [record] has the same release, job and number of ranks as [mine].
 * Returns 0, or DDP_ERR_MISMATCH with a text that names the two ranks that wrote the records.
 */
int ddp_record_match(const struct ddp_record *record, const struct ddp_record *mine,
		     struct ddp_error *error);

/*
 * As ddp_record_decode(), and check that [data] is exactly one record with a valid body. If [mine]
 * is not NULL, first check that the head matches [mine]: another release may have other bodies.
 */
int ddp_record_read(struct ddp_record *record, const struct ddp_record *mine, const void *data,
		    size_t size, const char *name, struct ddp_error *error);

/* --- Keys and values: the body of a rank's record ---------------------------------------- */

/* A list of keys and values. It is empty if all members are 0. */
struct ddp_values {
	uint8_t *body;
	size_t size, bytes; /* bytes of the body, and of the values in it */
	unsigned count;
};

/*
 * Copy [value] to [values] under [key]. [values] must not contain [key] yet.
 * Returns 0, DDP_ERR_ARGUMENT or DDP_ERR_MEMORY.
 */
int ddp_values_put(struct ddp_values *values, const char *key, const void *value, size_t size,
		   struct ddp_error *error);

/* Make [values] empty, and free their memory. */
void ddp_values_clear(struct ddp_values *values);

/*
 * Encode a rank's record for a fence, from the head [mine] and the body [values].
 * Returns memory that the caller frees, with its [size]; NULL if memory is short.
 */
uint8_t *ddp_values_encode(const struct ddp_values *values, const struct ddp_record *mine,
			   size_t *size);

/*
 * Find [key] in [body], and copy its value to [value]. On entry, [size] is the capacity of [value].
 * On return, it is the size of the key's value. [rank] is the rank that messages name.
 * Returns 0; DDP_ERR_ARGUMENT if the key is missing; or DDP_ERR_FORMAT if the value does not fit or
 * [body] is damaged.
 */
int ddp_values_get(const uint8_t *body, size_t length, int rank, const char *key, void *value,
		   size_t *size, struct ddp_error *error);

#endif /* DDP_STORE_RECORD_H */
