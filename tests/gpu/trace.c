/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - when each kernel and copy of a program ran on its GPU, those of graphs too, by CUPTI
 *
 * CUDA loads this library into any program that has its path in CUDA_INJECTION64_PATH. Lines of DDP_TRACE, a
 * file: begin and end in nanoseconds, stream, node of a graph (0: none), what.
 */
#include <cupti.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER = 4 << 20 };

static FILE *file;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
	*buffer = aligned_alloc(64, BUFFER);
	*size = *buffer ? BUFFER : 0;
	*records = 0;
}

static void write_line(uint64_t begin, uint64_t end, uint32_t stream, uint64_t node,
		       const char *what)
{
	fprintf(file, "%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%" PRIu64 "\t%s\n", begin, end,
		stream, node, what);
}

static void write_record(const CUpti_Activity *record)
{
	if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
		const CUpti_ActivityKernel10 *kernel = (const void *)record;

		write_line(kernel->start, kernel->end, kernel->streamId, kernel->graphNodeId,
			   kernel->name);
	} else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
		const CUpti_ActivityMemcpy6 *copy = (const void *)record;

		write_line(copy->start, copy->end, copy->streamId, copy->graphNodeId, "(copy)");
	} else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
		const CUpti_ActivityMemset4 *set = (const void *)record;

		write_line(set->start, set->end, set->streamId, set->graphNodeId, "(set)");
	}
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
				 size_t valid)
{
	CUpti_Activity *record = NULL;

	(void)context;
	(void)stream;
	(void)size;
	while (file && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
		write_record(record);
	free(buffer);
}

static void finish(void)
{
	cuptiActivityFlushAll(1);
	fclose(file);
	file = NULL;
}

/* CUDA calls it by this name, before the program's first call is done. Returns 1 where it works. */
int __attribute__((visibility("default"))) InitializeInjection(void);

int InitializeInjection(void)
{
	static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
						   CUPTI_ACTIVITY_KIND_MEMCPY,
						   CUPTI_ACTIVITY_KIND_MEMSET};
	const char *path = getenv("DDP_TRACE"), *why = "";
	CUptiResult result = cuptiActivityRegisterCallbacks(give_buffer, take_buffer);

	for (size_t i = 0; result == CUPTI_SUCCESS && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		result = cuptiActivityEnable(kinds[i]);
	if (result != CUPTI_SUCCESS) {
		cuptiGetResultString(result, &why);
		fprintf(stderr, "trace: CUPTI does not trace here: %s\n", why);
		return 0;
	}
	file = path ? fopen(path, "we") : NULL;
	if (file)
		atexit(finish);
	return file != NULL;
}
