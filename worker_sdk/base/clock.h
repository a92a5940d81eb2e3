/* SPDX-License-Identifier: Apache-2.0 */
/* Time: since boot for all computations, wall clock only for display. Functions pass deadlines, not
 * timeouts.
 *
 * The time since boot continues while the machine is suspended (CLOCK_BOOTTIME): leases can end
 * then, too. Timers of libuv and of pthread conditions stop meanwhile, and fire late by that
 * time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_CLOCK_TEXT_MAX = 40
};

uint64_t ct_now_ms(void); /* since boot */
uint64_t ct_now_ns(void); /* since boot */
/* How much of the time since boot the machine was suspended; time stamps of the kernel's log do not
 * count it. */
uint64_t ct_suspended_ms(void);
/* now + timeout_ms, saturating: UINT64_MAX stays "never". */
uint64_t ct_deadline_ms(uint64_t timeout_ms);
/* The same with a given time. Pure. */
static inline uint64_t ct_deadline_after(uint64_t now_ms, uint64_t timeout_ms)
{
    return timeout_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + timeout_ms;
}
/* Milliseconds left until deadline_ms, at least 0, at most INT_MAX (as poll() wants it). */
int ct_left_ms(uint64_t deadline_ms);
/* Nanoseconds since 1970, for events and error files. */
uint64_t ct_wall_ns(void);
/* Local time as "2026-11-21_09:58:30" (torchrun's form); dst has CT_CLOCK_TEXT_MAX bytes. */
void ct_format_wall(char *dst, uint64_t wall_ns);
