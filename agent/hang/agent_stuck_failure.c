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

_Static_assert(sizeof((struct ct_stuck_call *)0)->group == RECORDER_NAME_MAX,
               "names of groups are not cut");

static const struct worker *worker_at(const struct stuck_watch *watch, int index)
{
    return worker_group_worker(watch->agent->group, watch->local[index]);
}

static const struct stuck_mind *mind_at(const struct stuck_watch *watch, int index)
{
    return &watch->minds[watch->local[index]];
}

/* The call in which that rank waits, without those who wait there; op[0] 0: the recorder has none. */
static struct ct_stuck_call call_at(const struct stuck_watch *watch, int index)
{
    struct ct_stuck_call call = {0};
    const struct recorder_call *ours;

    if (watch->local[index] < 0)
        return watch->theirs;
    if (!watch->ranks[index].group)
        return call;
    ours = &mind_at(watch, index)->view.oldest;
    call.number = ours->number;
    (void)ct_copy(call.group, sizeof call.group, ours->group); /* all fit */
    (void)ct_copy(call.title, sizeof call.title, ours->title);
    (void)ct_copy(call.op, sizeof call.op, ours->op);
    (void)ct_copy(call.sizes, sizeof call.sizes, ours->sizes);
    return call;
}

/* "gloo:all_reduce 8 of default_pg"; "a collective" if the recorder has no call. */
static void format_call(char dst[WHAT_MAX_BYTES], const struct ct_stuck_call *call)
{
    (void)ct_copy(dst, WHAT_MAX_BYTES, "a collective");
    if (*call->op)
        (void)ct_format(dst, WHAT_MAX_BYTES, "%s %lld of %s", call->op,
                        (long long)call->number,
                        *call->title ? call->title : call->group); /* fits */
}

static bool is_in_same_call(const struct stuck_rank *a, const struct stuck_rank *b)
{
    if (a == b || !a->group || !b->group)
        return a->group == b->group;
    return *a->group && a->number == b->number && strcmp(a->group, b->group) == 0;
}

/* Adds to the call of rank `waiter` which ranks of this node wait in it, without `except`. */
static void add_ranks(struct ct_stuck_call *call, const struct stuck_watch *watch,
                      int count, int waiter, int except)
{
    int *list = ct_zalloc_array((size_t)count, sizeof *list);
    int found = 0;

    for (int i = 0; list && i < count; i++)
        if (i != except && watch->local[i] >= 0 && watch->ranks[i].waits &&
            is_in_same_call(&watch->ranks[i], &watch->ranks[waiter]))
            list[found++] = worker_at(watch, i)->rank;
    call->waiting = (uint32_t)found;
    if (list)
        rank_list_format(call->waiting_ranks, sizeof call->waiting_ranks, list, found);
    free(list);
}

/* "ranks 0-2 wait": ranks of this node in the call of `waiter`, or those that another node has
 * named; "ranks of other nodes wait" if there are none. Returns that call. */
static struct ct_stuck_call format_waiting(char dst[LIST_MAX_BYTES],
                                           const struct story *story, int waiter)
{
    struct ct_stuck_call call = call_at(story->watch, waiter);

    if (call.waiting == 0)
        add_ranks(&call, story->watch, story->count, waiter, story->report->suspect);
    if (call.waiting == 0)
        (void)ct_copy(dst, LIST_MAX_BYTES, "ranks of other nodes wait");
    else if (!*call.waiting_ranks)
        (void)ct_format(dst, LIST_MAX_BYTES, "%u ranks wait", call.waiting);
    else
        (void)ct_format(dst, LIST_MAX_BYTES, "rank%s %s wait%s",
                        call.waiting > 1 ? "s" : "", call.waiting_ranks,
                        call.waiting > 1 ? "" : "s");
    return call;
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
    struct ct_stuck_call awaited = format_waiting(waiting, story, report->waiter);

    format_call(call, &awaited);
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
        (void)ct_format(dst, CT_REASON_MAX, "%s, and %s in %s%s", format_free(story),
                        waiting, call, since);
        return;
    case STUCK_UNLIKE:
        (void)ct_format(
            dst, CT_REASON_MAX,
            "call %lld of its group is %s on this rank, and %s on rank %d%s",
            (long long)suspect->number, suspect->call, waiter->call,
            worker_at(watch, report->waiter)->rank, since);
        return;
    case STUCK_UNKNOWN:
        awaited = call_at(watch, report->suspect);
        format_call(call, &awaited);
        (void)ct_format(dst, CT_REASON_MAX, "it has waited %.1f s in %s", seconds,
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

/* Adds one fact for each call in which ranks of this node wait, with their place in the code, and one for the call that
 * another node has named. */
static void add_waiting(const struct story *story)
{
    const struct stuck_watch *watch = story->watch;
    char text[WHAT_MAX_BYTES], waiting[LIST_MAX_BYTES];

    for (int i = 0; i < story->count; i++) {
        const char *own = watch->local[i] < 0 ? "" : mind_at(watch, i)->place.own;
        struct ct_stuck_call call;
        int before = 0;

        if (i == story->report->suspect || !watch->ranks[i].waits ||
            (watch->local[i] < 0 && !watch->ranks[i].group))
            continue;
        while (before < i &&
               (before == story->report->suspect || !watch->ranks[before].waits ||
                !is_in_same_call(&watch->ranks[before], &watch->ranks[i])))
            before++;
        if (before < i && watch->local[i] >= 0)
            continue; /* added with rank `before` */
        call = format_waiting(waiting, story, i);
        format_call(text, &call);
        facts_add(story->failure, CT_FACT_SO, "%s in %s%s%s%s%s", waiting, text,
                  *call.sizes ? " " : "", call.sizes, *own ? ": " : "", own);
    }
}

/* The suspect waits in a call that the waiter has left already, and there the call had another name
 * or size. */
static void add_difference(const struct story *story)
{
    const struct stuck_report *report = story->report;
    const struct stuck_rank *suspect = &story->watch->ranks[report->suspect];
    const struct recorder_call *ours, *theirs;

    if (report->verdict != STUCK_MISSING || !suspect->waits || !suspect->group ||
        !*suspect->group)
        return;
    if (story->watch->local[report->waiter] < 0)
        return; /* what that node called before is not known */
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

void agent_stuck_fill_call(struct ct_failure *out, const struct stuck_watch *watch,
                           int count, const struct stuck_report *report)
{
    out->call[0] = call_at(watch, report->waiter);
    add_ranks(&out->call[0], watch, count, report->waiter, -1);
    out->call_count = *out->call[0].op != '\0';
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
    facts_add(out, CT_FACT_NOW,
              "the stacks of all ranks are saved, then the workers are stopped");
    agent_add_pause(out, agent, report->verdict == STUCK_UNKNOWN);
}
