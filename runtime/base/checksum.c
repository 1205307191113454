/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c - CRC-32C by table or by the CPU's instruction, and a 64-bit hash */
#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "checksum.h"

#define POLYNOMIAL UINT32_C(0x82f63b78)

static uint32_t crc_byte(uint32_t crc, uint8_t byte)
{
	crc ^= byte;
	for (int bit = 0; bit < 8; bit++)
		crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1u)));
	return crc;
}

uint32_t ddp_crc32c_plain(uint32_t crc, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	crc = ~crc;
	for (size_t i = 0; i < size; i++)
		crc = crc_byte(crc, bytes[i]);
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *bytes,
							    size_t size)
{
	uint64_t wide = ~crc;

	for (; size >= 8; size -= 8, bytes += 8) {
		uint64_t word;

		memcpy(&word, bytes, sizeof(word));
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; size > 0; size--, bytes++)
		crc = __builtin_ia32_crc32qi(crc, *bytes);
	return ~crc;
}
#endif

uint32_t ddp_crc32c(uint32_t crc, const void *data, size_t size)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc_sse42(crc, data, size);
#endif
	return ddp_crc32c_plain(crc, data, size);
}

uint64_t ddp_hash(uint64_t hash, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}
