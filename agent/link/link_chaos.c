/* SPDX-License-Identifier: Apache-2.0 */
/* What ctrunctl chaos does to the connection: none is made, or what is said leaves late. Bytes leave in the order in
 * which they were queued: those that were there when the timer was set are ripe when it ends. */
#include <errno.h>

#include "agent/link/link_private.h"

void link_cut(struct link *link, bool is_cut)
{
    link->is_cut = is_cut;
    if (!is_cut || !link->socket)
        return; /* an attempt comes by itself */
    if (link->state == LINK_UP)
        link_fail_connection(link, -ENETDOWN, LINK_CUT);
    else
        link_fail_attempt(link, -ENETDOWN, LINK_CUT);
}

void link_slow(struct link *link, uint64_t by_ms)
{
    link->slow_ms = by_ms;
    link_forget_held(link);
    if (link->socket && link->state != LINK_CONNECTING)
        (void)link_flush(link);
}

size_t link_sendable(const struct link *link)
{
    const size_t length = ct_buf_length(&link->out);

    return link->slow_ms == 0 || length < link->ripe ? length : link->ripe;
}

void link_sent(struct link *link, size_t count)
{
    link->ripe -= count < link->ripe ? count : link->ripe;
    link->young -= count < link->young ? count : link->young;
}

void link_hold_back(struct link *link)
{
    if (link->slow_ms == 0 || link->young > 0 ||
        ct_buf_length(&link->out) <= link->ripe)
        return;
    link->young = ct_buf_length(&link->out);
    loop_timer_set(link->slow, link->slow_ms);
}

void link_on_ripe(void *context)
{
    struct link *link = context;

    link->ripe = link->young;
    link->young = 0;
    if (link->socket && link->state != LINK_CONNECTING)
        (void)link_flush(link);
}

void link_forget_held(struct link *link)
{
    loop_timer_stop(link->slow);
    link->young = 0;
    link->ripe = 0;
}
