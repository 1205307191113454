/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_slurm.h - Slurm's side of the plugin: its processes, a slurmctld and a whole step
 *
 * The program exports what Slurm offers to a plugin (spank_*, slurm_error and so on), opens the
 * ddp.so that $DDP_PLUGIN names and calls its hooks. Each process has an instance of the plugin
 * of its own, however many there are at a time.
 *
 * What Slurm's documentation promises of hooks is demanded at every call: a hook or a callback
 * that returns anything but 0 and -1, one that fails where failing drains a node, or one that
 * changes slurmstepd's own environment, ends the program.
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
	FAKE_LOCAL = 8, /* tasks of a node */
	FAKE_RANKS = 16,
	FAKE_COMPONENTS = 2
};

/* --- Processes -------------------------------------------------------------------------- */

struct spank_handle {
	spank_context_t context;
	const char *host;
	void *plugin;
	char *copy; /* the file of this instance where it is not $DDP_PLUGIN itself */
	bool in_init;
	char *argv[FAKE_ARGUMENTS]; /* the plugin's line in plugstack.conf */
	int argc;
	struct spank_option options[FAKE_OPTIONS];
	size_t n_options;

	/* the job, in slurmstepd and, in part, in srun once the step exists */
	bool has_job;
	uint32_t job, step, nodes, tasks, local_tasks;
	char **program;
	char **env; /* the step's, or the task's in task_init */
	int task;   /* local id, -1 outside of tasks */
	uint32_t global_task;
};

/*
 * Start a process on [host] with the plugin, whose line in plugstack.conf has the blank-separated
 * [arguments] (or NULL). No hook is called yet.
 */
struct spank_handle *fake_process(spank_context_t context, const char *host, const char *arguments);

/* End it: the plugin is closed. NULL is legal. */
void fake_process_end(struct spank_handle *process);

/* Call slurm_spank_[hook]. Returns 0 or -1; 0 too where the plugin has no such hook. */
int fake_hook(struct spank_handle *process, const char *hook);

/* Call the callback of --[name], which must be registered. Returns 0 or -1. */
int fake_option(struct spank_handle *process, const char *name, const char *argument);

/* The registered option, or NULL. */
const struct spank_option *fake_find_option(const struct spank_handle *process, const char *name);

/* --- Messages, of all processes --------------------------------------------------------- */

enum fake_level {
	FAKE_ERROR = 1, /* slurm_error */
	FAKE_LOG = 2,	/* slurm_spank_log */
	FAKE_QUIET = 4, /* info, verbose and debug: not seen by users of a node */
	FAKE_ANY = 7
};

/* How many messages of [levels] contain [text]. */
unsigned fake_said(int levels, const char *text);

/* Forget all messages. */
void fake_forget(void);

/* All messages in one text, for a failed test's report. */
const char *fake_transcript(void);

/* --- Environments ----------------------------------------------------------------------- */

char **fake_env_copy(char *const *env);
void fake_env_free(char **env);
const char *fake_env_get(char *const *env, const char *name);
void fake_env_set(char ***env, const char *name, const char *value);
void fake_env_unset(char **env, const char *name);
bool fake_env_equal(char *const *a, char *const *b);

/* Apply the blank-separated [words]: NAME=VALUE sets, -NAME unsets. NULL is legal. */
void fake_env_apply(char ***env, const char *words);

/* Make [env] the environment of this program, which getenv and setenv then work on. */
void fake_env_become(char *const *env);

/* --- slurmctld: what it answers to an srun in this program ------------------------------- */

struct fake_node_record {
	const char *name, *address, *gres;
	const char *configured; /* srun's own word for the address; NULL: it has none */
};

/* Zeros: a slurmctld that knows no step and no node. Every answer must be given back. */
struct fake_slurmctld {
	bool down; /* it answers nothing */

	/* the current step */
	uint32_t job, step;
	const char *layouts[FAKE_COMPONENTS]; /* "n1:0,1 n2:2" */
	const char *tres_per_node;
	uint64_t job_flags;
	uint32_t job_state;
	const char *job_nodes; /* "n1,n2", and what the job has on each, for who asks in detail */
	const char *job_gres[FAKE_NODES]; /* "shard:5(1/4,4/4)" */

	struct fake_node_record nodes[FAKE_NODES];

	/* filled by the questions */
	struct {
		unsigned layout, steps, node, nodes, job;
	} asked;
	unsigned answers; /* not given back yet */
};

extern struct fake_slurmctld fake_slurmctld;

/* How many questions there were. */
unsigned fake_questions(void);

/* --- A whole step: srun, then every node with its tasks, then srun's end ------------------ */

/*
 * Each part calls the plugin's hooks in Slurm's order and with Slurm's environments: srun's own
 * reaches the first component, what it was before the step existed the later one; SLURM_PROCID
 * is a batch script's until task_init.
 */
struct fake_component {
	const char *layout;		  /* "n1:0,1 n2:2": nodes, and their tasks' ranks */
	const char *step_env;		  /* "NAME=VALUE -NAME ..." of the step on its nodes */
	const char *task_env[FAKE_LOCAL]; /* the same of the task with that local id */
};

struct fake_step {
	uint32_t job, step;    /* 0: job 4711 */
	const char *options;   /* srun's command line: "--ddp --ddp-port=1000" */
	const char *inherited; /* from #SBATCH lines, the same way */
	const char *empty;     /* how Slurm writes "no argument" the second time; NULL: "" */
	const char *env;       /* "NAME=VALUE ..." of the shell that runs srun */
	char **program;	       /* what srun starts; NULL: python3 train.py */
	const char *srun_conf, *stepd_conf; /* arguments in plugstack.conf */
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
 * srun, up to the launch. slurmctld's answer about the layout is set to the step's, and slurmctld
 * knows the step.
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

/* --- For the host itself ---------------------------------------------------------------- */

/* End the program with a message: the plugin, or the test, broke a rule. */
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif /* DDP_FAKE_SLURM_H */
