/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/loop/limits.h"
#include "agent/loop/loop_listener.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/seldom.h"
#include "worker_sdk/base/str.h"

struct ctl_socket {
    struct ctl_socket_options options;
    struct loop_listener *listener;
    struct ct_list clients;
    int count;
    uint32_t last_ticket;
    int dir;
    struct ct_seldom refused, malformed, slow;
    char name[CTL_DIR_NAME_MAX];
};

/* On the loop's list until client_close(), which frees it: after a call that may close it, a
 * client must not be used. */
struct client {
    struct ct_list node;
    struct ctl_socket *ctl_socket;
    struct loop_watch *socket;
    struct loop_timer *deadline;
    struct ct_buf in;
    struct ct_buf out; /* frames not sent to the client yet */
    bool is_answered;
    uint32_t ticket; /* != 0: the client waits for ctl_socket_answer() */
    pid_t pid;
};

/* Frees the client: the caller must not use it afterwards. */
static void client_close(struct client *client)
{
    client->ctl_socket->count--;
    ct_list_remove(&client->node);
    loop_watch_close(client->socket);
    loop_timer_close(client->deadline);
    ct_buf_deinit(&client->in);
    ct_buf_deinit(&client->out);
    free(client);
}

/* ---- Answers ---------------------------------------------------------------------------- */

/* Sends as much as the client's socket accepts now. False when the client is done and freed. */
static bool flush(struct client *client)
{
    if (loop_watch_write(client->socket, &client->out) == 0 &&
        ct_buf_length(&client->out) > 0)
        return true;
    client_close(client);
    return false;
}

/* Cuts text into replies. A piece may end inside a character: ctrunctl joins the pieces before
 * it uses them. */
static int reply(struct client *client, int code, const void *text, size_t length)
{
    struct ct_ctl_reply *piece = ct_zalloc(sizeof *piece);
    const struct ct_message message = {CT_MESSAGE_CTL_REPLY, .ctl_reply = piece};
    const char *at = text;
    int rc;

    if (!piece)
        return -ENOMEM;
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
        rc = ct_message_encode(&client->out, &message);
    } while (rc == 0 && length > 0);
    free(piece);
    return rc;
}

/* May free the client. */
static void reply_later(struct client *client, int code, const char *text)
{
    client->ticket = 0;
    loop_timer_set(client->deadline, CTL_SOCKET_CLIENT_MS);
    if (reply(client, code, text, strlen(text)) < 0)
        client_close(client);
    else
        (void)flush(client);
}

void ctl_socket_answer(struct ctl_socket *ctl_socket, uint32_t ticket, int code,
                       const char *text)
{
    ct_list_for_each_safe(struct client, client, &ctl_socket->clients, node) {
        if (ticket && client->ticket == ticket)
            reply_later(client, code, text);
    }
}

static void on_deadline(void *context)
{
    struct client *client = context;

    if (client->ticket) {
        reply_later(client, -ETIMEDOUT, "the rendezvous did not answer in 5 s");
        return;
    }
    ct_log_seldom(&client->ctl_socket->slow, CTRUN_LOG_INFO,
                  "control socket: client was too slow pid=%d", client->pid);
    client_close(client);
}

/* Each ticket is used once: a late answer for a client that has gone matches no client. */
static uint32_t take_ticket(struct client *client)
{
    client->ticket = ++client->ctl_socket->last_ticket;
    loop_timer_set(client->deadline, CTL_SOCKET_LATER_MS);
    return client->ticket;
}

static int refuse_version(struct client *client, uint8_t theirs)
{
    struct ct_refuse refuse = {.code = CTRUN_E_VERSION, .version = CT_FRAME_VERSION};
    const struct ct_message message = {CT_MESSAGE_REFUSE, .refuse = &refuse};

    client->is_answered = true;
    (void)ct_format(refuse.text, sizeof refuse.text,
                    "this agent has version %d of the protocol, the client version %d",
                    CT_FRAME_VERSION, theirs);
    return ct_message_encode(&client->out, &message);
}

/* Injects the fault at once, or asks another node to do so. */
static int inject(struct client *client, const struct ct_ctl_request *request,
                  struct ct_buf *text, struct ctrun_error *err)
{
    const struct ctl_socket_options *options = &client->ctl_socket->options;
    int rc;

