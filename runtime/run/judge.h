/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - who failed first, and who only followed
 */
#ifndef DDP_RUN_JUDGE_H
#define DDP_RUN_JUDGE_H

#include "facts.h"

/*
 * Fill in what follows from the rest of [facts]: first, collectives, and of each rank follows and why; and its message
 * and place where only its output or libddp's record has them.
 *
 * A rank follows where it was ended with the step, where its own words are about another rank, or about a connection
 * that broke. Of the others the first is the one whose exception was raised earlier, or of which srun told earlier.
 * Where all follow, it is the one that most of them name. In a hang the rank stands out whose node does not answer,
 * that is stopped or gone, that did not arrive in the collective which others wait in, or whose heart stopped long
 * before those of the others.
 */
void facts_judge(struct facts *facts);

#endif /* DDP_RUN_JUDGE_H */
