/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/say_start.h"

#include "launcher/messages.h"
#include "worker_sdk/base/str.h"

void say_start(const struct config *config, const struct ct_start *start,
               char said[CT_LAYOUT_MAX])
{
    const struct config_task *task = &config->task;
    const char *layout = task->is_rank ? task->layout : start->layout;
    int nodes = task->is_rank ? task->node_count : (int)start->group_world_size;

    if (start->group_rank != 0 || start->group_world_size < 2)
        return;
    if (strcmp(said, layout) != 0)
        messages_say("%d node%s, %s = %u workers", nodes, nodes > 1 ? "s" : "", layout,
                     start->world_size);
    (void)ct_copy(said, CT_LAYOUT_MAX, layout);
    if (*start->unlike)
        messages_say("warning[E_FINGERPRINT]: '%s' on %s is not the file that %s runs; "
                     "different builds of a program seldom understand each other",
                     config->program.name, start->unlike, config->host);
}
