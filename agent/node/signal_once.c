/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/signal_once.h"

#include <string.h>

static void begin(struct signal_once *once, int signal, uint64_t now_ms)
{
    if (now_ms - once->of[signal].last_ms > SIGNAL_ONCE_QUIET_MS)
        memset(&once->of[signal], 0, sizeof once->of[signal]);
    once->of[signal].last_ms = now_ms;
}

uint32_t signal_once_get(struct signal_once *once, int signal, uint64_t now_ms,
                         bool *is_new)
{
    begin(once, signal, now_ms);
    *is_new = ++once->of[signal].own > once->of[signal].delivered;
    if (*is_new)
        once->of[signal].delivered = once->of[signal].own;
    return once->of[signal].own;
}

bool signal_once_receive(struct signal_once *once, int signal, uint32_t count,
                         uint64_t now_ms)
{
    begin(once, signal, now_ms);
    if (count <= once->of[signal].delivered)
        return false;
    once->of[signal].delivered = count;
    return true;
}
