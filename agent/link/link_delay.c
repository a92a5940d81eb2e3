/* SPDX-License-Identifier: Apache-2.0 */
/* Delayed bytes. They leave in the order in which they were queued: bytes that were queued when
 * the timer was set may leave when it fires. */
#include "agent/link/link_private.h"

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

void link_forget_held(struct link *link)
{
    loop_timer_stop(link->slow);
    link->young = 0;
    link->ripe = 0;
}
