/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the environment that begin with CTRUN_. One that no program reads is a misspelling, and
 * would be ignored in silence. Pure. */
#pragma once

#include <stdbool.h>

/* True when some program of ours reads or sets it, and for names that are not for us to judge: those
 * that environment modules set for every package (CTRUN_ROOT), and those of tests (CTRUN_TEST_*). */
bool env_names_is_known(const char *name);
/* The known name with the most similar spelling; also torchrun's (PET_NNODES for CTRUN_NNODES).
 * NULL: none is near. */
const char *env_names_nearest(const char *name);
/* One warning for each of `env` that begins with CTRUN_ and is not known. */
void env_names_warn(char *const *env);
