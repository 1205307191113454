/* SPDX-License-Identifier: Apache-2.0 */
/* roff.h - print tables of manual pages */
#ifndef DDP_BASE_ROFF_H
#define DDP_BASE_ROFF_H

#include <stdio.h>

/* Print [text] with roff's special characters escaped. Without that, "-" would become a hyphen. */
static inline void ddp_roff_print(const char *text)
{
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\\')
			fputs("\\e", stdout);
		else
			putchar(*text);
	}
}

#endif /* DDP_BASE_ROFF_H */
