/* SPDX-License-Identifier: Apache-2.0 */
/* How many workers each node of a world has, as people read it: "8+8+7", "8x61+7". */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_LAYOUT_MAX = 64
};

struct ct_layout { /* zeroed: no node yet */
    char text[CT_LAYOUT_MAX];
    size_t length;
    uint32_t slots; /* of the nodes that were added last, `run` in a row */
    uint32_t run;
};

/* Nodes in the order of their ranks; what does not fit ends in "...". */
void ct_layout_add(struct ct_layout *layout, uint32_t slots);
/* Of the first node in such a text; 0: it has none. */
uint32_t ct_layout_first(const char *text);
/* The text, once all are added. Borrowed. */
const char *ct_layout_end(struct ct_layout *layout);
