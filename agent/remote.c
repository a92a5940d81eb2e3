/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/remote.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/remote_dir.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

struct remote {
    struct remote_options options;
    struct loop_watch *listener;
    struct ct_list clients;
    int count;
    uint32_t last_ticket;
    int dir;
    char name[REMOTE_NAME_MAX];
};

struct client {
    struct ct_list node;
    struct remote *remote;
    struct loop_watch *socket;
    struct loop_timer *deadline;
    struct ct_buf in;
    struct ct_buf out; /* frames that wait for the client */
    bool is_answered;
    uint32_t ticket; /* != 0: waits for remote_answer() */
    pid_t pid;
};

static void client_close(struct client *client)
{
    client->remote->count--;
    ct_list_remove(&client->node);
    loop_watch_close(client->socket);
    loop_timer_close(client->deadline);
    ct_buf_deinit(&client->in);
    ct_buf_deinit(&client->out);
    free(client);
}

/* ---- Answers ---------------------------------------------------------------------------- */

/* Sends what the client takes now. False when it is done and gone. */
static bool flush(struct client *client)
{
    while (ct_buf_length(&client->out) > 0) {
        const ssize_t n = send(loop_watch_fd(client->socket), ct_buf_data(&client->out),
                               ct_buf_length(&client->out), MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            loop_watch_for(client->socket, LOOP_WRITE);
            return true;
        }
        if (n < 0)
            break;
        ct_buf_consume(&client->out, (size_t)n);
    }
    client_close(client);
    return false;
}

/* Cuts text into replies. A piece may end inside a character: the pieces are put together
 * again before anybody looks. */
static int reply(struct client *client, int code, const void *text, size_t length)
{
    struct ct_message message;
    struct ct_ctl_reply *piece = &message.ctl_reply;
    const char *at = text;
    int rc;

    ct_message_init(&message, CT_MESSAGE_CTL_REPLY);
    piece->code = code;
    client->is_answered = true;
    do {
        const size_t part = length < sizeof piece->text - 1 ? length
                                                            : sizeof piece->text - 1;

        memcpy(piece->text, at, part);
        piece->text[part] = '\0';
        at += part;
        length -= part;
        piece->is_last = length == 0;
        if ((rc = ct_message_encode(&client->out, &message)) < 0)
            return rc;
    } while (length > 0);
    return 0;
}

static void reply_later(struct client *client, int code, const char *text)
{
    client->ticket = 0;
    loop_timer_set(client->deadline, REMOTE_CLIENT_MS);
    if (reply(client, code, text, strlen(text)) < 0)
        client_close(client);
    else
        (void)flush(client);
}

void remote_answer(struct remote *remote, uint32_t ticket, int code, const char *text)
{
    struct ct_list *it, *keep;

    ct_list_for_each_safe(it, keep, &remote->clients) {
        struct client *client = ct_list_entry(it, struct client, node);

        if (ticket && client->ticket == ticket)
            reply_later(client, code, text);
    }
}

static void on_deadline(void *context)
{
    struct client *client = context;

    if (client->ticket) {
        reply_later(client, -ETIMEDOUT, "the rendezvous gave no answer in 5 s");
        return;
    }
    ct_info("control socket: client was too slow pid=%d", client->pid);
    client_close(client);
}

static uint32_t take_ticket(struct client *client)
{
    client->ticket = ++client->remote->last_ticket;
    loop_timer_set(client->deadline, REMOTE_LATER_MS);
    return client->ticket;
}

static int refuse_version(struct client *client, uint8_t theirs)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_REFUSE);
    client->is_answered = true;
    message.refuse.code = CTRUN_E_VERSION;
    message.refuse.version = CT_FRAME_VERSION;
    (void)ct_format(message.refuse.text, sizeof message.refuse.text,
                    "this agent speaks version %d of the protocol, the client %d",
                    CT_FRAME_VERSION, theirs);
    return ct_message_encode(&client->out, &message);
}

