/* SPDX-License-Identifier: Apache-2.0 */
/* stacks.c - find the main thread in the output of py-spy or gdb, and classify its frames */
#include "config.h"

#include "stacks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xalloc.h"

/* What the frames of the main thread show. */
struct frames {
	bool any;
	bool waits;	  /* a frame is in a library that communicates, or waits for a GPU */
	bool ends;	  /* a frame shows that Python or the C library is ending the process */
	bool is_python;	  /* Py_RunMain() is among gdb's frames, so this is a Python program */
	bool runs_python; /* PyEval_EvalCode() is among gdb's frames, so Python code still runs */
	char inner[160], outer[160]; /* the innermost and the outermost Python frame */
};

static bool has_any(const char *line, const char *const *words)
{
	while (*words && !strstr(line, *words))
		words++;
	return *words;
}

/* Whether the stack of the main thread follows. [line] is the line after the word "Thread ". */
static bool is_main(const char *line, long pid)
{
	struct ddp_shown spy = ddp_show("%ld ", pid), lwp = ddp_show("LWP %ld)", pid),
			 process = ddp_show("process %ld)", pid);

	return strncmp(line, spy.text, strlen(spy.text)) == 0 || strstr(line, lwp.text) ||
	       strstr(line, process.text) || strstr(line, "\"MainThread\"");
}

/* Parse a frame. gdb prints "#3  0x1 in f () from lib.so", and py-spy prints "    f (a.py:3)". */
static void read_frame(struct frames *frames, const char *line)
{
	static const char *const libraries[] = {"c10d::", "gloo::", "nccl",    "rccl",
						" ddp_",  "libddp", " MPI_",   " PMPI_",
						"libmpi", "libucp", "libucxx", "Synchronize",
						NULL};
	static const char *const packages[] = {"(torch/distributed/", "(horovod/", "(mpi4py/",
					       "(slurm_ddp/", NULL};
	static const char *const ends[] = {"Py_Finalize", "__run_exit_handlers", "_dl_fini", NULL};
	bool spy = *line == ' ';
	bool python = spy && (strstr(line, ".py:") || strstr(line, "(<"));

	line += strspn(line, " ");
	frames->waits = frames->waits || (!python && has_any(line, libraries)) ||
			(python && !frames->inner[0] && has_any(line, packages));
	frames->ends = frames->ends || (!python && has_any(line, ends));
	frames->is_python = frames->is_python || strstr(line, " Py_RunMain (");
	frames->runs_python = frames->runs_python || strstr(line, " PyEval_EvalCode (");
	frames->any = true;
	if (!python)
		return;
	if (!frames->inner[0])
		snprintf(frames->inner, sizeof(frames->inner), "%s", line);
	snprintf(frames->outer, sizeof(frames->outer), "%s", line);
}

/*
 * Whether [frame], the outermost frame, is code of a module, as in a running program. If it is not,
 * Python is exiting, and calls threading._shutdown(), functions of atexit, or destructors.
 */
static bool is_module(const char *frame)
{
	return strncmp(frame, "<module> ", 9) == 0 ||
	       strncmp(frame, "_run_module_as_main ", 20) == 0 ||
	       strncmp(frame, "_run_code ", 10) == 0;
}

void stack_parse(struct stack *stack, const char *text, long pid)
{
	char *copy = ddp_xstrdup(text, "stacks"), *rest = copy;
	struct frames frames = {.any = false};
	bool inside = false;

	for (char *line; (line = strsep(&rest, "\n"));) {
		if (strncmp(line, "Thread ", 7) == 0)
			inside = is_main(line + 7, pid);
		else if (inside && (*line == '#' || strncmp(line, "    ", 4) == 0))
			read_frame(&frames, line);
	}
	free(copy);
	snprintf(stack->line, sizeof(stack->line), "%s", frames.inner);
	if (!frames.any)
		stack->place = STACK_UNKNOWN;
	else if (frames.ends || (frames.outer[0] && !is_module(frames.outer)) ||
		 (frames.is_python && !frames.runs_python))
		stack->place = STACK_ENDS;
	else
		stack->place = frames.waits ? STACK_WAITS : STACK_RUNS;
}

void stack_parse_file(struct stack *stack, const char *text)
{
	*stack = (struct stack){.place = STACK_UNKNOWN};
	for (const char *at = text, *next; at; at = next) {
		struct stack found;
		char *section;
		size_t length;
		long pid;

		next = strstr(at + 1, "\n--- ");
		next = next ? next + 1 : NULL;
		if (sscanf(at, STACK_PROGRAM, &pid) != 1)
			continue;
		length = next ? (size_t)(next - at) : strlen(at);
		section = ddp_xcalloc(length + 1, 1, "stacks");
		memcpy(section, at, length);
		stack_parse(&found, section, pid);
		free(section);
		if (found.place < stack->place)
			*stack = found;
	}
}
