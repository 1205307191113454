/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyed-hash.h - BLAKE2s (RFC 7693) with a key: a message authentication code of 256 bits
 */
#ifndef DDP_BASE_KEYED_HASH_H
#define DDP_BASE_KEYED_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDP_HASH_SIZE = 32 };

/*
 * Write the BLAKE2s-256 hash of [size] bytes of [data] to [hash]. [key] has 32 bytes, or is NULL
 * for a hash without a key.
 */
void ddp_keyed_hash(const uint8_t key[DDP_HASH_SIZE], const void *data, size_t size,
		    uint8_t hash[static DDP_HASH_SIZE]);

/* Compare two hashes in a time that does not depend on their contents. */
bool ddp_hash_equal(const uint8_t a[static DDP_HASH_SIZE], const uint8_t b[static DDP_HASH_SIZE]);

#endif /* DDP_BASE_KEYED_HASH_H */
