/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/bills.h"

#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

void bills_add(struct bills *bills, struct bills_item *item, uint64_t budget_ms)
{
    const uint64_t total_ms = item->sum.total_ms;

    item->is_over = item->of == BILL_OF_RESTART && budget_ms > 0 &&
                    total_ms > budget_ms;
    if (item->of == BILL_OF_START) {
        bills->start = *item;
        bills->has_start = true;
        return;
    }
    if (bills->count < BILLS_MAX)
        bills->list[bills->count] = *item;
    bills->count++;
    bills->over += item->is_over;
    if (total_ms > bills->longest_ms)
        bills->longest_ms = total_ms;
}

void bills_set_ranks(struct bills *bills, const struct bill_rank *ranks, int count)
{
    const int kept = count < BILLS_RANKS_MAX ? count : BILLS_RANKS_MAX;
    struct bill_rank *copy = kept > 0 ? ct_zalloc_array((size_t)kept, sizeof *copy)
                                      : NULL;

    if (!copy)
        return;
    memcpy(copy, ranks, (size_t)kept * sizeof *copy);
    free(bills->ranks);
    bills->ranks = copy;
    bills->rank_count = kept;
    bills->more_ranks = count - kept;
}

void bills_deinit(struct bills *bills)
{
    free(bills->ranks);
    *bills = (struct bills){0};
}

/* The longest phases of a start, and the rank that was last. Truncation is fine. */
static void add_longest(char dst[BILLS_TEXT_MAX], const struct bill_sum *sum)
{
    const struct bill_part *longest = bill_longest(sum);
    char text[160];

    if (!longest || sum->count < 2)
        return;
    bill_format_phases(text, sizeof text, longest->phases, " and ");
    (void)ct_append(dst, BILLS_TEXT_MAX, "; longest: %s", text);
    if (longest->rank >= 0)
        (void)ct_append(dst, BILLS_TEXT_MAX, ", rank %d last", longest->rank);
}

void bills_format(char dst[BILLS_TEXT_MAX], const struct bills_item *item)
{
    const char *name = bill_of_name(item->of);
    char text[BILLS_TEXT_MAX];

    (void)ct_format(dst, BILLS_TEXT_MAX, "%s took %.3f s%s", name,
                    (double)item->sum.total_ms / 1000,
                    item->is_one_of_many ? " on this node" : "");
    bill_format_parts(text, sizeof text, &item->sum);
    (void)ct_append(dst, BILLS_TEXT_MAX, ": %s", text);
    if (item->of == BILL_OF_START)
        add_longest(dst, &item->sum);
    if (item->lost_steps >= 0)
        (void)ct_append(dst, BILLS_TEXT_MAX, "; %lld step%s lost",
                        (long long)item->lost_steps, item->lost_steps == 1 ? "" : "s");
    if (item->sum.unknown) {
        bill_format_phases(text, sizeof text, item->sum.unknown, ", ");
        (void)ct_append(dst, BILLS_TEXT_MAX, "; not known: %s", text);
    }
    if (!item->is_whole)
        (void)ct_append(dst, BILLS_TEXT_MAX,
                        "; the round ended before the %s was complete", name);
}