    if (request->fault_count == 0)
        return ct_fail(err, -EINVAL, "chaos: there is no fault in it");
    rc = options->on_chaos(options->context, &request->fault[0],
                           request->command[0].text, take_ticket(client), client->pid,
                           err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    client->ticket = 0;
    return ct_buf_printf(text, "{\"done\":true}");
}

static int reload(struct client *client, const struct ct_ctl_request *request,
                  struct ctrun_error *err)
{
    const struct ctl_socket_options *options = &client->ctl_socket->options;

    if (request->command_count == 0)
        return ct_fail(err, -EINVAL, "reload: there is no command in it");
    return options->on_reload(options->context, request->command[0].text,
                              take_ticket(client), client->pid, err);
}

/* Handles the request and queues the answer. `text` and `err` are copied into frames before this
 * returns; questions to the rendezvous are answered later, by ticket. */
static int answer(struct client *client, const struct ct_ctl_request *request)
{
    const struct ctl_socket_options *options = &client->ctl_socket->options;
    struct ctrun_error err = {0};
    struct ct_buf text;
    int rc = -ENOSYS;

    ct_buf_init(&text, CTL_SOCKET_REPLY_MAX_BYTES);
    switch (request->verb) {
    case CT_CTL_STATUS: rc = options->on_status(options->context, &text, &err); break;
    case CT_CTL_SIGNAL:
    case CT_CTL_SIGNAL_FORCED:
        rc = options->on_signal(options->context, request->signal, request->rank,
                                request->verb == CT_CTL_SIGNAL_FORCED, client->pid,
                                &text, &err);
        break;
    case CT_CTL_WHY: rc = options->on_why(options->context, &text, &err); break;
    case CT_CTL_STACKS:
        rc = options->on_stacks(options->context, request->rank, take_ticket(client),
                                &err);
        break;
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
    case CT_CTL_RELOAD: rc = reload(client, request, &err); break;
    case CT_CTL_CHAOS: rc = inject(client, request, &text, &err); break;
    case CT_CTL_STOP: rc = ct_buf_printf(&text, "{\"stopping\":true}"); break;
    default:
        (void)ct_fail(
            &err, rc,
            "this agent does not know request %d: its ctrun is older than ctrunctl",
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

/* 1: the request was complete and its answer is queued; 0: more bytes are needed; or a code. */
static int take_request(struct client *client, struct ct_ctl_request *request)
{
    struct ct_message message;
    struct ct_frame frame;
    int rc = ct_frame_decode(ct_buf_data(&client->in), ct_buf_length(&client->in),
                             &frame);

    if (rc <= 0)
        return rc;
    if (frame.version != CT_FRAME_VERSION)
        rc = refuse_version(client, frame.version);
    else if ((rc = ct_message_decode(&frame, &message, request, sizeof *request)) == 0)
        rc = message.kind == CT_MESSAGE_CTL_REQUEST ? answer(client, request)
                                                    : CTRUN_E_PROTOCOL;
    return rc < 0 ? rc : 1;
}

/* STOP is handled last: its answer is sent by then, and the client may be freed. One read per
 * call: the buffer has room for many requests, and a slow client has a deadline. */
static void on_client_readable(struct client *client)
{
    struct ctl_socket *ctl_socket = client->ctl_socket;
    const pid_t pid = client->pid;
    struct ct_ctl_request request = {0}; /* of another version: no answer */
    uint8_t bytes[1024];
    const ssize_t n = recv(loop_watch_fd(client->socket), bytes, sizeof bytes, 0);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(client);
        return;
    }
    if ((rc = ct_buf_append(&client->in, bytes, (size_t)n)) == 0)
        rc = take_request(client, &request);
    if (rc < 0) {
        ct_log_seldom(&ctl_socket->malformed, CTRUN_LOG_WARN,
                      "control socket: bad request pid=%d error=%s", pid,
                      ct_error_name(rc));
        client_close(client);
    } else if (rc > 0) {
        if (!client->ticket)
            (void)flush(client);
        if (request.verb == CT_CTL_STOP)
            ctl_socket->options.on_stop(ctl_socket->options.context, request.reason,
                                        pid);
    }
}

static void on_client(void *context, unsigned events)
{
    struct client *client = context;

    if (client->is_answered)
        (void)flush(client);
    else if (client->ticket)
        client_close(client); /* it has gone, or sends more than one request */
    else if (events & LOOP_READ)
        on_client_readable(client);
}

/* ---- Clients ---------------------------------------------------------------------------- */

/* The kernel tells which user's process it was at connect(); the mode of the folder is a second
 * check. */
static bool is_welcome(int fd, struct ucred *peer)
{
    socklen_t length = sizeof *peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0 &&
           (peer->uid == getuid() || peer->uid == 0);
}

static int client_open(struct ctl_socket *ctl_socket, int fd, pid_t pid)
{
    struct client *client = ct_zalloc(sizeof *client);

    if (!client) {
        close(fd);
        return -ENOMEM;
    }
    ctl_socket->count++;
    client->ctl_socket = ctl_socket;
    client->pid = pid;
    ct_buf_init(&client->in, CTL_SOCKET_IN_MAX_BYTES);
    ct_buf_init(&client->out,
                CTL_SOCKET_REPLY_MAX_BYTES + CTL_SOCKET_REPLY_MAX_BYTES / 8);
    ct_list_add(&ctl_socket->clients, &client->node);
    client->socket = loop_watch_open(ctl_socket->options.loop, fd, on_client, client);
    client->deadline = loop_timer_open(ctl_socket->options.loop, on_deadline, client);
    if (!client->socket || !client->deadline) {
        client_close(client);
        return -ENOMEM;
    }
    loop_watch_for(client->socket, LOOP_READ);
    loop_timer_set(client->deadline, CTL_SOCKET_CLIENT_MS);
    return 0;
}

static void on_connect(void *context)
{
    struct ctl_socket *ctl_socket = context;
    const int fd = loop_listener_accept(ctl_socket->listener);
    struct ucred peer = {0};

    if (fd < 0)
        return; /* the client has gone, or no descriptor is left */
    if (ctl_socket->count >= CTL_SOCKET_CLIENTS_MAX || !is_welcome(fd, &peer)) {
        ct_log_seldom(&ctl_socket->refused, CTRUN_LOG_WARN,
                      "control socket: refused pid=%d uid=%u clients=%d", peer.pid,
                      peer.uid, ctl_socket->count);
        close(fd);
        return;
    }
    if (client_open(ctl_socket, fd, peer.pid) < 0)
        ct_warn("control socket: out of memory pid=%d", peer.pid);
}

/* ---- Life ------------------------------------------------------------------------------- */

static int open_socket(struct ctl_socket *ctl_socket, struct ctrun_error *err)
{
    char path[PATH_MAX];
    int fd;

    ctl_socket->dir = ctl_dir_choose(path, PATH_MAX, false, err);
    if (ctl_socket->dir < 0)
        return ctl_socket->dir;
    ctl_dir_sweep(ctl_socket->dir, CTL_SOCKET_SUFFIX, ct_now_ms());
    ctl_dir_own_name(ctl_socket->name, ctl_socket->options.run_id, CTL_SOCKET_SUFFIX);
    if ((fd = ctl_dir_listen(ctl_socket->dir, ctl_socket->name, SOCK_STREAM)) < 0)
        return ct_fail(err, fd, "%s: %s", ctl_socket->name, strerror(-fd));
    return fd;
}

int ctl_socket_open(struct ctl_socket **out, const struct ctl_socket_options *options,
                    struct ctrun_error *err)
{
    struct ctl_socket *ctl_socket = ct_zalloc(sizeof *ctl_socket);
    int fd;

    if (!ctl_socket)
        return ct_fail(err, -ENOMEM, "out of memory");
    ctl_socket->options = *options;
    ctl_socket->dir = -1;
    ct_list_init(&ctl_socket->clients);
    fd = open_socket(ctl_socket, err);
    if (fd >= 0)
        ctl_socket->listener = loop_listener_open(options->loop, fd, "control socket",
                                                  on_connect, ctl_socket);
    if (!ctl_socket->listener) {
        ctl_socket_close(ctl_socket);
        return fd < 0 ? fd : ct_fail(err, -ENOMEM, "out of memory");
    }
    *out = ctl_socket;
    return 0;
}

void ctl_socket_close(struct ctl_socket *ctl_socket)
{
    if (!ctl_socket)
        return;
    ct_list_for_each_safe(struct client, client, &ctl_socket->clients, node)
        client_close(client);
    if (ctl_socket->listener)
        (void)unlinkat(ctl_socket->dir, ctl_socket->name, 0);
    loop_listener_close(ctl_socket->listener);
    if (ctl_socket->dir >= 0)
        close(ctl_socket->dir);
    free(ctl_socket);
}
