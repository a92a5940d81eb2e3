/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/leftovers.h"

#include <string.h>

#include "agent/process/process_name.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

void leftovers_note(struct leftovers *leftovers, pid_t pid)
{
    char name[PROCESS_NAME_MAX];
    const size_t used = strlen(leftovers->text);

    for (int i = 0; i < leftovers->count; i++)
        if (leftovers->pids[i] == pid)
            return;
    if (leftovers->count == LEFTOVERS_COUNTED_MAX)
        return;
    leftovers->pids[leftovers->count++] = pid;
    if (leftovers->count <= LEFTOVERS_NAMED_MAX)
        (void)ct_format(leftovers->text + used, sizeof leftovers->text - used,
                        "%spid %d (%s)", used ? ", " : "", (int)pid,
                        process_name(name, pid));
}

const char *leftovers_text(struct leftovers *leftovers)
{
    const size_t used = strlen(leftovers->text);
    const int more = leftovers->count - LEFTOVERS_NAMED_MAX;

    if (more > 0)
        (void)ct_format(leftovers->text + used, sizeof leftovers->text - used,
                        " and %d more", more);
    return leftovers->text;
}

void leftovers_emit(const struct leftovers *leftovers, uint64_t generation,
                    const char *text)
{
    struct ct_event event;

    ct_event_begin(&event, "leftovers_killed");
    ct_event_int(&event, "generation", (int64_t)generation);
    ct_event_int(&event, "count", leftovers->count);
    ct_event_str(&event, "processes", text);
    ct_event_end(&event);
}
