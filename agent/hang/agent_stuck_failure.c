/* SPDX-License-Identifier: Apache-2.0 */
/* The failure report of a rank that is stuck and reports no steps: only what was seen. */
#include "agent/hang/agent_stuck.h"

#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/facts.h"
#include "agent/postmortem/unkillable.h"
#include "agent/watch/rank_list.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

enum {
    LIST_MAX_BYTES = 128,
    WHAT_MAX_BYTES = 2 * RECORDER_NAME_MAX + 48
};

/* Arguments of agent_stuck_fill(); all pointers are borrowed for that call. */
struct story {
    struct ct_failure *failure;
    const struct stuck_watch *watch;
    const struct stuck_report *report;
    int count; /* of watch->ranks */
};

static const struct worker *worker_at(const struct stuck_watch *watch, int index)
{
    return worker_group_worker(watch->agent->group, watch->local[index]);
}

static const struct stuck_mind *mind_at(const struct stuck_watch *watch, int index)
{
    return &watch->minds[watch->local[index]];
}

/* "gloo:all_reduce 8 of default_pg"; "a collective" if the recorder has no call. */
static void format_call(char dst[WHAT_MAX_BYTES], const struct story *story, int index)
{
    const struct recorder_call *call;

    (void)ct_copy(dst, WHAT_MAX_BYTES, "a collective");
    if (story->watch->local[index] < 0 || !story->watch->ranks[index].group)
        return;
    call = &mind_at(story->watch, index)->view.oldest;
    (void)ct_format(dst, WHAT_MAX_BYTES, "%s %lld of %s", call->op,
                    (long long)call->number,
                    *call->title ? call->title : call->group); /* fits */
}

static bool is_in_same_call(const struct stuck_rank *a, const struct stuck_rank *b)
{
    if (!a->group || !b->group)
        return a->group == b->group;
    return a->number == b->number && strcmp(a->group, b->group) == 0;
}

/* "ranks 0-2 wait": ranks of this node in the same call as `waiter`; "ranks of other nodes wait" if
 * there are none. Returns how many. */
static int format_waiting(char dst[LIST_MAX_BYTES], const struct story *story,
                          int waiter)
{
    const struct stuck_watch *watch = story->watch;
    int *list = ct_zalloc_array((size_t)story->count, sizeof *list);
    char ranks[LIST_MAX_BYTES / 2] = "";
    int found = 0;

    for (int i = 0; list && i < story->count; i++)
        if (i != story->report->suspect && watch->local[i] >= 0 &&
            watch->ranks[i].waits &&
            is_in_same_call(&watch->ranks[i], &watch->ranks[waiter]))
            list[found++] = worker_at(watch, i)->rank;
    if (list)
        rank_list_format(ranks, sizeof ranks, list, found);
    free(list);
    if (found == 0)
        (void)ct_copy(dst, LIST_MAX_BYTES, "ranks of other nodes wait");
    else if (!*ranks)
        (void)ct_format(dst, LIST_MAX_BYTES, "%d ranks wait", found);
    else
        (void)ct_format(dst, LIST_MAX_BYTES, "rank%s %s wait%s", found > 1 ? "s" : "",
                        ranks, found > 1 ? "" : "s");
    return found;
}

/* ---- The first line ---------------------------------------------------------------------- */

#define STOPPED "it is stopped (state T)"

/* What is known of a suspect that waits for no other rank. */
static const char *format_free(const struct story *story)
{
    const struct stuck_mind *mind = mind_at(story->watch, story->report->suspect);

    if (story->report->doubt == HANG_STOPPED)
        return STOPPED;
    return mind->answers || *mind->place.own ? "it is in no collective"
                                             : "its stack cannot be read";
}

static void fill_text(const struct story *story)
{
    const struct stuck_watch *watch = story->watch;
    const struct stuck_report *report = story->report;
    const struct stuck_rank *suspect = &watch->ranks[report->suspect];
    const struct stuck_rank *waiter = &watch->ranks[report->waiter];
    const double seconds = (double)(ct_now_ms() - waiter->since_ms) / 1000;
    char *dst = story->failure->text;
    char call[WHAT_MAX_BYTES], waiting[LIST_MAX_BYTES], since[48] = "";

    format_call(call, story, report->waiter);
    (void)format_waiting(waiting, story, report->waiter);
    if (watch->local[report->waiter] >= 0)
        (void)ct_format(since, sizeof since, " (rank %d has waited %.1f s)",
                        worker_at(watch, report->waiter)->rank, seconds);
    switch (report->verdict) {
    case STUCK_MISSING:
        (void)ct_format(dst, CT_REASON_MAX, "%s has not entered %s, in which %s%s",
                        report->doubt == HANG_STOPPED ? STOPPED " and" : "it", call,
                        waiting, since);
        return;
    case STUCK_FREE:
        (void)ct_format(
            dst, CT_REASON_MAX, "%s, and %s in %s%s", format_free(story), waiting,
            watch->local[report->waiter] >= 0 ? call : "a collective", since);
        return;
    case STUCK_UNLIKE:
        (void)ct_format(
            dst, CT_REASON_MAX,
            "call %lld of its group is %s on this rank, and %s on rank %d%s",
            (long long)suspect->number, suspect->call, waiter->call,
            worker_at(watch, report->waiter)->rank, since);
        return;
    case STUCK_UNKNOWN:
        format_call(call, story, report->suspect);
        (void)ct_format(
            dst, CT_REASON_MAX,
            "it has waited %.1f s in %s, and it is not known for which rank", seconds,
            call);
        return;
    }
}

/* ---- What else was seen ------------------------------------------------------------------ */

