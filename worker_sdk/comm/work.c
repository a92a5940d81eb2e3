/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a group: checks the arguments, numbers the calls, and hands them to the back end in
 * order; queue.c has the background calls. */
#include <errno.h>
#include <time.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/client/progress.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/comm/host/reduce.h"

/* ---- Calls ------------------------------------------------------------------------------ */

/* Two threads at once would mix their calls, and so the sums. This is no lock: the second thread
 * gets an error, because calls whose order depends on a race have another order on other ranks. */
int ct_group_enter(struct ctrun_group *group, const char *name, struct ctrun_error *err)
{
    if (!group)
        return ct_group_check(group, name, err);
    if (ct_group_is_inherited(group))
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s: this process was forked after the group was opened: open "
                       "the group in the process that uses it",
                       name);
    if (atomic_exchange(&group->is_used, true))
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s: another thread is in a call on this group: give each "
                       "thread its own group, or serialize the calls",
                       name);
    if (group->has_helper) {
        atomic_store(&group->left_ms, ct_now_ms()); /* the helper goes back at once */
        pthread_mutex_lock(&group->turn);
    }
    return 0;
}

int ct_group_leave(struct ctrun_group *group, int rc)
{
    if (group->has_helper) {
        atomic_store(&group->left_ms, ct_now_ms());
        pthread_mutex_unlock(&group->turn);
    }
    atomic_store(&group->is_used, false);
    return rc;
}

static bool has_root(const struct ct_call *call)
{
    return call->kind == CT_CALL_REDUCE || call->kind == CT_CALL_BROADCAST ||
           call->kind == CT_CALL_GATHER || call->kind == CT_CALL_SCATTER;
}

/* Whether the call has its buffers: those to read from and those to write to. */
static bool has_data(const struct ctrun_group *group, const struct ct_call *call)
{
    bool is_root = call->peer == group->me;
    bool gives = call->kind != CT_CALL_RECV &&
                 (call->kind != CT_CALL_BROADCAST || is_root);
    bool gets = call->kind != CT_CALL_SEND && (call->kind != CT_CALL_REDUCE || is_root);

    for (size_t i = 0; i < call->message_count; i++) {
        const struct ct_comm_message *message = &call->messages[i];
        if (message->bytes && (message->is_send ? !message->from : !message->to))
            return false;
    }
    if (call->count == 0 || call->messages)
        return true;
    return (call->in || !gives) && (call->out || !gets);
}

/* A result that is written over input which is still to be read. In place, the input is the result
 * itself, or its part of this rank. */
static bool overlaps(const struct ctrun_group *group, const struct ct_call *call,
                     size_t element)
{
    const size_t part = call->count * element;
    const size_t whole = part * (size_t)group->size;
    const size_t at = part * (size_t)group->me;
    const char *in = call->in;
    const char *out = call->out;

    if (ct_call_is_all_gather(call))
        return in != out + at && ct_overlap(in, part, out, whole);
    if (call->kind == CT_CALL_REDUCE_SCATTER)
        return out != in + at && ct_overlap(in, whole, out, part);
    if (call->kind == CT_CALL_ALL_REDUCE ||
        ((call->kind == CT_CALL_REDUCE || call->kind == CT_CALL_BROADCAST) &&
         call->peer == group->me))
        return in != out && ct_overlap(in, part, out, part);
    return false;
}

/* Refuses wrong arguments before the call gets a number, so that the calls of other ranks still
 * match ours. Differences between ranks are found by the back end (CTRUN_E_MISMATCH). */
static int check_call(const struct ctrun_group *group, const struct ct_call *call,
                      struct ctrun_error *err)
{
    bool is_one = call->kind == CT_CALL_SEND || call->kind == CT_CALL_RECV;
    size_t element = ctrun_dtype_size(call->dtype);
    const char *name = ct_call_name(call->kind);

