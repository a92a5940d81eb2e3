/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/worker_socket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/loop/limits.h"
#include "agent/postmortem/crash.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/seldom.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/pass_fd.h"
#include "worker_sdk/wire/progress.h"

enum {
    WORKER_SOCKET_ANCESTORS_MAX = 64, /* no worker nests deeper than that */
    WORKER_SOCKET_CATCH_UP_MAX = 64   /* reads of one connection: it may be a flood */
};

struct worker_socket {
    struct worker_socket_options options;
    struct loop_watch *listener;
    struct ct_list connections;
    struct ct_list crashes; /* records of those that are gone: one a rank */
    struct ct_list flights; /* likewise, as many as may connect */
    int flight_count;
    int count;
    int count_max;
    bool is_stopping;
    struct ct_seldom foreign, refused, malformed, silent;
    char reason[128];
    char loss[192];                       /* empty: no node of the round is lost */
    struct ct_worker_rank_lost rank_lost; /* the last one; losses 0: none */
    uint32_t epoch;                       /* of the last world that was told */
    bool was_used;                        /* a worker has spoken, in this round */
    bool has_new;                         /* somebody waits for the next one */
    char name[WORKER_SOCKET_NAME_MAX];
    int dir; /* where it is file[]; -1: its name is abstract */
    char file[CTL_DIR_NAME_MAX];
};

struct connection {
    struct ct_list node;
    struct worker_socket *worker_socket;
    struct loop_watch *socket;
    struct loop_timer *hello_timer; /* runs until WORKER_HELLO */
    struct ct_buf in;
    bool is_known; /* said hello */
    bool asks;     /* who goes on, and has no answer */
    int rank;
    uint64_t generation;
    pid_t pid;
    int passed; /* a descriptor that came; its message may not be complete yet; -1: none */
    int crash_record;         /* -1: none */
    int progress;             /* -1: none */
    struct hold_client *hold; /* NULL: it holds no checkpoints */
    int flight;               /* -1: none */
};

/* The record of calls of a process that is gone. */
struct gone_flight {
    struct ct_list node;
    int rank;
    uint64_t generation;
    int record;
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

/* The name goes before the folder's descriptor: nobody connects to a socket that nobody reads. */
static void leave_folder(struct worker_socket *worker_socket)
{
    if (worker_socket->dir >= 0)
        (void)unlinkat(worker_socket->dir, worker_socket->file, 0);
    close_fd(&worker_socket->dir);
}

/* The record's descriptor is ours, unless worker_socket_take_crash() has given it away (-1). */
static void forget_crash(struct crash *crash)
{
    ct_list_remove(&crash->node);
    close_fd(&crash->record);
    free(crash);
}

static struct crash *find_crash(const struct worker_socket *worker_socket, int rank,
                                uint64_t generation)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->crashes) {
        struct crash *crash = ct_list_entry(it, struct crash, node);

        if (crash->rank == rank && crash->generation == generation)
            return crash;
    }
    return NULL;
}

static int count_crashes(const struct worker_socket *worker_socket)
{
    struct ct_list *it;
    int count = 0;

    ct_list_for_each(it, &worker_socket->crashes)
        count++;
    return count;
}

/* Its process ends, perhaps before we know: what it wrote waits until somebody asks. A worker may
 * live on and start one child after the other that crashes, and whoever lies about its rank may
 * as well: only the last counts, and there are no more of them than may connect. */
static void keep_crash(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    struct crash *earlier;
    struct crash *crash;

    if (connection->crash_record < 0 || !crash_is_recorded(connection->crash_record) ||
        !(crash = ct_zalloc(sizeof *crash)))
        return;
    crash->rank = connection->rank;
    crash->generation = connection->generation;
    crash->pid = connection->pid;
    crash->record = connection->crash_record;
    connection->crash_record = -1;
    if ((earlier = find_crash(worker_socket, crash->rank, crash->generation)))
        forget_crash(earlier);
    else if (count_crashes(worker_socket) >= worker_socket->count_max)
        forget_crash(ct_list_entry(worker_socket->crashes.next, struct crash, node));
    ct_list_add(&worker_socket->crashes, &crash->node);
}

