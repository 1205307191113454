/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_slurm.h - a fake of the Slurm that the plugin runs in: its processes, slurmctld and a whole
 * step
 *
 * The test program exports Slurm's functions for plugins (spank_*, slurm_error and others), opens
 * the ddp.so that $DDP_PLUGIN names and calls its hooks. Each process has its own instance of the
 * plugin.
 *
 * The program ends with a message if a hook or a callback returns anything but 0 or -1, fails in a
 * context in which a failure drains the node, or changes slurmstepd's environment.
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
	char *copy; /* path of this instance's copy; NULL: $DDP_PLUGIN */
	bool in_init;
	char *argv[FAKE_ARGUMENTS]; /* arguments in plugstack.conf */
	int argc;
	struct spank_option options[FAKE_OPTIONS];
	size_t n_options;

	/* the job: set in slurmstepd, and in part in srun once the step exists */
	bool has_job;
	uint32_t job, step, nodes, tasks, local_tasks;
	char **program;
	char **env; /* of the step, or of the task in task_init */
	int task;   /* local id, -1 outside of task_init */
	uint32_t global_task;
};

/*
 * Creates a process on [host] with the plugin. [arguments] (or NULL) are the plugin's in
 * plugstack.conf, separated by spaces. Calls no hook.
 */
struct spank_handle *fake_process(spank_context_t context, const char *host, const char *arguments);

/* Closes the plugin and frees [process]. NULL is legal. */
void fake_process_end(struct spank_handle *process);

/* Calls slurm_spank_[hook]. Returns 0 or -1; 0 if the plugin does not have that hook. */
int fake_hook(struct spank_handle *process, const char *hook);

/* Calls the callback of --[name], which must be registered. Returns 0 or -1. */
int fake_option(struct spank_handle *process, const char *name, const char *argument);

/* Returns the registered option, or NULL. */
const struct spank_option *fake_find_option(const struct spank_handle *process, const char *name);

/* --- Messages, of all processes --------------------------------------------------------- */

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

/* Makes [env] the environment of this program, so that getenv() and setenv() work on it. */
void fake_env_become(char *const *env);

/* --- slurmctld: what it answers to an srun in this program ------------------------------- */

struct fake_node_record {
	const char *name, *address, *gres;
	const char *configured; /* address that srun knows from slurm.conf; NULL: none */
};

/* All zero: a slurmctld without steps and nodes. The plugin must free every answer. */
struct fake_slurmctld {
	bool down; /* every request fails */

	/* the current step */
	uint32_t job, step;
	const char *layouts[FAKE_COMPONENTS]; /* "n1:0,1 n2:2" */
	const char *tres_per_node;
	uint64_t job_flags;
	uint32_t job_state;
	const char *job_nodes; /* the job's nodes: "n1,n2" */
	const char *job_gres
		[FAKE_NODES]; /* GRES of the job on each node, as "scontrol -d" shows it: "shard:5(1/4,4/4)" */

	struct fake_node_record nodes[FAKE_NODES];

	/* number of requests of each kind */
	struct {
		unsigned layout, steps, node, nodes, job;
	} asked;
	unsigned answers; /* answers that are not freed yet */
};

extern struct fake_slurmctld fake_slurmctld;

/* Returns the number of requests. */
unsigned fake_questions(void);

/* --- A whole step: srun, every node with its tasks, the end of srun ------------------------ */

/*
 * Each part calls the plugin's hooks in Slurm's order and with Slurm's environments: the first
 * component gets srun's environment, later components get srun's environment as it was before the
 * step existed. SLURM_PROCID is a batch script's until task_init.
 */
struct fake_component {
	const char *layout;   /* nodes, each with the ranks of its tasks: "n1:0,1 n2:2" */
	const char *step_env; /* changes to the environment on the nodes: "NAME=VALUE -NAME ..." */
	const char *task_env
		[FAKE_LOCAL]; /* changes to the environment of the task with that local id */
};

struct fake_step {
	uint32_t job, step;    /* 0: job 4711 */
	const char *options;   /* srun's command line: "--ddp --ddp-port=1000" */
	const char *inherited; /* options from #SBATCH lines, in the same form */
	const char *empty; /* how Slurm passes a missing argument at the second call; NULL: "" */
	const char *env;   /* environment of the shell that runs srun: "NAME=VALUE ..." */
	char **program;	   /* that srun starts; NULL: python3 train.py */
	const char *srun_conf, *stepd_conf; /* arguments in plugstack.conf */
	struct fake_component components[FAKE_COMPONENTS];

	/* set by the functions below */
	struct spank_handle *srun;
	char **launched[FAKE_COMPONENTS]; /* environments that srun sends to the nodes */
	char **task[FAKE_RANKS];	  /* environments of the tasks, after task_init */
	int result[FAKE_RANKS];		  /* of task_init */
	bool srun_changed;		  /* whether the plugin changed srun's environment */
	bool task_changed[FAKE_RANKS];	  /* whether the plugin changed the task's environment */
};

/*
 * Runs srun up to the launch. Sets the layout and the step in fake_slurmctld.
 * Returns 0, or -1 if the plugin refused.
 */
int fake_srun(struct fake_step *step);

/*
 * Whether the plugin refused an option on the command line, so that srun ended at once. False if it
 * refused the step later.
 */
bool fake_option_refused(const struct fake_step *step);

/* Runs all nodes, one after the other, from init to exit. */
void fake_nodes(struct fake_step *step);

/*
 * Runs the node [name] of component [c] up to user_init. fake_node_task() and fake_node_end()
 * follow.
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

/* Ends the program with a message: the plugin or the test broke a rule. */
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif /* DDP_FAKE_SLURM_H */