    if (element == 0)
        return ct_fail(err, -EINVAL, "%s: dtype %d: there is no such type", name,
                       (int)call->dtype);
    if (call->count > SIZE_MAX / 2 / element / (size_t)group->size)
        return ct_fail(err, -EINVAL, "%s: %zu elements: too many", name, call->count);
    if ((has_root(call) || is_one) && (call->peer < 0 || call->peer >= group->size))
        return ct_fail(err, -EINVAL, "%s: there is no member %d in a group of %d", name,
                       call->peer, group->size);
    if (is_one && call->peer == group->me)
        return ct_fail(err, -EINVAL, "%s: to or from this rank itself", name);
    if (!has_data(group, call))
        return ct_fail(err, -EINVAL, "%s: the pointer to the data is NULL", name);
    if (overlaps(group, call, element))
        return ct_fail(err, -EINVAL,
                       "%s: in and out overlap: pass two buffers, or one in place",
                       name);
    if ((unsigned)call->op > CTRUN_PROD)
        return ct_fail(err, -EINVAL, "%s: op %d: there is no such operation", name,
                       (int)call->op);
    if (ct_call_is_reduction(call) && !ct_reduce_is_supported(call->dtype, call->op))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "%s: integers have no AVG: use SUM and divide", name);
    return 0;
}

/* Makes a message of a send or receive; on a device it is an ordinary call. */
static int add_message(struct ct_call *call, struct ct_comm_message **list,
                       size_t *count, struct ctrun_error *err)
{
    struct ct_comm_message *more = ct_realloc_array(*list, *count + 1, sizeof *more);

    if (!more)
        return ct_fail(err, -ENOMEM, "%s: out of memory", ct_call_name(call->kind));
    *list = more;
    more[(*count)++] = (struct ct_comm_message){.peer = call->peer,
                                                .is_send = call->kind == CT_CALL_SEND,
                                                .from = call->in,
                                                .to = call->out,
                                                .bytes = call->count *
                                                         ctrun_dtype_size(call->dtype),
                                                .dtype = call->dtype};
    return 0;
}

/* Records the call before it starts, in memory that the agent reads when this process hangs or has
 * died. */
static void write_down(const struct ctrun_group *group, struct ct_call *call,
                       uint64_t now_ns)
{
    call->flight = ct_flight_begin(
        &(struct ct_flight_call){.name = ct_call_name(call->kind),
                                 .now_ns = now_ns,
                                 .group = group->flight,
                                 .sequence = call->number,
                                 .count = call->count,
                                 .dtype = (int)call->dtype,
                                 .peer = call->peer});
}

/* Sets the deadline before the call waits for earlier calls. Messages get no number, because only
 * two ranks know of each. */
static int prepare(struct ctrun_group *group, struct ct_call *call, uint64_t timeout_ms,
                   struct ctrun_error *err)
{
    const uint64_t now_ns = ct_now_ns();
    int rc = check_call(group, call, err);

    if (rc == 0 && (call->kind == CT_CALL_SEND || call->kind == CT_CALL_RECV))
        rc = add_message(call, &call->messages, &call->message_count, err);
    if (rc < 0)
        return rc;
    call->bytes = call->count * ctrun_dtype_size(call->dtype);
    call->divisor = call->op == CTRUN_AVG ? group->size : 1;
    call->deadline_ms = ct_deadline_after(now_ns / 1000000,
                                          timeout_ms ? timeout_ms : group->timeout_ms);
    if (call->kind < CT_CALL_SEND) {
        call->number = ++group->number;
        call->pass = group->pass;
    }
    if (call->kind < CT_CALL_COPY)
        write_down(group, call, now_ns);
    return 0;
}

static int run_on_device(struct ctrun_group *group, struct ct_call *call, void *stream,
                         struct ctrun_error *err)
{
    void *ticket;
    int rc;

    call->is_awaited = true;
    rc = group->backend->enqueue(group->self, call, stream, &ticket, err);
    if (rc == 0)
        rc = group->backend->poll(group->self, ticket, true, err);
    return rc < 0 ? rc : 0;
}

static int run_on_host(struct ctrun_group *group, struct ct_call *call,
                       struct ctrun_error *err)
{
    int rc = 0;

    if (!ct_call_is_p2p(call))
        return group->backend->run(group->self, call, err);
    while (rc >= 0 && !call->is_complete)
        rc = group->backend->move(group->self, call, true, err);
    return rc < 0 ? rc : 0;
}

static int run_prepared(struct ctrun_group *group, struct ct_call *call, void *stream,
                        struct ctrun_error *err)
{
    int rc;

    ct_progress_begin_wait();
    ct_group_drain(group);
    rc = ct_group_is_device(group) ? run_on_device(group, call, stream, err)
                                   : run_on_host(group, call, err);
    ct_progress_end_wait();
    ct_flight_end(call->flight, rc);
    return rc;
}

void ct_group_count_pass(struct ctrun_group *group)
{
    group->pass++;
}