/* Does what is asked and queues the answer. */
static int answer(struct client *client, const struct ct_ctl_request *request)
{
    const struct remote_options *options = &client->remote->options;
    struct ctrun_error err = {0};
    struct ct_buf text;
    int rc = -ENOSYS;

    ct_buf_init(&text, REMOTE_REPLY_MAX_BYTES);
    switch (request->verb) {
    case CT_CTL_STATUS: rc = options->on_status(options->context, &text, &err); break;
    case CT_CTL_SIGNAL:
        rc = options->on_signal(options->context, request->signal, request->rank,
                                client->pid, &text, &err);
        break;
    case CT_CTL_WHY: rc = options->on_why(options->context, &text, &err); break;
    case CT_CTL_RESIZE:
        rc = options->on_resize(options->context, (uint32_t)request->signal,
                                (uint32_t)request->rank, &text, &err);
        break;
    case CT_CTL_DRAIN:
        rc = options->on_drain(options->context, request->reason, take_ticket(client),
                               &err);
        break;
    case CT_CTL_RESTART:
        rc = options->on_restart(options->context, request->reason, take_ticket(client),
                                 client->pid, &err);
        break;
    case CT_CTL_STOP: rc = ct_buf_printf(&text, "{\"stopping\":true}"); break;
    default:
        (void)ct_fail(&err, rc,
                      "request %d is unknown to this agent: it is older than ctrunctl",
                      request->verb);
        break;
    }
    if (rc < 0 && !err.text[0])
        (void)ct_fail(&err, rc, "%s", strerror(-rc));
    if (rc < 0)
        client->ticket = 0;
    rc = client->ticket ? 0
         : rc < 0       ? reply(client, rc, err.text, strlen(err.text))
                        : reply(client, 0, ct_buf_data(&text), ct_buf_length(&text));
    ct_buf_deinit(&text);
    return rc;
}

/* 1: the whole request was there and its answer is queued; 0: more is needed; or a code. */
static int take_request(struct client *client, struct ct_message *request)
{
    struct ct_frame frame;
    int rc = ct_frame_decode(ct_buf_data(&client->in), ct_buf_length(&client->in),
                             &frame);

    if (rc <= 0)
        return rc;
    if (frame.version != CT_FRAME_VERSION)
        rc = refuse_version(client, frame.version);
    else if ((rc = ct_message_decode(&frame, request)) == 0)
        rc = request->kind == CT_MESSAGE_CTL_REQUEST
                 ? answer(client, &request->ctl_request)
                 : CTRUN_E_PROTOCOL;
    return rc < 0 ? rc : 1;
}

static void on_client_readable(struct client *client)
{
    struct remote *remote = client->remote;
    const pid_t pid = client->pid;
    struct ct_message request;
    uint8_t bytes[1024];
    const ssize_t n = recv(loop_watch_fd(client->socket), bytes, sizeof bytes, 0);
    int rc;

    ct_message_init(&request, CT_MESSAGE_CTL_REQUEST); /* of another version: none */
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(client);
        return;
    }
    if ((rc = ct_buf_append(&client->in, bytes, (size_t)n)) == 0)
        rc = take_request(client, &request);
    if (rc < 0) {
        ct_warn("control socket: bad request pid=%d error=%s", pid, ct_error_name(rc));
        client_close(client);
    } else if (rc > 0) {
        if (!client->ticket)
            (void)flush(client);
        if (request.kind == CT_MESSAGE_CTL_REQUEST &&
            request.ctl_request.verb == CT_CTL_STOP)
            remote->options.on_stop(remote->options.context, request.ctl_request.reason,
                                    pid);
    }
}

static void on_client(void *context, unsigned events)
{
    struct client *client = context;

    if (client->is_answered)
        (void)flush(client);
    else if (client->ticket)
        client_close(client); /* it has gone, or says more than it should */
    else if (events & LOOP_READ)
        on_client_readable(client);
}

/* ---- Clients ---------------------------------------------------------------------------- */

