/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/facts.h"

#include <stddef.h>
#include <string.h>

bool ct_facts_add(struct ct_facts *facts, uint8_t key, const char *text)
{
    const size_t size = strlen(text) + 1;

    if (key == 0 || facts->count == CT_FACTS_COUNT_MAX ||
        size > sizeof facts->text - facts->used)
        return false;
    memcpy(facts->text + facts->used, text, size);
    facts->list[facts->count++] = (struct ct_fact){.key = key, .at = facts->used};
    facts->used = (uint16_t)(facts->used + size);
    return true;
}

void ct_facts_remove(struct ct_facts *facts, uint8_t key)
{
    const struct ct_facts all = *facts;

    facts->count = 0;
    facts->used = 0;
    for (int i = 0; i < all.count; i++)
        if (all.list[i].key != key)
            (void)ct_facts_add(facts, all.list[i].key,
                               ct_facts_text(&all, i)); /* fits */
}

const char *ct_facts_text(const struct ct_facts *facts, int i)
{
    return facts->text + facts->list[i].at;
}

const char *ct_facts_find(const struct ct_facts *facts, enum ct_fact_key key)
{
    for (int i = 0; i < facts->count; i++)
        if (facts->list[i].key == key)
            return ct_facts_text(facts, i);
    return NULL;
}
