/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ctl/ctl_ask.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"

/* `rc` is of a ct_buf function. */
static int fail_to_keep(struct ctrun_error *err, int rc)
{
    return ct_fail(err, rc, rc == -ENOMEM ? "out of memory" : "the answer is too long");
}

/* Appends one piece of an answer. 1: it was the last piece; 0: more will come; or a code. */
static int take_piece(const struct ct_frame *frame, union ct_message_room *room,
                      struct ct_buf *text, struct ctrun_error *err)
{
    const struct ct_ctl_reply *piece = &room->ctl_reply;
    struct ct_message message;
    int rc;

    if (frame->version != CT_FRAME_VERSION)
        return ct_fail(err, CTRUN_E_VERSION,
                       "its agent has protocol version %d, and this ctrunctl has %d",
                       frame->version, CT_FRAME_VERSION);
    if ((rc = ct_message_decode(frame, &message, room, sizeof *room)) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL, CTL_ASK_MALFORMED);
    if (message.kind == CT_MESSAGE_REFUSE)
        return ct_fail(err, CTRUN_E_VERSION, "%s", message.refuse->text);
    if (message.kind != CT_MESSAGE_CTL_REPLY)
        return ct_fail(err, CTRUN_E_PROTOCOL, "the agent sent an unexpected message");
    if (piece->code < 0)
        return ct_fail(err, piece->code, "%s", piece->text);
    rc = ct_buf_append(text, piece->text, strlen(piece->text));
    return rc < 0 ? fail_to_keep(err, rc) : piece->is_last;
}

/* Handles all complete frames of `in`, so that it has room for the next recv(). Decoded text points
 * into `room`: it is copied before the next decode. 1: the answer is complete; 0: more will come; or
 * a code. */
static int take_pieces(struct ct_buf *in, union ct_message_room *room,
                       struct ct_buf *text, struct ctrun_error *err)
{
    struct ct_frame frame;
    int rc = 0;

    while (rc == 0) {
        const int taken = ct_frame_decode(ct_buf_data(in), ct_buf_length(in), &frame);

        if (taken == 0)
            return 0;
        if (taken < 0)
            return ct_fail(err, CTRUN_E_PROTOCOL, CTL_ASK_MALFORMED);
        rc = take_piece(&frame, room, text, err);
        ct_buf_consume(in, (size_t)taken);
    }
    return rc;
}

static int read_some(int fd, struct ct_buf *in, struct ctrun_error *err)
{
    uint8_t *at;
    ssize_t n;
    int rc = ct_buf_reserve(in, CT_FRAME_BODY_MAX_BYTES, &at);

    if (rc < 0)
        return ct_fail(err, rc, "out of memory");
    n = recv(fd, at, CT_FRAME_BODY_MAX_BYTES, 0);
    if (n == 0)
        return ct_fail(err, -ECONNRESET,
                       "the agent closed the connection without an answer; perhaps it "
                       "does not accept requests of uid %u",
                       (unsigned)getuid());
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return ct_fail(err, -errno, "no answer: %s", strerror(errno));
    ct_buf_commit(in, n > 0 ? (size_t)n : 0);
    return 0;
}

int ctl_ask_read(int fd, struct ct_buf *in, union ct_message_room *room,
                 struct ct_buf *text, struct ctrun_error *err)
{
    const int rc = read_some(fd, in, err);

    return rc < 0 ? rc : take_pieces(in, room, text, err);
}

/* A long answer comes as several CTL_REPLY frames. `in` has room for one unfinished frame and one
 * recv(). */
static int read_answer(int fd, uint64_t deadline_ms, struct ct_buf *text,
                       struct ctrun_error *err)
{
    union ct_message_room *room = ct_zalloc(sizeof *room);
    struct ct_buf in;
    int rc = room ? 0 : ct_fail(err, -ENOMEM, "out of memory");

    ct_buf_init(&in, CTL_ASK_IN_MAX_BYTES);
    while (rc == 0) {
        if ((rc = ct_client_poll(fd, POLLIN, deadline_ms)) < 0)
            (void)ct_fail(err, rc, "no answer: %s", strerror(-rc));
        else
            rc = ctl_ask_read(fd, &in, room, text, err);
    }
    ct_buf_deinit(&in);
    free(room);
    return rc < 0 ? rc : 0;
}

static int send_request(int fd, const struct ct_ctl_request *request,
                        struct ctrun_error *err)
{
    const struct ct_message message = {CT_MESSAGE_CTL_REQUEST, .ctl_request = request};
    struct ct_buf out;
    int rc;

