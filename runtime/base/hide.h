/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hide.h - remove secrets from lines that other users may read
 *
 * The name of a rendezvous directory ends with a random number. A process that knows it can pose as
 * a rank of the step, and output files are often readable by others. Therefore libddp and the
 * plugin replace the number by "*". This is a header because the plugin does not link libddp.
 */
#ifndef DDP_BASE_HIDE_H
#define DDP_BASE_HIDE_H

#include <string.h>

/*
 * Replace a path such as "/.ddp/c-1.0.0-0123456789abcdef" in [text] by "/.ddp/c-1.0.0-*". A shell
 * can expand the "*".
 */
static inline void ddp_hide(char *text)
{
	enum { DIGITS = 16 };
	char *at = text;

	while ((at = strstr(at, "/.ddp/"))) {
		char *end, *dash;

		at += strlen("/.ddp/");
		end = at + strcspn(at, "/ '\"?;,:)");
		for (dash = end; dash > at && dash[-1] != '-'; dash--)
			;
		if (dash == at || strspn(dash, "0123456789abcdef") != DIGITS)
			continue;
		*dash = '*';
		memmove(dash + 1, dash + DIGITS, strlen(dash + DIGITS) + 1);
	}
}

#endif /* DDP_BASE_HIDE_H */
