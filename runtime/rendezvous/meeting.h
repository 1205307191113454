/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h - what the files of the method "file" share; the protocol is in file.c
 */
#ifndef DDP_RENDEZVOUS_MEETING_H
#define DDP_RENDEZVOUS_MEETING_H

#include "table.h"
#include "venue.h"

/* An attempt that this rank knows of. */
struct ddp_candidate {
	uint64_t attempt;
	bool joined; /* this rank's record lies there; else it is not one to meet in */
};

struct ddp_meeting {
	struct ddp_rendezvous base;
	struct ddp_record mine; /* fence: the next one; attempt: once [accepted] */
	const char *directory;
	bool own;
	bool accepted; /* there is one candidate left, and a table named this process, or we made it */
	bool broken; /* a fence failed */
	struct ddp_candidate candidates[DDP_VENUE_ATTEMPTS];
	int count;
	int64_t delivered; /* the last fence for which this rank's record was written, -1: none */
	uint64_t missed;   /* since when the directory was not there, 0: it is */
	struct ddp_puts puts;
	struct ddp_table *table; /* of the last fence */
	char zero[96];		 /* "rank 0 on n1 (process 77)", once its hello was read */
	char passed[160];	 /* why the last candidate that is not one to meet in is none */
	char abort[DDP_ERROR_SIZE];
};

/* A wait that looks at things again and again, less and less often. */
struct ddp_pause {
	uint64_t next, longest; /* nanoseconds */
};

/* The first pause is [first] nanoseconds; the longest one grows with [size], for the server. */
struct ddp_pause ddp_pause_start(uint64_t first, uint32_t size);

/* Ask [watch], then sleep. Returns what ddp_watch_check() says. */
int ddp_pause(struct ddp_pause *pause, const struct ddp_watch *watch, struct ddp_error *error);

/* Rank 0, at open: clear away and begin an attempt. Returns 0 or DDP_ERR_x. */
int ddp_meeting_begin(struct ddp_meeting *meeting, struct ddp_error *error);

/* Rank 0, at a fence: gather and publish. Returns 0 or DDP_ERR_x. */
int ddp_meeting_gather(struct ddp_meeting *meeting, const struct ddp_watch *watch,
		       struct ddp_error *error);

/* The others: deliver and wait for the table. Returns 0 or DDP_ERR_x. */
int ddp_meeting_join(struct ddp_meeting *meeting, const struct ddp_watch *watch,
		     struct ddp_error *error);

/* The others, at close: what they meet in from now on began after this moment. */
void ddp_meeting_left(void);

/*
 * Whether one of the candidates that [list] has was given up.
 * Returns 0, or DDP_ERR_ABORTED with who and why.
 */
int ddp_meeting_aborted(struct ddp_meeting *meeting, const struct ddp_venue_list *list,
			struct ddp_error *error);

/*
 * The attempt's directory, or all of them, was not there.
 * Returns DDP_ERR_MISMATCH where another rank 0 took its place; else 0, as this may be a file
 * system that lags, and DDP_ERR_FILE when it has been so for a while.
 */
int ddp_meeting_missing(struct ddp_meeting *meeting, struct ddp_error *error);

/*
 * Which ranks have a file for [fence] in [attempt]: set here[rank], for the [size] of the world.
 * Returns 0, or -1 where that cannot be seen.
 */
int ddp_meeting_present(const struct ddp_meeting *meeting, uint64_t attempt, uint32_t fence,
			bool *here);

/*
 * Say in [error] that the time is over and which ranks are not [here] (NULL: look which), with
 * their nodes where an earlier fence told them.
 * Returns DDP_ERR_TIMEOUT.
 */
int ddp_meeting_late(struct ddp_meeting *meeting, const bool *here, const struct ddp_watch *watch,
		     struct ddp_error *error);

#endif /* DDP_RENDEZVOUS_MEETING_H */
