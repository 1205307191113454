/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hide.h - what must not be in any line that people read
 *
 * The random end of a rendezvous directory's name lets whoever knows it believe that he talks to this step, and
 * output is often readable by others. The plugin, which knows no runtime, and libddp write "*" for it.
 */
#ifndef DDP_BASE_HIDE_H
#define DDP_BASE_HIDE_H

#include <string.h>

/* In [text], "/.ddp/c-1.0.0-0123456789abcdef" becomes "/.ddp/c-1.0.0-*", which a shell still finds. */
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
