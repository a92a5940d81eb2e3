/* SPDX-License-Identifier: Apache-2.0 */
/* The lines after the root cause: facts that its node has found, and the other ranks. */
#include "launcher/report/fact_label.h"
#include "launcher/report/summary.h"
#include "worker_sdk/base/str.h"

enum {
    RANKS_TEXT_MAX = 256
};

void summary_add_facts(struct messages_block *out, const struct ct_facts *facts)
{
    for (int i = 0; i < facts->count; i++) {
        const uint8_t key = facts->list[i].key;
        const bool goes_on = i > 0 && key == facts->list[i - 1].key &&
                             key == CT_FACT_MISSING;

        if (goes_on)
            messages_append(out, "%15s%s\n", "", ct_facts_text(facts, i));
        else
            messages_add(out, fact_label(key), "%s", ct_facts_text(facts, i));
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
        for (last = i; last + 1 < ranks->count && list[last + 1] <= list[last] + 1;)
            last++;
        if (list[last] == list[i])
            (void)ct_append(dst, size, "%s %d", i ? "," : "", list[i]);
        else
            (void)ct_append(dst, size, "%s %d-%d", i ? "," : "", list[i], list[last]);
    }
}

/* The same with those that are not listed: "ranks 0-14 and 113 more". */
static void format_all(char *dst, size_t size, struct ranks *ranks, uint32_t more)
{
    format_ranks(dst, size, ranks);
    if (more > 0 && ranks->count > 0)
        (void)ct_append(dst, size, " and %u more", more);
    else if (more > 0)
        (void)ct_format(dst, size, "%u rank%s", more, more > 1 ? "s" : "");
}

static void add_rank(struct ranks *ranks, const struct ct_failure *failure)
{
    if (failure->rank >= 0 && ranks->count < CT_FAILURES_MAX)
        ranks->list[ranks->count++] = failure->rank;
}

/* True for a rank of which it is known how much later it failed. */
static bool is_later(const struct ct_verdict *verdict, const struct ct_failure *failure)
{
    return failure->later_ms > 0 && failure->rank >= 0 &&
           failure->rank != verdict->failures[0].rank;
}

/* "rank 4 (node-b) failed 0.2 s later": one line for each node and time.
 * Quadratic in CT_FAILURES_MAX, which is 16. Times are compared as they are printed: equal
 * texts share a line. */
static void add_later(struct messages_block *out, const struct ct_verdict *verdict)
{
    bool is_listed[CT_FAILURES_MAX] = {false};

    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *first = &verdict->failures[i];
        struct ranks ranks = {0};
        char span[MESSAGES_SPAN_MAX], other[MESSAGES_SPAN_MAX], text[RANKS_TEXT_MAX];

        messages_format_span(span, first->later_ms);
        for (int k = i; k < verdict->failure_count && k < CT_FAILURES_MAX; k++) {
            const struct ct_failure *failure = &verdict->failures[k];

            messages_format_span(other, failure->later_ms);
            if (is_listed[k] || !is_later(verdict, failure) ||
                strcmp(other, span) != 0 || strcmp(failure->host, first->host) != 0)
                continue;
            is_listed[k] = true;
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
        if (*verdict->failures[i].host &&
            strcmp(verdict->failures[i].host, verdict->failures[0].host) != 0)
            return true;
    return false;
}

static void add_root(struct messages_block *out, const struct ct_failure *root)
{
    char what[256];

    messages_format_cause(what, sizeof what, root);
    messages_add(out, "root cause", "rank %d on %s %s", root->rank, root->host, what);
}

bool summary_is_stopped(const struct ct_verdict *verdict,
                        const struct ct_failure *failure)
{
    return failure->cause == CT_CAUSE_STOPPED && failure->end_code <= 0 &&
           failure->rank >= 0 && failure->rank != verdict->failures[0].rank;
}

void summary_format_stopped(char *dst, size_t size, const struct ct_verdict *verdict)
{
    struct ranks ranks = {0};
    char text[RANKS_TEXT_MAX];
    uint32_t total;

    dst[0] = '\0';
    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++)
        if (summary_is_stopped(verdict, &verdict->failures[i]))
            add_rank(&ranks, &verdict->failures[i]);
    if (ranks.count == 0)
        return;
    format_all(text, sizeof text, &ranks, verdict->more.stopped);
    total = (uint32_t)ranks.count + verdict->more.stopped;
    /* format_all() begins with "rank " or "ranks ", so that there is a blank to cut at */
    (void)ct_format(dst, size, "%u other rank%s stopped by ctrun: %s", total,
                    total == 1 ? " was" : "s were", strchr(text, ' ') + 1);
}

void summary_add_timeout(struct messages_block *out, const struct ct_verdict *verdict)
{
    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->cause != CT_CAUSE_JOIN_TIMEOUT)
            continue;
        messages_add(out, "after it", "no new round began: %s (RendezvousTimeoutError)",
                     failure->text);
        summary_add_facts(out, &failure->facts);
    }
}

void summary_add_others(struct messages_block *out, const struct ct_verdict *verdict)
{
    struct ranks stopped = {0}, failed = {0}, early = {0}, ended = {0};
    char stopped_text[RANKS_TEXT_MAX], failed_text[RANKS_TEXT_MAX],
        ended_text[RANKS_TEXT_MAX];

    for (int i = 1; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->rank >= 0 && failure->rank == verdict->failures[0].rank)
            continue; /* the root cause's rank, which we stopped afterwards */
        if (failure->rank < 0 && failure->cause == CT_CAUSE_UNKILLABLE)
            messages_add(out, "after it", "%s", failure->text);
        else if (failure->cause == CT_CAUSE_JOIN_TIMEOUT)
            continue; /* summary_add_timeout() prints it */
        else if (failure->rank < 0 && failure->host[0])
            messages_add(out, "after it", "node %s lost", failure->host);
        if (is_later(verdict, failure))
            continue; /* add_later() prints it */
        add_rank(failure->cause == CT_CAUSE_STOPPED ? &stopped
                 : failure->cause == CT_CAUSE_EARLY ? &early
                 : failure->cause == CT_CAUSE_ENDED ? &ended
                                                    : &failed,
                 failure);
    }
    if (has_other_hosts(verdict) && verdict->failures[0].rank >= 0)
        add_root(out, &verdict->failures[0]);
    format_all(stopped_text, sizeof stopped_text, &stopped, verdict->more.stopped);
    format_all(failed_text, sizeof failed_text, &failed, verdict->more.failed);
    format_ranks(ended_text, sizeof ended_text, &early);
    if (early.count)
        messages_add(out, "before it", "%s had ended with 0", ended_text);
    format_ranks(ended_text, sizeof ended_text, &ended);
    if (ended.count)
        messages_add(out, "also", "%s ended with 0, whether before it is not known",
                     ended_text);
    add_later(out, verdict);
    if (*stopped_text || *failed_text)
        messages_add(out, "after it", "%s%s%s%s%s", stopped_text,
                     *stopped_text ? " stopped by ctrun" : "",
                     *stopped_text && *failed_text ? "; " : "",
                     *failed_text ? "also failed: " : "", failed_text);
}
