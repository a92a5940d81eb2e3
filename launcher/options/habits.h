/* SPDX-License-Identifier: Apache-2.0 */
/* Words of other launchers, and ours that mean the same. For the line that refuses them. Pure. */
#ifndef LAUNCHER_OPTIONS_HABITS_H
#define LAUNCHER_OPTIONS_HABITS_H

/* Our option for one of mpiexec's, srun's, accelerate's or deepspeed's, as typed: "-np4",
 * "--num_processes=4". NULL: not known. */
const char *habits_option(const char *typed);
/* What ctrunctl does for a verb that people guess: "status shows runs and their workers". NULL: not
 * known. */
const char *habits_verb(const char *word);

#endif
