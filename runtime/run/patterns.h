/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns.h - how a rank can end, and the lines of other programs by which ddp-run recognizes what happened
 *
 * To add a kind of failure:
 *
 *     1. here:       a row of FACTS_HOWS, and a meaning for the line that shows it
 *     2. patterns.c: a row with that line, an example and the versions that print it
 *     3. verdict.c:  the rule that sets the kind, and whether ranks that fail in this way failed first
 */
#ifndef DDP_RUN_PATTERNS_H
#define DDP_RUN_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How a rank ended: the name in attempt.json and report.json, and the words of report.txt before and after its code. A kind whose last
 * word is NULL has no code to show.
 */
#define FACTS_HOWS(X)                                                                              \
	X(UNKNOWN, "", "", NULL)                                                                   \
	X(EXIT, "exit", "exit status ", "")                                                        \
	X(SIGNAL, "signal", "killed by ", "")                                                      \
	X(OOM, "oom", "killed for want of memory", NULL)                                           \
	X(NODE, "node", "lost with its node", NULL)                                                \
	X(SLURMSTEPD, "slurmstepd", "lost with its slurmstepd", NULL) /* which is gone or hangs */ \
	X(LATE, "late", "ran ", " s longer than another rank") /* and srun's --wait was over */

enum facts_how {
#define FACTS_HOW(id, name, before, after) FACTS_##id,
	FACTS_HOWS(FACTS_HOW)
#undef FACTS_HOW
		FACTS_HOW_COUNT
};

/* The texts that patterns are for. */
enum pattern_source {
	PATTERN_SRUN,	 /* a line of stderr of srun and slurmstepd */
	PATTERN_END,	 /* the part of a LINE_TASKS that says how tasks ended */
	PATTERN_OUTPUT,	 /* a line of a rank's output */
	PATTERN_MESSAGE, /* the error message of a rank, of one line or more */
};

enum pattern_meaning {
	LINE_OTHER, /* no pattern matches */

	LINE_NO_FILE,	      /* srun cannot open a file of --input, --output or --error */
	LINE_NODE_LOST,	      /* 1: nodes */
	LINE_LAUNCH_FAILED,   /* 2: node */
	LINE_SLURMSTEPD_LOST, /* srun ends the step: it lost a slurmstepd */
	LINE_TASKS,	      /* 1: node, 2: "s 0-1,4", 3: how these tasks ended */
	LINE_ERROR,	      /* another error of srun */
	LINE_INTERRUPTED,     /* 1: step that srun ends for Ctrl-C */
	LINE_FORCED,	      /* srun received SIGTERM or SIGHUP and ends the step */
	LINE_FIRST_EXITED,    /* 1: seconds of --wait, which are over */
	LINE_LATE,	      /* 1: step, 2: "s 1,3": tasks that still run then */
	LINE_ABORTED,	      /* the step ends, for any reason */
	LINE_ENDING,	      /* 2: step that srun ends for a task */
	LINE_TIME_LIMIT,      /* 2: step that Slurm ends for a time limit */
	LINE_PREEMPTED,	      /* 2: step that Slurm ends for another job */
	LINE_CANCELLED,	      /* 2: step that Slurm ends, for any other reason or none */
	LINE_NOT_STARTED,     /* 2: program and reason */
	LINE_LAUNCHING,	      /* srun -v: the step exists; srun connects to the node */
	LINE_FATAL,	      /* srun ends */

	LINE_EXITED, /* 1: exit status */
	LINE_OOM,

	LINE_TRACEBACK, /* Python begins to print an exception; its last line is not indented */
	LINE_CPP,	/* 1: what() of a C++ exception */
	LINE_RECORDS,	/* libddp names the directory of records */
	LINE_WARNING,	/* no error of libddp. 1: "RANK@NODE", 2: message */
	LINE_LIBDDP,	/* libddp 1: "RANK@NODE", 2: message */
	LINE_SLURM,	/* printed by Slurm */

	LINE_STOPPED, /* the rank stopped on request. 1: reason */
	LINE_PEER,    /* the rank lost the connection to another rank, or waited for it too long */
};

struct pattern {
	enum pattern_source source;
	enum pattern_meaning meaning;
	const char *text; /* '%' stands for any text, or none; each as short as possible */
	const char *example;
	const char *printed_by; /* software and a version that prints it */
};

extern const struct pattern patterns[];
extern const size_t patterns_count;

/* Texts that the '%' of a pattern stand for, from [1] on, as the comments on the meanings number them. */
struct pattern_part {
	const char *text;
	size_t length;
};
enum { PATTERN_PARTS = 8 };

/* Whether the first [length] bytes of [line] match [text], with [part] set if they do. */
bool pattern_match(const char *text, const char *line, size_t length,
		   struct pattern_part part[PATTERN_PARTS]);

/* The meaning of the first pattern for [source] that matches [length] bytes of [line]. */
enum pattern_meaning pattern_find(enum pattern_source source, const char *line, size_t length,
				  struct pattern_part part[PATTERN_PARTS]);

/* The name of [how]: "exit"; "" for FACTS_UNKNOWN. */
const char *facts_how_name(enum facts_how how);

#endif /* DDP_RUN_PATTERNS_H */
