/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - the files of a directory of checkpoints: rank 0's part, no other rank needed
 *
 * A checkpoint is DIRECTORY/checkpoint-STEP.safetensors, STEP in ten digits or more, with a
 * checksum and the step in its metadata. The newest is the one with the largest step.
 */
#ifndef DDP_STATE_CHECKPOINT_H
#define DDP_STATE_CHECKPOINT_H

#include "base/log.h"

#define DDP_CHECKPOINT_STEP "ddp.step" /* the step, in the metadata */

/*
 * Write the checkpoint of [step], making [directory] where it is missing. Once it is on disk,
 * all before it but the last [keep] - 1 are removed (0: none). Those of larger steps are not
 * touched, and not counted: the run that wrote them may have been given up because of them. Those
 * that a load of this process skipped are not counted either.
 * Returns 0 or an error of ddp_tensors_save(); files that cannot be removed are reported in [log].
 */
int ddp_checkpoint_write(const char *directory, uint64_t step, const struct ddp_tensor *tensors,
			 size_t count, const struct ddp_pair *metadata, size_t pairs, int keep,
			 const struct ddp_log *log, struct ddp_error *error);

/*
 * Open the newest sound checkpoint. Sound: the checksum agrees; a file of another program that has neither checksum nor
 * step is accepted. A damaged one is reported in [log] and skipped; once a sound one is found, it is renamed to
 * "<name>.damaged", or a later save would count it among those that it keeps.
 * Returns 1 with [file] and [step]; 0 if there is no checkpoint; DDP_ERR_FORMAT if there are some and none is sound: a
 * run must not start from the beginning over them; DDP_ERR_FILE; DDP_ERR_MEMORY.
 */
int ddp_checkpoint_open(struct ddp_tensors **file, uint64_t *step, const char *directory,
			const struct ddp_log *log, struct ddp_error *error);

/*
 * Check that [file], which [name] is for messages, has [tensors] and no others, in type and shape.
 * Returns 0, or DDP_ERR_FORMAT with a text that names those that differ; DDP_ERR_MEMORY.
 */
int ddp_checkpoint_match(const struct ddp_tensors *file, const char *name,
			 const struct ddp_tensor *tensors, size_t count, struct ddp_error *error);

#endif /* DDP_STATE_CHECKPOINT_H */
