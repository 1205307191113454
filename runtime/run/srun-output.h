/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun-output.h - parse srun's output: find the rank that wrote a line, the messages of srun and
 * slurmstepd about the step, and the errors that ranks print
 */
#ifndef DDP_RUN_SRUN_OUTPUT_H
#define DDP_RUN_SRUN_OUTPUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "nodes.h"
#include "patterns.h"

/* --- Labels -------------------------------------------------------------------------------- */

/* State of srun_unlabel(). Initialize with {.length = 0}. */
struct srun_labels {
	char line[1100]; /* the incomplete line; fits a piece of 1,024 bytes and its label */
	size_t length;
	bool cut; /* the beginning of the line was already passed on, so the rest has no label */
};

/* Receives [size] bytes that [rank] wrote. [rank] is -1 if srun wrote them. */
typedef void srun_output(void *data, int rank, const char *bytes, size_t size);

/*
 * Pass [size] more bytes of the output of srun --label to [output], line by line, without the
 * labels.
 *
 * If Slurm cut a line of more than 1,024 bytes into pieces, each with a label and a newline, the
 * line is passed on as the rank wrote it. srun also adds a newline to the last line of a rank that
 * lacks one; this newline is passed on. If a rank exits while Slurm has about a megabyte of its
 * output left, Slurm sends the last 4 KiB in pieces of several lines, and cuts the last line of
 * each piece: up to four lines then have a newline that the rank did not write.
 */
void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_output *output,
		  void *data);

/* --- Messages ------------------------------------------------------------------------------ */

struct srun_task {
	int rank;
	char node[FACTS_NAME];
	enum facts_how how;
	int code;
	double time;
};

/* A node refused the step. */
struct srun_refusal {
	char node[FACTS_NAME]; /* "": no node refused the step */
	char reason[512];      /* reason, with "*" in place of the node's name and the step */
};

struct srun_said {
	/*
	 * These members identify ddp-run's step, because srun_parse_messages() also gets messages
	 * of steps that the program starts.
	 */
	const char *_Atomic step; /* such as "4.0"; NULL: unknown, so every step matches */
	const struct node_list *_Atomic nodes; /* NULL: unknown, so every node matches */
	const char *program; /* name of the program; NULL: srun may change the name */
	bool mixed;	     /* messages about tasks may be about another step */
	bool stays;	     /* --kill-on-bad-exit=0: a failed task does not end the step */

	atomic_bool asked; /* ddp-run sent SIGINT, so that srun reports which tasks have ended */

	char line[1024]; /* the incomplete line, or its end */
	size_t length;
	int writer;		/* rank that wrote the line; -1: srun, or unknown */
	bool redrawn;		/* the line follows a carriage return, as a progress bar does */
	struct srun_task *task; /* in the order of srun's messages */
	size_t count, capacity, last; /* last: index of the first task of the last message */
	struct node_list lost;	      /* nodes that failed */
	struct node_list missed;      /* nodes on which srun could not start tasks */
	struct node_list stepd_lost;  /* nodes whose slurmstepd srun lost */
	char missed_why[128];	      /* why srun could not start tasks on a node */
	bool not_launched; /* set after [asked]: no node has reported the start of some tasks */
	char named[64];	   /* first step that a message of srun names, such as "4.0"; "": none */
	bool errors;	   /* srun printed an error */
	bool ending;	   /* srun ends the step, because a task failed */
	int wait;	   /* seconds of --wait, if srun ended the step after this time; else 0 */
	bool late;	   /* srun ends the step, because a rank still ran after --wait */
	bool broken;	   /* srun ends the step, because it lost a slurmstepd */
	bool cancelled;	   /* the step was cancelled before a task failed, or by Ctrl-C */
	bool forced;	   /* srun received SIGTERM or SIGHUP, and ended the step */
	bool aborted; /* this step was cancelled or, if [mixed], a step that the program started */
	bool limit;   /* Slurm ended the step at a time limit */
	bool refused; /* --ddp failed on a node, whose slurmstepd ended the step */
	struct srun_refusal by_node; /* set for refused: the first node that refused the step */
	bool usage_error; /* --ddp or ddp-exec refused the step, as they would on every node */
	bool preempted;	  /* Slurm ended the step in favour of another job */
	bool not_found;	  /* a node could not start the program, or no_file and no rank started */
	bool no_file;	  /* srun could not open a file of --input, --output or --error */
	/*
	 * reason for not_found, no_file, refused or usage_error, such as "execve(): a.out: No such
	 * file or directory"
	 */
	char refusal[512];
};

