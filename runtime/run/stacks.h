/* SPDX-License-Identifier: Apache-2.0 */
/* stacks.h - what the main thread of a program does, from stacks that py-spy or gdb printed */
#ifndef DDP_RUN_STACKS_H
#define DDP_RUN_STACKS_H

/*
 * Activity of a main thread. If a rank has several programs, the one whose place is first in this
 * list determines the rank's place, because one program that computes delays the others.
 */
enum stack_place {
	STACK_RUNS = 1, /* it runs code of the program */
	STACK_WAITS,  /* it waits for other ranks, in a collective or at a store, or for its GPU */
	STACK_ENDS,   /* it has ended, or the program has ended and Python finalizes */
	STACK_UNKNOWN /* there are no stacks */
};

struct stack {
	enum stack_place place;
	char line[160]; /* innermost Python frame, such as "main (train.py:12)"; "": unknown */
};

/* Parse [text], the stacks of process [pid] as printed by "py-spy dump [--native]" or gdb. */
void stack_parse(struct stack *stack, const char *text, long pid);

/* Header of the stacks of a rank's program in stacks-<rank>.txt, for printf() and sscanf(). */
#define STACK_PROGRAM "--- program: pid %ld"

/*
 * Parse [text], the content of a file stacks-<rank>.txt: sets [stack] to that of the rank's program
 * whose place comes first in enum stack_place.
 */
void stack_parse_file(struct stack *stack, const char *text);

#endif /* DDP_RUN_STACKS_H */
