/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - decide from the facts which rank failed first, and why; without I/O
 *
 * decide.h decides what to do next, from the verdicts on several attempts.
 */
#ifndef DDP_RUN_VERDICT_H
#define DDP_RUN_VERDICT_H

#include "facts.h"

/*
 * Set [first] in [facts] to the rank that failed first or, in a hang, is most likely its cause; -1
 * if unknown. For each rank set [follows], [why] and, if srun did not report it, [how].
 *
 * A rank follows if it was ended with the step, stopped on request, or has a message about another
 * rank or a broken connection. Of the others, the rank with the earliest exception, or the earliest
 * message of srun, is first. If every rank follows, the one that most of them name is first; else
 * one that did not arrive in the collective that others wait in. In a hang the first rank is one
 * whose node does not answer; else one whose process is stopped or gone; else one that did not
 * arrive in that collective; else one whose heartbeat ended long before those of the others.
 */
void verdict_judge(struct facts *facts);

#endif /* DDP_RUN_VERDICT_H */
