/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - files of a checkpoint directory: the part that needs no other rank
 *
 * A checkpoint is DIRECTORY/checkpoint-STEP.safetensors, with STEP in ten digits or more, and with
 * a checksum and the step in its metadata. The newest is the one with the largest step.
 */
#ifndef DDP_STATE_CHECKPOINT_H
#define DDP_STATE_CHECKPOINT_H

#include "base/log.h"

#define DDP_CHECKPOINT_STEP "ddp.step" /* the step, in the metadata */

/*
 * Write the checkpoint of [step], creating [directory] if missing. Once it is on disk, remove older
 * checkpoints, so that [keep] are left (0: remove none). Checkpoints of larger steps are neither
 * removed nor counted: the run that wrote them may have been abandoned because of them. Checkpoints
 * that a load in this process skipped are not counted either.
 * Returns 0 or an error of ddp_tensors_save(). Files that cannot be removed are reported in [log].
 */
int ddp_checkpoint_write(const char *directory, uint64_t step, const struct ddp_tensor *tensors,
			 size_t count, const struct ddp_pair *metadata, size_t pairs, int keep,
			 const struct ddp_log *log, struct ddp_error *error);

/*
 * Open the newest sound checkpoint. Sound: the checksum agrees; a file of another program, with
 * neither checksum nor step, is accepted. A damaged one is reported in [log] and skipped; once a
 * sound one is found, it is renamed to "<name>.damaged", since later saves would count it as kept
 * otherwise.
 * Returns 1 with [file] and [step]; 0 if there is no checkpoint; DDP_ERR_FORMAT if none is sound,
 * so that a run does not start over and replace them; DDP_ERR_FILE; DDP_ERR_MEMORY.
 */
int ddp_checkpoint_open(struct ddp_tensors **file, uint64_t *step, const char *directory,
			const struct ddp_log *log, struct ddp_error *error);

/*
 * Check that [file], called [name] in messages, has exactly [tensors], with equal types and shapes.
 * Returns 0; DDP_ERR_FORMAT with a text that names the differences; DDP_ERR_MEMORY.
 */
int ddp_checkpoint_match(const struct ddp_tensors *file, const char *name,
			 const struct ddp_tensor *tensors, size_t count, struct ddp_error *error);

#endif /* DDP_STATE_CHECKPOINT_H */
