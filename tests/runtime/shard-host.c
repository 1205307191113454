/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-host.c - ddp_shard.so over host memory: memory is a memfd, a stream is a thread
 *
 * What goes wrong on purpose (host_fails()): open, know, alloc, import, sum, idle. Memory that a stream may touch
 * stays mapped when a test is wrong: then it dies.
 */
#include "config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/shard-engine.h"
#include "device/shard-protocol.h"
#include "host-stream.h"
#include "local/kernel.h"

struct mapping {
	struct mapping *next;
	void *base;
	size_t bytes;
};

struct ddp_shard_gpu {
	struct host_stream *own;
	struct mapping *mappings;
	char *page;
	size_t page_bytes;
	enum ddp_simd simd;
	int index;
};

/* --- On purpose -------------------------------------------------------------------------- */

static int refuse(const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ENGINE, "host device: %s fails, as asked", what);
}

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "host device: %s does not hold\n", what);
	abort();
}

/* --- Open and close ---------------------------------------------------------------------- */

static int host_open(struct ddp_shard_gpu **gpu, int index, double share, const struct ddp_log *log,
		     struct ddp_error *error)
{
	(void)share;
	(void)log;
	*gpu = NULL;
	if (host_fails("open"))
		return refuse("open()", error);
	*gpu = calloc(1, sizeof(**gpu));
	must(*gpu != NULL, "memory for a device");
	(*gpu)->index = index;
	(*gpu)->own = host_stream_open();
	must((*gpu)->own != NULL, "a stream");
	return ddp_simd_choose(&(*gpu)->simd, error);
}

static void forget_all(struct ddp_shard_gpu *gpu)
{
	while (gpu->mappings) {
		struct mapping *mapping = gpu->mappings;

		gpu->mappings = mapping->next;
		munmap(mapping->base, mapping->bytes);
		free(mapping);
	}
}

static void host_close(struct ddp_shard_gpu *gpu)
{
	if (!gpu || !host_stream_close(gpu->own))
		return;
	forget_all(gpu);
	free(gpu);
}

/* --- Memory ------------------------------------------------------------------------------ */

static void *map(struct ddp_shard_gpu *gpu, int fd, size_t bytes, struct ddp_error *error)
{
	struct mapping *mapping = calloc(1, sizeof(*mapping));
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	must(mapping != NULL, "memory for a mapping");
	if (base == MAP_FAILED) {
		free(mapping);
		ddp_error_errno(error, DDP_ERR_MEMORY, "host device: mapping %zu bytes", bytes);
		return NULL;
	}
	*mapping = (struct mapping){gpu->mappings, base, bytes};
	gpu->mappings = mapping;
	return base;
}

static int host_alloc(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
		      struct ddp_error *error)
{
	memset(memory, 0, sizeof(*memory));
	memory->fd = -1;
	if (host_fails("alloc"))
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "host device: no memory for %zu bytes, as asked", bytes);
	memory->fd = memfd_create("ddp-device", MFD_CLOEXEC);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t)bytes) < 0)
		return ddp_error_errno(error, DDP_ERR_MEMORY, "host device: %zu bytes", bytes);
	memory->bytes = bytes;
	memory->base = map(gpu, memory->fd, bytes, error);
	if (memory->base)
		return 0;
	close(memory->fd);
	memory->fd = -1;
	return DDP_ERR_MEMORY;
}

static int host_import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
		       void **memory, struct ddp_error *error)
{
	*memory = NULL;
	if (host_fails("import"))
		return refuse("import()", error);
	must(theirs->fd >= 0, "a descriptor of what is imported");
	*memory = map(gpu, theirs->fd, theirs->bytes, error);
	return *memory ? 0 : DDP_ERR_MEMORY;
}

static void host_release(struct ddp_shard_gpu *gpu, void *memory)
{
	struct mapping **link = &gpu->mappings, *mapping;

	if (!memory)
		return;
	while (*link && (*link)->base != memory)
		link = &(*link)->next;
	mapping = *link;
	must(mapping != NULL, "memory that is released was mapped");
	*link = mapping->next;
	munmap(mapping->base, mapping->bytes);
	free(mapping);
}

static int host_know(struct ddp_shard_gpu *gpu, void *page, size_t bytes, struct ddp_error *error)
{
	must(!gpu->page && (uintptr_t)page % 4096 == 0, "a page, once");
	gpu->page = page;
	gpu->page_bytes = bytes;
	return host_fails("know") ? refuse("know()", error) : 0;
}

/* --- Moves -------------------------------------------------------------------------------- */

