/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_slurmctld.h - what slurmctld answers to an srun in this program
 *
 * The program defines the functions of libslurm that the plugin looks for; their answers follow
 * from one structure, and every answer must be given back.
 */
#ifndef DDP_FAKE_SLURMCTLD_H
#define DDP_FAKE_SLURMCTLD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { FAKE_NODES = 8, FAKE_LIVING = 8, FAKE_LOCAL = 16 };

struct fake_node_record {
	const char *name, *address, *gres;
};

/* Zeros: a slurmctld that knows no step, no node and no end. */
struct fake_slurmctld {
	bool down; /* it answers nothing */

	/* the current step */
	uint32_t job, step;
	const char *layout;	 /* "n1:0,1 n2:2" */
	const char *layout_list; /* its nodes as Slurm writes them; NULL: with commas between */
	const char *reserved_ports;
	const char *tres_per_node;
	time_t end;

	struct fake_node_record nodes[FAKE_NODES];
	struct {
		uint32_t job, step;
	} living[FAKE_LIVING]; /* other steps that go on */

	/* filled by the questions */
	struct {
		unsigned layout, steps, node, nodes, job;
	} asked;
	unsigned answers; /* not given back yet */
};

extern struct fake_slurmctld fake_slurmctld;

/* How many questions there were. */
unsigned fake_questions(void);

/*
 * Read the next node of a layout at [*at]: its name, and its tasks.
 * Returns the number of tasks, or -1 at the end.
 */
int fake_layout_next(const char **at, char *name, uint32_t *tasks);

#endif /* DDP_FAKE_SLURMCTLD_H */
