/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/live_state.h"

#include <string.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

static const char *name_of(char state)
{
    switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "cannot be interrupted (D)";
    case 'T': return "stopped (T)";
    case 't': return "stopped by a debugger (t)";
    case 'X': return "gone";
    case 'Z': return "ended";
    default: return "idle";
    }
}

static void add_function(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread)
{
    const size_t used = strlen(dst);
    char path[64], wait[64];

    (void)ct_format(path, sizeof path, "/proc/%d/task/%llu/wchan", (int)pid,
                    (unsigned long long)thread);
    (void)ct_small_file_line(wait, sizeof wait, path);
    if (*wait && strcmp(wait, "0") != 0)
        (void)ct_format(dst + used, LIVE_STATE_MAX - used, " in %s", wait);
}

void live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread)
{
    char path[64], stat[512];
    const char *end;
    char state;

    (void)ct_format(path, sizeof path, "/proc/%d/task/%llu/stat", (int)pid,
                    (unsigned long long)thread);
    (void)ct_small_file_read(stat, sizeof stat, path);
    end = strrchr(stat, ')');
    state = end && end[1] ? end[2] : 'X';
    (void)ct_copy(dst, LIVE_STATE_MAX, name_of(state));
    if (state == 'S' || state == 'D')
        add_function(dst, pid, thread);
}
