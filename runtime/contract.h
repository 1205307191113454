/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.h - what the plugin guarantees to the processes of a job
 *
 * The contract has two parts: environment variables, which contract.def lists and slurm-ddp(7)
 * explains; and the layout of a directory on shared storage. The plugin writes both parts, and the
 * runtime reads both. The plugin and the runtime have no other interface.
 */
#ifndef DDP_CONTRACT_H
#define DDP_CONTRACT_H

/*
 * Kinds of variables. They differ in what the plugin does with a value that a variable already has:
 *   IDENTITY  replaces the value, and if it differs, reports that once;
 *   POLITE    keeps the value, unless an outer --ddp step has set it;
 *   TORCHRUN  like POLITE, but sets the variable only if each node has one task;
 *   OURS      replaces the value, or unsets the variable if the plugin has no value for it.
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

/* Returns the row of [variable] in a constant table. [variable] must be below DDP_VAR_COUNT. */
static inline const struct ddp_variable_info *ddp_variable_info(enum ddp_variable variable)
{
	static const struct ddp_variable_info table[DDP_VAR_COUNT] = {
#define DDP_VARIABLE(name, kind, text) {#name, DDP_KIND_##kind, text},
#include "contract.def"
#undef DDP_VARIABLE
	};

	return &table[variable];
}

/* Name of a variable. A misspelt variable does not compile. */
#define DDP_NAME(variable) (ddp_variable_info(DDP_VAR_##variable)->name)

/*
 * Value of variables on a node that did not load the plugin. int() of Python fails with this text,
 * and atoi() returns -1, so no program mistakes it for a rank or a port.
 */
#define DDP_NOT_LOADED "-1 (ddp.so is not loaded on this node)"

/*
 * Prefix of the reason why --ddp or ddp-exec refused a step, if the user's request is the cause.
 * Every node and every attempt would refuse it, so ddp-run does not start such a step again.
 */
#define DDP_USAGE_ERROR "usage error: "

/* Value of PET_NNODES if a node has several tasks. torchrun exits with this text. */
#define DDP_SEVERAL_TASKS "-1 (torchrun needs --ntasks-per-node=1)"

/*
 * All directories have mode 0700. The rendezvous directory of a step is
 *
 *     <base>/.ddp/<cluster>-<job>.<step>.<attempt>-<nonce>/
 *         step      one line that describes the step (launch/channel.h). srun writes it before any
 *                   task starts. If a node reads the step's nonce in it, the node shares the
 *                   directory.
 *
 * Files that do not exist at first:
 *
 *         store     PyTorch's FileStore
 *         <16 hexadecimal digits>.*   rendezvous files of libddp (store/meeting.h)
 *         beat-<rank>                 DDP_HEARTBEAT; only under ddp-run
 *         pipe-<rank>.pipe            TORCH_NCCL_DEBUG_INFO_PIPE_FILE; only under ddp-run
 *
 * The tasks of ddp-exec meet in another directory. If a meeting failed, its directory is removed
 * after a day:
 *
 *     <base>/.ddp/exec-<job>.<step>.<attempt>-<8 hexadecimal digits>/
 *
 * Files of a failed step are in a directory that the plugin never removes. If the job was requeued,
 * the directory's name ends with the number of the attempt:
 *
 *     <base>/.ddp/failed-<cluster>-<job>.<step>[.<attempt>]/
 *         rank-<rank>            written by libddp after a failure (comm/recorder.h)
 *
 * Under ddp-run the plugin makes this directory before any task starts. It then also contains
 *
 *         task-<rank>            "<node> <pid>" of the task
 *         error-<rank>.json      TORCHELASTIC_ERROR_FILE; does not exist at first
 *         fr-<rank>              TORCH_FR_DUMP_TEMP_FILE; does not exist at first
 *
 * and the files that ddp-run writes (run/facts.h).
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
 * Variables by which ddp-run passes data to the plugin in srun: the number of this attempt, from 0;
 * the most attempts that may follow the first; an identifier that all attempts share; and a socket
 * that ddp-run reads. The plugin does not pass these variables on to the tasks. Once the step
 * exists, the plugin writes the following lines to the socket and closes it:
 *
 *     job <number>
 *     step <number>
 *     failed <directory>          this line and the next only if all nodes share a directory
 *     rendezvous <directory>
 *
 * Without the plugin, the tasks inherit all of these variables. ddp-exec removes them from the
 * program's environment. In rank 0, it writes the lines to a file, which ddp-run names instead of
 * the socket. Since ddp-run may read the file after the step has ended, ddp-exec adds two lines:
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
