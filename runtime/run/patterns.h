/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns.h - ways in which a rank can end, and patterns of the lines by which ddp-run recognizes
 * them in the output of other programs
 *
 * To add a kind of failure:
 *     1. here:       add a row to FACTS_HOWS, and a LINE_ constant for the line that shows it
 *     2. patterns.c: add a row with a pattern, an example and the versions that print the line
 *     3. verdict.c:  add a rule that sets the kind, and that decides whether a rank that fails in
 *                    this way can be the first that failed
 */
#ifndef DDP_RUN_PATTERNS_H
#define DDP_RUN_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How a rank ended. Columns: constant; name in report.json; text in report.txt, or its part before
 * a number (exit status, signal or time); its part after the number, or NULL if there is no number.
 * SLURMSTEPD: it was killed, or hangs, or waits because a child of the rank keeps the output open.
 */
#define FACTS_HOWS(X)                                                    \
	X(UNKNOWN, "", "", NULL)                                         \
	X(EXIT, "exit", "exit status ", "")                              \
	X(SIGNAL, "signal", "killed by ", "")                            \
	X(OOM, "oom", "killed for lack of memory", NULL)                 \
	X(NODE, "node", "lost with its node", NULL)                      \
	X(SLURMSTEPD, "slurmstepd", "srun did not report its end", NULL) \
	X(NOT_STARTED, "launch", "was not started", NULL)                \
	X(RAISED, "raised", "did not exit after an exception", NULL)     \
	X(LATE, "late", "ran ", " s longer than another rank") /* srun's --wait */

enum facts_how {
#define FACTS_HOW(id, name, before, after) FACTS_##id,
	FACTS_HOWS(FACTS_HOW)
#undef FACTS_HOW
		FACTS_HOW_COUNT
};

enum pattern_source {
	PATTERN_SRUN,	 /* a line on srun's or slurmstepd's stderr */
	PATTERN_END,	 /* the text about how tasks ended: part 3 of LINE_TASKS */
	PATTERN_OUTPUT,	 /* a line of a rank's output */
	PATTERN_MESSAGE, /* the error message of a rank, one or more lines */
};

/*
 * "1:" to "3:" are the parts of the line that the '%' of the pattern match. A list of several tasks
 * begins with "s ", the plural ending of "tasks".
 */
enum pattern_meaning {
	LINE_OTHER, /* no pattern matches */

	LINE_NO_FILE,	      /* srun cannot open a file of --input, --output or --error */
	LINE_NODE_LOST,	      /* 1: nodes */
	LINE_LAUNCH_FAILED,   /* 2: node and reason */
	LINE_SLURMSTEPD_LOST, /* srun ends the step: it lost a slurmstepd. 3: index of its node */
	LINE_TASKS,	      /* 1: node; 2: tasks, as in "s 0-1,4"; 3: how they ended */
	LINE_ERROR,	      /* another error of srun */
	LINE_INTERRUPTED,     /* 1: step that srun ends because of Ctrl-C */
	LINE_FORCED,	      /* srun received a signal and ends the step */
	LINE_FIRST_EXITED,    /* 1: seconds of --wait, which have passed */
	LINE_LATE,	      /* 1: step; 2: tasks that still run after --wait */
	LINE_ENDED,	      /* 1: step; 2: tasks that have ended with status 0 */
	LINE_NOT_LAUNCHED,    /* 1: step; 2: tasks of which no node has reported the start */
	LINE_ABORTED,	      /* the step ends, for any reason */
	LINE_ENDING,	      /* 2: step that srun ends because of a task */
	LINE_TIME_LIMIT,      /* 2: step that Slurm ends at a time limit */
	LINE_PREEMPTED,	      /* 2: step that Slurm ends in favour of another job */
	LINE_CANCELLED,	      /* 2: step that Slurm ends, for any other reason or none */
	LINE_NOT_STARTED,     /* 2: program and reason */
	LINE_STEP_REFUSED, /* 2: node; 3: why --ddp failed there; the node's slurmstepd ends the step */
	LINE_USAGE_ERROR, /* 3: why --ddp or ddp-exec refuses the step on every node */
	LINE_LAUNCHING,	  /* srun -v: the step exists; srun connects to the node */
	LINE_FATAL,	  /* srun ends */

	LINE_EXITED, /* 1: exit status */
	LINE_OOM,

	LINE_TRACEBACK, /* start of a Python traceback, which ends at a line without indentation */
	LINE_GROUP,	/* start of the traceback of an ExceptionGroup, whose lines have a margin */
	LINE_IGNORED,	/* the next traceback is of an ignored exception or an exit handler */
	LINE_THREAD,	/* the next traceback is not of the main thread */
	LINE_CHAINED,	/* the next traceback belongs to the same exception as the last one */
	LINE_CPP,	/* a C++ exception. 1: its what() */
	LINE_WARNING,	/* a warning of libddp. 1: "RANK@NODE"; 2: message */
	LINE_LIBDDP,	/* an error of libddp. 1: "RANK@NODE"; 2: message */
	LINE_SLURM,	/* printed by Slurm */

	LINE_STOPPED,	 /* the rank stopped on request. 1: reason */
	LINE_PEER,	 /* the rank lost a peer, waited too long for it, or ended with the step */
	LINE_CONNECTION, /* the rank lost a connection, to a peer or to any other server */
};

struct pattern {
	enum pattern_source source;
	enum pattern_meaning meaning;
	const char *text; /* '%' matches any text, as short as possible, or none */
	const char *example;
	const char *printed_by; /* the software that prints the line, with a version */
};

extern const struct pattern patterns[];
extern const size_t patterns_count;

/*
 * A text that a '%' of a pattern matched. The parts are numbered from 1; enum pattern_meaning
 * describes them.
 */
struct pattern_part {
	const char *text;
	size_t length;
};
enum { PATTERN_PARTS = 8 };

/* Whether the first [length] bytes of [line] match [text]. If so, sets [part]. */
bool pattern_match(const char *text, const char *line, size_t length,
		   struct pattern_part part[PATTERN_PARTS]);

/* Returns the meaning of the first pattern for [source] that matches [length] bytes of [line]. */
enum pattern_meaning pattern_find(enum pattern_source source, const char *line, size_t length,
				  struct pattern_part part[PATTERN_PARTS]);

/*
 * Returns the meaning of [message], the error of a rank that libddp did not print. A connection that
 * gloo, NCCL or PyTorch lost is LINE_PEER, so LINE_CONNECTION is one to any other server.
 */
enum pattern_meaning pattern_message(const char *message);

/* Returns the name of [how], such as "exit", or "" for FACTS_UNKNOWN. */
const char *facts_how_name(enum facts_how how);

#endif /* DDP_RUN_PATTERNS_H */
