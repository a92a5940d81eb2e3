/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    CONTROL_ANCESTORS_MAX = 64
}; /* no worker nests deeper than that */

struct control {
    struct control_options options;
    struct loop_watch *listener;
    struct ct_list connections;
    int count;
    int count_max;
    bool is_stopping;
    char reason[128];
    char name[CONTROL_NAME_MAX];
};

struct connection {
    struct ct_list node;
    struct control *control;
    struct loop_watch *socket;
    struct loop_timer *hello_timer; /* runs until WORKER_HELLO */
    struct ct_buf in;
    bool is_known; /* said hello */
    int rank;
    uint64_t generation;
    pid_t pid;
};

static void connection_close(struct connection *connection)
{
    connection->control->count--;
    ct_list_remove(&connection->node);
    loop_watch_close(connection->socket);
    loop_timer_close(connection->hello_timer);
    ct_buf_deinit(&connection->in);
    free(connection);
}

static void on_hello_timeout(void *context)
{
    struct connection *connection = context;

    ct_warn("worker socket: no hello pid=%d", connection->pid);
    connection_close(connection);
}

static void send_should_stop(struct connection *connection)
{
    struct ct_message message = {.kind = CT_MESSAGE_WORKER_SHOULD_STOP};
    struct ct_buf out;

    ct_buf_init(&out, CONTROL_IN_MAX_BYTES);
    (void)ct_copy(message.worker_should_stop.reason,
                  sizeof message.worker_should_stop.reason,
                  connection->control->reason);
    if (ct_message_encode(&out, &message) == 0 &&
        send(loop_watch_fd(connection->socket), ct_buf_data(&out), ct_buf_length(&out),
             MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        ct_debug("worker socket: %s rank=%d", strerror(errno), connection->rank);
    ct_buf_deinit(&out); /* a worker that does not read gets SIGTERM all the same */
}

/* 0, or a code that ends the connection. */
static int take_message(struct connection *connection, const struct ct_message *message)
{
    struct control *control = connection->control;

    switch ((int)message->kind) {
    case CT_MESSAGE_WORKER_HELLO:
        connection->is_known = true;
        connection->rank = message->worker_hello.rank;
        connection->generation = message->worker_hello.generation;
        loop_timer_stop(connection->hello_timer);
        if (control->is_stopping)
            send_should_stop(connection);
        return 0;
    case CT_MESSAGE_WORKER_STEP:
        if (!connection->is_known || message->worker_step.step > INT64_MAX)
            return CTRUN_E_PROTOCOL;
        control->options.on_step(control->options.context, connection->rank,
                                 connection->generation,
                                 (int64_t)message->worker_step.step);
        return 0;
    default: return CTRUN_E_PROTOCOL;
    }
}

static int take_frames(struct connection *connection)
{
    struct ct_message message;
    struct ct_frame frame;
    int rc;

    while ((rc = ct_frame_decode(ct_buf_data(&connection->in),
                                 ct_buf_length(&connection->in), &frame)) > 0) {
        const size_t taken = (size_t)rc;

        rc = frame.version == CT_FRAME_VERSION ? ct_message_decode(&frame, &message)
                                               : CTRUN_E_VERSION;
        if (rc == 0)
            rc = take_message(connection, &message);
        if (rc < 0 && rc != -ENOSYS) /* an unknown kind is a newer SDK's: skip it */
            return rc;
        ct_buf_consume(&connection->in, taken);
    }
    return rc;
}

static void on_connection_readable(void *context, unsigned events)
{
    struct connection *connection = context;
    uint8_t bytes[1024];
    const ssize_t n = recv(loop_watch_fd(connection->socket), bytes, sizeof bytes, 0);
    int rc;

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        connection_close(connection);
        return;
    }
    rc = ct_buf_append(&connection->in, bytes, (size_t)n);
    if (rc == 0)
        rc = take_frames(connection);
    if (rc < 0) {
        ct_warn("worker socket: bad message pid=%d error=%s", connection->pid,
                ct_error_name(rc));
        connection_close(connection);
    }
}

/* Same user, and one of our descendants. */
static bool is_ours(int fd, pid_t *pid)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    struct reap_process process;
    pid_t at;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return false;
    *pid = at = peer.pid;
    if (peer.uid != getuid())
        return false;
    for (int i = 0; i < CONTROL_ANCESTORS_MAX && reap_look(at, &process); i++) {
        if (process.parent == getpid())
            return true;
        at = process.parent;
    }
    return false;
}

