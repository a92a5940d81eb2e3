/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/leftovers.h"

#include <string.h>

#include "agent/process_name.h"
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
