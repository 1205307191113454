/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - early stop of a training, by a signal or before the job's time limit
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include <stdbool.h>

struct run;

struct stop {
	double time;	  /* when to stop, in seconds since 1970; 0: no limit */
	bool agreed;	  /* all ranks stop after the current step */
	char reason[192]; /* how the run ended, for people */
	char cause[32];	  /* why it stopped early: "time", "SIGUSR1" */
};

/*
 * Starts a thread that receives SIGTERM, SIGINT, SIGUSR1 and SIGHUP, unless they are ignored. Must
 * be called before other threads are created. Until stop_politely(), the signals end the program at
 * once.
 */
void stop_watch(void);

/* From now on a signal sets stop_wanted(). A second SIGINT ends the program. */
void stop_politely(void);

bool stop_wanted(const struct stop *stop);

/* Sets run->stop.reason and run->stop.cause from the reasons of all ranks. Collective. */
int stop_explain(struct run *run);

/*
 * Writes "stopped: CAUSE; checkpoint of step N" to the file that TORCHELASTIC_ERROR_FILE names, for
 * ddp-run. Does nothing without that variable. Called on rank 0 after the checkpoint was written.
 */
void stop_record(const struct run *run);

#endif /* TRAIN_STOP_H */
