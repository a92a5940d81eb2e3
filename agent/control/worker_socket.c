/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/worker_socket.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/worker_socket_private.h"
#include "agent/loop/limits.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/pass_fd.h"

enum {
    WORKER_SOCKET_ANCESTORS_MAX = 64, /* no worker's process tree is deeper */
    WORKER_SOCKET_CATCH_UP_MAX = 64   /* reads of one connection per turn */
};

/* The name is removed before the folder's descriptor is closed: so no worker connects to a
 * socket that nobody reads. */
static void leave_folder(struct worker_socket *worker_socket)
{
    if (worker_socket->dir >= 0)
        (void)unlinkat(worker_socket->dir, worker_socket->file, 0);
    ct_close(&worker_socket->dir);
}

/* Saves, before the shared memory is closed, the last step in it, and the crash record, which
 * outlives the connection. Frees the connection. */
static void connection_close(struct connection *connection)
{
    worker_socket_report_progress(connection);
    ct_close(&connection->progress);
    hold_leave(connection->hold);
    worker_socket_keep_crash(connection);
    worker_socket_keep_flight(connection);
    ct_close(&connection->flight);
    ct_close(&connection->passed);
    ct_close(&connection->crash_record);
    connection->worker_socket->count--;
    ct_list_remove(&connection->node);
    loop_watch_close(connection->socket);
    loop_timer_close(connection->hello_timer);
    ct_buf_deinit(&connection->in);
    free(connection);
}

static void on_hello_timeout(void *context)
{
    struct connection *connection = context;

    ct_log_seldom(&connection->worker_socket->silent, CTRUN_LOG_WARN,
                  "worker socket: no hello pid=%d", connection->pid);
    connection_close(connection);
}

/* A worker that cannot continue gets a world without ranks, which is sent to no other worker. */
static void on_question(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    const struct worker_socket_options *options = &worker_socket->options;
    const struct ct_worker_world nobody = {.epoch = worker_socket->world.epoch + 1};

    connection->asks = true;
    if (!options->on_ask || !options->on_ask(options->context, connection->rank,
                                             connection->generation, connection->pid))
        worker_socket_send_answer(connection, &nobody);
}

static int on_hold(struct connection *connection, const struct ct_worker_hold *request)
{
    const int passed = connection->passed;

    if (!connection->is_known)
        return CTRUN_E_PROTOCOL;
    if (!connection->hold)
        connection->hold = hold_join(connection->worker_socket->options.hold,
                                     connection, connection->rank);
    if (!connection->hold)
        return -ENOMEM;
    connection->passed = -1;
    return hold_on_request(connection->hold, request, passed);
}

/* The descriptor that came belongs to this message: it replaces an earlier one. */
static int keep_passed(struct connection *connection, int *to)
{
    if (!connection->is_known || connection->passed < 0)
        return CTRUN_E_PROTOCOL;
    ct_close(to);
    *to = connection->passed;
    connection->passed = -1;
    return 0;
}

/* A worker may connect after something was sent to all: at its HELLO it gets everything that
 * they got. A descriptor belongs to the message that follows it; it is ours from then on. 0, or
 * a code that ends the connection. */
