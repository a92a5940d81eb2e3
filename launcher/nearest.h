/* SPDX-License-Identifier: Apache-2.0 */
/* For "did you mean". Pure. */
#ifndef LAUNCHER_NEAREST_H
#define LAUNCHER_NEAREST_H

#include <stddef.h>

enum {
    NEAREST_WORD_MAX = 64 /* longer ones are no misspelling of ours */
};

/* Letters to add, drop or change until a is b; more than anybody wants when one is too long. */
size_t nearest_distance(const char *a, const char *b);

#endif
