/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/report/poison.h"

#include "worker_sdk/base/str.h"

void poison_add(struct poison *poison, const struct ct_samples *samples)
{
    struct ct_samples *at = NULL;

    for (int i = 0; i < POISON_REPORTS_MAX; i++) {
        struct ct_samples *slot = &poison->reported[i];
        const bool is_of_now = slot->count > 0 &&
                               slot->generation == samples->generation;

        if (!is_of_now || slot->rank == samples->rank)
            at = slot;
        if (is_of_now && slot->rank == samples->rank)
            break;
    }
    if (at) /* else there was no room for its samples */
        *at = *samples;
}

static const struct ct_samples *find_report(const struct poison *poison,
                                            const struct ct_failure *root)
{
    for (int i = 0; i < POISON_REPORTS_MAX; i++)
        if (poison->reported[i].count > 0 && root->rank >= 0 &&
            poison->reported[i].generation == root->generation &&
            poison->reported[i].rank == root->rank)
            return &poison->reported[i];
    return NULL;
}

static bool has(const struct ct_samples *samples, uint64_t id)
{
    for (int i = 0; i < samples->count; i++)
        if (samples->list[i].id == id)
            return true;
    return false;
}

/* Writes "17, 20 and 3 more": the samples of `now` that are also in `before`. Returns how many. */
static int format_same(char *dst, size_t size, const struct ct_samples *now,
                       const struct ct_samples *before)
{
    int count = 0;

    *dst = '\0';
    for (int i = 0; i < now->count; i++)
        if (has(before, now->list[i].id) && count++ < POISON_NAMED_MAX)
            (void)ct_append_item(dst, size, ", ", "%llu",
                                 (unsigned long long)now->list[i].id); /* fits */
    if (count > POISON_NAMED_MAX)
        (void)ct_append(dst, size, " and %d more", count - POISON_NAMED_MAX);
    return count;
}

/* Compares with the latest death that had any of these samples. */
static void compare(struct poison *poison, const struct ct_samples *now)
{
    const unsigned count = poison->death_count;

    for (unsigned i = 0; i < count && i < POISON_DEATHS_MAX; i++) {
        const struct ct_samples *before =
            &poison->deaths[(count - 1 - i) % POISON_DEATHS_MAX];
        char ids[POISON_NAMED_MAX * 22 + 32];
        const int same = format_same(ids, sizeof ids, now, before);

        if (same == 0)
            continue;
        (void)ct_format(
            poison->text, sizeof poison->text,
            "the same sample%s (%s) %s being processed at both deaths: rank %d in "
            "generation %llu, rank %d now",
            same > 1 ? "s" : "", ids, same > 1 ? "were" : "was", before->rank,
            (unsigned long long)before->generation, now->rank); /* fits */
        return;
    }
}

void poison_on_root(struct poison *poison, const struct ct_failure *root)
{
    const struct ct_samples *now = find_report(poison, root);

    poison->text[0] = '\0';
    poison->generation = root->generation;
    poison->rank = root->rank;
    if (!now || ct_facts_find(&root->facts, CT_FACT_CHAOS))
        return; /* samples not known, or another known reason */
    compare(poison, now);
    poison->deaths[poison->death_count++ % POISON_DEATHS_MAX] = *now;
}

void poison_add_fact(const struct poison *poison, struct ct_failure *failure)
{
    struct ct_facts *facts = &failure->facts;

    if (!poison->text[0] || failure->generation != poison->generation ||
        failure->rank != poison->rank || ct_facts_find(facts, CT_FACT_AGAIN))
        return;
    while (!ct_facts_add(facts, CT_FACT_AGAIN, poison->text) && facts->count > 0) {
        facts->count--;
        facts->used = facts->list[facts->count].at;
    }
}
