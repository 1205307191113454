/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roff.h - for the programs that print the tables of the manual pages
 */
#ifndef DDP_BASE_ROFF_H
#define DDP_BASE_ROFF_H

#include <stdio.h>

/* Print [text] so that roff shows it as it is: a minus sign is not a hyphen. */
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
