/* SPDX-License-Identifier: Apache-2.0 */
/* One request, one reply. A connection that fails in between is closed, since the next reply could
 * belong to the old request. The agent drops what was not committed on it. */
#include "worker_sdk/hold/hold_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/net/pass_fd.h"
#include "worker_sdk/wire/contract.h"

enum {
    LINK_BUFFER_MAX_BYTES = 8192,
    LINK_PAUSE_MS = 20, /* the agent's queue is full: many begin at once */
};

/* Guarded by the mutex of hold.c. */
static struct hold_link {
    int fd;
    pid_t owner; /* whose process it is; 0: nobody's */
    struct ct_buf in;
} links[CT_HOLD_LINKS] = {{.fd = -1}, {.fd = -1}};

static void disconnect(struct hold_link *link)
{
    ct_close(&link->fd);
    ct_buf_deinit(&link->in);
    ct_buf_init(&link->in, LINK_BUFFER_MAX_BYTES);
}

/* A child of fork() has its parent's descriptors. It closes its copy and opens its own connection:
 * else the requests of both would mix. */
static struct hold_link *find_own(enum ct_hold_link which)
{
    struct hold_link *link = &links[which];

    if (link->owner != getpid())
        disconnect(link);
    link->owner = getpid();
    return link;
}

/* Sends all of `out` before deadline_ms; the descriptor goes with the first byte. */
static int send_all(const struct hold_link *link, struct ct_buf *out, int fd,
                    uint64_t deadline_ms)
{
    while (ct_buf_length(out) > 0) {
        const ssize_t n = ct_send_with_fd(link->fd, ct_buf_data(out),
                                          ct_buf_length(out), fd);

        if (n > 0) {
            ct_buf_consume(out, (size_t)n);
            fd = -1;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const int rc = ct_client_poll(link->fd, POLLOUT, deadline_ms);

            if (rc < 0)
                return rc;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static int send_message(const struct hold_link *link, const struct ct_message *message,
                        int fd, uint64_t deadline_ms)
{
    struct ct_buf out;
    int rc;

    ct_buf_init(&out, LINK_BUFFER_MAX_BYTES);
    if ((rc = ct_message_encode(&out, message)) == 0)
        rc = send_all(link, &out, fd, deadline_ms);
    ct_buf_deinit(&out);
    return rc;
}

/* Receives some more bytes, and perhaps a descriptor: then *passed is the caller's, even if a
 * later step fails. */
static int receive(struct hold_link *link, int *passed, uint64_t deadline_ms)
{
    uint8_t bytes[1024];
    int rc = ct_client_poll(link->fd, POLLIN, deadline_ms);
    ssize_t n;

    if (rc < 0)
        return rc;
    n = ct_receive_with_fd(link->fd, bytes, sizeof bytes, passed);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n == 0 ? -EPIPE : ct_buf_append(&link->in, bytes, (size_t)n);
}

/* 1: a reply is complete. Skips messages meant for our other connections (a request to stop). */
static int decode(struct hold_link *link, struct ct_worker_hold_reply *reply)
{
    struct ct_message message;
    struct ct_frame frame;
    int used, rc;

    while ((used = ct_frame_decode(ct_buf_data(&link->in), ct_buf_length(&link->in),
                                   &frame)) > 0) {
        const bool is_reply = frame.kind == CT_MESSAGE_WORKER_HOLD_REPLY;

        rc = is_reply ? ct_message_decode(&frame, &message, reply, sizeof *reply) : 0;
        ct_buf_consume(&link->in, (size_t)used);
        if (is_reply)
            return rc < 0 ? rc : 1;
    }
    return used;
}

/* At most one request is under way, so a reply needs no number to be told from another. */
static int exchange(struct hold_link *link, const struct ct_message *message, int fd,
                    uint64_t deadline_ms, struct ct_worker_hold_reply *reply,
                    int *passed)
{
    int rc = send_message(link, message, fd, deadline_ms);

    while (rc == 0 && (rc = decode(link, reply)) == 0)
        rc = receive(link, passed, deadline_ms);
    return rc < 0 ? rc : 0;
}

int ct_hold_link_ask(enum ct_hold_link which, const struct ct_worker_hold *request,
                     int fd, uint64_t deadline_ms, struct ct_worker_hold_reply *reply,
                     int *passed, struct ctrun_error *err)
{
    const struct ct_message message = {CT_MESSAGE_WORKER_HOLD, .worker_hold = request};
    struct hold_link *link = find_own(which);
    int came = -1;
    int rc = link->fd < 0 ? -EPIPE
                          : exchange(link, &message, fd, deadline_ms, reply, &came);

    if (rc < 0)
        disconnect(link); /* a late reply would be taken for the next one */
    if (passed)
        *passed = came;
    else
        ct_close(&came);
    if (rc == -ETIMEDOUT)
        return ct_fail(err, CTRUN_E_TIMEOUT, "no answer from the agent in time");
    if (rc < 0)
        return ct_fail(err, rc, "the connection to the agent failed: %s",
                       strerror(-rc));
    return reply->code < 0 ? ct_fail(err, reply->code, "%s", reply->text) : 0;
}

/* -EAGAIN is a full queue. */
static int dial(const char *name, uint64_t deadline_ms)
{
    int rc;

    while ((rc = ct_agent_socket_connect(name)) == -EAGAIN &&
           ct_left_ms(deadline_ms) > 0)
        (void)poll(NULL, 0, LINK_PAUSE_MS);
    return rc;
}

/* With these errors the agent may well be there. */
static int fail_to_dial(int rc, struct ctrun_error *err)
{
    if (rc == -EAGAIN || rc == -ETIMEDOUT)
        return ct_fail(err, CTRUN_E_TIMEOUT, "no answer from the agent in time");
    if (ct_is_short(rc))
        return ct_fail(err, rc, "connect to the agent: %s", strerror(-rc));
    return ct_fail(err, -ENOENT, "no agent");
}

static int open_link(struct ctrun_session *session, enum ct_hold_link which,
                     uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ct_worker_hello hello = {.rank = ctrun_rank(session),
                                          .generation = ctrun_generation(session)};
    const struct ct_message message = {CT_MESSAGE_WORKER_HELLO, .worker_hello = &hello};
    const char *name = getenv(CT_ENV_AGENT_SOCKET);
    struct hold_link *link = find_own(which);
    int rc;

    if (link->fd >= 0)
        return 0;
    if (!name || (*name != '@' && *name != '/') || strlen(name) >= CT_AGENT_NAME_MAX)
        return ct_fail(err, -ENOENT, "no agent");
    if ((rc = dial(name, deadline_ms)) < 0)
        return fail_to_dial(rc, err);
    link->fd = rc;
    if ((rc = send_message(link, &message, -1, deadline_ms)) < 0)
        disconnect(link);
    return rc < 0 ? fail_to_dial(rc, err) : 0;
}

static void close_passed(int *passed)
{
    if (passed && *passed >= 0)
        close(*passed);
    if (passed)
        *passed = -1;
}

/* A reply may have the same codes; the connection that it came over stays open. */
static bool was_closed(enum ct_hold_link which, int rc)
{
    return links[which].fd < 0 && (rc == -EPIPE || rc == -ECONNRESET);
}

int ct_hold_link_begin(struct ctrun_session *session, enum ct_hold_link which,
                       const struct ct_worker_hold *request, int fd,
                       uint64_t deadline_ms, struct ct_worker_hold_reply *reply,
                       int *passed, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        if ((rc = open_link(session, which, deadline_ms, err)) < 0)
            return rc == -ENOENT ? CT_HOLD_LINK_NO_AGENT : rc;
        rc = ct_hold_link_ask(which, request, fd, deadline_ms, reply, passed, err);
        if (!was_closed(which, rc))
            break;
        close_passed(passed);
    }
    return rc;
}
