/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checksum.h - CRC-32C, and a 64-bit hash for identities
 */
#ifndef DDP_BASE_CHECKSUM_H
#define DDP_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns the CRC-32C (Castagnoli) of [size] bytes, continued from [crc]; start with 0. Uses the
 * CPU's CRC instruction if the CPU has one.
 */
uint32_t ddp_crc32c(uint32_t crc, const void *data, size_t size);

/* Like ddp_crc32c(), but computed bit by bit: for CPUs without the instruction, and for tests. */
uint32_t ddp_crc32c_plain(uint32_t crc, const void *data, size_t size);

/* Returns the 64-bit FNV-1a hash, continued from [hash]; start with DDP_HASH_INIT. */
#define DDP_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t ddp_hash(uint64_t hash, const void *data, size_t size);

#endif /* DDP_BASE_CHECKSUM_H */
