/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - who failed first, and why: decided from facts alone, without I/O
 *
 * What to do next is decided by decide.h, from verdicts on several attempts.
 */
#ifndef DDP_RUN_VERDICT_H
#define DDP_RUN_VERDICT_H

#include "facts.h"

/*
 * Set [first] of [facts], the rank that failed first or stands out in a hang, -1 if none does; and of each rank [follows], [why] and, if srun
 * did not say it, [how].
 *
 * A rank follows if it was ended with the step or stopped on request, or if its message is about another rank or a broken connection. The
 * first of the others is the one with the earliest exception, or the earliest message of srun. If all follow, it is the rank that most
 * of them name; else one that did not arrive in the collective that others wait in. In a hang the rank stands out whose node does
 * not answer; or whose process is stopped or gone; or that did not arrive in that collective; or whose heartbeat ended long before those of the
 * others.
 */
void verdict_judge(struct facts *facts);

#endif /* DDP_RUN_VERDICT_H */