static bool is_welcome(int fd, struct ucred *peer)
{
    socklen_t length = sizeof *peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0 &&
           (peer->uid == getuid() || peer->uid == 0);
}

static int client_open(struct remote *remote, int fd, pid_t pid)
{
    struct client *client = ct_zalloc(sizeof *client);

    if (!client) {
        close(fd);
        return -ENOMEM;
    }
    remote->count++;
    client->remote = remote;
    client->pid = pid;
    ct_buf_init(&client->in, CONTROL_IN_MAX_BYTES);
    ct_buf_init(&client->out, REMOTE_REPLY_MAX_BYTES + REMOTE_REPLY_MAX_BYTES / 8);
    ct_list_add(&remote->clients, &client->node);
    client->socket = loop_watch_open(remote->options.loop, fd, on_client, client);
    client->deadline = loop_timer_open(remote->options.loop, on_deadline, client);
    if (!client->socket || !client->deadline) {
        client_close(client);
        return -ENOMEM;
    }
    loop_watch_for(client->socket, LOOP_READ);
    loop_timer_set(client->deadline, REMOTE_CLIENT_MS);
    return 0;
}

static void on_connect(void *context, unsigned events)
{
    struct remote *remote = context;
    const int fd = accept4(loop_watch_fd(remote->listener), NULL, NULL,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer = {0};

    (void)events;
    if (fd < 0)
        return; /* gone before we came, or no descriptor left */
    if (remote->count >= REMOTE_CLIENTS_MAX || !is_welcome(fd, &peer)) {
        ct_warn("control socket: refused pid=%d uid=%u clients=%d", peer.pid, peer.uid,
                remote->count);
        close(fd);
        return;
    }
    if (client_open(remote, fd, peer.pid) < 0)
        ct_warn("control socket: out of memory pid=%d", peer.pid);
}

/* ---- Life ------------------------------------------------------------------------------- */

static void sweep(void *context, int dir, const char *name)
{
    const int fd = remote_dir_connect(dir, name); /* removes what nobody serves */

    (void)context;
    if (fd >= 0)
        close(fd);
}

static int open_socket(struct remote *remote, struct ctrun_error *err)
{
    char paths[REMOTE_DIRS_MAX][PATH_MAX];
    const int count = remote_dir_list(paths, getuid());
    int fd = -ENOENT;

    for (int i = 0; i < count && remote->dir < 0; i++)
        remote->dir = remote_dir_open(paths[i], true, err);
    if (remote->dir < 0)
        return remote->dir;
    remote_dir_walk(remote->dir, sweep, NULL);
    remote_dir_name(remote->name, remote->options.run_id, getpid());
    if ((fd = remote_dir_listen(remote->dir, remote->name)) < 0)
        return ct_fail(err, fd, "%s: %s", remote->name, strerror(-fd));
    return fd;
}

int remote_open(struct remote **out, const struct remote_options *options,
                struct ctrun_error *err)
{
    struct remote *remote = ct_zalloc(sizeof *remote);
    int fd;

    if (!remote)
        return ct_fail(err, -ENOMEM, "out of memory");
    remote->options = *options;
    remote->dir = -1;
    ct_list_init(&remote->clients);
    fd = open_socket(remote, err);
    if (fd >= 0)
        remote->listener = loop_watch_open(options->loop, fd, on_connect, remote);
    if (!remote->listener) {
        remote_close(remote);
        return fd < 0 ? fd : ct_fail(err, -ENOMEM, "out of memory");
    }
    loop_watch_for(remote->listener, LOOP_READ);
    *out = remote;
    return 0;
}

void remote_close(struct remote *remote)
{
    struct ct_list *it;
    struct ct_list *keep;

    if (!remote)
        return;
    ct_list_for_each_safe(it, keep, &remote->clients)
        client_close(ct_list_entry(it, struct client, node));
    if (remote->listener)
        (void)unlinkat(remote->dir, remote->name, 0);
    loop_watch_close(remote->listener);
    if (remote->dir >= 0)
        close(remote->dir);
    free(remote);
}