static void forget_flight(struct worker_socket *worker_socket,
                          struct gone_flight *flight)
{
    worker_socket->flight_count--;
    ct_list_remove(&flight->node);
    close_fd(&flight->record);
    free(flight);
}

static void forget_flights(struct worker_socket *worker_socket)
{
    while (!ct_list_is_empty(&worker_socket->flights))
        forget_flight(worker_socket, ct_list_entry(worker_socket->flights.next,
                                                   struct gone_flight, node));
}

/* The first of a rank stays: a worker outlives what it starts, or what is left of it is not looked at. */
static void keep_flight(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    struct gone_flight *flight;

    if (connection->flight < 0 ||
        worker_socket->flight_count >= worker_socket->count_max ||
        !(flight = ct_zalloc(sizeof *flight)))
        return;
    flight->rank = connection->rank;
    flight->generation = connection->generation;
    flight->record = connection->flight;
    connection->flight = -1;
    worker_socket->flight_count++;
    ct_list_add(&worker_socket->flights, &flight->node);
}

static void forget_crashes(struct worker_socket *worker_socket)
{
    struct ct_list *it;
    struct ct_list *keep;

    ct_list_for_each_safe(it, keep, &worker_socket->crashes)
        forget_crash(ct_list_entry(it, struct crash, node));
}

/* In two steps: what is counted by the first one is there for the second. Returns how many; a name that
 * is none is left out. */
static int read_metrics(int page, uint64_t count,
                        struct ct_metric metrics[CT_METRICS_MAX])
{
    struct ct_progress_metric raw[CT_METRICS_MAX];
    const ssize_t length = count <= CT_METRICS_MAX
                               ? pread(page, raw, count * sizeof *raw,
                                       offsetof(struct ct_progress, metrics))
                               : 0;
    int found = 0;

    for (size_t i = 0; (ssize_t)((i + 1) * sizeof *raw) <= length; i++) {
        if (!ct_metric_is_name(raw[i].name, sizeof raw[i].name))
            continue;
        metrics[found].value = ct_metric_from_bits(raw[i].bits);
        (void)ct_copy(metrics[found++].name, CT_METRIC_NAME_MAX, raw[i].name);
    }
    return found;
}

/* NULL: it has told none, or was writing when it died. */
static const struct ct_samples *read_samples(int page, struct ct_samples *out)
{
    struct ct_progress_samples raw;

    if (pread(page, &raw, sizeof raw, offsetof(struct ct_progress, samples)) !=
            (ssize_t)sizeof raw ||
        raw.sequence == 0 || raw.sequence % 2 != 0 || raw.count == 0 ||
        raw.count > CT_SAMPLES_MAX || raw.total < raw.count)
        return NULL;
    out->total = raw.total;
    out->count = (uint8_t)raw.count;
    for (uint32_t i = 0; i < raw.count; i++)
        out->list[i].id = raw.ids[i];
    return out;
}

/* pread(): whoever has the memory may make it shorter under a mapping. */
static void report_progress(const struct connection *connection)
{
    const struct worker_socket_options *options = &connection->worker_socket->options;
    const uint64_t now_ms = ct_now_ms();
    struct ct_metric metrics[CT_METRICS_MAX];
    struct ct_progress page;
    struct worker_socket_progress progress;
    struct ct_samples samples;

    if (connection->progress < 0 || !options->on_progress ||
        pread(connection->progress, &page, offsetof(struct ct_progress, metrics), 0) !=
            offsetof(struct ct_progress, metrics) ||
        page.magic != CT_PROGRESS_MAGIC || page.step > INT64_MAX)
        return;
    progress = (struct worker_socket_progress){
        .step = page.step_ms > 0 ? (int64_t)page.step : -1,
        .step_ms = page.step_ms < now_ms ? page.step_ms : now_ms,
        .waits = page.waits > 0,
        .metric_count = read_metrics(connection->progress, page.metric_count, metrics),
        .metrics = metrics,
        .samples = read_samples(connection->progress, &samples),
    };
    options->on_progress(options->context, connection->rank, connection->generation,
                         &progress);
}

