/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/agent_socket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/crash.h"
#include "worker_sdk/wire/message.h"

enum {
    AGENT_BUFFER_MAX_BYTES = 4096
}; /* the largest message of this socket has 140 */

/* The connection is over, for good: a new one would be to the agent of another life. */
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

static int connect_abstract(const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    int fd;

    memcpy(addr.sun_path + 1, name + 1, length - 1); /* the '@' stands for a NUL byte */
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

/* The descriptor goes with the first byte of the frame. */
static void send_crash_record(struct ct_agent_socket *agent)
{
    struct ct_message message;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    uint8_t frame[64];
    struct iovec data = {.iov_base = frame};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    ssize_t n;

    ct_message_init(&message, CT_MESSAGE_WORKER_CRASH_RECORD);
    message.worker_crash_record.size = sizeof(struct ct_crash);
    flush(agent);
    if (agent->fd < 0 || agent->crash_record < 0 || ct_buf_length(&agent->out) > 0 ||
        ct_message_encode(&agent->out, &message) < 0)
        return; /* the next call may do better */
    data.iov_len = ct_buf_length(&agent->out);
    memcpy(frame, ct_buf_data(&agent->out), data.iov_len); /* it has 12 bytes */
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &agent->crash_record, sizeof(int));
    n = sendmsg(agent->fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) { /* full: later */
        ct_buf_consume(&agent->out, data.iov_len);
        return;
    }
    agent->crash_record = -1;
    ct_buf_consume(&agent->out, (size_t)n);
}

bool ct_agent_socket_is_there(const struct ct_agent_socket *agent)
{
    return agent->fd >= 0 || agent->name[0];
}

void ct_agent_socket_share(struct ct_agent_socket *agent, int fd)
{
    agent->crash_record = fd;
    send_crash_record(agent);
}

/* Connects and says hello, unless there is nobody to connect to or we are connected. */
static void greet(struct ct_agent_socket *agent)
{
    struct ct_message hello;

    if (agent->fd >= 0 || !agent->name[0])
        return;
    agent->fd = connect_abstract(agent->name);
    if (agent->fd == -EAGAIN) { /* its queue is full: many of us start at once */
        agent->fd = -1;
        return;
    }
    if (agent->fd < 0)
        ct_warn("agent socket unreachable name=%s why=%s", agent->name,
                strerror(-agent->fd));
    agent->name[0] = '\0'; /* once is enough, either way */
    if (agent->fd < 0) {
        agent->fd = -1;
        return;
    }
    ct_message_init(&hello, CT_MESSAGE_WORKER_HELLO);
    hello.worker_hello.rank = agent->rank;
    hello.worker_hello.generation = agent->generation;
    if (ct_message_encode(&agent->out, &hello) < 0)
        give_up(agent, "out of memory");
    send_crash_record(agent);
}

void ct_agent_socket_init(struct ct_agent_socket *agent, const char *name, int rank,
                          uint64_t generation)
{
    *agent = (struct ct_agent_socket){
        .fd = -1, .rank = rank, .generation = generation, .crash_record = -1};
    ct_buf_init(&agent->in, AGENT_BUFFER_MAX_BYTES);
    ct_buf_init(&agent->out, AGENT_BUFFER_MAX_BYTES);
    if (!name || name[0] != '@')
        return;
    if (ct_copy(agent->name, sizeof agent->name, name) < 0)
        agent->name[0] = '\0'; /* no socket can have so long a name */
    greet(agent);
}

static void send_step(struct ct_agent_socket *agent)
{
    struct ct_message message;

    flush(agent);
    if (agent->fd < 0 || ct_buf_length(&agent->out) > 0)
        return;
    ct_message_init(&message, CT_MESSAGE_WORKER_STEP);
    message.worker_step.step = agent->step;
    if (ct_message_encode(&agent->out, &message) < 0)
        return; /* out of memory: the next step may do better */
    agent->sent_step = agent->step;
    agent->has_sent = true;
    flush(agent);
}

void ct_agent_socket_step(struct ct_agent_socket *agent, uint64_t step)
{
    uint64_t now;

    agent->step = step;
    agent->has_step = true;
    if ((agent->fd < 0 && !agent->name[0]) || (now = ct_now_ms()) < agent->next_send_ms)
        return;
    greet(agent);
    agent->next_send_ms = now + CT_AGENT_STEP_EVERY_MS;
    if (agent->crash_record >= 0)
        send_crash_record(agent);
    send_step(agent);
}

void ct_agent_socket_deinit(struct ct_agent_socket *agent)
{
    if (agent->fd >= 0 && agent->has_step &&
        (!agent->has_sent || agent->sent_step != agent->step))
        send_step(agent);
    if (agent->fd >= 0)
        close(agent->fd);
    agent->fd = -1;
    ct_buf_deinit(&agent->in);
    ct_buf_deinit(&agent->out);
}

/* Takes whole frames out of what came in; kinds that a newer agent may send are skipped. */
static void read_frames(struct ct_agent_socket *agent)
{
    struct ct_frame frame;
    int n;

    while ((n = ct_frame_decode(ct_buf_data(&agent->in), ct_buf_length(&agent->in),
                                &frame)) > 0) {
        if (frame.kind == CT_MESSAGE_WORKER_SHOULD_STOP)
            agent->should_stop = true;
        ct_buf_consume(&agent->in, (size_t)n);
    }
    if (n < 0)
        give_up(agent, "it sent no frame of ours");
}

bool ct_agent_socket_should_stop(struct ct_agent_socket *agent)
{
    greet(agent);
    while (agent->fd >= 0 && !agent->should_stop) {
        uint8_t *room;
        ssize_t n;

        if (ct_buf_reserve(&agent->in, 512, &room) < 0) {
            give_up(agent, "it sent too long a frame");
            break;
        }
        n = recv(agent->fd, room, 512, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            give_up(agent, n < 0 ? strerror(errno) : "the agent is gone");
            break;
        }
        ct_buf_commit(&agent->in, (size_t)n);
        read_frames(agent);
    }
    return agent->should_stop;
}