int ct_group_run(struct ctrun_group *group, struct ct_call *call, void *stream,
                 struct ctrun_error *err)
{
    int rc = ct_group_enter(group, ct_call_name(call->kind), err);

    if (rc < 0)
        return rc;
    if ((rc = prepare(group, call, 0, err)) == 0)
        rc = run_prepared(group, call, stream, err);
    return ct_group_leave(group, rc);
}

bool ct_group_is_device(const struct ctrun_group *group)
{
    return group->backend->enqueue != NULL;
}

/* ---- In the background ------------------------------------------------------------------ */

/* The call is prepared. */
static int enqueue(struct ctrun_group *group, struct ctrun_work *work, void *stream,
                   struct ctrun_error *err)
{
    return work->is_device ? group->backend->enqueue(group->self, &work->call, stream,
                                                     &work->ticket, err)
                           : ct_queue_add(group, work, err);
}

/* The call will not run: its number is the next one's. */
static void give_up(struct ctrun_group *group, const struct ct_call *call, int rc)
{
    group->number -= call->kind < CT_CALL_SEND;
    ct_flight_end(call->flight, rc);
    free(call->messages);
}

/* Inside the group. Takes ownership of call->messages, also on failure. */
static int start_prepared(struct ctrun_group *group, const struct ct_call *call,
                          void *stream, struct ctrun_work **out,
                          struct ctrun_error *err)
{
    struct ctrun_work *work = ct_zalloc(sizeof *work);
    int rc;

    *out = NULL;
    if (!work) {
        give_up(group, call, -ENOMEM);
        return ct_fail(err, -ENOMEM, "%s: out of memory", ct_call_name(call->kind));
    }
    work->group = group;
    work->call = *call;
    work->is_device = ct_group_is_device(group);
    if ((rc = enqueue(group, work, stream, err)) < 0) {
        give_up(group, call, rc);
        free(work);
        return rc;
    }
    *out = work;
    return 0;
}

int ct_group_start(struct ctrun_group *group, const struct ct_call *call, void *stream,
                   struct ctrun_work **out, struct ctrun_error *err)
{
    struct ct_call own = *call;
    int rc = ct_group_enter(group, ct_call_name(call->kind), err);

    *out = NULL;
    if (rc < 0)
        return rc;
    if ((rc = prepare(group, &own, 0, err)) == 0)
        rc = start_prepared(group, &own, stream, out, err);
    return ct_group_leave(group, rc);
}

int ct_work_take_result(struct ctrun_work *work, struct ctrun_error *err)
{
    int rc = work->result < 0 ? work->result : 0;

    if (rc < 0 && err)
        *err = work->err;
    free(work->call.messages);
    free(work);
    return rc;
}

/* After any result except "not yet" the ticket is spent: the back end may reuse it for the next
 * call. */
static void poll_ticket(struct ctrun_work *work, bool wait)
{
    struct ctrun_group *group = work->group;
    int rc = group->backend->poll(group->self, work->ticket, wait, &work->err);

    if (rc == 0)
        return;
    ct_flight_end(work->call.flight, rc < 0 ? rc : 0);
    work->ticket = NULL;
    work->result = rc;
    work->is_done = true;
}

/* A work that is done needs no group, and the group may have been closed: so is_done is checked
 * first. */
int ctrun_work_wait(struct ctrun_work *work, struct ctrun_error *err)
{
    int rc;

    if (!work)
        return ct_fail_null(err, "work");
    if (!work->is_done) {
        if ((rc = ct_group_enter(work->group, "work wait", err)) < 0)
            return rc;
        ct_progress_begin_wait();
        if (work->ticket)
            poll_ticket(work, true);
        else
            ct_queue_finish(work->group, work);
        ct_progress_end_wait();
        (void)ct_group_leave(work->group, 0);
    }
    return ct_work_take_result(work, err);
}

int ctrun_work_test(struct ctrun_work *work, struct ctrun_error *err)
{
    int rc;

    if (!work)
        return ct_fail_null(err, "work");
    if (work->is_done)
        return 1;
    if ((rc = ct_group_enter(work->group, "work test", err)) < 0)
        return rc;
    if (work->ticket)
        poll_ticket(work, false);
    else
        ct_queue_try(work->group);
    return ct_group_leave(work->group, work->is_done);
}