struct move {
	_Atomic uint32_t *word;
	uint32_t value;
	void *to;
	const void *from;
	size_t bytes;
};

struct adding {
	ddp_kernel *kernel;
	size_t count;
	int targets, sources;
	void *to[DDP_SHARD_MEMBERS];
	const void *from[DDP_SHARD_MEMBERS];
};

_Static_assert(sizeof(struct adding) <= HOST_ROOM, "a sum goes into a deed");

static struct host_stream *stream_of(const struct ddp_shard_gpu *gpu, void *stream)
{
	return stream ? stream : gpu->own;
}

static bool is_word(const struct ddp_shard_gpu *gpu, const void *word)
{
	return gpu->page && (const char *)word >= gpu->page &&
	       (const char *)word + 4 <= gpu->page + gpu->page_bytes;
}

static bool run_wait(void *room)
{
	const struct move *move = room;

	return ddp_shard_reached(atomic_load(move->word), move->value);
}

static bool run_write(void *room)
{
	const struct move *move = room;

	atomic_store(move->word, move->value);
	return true;
}

static bool run_sum(void *room)
{
	struct adding *adding = room;

	adding->kernel(adding->to, adding->targets, adding->from, adding->sources, adding->count,
		       1);
	return true;
}

static bool run_copy(void *room)
{
	const struct move *move = room;

	memcpy(move->to, move->from, move->bytes);
	return true;
}

static bool run_zero(void *room)
{
	const struct move *move = room;

	memset(move->to, 0, move->bytes);
	return true;
}

static void add(struct ddp_shard_gpu *gpu, void *stream, bool (*run)(void *), struct move move)
{
	host_stream_add(stream_of(gpu, stream), run, &move, sizeof(move));
}

static int host_wait(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		     struct ddp_error *error)
{
	struct move move = {.word = (_Atomic uint32_t *)(uintptr_t)word, .value = value};

	(void)error;
	must(is_word(gpu, word), "a word that was made known");
	add(gpu, stream, run_wait, move);
	return 0;
}

static int host_write(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
		      struct ddp_error *error)
{
	(void)error;
	must(is_word(gpu, word), "a word that was made known");
	add(gpu, stream, run_write, (struct move){.word = word, .value = value});
	return 0;
}

static int host_sum(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
		    const void *const *from, int sources, size_t count, enum ddp_type type,
		    enum ddp_op op, struct ddp_error *error)
{
	struct adding adding = {.kernel = ddp_kernel_get(type, op, gpu->simd),
				.count = count,
				.targets = targets,
				.sources = sources};

	if (host_fails("sum"))
		return refuse("sum()", error);
	must(targets >= 1 && sources >= 1 && targets <= sources && sources <= DDP_SHARD_MEMBERS,
	     "a sum of members");
	for (int i = 0; i < sources; i++) {
		must((uintptr_t)from[i] % ddp_type_size(type) == 0, "elements are aligned");
		adding.from[i] = from[i];
	}
	for (int i = 0; i < targets; i++)
		adding.to[i] = to[i];
	host_stream_add(stream_of(gpu, stream), run_sum, &adding, sizeof(adding));
	return 0;
}

static int host_copy(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from,
		     size_t bytes, struct ddp_error *error)
{
	(void)error;
	add(gpu, stream, run_copy, (struct move){.to = to, .from = from, .bytes = bytes});
	return 0;
}

static int host_zero(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		     struct ddp_error *error)
{
	(void)error;
	add(gpu, stream, run_zero, (struct move){.to = memory, .bytes = bytes});
	return 0;
}

/* --- Looking ------------------------------------------------------------------------------ */

static int host_idle(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error)
{
	if (host_fails("idle"))
		return refuse("idle()", error);
	return host_stream_idle(stream_of(gpu, stream));
}

static bool host_captured(struct ddp_shard_gpu *gpu, void *stream)
{
	struct host_stream *of = stream_of(gpu, stream);

	return of->class->captured(of);
}

static void *host_stream(struct ddp_shard_gpu *gpu)
{
	return gpu->own;
}

DDP_API const struct ddp_shard_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_SHARD_VERSION, sizeof(struct ddp_shard_engine), "shard",
		 "shard", PACKAGE_VERSION},
	.open = host_open,
	.alloc = host_alloc,
	.import = host_import,
	.release = host_release,
	.know = host_know,
	.wait = host_wait,
	.write = host_write,
	.sum = host_sum,
	.copy = host_copy,
	.zero = host_zero,
	.idle = host_idle,
	.captured = host_captured,
	.stream = host_stream,
	.close = host_close,
};
