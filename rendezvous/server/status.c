/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server/status.h"

#include <cjson/cJSON.h>

#include "rendezvous/session/run.h"
#include "worker_sdk/base/clock.h"

/* cJSON's functions return NULL without memory; then only a part of the text is missing. */
static void add_member(cJSON *list, const struct member *member, bool has_names)
{
    cJSON *item = cJSON_CreateObject();

    if (has_names) {
        cJSON_AddStringToObject(item, "host", member->link.host);
        cJSON_AddStringToObject(item, "address", member->link.seen_as);
    }
    cJSON_AddStringToObject(item, "state", member_state_name(member->state));
    if (member_is_in_world(member))
        cJSON_AddNumberToObject(item, "group_rank", member->start.group_rank);
    if (member->join.slots > 0)
        cJSON_AddNumberToObject(item, "slots", member->join.slots);
    if (member->step >= 0)
        cJSON_AddNumberToObject(item, "step", (double)member->step);
    if (member->is_paused)
        cJSON_AddTrueToObject(item, "is_paused");
    cJSON_AddNumberToObject(item, "silent_ms",
                            (double)(ct_now_ms() - member->received_ms));
    cJSON_AddItemToArray(list, item);
}

static void add_run(cJSON *list, const struct run *run, bool has_names)
{
    const struct round *round = run->round;
    cJSON *item = cJSON_CreateObject();
    cJSON *members;

    if (has_names)
        cJSON_AddStringToObject(item, "run_id", run->id);
    cJSON_AddStringToObject(item, "state", round_state_name(round->state));
    cJSON_AddNumberToObject(item, "generation", (double)round->generation);
    cJSON_AddNumberToObject(item, "restart_count", round->restart_count);
    cJSON_AddNumberToObject(item, "max_restarts", round->settings.max_restarts);
    cJSON_AddNumberToObject(item, "min_nodes", round->settings.min_nodes);
    cJSON_AddNumberToObject(item, "max_nodes", round->settings.max_nodes);
    cJSON_AddNumberToObject(item, "up_ms", (double)(ct_now_ms() - run->born_ms));
    members = cJSON_AddArrayToObject(item, "members");
    member_for_each(member, &round->members)
        add_member(members, member, has_names);
    cJSON_AddItemToArray(list, item);
}

char *status_format(const struct dispatch *dispatch)
{
    /* HTTP clients cannot prove a secret: if agents must, HTTP clients get numbers only. */
    const bool has_names = !admission_has_secret(&dispatch->rules);
    cJSON *root = cJSON_CreateObject();
    cJSON *runs;
    char *text;

    cJSON_AddStringToObject(root, "version", ctrun_version());
    cJSON_AddNumberToObject(root, "connections", (double)dispatch->pool->count);
    runs = cJSON_AddArrayToObject(root, "runs");
    ct_list_for_each(struct run, run, &dispatch->runs.list, node)
        add_run(runs, run, has_names);
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}
