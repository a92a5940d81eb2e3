/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats, and how long we do without their acknowledgement: the lease that keeps two worlds
 * from living at once. */
#include <errno.h>

#include "agent/fence.h"
#include "agent/link_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/tcp.h"

uint64_t link_patience_ms(const struct link *link)
{
    return link->lost_after_ms - link->lost_after_ms / 5;
}

static uint64_t lease_end_ms(const struct link *link)
{
    return link->confirmed_ms + link_patience_ms(link);
}

uint64_t link_resume_end_ms(const struct link *link)
{
    return link->proven_ms + link_patience_ms(link);
}

bool link_can_resume(const struct link *link)
{
    return link->ticket.key != 0 && link->lost_after_ms > 0 &&
           ct_left_ms(link_resume_end_ms(link)) > 0 && link->options.get_resume_state &&
           link->options.get_resume_state(link->options.context) != 0;
}

void link_await_silence(struct link *link)
{
    link->silence_due_ms = lease_end_ms(link);
    loop_timer_set(link->silence, (uint64_t)ct_left_ms(link->silence_due_ms));
}

uint64_t link_lease_ms(const struct link *link)
{
    /* Others take a paused server for lost after CT_PAUSE_LEASES, less a fifth each. */
    const uint64_t more_ms = link->is_serving
                                 ? (CT_PAUSE_LEASES / 2) * link->lost_after_ms
                                 : 0;

    return link->proven_ms + more_ms + link->lost_after_ms - link->lost_after_ms / 20;
}

/* The server is awake, and withholds the acknowledgement: others may go on without it. */
static bool is_withheld(const struct link *link)
{
    return link->echoed_by != 0 &&
           link->echoed_ms > link->answered_ms + link->heartbeat_ms * 3 / 2;
}

/* The server's host has every heartbeat: it will read them before it counts us as lost. */
static bool is_server_paused(const struct link *link, uint64_t now_ms)
{
    const uint64_t patience = link->lost_after_ms * CT_PAUSE_LEASES / 5 * 4;
    struct ct_tcp_view view;

    /* Where a silent host is replaced, nobody waits for it: patience would be a second world. */
    return !link->options.find_servers && !is_withheld(link) && link->is_direct &&
           now_ms - link->answered_ms < patience && ct_buf_length(&link->out) == 0 &&
           ct_tcp_look(loop_watch_fd(link->socket), &view) == 0 && view.is_open &&
           view.is_acknowledged;
}

void link_send_heartbeat(struct link *link)
{
    struct ct_message message;

    ct_message_init(&message, CT_MESSAGE_HEARTBEAT);
    link->sequence++;
    link->sent_ms[link->sequence % SENT_SLOTS] = ct_now_ms();
    message.heartbeat.generation = link->generation;
    message.heartbeat.sequence = link->sequence;
    message.heartbeat.step = link->step;
    link_send(link, &message);
}

void link_on_silence(void *context)
{
    struct link *link = context;
    const uint64_t now_ms = ct_now_ms();

    if (link->state != LINK_UP) { /* still trying to resume */
        link_go_down(link, &link->why);
        return;
    }
    /* We were stopped (SIGSTOP, a paused VM), not the server: it has one beat to answer. */
    if (now_ms > link->silence_due_ms + link->heartbeat_ms)
        link->confirmed_ms = now_ms + link->heartbeat_ms - link_patience_ms(link);
    if (now_ms >= lease_end_ms(link) && is_server_paused(link, now_ms)) {
        link->proven_ms = link->sent_ms[link->sequence % SENT_SLOTS];
        link->confirmed_ms = link->proven_ms;
        ct_info("the rendezvous is silent, but its host answers: paused");
        fence_renew(link_lease_ms(link));
    }
    if (now_ms < lease_end_ms(link))
        link_await_silence(link);
    else
        link_fail_connection(link, -ETIMEDOUT, "no answer to heartbeats");
}

void link_on_heartbeat(void *context)
{
    struct link *link = context;

    loop_timer_set(link->heartbeat, link->heartbeat_ms);
    link_send_heartbeat(link);
}
