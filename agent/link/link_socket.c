/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a connection: HELLO when it is made, then one frame after the other. */
#include <errno.h>
#include <sys/socket.h>

#include "agent/link/link_private.h"
#include "worker_sdk/base/clock.h"

/* The RESUME of this member. */
static struct ct_resume make_resume(struct link *link)
{
    if (!link->is_resuming)
        return (struct ct_resume){0};
    return (struct ct_resume){
        .id = link->ticket.id,
        .key = link->ticket.key,
        .generation = link->generation,
        .state = link->options.get_resume_state(link->options.context),
        .attempt = ++link->resume_attempts,
    };
}

static void greet(struct link *link)
{
    struct ct_hello hello = *link->options.hello;
    socklen_t length = sizeof(int);
    struct ct_resume resume;
    int rc = 0;

    if (getsockopt(loop_watch_fd(link->socket), SOL_SOCKET, SO_ERROR, &rc, &length) < 0)
        rc = errno;
    if (rc != 0) {
        link_fail_connect(link, -rc);
        return;
    }
    link_set_state(link, LINK_GREETING, "connected");
    link->greeted_ms = ct_now_ms();
    resume = make_resume(link);
    hello.instance = link->instance;
    hello.generation = link->last_generation;
    rc = handshake_begin(&link->handshake, &resume, &hello, &link->out);
    if (rc < 0)
        link_fail_attempt(link, rc, "hello");
    else
        (void)link_flush(link);
}

/* Takes one frame from `in`. False when there is none, or the connection has been replaced. */
static bool handle_frame(struct link *link)
{
    const struct loop_watch *socket = link->socket;
    struct ct_message message;
    struct ct_frame frame, inner;
    int taken = ct_frame_decode(ct_buf_data(&link->in), ct_buf_length(&link->in),
                                &frame);
    int rc = taken;

    if (taken == 0)
        return false;
    if (taken > 0 && frame.version != CT_FRAME_VERSION &&
        frame.kind != CT_MESSAGE_REFUSE) /* the same fields in all versions */
        rc = -EPROTO;
    else if (taken > 0)
        rc = ct_seal_decode(&link->handshake.seal, &frame, link->plain, &inner);
    if (rc == 0)
        rc = ct_message_decode(&inner, &message, &link->room, sizeof link->room);
    if (rc < 0 && rc != -ENOSYS) {
        link_fail_connection(link, rc, "receive");
        return false;
    }
    ct_buf_consume(&link->in,
                   (size_t)taken); /* before the callback, which may drop the buffer */
    if (rc != -ENOSYS)             /* else a newer server's message: skip it */
        link_on_message(link, &message);
    return link->socket == socket && socket != NULL;
}

static void receive(struct link *link)
{
    uint8_t bytes[8192];
    const ssize_t n = recv(loop_watch_fd(link->socket), bytes, sizeof bytes, 0);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_fail_connection(link, n < 0 ? -errno : -ECONNRESET,
                             n < 0 ? "receive" : "the connection was closed");
        return;
    }
    rc = ct_buf_append(&link->in, bytes, (size_t)n);
    if (rc < 0) {
        link_fail_connection(link, rc, "receive");
        return;
    }
    while (handle_frame(link))
        ;
}

void link_on_socket(void *context, unsigned events)
{
    struct link *link = context;

    if (link->state == LINK_CONNECTING) {
        greet(link);
        return;
    }
    if ((events & LOOP_WRITE) && !link_flush(link))
        return;
    if (events & LOOP_READ)
        receive(link);
}
