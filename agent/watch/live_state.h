/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a thread, for people: "sleeping in futex_do_wait", "stopped (T)", "cannot be interrupted (D) in
 * folio_wait_bit". */
#ifndef AGENT_WATCH_LIVE_STATE_H
#define AGENT_WATCH_LIVE_STATE_H

#include <stdint.h>
#include <sys/types.h>

enum {
    LIVE_STATE_MAX = 128
};

/* The kernel's function is left out where it cannot be read. */
void live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread);

#endif
