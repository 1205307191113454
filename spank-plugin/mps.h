/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps.h - does NVIDIA's Multi-Process Service serve the job?
 */
#ifndef DDP_MPS_H
#define DDP_MPS_H

#include <stdbool.h>

/*
 * Look where CUDA will look in a task with [env]: for the control pipe of an MPS daemon, in
 * CUDA_MPS_PIPE_DIRECTORY or else /tmp/nvidia-mps. To be called as the user, whose view and rights are
 * what counts. Nothing is opened but the daemon's pid file: a daemon that is watched must not notice.
 * Returns true if there is a pipe of root's or the user's own, and no pid file beside it that names a
 * process which is gone.
 */
bool ddp_mps_serves(char *const *env);

#endif /* DDP_MPS_H */
