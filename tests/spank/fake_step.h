/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_step.h - a whole step: srun, then every node with its tasks, then srun's end
 *
 * Each part calls the plugin's hooks in Slurm's order and with Slurm's environments: srun's own
 * reaches the first component, what it was before the step existed the later ones, names that
 * begin with SLURM alone under --export=NONE; SLURM_PROCID is a batch script's until task_init.
 */
#ifndef DDP_FAKE_STEP_H
#define DDP_FAKE_STEP_H

#include "fake_slurmctld.h"
#include "fake_slurmstepd.h"

enum { FAKE_COMPONENTS = 3, FAKE_RANKS = 32 };

struct fake_component {
	const char *layout;		  /* "n1:0,1 n2:2": nodes, and their tasks' ranks */
	const char *list;		  /* the nodes as Slurm writes them; NULL: "n1,n2" */
	const char *step_env;		  /* "NAME=VALUE -NAME ..." of the step on its nodes */
	const char *task_env[FAKE_LOCAL]; /* the same of the task with that local id */
	uint32_t job;			  /* in a heterogeneous job, its own; 0: the step's */
};

struct fake_step {
	uint32_t job, step;    /* 0: job 4711 */
	const char *options;   /* srun's command line: "--ddp --ddp-port=1000" */
	const char *inherited; /* from #SBATCH lines, the same way */
	const char *empty;     /* how Slurm writes "no argument" the second time; NULL: "" */
	const char *env;       /* "NAME=VALUE ..." of the shell that runs srun */
	const char *srun_conf, *stepd_conf; /* arguments in plugstack.conf */
	const char *program;		    /* NULL: python3 */
	bool export_none;
	int lines; /* of plugstack.conf that name the plugin; 0: one */
	struct fake_component components[FAKE_COMPONENTS];

	/* filled */
	struct spank_handle *srun;
	char **launched[FAKE_COMPONENTS]; /* environments that srun sends to the nodes */
	char **task[FAKE_RANKS];	  /* environments of the tasks, after task_init */
	int result[FAKE_RANKS];		  /* of task_init */
	bool srun_changed;		  /* the plugin changed srun's environment */
	bool task_changed[FAKE_RANKS];	  /* or the task's */
};

/*
 * srun, up to the launch. slurmctld's answer about the layout is set to the step's unless the
 * test set one, and slurmctld knows the step.
 * Returns 0, or -1 where the plugin refused.
 */
int fake_srun(struct fake_step *step);

/* An option on srun's command line was refused, rather than the step: srun ends at once. */
bool fake_option_refused(const struct fake_step *step);

/* All nodes, one after the other, from init to exit. */
void fake_nodes(struct fake_step *step);

/* The node [name] of component [c] up to user_init; fake_node_task and fake_node_end follow. */
struct spank_handle *fake_node_begin(struct fake_step *step, int c, const char *name);
void fake_node_task(struct fake_step *step, struct spank_handle *node, uint32_t rank);
void fake_node_end(struct spank_handle *node);

/* srun's end. */
void fake_srun_exit(struct fake_step *step);

/* All of it. Returns what fake_srun did. */
int fake_run(struct fake_step *step);

/* Free what was filled, so that the step can run again. */
void fake_step_clear(struct fake_step *step);

/* The value that task [rank] has, or NULL. */
const char *fake_var(const struct fake_step *step, uint32_t rank, const char *name);

/* How many tasks the step has. */
uint32_t fake_ranks(const struct fake_step *step);

#endif /* DDP_FAKE_STEP_H */
