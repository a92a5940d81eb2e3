/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a thread, for people: "sleeping in futex_do_wait", "stopped (T)", "cannot be interrupted (D) in
 * folio_wait_bit". */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    LIVE_STATE_MAX = 128
};

/* The kernel's function is left out where it cannot be read. */
void live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread);
