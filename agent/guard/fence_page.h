/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' deadline, in memory that agent and guards share: fence.h without system calls.
 * Pure; any process and thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fence_page {
    _Atomic uint64_t until_ms;    /* 0: not armed */
    _Atomic uint64_t patience_ms; /* 0: none */
    _Atomic bool is_final;        /* final: must not be renewed any more */
    _Atomic bool has_cut; /* the guard has killed the workers since it was armed */
};

static inline void fence_page_arm(struct fence_page *page, uint64_t until_ms,
                                  uint64_t patience_ms)
{
    atomic_store(&page->has_cut, false);
    atomic_store(&page->is_final, false);
    atomic_store(&page->patience_ms, patience_ms);
    atomic_store(&page->until_ms, until_ms);
}

static inline void fence_page_renew(struct fence_page *page, uint64_t until_ms)
{
    uint64_t before_ms = atomic_load(&page->until_ms);

    /* Not after the guard has killed the workers, which disarms. */
    if (before_ms > 0 && !atomic_load(&page->is_final))
        (void)atomic_compare_exchange_strong(&page->until_ms, &before_ms, until_ms);
}

static inline void fence_page_finish(struct fence_page *page)
{
    atomic_store(&page->is_final, true);
}

static inline void fence_page_disarm(struct fence_page *page)
{
    atomic_store(&page->until_ms, 0);
}

/* A guard decides that the workers, whose deadline was until_ms, die now. False: the other guard
 * kills them, or the agent has just renewed the deadline. */
static inline bool fence_page_cut(struct fence_page *page, uint64_t until_ms)
{
    if (!atomic_compare_exchange_strong(&page->until_ms, &until_ms, 0))
        return false;
    atomic_store(&page->has_cut, true);
    return true;
}
