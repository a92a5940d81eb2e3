/* SPDX-License-Identifier: Apache-2.0 */
/* The works of a group: background calls wait in a queue; the messages at its head continue at the
 * same time.
 *
 * With an in-line back end (shared memory) the caller's own thread continues the head of the queue
 * whenever it starts a call or waits: while all cores compute, another thread would only take time
 * from them. A helper thread continues it once the program has made no call for GRACE_MS. The
 * helper never waits for other members inside the back end: it tries, and then sleeps until one of
 * them has done something. Over the network a thread runs the queue and sleeps in poll() most of the
 * time. */
#include <errno.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/thread.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/comm/group_private.h"

enum {
    GRACE_MS = 2, /* a program that calls again sooner continues its works itself */
};

/* ---- The works at the head -------------------------------------------------------------- */

/* is_done is stored last: a reader that sees it may free the work at once. */
static void finish_work(struct ctrun_work *work, int rc)
{
    ct_list_remove(&work->node);
    ct_flight_end(work->call.flight, rc < 0 ? rc : 0);
    work->result = rc < 0 ? rc : 0;
    work->is_done = true;
}

/* The queue must not be empty. */
static struct ctrun_work *head_of(struct ctrun_group *group)
{
    return ct_list_entry(group->queue.next, struct ctrun_work, node);
}

/* Links the messages at the head of the queue: they continue at the same time. */
static struct ct_call *link_messages(struct ctrun_group *group)
{
    struct ct_call *first = NULL;
    struct ct_call **end = &first;

    ct_list_for_each(struct ctrun_work, ctrun_work, &group->queue, node) {
        struct ct_call *call = &ctrun_work->call;
        if (!ct_call_is_p2p(call))
            break;
        call->next = NULL;
        *end = call;
        end = &call->next;
    }
    return first;
}

/* The first message that is not complete gets the reason, which is with the head. The others fail
 * when their turn comes, because the group has failed. */
static void fail_message(struct ctrun_group *group, int rc)
{
    const struct ctrun_work *head = head_of(group);

    ct_list_for_each_safe(struct ctrun_work, work, &group->queue, node) {
        if (!ct_call_is_p2p(&work->call))
            return;
        if (work->call.is_complete)
            continue;
        if (work != head)
            work->err = head->err;
        finish_work(work, rc);
        return;
    }
}

/* Finishes works after a move of the messages at the head. */
static void finish_messages(struct ctrun_group *group, int rc)
{
    if (rc < 0)
        fail_message(group, rc);
    ct_list_for_each_safe(struct ctrun_work, work, &group->queue, node) {
        if (!ct_call_is_p2p(&work->call))
            break;
        if (work->call.is_complete)
            finish_work(work, 0);
    }
}

/* In-line: continues the head. With `wait` it waits until a work is done. */
static void advance_head(struct ctrun_group *group, bool wait)
{
    struct ctrun_work *work = head_of(group);
    int rc = 0;

    if (ct_call_is_p2p(&work->call)) {
        finish_messages(group, group->backend->move(group->self, link_messages(group),
                                                    wait, &work->err));
        return;
    }
    if (!work->has_begun)
        rc = group->backend->begin(group->self, &work->call, &work->err);
    work->has_begun = true;
    if (rc == 0)
        rc = group->backend->advance(group->self, wait, &work->err);
    if (rc != 0)
        finish_work(work, rc);
}

/* In-line: continues the queue without waiting, until the head does not change. `head` is compared,
 * not dereferenced: that work may be done and freed by its owner. */
static void advance_queue(struct ctrun_group *group)
{
    const struct ct_list *head;

    do {
        if (ct_list_is_empty(&group->queue))
            return;
        head = group->queue.next;
        advance_head(group, false);
    } while (group->queue.next != head);
}

/* Lock held, but not while a call runs, so that works can be added meanwhile. The head stays in the
 * queue until it is done, so that the queue does not look empty before. */
static void run_head(struct ctrun_group *group)
{
    struct ctrun_work *work = head_of(group);
    struct ct_call *messages = link_messages(group);
    int rc;

    pthread_mutex_unlock(&group->lock);
    if (messages)
        rc = group->backend->move(group->self, messages, true, &work->err);
    else
        rc = group->backend->run(group->self, &work->call, &work->err);
    pthread_mutex_lock(&group->lock);
    if (messages)
        finish_messages(group, rc);
    else
        finish_work(work, rc);
    pthread_cond_broadcast(&group->changed);
}

