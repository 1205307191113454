/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - records a rank's last collectives and writes them to a file when the rank fails
 *
 * The recorder is a ring buffer that costs a few nanoseconds per call. ddp_recorder_dump() writes
 * it to <directory>/rank-<rank>, one line per collective, using only async-signal-safe functions.
 * ddp_recorder_summary() reads all ranks' records and names the ranks that did not reach a
 * collective.
 */
#ifndef DDP_COMM_RECORDER_H
#define DDP_COMM_RECORDER_H

#include "base/error.h"
#include "local/group.h"

struct ddp_recorder;

/* Milliseconds between collectives, and in total. */
struct ddp_pace {
	uint32_t between, all;
};

/*
 * Create a recorder for [rank] of [size] ranks on [host]. [directory] is below this user's ".ddp".
 * Nothing is written if it is "", if another user could replace it (base/walk.h), or if there is
 * only one rank.
 * Returns NULL if memory is short.
 */
struct ddp_recorder *ddp_recorder_create(const char *directory, const char *job, int rank, int size,
					 const char *host);

/*
 * Called once the ranks have met. [world] is the same number on all ranks, and larger for later
 * worlds. Records and the summary contain it, since a step may run several programs one after the
 * other.
 */
void ddp_recorder_set_world(struct ddp_recorder *recorder, uint64_t world);

/* NULL is legal. */
void ddp_recorder_destroy(struct ddp_recorder *recorder);

/* Record the start of [call], and its end with [status]. If that is 0, also signal a heartbeat. */
void ddp_recorder_begin(struct ddp_recorder *recorder, const struct ddp_call *call);
void ddp_recorder_end(struct ddp_recorder *recorder, int status);

/* Returns the times since the last call. */
struct ddp_pace ddp_recorder_pace(struct ddp_recorder *recorder);

/* Put "slow: [text]" into the record; "" removes it. */
void ddp_recorder_set_slow(struct ddp_recorder *recorder, const char *text);

/*
 * Set the heartbeat file [path], which need not exist; "": none. The first heartbeat and then at
 * most one per second sets its modification time. If it cannot be written, heartbeats do nothing.
 * ddp_recorder_beat(NULL) does nothing.
 */
void ddp_recorder_watch(struct ddp_recorder *recorder, const char *path);
void ddp_recorder_beat(struct ddp_recorder *recorder);

/*
 * Write the record, with [reason], one line, which may be truncated, at the top. Replaces the
 * record of an earlier world. Only the first call has an effect. Creates the directory if missing
 * (its parent must exist). Async-signal-safe.
 */
void ddp_recorder_dump(struct ddp_recorder *recorder, const char *reason);

/*
 * One rank of the world writes <directory>/summary, after waiting up to [seconds] for the other
 * ranks' records: the collective that each rank is in, and the ranks that did not reach it.
 * Returns 1 in the rank that wrote it, with the result and the path in [text]; else 0.
 */
int ddp_recorder_summary(struct ddp_recorder *recorder, double seconds, char *text, size_t size);

/*
 * On SIGTERM, dump all registered recorders, then restore and run the signal's previous action. At
 * most 64 recorders are registered; further ones are ignored. ddp_recorder_destroy() removes a
 * recorder. A forked child dumps none of its parent's recorders.
 */
void ddp_recorder_on_term(struct ddp_recorder *recorder);

#endif /* DDP_COMM_RECORDER_H */
