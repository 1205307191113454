/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - read and write checkpoint files, without communication between ranks
 *
 * A checkpoint is DIRECTORY/checkpoint-STEP.safetensors, with STEP in ten digits or more, and with
 * a checksum and the step in its metadata. The newest is the one with the largest step.
 */
#ifndef DDP_STATE_CHECKPOINT_H
#define DDP_STATE_CHECKPOINT_H

#include "base/log.h"

#define DDP_CHECKPOINT_STEP "ddp.step" /* key of the step in the metadata */

/*
 * Write the checkpoint of [step]. If [directory] is missing, create it. Once the checkpoint is on
 * disk, remove older ones until [keep] are left (0: remove none). Checkpoints of larger steps are
 * neither removed nor counted: they may be the reason why an earlier run was abandoned.
 * Returns 0 or an error of ddp_tensors_save(). Files that cannot be removed are reported in [log].
 */
int ddp_checkpoint_write(const char *directory, uint64_t step, const struct ddp_tensor *tensors,
			 size_t count, const struct ddp_pair *metadata, size_t pairs, int keep,
			 const struct ddp_log *log, struct ddp_error *error);

/*
 * Open the newest sound checkpoint. A checkpoint is sound if its checksum is correct. A file that
 * another program wrote, and that has neither checksum nor step, is sound, too. Damaged
 * checkpoints, and checkpoints that no longer exist, are reported in [log] and skipped. If a sound
 * one is found, the damaged ones are renamed to "<name>.damaged", so that later saves do not count
 * them among the checkpoints to keep. Any other error ends the search, since the file with the
 * error may be sound: a run that continued from an older checkpoint would replace that file.
 * Returns 1 and sets [file] and [step]. Returns 0 if there is no checkpoint. Returns DDP_ERR_FORMAT
 * if there are only damaged checkpoints, so that a run does not start from the beginning and
 * replace them. Returns another error, such as DDP_ERR_FILE, if the search failed.
 */
int ddp_checkpoint_open(struct ddp_tensors **file, uint64_t *step, const char *directory,
			const struct ddp_log *log, struct ddp_error *error);

/*
 * Check that [file] has exactly [tensors], with equal types and shapes. Messages call the file
 * [name]. Returns 0; DDP_ERR_FORMAT with a text that names the differences; DDP_ERR_MEMORY.
 */
int ddp_checkpoint_match(const struct ddp_tensors *file, const char *name,
			 const struct ddp_tensor *tensors, size_t count, struct ddp_error *error);

#endif /* DDP_STATE_CHECKPOINT_H */
