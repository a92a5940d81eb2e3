/* SPDX-License-Identifier: Apache-2.0 */
/* A rank has ended because it waited for another one, and no rank is seen to have ended before: where the other ranks
 * of this node are, before they are stopped. Only what was seen is said.
 *
 *     look ──> stacks into a file ──> TIMEOUT_PAUSE_MS after the first look: look again ──> facts, warnings, event
 *
 * Ranks in the same collective lose the first rank, and end between the looks. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "agent/guard/fence.h"
#include "agent/loop/blocking_call.h"
#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/watch/live_state.h"
#include "agent/watch/rank_list.h"
#include "agent/watch/stack_text.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

enum {
    NAMED_MAX = 4, /* the others are in the file */
    REPORT_MAX = LIVE_PLACE_MAX + LIVE_STATE_MAX + 64
};

enum seen_what {
    SEEN_NOTHING, /* it has ended, is no Python, or was at work and waited */
    SEEN_WAITS,
    SEEN_OUTSIDE, /* of any collective, by its C frames, too */
    SEEN_SOMEWHERE /* in a backward pass, or for its GPU, or its C frames are not known */
};

struct seen {
    enum seen_what what;
    enum stack_text frames;
};

struct timeout_look {
    struct agent *agent;
    const struct ct_failure *failure;
    struct ct_failure *own; /* gets facts; NULL: the rank is of another node */
    uint64_t deadline_ms;
    int count;
    struct agent_place *before, *after;
    struct seen *seen;
    char path[PATH_MAX]; /* of the stacks; empty: not saved */
};

/* ---- Looks --------------------------------------------------------------------------- */

static bool begin(struct timeout_look *look)
{
    const struct worker_group *group = look->agent->group;
    const size_t most = (size_t)worker_group_count(group);

    look->before = ct_zalloc_array(most, sizeof *look->before);
    look->after = ct_zalloc_array(most, sizeof *look->after);
    look->seen = ct_zalloc_array(most, sizeof *look->seen);
    for (size_t i = 0; look->before && look->after && look->seen && i < most; i++) {
        const struct worker *worker = worker_group_worker(group, (int)i);

        if (worker->state == WORKER_RUNNING && !worker->is_new)
            look->before[look->count++] = (struct agent_place){.rank = worker->rank,
                                                               .pid = worker->pid};
    }
    if (look->count > 0)
        memcpy(look->after, look->before, (size_t)look->count * sizeof *look->after);
    return look->count > 0;
}

static void end(struct timeout_look *look)
{
    free(look->before);
    free(look->after);
    free(look->seen);
}

struct file_job {
    struct ct_buf text;
    char path[PATH_MAX];
    int rc;
};

static void write_file(void *context)
{
    struct file_job *job = context;

    job->rc = agent_write_evidence(job->path, &job->text);
}

static void free_file(void *context)
{
    struct file_job *job = context;

    ct_buf_deinit(&job->text);
    free(job);
}

/* Leaves time for the second look. */
static uint64_t share_ms(const struct timeout_look *look)
{
    const int left_ms = ct_left_ms(look->deadline_ms) - TIMEOUT_PAUSE_MS;

    return left_ms > 0 ? (uint64_t)left_ms : 0;
}

static void save(struct timeout_look *look, struct file_job *job)
{
    if (!agent_make_round_path(job->path, sizeof job->path, look->agent, "stacks",
                               "txt")) {
        free_file(job);
        return;
    }
    if (blocking_call(write_file, free_file, job, share_ms(look)) < 0)
        return; /* the thread owns it */
    if (job->rc == 0)
        (void)ct_copy(look->path, sizeof look->path, job->path); /* same size */
    free_file(job);
}

static void take_stacks(struct timeout_look *look)
{
    struct file_job *job = ct_zalloc(sizeof *job);
    struct ctrun_error err;

    if (!job)
        return;
    ct_buf_init(&job->text, STACKS_TEXT_MAX_BYTES);
    if (agent_write_stacks(look->agent, -1, share_ms(look), &job->text, &err) <= 0) {
        free_file(job);
        return;
    }
    for (int i = 0; i < look->count; i++)
        look->seen[i].frames = stack_text_judge((const char *)ct_buf_data(&job->text),
                                                ct_buf_length(&job->text),
                                                look->before[i].rank);
    save(look, job);
}

/* Both looks have to agree. */
static void judge(struct seen *seen, const struct live_place *before,
                  const struct live_place *after)
{
    if (!*before->own || !*after->own || before->meets != after->meets)
        return;
    if (before->meets || seen->frames == STACK_TEXT_WAITS)
        seen->what = SEEN_WAITS;
    else if (before->is_backward || after->is_backward ||
             seen->frames != STACK_TEXT_FREE)
        seen->what = SEEN_SOMEWHERE;
    else
        seen->what = SEEN_OUTSIDE;
}