static int on_message(struct connection *connection, const struct ct_message *message)
{
    struct worker_socket *worker_socket = connection->worker_socket;

    switch ((int)message->kind) {
    case CT_MESSAGE_WORKER_HELLO:
        connection->is_known = worker_socket->was_used = true;
        connection->rank = message->worker_hello->rank;
        connection->generation = message->worker_hello->generation;
        loop_timer_stop(connection->hello_timer);
        if (worker_socket->options.on_hello)
            worker_socket->options.on_hello(worker_socket->options.context,
                                            connection->rank, connection->generation);
        worker_socket_send_state(connection);
        return 0;
    case CT_MESSAGE_WORKER_SHRINK:
        if (!connection->is_known)
            return CTRUN_E_PROTOCOL;
        on_question(connection);
        return 0;
    case CT_MESSAGE_WORKER_STEP:
        if (!connection->is_known || message->worker_step->step > INT64_MAX)
            return CTRUN_E_PROTOCOL;
        worker_socket->options.on_progress(
            worker_socket->options.context, connection->rank, connection->generation,
            &(struct worker_socket_progress){
                .step = (int64_t)message->worker_step->step, .step_ms = ct_now_ms()});
        return 0;
    case CT_MESSAGE_WORKER_PROGRESS:
        if (keep_passed(connection, &connection->progress) < 0)
            return CTRUN_E_PROTOCOL;
        worker_socket_report_progress(connection);
        return 0;
    case CT_MESSAGE_WORKER_FLIGHT: return keep_passed(connection, &connection->flight);
    case CT_MESSAGE_WORKER_CRASH_RECORD:
        return keep_passed(connection, &connection->crash_record);
    case CT_MESSAGE_WORKER_HOLD: return on_hold(connection, message->worker_hold);
    default: return CTRUN_E_PROTOCOL;
    }
}

static int handle_frames(struct connection *connection)
{
    union { /* no worker sends other kinds */
        struct ct_worker_hello hello;
        struct ct_worker_step step;
        struct ct_worker_progress progress;
        struct ct_worker_crash_record crash_record;
        struct ct_worker_shrink shrink;
        struct ct_worker_hold hold;
        struct ct_worker_flight flight;
    } room;
    struct ct_message message;
    struct ct_frame frame;
    int rc;

    while ((rc = ct_frame_decode(ct_buf_data(&connection->in),
                                 ct_buf_length(&connection->in), &frame)) > 0) {
        const size_t taken = (size_t)rc;

        rc = frame.version == CT_FRAME_VERSION
                 ? ct_message_decode(&frame, &message, &room, sizeof room)
                 : CTRUN_E_VERSION;
        if (rc == 0)
            rc = on_message(connection, &message);
        if (rc < 0 && rc != -ENOSYS) /* unknown kind, from a newer SDK: skip it */
            return rc;
        ct_buf_consume(&connection->in, taken);
    }
    return rc;
}

/* False when there is nothing to read for now, or the connection is closed and freed. */
static bool read_connection(struct connection *connection)
{
    uint8_t bytes[1024];
    const ssize_t n = ct_receive_with_fd(loop_watch_fd(connection->socket), bytes,
                                         sizeof bytes, &connection->passed);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        connection_close(connection);
        return false;
    }
    rc = ct_buf_append(&connection->in, bytes, (size_t)n);
    if (rc == 0)
        rc = handle_frames(connection);
    if (rc < 0) {
        ct_log_seldom(&connection->worker_socket->malformed, CTRUN_LOG_WARN,
                      "worker socket: bad message pid=%d error=%s", connection->pid,
                      ct_error_name(rc));
        connection_close(connection);
    }
    return rc >= 0;
}

static void on_connection_readable(void *context, unsigned events)
{
    (void)events;
    (void)read_connection(context);
}

/* True also for a dead process not yet reaped: it may have sent a crash record. */
static bool look(pid_t pid, struct reap_process *out)
{
    out->state = '\0';
    return reap_look(pid, out) || out->state == 'Z';
}

/* True for our descendants. */
static bool is_ours(pid_t pid)
{
    struct reap_process process;

    for (int i = 0; i < WORKER_SOCKET_ANCESTORS_MAX && look(pid, &process); i++) {
        if (process.parent == getpid())
            return true;
        pid = process.parent;
    }
    return false;
}

/* No warning for a worker that has ended already: it needs no connection any more. */
static void refuse(struct worker_socket *worker_socket, pid_t pid)
{
    struct reap_process process;

    if (!reap_look(pid, &process))
        ct_log_seldom(&worker_socket->refused, CTRUN_LOG_INFO,
                      "worker socket: its process has ended pid=%d", pid);
    else
        ct_log_seldom(&worker_socket->refused, CTRUN_LOG_WARN,
                      "worker socket: refused: no process of a worker, or too many "
                      "connections pid=%d connections=%d",
                      pid, worker_socket->count);
}

