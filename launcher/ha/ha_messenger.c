/* SPDX-License-Identifier: Apache-2.0 */
/* A node that boots, or that comes late, asks at the endpoint. Another node may be elected by then,
 * and a restarted launcher that owns the endpoint's address would found the run anew. So
 *
 *   - the elected node and each member's node tell the launcher that listens at the endpoint, once
 *     a second, that the run lives, with its plan: RESUME of nobody (id 0, the plan's epoch as key),
 *     HELLO with its instance, HA_PLAN;
 *   - a launcher that serves that run hangs up; any other one founds no run, and follows the plan;
 *   - a server that is not elected sends the plan to nodes that ask it. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link/handshake.h"
#include "launcher/ha/ha_private.h"
#include "launcher/report/messages.h"

enum {
    CONNECT_MS = 300,
    TALK_MS = 700, /* with a server that answers: proofs need two round trips */
};

/* ---- Sending the plan ------------------------------------------------------------------- */

struct messenger {
    struct handshake handshake;
    struct ct_buf in, out;
    const struct ct_ha_plan *plan;
    bool has_reported;
    uint64_t deadline_ms;
};

static int dial(const struct ct_addr *addr)
{
    const int fd = socket(addr->any.sa_family,
                          SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    socklen_t length = sizeof(int);
    int rc = -1;

    if (fd < 0)
        return -1;
    if ((connect(fd, &addr->any, addr->length) == 0 || errno == EINPROGRESS) &&
        poll(&poll_fd, 1, CONNECT_MS) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &length) == 0 && rc == 0)
        return fd;
    close(fd);
    return -1;
}

static int begin(struct messenger *messenger, const struct ha *ha, uint64_t instance,
                 uint64_t generation)
{
    const struct config *config = ha->options.config;
    const struct ct_resume nobody = {
        .id = 0, .key = messenger->plan->epoch, .generation = generation};
    struct ct_hello hello = {.instance = instance, .generation = generation};

    (void)ct_copy(hello.run_id, sizeof hello.run_id, config->run.run_id);
    (void)ct_copy(hello.host, sizeof hello.host, config->run.host);
    return handshake_begin(&messenger->handshake, &nobody, &hello, &messenger->out);
}

/* Once the other side has proven what it has to. */
static int send_plan(struct messenger *messenger)
{
    const struct ct_message message = {CT_MESSAGE_HA_PLAN, .ha_plan = messenger->plan};
    struct ctrun_error err;

    if (messenger->has_reported || handshake_is_over(&messenger->handshake, &err) < 0)
        return 0;
    messenger->has_reported = true;
    return ct_seal_encode(&messenger->handshake.seal, &messenger->out, &message);
}

/* Handles all frames that have arrived. 0, or a code: a frame that is not of the handshake. */
static int handle_frames(struct messenger *messenger)
{
    union { /* all of the handshake */
        struct ct_offer offer;
        struct ct_challenge challenge;
        struct ct_proof proof;
    } room;
    struct ct_message message;
    struct ctrun_error err;
    struct ct_frame frame;
    int taken, rc = 0;

    while (rc == 0 && !messenger->has_reported &&
           (taken = ct_frame_decode(ct_buf_data(&messenger->in),
                                    ct_buf_length(&messenger->in), &frame)) > 0) {
        if ((rc = ct_message_decode(&frame, &message, &room, sizeof room)) == 0)
            rc = handshake_on_message(&messenger->handshake, &message, &messenger->out,
                                      &err);
        ct_buf_consume(&messenger->in, (size_t)taken);
        if (rc == 0)
            rc = send_plan(messenger);
    }
    return rc;
}

/* Until the other side hangs up. */
static void talk(struct messenger *messenger, int fd)
{
    uint8_t bytes[1024];
    ssize_t n = 1;

    while (n > 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        if (ct_buf_length(&messenger->out) > 0) {
            n = send(fd, ct_buf_data(&messenger->out), ct_buf_length(&messenger->out),
                     MSG_NOSIGNAL);
            if (n < (ssize_t)ct_buf_length(&messenger->out))
                return; /* a new connection has room for so little */
            ct_buf_consume(&messenger->out, (size_t)n);
        }
        if (poll(&poll_fd, 1, ct_left_ms(messenger->deadline_ms)) != 1 ||
            (n = recv(fd, bytes, sizeof bytes, 0)) <= 0)
            return;
        if (ct_buf_append(&messenger->in, bytes, (size_t)n) < 0 ||
            handle_frames(messenger) < 0)
            return;
    }
}

static void send_to(const struct ha *ha, const struct ct_ha_plan *plan,
                    const struct ct_addr *addr, uint64_t instance, uint64_t generation)
{
    const struct config *config = ha->options.config;
    struct messenger messenger = {.plan = plan,
                                  .handshake = {.token = &config->rdzv.token,
                                                .uses_munge = config->rdzv.uses_munge,
                                                .wants_seal = config->rdzv.wants_seal}};
    const int fd = dial(addr);

    if (fd < 0)
        return; /* nothing listens: nobody founds a run */
    messenger.deadline_ms = ct_deadline_ms(TALK_MS);
    ct_buf_init(&messenger.in, CT_FRAME_BODY_MAX_BYTES);
    ct_buf_init(&messenger.out, CT_FRAME_BODY_MAX_BYTES);
    if (begin(&messenger, ha, instance, generation) == 0 && send_plan(&messenger) == 0)
        talk(&messenger, fd);
    ct_buf_deinit(&messenger.in);
    ct_buf_deinit(&messenger.out);
    handshake_wipe(&messenger.handshake);
    close(fd);
}

/* Sends also while etcd still names a server there: it may have died, and a new founder may listen
 * in its place. */
void ha_send_messenger(struct ha *ha, const struct ct_ha_plan *plan)
{
    uint64_t instance, generation;
    bool is_member;

    ha->messenger_ms = ct_deadline_ms(HA_MESSENGER_MS);
    if (!ha->leads)
        server_send_ha(ha->server, plan);
    pthread_mutex_lock(&ha->mutex);
    instance = ha->instance;
    generation = ha->generation;
    is_member = ha->self.is_running;
    pthread_mutex_unlock(&ha->mutex);
    if (ha->owns_endpoint || !(is_member || ha->leads) || instance == 0)
        return;
    for (size_t i = 0; i < ha->endpoint->count; i++)
        send_to(ha, plan, &ha->endpoint->addrs[i], instance, generation);
}

/* ---- Receiving the plan ----------------------------------------------------------------- */

void ha_on_plan(struct ha *ha, const struct ct_ha_plan *plan)
{
    pthread_mutex_lock(&ha->mutex);
    ha->plan = *plan;
    ha->has_news = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
}

void ha_take_found(struct ha *ha)
{
    struct ct_ha_plan found;

    pthread_mutex_lock(&ha->mutex);
    found = ha->found;
    ha->found.epoch = 0;
    pthread_mutex_unlock(&ha->mutex);
    if (found.epoch == 0 || !ha->is_founder || ha->finds || ha->state >= HA_SENDING)
        return;
    messages_notice(
        "run '%s' is already running: its rendezvous is on another node, and this node "
        "joins it there",
        ha->options.config->run.run_id);
    if (ha->state != HA_WAITING)
        leader_candidate_revert(ha->options.candidate);
    ha_lead_end(ha);
    ha->is_founder = ha->leads = false;
    ha->state = HA_WAITING;
    ha->made = (struct ct_ha_plan){0};
    server_step_down(ha->server);
    leader_candidate_stand_down(ha->options.candidate);
    server_send_ha(ha->server, &found);
    ha_on_plan(ha, &found);
}
