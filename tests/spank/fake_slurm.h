/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_slurm.h - a fake of the Slurm that the plugin runs in: its processes, slurmctld and a whole
 * step
 *
 * The test program exports Slurm's functions for plugins (spank_*, slurm_error and others), opens
 * the ddp.so that $DDP_PLUGIN names, and calls its hooks. Each process has its own instance of the
 * plugin.
 *
 * The program ends with a message if a hook or a callback breaks one of these rules: it returns 0
 * or -1; it does not fail in a context in which a failure drains the node; it does not change
 * slurmstepd's environment.
 */
#ifndef DDP_FAKE_SLURM_H
#define DDP_FAKE_SLURM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

enum {
	FAKE_OPTIONS = 32,
	FAKE_ARGUMENTS = 8,
	FAKE_NODES = 8,
	FAKE_LOCAL = 8, /* tasks per node */
	FAKE_RANKS = 16,
	FAKE_COMPONENTS = 2
};

/* --- Processes -------------------------------------------------------------------------- */

struct spank_handle {
	spank_context_t context;
	const char *host;
	void *plugin;
	char *copy; /* path of this instance's copy of the plugin; NULL: $DDP_PLUGIN */
	bool in_init;
	char *argv[FAKE_ARGUMENTS]; /* arguments in plugstack.conf */
	int argc;
	struct spank_option options[FAKE_OPTIONS];
	size_t n_options;

	/* Data of the job: all set in slurmstepd; some set in srun once the step exists. */
	bool has_job;
	uint32_t job, step, nodes, tasks, local_tasks;
	char **program;
	char **env; /* environment of the step or, in task_init, of the task */
	int task;   /* local id of the task in task_init; otherwise -1 */
	uint32_t global_task;
};

/*
 * Creates a process on [host] with the plugin, and calls no hook. [arguments] are the plugin's
 * arguments in plugstack.conf, separated by spaces; NULL: none.
 */
struct spank_handle *fake_process(spank_context_t context, const char *host, const char *arguments);

/* Closes the plugin and frees [process]. NULL is legal. */
void fake_process_end(struct spank_handle *process);

/*
 * Calls slurm_spank_[hook]. Returns its result, 0 or -1. If the plugin does not have that hook,
 * returns 0.
 */
int fake_hook(struct spank_handle *process, const char *hook);

/* Calls the callback of option --[name], which must be registered. Returns 0 or -1. */
int fake_option(struct spank_handle *process, const char *name, const char *argument);

/* --- Messages of all processes ------------------------------------------------------------ */

enum fake_level {
	FAKE_ERROR = 1, /* slurm_error */
	FAKE_LOG = 2,	/* slurm_spank_log */
	FAKE_QUIET = 4, /* info, verbose and debug: users do not see them */
	FAKE_ANY = 7
};

/* Returns the number of messages of [levels] that contain [text]. */
unsigned fake_said(int levels, const char *text);

/* Deletes all messages. */
void fake_forget(void);

/* Returns all messages in one text, for the report of a failed test. */
const char *fake_transcript(void);

/* --- Environments ----------------------------------------------------------------------- */

char **fake_env_copy(char *const *env);
void fake_env_free(char **env);
const char *fake_env_get(char *const *env, const char *name);
void fake_env_set(char ***env, const char *name, const char *value);
void fake_env_unset(char **env, const char *name);
bool fake_env_equal(char *const *a, char *const *b);

/* Applies [words], separated by spaces: NAME=VALUE sets, -NAME unsets. NULL is legal. */
void fake_env_apply(char ***env, const char *words);

/* Makes [env] the environment of this program, so that getenv() and setenv() use it. */
void fake_env_become(char *const *env);

/* --- slurmctld: its answers to an srun in this program ------------------------------------ */

struct fake_node_record {
	const char *name, *address, *gres;
	const char *configured; /* node address that srun has from slurm.conf; NULL: none */
};

