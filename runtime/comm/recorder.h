/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - record a rank's last collectives, and write them to a file when the rank fails
 *
 * The recorder is a ring buffer. Recording a call takes a few nanoseconds. ddp_recorder_dump()
 * writes the ring to <directory>/rank-<rank>, one line per collective. It uses async-signal-safe
 * functions only. This file is the rank's record. ddp-run reads all ranks' records and names the
 * ranks that did not reach a collective.
 */
#ifndef DDP_COMM_RECORDER_H
#define DDP_COMM_RECORDER_H

#include "base/error.h"
#include "local/group.h"

struct ddp_recorder;

/* Milliseconds that a rank spent between collectives, and in total. */
struct ddp_pace {
	uint32_t between, all;
};

/*
 * Create a recorder for [rank] of [size] ranks on [host]. [directory] is the directory for the
 * records, below this user's ".ddp". No record is written if [directory] is "", if another user
 * could replace the directory (base/walk.h), or if there is only one rank.
 * Returns NULL if memory is short.
 */
struct ddp_recorder *ddp_recorder_create(const char *directory, const char *job, int rank, int size,
					 const char *host);

/*
 * Set the number of the world, which is the same on all ranks, once the ranks have met. A step can
 * run several programs one after the other; the world of a later program has a larger number. The
 * number is written to records.
 */
void ddp_recorder_set_world(struct ddp_recorder *recorder, uint64_t world);

/* NULL is legal. */
void ddp_recorder_destroy(struct ddp_recorder *recorder);

/*
 * ddp_recorder_begin() records that [call] has started. ddp_recorder_end() records that it has
 * ended with [status]; if [status] is 0, it also updates the heartbeat.
 */
void ddp_recorder_begin(struct ddp_recorder *recorder, const struct ddp_call *call);
void ddp_recorder_end(struct ddp_recorder *recorder, int status);

/* Returns the times that have passed since the previous call of ddp_recorder_pace(). */
struct ddp_pace ddp_recorder_pace(struct ddp_recorder *recorder);

/* Add the line "slow: [text]" to the record. If [text] is "", remove the line. */
void ddp_recorder_set_slow(struct ddp_recorder *recorder, const char *text);

/*
 * ddp_recorder_watch() sets the path of the heartbeat file, which need not exist; with "" there are
 * no heartbeats. ddp_recorder_beat() sets the file's modification time, at most once a second. If
 * the file cannot be written, or [recorder] is NULL, ddp_recorder_beat() does nothing.
 */
void ddp_recorder_watch(struct ddp_recorder *recorder, const char *path);
void ddp_recorder_beat(struct ddp_recorder *recorder);

/*
 * Write the record, with [reason] in its first lines. [reason] is one line, and may be truncated.
 * Replaces the record of an earlier world. Only the first call has an effect. Creates the directory
 * if it is missing; its parent must exist. Async-signal-safe.
 */
void ddp_recorder_dump(struct ddp_recorder *recorder, const char *reason);

/*
 * On SIGTERM, write the records of all registered recorders, then restore and run the signal's
 * previous action. Registers at most 64 recorders, and ignores further ones. ddp_recorder_destroy()
 * removes a recorder. A forked child writes no records of its parent.
 */
void ddp_recorder_on_term(struct ddp_recorder *recorder);

#endif /* DDP_COMM_RECORDER_H */
