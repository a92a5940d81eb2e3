/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of ctrunctl chaos in the connection: it is cut, or messages are delayed. */
#include <errno.h>

#include "agent/link/link_private.h"

void link_cut(struct link *link, bool is_cut)
{
    link->is_cut = is_cut;
    if (!is_cut || !link->socket)
        return; /* the retry timer connects again */
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

void link_on_ripe(void *context)
{
    struct link *link = context;

    link->ripe = link->young;
    link->young = 0;
    if (link->socket && link->state != LINK_CONNECTING)
        (void)link_flush(link);
}
