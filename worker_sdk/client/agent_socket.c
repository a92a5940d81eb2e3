/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/agent_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/progress.h"
#include "worker_sdk/net/pass_fd.h"
#include "worker_sdk/wire/crash.h"
#include "worker_sdk/wire/flight.h"
#include "worker_sdk/wire/progress.h"

enum {
    /* the largest message on this socket has 530 bytes */
    AGENT_BUFFER_MAX_BYTES = 4096,
    WAIT_SLICE_MS = 100 /* another thread may read what we wait for */
};

/* Every static function here is called with agent->lock held, or by init and deinit, while no other
 * thread uses the socket. None of them waits, so the lock is never held for long. */

/* Closes the connection for good: a new connection could reach a restarted agent, which does not
 * know this process. */
static void give_up(struct ct_agent_socket *agent, const char *why)
{
    ct_warn("agent socket closed why=%s", why);
    close(agent->fd);
    agent->fd = -1;
}

static void flush(struct ct_agent_socket *agent)
{
    while (agent->fd >= 0 && ct_buf_length(&agent->out) > 0) {
        ssize_t n = send(agent->fd, ct_buf_data(&agent->out),
                         ct_buf_length(&agent->out), MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0)
            ct_buf_consume(&agent->out, (size_t)n);
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        else
            give_up(agent, strerror(errno));
    }
}

int ct_agent_socket_connect(const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    int fd;

    memcpy(addr.sun_path, name, length);
    if (name[0] == '@')
        addr.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&addr,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0) {
        int rc = -errno;

        close(fd);
        return rc;
    }
    return fd;
}

/* The descriptor is sent with the first byte of the frame. False: not sent; the caller tries again
 * at its next call. */
static bool send_descriptor(struct ct_agent_socket *agent,
                            const struct ct_message *message, int fd)
{
    ssize_t n;

    flush(agent);
    if (agent->fd < 0 || ct_buf_length(&agent->out) > 0 ||
        ct_message_encode(&agent->out, message) < 0)
        return false;
    n = ct_send_with_fd(agent->fd, ct_buf_data(&agent->out), ct_buf_length(&agent->out),
                        fd);
    ct_buf_consume(&agent->out, n < 0 ? ct_buf_length(&agent->out) : (size_t)n);
    return n >= 0; /* else the socket is full */
}

static void send_crash_record(struct ct_agent_socket *agent)
{
    const struct ct_worker_crash_record record = {.size = sizeof(struct ct_crash)};
    const struct ct_message message = {CT_MESSAGE_WORKER_CRASH_RECORD,
                                       .worker_crash_record = &record};

    if (agent->crash_record >= 0 &&
        send_descriptor(agent, &message, agent->crash_record))
        agent->crash_record = -1;
}

static void send_flight(struct ct_agent_socket *agent)
{
    const struct ct_worker_flight flight = {.size = sizeof(struct ct_flight)};
    const struct ct_message message = {CT_MESSAGE_WORKER_FLIGHT,
                                       .worker_flight = &flight};

    if (agent->flight >= 0 && send_descriptor(agent, &message, agent->flight))
        agent->flight = -1;
}

static void send_progress(struct ct_agent_socket *agent)
{
    const int fd = ct_progress_open();
    const struct ct_worker_progress progress = {.size = sizeof(struct ct_progress)};
    const struct ct_message message = {CT_MESSAGE_WORKER_PROGRESS,
                                       .worker_progress = &progress};

    agent->has_progress = fd < 0 || send_descriptor(agent, &message, fd);
}

bool ct_agent_socket_is_there(struct ct_agent_socket *agent)
{
    bool is_there;

    pthread_mutex_lock(&agent->lock);
    is_there = agent->fd >= 0 || agent->name[0];
    pthread_mutex_unlock(&agent->lock);
    return is_there;
}

void ct_agent_socket_share(struct ct_agent_socket *agent, int fd)
{
    pthread_mutex_lock(&agent->lock);
    agent->crash_record = fd;
    send_crash_record(agent);
    pthread_mutex_unlock(&agent->lock);
}

void ct_agent_socket_share_flight(struct ct_agent_socket *agent, int fd)
{
    pthread_mutex_lock(&agent->lock);
    agent->flight = fd;
    send_flight(agent);
    pthread_mutex_unlock(&agent->lock);
}