void worker_socket_refresh(struct worker_socket *worker_socket)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->connections)
        report_progress(ct_list_entry(it, struct connection, node));
}

/* Before the memory goes: the last step that it holds, and the crash record that its worker has
 * written, which outlives the connection. Frees the connection. */
static void connection_close(struct connection *connection)
{
    report_progress(connection);
    close_fd(&connection->progress);
    hold_leave(connection->hold);
    keep_crash(connection);
    keep_flight(connection);
    close_fd(&connection->flight);
    close_fd(&connection->passed);
    close_fd(&connection->crash_record);
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

/* Never waits: a worker that reads nothing must not hold up the agent's loop. False: it was not sent. */
static bool send_message(struct connection *connection,
                         const struct ct_message *message)
{
    struct ct_buf out;
    bool is_sent;

    ct_buf_init(&out, WORKER_SOCKET_IN_MAX_BYTES);
    is_sent = ct_message_encode(&out, message) == 0 &&
              send(loop_watch_fd(connection->socket), ct_buf_data(&out),
                   ct_buf_length(&out),
                   MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)ct_buf_length(&out);
    if (!is_sent)
        ct_debug("worker socket: %s was not sent rank=%d",
                 ct_message_name((int)message->kind), connection->rank);
    ct_buf_deinit(&out); /* a worker that does not read gets SIGTERM all the same */
    return is_sent;
}

/* The worker waits for this message: without it, it reads the end of the connection. That is closed here when the
 * agent's loop reads the same. */
static void end_wait(const struct connection *connection)
{
    ct_warn("worker socket: a reply could not be sent rank=%d", connection->rank);
    (void)shutdown(loop_watch_fd(connection->socket), SHUT_RDWR);
}

/* With a descriptor, unless it is -1. False: not all of it is on its way. */
static bool send_reply(const struct connection *connection, struct ct_buf *out, int fd)
{
    const size_t length = ct_buf_length(out);

    return ct_send_with_fd(loop_watch_fd(connection->socket), ct_buf_data(out), length,
                           fd) == (ssize_t)length;
}

void worker_socket_reply_hold(void *context, void *peer,
                              const struct ct_worker_hold_reply *reply, int fd)
{
    const struct connection *connection = peer;
    const struct ct_message message = {CT_MESSAGE_WORKER_HOLD_REPLY,
                                       .worker_hold_reply = reply};
    struct ct_buf out;

    (void)context;
    ct_buf_init(&out, WORKER_SOCKET_IN_MAX_BYTES);
    if (ct_message_encode(&out, &message) < 0 || !send_reply(connection, &out, fd))
        end_wait(connection);
    ct_buf_deinit(&out);
}

static void send_should_stop(struct connection *connection)
{
    struct ct_worker_should_stop stop = {0};
    const struct ct_message message = {CT_MESSAGE_WORKER_SHOULD_STOP,
                                       .worker_should_stop = &stop};

    (void)ct_copy(stop.reason, sizeof stop.reason, connection->worker_socket->reason);
    (void)send_message(connection, &message);
}

static void send_loss(struct connection *connection)
{
    struct ct_worker_node_lost lost = {0};
    const struct ct_message message = {CT_MESSAGE_WORKER_NODE_LOST,
                                       .worker_node_lost = &lost};

    (void)ct_copy(lost.text, sizeof lost.text, connection->worker_socket->loss);
    (void)send_message(connection, &message);
}

static void send_rank_loss(struct connection *connection)
{
    (void)send_message(connection,
                       &(struct ct_message){
                           CT_MESSAGE_WORKER_RANK_LOST,
                           .worker_rank_lost = &connection->worker_socket->rank_lost});
}

static void send_grow(struct connection *connection)
{
    const struct ct_worker_grow grow = {.epoch = connection->worker_socket->epoch};

    (void)send_message(
        connection, &(struct ct_message){CT_MESSAGE_WORKER_GROW, .worker_grow = &grow});
}

static void send_world(struct connection *connection,
                       const struct ct_worker_world *world)
{
    connection->asks = false;
    if (!send_message(connection, &(struct ct_message){CT_MESSAGE_WORKER_WORLD,
                                                       .worker_world = world}))
        end_wait(connection);
}

/* Who cannot go on hears it by a world without anybody, which is for nobody else. */
static void on_question(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    const struct worker_socket_options *options = &worker_socket->options;
    const struct ct_worker_world nobody = {.epoch = worker_socket->epoch + 1};

    connection->asks = true;
    if (!options->on_ask || !options->on_ask(options->context, connection->rank,
                                             connection->generation, connection->pid))
        send_world(connection, &nobody);
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

/* A worker may connect after it was to be told something: its HELLO gets what all have got. What a
 * descriptor belongs to is said by the message that follows it; it is ours from then on. 0, or a
 * code that ends the connection. */
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
        if (worker_socket->is_stopping)
            send_should_stop(connection);
        if (worker_socket->loss[0])
            send_loss(connection);
        if (worker_socket->rank_lost.losses)
            send_rank_loss(connection);
        if (worker_socket->has_new)
            send_grow(connection);
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
        if (!connection->is_known || connection->passed < 0)
            return CTRUN_E_PROTOCOL;
        close_fd(&connection->progress);
        connection->progress = connection->passed;
        connection->passed = -1;
        report_progress(connection);
        return 0;
    case CT_MESSAGE_WORKER_FLIGHT:
        if (!connection->is_known || connection->passed < 0)
            return CTRUN_E_PROTOCOL;
        close_fd(&connection->flight);
        connection->flight = connection->passed;
        connection->passed = -1;
        return 0;
    case CT_MESSAGE_WORKER_CRASH_RECORD:
        if (!connection->is_known || connection->passed < 0)
            return CTRUN_E_PROTOCOL;
        close_fd(&connection->crash_record);
        connection->crash_record = connection->passed;
        connection->passed = -1;
        return 0;
    case CT_MESSAGE_WORKER_HOLD: return on_hold(connection, message->worker_hold);
    default: return CTRUN_E_PROTOCOL;
    }
}

