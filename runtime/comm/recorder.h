/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - the last collectives of a rank, for when it fails
 *
 * A ring that costs a few nanoseconds a call. ddp_recorder_dump() writes it to
 * <directory>/rank-<rank>, one line a collective, and uses only calls that a signal handler
 * may use. ddp_recorder_summary() reads what all ranks wrote and says who did not arrive.
 */
#ifndef DDP_COMM_RECORDER_H
#define DDP_COMM_RECORDER_H

#include "base/error.h"
#include "local/group.h"

struct ddp_recorder;

/*
 * A recorder for [rank] on [host] of [size] ranks. [directory] lies in the ".ddp" of this user; where it is "", or
 * somebody else could exchange it (base/walk.h), or there is one rank, dump does nothing.
 * Returns NULL where memory is out.
 */
struct ddp_recorder *ddp_recorder_create(const char *directory, const char *job, int rank, int size,
					 const char *host);

/*
 * The ranks have met: [world] is the same number on all of them, and larger for later worlds. It is in the records and in
 * the summary, as a step may run several programs one after the other.
 */
void ddp_recorder_set_world(struct ddp_recorder *recorder, uint64_t world);

/* NULL is legal. */
void ddp_recorder_destroy(struct ddp_recorder *recorder);

/* [call] begins; it ends with [status], and if that is 0 the heart beats. */
void ddp_recorder_begin(struct ddp_recorder *recorder, const struct ddp_call *call);
void ddp_recorder_end(struct ddp_recorder *recorder, int status);

/*
 * Let file [path], which need not be there, be what whoever watches this rank looks at: its time of change is set
 * by the first beat and then once a second at most. "": nobody watches. Where it cannot be written the heart is silent.
 * ddp_recorder_beat(NULL) does nothing.
 */
void ddp_recorder_watch(struct ddp_recorder *recorder, const char *path);
void ddp_recorder_beat(struct ddp_recorder *recorder);

/*
 * Write the record, with [reason] on top (one line, may be cut); it replaces the record of an earlier world. Once
 * only: later calls do nothing. Makes the directory if it is missing (its parent must be there). Signal safe.
 */
void ddp_recorder_dump(struct ddp_recorder *recorder, const char *reason);

/*
 * One rank of the world writes <directory>/summary, after waiting up to [seconds] for the records of the other ranks:
 * the collective that each rank is in, and the ranks that did not arrive.
 * Returns 1 with the path and the gist of it in [text] for the rank that wrote it, else 0.
 */
int ddp_recorder_summary(struct ddp_recorder *recorder, double seconds, char *text, size_t size);

/*
 * On SIGTERM, dump all recorders that were handed to this, then let the signal do what it did
 * before. Up to 64 at a time; further ones are not dumped. ddp_recorder_destroy() takes one out.
 * A forked child of this process dumps none of them.
 */
void ddp_recorder_on_term(struct ddp_recorder *recorder);

#endif /* DDP_COMM_RECORDER_H */