/* An abstract name is open to every user of the machine: so the owner of the process is checked
 * first, which costs one system call. */
static bool let_in(struct worker_socket *worker_socket, int fd, pid_t *pid)
{
    struct ucred peer;
    socklen_t length = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return false;
    if (peer.uid != getuid()) {
        ct_log_seldom(&worker_socket->foreign, CTRUN_LOG_WARN,
                      "worker socket: refused another user's process uid=%u pid=%d",
                      peer.uid, peer.pid);
        return false;
    }
    *pid = peer.pid;
    if (worker_socket->count < worker_socket->count_max && is_ours(peer.pid))
        return true;
    refuse(worker_socket, peer.pid);
    return false;
}

/* Takes fd, on failure too. */
static int connection_open(struct worker_socket *worker_socket, int fd, pid_t pid)
{
    struct connection *connection = ct_zalloc(sizeof *connection);

    if (!connection) {
        close(fd);
        return -ENOMEM;
    }
    worker_socket->count++;
    connection->worker_socket = worker_socket;
    connection->pid = pid;
    connection->passed = connection->crash_record = connection->progress = -1;
    connection->flight = -1;
    ct_buf_init(&connection->in, WORKER_SOCKET_IN_MAX_BYTES);
    ct_list_add(&worker_socket->connections, &connection->node);
    connection->socket = loop_watch_open(worker_socket->options.loop, fd,
                                         on_connection_readable, connection);
    connection->hello_timer = loop_timer_open(worker_socket->options.loop,
                                              on_hello_timeout, connection);
    if (!connection->socket || !connection->hello_timer) {
        connection_close(connection);
        return -ENOMEM;
    }
    loop_watch_for(connection->socket, LOOP_READ);
    loop_timer_set(connection->hello_timer, WORKER_SOCKET_HELLO_MS);
    return 0;
}

/* False when no connection waits, because it has gone or no descriptor is left; the worker then
 * continues without one. */
static bool accept_one(struct worker_socket *worker_socket)
{
    const int fd = loop_listener_accept(worker_socket->listener);
    pid_t pid = -1;

    if (fd < 0)
        return false;
    if (!let_in(worker_socket, fd, &pid))
        close(fd);
    else if (connection_open(worker_socket, fd, pid) < 0)
        ct_warn("worker socket: out of memory pid=%d", pid);
    return true;
}

static void on_connect(void *context)
{
    (void)accept_one(context);
}

/* Used where no folder can be had. On Linux such a name has no file and no mode, so that only
 * let_in() keeps others out; a random part keeps them from taking the name first. */
static int listen_abstract(struct worker_socket *worker_socket)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t random = 0;
    size_t length;
    int fd;

    (void)!getrandom(&random, sizeof random,
                     GRND_NONBLOCK); /* early in boot: use the pid alone */
    (void)ct_format(worker_socket->name, sizeof worker_socket->name,
                    "@ctrun-%d-%016llx", getpid(), (unsigned long long)random);
    length = strlen(worker_socket->name);
    memcpy(address.sun_path, worker_socket->name, length);
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

/* Below /tmp, because a container that a worker starts mostly has the same /tmp. */
static int listen_in_folder(struct worker_socket *worker_socket)
{
    struct ctrun_error why;
    char folder[PATH_MAX];
    int fd;

    ctl_dir_own_name(worker_socket->file, worker_socket->options.run_id,
                     CTL_WORKER_SUFFIX);
    worker_socket->dir = ctl_dir_choose(
        folder, sizeof worker_socket->name - strlen(worker_socket->file) - 2, true,
        &why);
    if (worker_socket->dir < 0) {
        ct_info("worker socket: %s; it gets an abstract name", why.text);
        return worker_socket->dir;
    }
    ctl_dir_sweep(worker_socket->dir, CTL_WORKER_SUFFIX, ct_now_ms());
    if ((fd = ctl_dir_listen(worker_socket->dir, worker_socket->file, SOCK_STREAM)) <
        0) {
        ct_info("worker socket: %s: %s; it gets an abstract name", folder,
                strerror(-fd));
        ct_close(&worker_socket->dir);
    }
    (void)ct_format(worker_socket->name, sizeof worker_socket->name, "%s/%s", folder,
                    worker_socket->file);
    return fd;
}

