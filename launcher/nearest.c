/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/nearest.h"

#include <stdint.h>
#include <string.h>

static size_t min2(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t nearest_distance(const char *a, const char *b)
{
    size_t row[NEAREST_WORD_MAX + 1];
    const size_t width = strlen(b);

    if (width > NEAREST_WORD_MAX || strlen(a) > NEAREST_WORD_MAX)
        return SIZE_MAX;
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
