/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/layout.h"

#include "worker_sdk/base/str.h"

enum {
    RUN_MIN = 4 /* so many equal numbers in a row are multiplied, not added up */
};

static void append(struct ct_layout *layout, uint32_t slots, uint32_t times)
{
    static const char dots[] = "...";
    char piece[32];
    int length;

    if (times > 1)
        length = ct_format(piece, sizeof piece, "%s%ux%u", layout->length ? "+" : "",
                           slots, times);
    else
        length = ct_format(piece, sizeof piece, "%s%u", layout->length ? "+" : "",
                           slots);
    if (layout->length + (size_t)length + sizeof dots > sizeof layout->text) {
        if (!layout->length || layout->text[layout->length - 1] != '.') {
            memcpy(layout->text + layout->length, dots, sizeof dots);
            layout->length += sizeof dots - 1;
        }
        return;
    }
    memcpy(layout->text + layout->length, piece, (size_t)length + 1);
    layout->length += (size_t)length;
}

static void flush(struct ct_layout *layout)
{
    if (layout->run >= RUN_MIN)
        append(layout, layout->slots, layout->run);
    else
        for (uint32_t i = 0; i < layout->run; i++)
            append(layout, layout->slots, 1);
    layout->run = 0;
}

void ct_layout_add(struct ct_layout *layout, uint32_t slots)
{
    if (layout->run && layout->slots != slots)
        flush(layout);
    layout->slots = slots;
    layout->run++;
}

uint32_t ct_layout_first(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

const char *ct_layout_end(struct ct_layout *layout)
{
    flush(layout);
    return layout->text;
}
