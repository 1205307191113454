/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "utf8.h"

size_t ddp_utf8_length(const char *text, size_t size)
{
	const unsigned char *byte = (const unsigned char *)text;
	unsigned low = 0x80, high = 0xbf; /* of the second byte */
	size_t length;

	if (size == 0)
		return 0;
	if (byte[0] < 0x80)
		return 1;
	if (byte[0] < 0xc2 || byte[0] > 0xf4)
		return 0;
	length = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	if (byte[0] == 0xe0)
		low = 0xa0; /* shorter forms exist below */
	if (byte[0] == 0xed)
		high = 0x9f; /* surrogates above */
	if (byte[0] == 0xf0)
		low = 0x90;
	if (byte[0] == 0xf4)
		high = 0x8f; /* beyond 0x10ffff */
	if (size < length || byte[1] < low || byte[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool ddp_utf8_valid(const char *text)
{
	size_t size = strlen(text);

	while (size > 0) {
		size_t length = ddp_utf8_length(text, size);

		if (length == 0)
			return false;
		text += length;
		size -= length;
	}
	return true;
}

size_t ddp_utf8_put(char *out, uint32_t code)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}
