/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - texts that go into files which others read as UTF-8
 */
#ifndef DDP_STATE_UTF8_H
#define DDP_STATE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that [text] of [size] bytes begins with; 0 if it is not UTF-8. */
size_t ddp_utf8_length(const char *text, size_t size);

/* Whether all of the string [text] is UTF-8. */
bool ddp_utf8_valid(const char *text);

/* Write character [code], up to 0x10ffff, to [out]. Returns its bytes, 1 to 4. */
size_t ddp_utf8_put(char *out, uint32_t code);

#endif /* DDP_STATE_UTF8_H */
