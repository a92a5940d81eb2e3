/* SPDX-License-Identifier: Apache-2.0 */
/* Words of other launchers, and ours that mean the same; other words that people type by mistake. For the line
 * that refuses them. */
#pragma once

/* Our option for one of mpiexec's, srun's, accelerate's or deepspeed's, as typed: "-np4",
 * "--num_processes=4". NULL: not known. */
const char *habits_option(const char *typed);
/* What ctrunctl does for a verb that people guess: "status shows runs and their workers". NULL: not
 * known. */
const char *habits_verb(const char *word);
/* What a word that names no program was probably meant to be, as the end of a sentence: "; ...". "": not known.
 * Looks whether its first part is a file. */
const char *habits_program(const char *name);