/*
 * Parse [size] more bytes of srun's stderr, which arrived at [now]. [rank] is the rank that wrote
 * the bytes, or -1 if srun wrote them or the writer is unknown. Of a rank's lines, only lines of
 * its slurmstepd are parsed, because other lines may come from an srun that the rank started.
 */
void srun_parse_messages(struct srun_said *said, int rank, const char *bytes, size_t size,
			 double now);

/* Add [rank], which did not exit after an exception at [time], before the tasks that srun named. */
void srun_add_raised(struct srun_said *said, int rank, double time);

/* Whether two nodes refused a step for the same reason, which then is not a fault of a node. */
bool srun_is_same_reason(const struct srun_refusal *refusal, const struct srun_refusal *other);

/* Whether srun ended the step because it lost a node or a slurmstepd, or never reached a node. */
bool srun_lost_node(const struct srun_said *said);
void srun_said_free(struct srun_said *said);

/* --- Errors of ranks ----------------------------------------------------------------------- */

/*
 * The last error in the output of a rank: an exception of Python or C++, or, if there was none, an
 * error of libddp. In a traceback of several exceptions the last one counts, and in an
 * ExceptionGroup the first one. An error without PyTorch's prefix does not replace one with the
 * prefix. An exception of another thread than the main thread replaces no error. An exception that
 * Python ignores, or that an exit handler raises, is no error. Initialize with {.prefix = -1}.
 */
struct rank_error {
	enum {
		ERROR_OUTSIDE,	 /* the last line is not part of a traceback */
		ERROR_EXPECTED,	 /* a traceback begins after other text, if a frame follows */
		ERROR_TRACEBACK, /* the next line without indentation is the exception */
		ERROR_GROUP, /* the next such line is the ExceptionGroup or its first exception */
		ERROR_GROUP_NAMED /* the exceptions in the group follow, or the group ends */
	} state;
	/*
	 * Rank in the prefix "[rank1]: " of the lines of the error, and of the traceback that is being
	 * parsed; -1: no prefix. Only PyTorch's hook for uncaught exceptions (2.3 to 2.15) prints
	 * this prefix.
	 */
	int prefix, parsed_prefix;
	/*
	 * If the state is ERROR_EXPECTED, text before the traceback on its line. Otherwise, a prefix of
	 * the lines of the last traceback, such as "[n1] " or a time, whose digits differ; "": none.
	 */
	char before[128];
	/* kinds of the next and of the last traceback: LINE_IGNORED, LINE_THREAD or LINE_OTHER */
	enum pattern_meaning next_kind, kind;
	enum pattern_meaning printed_by; /* LINE_TRACEBACK, LINE_CPP or LINE_LIBDDP */
	char text[1024];		 /* one line; "": no error */
};

/*
 * Parse [line], the next line of the output of one rank, without its newline. If [rank] is not
 * negative, the lines are those of all ranks, and only those that name [rank] count. Returns true
 * if the line completes an error, which is in error->text then.
 */
bool rank_error_parse(struct rank_error *error, int rank, const char *line);

/* Parse all lines of [output]; [rank] is as in rank_error_parse(). */
void rank_error_find(struct rank_error *error, const char *output, int rank);

#endif /* DDP_RUN_SRUN_OUTPUT_H */
