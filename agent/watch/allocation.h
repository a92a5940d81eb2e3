/* SPDX-License-Identifier: Apache-2.0 */
/* The time that a batch system has given: a look at the wall clock for its end.
 *
 * The kernel's own timer of the wall clock: whoever sets the clock moves it along, and a machine
 * that slept is reported when it wakes up. Nothing is looked at in between. */
#pragma once

#include <stdint.h>

#include "agent/loop/loop.h"

struct allocation;

/* fn is called once, when it is `at_s` (seconds since 1970), or at once when that is over.
 * 0, -errno. */
int allocation_open(struct allocation **out, struct loop *loop, int64_t at_s,
                    loop_timer_fn *fn, void *context);
void allocation_close(struct allocation *allocation); /* NULL is fine */

/* Until `end_s`, by the wall clock; 0: over. */
uint64_t allocation_left_ms(int64_t end_s, uint64_t wall_ns);
/* What workers have of a time after which all is killed: the rest, a tenth and a second at
 * least, is ours to see them end and to say how they did. Pure. */
uint64_t allocation_grace_ms(uint64_t left_ms);