static void look_twice(struct timeout_look *look)
{
    const uint64_t again_ms = ct_deadline_ms(TIMEOUT_PAUSE_MS);

    if (!agent_find_places(look->before, look->count, 0,
                           (uint64_t)ct_left_ms(look->deadline_ms)))
        return;
    take_stacks(look);
    if (!agent_has_one_role(look->agent))
        return; /* ranks of another role may be in no collective at all */
    if (agent_find_places(look->after, look->count, again_ms,
                          (uint64_t)ct_left_ms(look->deadline_ms)))
        for (int i = 0; i < look->count; i++)
            judge(&look->seen[i], &look->before[i].at, &look->after[i].at);
}

/* ---- What is said -------------------------------------------------------------------- */

/* A report with facts is printed only if no restart follows. */
__attribute__((format(printf, 3, 4))) static void
report(const struct timeout_look *look, bool warns, const char *fmt, ...)
{
    char text[REPORT_MAX + PATH_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* cut is fine */
    va_end(args);
    if (look->own)
        facts_add(look->own, CT_FACT_SO, "%s", text);
    if (warns || !look->own)
        ct_warn("when rank %d had ended, %s", look->failure->rank, text);
}

/* The ranks of which that was seen; returns how many. */
static int list_seen(const struct timeout_look *look, enum seen_what what, char *dst,
                     size_t size)
{
    int *list = ct_zalloc_array((size_t)look->count, sizeof *list);
    int found = 0;

    for (int i = 0; list && i < look->count; i++)
        if (look->seen[i].what == what)
            list[found++] = look->before[i].rank;
    rank_list_format(dst, size, list, found);
    free(list);
    return found;
}

static void report_places(const struct timeout_look *look)
{
    int named = 0;

    for (int i = 0; i < look->count && named < NAMED_MAX; i++) {
        const struct agent_place *place = &look->after[i];
        const enum seen_what what = look->seen[i].what;
        char state[LIVE_STATE_MAX];

        if (what != SEEN_OUTSIDE && what != SEEN_SOMEWHERE)
            continue;
        named++;
        live_state_format(state, place->pid, (uint64_t)place->pid);
        report(look, true, "rank %d was in %s%s, %s", place->rank,
               what == SEEN_OUTSIDE ? "no collective: " : "", place->at.own, state);
    }
}

static void report_all(struct timeout_look *look)
{
    struct ct_hang_view *view = &look->agent->timeout_view;
    char outside[256], somewhere[256];

    *view = (struct ct_hang_view){.lowest = -1, .furthest = -1};
    for (int i = 0; i < look->count; i++)
        view->ranks += look->seen[i].what != SEEN_NOTHING;
    view->waiting = (uint32_t)list_seen(look, SEEN_WAITS, view->waiting_ranks,
                                        sizeof view->waiting_ranks);
    (void)list_seen(look, SEEN_OUTSIDE, outside, sizeof outside);
    (void)list_seen(look, SEEN_SOMEWHERE, somewhere, sizeof somewhere);
    report_places(look);
    if (*view->waiting_ranks)
        report(look, false, "rank%s %s waited in a collective",
               view->waiting > 1 ? "s" : "", view->waiting_ranks);
    if (*look->path)
        report(look, false,
               "the ranks of this node that still ran had these stacks: %s",
               look->path);
    ct_event_emit("others_seen", CT_INT("generation", look->agent->start.generation),
                  CT_INT("rank", look->failure->rank), CT_INT("running", look->count),
                  CT_STR("outside", outside), CT_STR("somewhere", somewhere),
                  CT_STR("waiting", view->waiting_ranks), CT_STR("path", look->path));
}

/* True after a time-out; and where a connection to another rank broke, if this node has all ranks: none that ended before
 * is the cause, so the other one is about to end, of a time-out perhaps. */
static bool is_of_one_that_runs(const struct agent *agent,
                                const struct ct_failure *failure)
{
    const enum failure_victim victim = failure_hints_victim(failure);

    return victim == FAILURE_OF_DELAY ||
           (victim == FAILURE_OF_END && agent->start.group_world_size == 1);
}

void agent_look_after_timeout(struct agent *agent, const struct ct_failure *failure,
                              struct ct_failure *own)
{
    struct timeout_look look = {.agent = agent,
                                .failure = failure,
                                .own = own,
                                .deadline_ms = ct_deadline_ms(TIMEOUT_LOOK_MS)};
    const uint64_t fence_ms = ct_now_ms() + (uint64_t)ct_left_ms(fence_next_ms()) / 2;

    if (fence_ms < look.deadline_ms)
        look.deadline_ms = fence_ms; /* the lease is renewed by this thread */

    if (agent->state != AGENT_RUNNING || agent->drained_by != 0 ||
        !is_of_one_that_runs(agent, failure))
        return;
    if (begin(&look)) {
        look_twice(&look);
        report_all(&look);
    }
    end(&look);
}