    ct_buf_init(&out, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    rc = ct_message_encode(&out, &message);
    /* send() does not block: the request is much smaller than an empty socket buffer. */
    if (rc == 0 && send(fd, ct_buf_data(&out), ct_buf_length(&out), MSG_NOSIGNAL) !=
                       (ssize_t)ct_buf_length(&out))
        rc = -EPIPE;
    ct_buf_deinit(&out);
    return rc < 0 ? ct_fail(err, rc, "the request could not be sent: %s", strerror(-rc))
                  : 0;
}

/* Valid JSON escapes control characters, but root also asks other users' agents, and such an agent could send commands
 * to root's terminal. */
int ctl_ask_make_plain(struct ct_buf *text, struct ctrun_error *err)
{
    uint8_t *end;
    const int rc = ct_buf_reserve(text, 1, &end);

    if (rc < 0)
        return fail_to_keep(err, rc);
    *end = '\0';
    ct_make_plain((char *)end - ct_buf_length(text), true);
    return 0;
}

/* Checks that a process of user `uid` answers. That user owns the folder and may have replaced
 * the socket by a link to the agent of another user, which root would then signal or stop. */
static int check_server(int fd, uid_t uid, struct ctrun_error *err)
{
    struct ucred server;
    socklen_t length = sizeof server;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &length) < 0)
        return ct_fail(err, -errno, "the user of its agent is not known: %s",
                       strerror(errno));
    if (server.uid == uid)
        return 0;
    return ct_fail(err, -EPERM, "a process of user %u answers there, not of user %u",
                   (unsigned)server.uid, (unsigned)uid);
}

void ctl_ask_name(struct ctrun_error *err, const struct ctl_run *run)
{
    ct_wrap(err, "run %s", *run->status.run_id ? run->status.run_id : run->name);
}

int ctl_ask_begin(const struct ctl_run *run, const struct ct_ctl_request *request,
                  struct ctrun_error *err)
{
    const int dir = ctl_dir_open(run->dir, false, err);
    int fd, rc;

    if (dir < 0)
        return dir;
    fd = ctl_dir_connect(dir, run->name, SOCK_STREAM);
    close(dir);
    if (fd == -ENOENT || fd == -ECONNREFUSED) /* visit() says nothing about these */
        return ct_fail(err, fd, "run %s has ended or is ending on this node",
                       run->status.run_id);
    if (fd < 0)
        return ct_fail(err, fd, "%s: %s", run->name, strerror(-fd));
    rc = check_server(fd, run->uid, err);
    if (rc == 0 && (rc = send_request(fd, request, err)) == 0)
        return fd;
    ctl_ask_name(err, run);
    close(fd);
    return rc;
}

int ctl_run_ask(const struct ctl_run *run, const struct ct_ctl_request *request,
                struct ct_buf *text, struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(CTL_ASK_LIMIT_MS);
    const int fd = ctl_ask_begin(run, request, err);
    int rc = fd;

    if (fd >= 0) {
        rc = read_answer(fd, deadline_ms, text, err);
        if (rc == 0)
            rc = ctl_ask_make_plain(text, err);
        if (rc < 0)
            ctl_ask_name(err, run);
        close(fd);
    }
    return rc < 0 ? rc : 0;
}

int ctl_ask_take_status(struct ctl_run *run, const struct ct_buf *text,
                        struct ctrun_error *err)
{
    struct json_status status;
    char *json = ct_strndup((const char *)ct_buf_data(text), ct_buf_length(text));
    int rc;

    if (!json)
        return ct_fail(err, -ENOMEM, "out of memory");
    if ((rc = json_status_read(&status, json, strlen(json))) < 0) {
        free(json);
        return ct_fail(err, rc, "%s: " CTL_ASK_MALFORMED, run->name);
    }
    free(run->json);
    json_status_deinit(&run->status);
    run->json = json;
    run->status = status;
    return 0;
}

const struct ct_ctl_request ctl_ask_status = {.verb = CT_CTL_STATUS, .rank = -1};

int ctl_run_refresh(struct ctl_run *run, struct ctrun_error *err)
{
    struct ct_buf text;
    int rc;

    ct_buf_init(&text, CTL_ASK_TEXT_MAX_BYTES);
    rc = ctl_run_ask(run, &ctl_ask_status, &text, err);
    if (rc == 0)
        rc = ctl_ask_take_status(run, &text, err);
    ct_buf_deinit(&text);
    return rc;
}
