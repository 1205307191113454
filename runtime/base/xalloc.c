/* SPDX-License-Identifier: Apache-2.0 */
/* xalloc.c - allocate memory, or end the program and abort the other ranks */
#include "config.h"

#include "xalloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounded.h"
#include "text.h"

static void (*_Atomic abort_ranks)(struct ddp *ddp, const char *format, ...);
static struct ddp *_Atomic abort_handle;

void ddp_xalloc_tell(void (*call)(struct ddp *ddp, const char *format, ...), struct ddp *ddp)
{
	abort_ranks = call;
	abort_handle = ddp;
}

/* Returns whether an array of this size can exist. If not, nothing is allocated. */
static bool fits(size_t count, size_t size)
{
	return size == 0 || count <= PTRDIFF_MAX / size;
}

/* End the program like ddp_exit(): without exit handlers, which may hang. */
static _Noreturn void end(size_t count, size_t size, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "no memory for %.160s: %s", what,
		 fits(count, size) ? ddp_show_bytes(count * size).text
				   : ddp_show("%.4g bytes", (double)count * (double)size).text);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	if (abort_ranks)
		abort_ranks(abort_handle, "%s", text);
	ddp_flush_and_exit(ddp_exit_status(DDP_ERR_MEMORY));
}

void *ddp_xcalloc(size_t count, size_t size, const char *what)
{
	/* Allocate at least one byte, since calloc() of size 0 may return NULL. */
	void *memory = fits(count, size) ? calloc(count ? count : 1, size ? size : 1) : NULL;

	if (!memory)
		end(count, size, what);
	return memory;
}

void *ddp_xgrow(void *old, size_t count, size_t *capacity, size_t size, const char *what)
{
	void *new;

	if (count < *capacity)
		return old;
	*capacity = 2 * count + 16;
	new = ddp_xcalloc(*capacity, size, what);
	if (count > 0)
		memcpy(new, old, count * size);
	free(old);
	return new;
}

void *ddp_xaligned(size_t bytes, const char *what)
{
	enum { LINE = 64 };
	size_t whole = (bytes + LINE) / LINE * LINE;
	void *memory = fits(bytes, 1) ? aligned_alloc(LINE, whole) : NULL;

	if (!memory)
		end(bytes, 1, what);
	return memset(memory, 0, whole);
}

char *ddp_xstrdup(const char *text, const char *what)
{
	size_t size = strlen(text) + 1;

	return memcpy(ddp_xcalloc(size, 1, what), text, size);
}
