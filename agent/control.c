/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/crash.h"
#include "agent/limits.h"
#include "agent/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    CONTROL_ANCESTORS_MAX = 64, /* no worker nests deeper than that */
    CONTROL_CATCH_UP_MAX = 64   /* reads of one connection: it may be a flood */
};

struct control {
    struct control_options options;
    struct loop_watch *listener;
    struct ct_list connections;
    struct ct_list crashes; /* records of those that are gone: one a rank */
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
    int passed; /* a descriptor that came; its message may not be complete yet; -1: none */
    int crash_record; /* -1: none */
};

struct crash {
    struct ct_list node;
    int rank;
    uint64_t generation;
    pid_t pid;
    int record;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void forget_crash(struct crash *crash)
{
    ct_list_remove(&crash->node);
    close_fd(&crash->record);
    free(crash);
}

static struct crash *find_crash(const struct control *control, int rank,
                                uint64_t generation)
{
    struct ct_list *it;

    ct_list_for_each(it, &control->crashes) {
        struct crash *crash = ct_list_entry(it, struct crash, node);

        if (crash->rank == rank && crash->generation == generation)
            return crash;
    }
    return NULL;
}

static int count_crashes(const struct control *control)
{
    struct ct_list *it;
    int count = 0;

    ct_list_for_each(it, &control->crashes)
        count++;
    return count;
}

/* Its process ends, perhaps before we know: what it wrote waits until somebody asks. A worker may
 * live on and start one child after the other that crashes, and whoever lies about its rank may
 * as well: only the last counts, and there are no more of them than may connect. */
static void keep_crash(struct connection *connection)
{
    struct control *control = connection->control;
    struct crash *earlier;
    struct crash *crash;

    if (connection->crash_record < 0 || !crash_is_told(connection->crash_record) ||
        !(crash = ct_zalloc(sizeof *crash)))
        return;
    crash->rank = connection->rank;
    crash->generation = connection->generation;
    crash->pid = connection->pid;
    crash->record = connection->crash_record;
    connection->crash_record = -1;
    if ((earlier = find_crash(control, crash->rank, crash->generation)))
        forget_crash(earlier);
    else if (count_crashes(control) >= control->count_max)
        forget_crash(ct_list_entry(control->crashes.next, struct crash, node));
    ct_list_add(&control->crashes, &crash->node);
}

static void forget_crashes(struct control *control)
{
    struct ct_list *it;
    struct ct_list *keep;

    ct_list_for_each_safe(it, keep, &control->crashes)
        forget_crash(ct_list_entry(it, struct crash, node));
}

static void connection_close(struct connection *connection)
{
    keep_crash(connection);
    close_fd(&connection->passed);
    close_fd(&connection->crash_record);
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
    struct ct_message message;
    struct ct_buf out;

    ct_message_init(&message, CT_MESSAGE_WORKER_SHOULD_STOP);
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
    case CT_MESSAGE_WORKER_CRASH_RECORD:
        if (!connection->is_known || connection->passed < 0)
            return CTRUN_E_PROTOCOL;
        close_fd(&connection->crash_record);
        connection->crash_record = connection->passed;
        connection->passed = -1;
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

/* The last descriptor that came counts; all others are closed. */
static void take_descriptors(struct connection *connection, struct msghdr *packet)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head;
         head = CMSG_NXTHDR(packet, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; i++) {
            close_fd(&connection->passed);
            memcpy(&connection->passed, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        }
    }
}

static ssize_t receive(struct connection *connection, void *dst, size_t size)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec data = {.iov_base = dst, .iov_len = size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    const ssize_t n = recvmsg(loop_watch_fd(connection->socket), &packet,
                              MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (n > 0)
        take_descriptors(connection, &packet);
    return n;
}

/* False when there is nothing to read for now, or the connection is closed and gone. */
static bool read_connection(struct connection *connection)
{
    uint8_t bytes[1024];
    const ssize_t n = receive(connection, bytes, sizeof bytes);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        connection_close(connection);
        return false;
    }
    rc = ct_buf_append(&connection->in, bytes, (size_t)n);
    if (rc == 0)
        rc = take_frames(connection);
    if (rc < 0) {
        ct_warn("worker socket: bad message pid=%d error=%s", connection->pid,
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

/* Also when it is dead and not yet reaped: it may have told of its crash. */
static bool look(pid_t pid, struct reap_process *out)
{
    out->state = '\0';
    return reap_look(pid, out) || out->state == 'Z';
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
    for (int i = 0; i < CONTROL_ANCESTORS_MAX && look(at, &process); i++) {
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
    connection->passed = connection->crash_record = -1;
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

/* False when nobody waits: gone before we came, or no descriptor left: the worker carries on
 * without. */
static bool accept_one(struct control *control)
{
    const int fd = accept4(loop_watch_fd(control->listener), NULL, NULL,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid = -1;

    if (fd < 0)
        return false;
    if (control->count >= control->count_max || !is_ours(fd, &pid))
        refuse(control, fd, pid);
    else if (connection_open(control, fd, pid) < 0)
        ct_warn("worker socket: out of memory pid=%d", pid);
    return true;
}

static void on_connect(void *context, unsigned events)
{
    (void)events;
    (void)accept_one(context);
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
    ct_list_init(&control->crashes);
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
    forget_crashes(control);
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

/* ---- Crashes ------------------------------------------------------------------------- */

void control_catch_up(struct control *control)
{
    struct ct_list *it;
    struct ct_list *keep;

    for (int i = 0; i < control->count_max && accept_one(control); i++)
        ;
    ct_list_for_each_safe(it, keep, &control->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        for (int i = 0; i < CONTROL_CATCH_UP_MAX && read_connection(connection); i++)
            ;
    }
}

/* What is connected still is a worker's child, or the worker that has just ended: that one comes
 * last, and nothing replaces it. */
static void keep_crashes(struct control *control, const struct crash *found, pid_t pid)
{
    struct ct_list *it;

    if (found && found->pid == pid)
        return;
    for (int pass = 0; pass <= 1; pass++)
        ct_list_for_each(it, &control->connections) {
            struct connection *connection = ct_list_entry(it, struct connection, node);

            if ((connection->pid == pid) == (pass == 1))
                keep_crash(connection);
        }
}

int control_take_crash(struct control *control, int rank, uint64_t generation,
                       pid_t pid)
{
    struct crash *crash;
    int record;

    keep_crashes(control, find_crash(control, rank, generation), pid);
    if (!(crash = find_crash(control, rank, generation)))
        return -1;
    record = crash->record;
    crash->record = -1;
    forget_crash(crash);
    return record;
}

void control_begin_round(struct control *control, int workers)
{
    forget_crashes(control);
    control->is_stopping = false;
    control->count_max = workers * CONTROL_CONNECTIONS_PER_WORKER + 16;
}