/* A worker that ended at once has said what it had to say: nobody to be warned of. */
static void refuse(const struct control *control, int fd, pid_t pid)
{
    struct reap_process process;

    if (pid > 0 && !reap_look(pid, &process))
        ct_info("worker socket: its process has ended pid=%d", pid);
    else
        ct_warn("worker socket: refused pid=%d connections=%d", pid, control->count);
    close(fd);
}

static int connection_open(struct control *control, int fd, pid_t pid)
{
    struct connection *connection = ct_zalloc(sizeof *connection);

    if (!connection) {
        close(fd);
        return -ENOMEM;
    }
    control->count++;
    connection->control = control;
    connection->pid = pid;
    ct_buf_init(&connection->in, CONTROL_IN_MAX_BYTES);
    ct_list_add(&control->connections, &connection->node);
    connection->socket = loop_watch_open(control->options.loop, fd,
                                         on_connection_readable, connection);
    connection->hello_timer = loop_timer_open(control->options.loop, on_hello_timeout,
                                              connection);
    if (!connection->socket || !connection->hello_timer) {
        connection_close(connection);
        return -ENOMEM;
    }
    loop_watch_for(connection->socket, LOOP_READ);
    loop_timer_set(connection->hello_timer, CONTROL_HELLO_MS);
    return 0;
}

static void on_connect(void *context, unsigned events)
{
    struct control *control = context;
    const int fd = accept4(loop_watch_fd(control->listener), NULL, NULL,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid = -1;

    (void)events;
    if (fd < 0)
        return; /* gone before we came, or no descriptor left: the worker carries on without */
    if (control->count >= control->count_max || !is_ours(fd, &pid)) {
        refuse(control, fd, pid);
        return;
    }
    if (connection_open(control, fd, pid) < 0)
        ct_warn("worker socket: out of memory pid=%d", pid);
}

static int listen_abstract(struct control *control)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t random = 0;
    size_t length;
    int fd;

    (void)!getrandom(&random, sizeof random,
                     GRND_NONBLOCK); /* early in boot: the pid will do */
    (void)ct_format(control->name, sizeof control->name, "@ctrun-%d-%016llx", getpid(),
                    (unsigned long long)random);
    length = strlen(control->name);
    memcpy(address.sun_path, control->name, length);
    address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0 ||
        listen(fd, SOMAXCONN) < 0) {
        const int rc = -errno;

        close(fd);
        return rc;
    }
    return fd;
}

int control_open(struct control **out, const struct control_options *options,
                 struct ctrun_error *err)
{
    struct control *control = ct_zalloc(sizeof *control);
    int fd;

    if (!control)
        return ct_fail(err, -ENOMEM, "worker socket: out of memory");
    control->options = *options;
    ct_list_init(&control->connections);
    fd = listen_abstract(control);
    if (fd >= 0)
        control->listener = loop_watch_open(options->loop, fd, on_connect, control);
    if (!control->listener) {
        free(control);
        return ct_fail(err, fd < 0 ? fd : -ENOMEM, "worker socket: %s",
                       fd < 0 ? strerror(-fd) : "out of memory");
    }
    loop_watch_for(control->listener, LOOP_READ);
    *out = control;
    return 0;
}

void control_close(struct control *control)
{
    struct ct_list *it;
    struct ct_list *keep;

    if (!control)
        return;
    ct_list_for_each_safe(it, keep, &control->connections)
        connection_close(ct_list_entry(it, struct connection, node));
    loop_watch_close(control->listener);
    free(control);
}

const char *control_name(const struct control *control)
{
    return control->name;
}

int control_ask_to_stop(struct control *control, const char *reason)
{
    struct ct_list *it;
    int count = 0;

    control->is_stopping = true;
    (void)ct_copy(control->reason, sizeof control->reason, reason);
    ct_list_for_each(it, &control->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->is_known) {
            send_should_stop(connection);
            count++;
        }
    }
    return count;
}

void control_begin_round(struct control *control, int workers)
{
    control->is_stopping = false;
    control->count_max = workers * CONTROL_CONNECTIONS_PER_WORKER + 16;
}
