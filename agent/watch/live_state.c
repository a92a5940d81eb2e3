/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/live_state.h"

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

static const char *name_of(char state)
{
    switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "uninterruptible sleep (D)";
    case 'T': return "stopped (T)";
    case 't': return "stopped by a debugger (t)";
    case 'X': return "gone";
    case 'Z': return "ended";
    default: return "idle";
    }
}

static void add_function(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread)
{
    char wait[64];

    ct_small_file_wait(wait, sizeof wait, pid, (pid_t)thread);
    if (*wait)
        (void)ct_append(dst, LIVE_STATE_MAX, " in %s", wait);
}

void live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread)
{
    char stat[512];
    const char *at = ct_small_file_stat(stat, sizeof stat, pid, (pid_t)thread);
    const char state = at ? *at : 'X';

    (void)ct_copy(dst, LIVE_STATE_MAX, name_of(state));
    if (state == 'S' || state == 'D')
        add_function(dst, pid, thread);
}
