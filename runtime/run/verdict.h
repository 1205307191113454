/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - decide from the facts about an attempt which rank failed first, and why; without I/O
 *
 * From the verdicts on several attempts, decide.h decides what to do next.
 */
#ifndef DDP_RUN_VERDICT_H
#define DDP_RUN_VERDICT_H

#include "facts.h"

/*
 * Set [first] in [facts] to the rank that failed first or, in a hang, is most likely its cause; -1
 * if unknown. For each rank set [follows], [why] and, if srun did not report it, [how].
 *
 * A rank follows another one if it was ended with the step, stopped on request, is not on the node
 * that refused the step, or has a message about another rank or a broken connection. Of the
 * remaining ranks, the rank with the earliest exception or message of srun is first. If every rank
 * follows, the rank that most messages name is first; else a rank that did not arrive in the
 * collective in which others wait. If most ranks ran on after another rank had ended with status 0
 * (srun's --wait), the rank that had ended is first.
 *
 * In a hang, the first rank is one whose node does not answer; else one whose process is stopped or
 * gone; else one that has not exited after an exception; else one that did not arrive in the
 * collective in which others wait; else one whose stack shows that it is not in a collective
 * although another rank is; else one whose last heartbeat was long before that of another rank;
 * else one that is blocked in the kernel; else one that waits in another Python line than others.
 */
void verdict_judge(struct facts *facts);

#endif /* DDP_RUN_VERDICT_H */
