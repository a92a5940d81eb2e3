/* SPDX-License-Identifier: Apache-2.0 */
/* What goes with the root cause: facts that its node has found out, and the other ranks. */
#include <stdlib.h>

#include "launcher/summary.h"
#include "worker_sdk/base/str.h"

enum {
    LABEL_MAX = 16,
    RANKS_TEXT_MAX = 256
};

void summary_add_facts(struct messages_block *out, const struct ct_failure *failure)
{
    const char *at = failure->facts;

    while (*at) {
        const size_t line = strcspn(at, "\n");
        const size_t label = strcspn(at, "\t\n");
        char name[LABEL_MAX];

        (void)ct_format(name, sizeof name, "%.*s",
                        (int)(label < LABEL_MAX ? label : LABEL_MAX - 1), at);
        if (label < line)
            messages_add(out, name, "%.*s", (int)(line - label - 1), at + label + 1);
        at += line + (at[line] == '\n');
    }
}

/* ---- Ranks --------------------------------------------------------------------------- */

struct ranks {
    int list[CT_FAILURES_MAX];
    int count;
};

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* "rank 2", "ranks 0-3, 5"; empty for none. */
static void format_ranks(char *dst, size_t size, struct ranks *ranks)
{
    const int *list = ranks->list;

    qsort(ranks->list, (size_t)ranks->count, sizeof *ranks->list, compare);
    (void)ct_copy(dst, size,
                  ranks->count == 0   ? ""
                  : ranks->count == 1 ? "rank"
                                      : "ranks");
    for (int i = 0, last; i < ranks->count; i = last + 1) {
        const size_t used = strlen(dst);

        for (last = i; last + 1 < ranks->count && list[last + 1] <= list[last] + 1;)
            last++;
        if (list[last] == list[i])
            (void)ct_format(dst + used, size - used, "%s %d", i ? "," : "", list[i]);
        else
            (void)ct_format(dst + used, size - used, "%s %d-%d", i ? "," : "", list[i],
                            list[last]);
    }
}

static void add_rank(struct ranks *ranks, const struct ct_failure *failure)
{
    if (failure->rank >= 0 && ranks->count < CT_FAILURES_MAX)
        ranks->list[ranks->count++] = failure->rank;
}

/* Of whom it is known how much later it failed. */
static bool is_later(const struct ct_verdict *verdict, const struct ct_failure *failure)
{
    return failure->later_ms > 0 && failure->rank >= 0 &&
           failure->rank != verdict->failures[0].rank;
}

/* "rank 4 (node-b) failed 0.2 s later": one line for each node and time. */
static void add_later(struct messages_block *out, const struct ct_verdict *verdict)
{
    bool is_told[CT_FAILURES_MAX] = {false};

    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *first = &verdict->failures[i];
        struct ranks ranks = {0};
        char span[MESSAGES_SPAN_MAX], other[MESSAGES_SPAN_MAX], text[RANKS_TEXT_MAX];

        messages_format_span(span, first->later_ms);
        for (int k = i; k < verdict->failure_count && k < CT_FAILURES_MAX; k++) {
            const struct ct_failure *failure = &verdict->failures[k];

            messages_format_span(other, failure->later_ms);
            if (is_told[k] || !is_later(verdict, failure) || strcmp(other, span) != 0 ||
                strcmp(failure->host, first->host) != 0)
                continue;
            is_told[k] = true;
            add_rank(&ranks, failure);
        }
        format_ranks(text, sizeof text, &ranks);
        if (ranks.count > 0)
            messages_add(out, "after it", "%s (%s) failed %s later", text, first->host,
                         span);
    }
}

static bool has_other_hosts(const struct ct_verdict *verdict)
{
    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++)
        if (strcmp(verdict->failures[i].host, verdict->failures[0].host) != 0)
            return true;
    return false;
}

static void add_root(struct messages_block *out, const struct ct_failure *root)
{
    char what[256];

    messages_format_cause(what, sizeof what, root);
    messages_add(out, "root cause", "rank %d on %s %s", root->rank, root->host, what);
}

void summary_add_others(struct messages_block *out, const struct ct_verdict *verdict)
{
    struct ranks stopped = {0}, failed = {0}, early = {0};
    char stopped_text[RANKS_TEXT_MAX], failed_text[RANKS_TEXT_MAX],
        early_text[RANKS_TEXT_MAX];

    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->rank >= 0 && failure->rank == verdict->failures[0].rank)
            continue; /* the root cause, whom we stopped afterwards */
        if (failure->rank < 0 && failure->host[0])
            messages_add(out, "after it", "node %s lost", failure->host);
        if (is_later(verdict, failure))
            continue; /* has a line of its own */
        add_rank(failure->cause == CT_CAUSE_STOPPED ? &stopped
                 : failure->cause == CT_CAUSE_EARLY ? &early
                                                    : &failed,
                 failure);
    }
    if (has_other_hosts(verdict) && verdict->failures[0].rank >= 0)
        add_root(out, &verdict->failures[0]);
    format_ranks(stopped_text, sizeof stopped_text, &stopped);
    format_ranks(failed_text, sizeof failed_text, &failed);
    format_ranks(early_text, sizeof early_text, &early);
    if (early.count)
        messages_add(out, "before it", "%s had ended with 0", early_text);
    add_later(out, verdict);
    if (stopped.count || failed.count)
        messages_add(out, "after it", "%s%s%s%s%s", stopped_text,
                     stopped.count ? " stopped by ctrun" : "",
                     stopped.count && failed.count ? "; " : "",
                     failed.count ? "also failed: " : "", failed_text);
}
