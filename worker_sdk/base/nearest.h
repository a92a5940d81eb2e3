/* SPDX-License-Identifier: Apache-2.0 */
/* For "did you mean": the offered word that is closest to the typed one. Pure.
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
    CT_NEAREST_WORD_MAX = 64 /* longer words are no misspelling of our names */
};

struct ct_nearest {
    const char *typed;
    const char *word; /* NULL: none is close */
    size_t
        distance; /* twice the edit distance: letters to add, drop or change until equal */
};

/* A word that differs in more than a third of the letters is never the result. */
struct ct_nearest ct_nearest_to(const char *typed);
/* True: `word` is nearer than all words before. A word that begins with `typed`, or ends
 * in it behind a dash, is further away than a word with one wrong letter, and nearer than all others. */
bool ct_nearest_offer(struct ct_nearest *near, const char *word);