/* Polls, because a back end can only wait until a call's own deadline. */
int ctrun_work_wait_for(struct ctrun_work *work, uint64_t timeout_ms,
                        struct ctrun_error *err)
{
    enum {
        NAP_MIN_NS = 2000,
        NAP_MAX_NS = 1000000
    };
    struct timespec nap = {.tv_nsec = NAP_MIN_NS};
    uint64_t deadline_ms = ct_deadline_ms(timeout_ms);
    char text[CT_CALL_TEXT_MAX];
    int rc;

    while ((rc = ctrun_work_test(work, err)) == 0) {
        if (ct_now_ms() >= deadline_ms) {
            ct_call_format(text, &work->call);
            return ct_fail(err, CTRUN_E_TIMEOUT, "%s: not done after %llu ms", text,
                           (unsigned long long)timeout_ms);
        }
        (void)nanosleep(&nap, NULL); /* a shorter sleep is fine */
        if (nap.tv_nsec < NAP_MAX_NS)
            nap.tv_nsec *= 2;
    }
    return rc < 0 ? rc : ctrun_work_wait(work, err);
}

/* ---- Blocking or in the background, as options say ---------------------------------------- */

/* A blocking message continues at the same time as the messages in the background. */
static int run_beside(struct ctrun_group *group, const struct ct_call *call,
                      struct ctrun_error *err)
{
    struct ctrun_work *work;
    int rc = start_prepared(group, call, NULL, &work, err);

    if (rc < 0)
        return rc;
    ct_progress_begin_wait();
    ct_queue_finish(group, work);
    ct_progress_end_wait();
    return ct_work_take_result(work, err);
}

/* Inside the group; takes ownership of call->messages. */
static int call_prepared(struct ctrun_group *group, struct ct_call *call,
                         const struct ctrun_call_options *options,
                         struct ctrun_error *err)
{
    void *stream = options->stream ? options->stream : group->stream;
    int rc;

    if (options->work)
        return start_prepared(group, call, stream, options->work, err);
    if (ct_call_is_p2p(call) && !ct_queue_is_empty(group))
        return run_beside(group, call, err);
    rc = run_prepared(group, call, stream, err);
    free(call->messages);
    return rc;
}

/* In a batch: keeps the message for ctrun_batch_end(), which borrows its data until then. */
static int note(struct ctrun_group *group, struct ct_call *call, bool has_options,
                struct ctrun_error *err)
{
    const char *name = ct_call_name(call->kind);
    int rc;

    if (call->kind != CT_CALL_SEND && call->kind != CT_CALL_RECV)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s: a batch has sends and receives only: call "
                       "ctrun_batch_end() first",
                       name);
    if (has_options)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s: in a batch: give the options to ctrun_batch_end()", name);
    rc = check_call(group, call, err);
    return rc < 0 ? rc : add_message(call, &group->batch, &group->batch_count, err);
}

int ct_group_call(struct ctrun_group *group, struct ct_call *call,
                  const struct ctrun_call_options *given, struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    const char *name = ct_call_name(call->kind);
    int rc = 0;

    if (given && (rc = ct_sized_read(&options, sizeof options, given,
                                     "CTRUN_CALL_OPTIONS_INIT", err)) < 0)
        ct_wrap(err, "%s: options", name);
    if (options.work)
        *options.work = NULL;
    if (rc < 0 || (rc = ct_group_enter(group, name, err)) < 0) {
        free(call->messages);
        return rc;
    }
    if (group->is_batching)
        rc = note(group, call, given != NULL, err);
    else if ((rc = prepare(group, call, options.timeout_ms, err)) == 0)
        return ct_group_leave(group, call_prepared(group, call, &options, err));
    free(call->messages);
    return ct_group_leave(group, rc);
}

int ctrun_batch_begin(struct ctrun_group *group, struct ctrun_error *err)
{
    int rc = ct_group_enter(group, "batch", err);

    if (rc < 0)
        return rc;
    if (group->is_batching)
        rc = ct_fail(err, CTRUN_E_USAGE, "batch: call ctrun_batch_end() first");
    group->is_batching = true;
    return ct_group_leave(group, rc);
}

/* The call, and with it ct_group_call(), takes ownership of the messages: the batch ends, whatever
 * the result. */
bool ct_group_take_batch(struct ctrun_group *group, struct ct_call *call)
{
    bool is_batching = group->is_batching;

    call->messages = group->batch;
    call->message_count = group->batch_count;
    group->batch = NULL;
    group->batch_count = 0;
    group->is_batching = false;
    return is_batching;
}
