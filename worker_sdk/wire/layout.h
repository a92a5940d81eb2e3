/* SPDX-License-Identifier: Apache-2.0 */
/* How many workers each node of a world has, as a short text: "8+8+7", "8x61+7". */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_LAYOUT_MAX = 64
};

struct ct_layout { /* zeroed: no node yet */
    char text[CT_LAYOUT_MAX];
    size_t length;
    uint32_t slots; /* of the last `run` nodes */
    uint32_t run;
};

/* Adds the next node, in the order of ranks. A text that does not fit ends in "...". */
void ct_layout_add(struct ct_layout *layout, uint32_t slots);
/* The number of workers of the first node in such a text; 0: the text has none. */
uint32_t ct_layout_first(const char *text);
/* The text, once all are added. Borrowed. */
const char *ct_layout_end(struct ct_layout *layout);
