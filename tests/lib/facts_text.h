/* SPDX-License-Identifier: Apache-2.0 */
/* Facts as one text, for assertions: "KEY TEXT\n" each. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "worker_sdk/wire/facts.h"

/* Valid until the next call. */
static inline const char *facts_text(const struct ct_facts *facts)
{
    static char text[CT_FACTS_MAX + 8 * CT_FACTS_COUNT_MAX];

    text[0] = '\0';
    for (int i = 0; i < facts->count; i++) {
        const size_t used = strlen(text);

        (void)snprintf(text + used, sizeof text - used, "%u %s\n", facts->list[i].key,
                       ct_facts_text(facts, i));
    }
    return text;
}
