/* SPDX-License-Identifier: Apache-2.0 */
/* Sends bytes to one member, receives bytes from it, and waits for sockets. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/host_tcp_private.h"

enum {
    ANSWER_MS = 1000, /* for live members to answer, on a busy machine */
};

static size_t at_most_a_block(size_t bytes)
{
    return bytes < CT_BLOCK_BYTES ? bytes : CT_BLOCK_BYTES;
}

/* Push and pull never wait: they try the socket. Only ct_host_tcp_idle() sleeps; it also notices
 * the death of a peer, a failure of another member and the deadline. */
enum ct_moved ct_host_tcp_push(int fd, const void *data, size_t end, size_t *done)
{
    ssize_t n;

    if (*done >= end)
        return CT_MOVED_NOTHING;
    n = send(fd, (const unsigned char *)data + *done, at_most_a_block(end - *done),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? CT_MOVED_NOTHING : CT_MOVED_BROKEN;
    *done += (size_t)n;
    return CT_MOVED_SOME;
}

/* Reads from the inbox first, because its bytes came before those in the socket. */
enum ct_moved ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                               size_t end, size_t *done)
{
    struct ct_buf *inbox = &tcp->inboxes[member];
    size_t early = ct_buf_length(inbox);
    ssize_t n;

    if (*done >= end)
        return CT_MOVED_NOTHING;
    if (early) {
        early = early < end - *done ? early : end - *done;
        memcpy((unsigned char *)data + *done, ct_buf_data(inbox), early);
        ct_buf_consume(inbox, early);
        *done += early;
        return CT_MOVED_SOME;
    }
    n = recv(tcp->mesh->data[member], (unsigned char *)data + *done,
             at_most_a_block(end - *done), MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? CT_MOVED_NOTHING : CT_MOVED_BROKEN;
    *done += (size_t)n;
    return n == 0 ? CT_MOVED_BROKEN : CT_MOVED_SOME;
}

bool ct_host_tcp_peek(const struct ct_host_tcp *tcp, int member,
                      unsigned char header[CT_HEADER_BYTES])
{
    const struct ct_buf *inbox = &tcp->inboxes[member];

    if (ct_buf_length(inbox) >= CT_HEADER_BYTES) {
        memcpy(header, ct_buf_data(inbox), CT_HEADER_BYTES);
        return true;
    }
    return ct_buf_length(inbox) == 0 &&
           recv(tcp->mesh->data[member], header, CT_HEADER_BYTES,
                MSG_PEEK | MSG_DONTWAIT) == CT_HEADER_BYTES;
}

/* Reads a block from `member` into its inbox. 1: there may be more; 0: nothing; -ENOMEM. Beyond
 * CT_INBOX_BYTES nothing is read, and the peer has to wait. */
static int take_block(struct ct_host_tcp *tcp, int member)
{
    struct ct_buf *inbox = &tcp->inboxes[member];
    uint8_t *at;
    ssize_t n;

    if (ct_buf_length(inbox) + CT_BLOCK_BYTES > CT_INBOX_BYTES)
        return 0;
    if (ct_buf_reserve(inbox, CT_BLOCK_BYTES, &at) < 0)
        return -ENOMEM;
    n = recv(tcp->mesh->data[member], at, CT_BLOCK_BYTES, MSG_DONTWAIT);
    if (n > 0)
        ct_buf_commit(inbox, (size_t)n);
    return n > 0;
}

/* Checks for data before take_block() allocates a block: most inboxes stay empty and use no
 * memory. */
static bool may_take(int fd, struct pollfd *entry)
{
    *entry = (struct pollfd){.fd = fd, .events = POLLIN};
    return poll(entry, 1, 0) > 0 && (entry->revents & POLLIN);
}

int ct_host_tcp_take_mail(struct ct_host_tcp *tcp, int n, bool *moved)
{
    *moved = false;
    for (int i = 0; i < tcp->mesh->size; i++) {
        struct pollfd entry;
        int rc = 0;
        if (i == tcp->mesh->me)
            continue;
        if (may_take(tcp->mesh->data[i], &entry) && (rc = take_block(tcp, i)) < 0)
            return rc;
        *moved = *moved || rc > 0;
        if (!entry.revents) /* nothing now: poll it during a sleep */
            tcp->polls[n++] = entry;
    }
    return n;
}

int ct_host_tcp_fail_broken(struct ct_host_tcp *tcp, int member,
                            const struct ct_call *call, struct ctrun_error *err)
{
    char text[CT_CALL_TEXT_MAX];
    int rc = ct_mesh_explain(tcp->mesh, member, err);

    ct_call_format(text, call);
    return rc == CTRUN_E_PEER_LOST && !tcp->mesh->is_received
               ? (ct_wrap(err, "%s", text), rc)
               : rc;
}

/* In a chain of members that wait for each other only the first is the cause, and a stopped process
 * does not answer. 0: *silent is that member, -1 if all answer; or the code why the group has
 * ended. */
static int find_silent(struct ct_host_tcp *tcp, int *silent, struct ctrun_error *err)
{
    const uint64_t end_ms = ct_deadline_ms(ANSWER_MS);
    int rc = 0;

    ct_mesh_ask(tcp->mesh);
    while (rc == 0 && (*silent = ct_mesh_find_silent(tcp->mesh)) >= 0 &&
           ct_left_ms(end_ms) > 0) {
        struct pollfd entry = {.fd = tcp->mesh->watch, .events = POLLIN};

        (void)poll(&entry, 1, CT_SLICE_MS);
        if (tcp->watch.check)
            rc = tcp->watch.check(tcp->watch.context, err);
        if (rc == 0)
            rc = ct_mesh_check(tcp->mesh, 0, err);
    }
    return rc;
}

int ct_host_tcp_fail_late(struct ct_host_tcp *tcp, bool is_in,
                          const struct ct_call *call, struct ctrun_error *err)
{
    const int member = tcp->mesh->awaited;
    char text[CT_CALL_TEXT_MAX];
    char who[CT_PEER_TEXT_MAX];
    char other[CT_PEER_TEXT_MAX] = "";
    int silent;
    int rc;

    if ((rc = find_silent(tcp, &silent, err)) < 0)
        return rc;
    ct_call_format(text, call);
    ct_peer_format(who, &tcp->mesh->peers[member]);
    if (silent >= 0 && silent != member)
        ct_peer_format(other, &tcp->mesh->peers[silent]);
    return ct_fail(err, CTRUN_E_TIMEOUT, "%s: %s %s in time%s%s%s", text,
                   is_in ? "not all data came from" : "not all data could be sent to",
                   who, *other ? ": " : "", other, *other ? " does not answer" : "");
}

int ct_host_tcp_idle(struct ct_host_tcp *tcp, int n, const struct ct_call *call,
                     int slice_ms, struct ctrun_error *err)
{
    int left_ms = ct_left_ms(call->deadline_ms);
    int rc = 0;

    tcp->polls[n] = (struct pollfd){.fd = tcp->mesh->watch, .events = POLLIN};
    if (poll(tcp->polls, (nfds_t)n + 1, left_ms < slice_ms ? left_ms : slice_ms) < 0 &&
        errno != EINTR)
        return ct_fail(err, -errno, "poll: %s", strerror(errno));
    if (tcp->watch.check)
        rc = tcp->watch.check(tcp->watch.context, err);
    if (rc == 0)
        rc = ct_mesh_check(tcp->mesh, CT_REASON_GRACE_MS, err);
    return rc;
}
