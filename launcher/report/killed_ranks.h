/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of this node that did not end by themselves when the run was stopped. */
#pragma once

#include <stddef.h>

enum {
    KILLED_RANKS_NAMED = 16, /* those with the lowest numbers; the rest is counted */
    KILLED_RANKS_TEXT_MAX = 256
};

struct killed_ranks {
    int count;                     /* all; at first 0 */
    int ranks[KILLED_RANKS_NAMED]; /* rising */
};

void killed_ranks_add(struct killed_ranks *killed, int rank);
/* "ranks 0-15 and 3 more were killed before they had ended: ...", by whomever; empty: none was. dst has
 * KILLED_RANKS_TEXT_MAX bytes. */
void killed_ranks_format(char *dst, const struct killed_ranks *killed);
