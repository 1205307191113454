/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder-private.h - for recorder.c, which writes records, and summary.c, which reads them
 */
#ifndef DDP_COMM_RECORDER_PRIVATE_H
#define DDP_COMM_RECORDER_PRIVATE_H

#include <limits.h>
#include <stdatomic.h>

#include "recorder.h"

enum { DDP_RECORDER_ENTRIES = 64 };

struct ddp_recorder_entry {
	uint64_t sequence, count;
	uint64_t begun, ended; /* milliseconds since the recorder was made */
	const char *name;
	uint32_t type, op;
	int32_t status; /* 1: has not ended */
};

enum ddp_recorder_dump { DDP_DUMP_NONE, DDP_DUMP_RUNS, DDP_DUMP_DONE };

struct ddp_recorder {
	char directory[PATH_MAX - 64];
	char path[PATH_MAX];
	char job[256];
	char host[256];
	int rank, size;
	uint64_t born;
	uint64_t used;	 /* entries ever begun */
	atomic_int dump; /* enum ddp_recorder_dump */
	struct ddp_recorder_entry ring[DDP_RECORDER_ENTRIES];
};

#endif /* DDP_COMM_RECORDER_PRIVATE_H */
