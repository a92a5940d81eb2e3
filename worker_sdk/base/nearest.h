/* SPDX-License-Identifier: Apache-2.0 */
/* For "did you mean": of the words that are offered, the one closest to what was typed. Pure.
 *
 *     struct ct_nearest near = ct_nearest_to(typed);
 *
 *     for (...)
 *         ct_nearest_offer(&near, word);
 *     ... near.word ... */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    CT_NEAREST_WORD_MAX = 64 /* longer ones are no misspelling of ours */
};

struct ct_nearest {
    const char *typed;
    const char *word; /* NULL: none is close */
    size_t
        distance; /* twice the letters to add, drop or change until one is the other */
};

/* Further away than a third of the letters is a guess, not a help. */
struct ct_nearest ct_nearest_to(const char *typed);
/* True: `word` is nearer than any before. One that begins with `typed` comes behind those where one
 * letter is wrong, and before all others. */
bool ct_nearest_offer(struct ct_nearest *near, const char *word);
