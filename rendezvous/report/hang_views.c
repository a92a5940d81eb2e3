/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/report/hang_views.h"

#include "worker_sdk/base/str.h"

void hang_views_add(struct hang_views *views, const struct ct_hang_view *view)
{
    const size_t used = strlen(views->text);

    if (view->ranks == 0)
        return;
    if (views->nodes == 0 || views->furthest < 0 ||
        (view->furthest >= 0 && view->lowest < views->lowest))
        views->lowest = view->lowest;
    if (views->nodes == 0 || view->furthest > views->furthest)
        views->furthest = view->furthest;
    views->nodes++;
    views->ranks += view->ranks;
    views->waiting += view->waiting;
    if (view->waiting == 0)
        return;
    if (!view->waiting_ranks[0] || ct_append_item(views->text, sizeof views->text, ", ",
                                                  "%s", view->waiting_ranks) < 0) {
        views->text[used] = '\0';
        views->unnamed += view->waiting;
    }
}

void hang_views_add_fact(const struct hang_views *views, struct ct_failure *failure)
{
    char more[32] = "", steps[64] = "", text[512];

    if ((failure->cause != CT_CAUSE_HANG && !ct_failure_is_victim(failure)) ||
        views->nodes < 2)
        return;
    if (views->unnamed > 0)
        (void)ct_format(more, sizeof more, " and %u more", views->unnamed);
    if (views->furthest >= 0)
        (void)ct_format(steps, sizeof steps, "; last steps %lld to %lld",
                        (long long)views->lowest,
                        (long long)views->furthest); /* fits */
    (void)ct_format(text, sizeof text,
                    "of %u ranks%s on %u nodes %u wait%s in a collective%s%s%s%s%s",
                    views->ranks, ct_failure_is_victim(failure) ? " seen" : "",
                    views->nodes, views->waiting, views->waiting == 1 ? "s" : "",
                    views->waiting > 0 ? " (" : "", views->text, more,
                    views->waiting > 0 ? ")" : "", steps);    /* fits */
    (void)ct_facts_add(&failure->facts, CT_FACT_WORLD, text); /* or no room */
}