static void add_place(const struct story *story)
{
    const struct worker *worker = worker_at(story->watch, story->report->suspect);
    const struct live_place *place =
        &mind_at(story->watch, story->report->suspect)->place;
    char where[UNKILLABLE_WHERE_MAX], path[PATH_MAX];

    if (*place->own)
        facts_add(story->failure, CT_FACT_IS_IN, "%s", place->own);
    if (*place->inner && strcmp(place->inner, place->own) != 0)
        facts_add(story->failure, CT_FACT_IS_IN, "%s", place->inner);
    unkillable_describe_stuck(where, worker->pid);
    if (agent_make_evidence_path(path, sizeof path, worker, "stack.txt"))
        facts_add(story->failure, CT_FACT_IS_IN, "%s (stack: %s)", where, path);
    else
        facts_add(story->failure, CT_FACT_IS_IN, "%s", where);
}

/* Adds one fact for each call in which ranks of this node wait, with their place in the code. */
static void add_waiting(const struct story *story)
{
    const struct stuck_watch *watch = story->watch;
    char call[WHAT_MAX_BYTES], waiting[LIST_MAX_BYTES];

    for (int i = 0; i < story->count; i++) {
        int before = 0;

        if (i == story->report->suspect || watch->local[i] < 0 ||
            !watch->ranks[i].waits)
            continue;
        while (before < i &&
               (before == story->report->suspect || watch->local[before] < 0 ||
                !watch->ranks[before].waits ||
                !is_in_same_call(&watch->ranks[before], &watch->ranks[i])))
            before++;
        if (before < i)
            continue; /* added with rank `before` */
        format_call(call, story, i);
        (void)format_waiting(waiting, story, i);
        facts_add(
            story->failure, CT_FACT_SO, "%s in %s%s%s%s%s", waiting, call,
            watch->ranks[i].group && *mind_at(watch, i)->view.oldest.sizes ? " " : "",
            watch->ranks[i].group ? mind_at(watch, i)->view.oldest.sizes : "",
            *mind_at(watch, i)->place.own ? ": " : "", mind_at(watch, i)->place.own);
    }
}

/* The suspect waits in a call that the waiter has left already, and there the call had another name
 * or size. */
static void add_difference(const struct story *story)
{
    const struct stuck_report *report = story->report;
    const struct stuck_rank *suspect = &story->watch->ranks[report->suspect];
    const struct recorder_call *ours, *theirs;

    if (report->verdict != STUCK_MISSING || !suspect->waits || !suspect->group)
        return;
    ours = &mind_at(story->watch, report->suspect)->view.oldest;
    theirs = recorder_view_recent(&mind_at(story->watch, report->waiter)->view,
                                  suspect->group, suspect->number);
    if (theirs &&
        (strcmp(ours->op, theirs->op) != 0 || strcmp(ours->sizes, theirs->sizes) != 0))
        facts_add(
            story->failure, CT_FACT_SO,
            "call %lld of that group is %s %s on this rank, and was %s %s on rank %d",
            (long long)suspect->number, ours->op, ours->sizes, theirs->op,
            theirs->sizes, worker_at(story->watch, report->waiter)->rank);
}

/* The suspect's last call, and how many ranks are in the same situation. */
static void add_suspect(const struct story *story)
{
    const struct stuck_report *report = story->report;

    if (report->verdict == STUCK_MISSING)
        facts_add(story->failure, CT_FACT_SO, "its last call in that group was %lld",
                  (long long)report->entered);
    add_difference(story);
    if (report->alike > 1 && report->verdict == STUCK_MISSING)
        facts_add(story->failure, CT_FACT_SO,
                  "%d other rank%s of this node %s not entered it either",
                  report->alike - 1, report->alike > 2 ? "s" : "",
                  report->alike > 2 ? "have" : "has");
    if (report->alike > 1 && report->verdict == STUCK_FREE)
        facts_add(
            story->failure, CT_FACT_SO,
            "%d ranks of this node are not seen in a collective: it is not known which "
            "of them the others wait for",
            report->alike);
    if (report->verdict == STUCK_UNLIKE)
        facts_add(
            story->failure, CT_FACT_SO,
            "the calls do not match: compare the lines of the scripts in stack.txt");
}

/* Workers that ended with 0: a worker that failed would have stopped the others before. */
static void add_ended(const struct story *story)
{
    const struct worker_group *group = story->watch->agent->group;
    const int count = worker_group_count(group);
    int *list = ct_zalloc_array((size_t)count, sizeof *list);
    char ranks[LIST_MAX_BYTES] = "";
    int found = 0;

    for (int i = 0; list && i < count; i++)
        if (worker_group_worker(group, i)->state == WORKER_ENDED)
            list[found++] = worker_group_worker(group, i)->rank;
    if (list)
        rank_list_format(ranks, sizeof ranks, list, found);
    if (*ranks)
        facts_add(story->failure, CT_FACT_SO, "ended with 0 before: rank%s %s",
                  found > 1 ? "s" : "", ranks);
    free(list);
}

void agent_stuck_fill(struct ct_failure *out, const struct stuck_watch *watch,
                      int count, const struct stuck_report *report)
{
    const struct agent *agent = watch->agent;
    const struct story story = {
        .failure = out, .watch = watch, .report = report, .count = count};

    agent_begin_hang(out, agent, worker_at(watch, report->suspect));
    fill_text(&story);
    add_place(&story);
    add_suspect(&story);
    add_waiting(&story);
    add_ended(&story);
    facts_add(out, CT_FACT_NOW,
              "the stacks of all ranks are saved, then the workers are stopped");
    facts_add(out, CT_FACT_DO,
              "look at that stack; --hang-timeout %llu if this pause is normal",
              (unsigned long long)(agent->options->hang_timeout_ms / 1000 * 3));
}
