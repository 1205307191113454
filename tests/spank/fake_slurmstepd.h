/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_slurmstepd.h - a process that has loaded the plugin: srun, sbatch, slurmd or slurmstepd
 *
 * The program exports what Slurm offers to a plugin (spank_*, slurm_error and so on), opens the
 * ddp.so that $DDP_PLUGIN names and calls its hooks. Each process has an instance of the plugin
 * of its own, however many there are at a time.
 *
 * What Slurm's documentation promises of hooks is demanded at every call: a hook or a callback
 * that returns anything but 0 and -1, one that fails where failing drains a node, or one that
 * changes slurmstepd's own environment, ends the program.
 */
#ifndef DDP_FAKE_SLURMSTEPD_H
#define DDP_FAKE_SLURMSTEPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

enum { FAKE_OPTIONS = 32, FAKE_ARGUMENTS = 8 };

struct spank_handle {
	spank_context_t context;
	const char *host;
	void *plugin;
	char *copy; /* the file of this instance where it is not $DDP_PLUGIN itself */
	bool in_init;
	int lines; /* of plugstack.conf that name the plugin; Slurm calls a hook for each */
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
 * Copy the plugin at [path] into /tmp, where every user can read it.
 * Returns the copy's path, to be unlinked and freed.
 */
char *fake_copy_plugin(const char *path);

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

/* --- For the host itself ---------------------------------------------------------------- */

/* End the program with a message: the plugin, or the test, broke a rule. */
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif /* DDP_FAKE_SLURMSTEPD_H */
