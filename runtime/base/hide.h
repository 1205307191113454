/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hide.h - removes secrets from lines that other users may read
 *
 * The random end of a rendezvous directory's name lets a process that knows it pose as a rank of
 * this step, and output files are often readable by others. libddp and the plugin, which does not
 * link libddp, replace it by "*".
 */
#ifndef DDP_BASE_HIDE_H
#define DDP_BASE_HIDE_H

#include <string.h>

/*
 * Replace "/.ddp/c-1.0.0-0123456789abcdef" in [text] by "/.ddp/c-1.0.0-*", which a shell can still
 * expand.
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
