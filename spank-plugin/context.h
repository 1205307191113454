/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h - functions of the plugin, one set for each kind of Slurm process that loads it
 *
 * dispatch.c defines the slurm_spank_* symbols, which call these functions. Each function returns 0
 * or -1. Slurm before 25.05 logged and ignored positive values.
 */
#ifndef DDP_CONTEXT_H
#define DDP_CONTEXT_H

#include <slurm/spank.h>

#include "launch/options.h"

/* Called in srun, as the user. */
int ddp_srun_init(spank_t spank, int argc, char **argv);
int ddp_srun_options_read(void);
int ddp_srun_step_created(spank_t spank);
void ddp_srun_exit(void);

/* Called in sbatch, salloc and scrontab, as the user. */
int ddp_allocator_init(spank_t spank, int argc, char **argv);
int ddp_allocator_options_read(void);

/*
 * Set the variables that frameworks need to DDP_NOT_LOADED, in the environment of a job's script or
 * interactive shell. A node with the plugin removes these values. On another node, each srun of the
 * script passes them to its tasks, and no framework accepts them.
 */
void ddp_mark_job(void);

/* Called in slurmd, as root. It only checks the plugin's arguments in plugstack.conf. */
int ddp_slurmd_init(int argc, char **argv);

/* Called in slurmstepd. */
int ddp_stepd_init(spank_t spank, int argc, char **argv);
int ddp_stepd_user_init(spank_t spank);
int ddp_stepd_task_init(spank_t spank);
void ddp_stepd_task_exit(spank_t spank);
void ddp_stepd_exit(void);

/*
 * Register all options of the table. Slurm calls [callback] with an option's id.
 * Returns 0, or -1 after printing a message.
 */
int ddp_register_options(spank_t spank, spank_opt_cb_f callback);

/*
 * Check an option of srun, sbatch or salloc, and store it in [values]. Slurm may call this function
 * several times for an option. It passes a missing argument as NULL, "" or "(null)".
 * Returns 0, or -1 after printing a message. Slurm then rejects the command line.
 */
int ddp_set_option(struct ddp_values *values, int id, const char *argument);

/* --- Messages to the user, with the prefix "ddp: " ---------------------------------------- */

/* Report an error that prevents the start of the step or of a task. */
void ddp_say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print information on the user's terminal. Used in srun and on the nodes. */
void ddp_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* DDP_CONTEXT_H */