/* Connects and sends the hello, unless there is no agent or a connection exists. */
static void greet(struct ct_agent_socket *agent)
{
    const struct ct_worker_hello hello = {.rank = agent->rank,
                                          .generation = agent->generation};
    const struct ct_message message = {CT_MESSAGE_WORKER_HELLO, .worker_hello = &hello};

    if (agent->fd >= 0 || !agent->name[0])
        return;
    agent->fd = ct_agent_socket_connect(agent->name);
    /* the agent's accept queue is full: many workers start at once */
    if (agent->fd == -EAGAIN) {
        agent->fd = -1;
        return;
    }
    if (agent->fd < 0)
        ct_warn("agent socket unreachable name=%s why=%s", agent->name,
                strerror(-agent->fd));
    agent->name[0] = '\0'; /* one attempt is enough, whether it succeeded or not */
    if (agent->fd < 0) {
        agent->fd = -1;
        return;
    }
    if (ct_message_encode(&agent->out, &message) < 0)
        give_up(agent, "out of memory");
    flush(agent);
    send_crash_record(agent);
    send_flight(agent);
}

void ct_agent_socket_init(struct ct_agent_socket *agent, const char *name, int rank,
                          uint64_t generation)
{
    *agent = (struct ct_agent_socket){.fd = -1,
                                      .rank = rank,
                                      .generation = generation,
                                      .crash_record = -1,
                                      .flight = -1};
    pthread_mutex_init(&agent->lock, NULL);
    ct_buf_init(&agent->in, AGENT_BUFFER_MAX_BYTES);
    ct_buf_init(&agent->out, AGENT_BUFFER_MAX_BYTES);
    if (!name || (name[0] != '@' && name[0] != '/'))
        return;
    if (ct_copy(agent->name, sizeof agent->name, name) < 0)
        agent->name[0] = '\0'; /* no socket name is that long */
    greet(agent);
}

static void send_step(struct ct_agent_socket *agent)
{
    const struct ct_worker_step step = {.step = agent->step};
    const struct ct_message message = {CT_MESSAGE_WORKER_STEP, .worker_step = &step};

    flush(agent);
    if (agent->fd < 0 || ct_buf_length(&agent->out) > 0)
        return;
    if (ct_message_encode(&agent->out, &message) < 0)
        return; /* out of memory: the next step tries again */
    agent->sent_step = agent->step;
    agent->has_sent = true;
    flush(agent);
}

/* Sends what the agent has not received yet. Called at most four times a second, and at the first
 * step. */
static void hand_over(struct ct_agent_socket *agent, uint64_t now_ms)
{
    greet(agent);
    agent->next_send_ms = now_ms + CT_AGENT_STEP_EVERY_MS;
    if (!agent->has_progress)
        send_progress(agent);
    if (agent->crash_record >= 0)
        send_crash_record(agent);
    send_flight(agent);
}

static void publish_step(struct ct_agent_socket *agent, uint64_t now_ms)
{
    if (!agent->has_progress && ct_progress_open() >= 0)
        ct_progress_step(agent->step, now_ms); /* before the agent can read it */
    hand_over(agent, now_ms);
    send_step(agent);
}

void ct_agent_socket_step(struct ct_agent_socket *agent, uint64_t step)
{
    uint64_t now;
    bool is_first;

    pthread_mutex_lock(&agent->lock);
    /* Without a connection only the first call tries at once: the agent's accept queue is full. */
    is_first = agent->fd >= 0 ? !agent->has_sent : !agent->has_step;
    agent->step = step;
    agent->has_step = true;
    if (agent->fd >= 0 || agent->name[0]) {
        now = ct_now_ms();
        if (agent->has_progress)
            ct_progress_step(step, now);
        /* The first one that can be sent always: the agent adds up from it what a restart took. */
        if (is_first || now >= agent->next_send_ms)
            publish_step(agent, now);
    }
    pthread_mutex_unlock(&agent->lock);
}

/* Makes sure that the agent has the page. Lock held. */
static void show_page(struct ct_agent_socket *agent)
{
    const uint64_t now = ct_now_ms();

    if (!agent->has_progress && now >= agent->next_send_ms)
        hand_over(agent, now);
}

