/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/header.h"
#include "worker_sdk/comm/host/host_shm.h"
#include "worker_sdk/comm/host/host_tcp_private.h"
#include "worker_sdk/comm/host/ring.h"

enum {
    BOTH_SLICE_MS = 1 /* longest sleep in poll() while shared memory may change, too */
};

int ct_exchange_init(struct ct_exchange *exchange)
{
    exchange->bell = -1;
    exchange->rounds = ct_zalloc_array((size_t)exchange->size, 2 * sizeof(uint64_t));
    if (!exchange->rounds)
        return -ENOMEM;
    if (exchange->tcp && (exchange->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return -errno;
    return 0;
}

void ct_exchange_deinit(struct ct_exchange *exchange)
{
    if (exchange->rounds && exchange->bell >= 0)
        close(exchange->bell);
    free(exchange->rounds);
}

/* The flag is set before both bells ring, so that a thread that wakes up sees it. */
void ct_exchange_nudge(struct ct_exchange *exchange)
{
    atomic_store(&exchange->is_nudged, true);
    if (exchange->bell >= 0)
        (void)eventfd_write(exchange->bell, 1); /* full: it is readable anyway */
    if (exchange->segment)
        ct_segment_ring(exchange->segment, exchange->segment->me);
}

/* Called after is_nudged was reset. A nudge in between sets the flag again: its bell may be lost,
 * but the next look at the flag finds it. */
static void forget_nudge(struct ct_exchange *exchange)
{
    eventfd_t count;

    if (exchange->bell >= 0)
        (void)eventfd_read(exchange->bell, &count);
}

/* ---- One message ------------------------------------------------------------------------ */

static enum ct_moved push(struct ct_exchange *exchange, int peer, const void *data,
                          size_t end, size_t *done)
{
    int local = exchange->local_of[peer];
    size_t n;

    if (local < 0)
        return ct_host_tcp_push(exchange->tcp->mesh->data[peer], data, end, done);
    n = ct_ring_put(exchange->segment, local, (const unsigned char *)data + *done,
                    end - *done);
    *done += n;
    return n ? CT_MOVED_SOME : CT_MOVED_NOTHING;
}

static enum ct_moved pull(struct ct_exchange *exchange, int peer, void *data,
                          size_t end, size_t *done)
{
    int local = exchange->local_of[peer];
    size_t n;

    if (local < 0)
        return ct_host_tcp_pull(exchange->tcp, peer, data, end, done);
    n = ct_ring_take(exchange->segment, local, (unsigned char *)data + *done,
                     end - *done);
    *done += n;
    return n ? CT_MOVED_SOME : CT_MOVED_NOTHING;
}

/* The call of this end. */
static struct ct_call call_of(const struct ct_comm_message *message)
{
    return (struct ct_call){.kind = message->is_send ? CT_CALL_SEND : CT_CALL_RECV,
                            .dtype = message->dtype,
                            .count = message->bytes / ctrun_dtype_size(message->dtype)};
}

/* Fails if sender and receiver disagree about the message. */
static int check_header(struct ct_exchange *exchange, const struct ct_call *call,
                        const struct ct_comm_message *message, struct ctrun_error *err)
{
    const struct ct_peer *peer = &exchange->peers[message->peer];
    const struct ct_call ours = call_of(message);
    unsigned char own[CT_HEADER_BYTES];
    int rc = 0;

    ct_header_write_message(own, message);
    if (memcmp(own, message->header, sizeof own) == 0)
        return 0;
    /* the peer may have failed and reported why */
    if (exchange->local_of[message->peer] < 0)
        rc = ct_mesh_check(exchange->tcp->mesh, 0, err);
    if (rc == 0 && ct_call_is_unbalanced(call))
        return ct_header_fail_length(call, exchange->peers[exchange->me].rank, own,
                                     message->header, peer->rank, err);
    return rc < 0 ? rc
                  : ct_header_fail(ct_call_is_p2p(call) ? &ours : call,
                                   exchange->peers[exchange->me].rank, message->header,
                                   peer->rank, err);
}

/* `done` counts the header, too. It alone tells the progress of a message, so any round can
 * continue it. */
static bool is_through(const struct ct_comm_message *message)
{
    return message->done == CT_HEADER_BYTES + message->bytes;
}

/* Moves as much as possible. 1: something moved; 0: nothing; negative: the error. */
static int move_message(struct ct_exchange *exchange, const struct ct_call *call,
                        struct ct_comm_message *message, struct ctrun_error *err)
{
    enum ct_moved head = CT_MOVED_NOTHING;
    enum ct_moved body = CT_MOVED_NOTHING;
    size_t done;
    int rc;

    if (message->done == 0 && message->is_send)
        ct_header_write_message(message->header, message);
    if (message->done < CT_HEADER_BYTES) {
        head = message->is_send ? push(exchange, message->peer, message->header,
                                       CT_HEADER_BYTES, &message->done)
                                : pull(exchange, message->peer, message->header,
                                       CT_HEADER_BYTES, &message->done);
        if (message->done == CT_HEADER_BYTES && !message->is_send &&
            (rc = check_header(exchange, call, message, err)) < 0)
            return rc;
    }
    if (head != CT_MOVED_BROKEN && message->done >= CT_HEADER_BYTES) {
        done = message->done - CT_HEADER_BYTES;
        body = message->is_send
                   ? push(exchange, message->peer, message->from, message->bytes, &done)
                   : pull(exchange, message->peer, message->to, message->bytes, &done);
        message->done = CT_HEADER_BYTES + done;
    }
    if (head == CT_MOVED_BROKEN || body == CT_MOVED_BROKEN)
        return ct_host_tcp_fail_broken(exchange->tcp, message->peer, call, err);
    return head == CT_MOVED_SOME || body == CT_MOVED_SOME;
}

/* A message of a member to itself: a send, and the receive behind it. */
static void copy_own(struct ct_comm_message *send)
{
    struct ct_comm_message *recv = send + 1;

    if (send->bytes && send->from != recv->to)
        memcpy(recv->to, send->from, send->bytes);
    send->done = recv->done = CT_HEADER_BYTES + send->bytes;
}

/* ---- All of them ------------------------------------------------------------------------ */

/* The lane of a message: each member has one in and one out. */
static uint64_t *lane_of(const struct ct_exchange *exchange, int peer, bool is_send)
{
    return &exchange->rounds[2 * (size_t)peer + is_send];
}

static bool waits(const struct ct_exchange *exchange, int peer, bool is_send)
{
    return *lane_of(exchange, peer, is_send) == exchange->round;
}

/* An unfinished message closes its lane for the rest of the round: later messages must not overtake
 * it, because both ends rely on their order. */
static int move_call(struct ct_exchange *exchange, struct ct_call *call, bool *moved,
                     struct ctrun_error *err)
{
    bool is_complete = true;

    for (size_t i = 0; i < call->message_count; i++) {
        struct ct_comm_message *message = &call->messages[i];
        int rc;
        if (is_through(message))
            continue;
        if (message->peer == exchange->me) {
            copy_own(message);
            continue;
        }
        if (!waits(exchange, message->peer, message->is_send)) {
            if ((rc = move_message(exchange, call, message, err)) < 0)
                return rc;
            *moved = *moved || rc > 0;
        }
        if (is_through(message))
            continue;
        *lane_of(exchange, message->peer, message->is_send) = exchange->round;
        is_complete = false;
    }
    call->is_complete = is_complete;
    return 0;
}

/* One round over all calls. 1: one more call is complete. */
static int move_some(struct ct_exchange *exchange, struct ct_call *first, bool *moved,
                     struct ctrun_error *err)
{
    int done = 0;

    exchange->round++;
    *moved = false;
    for (struct ct_call *call = first; call; call = call->next) {
        int rc = call->is_complete ? 0 : move_call(exchange, call, moved, err);
        if (rc < 0)
            return rc;
        done = done || call->is_complete;
    }
    return done;
}

/* ---- Waiting ---------------------------------------------------------------------------- */

struct exchange_wait {
    struct ct_wait wait;
    struct ct_exchange *exchange;
    const struct ct_call *first; /* of the calls that wait */
    bool sends, is_remote;       /* some message is sent; some goes by TCP */
};

/* Of a local member: called only if no message waits on TCP (wait_some()). */
static bool can_move(const struct ct_exchange *exchange, int peer, bool is_send)
{
    int local = exchange->local_of[peer];

    return is_send ? ct_ring_has_room(exchange->segment, local)
                   : ct_ring_has_bytes(exchange->segment, local);
}

/* Also true when data have arrived while we send: a peer that sends to us, and receives nothing
 * before its send is done, waits for room that only we can make. */
static bool is_met(const struct ct_segment *segment, const struct ct_wait *wait)
{
    const struct exchange_wait *self = (const void *)wait;
    const struct ct_exchange *exchange = self->exchange;

    for (int i = 0; i < exchange->size; i++)
        for (int out = 0; out < 2; out++)
            if (waits(exchange, i, out) && can_move(exchange, i, out))
                return true;
    return atomic_load(&exchange->is_nudged) ||
           (self->sends && ct_ring_has_mail(segment));
}

static bool is_awaited(const struct ct_segment *segment, const struct ct_wait *wait,
                       int member)
{
    const struct ct_exchange *exchange = ((const struct exchange_wait *)wait)->exchange;

    (void)segment;
    for (int i = 0; i < exchange->size; i++)
        for (int out = 0; out < 2; out++)
            if (exchange->local_of[i] == member && waits(exchange, i, out) &&
                !can_move(exchange, i, out))
                return true;
    return false;
}

/* The call of the first message that waits on this lane; of a send or receive, as it was given. */
static struct ct_call find_call(const struct exchange_wait *self, int peer,
                                bool is_send)
{
    for (const struct ct_call *call = self->first; call; call = call->next)
        for (size_t i = 0; i < call->message_count; i++) {
            const struct ct_comm_message *message = &call->messages[i];
            if (message->peer == peer && message->is_send == is_send &&
                !is_through(message))
                return ct_call_is_p2p(call) ? call_of(message) : *call;
        }
    return (struct ct_call){.kind = CT_CALL_BATCH}; /* never: a lane waits for one */
}

/* A member that has begun a collective which we have not begun did all its messages to us before,
 * and does none before we begin it, too: what a message of ours still waits for cannot come. Between
 * members of one host a TCP connection has collectives only. */
static int check_lane(const struct exchange_wait *self, int peer, bool is_send,
                      struct ctrun_error *err)
{
    const struct ct_exchange *exchange = self->exchange;
    const int me = exchange->peers[exchange->me].rank;
    const int other = exchange->peers[peer].rank;
    const struct ct_post *post = ct_segment_find_next_post(exchange->segment,
                                                           exchange->local_of[peer]);
    unsigned char header[CT_HEADER_BYTES];
    struct ct_call ours, theirs;

    if (!post && (!exchange->tcp || !ct_host_tcp_peek(exchange->tcp, peer, header)))
        return 0;
    ours = find_call(self, peer, is_send);
    if (!post)
        return ct_header_fail(&ours, me, header, other, err);
    theirs = ct_host_shm_read_post(post);
    return ct_call_fail_mismatch(&ours, me, &theirs, other, err);
}

static int check_lanes(const struct ct_segment *segment, const struct ct_wait *wait,
                       struct ctrun_error *err)
{
    const struct exchange_wait *self = (const void *)wait;
    int rc = 0;

    (void)segment;
    for (int i = 0; rc == 0 && i < self->exchange->size; i++)
        for (int out = 0; rc == 0 && out < 2; out++)
            if (waits(self->exchange, i, out) && !can_move(self->exchange, i, out))
                rc = check_lane(self, i, out, err);
    return rc;
}

/* Collects what the last round still waits for. */
static struct exchange_wait find_wait(struct ct_exchange *exchange,
                                      const struct ct_call *first)
{
    struct exchange_wait self = {
        .wait = {.is_met = is_met, .is_awaited = is_awaited, .check = check_lanes},
        .exchange = exchange,
        .first = first};

    for (const struct ct_call *call = first; call; call = call->next) {
        if (call->is_complete)
            continue;
        if (!self.wait.call || call->deadline_ms < self.wait.deadline_ms)
            self.wait.deadline_ms = call->deadline_ms;
        if (!self.wait.call)
            self.wait.call = call;
    }
    for (int i = 0; i < exchange->size; i++) {
        if (!waits(exchange, i, true) && !waits(exchange, i, false))
            continue;
        self.sends = self.sends || waits(exchange, i, true);
        self.is_remote = self.is_remote || exchange->local_of[i] < 0;
        if (exchange->tcp)
            exchange->tcp->mesh->awaited = i;
    }
    return self;
}

/* find_wait() has set mesh->awaited to a member with an unfinished message. */
static int fail_late(const struct exchange_wait *self, struct ctrun_error *err)
{
    const struct ct_exchange *exchange = self->exchange;
    const int member = exchange->tcp->mesh->awaited;

    return ct_host_tcp_fail_late(exchange->tcp, waits(exchange, member, false),
                                 self->wait.call, err);
}

/* Sleeps in poll(), unless data arrived while we send. */
static int idle(struct exchange_wait *self, struct ctrun_error *err)
{
    struct ct_exchange *exchange = self->exchange;
    struct ct_host_tcp *tcp = exchange->tcp;
    bool is_local = false;
    bool moved = false;
    int n = 0;

    for (int i = 0; i < exchange->size; i++) {
        bool in = waits(exchange, i, false);
        bool out = waits(exchange, i, true);
        if (exchange->local_of[i] >= 0)
            is_local = is_local || in || out;
        else if (in || out)
            tcp->polls[n++] = (struct pollfd){
                .fd = tcp->mesh->data[i],
                .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
    }
    if (self->sends && (n = ct_host_tcp_take_mail(tcp, n, &moved)) < 0)
        return ct_fail(err, n, "send: out of memory for data that arrived meanwhile");
    if (moved)
        return 0;
    tcp->polls[n++] = (struct pollfd){.fd = exchange->bell, .events = POLLIN};
    return ct_host_tcp_idle(tcp, n, self->wait.call,
                            is_local ? BOTH_SLICE_MS : CT_SLICE_MS, err);
}

/* Waits until something may move. 0, or the error that ends the wait. Without `wait`, in shared
 * memory only, it does all of that except to wait. */
static int wait_some(struct ct_exchange *exchange, const struct ct_call *first,
                     bool wait, struct ctrun_error *err)
{
    struct exchange_wait self = find_wait(exchange, first);
    int rc = self.sends && exchange->segment ? ct_ring_take_mail(exchange->segment) : 0;

    if (rc < 0)
        return ct_fail(err, rc, "send: out of memory for data that arrived meanwhile");
    if (rc > 0)
        return 0;
    if (!wait)
        return ct_segment_look(exchange->segment, &self.wait, err);
    self.wait.is_in_row = !exchange->tcp; /* else fail_late() asks all members */
    rc = self.is_remote ? idle(&self, err)
                        : ct_segment_wait(exchange->segment, &self.wait, err);
    if (exchange->tcp && (rc == 0 ? self.is_remote : rc == CTRUN_E_TIMEOUT) &&
        ct_now_ms() >= self.wait.deadline_ms)
        rc = fail_late(&self, err);
    return rc;
}

/* After a failed wait (`bad`) all calls are tried once more: data that arrived before the failure
 * still count. */
int ct_exchange_move(struct ct_exchange *exchange, struct ct_call *first, bool wait,
                     struct ctrun_error *err)
{
    int quiet = 0;
    int bad = 0;

    for (;;) {
        bool moved;
        int rc = move_some(exchange, first, &moved, bad < 0 ? NULL : err);
        if (rc < 0)
            return bad < 0 ? bad : rc;
        if (rc > 0)
            return 1;
        if (atomic_exchange(&exchange->is_nudged, false)) {
            forget_nudge(exchange);
            return 0;
        }
        quiet = moved ? 0 : quiet + 1;
        if (moved || (exchange->tcp && wait && quiet <= exchange->tcp->spins))
            continue;
        if (bad < 0)
            return bad; /* no data have arrived since */
        bad = wait_some(exchange, first, wait, err);
        if (!wait)
            return bad;
    }
}
