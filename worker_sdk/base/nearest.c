/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/nearest.h"

#include "worker_sdk/base/str.h"

static size_t min2(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance_of(const char *a, const char *b)
{
    size_t row[CT_NEAREST_WORD_MAX + 1];
    const size_t width = strlen(b);

    if (width > CT_NEAREST_WORD_MAX || strlen(a) > CT_NEAREST_WORD_MAX)
        return SIZE_MAX / 2;
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            const size_t above = row[j];

            row[j] = min2(min2(above, row[j - 1]) + 1,
                          diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[width];
}

struct ct_nearest ct_nearest_to(const char *typed)
{
    return (struct ct_nearest){.typed = typed, .distance = 2 * (strlen(typed) / 3 + 2)};
}

/* Whether `typed` is the beginning of word, or its last parts as in token-file for rdzv-token-file. */
static bool is_part(const char *word, const char *typed)
{
    const size_t skipped = strlen(word) - strlen(typed);

    return ct_starts_with(word, typed) ||
           (strlen(word) > strlen(typed) && strchr("-_", word[skipped - 1]) &&
            strcmp(word + skipped, typed) == 0);
}

bool ct_nearest_offer(struct ct_nearest *near, const char *word)
{
    size_t distance = 2 * distance_of(near->typed, word);

    if (distance > 3 && near->typed[0] && is_part(word, near->typed))
        distance = 3;
    if (distance >= near->distance)
        return false;
    near->distance = distance;
    near->word = word;
    return true;
}