/* Called before a value is written, so that the value goes to the page that the agent gets. */
static bool opens_page(const struct ct_agent_socket *agent)
{
    if (agent->has_progress || (agent->fd < 0 && !agent->name[0]))
        return false;
    (void)ct_progress_open();
    return true;
}

int ct_agent_socket_metric(struct ct_agent_socket *agent, const char *name,
                           double value)
{
    bool is_opened;
    int rc;

    pthread_mutex_lock(&agent->lock);
    is_opened = opens_page(agent);
    rc = ct_progress_metric(name, value);
    if (is_opened)
        show_page(agent);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

void ct_agent_socket_samples(struct ct_agent_socket *agent, const uint64_t *ids,
                             size_t count)
{
    bool is_opened;

    pthread_mutex_lock(&agent->lock);
    is_opened = opens_page(agent);
    ct_progress_samples(ids, count);
    if (is_opened)
        show_page(agent);
    pthread_mutex_unlock(&agent->lock);
}

void ct_agent_socket_deinit(struct ct_agent_socket *agent)
{
    if (agent->fd >= 0 && agent->has_step &&
        (!agent->has_sent || agent->sent_step != agent->step))
        send_step(agent);
    ct_close(&agent->fd);
    ct_buf_deinit(&agent->in);
    ct_buf_deinit(&agent->out);
    pthread_mutex_destroy(&agent->lock);
}

static void on_loss(struct ct_agent_socket *agent, const struct ct_frame *frame)
{
    struct ct_worker_node_lost lost;
    struct ct_message message;

    if (ct_message_decode(frame, &message, &lost, sizeof lost) < 0)
        give_up(agent, "the agent sent a malformed message");
    else
        (void)ct_copy(agent->loss, sizeof agent->loss, lost.text);
}

/* Ignores an older loss: a worker that connects late gets earlier losses again. */
static void on_rank_loss(struct ct_agent_socket *agent, const struct ct_frame *frame)
{
    struct ct_worker_rank_lost lost;
    struct ct_message message;

    if (ct_message_decode(frame, &message, &lost, sizeof lost) < 0)
        give_up(agent, "the agent sent a malformed message");
    else if (lost.losses > agent->rank_lost.losses)
        agent->rank_lost = lost;
}

static void on_world(struct ct_agent_socket *agent, const struct ct_frame *frame)
{
    struct ct_worker_world world;
    struct ct_message message;

    if (ct_message_decode(frame, &message, &world, sizeof world) < 0)
        give_up(agent, "the agent sent a malformed message");
    else if (world.epoch > agent->world.epoch)
        agent->world = world;
}

static void on_grow(struct ct_agent_socket *agent, const struct ct_frame *frame)
{
    struct ct_worker_grow grow;
    struct ct_message message;

    if (ct_message_decode(frame, &message, &grow, sizeof grow) < 0) {
        give_up(agent, "the agent sent a malformed message");
        return;
    }
    agent->grow = grow;
    agent->has_grow = true;
}

/* Handles the complete frames in the input buffer. Skips unknown kinds, which a newer agent may
 * send. */
static void read_frames(struct ct_agent_socket *agent)
{
    struct ct_frame frame;
    int n;

    while ((n = ct_frame_decode(ct_buf_data(&agent->in), ct_buf_length(&agent->in),
                                &frame)) > 0) {
        if (frame.kind == CT_MESSAGE_WORKER_SHOULD_STOP)
            agent->should_stop = true;
        else if (frame.kind == CT_MESSAGE_WORKER_NODE_LOST)
            on_loss(agent, &frame);
        else if (frame.kind == CT_MESSAGE_WORKER_RANK_LOST)
            on_rank_loss(agent, &frame);
        else if (frame.kind == CT_MESSAGE_WORKER_WORLD)
            on_world(agent, &frame);
        else if (frame.kind == CT_MESSAGE_WORKER_GROW)
            on_grow(agent, &frame);
        ct_buf_consume(&agent->in, (size_t)n);
    }
    if (n < 0)
        give_up(agent, "the agent sent bytes that are no frame");
}

/* Reads what has arrived, without waiting. */
static void receive(struct ct_agent_socket *agent)
{
    greet(agent);
    while (agent->fd >= 0) {
        uint8_t *room;
        ssize_t n = ct_buf_reserve(&agent->in, 512, &room);

        if (n < 0) {
            give_up(agent, n == -ENOBUFS ? "the agent sent a frame that is too long"
                                         : "out of memory");
            break;
        }
        n = recv(agent->fd, room, 512, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            give_up(agent, n < 0 ? strerror(errno) : "the agent closed the connection");
            break;
        }
        ct_buf_commit(&agent->in, (size_t)n);
        read_frames(agent);
    }
}

bool ct_agent_socket_should_stop(struct ct_agent_socket *agent)
{
    bool should_stop, is_opened;

    pthread_mutex_lock(&agent->lock);
    is_opened = opens_page(agent);
    ct_progress_poll();
    if (is_opened)
        show_page(agent);
    if (!agent->should_stop)
        receive(agent);
    should_stop = agent->should_stop;
    pthread_mutex_unlock(&agent->lock);
    return should_stop;
}

int ct_agent_socket_check_loss(struct ct_agent_socket *agent, struct ctrun_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&agent->lock);
    if (!agent->loss[0])
        receive(agent);
    if (agent->loss[0])
        rc = ct_fail(err, CTRUN_E_PEER_LOST, "%s", agent->loss);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

int ct_agent_socket_check_ranks(struct ct_agent_socket *agent, uint32_t losses,
                                struct ctrun_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&agent->lock);
    if (agent->rank_lost.losses <= losses)
        receive(agent);
    if (agent->rank_lost.losses > losses)
        rc = ct_fail(err, CTRUN_E_PEER_LOST, "%s", agent->rank_lost.text);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

/* ---- Who continues ------------------------------------------------------------------------ */

bool ct_agent_socket_should_grow(struct ct_agent_socket *agent, uint32_t epoch)
{
    bool should_grow;

    pthread_mutex_lock(&agent->lock);
    receive(agent);
    should_grow = agent->has_grow && agent->grow.epoch == epoch;
    pthread_mutex_unlock(&agent->lock);
    return should_grow;
}

static void send_shrink(struct ct_agent_socket *agent, uint32_t epoch)
{
    const struct ct_worker_shrink shrink = {.epoch = epoch};
    const struct ct_message message = {CT_MESSAGE_WORKER_SHRINK,
                                       .worker_shrink = &shrink};

    if (ct_message_encode(&agent->out, &message) < 0)
        give_up(agent, "out of memory");
    flush(agent);
}

/* Lock held. The lock is released while this waits, so that another thread can report its steps. */
static void wait_a_slice(struct ct_agent_socket *agent, uint64_t deadline_ms)
{
    struct pollfd item = {.fd = agent->fd, .events = POLLIN};
    const int left_ms = ct_left_ms(deadline_ms);

    if (ct_buf_length(&agent->out) > 0)
        item.events |= POLLOUT;
    pthread_mutex_unlock(&agent->lock);
    (void)poll(&item, 1, left_ms < WAIT_SLICE_MS ? left_ms : WAIT_SLICE_MS);
    pthread_mutex_lock(&agent->lock);
}

int ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                              uint64_t deadline_ms, struct ct_worker_world *out,
                              struct ctrun_error *err)
{
    bool has_asked = false;
    int rc = 0;

    pthread_mutex_lock(&agent->lock);
    receive(agent);
    while (rc == 0 && agent->world.epoch <= epoch) {
        if (agent->fd >= 0 && !has_asked) {
            send_shrink(agent, epoch);
            has_asked = true;
        }
        if (agent->fd < 0 && !agent->name[0]) /* else its accept queue is full */
            rc = ct_fail(err, CTRUN_E_CLOSED,
                         "there is no connection to the agent, which decides which "
                         "ranks continue");
        else if (ct_left_ms(deadline_ms) == 0)
            rc = ct_fail(
                err, CTRUN_E_TIMEOUT,
                "the agent has not answered in time which ranks continue; perhaps a "
                "rank that still runs has not asked it");
        else
            wait_a_slice(agent, deadline_ms);
        flush(agent);
        receive(agent);
    }
    if (agent->world.epoch > epoch) {
        *out = agent->world;
        rc = 0;
    }
    pthread_mutex_unlock(&agent->lock);
    return rc;
}
