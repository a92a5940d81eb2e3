/* SPDX-License-Identifier: Apache-2.0 */
/* Options of other launchers with ctrun's equivalents, and words that people type by mistake: for
 * the message that refuses them. */
#pragma once

/* Our option for one of mpiexec's, srun's, accelerate's or deepspeed's, as typed: "-np4",
 * "--num_processes=4". NULL: not known. */
const char *habits_option(const char *typed);
/* What ctrunctl does for a verb that people guess: "status shows runs and their workers". NULL: not
 * known. */
const char *habits_verb(const char *word);
/* What the user probably meant with a word that names no program, as the end of a sentence:
 * "; ...". "": not known. Checks whether the word's first part is a file. */
const char *habits_program(const char *name);
