/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/report/hang_views.h"

#include "worker_sdk/base/str.h"

/* `text` names them; empty: it does not. */
static void add_ranks(struct hang_ranks *ranks, uint32_t count, const char *text)
{
    const size_t used = strlen(ranks->text);

    ranks->count += count;
    if (count > 0 && (!*text || ct_append_item(ranks->text, sizeof ranks->text, ", ",
                                               "%s", text) < 0)) {
        ranks->text[used] = '\0';
        ranks->unnamed += count;
    }
}

static void add_view(struct hang_views *views, const struct ct_hang_view *view)
{
    if (views->seen == 0 || views->furthest < 0 ||
        (view->furthest >= 0 && view->lowest < views->lowest))
        views->lowest = view->lowest;
    if (views->seen == 0 || view->furthest > views->furthest)
        views->furthest = view->furthest;
    views->seen += view->ranks;
    add_ranks(&views->waiting, view->waiting, view->waiting_ranks);
}

void hang_views_add(struct hang_views *views, const struct ct_stopped *stopped,
                    uint32_t world_size)
{
    const uint32_t known = views->seen + views->ended.count;

    views->world_size = world_size;
    if (stopped->hang.ranks > 0)
        add_view(views, &stopped->hang);
    for (uint8_t i = 0; i < stopped->failure_count; i++) {
        char rank[16];

        if (stopped->failures[i].cause != CT_CAUSE_EARLY)
            continue;
        (void)ct_format(rank, sizeof rank, "%d", stopped->failures[i].rank); /* fits */
        add_ranks(&views->ended, 1, rank);
    }
    views->nodes += views->seen + views->ended.count > known;
}

/* "0-3, 5-7 and 4 more" */
static void format_ranks(char *dst, size_t size, const struct hang_ranks *ranks)
{
    (void)ct_copy(dst, size, ranks->text); /* fits */
    if (ranks->unnamed > 0)
        (void)ct_append(dst, size, "%s%u more", *ranks->text ? " and " : "",
                        ranks->unnamed);
}

static bool knows_all(const struct hang_views *views)
{
    return views->seen + views->ended.count == views->world_size;
}

static void add_world(const struct hang_views *views, struct ct_failure *failure)
{
    char waiting[300], ended[300], steps[64] = "", text[768];

    format_ranks(waiting, sizeof waiting, &views->waiting);
    format_ranks(ended, sizeof ended, &views->ended);
    if (views->furthest >= 0 && views->seen > 0)
        (void)ct_format(steps, sizeof steps, "; last steps %lld to %lld",
                        (long long)views->lowest,
                        (long long)views->furthest); /* fits */
    (void)ct_format(
        text, sizeof text, "of %u ranks%s on %u nodes %u wait%s in a collective%s%s%s",
        views->seen + views->ended.count, knows_all(views) ? "" : " seen", views->nodes,
        views->waiting.count, views->waiting.count == 1 ? "s" : "",
        *waiting ? " (" : "", waiting, *waiting ? ")" : "");
    if (*ended)
        (void)ct_append(text, sizeof text, ", %u had ended with 0 (%s)",
                        views->ended.count, ended);
    (void)ct_append(text, sizeof text, "%s", steps); /* fits */
    (void)ct_facts_add(&failure->facts, CT_FACT_WORLD, text);
}

/* The ranks that run all wait, in the same step: which of them the others wait for is not to be seen. */
static bool is_nobody_behind(const struct hang_views *views)
{
    return knows_all(views) && views->waiting.count == views->seen && views->seen > 0 &&
           views->lowest == views->furthest;
}

static void add_ended(const struct hang_views *views, struct ct_failure *failure)
{
    const char *s = views->ended.count > 1 ? "s" : "";
    char ranks[300], text[400];

    format_ranks(ranks, sizeof ranks, &views->ended);
    (void)ct_format(text, sizeof text,
                    "the ranks that wait, wait for rank%s %s, which had ended with 0",
                    s, ranks); /* fits */
    (void)ct_facts_add(&failure->facts, CT_FACT_LIKELY, text);
    (void)ct_format(text, sizeof text, "look at why rank%s %s ended before the others",
                    s, ranks); /* fits */
    (void)ct_facts_add(&failure->facts, CT_FACT_DO, text);
}

/* Of a rank whose node knows of none that is behind. */
static void add_hang_advice(const struct hang_views *views, struct ct_failure *failure)
{
    if (is_nobody_behind(views) && views->ended.count > 0) {
        add_ended(views, failure);
        return;
    }
    (void)ct_facts_add(&failure->facts, CT_FACT_SO,
                       "it is not known for which rank it waits");
    (void)ct_facts_add(&failure->facts, CT_FACT_DO,
                       is_nobody_behind(views)
                           ? "no rank is behind: compare the stacks of the ranks"
                           : "compare the stacks of the ranks; a longer --hang-timeout "
                             "if this pause is normal");
}

static void add_advice(const struct hang_views *views, struct ct_failure *failure)
{
    const bool is_victim = ct_failure_is_victim(failure);

    if (!is_victim && ct_facts_find(&failure->facts, CT_FACT_DO))
        return; /* its node knows a rank that is behind */
    if (is_nobody_behind(views) && views->ended.count == 0 && views->nodes > 1) {
        ct_facts_remove(&failure->facts, CT_FACT_DO);
        (void)ct_facts_add(&failure->facts, CT_FACT_DO,
                           "no rank is behind: look at the network between the nodes; "
                           "the stacks show whether all are in the same call");
    } else if (!is_victim) {
        add_hang_advice(views, failure);
    }
}

void hang_views_add_facts(const struct hang_views *views, struct ct_failure *failure)
{
    if (failure->cause != CT_CAUSE_HANG && !ct_failure_is_victim(failure))
        return;
    if (views->nodes > 1)
        add_world(views, failure);
    add_advice(views, failure);
}