int worker_socket_open(struct worker_socket **out,
                       const struct worker_socket_options *options,
                       struct ctrun_error *err)
{
    struct worker_socket *worker_socket = ct_zalloc(sizeof *worker_socket);
    int fd;

    if (!worker_socket)
        return ct_fail(err, -ENOMEM, "worker socket: out of memory");
    worker_socket->options = *options;
    ct_list_init(&worker_socket->connections);
    ct_list_init(&worker_socket->crashes);
    ct_list_init(&worker_socket->flights);
    worker_socket->dir = -1;
    fd = listen_in_folder(worker_socket);
    if (fd < 0)
        fd = listen_abstract(worker_socket);
    if (fd >= 0)
        worker_socket->listener = loop_listener_open(options->loop, fd, "worker socket",
                                                     on_connect, worker_socket);
    if (!worker_socket->listener) {
        leave_folder(worker_socket);
        free(worker_socket);
        return ct_fail(err, fd < 0 ? fd : -ENOMEM, "worker socket: %s",
                       fd < 0 ? strerror(-fd) : "out of memory");
    }
    *out = worker_socket;
    return 0;
}

void worker_socket_close(struct worker_socket *worker_socket)
{
    if (!worker_socket)
        return;
    /* the receiver of the callbacks is closing, too */
    worker_socket->options.on_progress = NULL;
    worker_socket->options.on_hello = NULL;
    ct_list_for_each_safe(struct connection, connection, &worker_socket->connections,
                          node)
        connection_close(connection);
    worker_socket_forget_crashes(worker_socket);
    worker_socket_forget_flights(worker_socket);
    loop_listener_close(worker_socket->listener);
    leave_folder(worker_socket);
    free(worker_socket);
}

const char *worker_socket_name(const struct worker_socket *worker_socket)
{
    return worker_socket->name;
}

bool worker_socket_is_used(const struct worker_socket *worker_socket)
{
    ct_list_for_each(struct connection, connection, &worker_socket->connections, node)
        if (connection->is_known)
            return true;
    return false;
}

bool worker_socket_was_used(const struct worker_socket *worker_socket)
{
    return worker_socket->was_used;
}

/* A worker that has just been reaped may have sent its crash record a moment before: connections
 * and messages that wait are read now, within limits, before its end is reported. */
void worker_socket_catch_up(struct worker_socket *worker_socket, pid_t pid)
{
    for (int i = 0; i < worker_socket->count_max && accept_one(worker_socket); i++)
        ;
    ct_list_for_each_safe(struct connection, connection, &worker_socket->connections,
                          node) {
        for (int i = 0; (pid == 0 || connection->pid == pid) &&
                        i < WORKER_SOCKET_CATCH_UP_MAX && read_connection(connection);
             i++)
            ;
    }
}

/* Forgets messages for the workers of earlier rounds. */
void worker_socket_begin_round(struct worker_socket *worker_socket, int workers)
{
    worker_socket_forget_crashes(worker_socket);
    worker_socket_forget_flights(worker_socket);
    worker_socket->is_stopping = false;
    worker_socket->loss[0] = '\0';
    worker_socket->rank_lost.losses = worker_socket->world.epoch = 0;
    worker_socket->has_new = worker_socket->was_used = false;
    worker_socket->count_max = workers * WORKER_SOCKET_CONNECTIONS_PER_WORKER + 16;
}
