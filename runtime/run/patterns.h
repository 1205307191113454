/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns.h - how a rank can end, and the patterns by which ddp-run recognizes lines of other
 * programs
 *
 * To add a kind of failure:
 *
 *     1. here:       add a row to FACTS_HOWS, and a meaning for the line that shows it
 *     2. patterns.c: add a row with that line, an example and the versions that print it
 *     3. verdict.c:  add the rule that sets the kind, and whether ranks that fail in this way count as first
 */
#ifndef DDP_RUN_PATTERNS_H
#define DDP_RUN_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How a rank ended: the name in attempt.json and report.json, and the text in report.txt before and
 * after its code. If the last text is NULL, there is no code.
 */
#define FACTS_HOWS(X)                                                                    \
	X(UNKNOWN, "", "", NULL)                                                         \
	X(EXIT, "exit", "exit status ", "")                                              \
	X(SIGNAL, "signal", "killed by ", "")                                            \
	X(OOM, "oom", "killed for lack of memory", NULL)                                 \
	X(NODE, "node", "lost with its node", NULL)                                      \
	X(SLURMSTEPD, "slurmstepd", "lost with its slurmstepd", NULL) /* gone or hung */ \
	X(LATE, "late", "ran ", " s longer than another rank")	      /* srun's --wait */

enum facts_how {
#define FACTS_HOW(id, name, before, after) FACTS_##id,
	FACTS_HOWS(FACTS_HOW)
#undef FACTS_HOW
		FACTS_HOW_COUNT
};

/* Kinds of text that patterns match. */
enum pattern_source {
	PATTERN_SRUN,	 /* a line on srun's or slurmstepd's stderr */
	PATTERN_END,	 /* the part of a LINE_TASKS that describes how tasks ended */
	PATTERN_OUTPUT,	 /* a line of a rank's output */
	PATTERN_MESSAGE, /* the error message of a rank, one or more lines */
};

enum pattern_meaning {
	LINE_OTHER, /* no pattern matches */

	LINE_NO_FILE,	      /* srun cannot open a file of --input, --output or --error */
	LINE_NODE_LOST,	      /* 1: nodes */
	LINE_LAUNCH_FAILED,   /* 2: node */
	LINE_SLURMSTEPD_LOST, /* srun ends the step: it lost a slurmstepd */
	LINE_TASKS,	      /* 1: node, 2: "s 0-1,4", 3: how these tasks ended */
	LINE_ERROR,	      /* another error of srun */
	LINE_INTERRUPTED,     /* 1: step that srun ends because of Ctrl-C */
	LINE_FORCED,	      /* srun received SIGTERM or SIGHUP and ends the step */
	LINE_FIRST_EXITED,    /* 1: seconds of --wait, which have passed */
	LINE_LATE,	      /* 1: step, 2: "s 1,3": tasks that still run at that time */
	LINE_ABORTED,	      /* the step ends, for any reason */
	LINE_ENDING,	      /* 2: step that srun ends because of a task */
	LINE_TIME_LIMIT,      /* 2: step that Slurm ends at a time limit */
	LINE_PREEMPTED,	      /* 2: step that Slurm ends in favour of another job */
	LINE_CANCELLED,	      /* 2: step that Slurm ends, for any other reason or none */
	LINE_NOT_STARTED,     /* 2: program and reason */
	LINE_LAUNCHING,	      /* srun -v: the step exists; srun connects to the node */
	LINE_FATAL,	      /* srun ends */

	LINE_EXITED, /* 1: exit status */
	LINE_OOM,

	LINE_TRACEBACK, /* Python begins to print an exception; its last line is not indented */
	LINE_CPP,	/* 1: what() of a C++ exception */
	LINE_RECORDS,	/* libddp names the directory of records */
	LINE_WARNING,	/* a warning of libddp, not an error. 1: "RANK@NODE", 2: message */
	LINE_LIBDDP,	/* an error of libddp. 1: "RANK@NODE", 2: message */
	LINE_SLURM,	/* printed by Slurm */

	LINE_STOPPED, /* the rank stopped on request. 1: reason */
	LINE_PEER,    /* the rank lost the connection to another rank, or waited for it too long */
};

struct pattern {
	enum pattern_source source;
	enum pattern_meaning meaning;
	const char *text; /* '%' matches any text, including none; each is as short as possible */
	const char *example;
	const char *printed_by; /* software, with a version that prints it */
};

extern const struct pattern patterns[];
extern const size_t patterns_count;

/*
 * Texts that the '%' of a pattern matched, from index 1 on, as numbered in the comments on the
 * meanings.
 */
struct pattern_part {
	const char *text;
	size_t length;
};
enum { PATTERN_PARTS = 8 };

/* Whether the first [length] bytes of [line] match [text]. Sets [part] if they do. */
bool pattern_match(const char *text, const char *line, size_t length,
		   struct pattern_part part[PATTERN_PARTS]);

/* Returns the meaning of the first pattern for [source] that matches [length] bytes of [line]. */
enum pattern_meaning pattern_find(enum pattern_source source, const char *line, size_t length,
				  struct pattern_part part[PATTERN_PARTS]);

/* Returns the name of [how], such as "exit"; "" for FACTS_UNKNOWN. */
const char *facts_how_name(enum facts_how how);

#endif /* DDP_RUN_PATTERNS_H */