/*
 * If all members are zero, slurmctld has no steps and no nodes. The plugin must free every answer.
 */
struct fake_slurmctld {
	bool down; /* every request fails */

	/* the current step */
	uint32_t job, step;
	const char *layouts[FAKE_COMPONENTS]; /* "n1:0,1 n2:2" */
	const char *tres_per_node;
	uint64_t job_flags;
	uint32_t job_state;

	struct fake_node_record nodes[FAKE_NODES];

	/* Number of requests of each kind. */
	struct {
		unsigned layout, steps, node, nodes, job;
	} asked;
	unsigned answers; /* answers that the plugin has not freed yet */
};

extern struct fake_slurmctld fake_slurmctld;

/* Returns the number of requests so far. */
unsigned fake_questions(void);

/* --- A whole step: srun, every node with its tasks, the end of srun ------------------------ */

/*
 * Each function calls the plugin's hooks in Slurm's order and with Slurm's environments. The first
 * component gets srun's environment; later components get the environment that srun had before the
 * step existed. Until task_init, SLURM_PROCID has the value of the batch script.
 */
struct fake_component {
	const char *layout;   /* nodes, each with the ranks of its tasks: "n1:0,1 n2:2" */
	const char *step_env; /* changes to the environment on the nodes: "NAME=VALUE -NAME ..." */
	const char *task_env[FAKE_LOCAL]; /* changes to a task's environment, by local id */
};

struct fake_step {
	uint32_t job, step;    /* 0: job 4711 */
	const char *options;   /* srun's command line: "--ddp --ddp-port=1000" */
	const char *inherited; /* options from #SBATCH lines, in the same form */
	const char *env;       /* environment of the shell that runs srun: "NAME=VALUE ..." */
	char **program;	       /* program that srun starts; NULL: python3 train.py */
	const char *srun_conf, *stepd_conf; /* arguments in plugstack.conf */
	struct fake_component components[FAKE_COMPONENTS];

	/* Results of the functions below. */
	struct spank_handle *srun;
	char **launched[FAKE_COMPONENTS]; /* environments that srun sends to the nodes */
	char **task[FAKE_RANKS];	  /* environment of each task after task_init */
	int result[FAKE_RANKS];		  /* result of task_init for each task */
	bool srun_changed;		  /* whether the plugin changed srun's environment */
	bool task_changed[FAKE_RANKS];	  /* whether the plugin changed the task's environment */
};

/*
 * Runs srun up to the launch, after setting the layout and the step in fake_slurmctld. Returns 0,
 * or -1 if the plugin refused the step.
 */
int fake_srun(struct fake_step *step);

/*
 * Whether the plugin refused an option on the command line, so that srun ended at once. Returns
 * false if the plugin refused the step later.
 */
bool fake_option_refused(const struct fake_step *step);

/* Runs all nodes one after the other, each from init to exit. */
void fake_nodes(struct fake_step *step);

/*
 * Runs the node [name] of component [c] up to user_init. The caller then calls fake_node_task() and
 * fake_node_end().
 */
struct spank_handle *fake_node_begin(struct fake_step *step, int c, const char *name);
void fake_node_task(struct fake_step *step, struct spank_handle *node, uint32_t rank);
void fake_node_end(struct spank_handle *node);

void fake_srun_exit(struct fake_step *step);

/* Runs a whole step. Returns the result of fake_srun(). */
int fake_run(struct fake_step *step);

/* Frees the results, so that the step can run again. */
void fake_step_clear(struct fake_step *step);

/* Returns the value of [name] in the environment of task [rank], or NULL. */
const char *fake_var(const struct fake_step *step, uint32_t rank, const char *name);

/* Returns the number of tasks. */
uint32_t fake_ranks(const struct fake_step *step);

/* --- Internal ----------------------------------------------------------------------------- */

/* Ends the program with a message, because the plugin or the test broke a rule. */
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif /* DDP_FAKE_SLURM_H */
