/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "xalloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*_Atomic tell_ranks)(struct ddp *ddp, const char *format, ...);
static struct ddp *_Atomic tell_ddp;

void ddp_xalloc_tell(void (*tell)(struct ddp *ddp, const char *format, ...), struct ddp *ddp)
{
	tell_ranks = tell;
	tell_ddp = ddp;
}

/* As ddp_exit() ends a program: without what others may hang in. */
static _Noreturn void end(size_t count, size_t size, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "no memory for %.160s: %.4g bytes", what,
		 (double)count * (double)size);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	if (tell_ranks)
		tell_ranks(tell_ddp, "%s", text);
	fflush(NULL);
	_exit(ddp_exit_status(DDP_ERR_MEMORY));
}

/* What no object can have is not even asked for. */
static bool fits(size_t count, size_t size)
{
	return size == 0 || count <= PTRDIFF_MAX / size;
}

void *ddp_xcalloc(size_t count, size_t size, const char *what)
{
	/* Of nothing some systems return NULL. */
	void *memory = fits(count, size) ? calloc(count ? count : 1, size ? size : 1) : NULL;

	if (!memory)
		end(count, size, what);
	return memory;
}

void *ddp_xaligned(size_t alignment, size_t bytes, const char *what)
{
	size_t whole = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
	void *memory = fits(bytes, 1) ? aligned_alloc(alignment, whole) : NULL;

	if (!memory)
		end(bytes, 1, what);
	return memory;
}

char *ddp_xstrdup(const char *text, const char *what)
{
	size_t size = strlen(text) + 1;

	return memcpy(ddp_xcalloc(size, 1, what), text, size);
}
