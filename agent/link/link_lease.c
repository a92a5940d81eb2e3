/* SPDX-License-Identifier: Apache-2.0 */
/* The timers of node_lease.h: heartbeats, and the check for a silent server. */
#include <errno.h>

#include "agent/guard/fence.h"
#include "agent/link/link_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/net/tcp.h"

void link_await_silence(struct link *link)
{
    loop_timer_set(link->silence,
                   (uint64_t)ct_left_ms(node_lease_next_look_ms(&link->lease)));
}

/* The server's host has received every heartbeat: the server will read them before it counts us
 * as lost. */
static bool is_all_there(const struct link *link)
{
    struct ct_tcp_view view;

    return link->is_direct && ct_buf_length(&link->out) == 0 &&
           ct_tcp_look(loop_watch_fd(link->socket), &view) == 0 && view.is_open &&
           view.is_acknowledged;
}

void link_send_heartbeat(struct link *link)
{
    const uint64_t now_ms = ct_now_ms();
    const struct ct_heartbeat heartbeat = {
        .generation = link->generation,
        .sequence = node_lease_beat(&link->lease, now_ms),
        .step = link->step,
        .quiet_ms = link->moved_ms == 0       ? 0
                    : link->moved_ms < now_ms ? now_ms - link->moved_ms
                                              : 1};

    link_send(link,
              &(struct ct_message){CT_MESSAGE_HEARTBEAT, .heartbeat = &heartbeat});
}

void link_on_silence(void *context)
{
    struct link *link = context;
    const uint64_t now_ms = ct_now_ms();
    bool is_silent;

    if (link->state != LINK_UP) { /* still trying to resume */
        link_go_down(link, &link->why);
        return;
    }
    is_silent = node_lease_look(&link->lease, now_ms);
    if (is_silent && node_lease_has_patience(&link->lease, now_ms) &&
        is_all_there(link)) {
        is_silent = node_lease_wait(&link->lease, now_ms);
        ct_info("the rendezvous is silent, but its host answers: waiting longer, "
                "because it "
                "may be paused");
        fence_renew(node_lease_deadline_ms(&link->lease));
    }
    if (is_silent)
        link_fail_connection(link, -ETIMEDOUT, "no answer to heartbeats");
    else
        link_await_silence(link);
}

void link_on_heartbeat(void *context)
{
    struct link *link = context;

    loop_timer_set(link->heartbeat, link->lease.heartbeat_ms);
    link_send_heartbeat(link);
}