/* Ends between two works, never inside one: ct_group_stop() aborts the work that runs. */
static void *run_queue(void *context)
{
    struct ctrun_group *group = context;

    pthread_mutex_lock(&group->lock);
    while (!group->is_closing) {
        if (ct_list_is_empty(&group->queue))
            pthread_cond_wait(&group->changed, &group->lock);
        else
            run_head(group);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

static int start_thread(struct ctrun_group *group)
{
    const int rc = ct_thread_start(&group->thread, run_queue, group);

    group->has_thread = rc == 0;
    return rc;
}

/* ---- The helper of an in-line back end -------------------------------------------------- */

static uint64_t grace_end_ms(const struct ctrun_group *group)
{
    return atomic_load(&group->left_ms) + GRACE_MS;
}

/* Sleeps while there are no works or the program has just called. False: the group closes. */
static bool await_works(struct ctrun_group *group)
{
    uint64_t end_ms;
    bool is_open;

    pthread_mutex_lock(&group->lock);
    while (!group->is_closing &&
           (!group->has_works || ct_now_ms() < grace_end_ms(group))) {
        end_ms = grace_end_ms(group);
        if (group->has_works)
            (void)ct_cond_wait(&group->changed, &group->lock, end_ms);
        else
            pthread_cond_wait(&group->changed, &group->lock);
    }
    is_open = !group->is_closing;
    pthread_mutex_unlock(&group->lock);
    return is_open;
}

/* Sleeps on `turn` while the program is inside a call, which then continues the works itself. */
static void help(struct ctrun_group *group)
{
    bool is_left;
    uint32_t bell;

    pthread_mutex_lock(&group->turn);
    if (ct_now_ms() < grace_end_ms(group)) {
        pthread_mutex_unlock(&group->turn);
        return;
    }
    bell = group->backend->arm(group->self);
    advance_queue(group);
    is_left = !ct_list_is_empty(&group->queue);
    pthread_mutex_lock(&group->lock);
    group->has_works = is_left;
    pthread_mutex_unlock(&group->lock);
    pthread_mutex_unlock(&group->turn);
    group->backend->rest(group->self, bell, is_left);
}

static void *run_helper(void *context)
{
    struct ctrun_group *group = context;

    while (await_works(group))
        help(group);
    return NULL;
}

/* Works are left in the queue. The first time the caller takes the turn that ct_group_leave() gives
 * back. Without memory for a thread they continue in the program's calls only, and the next call
 * tries again. */
static void wake_helper(struct ctrun_group *group)
{
    int rc;

    if (!group->has_helper) {
        if ((rc = ct_thread_start(&group->thread, run_helper, group)) < 0) {
            if (!group->lacks_helper)
                ct_warn(
                    "background calls continue only while this process is in a call: "
                    "start a thread: %s",
                    strerror(-rc));
            group->lacks_helper = true;
            return;
        }
        pthread_mutex_lock(&group->turn);
        group->has_helper = true;
    }
    pthread_mutex_lock(&group->lock);
    if (!group->has_works)
        pthread_cond_signal(&group->changed);
    group->has_works = true;
    pthread_mutex_unlock(&group->lock);
}

/* ---- For the calls ---------------------------------------------------------------------- */

/* With a thread the work may be done before this returns; the waiting caller frees it, never the
 * thread. */
int ct_queue_add(struct ctrun_group *group, struct ctrun_work *work,
                 struct ctrun_error *err)
{
    bool is_inline = group->backend->is_inline(group->self);
    int rc;

    if (!is_inline && !group->has_thread && (rc = start_thread(group)) < 0)
        return ct_fail(err, rc, "%s: start a thread: %s", ct_call_name(work->call.kind),
                       strerror(-rc));
    pthread_mutex_lock(&group->lock);
    ct_list_add(&group->queue, &work->node);
    /* the thread adds it to its messages */
    if (!is_inline && ct_call_is_p2p(&work->call))
        group->backend->nudge(group->self);
    if (!is_inline)
        pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    if (!is_inline)
        return 0;
    advance_queue(group);
    if (!ct_list_is_empty(&group->queue))
        wake_helper(group);
    return 0;
}

void ct_queue_try(struct ctrun_group *group)
{
    if (!group->has_thread)
        advance_queue(group);
}

/* With a thread, only the thread takes works out of the queue. */
void ct_group_drain(struct ctrun_group *group)
{
    if (!group->has_thread) {
        while (!ct_list_is_empty(&group->queue))
            advance_head(group, true);
        return;
    }
    pthread_mutex_lock(&group->lock);
    while (!ct_list_is_empty(&group->queue))
        pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
}

/* The helper is never inside a wait for a peer, so it ends at once. */
static void stop_helper(struct ctrun_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->is_closing = true;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    group->backend->nudge(group->self); /* it may rest */
    pthread_join(group->thread, NULL);
}

/* Works in the queue fail with CTRUN_E_ABORTED; their owners still wait for them, and need the
 * group no more for that. */
void ct_group_stop(struct ctrun_group *group)
{
    if (group->has_thread) {
        pthread_mutex_lock(&group->lock);
        group->is_closing = true;
        if (!ct_list_is_empty(&group->queue)) /* the thread may be waiting for a peer */
            ct_group_abort(group, "closed the group before its works were done");
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->lock);
        pthread_join(group->thread, NULL);
    }
    if (group->has_helper)
        stop_helper(group);
    while (!ct_list_is_empty(&group->queue)) {
        struct ctrun_work *work = head_of(group);
        finish_work(work, ct_fail(&work->err, CTRUN_E_ABORTED,
                                  "the group was closed before this work was done"));
    }
}

void ct_queue_finish(struct ctrun_group *group, struct ctrun_work *work)
{
    if (group->has_thread) {
        pthread_mutex_lock(&group->lock);
        while (!work->is_done)
            pthread_cond_wait(&group->changed, &group->lock);
        pthread_mutex_unlock(&group->lock);
        return;
    }
    while (!work->is_done)
        advance_head(group, true);
    advance_queue(group);
}

/* The thread may empty the queue meanwhile, but only a caller inside the group adds to it. */
bool ct_queue_is_empty(struct ctrun_group *group)
{
    bool is_empty;

    pthread_mutex_lock(&group->lock);
    is_empty = ct_list_is_empty(&group->queue);
    pthread_mutex_unlock(&group->lock);
    return is_empty;
}
