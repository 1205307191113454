/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.h - what the plugin promises to the job
 *
 * The contract has two parts: environment variables (contract.def, in words in
 * ddp(7)), and the layout of one directory on shared storage. The plugin writes
 * both, the runtime reads both, and neither knows the other otherwise.
 */
#ifndef DDP_CONTRACT_H
#define DDP_CONTRACT_H

/*
 * What happens to a value that the environment had before:
 *   IDENTITY  it is replaced, and a differing value is reported once;
 *   POLITE    it stays, unless an outer --ddp step had put it there;
 *   TORCHRUN  as POLITE, and set only where each node has one task;
 *   OURS      it is replaced, or removed where there is nothing to say.
 */
enum ddp_variable_kind {
	DDP_KIND_IDENTITY,
	DDP_KIND_POLITE,
	DDP_KIND_TORCHRUN,
	DDP_KIND_OURS,
};

enum ddp_variable {
#define DDP_VARIABLE(name, kind, text) DDP_VAR_##name,
#include "contract.def"
#undef DDP_VARIABLE
	DDP_VAR_COUNT
};

struct ddp_variable_info {
	const char *name;
	enum ddp_variable_kind kind;
	const char *text;
};

/*
 * The row of the table for [variable], which must be below DDP_VAR_COUNT.
 * Returns a pointer to constant memory.
 */
static inline const struct ddp_variable_info *ddp_variable_info(enum ddp_variable variable)
{
	static const struct ddp_variable_info table[DDP_VAR_COUNT] = {
#define DDP_VARIABLE(name, kind, text) {#name, DDP_KIND_##kind, text},
#include "contract.def"
#undef DDP_VARIABLE
	};

	return &table[variable];
}

/* Shorthand for code that names a variable: a misspelt one does not compile. */
#define DDP_NAME(variable) (ddp_variable_info(DDP_VAR_##variable)->name)

/*
 * The rendezvous directory is
 *
 *     <base>/.ddp/<cluster>-<job>.<step>.<attempt>-<nonce>/     mode 0700
 *         step      one line, the step's record (see core/channel.h): written by srun before
 *                   any task starts; a node that reads its nonce there shares the directory
 *         store     absent at first: PyTorch's FileStore
 *         <16 hexadecimal digits>.*   absent at first: libddp's (store/attempt.h)
 *         beat-<rank>, pipe-<rank>.pipe   absent at first, under ddp-run alone: DDP_HEARTBEAT, and what
 *                   TORCH_NCCL_DEBUG_INFO_PIPE_FILE names
 *
 * and beside it a directory in which the tasks of ddp-exec meet; one of a meeting that failed is removed after a day,
 *
 *     <base>/.ddp/exec-<job>.<step>.<attempt>-<8 hexadecimal digits>/   mode 0700
 *
 * and, never removed by the plugin, what is left of a step that failed, of a job that was requeued
 * with the number of the attempt at the end,
 *
 *     <base>/.ddp/failed-<cluster>-<job>.<step>[.<attempt>]/          mode 0700
 *         rank-<rank>, summary   absent at first: libddp's (comm/recorder.h)
 *
 * Under ddp-run the plugin makes it before any task starts, and in it
 *
 *         task-<rank>            "<node> <pid>": where the task is
 *         error-<rank>.json      absent at first: TORCHELASTIC_ERROR_FILE
 *         fr-<rank>              absent at first: what TORCH_FR_DUMP_TEMP_FILE names
 *
 * to which ddp-run adds what it knows (run/facts.h).
 */
#define DDP_DIR_PARENT ".ddp"
#define DDP_DIR_EXEC "exec-"
#define DDP_DIR_STEP "step"
#define DDP_DIR_STORE "store"
#define DDP_DIR_BEAT "beat-"
#define DDP_DIR_PIPE "pipe-"
#define DDP_DIR_FAILED "failed-"
#define DDP_DIR_TASK "task-"
#define DDP_DIR_ERROR "error-"
#define DDP_DIR_DUMP "fr-"

/*
 * What ddp-run tells the plugin in srun, which hands none of it on to tasks: which attempt this is, from 0, how many
 * may follow the first, what they have in common, and a socket that ddp-run reads. Into that the plugin writes,
 * once the step exists, and then shuts it, lines of
 *
 *     job <number>
 *     step <number>
 *     failed <directory>          these two, where there is a directory that all nodes share
 *     rendezvous <directory>
 *
 * Without the plugin the tasks inherit all of these. ddp-exec removes them from the program's environment, and in rank 0
 * writes the lines into a file, which ddp-run names instead of the socket, and which it may read after the step has ended.
 * Therefore two lines follow:
 *
 *     nodes <Slurm's list of nodes>
 *     ranks <number>
 */
#define DDP_RUN_RESTART "SLURM_DDP_RESTART"
#define DDP_RUN_RESTARTS_MAX "SLURM_DDP_RESTARTS_MAX"
#define DDP_RUN_ID "SLURM_DDP_RUN_ID"
#define DDP_RUN_FD "SLURM_DDP_RUN_FD"
#define DDP_RUN_FILE "SLURM_DDP_RUN_FILE"

#endif /* DDP_CONTRACT_H */