static int handle_frames(struct connection *connection)
{
    union { /* all that a worker sends */
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
        if (rc < 0 && rc != -ENOSYS) /* an unknown kind is a newer SDK's: skip it */
            return rc;
        ct_buf_consume(&connection->in, taken);
    }
    return rc;
}

/* False when there is nothing to read for now, or the connection is closed and gone. */
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

/* Also when it is dead and not yet reaped: it may have told of its crash. */
static bool look(pid_t pid, struct reap_process *out)
{
    out->state = '\0';
    return reap_look(pid, out) || out->state == 'Z';
}

/* One of our descendants. */
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

/* A worker that ended at once has said what it had to say: nobody to be warned of. */
static void refuse(struct worker_socket *worker_socket, pid_t pid)
{
    struct reap_process process;

    if (!reap_look(pid, &process))
        ct_log_seldom(&worker_socket->refused, CTRUN_LOG_INFO,
                      "worker socket: its process has ended pid=%d", pid);
    else
        ct_log_seldom(&worker_socket->refused, CTRUN_LOG_WARN,
                      "worker socket: refused pid=%d connections=%d", pid,
                      worker_socket->count);
}

/* An abstract name would be open to every user of the machine: whose process it is comes first,
 * and costs one system call. */
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

/* False when nobody waits: gone before we came, or no descriptor left: the worker carries on
 * without. */
