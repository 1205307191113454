/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h - the plugin's parts, one for each Slurm process that loads it
 *
 * dispatch.c holds the slurm_spank_* symbols and forwards by context. Each function returns
 * 0 or -1 and nothing else: before Slurm 25.05 a positive value was logged and ignored.
 */
#ifndef DDP_CONTEXT_H
#define DDP_CONTEXT_H

#include <slurm/spank.h>

#include "options.h"

/* in srun, as the user */
int ddp_srun_init(spank_t spank, int argc, char **argv);
int ddp_srun_options_read(void);
int ddp_srun_step_created(spank_t spank);
void ddp_srun_exit(void);

/* in sbatch, salloc and scrontab, as the user */
int ddp_allocator_init(spank_t spank, int argc, char **argv);
int ddp_allocator_options_read(void);

/* in slurmd, as root: nothing but a look at the arguments */
int ddp_slurmd_init(int argc, char **argv);

/* in slurmstepd: only task_init may fail */
int ddp_stepd_init(spank_t spank, int argc, char **argv);
int ddp_stepd_user_init(spank_t spank);
int ddp_stepd_task_init(spank_t spank);
void ddp_stepd_exit(void);

/*
 * Register all options of the table with [callback], which Slurm calls with the option's id.
 * Returns 0, or -1 after a message.
 */
int ddp_register_options(spank_t spank, spank_opt_cb_f callback);

/*
 * Take an option as srun, sbatch and salloc do: check it and keep it in [values]. Slurm may
 * call for one option more than once, and writes "no argument" as NULL, "" or "(null)".
 * Returns 0, or -1 after a message; Slurm then refuses the command line.
 */
int ddp_take_option(struct ddp_values *values, int id, const char *argument);

/* --- Lines to people, each with the prefix "ddp: " ---------------------------------------- */

/* Something is wrong and the step or task will not start. */
void ddp_say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Worth knowing; reaches the user's terminal from srun and from the nodes alike. */
void ddp_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* DDP_CONTEXT_H */
