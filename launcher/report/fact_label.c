/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/fact_label.h"

#include <string.h>

static const char *const labels[CT_FACT_LAST + 1] = {
    [CT_FACT_ROLE] = "role",
    [CT_FACT_FAULT] = "fault",
    [CT_FACT_AT] = "at",
    [CT_FACT_CALLED_BY] = "called by",
    [CT_FACT_RAISED] = "raised",
    [CT_FACT_WHY] = "why",
    [CT_FACT_LIMIT] = "limit",
    [CT_FACT_MEMORY] = "memory",
    [CT_FACT_LARGER] = "larger",
    [CT_FACT_PROOF] = "proof",
    [CT_FACT_BECAUSE] = "because",
    [CT_FACT_LIKELY] = "likely",
    [CT_FACT_CORE] = "core",
    [CT_FACT_IS_IN] = "it is in",
    [CT_FACT_SO] = "so",
    [CT_FACT_NOW] = "now",
    [CT_FACT_DO] = "do",
    [CT_FACT_WAS] = "was",
    [CT_FACT_JOINED] = "joined",
    [CT_FACT_MISSING] = "missing",
    [CT_FACT_TRIED] = "also tried",
    [CT_FACT_WORKS] = "works",
    [CT_FACT_WORLD] = "world",
    [CT_FACT_CALLS] = "calls",
    [CT_FACT_AGAIN] = "again",
    [CT_FACT_HARDWARE] = "hardware",
    [CT_FACT_CHAOS] = "chaos",
};

const char *fact_label(uint8_t key)
{
    return key > 0 && key <= CT_FACT_LAST ? labels[key] : "also";
}

uint8_t fact_key(const char *label)
{
    for (uint8_t key = 1; key <= CT_FACT_LAST; key++)
        if (strcmp(label, labels[key]) == 0)
            return key;
    return 0;
}