static bool accept_one(struct worker_socket *worker_socket)
{
    const int fd = accept4(loop_watch_fd(worker_socket->listener), NULL, NULL,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid = -1;

    if (fd < 0)
        return false;
    if (!let_in(worker_socket, fd, &pid))
        close(fd);
    else if (connection_open(worker_socket, fd, pid) < 0)
        ct_warn("worker socket: out of memory pid=%d", pid);
    return true;
}

static void on_connect(void *context, unsigned events)
{
    (void)events;
    (void)accept_one(context);
}

/* Where no folder can be had. Linux gives such a name no file and no mode, so that let_in() alone
 * keeps others out; a random part keeps them from taking the name first. */
static int listen_abstract(struct worker_socket *worker_socket)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t random = 0;
    size_t length;
    int fd;

    (void)!getrandom(&random, sizeof random,
                     GRND_NONBLOCK); /* early in boot: the pid will do */
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

/* Below /tmp, because a container that a worker begins mostly has that. */
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
    ctl_dir_sweep(worker_socket->dir, CTL_WORKER_SUFFIX);
    if ((fd = ctl_dir_listen(worker_socket->dir, worker_socket->file, SOCK_STREAM)) <
        0) {
        ct_info("worker socket: %s: %s; it gets an abstract name", folder,
                strerror(-fd));
        close_fd(&worker_socket->dir);
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
        worker_socket->listener = loop_watch_open(options->loop, fd, on_connect,
                                                  worker_socket);
    if (!worker_socket->listener) {
        leave_folder(worker_socket);
        free(worker_socket);
        return ct_fail(err, fd < 0 ? fd : -ENOMEM, "worker socket: %s",
                       fd < 0 ? strerror(-fd) : "out of memory");
    }
    loop_watch_for(worker_socket->listener, LOOP_READ);
    *out = worker_socket;
    return 0;
}

void worker_socket_close(struct worker_socket *worker_socket)
{
    struct ct_list *it;
    struct ct_list *keep;

    if (!worker_socket)
        return;
    worker_socket->options.on_progress = NULL; /* who would hear it closes, too */
    worker_socket->options.on_hello = NULL;
    ct_list_for_each_safe(it, keep, &worker_socket->connections)
        connection_close(ct_list_entry(it, struct connection, node));
    forget_crashes(worker_socket);
    forget_flights(worker_socket);
    loop_watch_close(worker_socket->listener);
    leave_folder(worker_socket);
    free(worker_socket);
}

const char *worker_socket_name(const struct worker_socket *worker_socket)
{
    return worker_socket->name;
}

/* Who is not connected cannot be asked, and hears it when it connects. Only when nobody was told does
 * the caller (agent_drain) signal at once: else all workers have the grace time. */
int worker_socket_ask_to_stop(struct worker_socket *worker_socket, const char *reason)
{
    struct ct_list *it;
    int count = 0;

    worker_socket->is_stopping = true;
    (void)ct_copy(worker_socket->reason, sizeof worker_socket->reason, reason);
    ct_list_for_each(it, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->is_known) {
            send_should_stop(connection);
            count++;
        }
    }
    return count;
}

void worker_socket_send_loss(struct worker_socket *worker_socket, const char *text)
{
    struct ct_list *it;

    (void)ct_copy(worker_socket->loss, sizeof worker_socket->loss,
                  text); /* cut is fine */
    ct_list_for_each(it, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->is_known)
            send_loss(connection);
    }
}

void worker_socket_send_rank_loss(struct worker_socket *worker_socket, uint32_t losses,
                                  const char *text)
{
    struct ct_list *it;

    worker_socket->rank_lost.losses = losses;
    (void)ct_copy(worker_socket->rank_lost.text, sizeof worker_socket->rank_lost.text,
                  text); /* cut is fine */
    ct_list_for_each(it, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->is_known)
            send_rank_loss(connection);
    }
}

