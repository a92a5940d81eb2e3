/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "agent/control/worker_socket_private.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/pass_fd.h"

/* Never waits: a worker that does not read must not block the agent's loop. False: it was not
 * sent. */
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
    ct_buf_deinit(&out); /* a worker that does not read still gets SIGTERM */
    return is_sent;
}

/* The worker waits for this message: on failure it reads the end of the connection in place of it. The agent's loop
 * reads that end, too, and closes the connection. */
static void end_wait(const struct connection *connection)
{
    ct_warn("worker socket: a reply could not be sent rank=%d", connection->rank);
    (void)shutdown(loop_watch_fd(connection->socket), SHUT_RDWR);
}

/* Sends fd with the message, unless it is -1. False: not all was sent. */
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
    const struct ct_worker_grow grow = {
        .epoch = connection->worker_socket->world.epoch};

    (void)send_message(
        connection, &(struct ct_message){CT_MESSAGE_WORKER_GROW, .worker_grow = &grow});
}

void worker_socket_send_answer(struct connection *connection,
                               const struct ct_worker_world *world)
{
    connection->asks = false;
    if (!send_message(connection, &(struct ct_message){CT_MESSAGE_WORKER_WORLD,
                                                       .worker_world = world}))
        end_wait(connection);
}

void worker_socket_send_state(struct connection *connection)
{
    const struct worker_socket *worker_socket = connection->worker_socket;

    if (worker_socket->is_stopping)
        send_should_stop(connection);
    if (worker_socket->loss[0])
        send_loss(connection);
    if (worker_socket->rank_lost.losses)
        send_rank_loss(connection);
    if (worker_socket->has_new)
        send_grow(connection);
}

/* Sends to all that have sent WORKER_HELLO; workers that connect later get it by
 * worker_socket_send_state(). Returns the number of receivers. */
static int send_to_known(struct worker_socket *worker_socket,
                         void (*send_it)(struct connection *connection))
{
    int count = 0;

    ct_list_for_each(struct connection, connection, &worker_socket->connections, node) {
        if (connection->is_known) {
            send_it(connection);
            count++;
        }
    }
    return count;
}

/* The caller (agent_drain) sends the signal at once only if no worker receives this: else the
 * workers have the grace time first. */
int worker_socket_ask_to_stop(struct worker_socket *worker_socket, const char *reason)
{
    worker_socket->is_stopping = true;
    (void)ct_copy(worker_socket->reason, sizeof worker_socket->reason, reason);
    return send_to_known(worker_socket, send_should_stop);
}

void worker_socket_send_loss(struct worker_socket *worker_socket, const char *text)
{
    (void)ct_copy(worker_socket->loss, sizeof worker_socket->loss,
                  text); /* cut is fine */
    (void)send_to_known(worker_socket, send_loss);
}

void worker_socket_send_rank_loss(struct worker_socket *worker_socket, uint32_t losses,
                                  const char *text)
{
    worker_socket->rank_lost.losses = losses;
    (void)ct_copy(worker_socket->rank_lost.text, sizeof worker_socket->rank_lost.text,
                  text); /* cut is fine */
    (void)send_to_known(worker_socket, send_rank_loss);
}

void worker_socket_send_grow(struct worker_socket *worker_socket)
{
    worker_socket->has_new = true;
    (void)send_to_known(worker_socket, send_grow);
}

/* A new worker may have asked after this world was decided: it waits for the next world. A process that is gone does not
 * continue: its number in this world is that of a new one. */
void worker_socket_send_world(struct worker_socket *worker_socket,
                              const struct ct_worker_world *world)
{
    worker_socket->world = *world;
    worker_socket->has_new = false;
    ct_list_for_each(struct connection, connection, &worker_socket->connections, node) {
        if (connection->asks && worker_socket_is_in(world, connection->rank))
            worker_socket_send_answer(connection, world);
    }
    worker_socket_forget_flights(worker_socket);
}
