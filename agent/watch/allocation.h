/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the time that a batch system has given, by the wall clock.
 *
 * Uses a kernel timer of the wall clock: it follows when the clock is set, and after a suspend it fires
 * when the machine wakes up. Nothing polls in between. */
#pragma once

#include <stdint.h>

#include "agent/loop/loop.h"

struct allocation;

/* fn is called once, at `at_s` (seconds since 1970), or at once if that time is over. 0, -errno. */
int allocation_open(struct allocation **out, struct loop *loop, int64_t at_s,
                    loop_timer_fn *fn, void *context);
void allocation_close(struct allocation *allocation); /* NULL is fine */

/* Time left until `end_s`, by the wall clock; 0: over. */
uint64_t allocation_left_ms(int64_t end_s, uint64_t wall_ns);
/* How long workers may run on when all is killed after left_ms: the rest, a tenth and a second at
 * least, is the agent's to see them end and to report. Pure. */
uint64_t allocation_grace_ms(uint64_t left_ms);