void worker_socket_send_world(struct worker_socket *worker_socket,
                              const struct ct_worker_world *world)
{
    struct ct_list *it;

    worker_socket->epoch = world->epoch;
    worker_socket->has_new = false;
    ct_list_for_each(it, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->asks)
            send_world(connection, world);
    }
}

void worker_socket_send_grow(struct worker_socket *worker_socket)
{
    struct ct_list *it;

    worker_socket->has_new = true;
    ct_list_for_each(it, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        if (connection->is_known)
            send_grow(connection);
    }
}

bool worker_socket_is_used(const struct worker_socket *worker_socket)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->connections)
        if (ct_list_entry(it, struct connection, node)->is_known)
            return true;
    return false;
}

bool worker_socket_was_used(const struct worker_socket *worker_socket)
{
    return worker_socket->was_used;
}

void worker_socket_each_flight(const struct worker_socket *worker_socket,
                               uint64_t generation, worker_socket_flight_fn *fn,
                               void *context)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->connections) {
        const struct connection *connection = ct_list_entry(it, struct connection,
                                                            node);

        if (connection->flight >= 0 && connection->generation == generation)
            fn(context, connection->rank, connection->flight);
    }
    ct_list_for_each(it, &worker_socket->flights) {
        const struct gone_flight *flight = ct_list_entry(it, struct gone_flight, node);

        if (flight->generation == generation)
            fn(context, flight->rank, flight->record);
    }
}

/* ---- Crashes ------------------------------------------------------------------------- */

/* A worker that has just been reaped may have told its crash a moment before: what waits on the
 * listener and in the sockets is read now, within limits, before its end is reported. */
void worker_socket_catch_up(struct worker_socket *worker_socket, pid_t pid)
{
    struct ct_list *it;
    struct ct_list *keep;

    for (int i = 0; i < worker_socket->count_max && accept_one(worker_socket); i++)
        ;
    ct_list_for_each_safe(it, keep, &worker_socket->connections) {
        struct connection *connection = ct_list_entry(it, struct connection, node);

        for (int i = 0; (pid == 0 || connection->pid == pid) &&
                        i < WORKER_SOCKET_CATCH_UP_MAX && read_connection(connection);
             i++)
            ;
    }
}

/* What is connected still is a worker's child, or the worker that has just ended: that one comes
 * last, and nothing replaces it. */
static void keep_crashes(struct worker_socket *worker_socket, const struct crash *found,
                         pid_t pid)
{
    struct ct_list *it;

    if (found && found->pid == pid)
        return;
    for (int pass = 0; pass <= 1; pass++)
        ct_list_for_each(it, &worker_socket->connections) {
            struct connection *connection = ct_list_entry(it, struct connection, node);

            if ((connection->pid == pid) == (pass == 1))
                keep_crash(connection);
        }
}

int worker_socket_take_crash(struct worker_socket *worker_socket, int rank,
                             uint64_t generation, pid_t pid)
{
    struct crash *crash;
    int record;

    keep_crashes(worker_socket, find_crash(worker_socket, rank, generation), pid);
    if (!(crash = find_crash(worker_socket, rank, generation)))
        return -1;
    record = crash->record;
    crash->record = -1;
    forget_crash(crash);
    return record;
}

/* What was told of workers of an earlier round is nobody's any more. */
void worker_socket_begin_round(struct worker_socket *worker_socket, int workers)
{
    forget_crashes(worker_socket);
    forget_flights(worker_socket);
    worker_socket->is_stopping = false;
    worker_socket->loss[0] = '\0';
    worker_socket->rank_lost.losses = worker_socket->epoch = 0;
    worker_socket->has_new = worker_socket->was_used = false;
    worker_socket->count_max = workers * WORKER_SOCKET_CONNECTIONS_PER_WORKER + 16;
}
