/* SPDX-License-Identifier: Apache-2.0 */
/* --role-restarts: decides whether a worker is restarted alone, and prints it. */
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "worker_sdk/base/event.h"

static void emit(const struct ct_failure *failure, const struct ct_role_at *role,
                 uint32_t count, uint32_t limit)
{
    ct_event_emit(
        "worker_restarting", CT_INT("generation", failure->generation),
        CT_INT("rank", failure->rank), CT_INT("local_rank", failure->local_rank),
        CT_INT("worker_pid", failure->pid),
        CT_STR("cause", ct_cause_name(failure->cause)), CT_INT("code", failure->code),
        CT_STR("role", role->name), CT_INT("role_rank", role->rank),
        CT_INT("count", count), CT_INT("limit", limit));
}

bool launch_restarts_alone(void *context, const struct ct_start *start,
                           const struct ct_failure *failure)
{
    struct launch *launch = context;
    const struct config *config = launch->config;
    const int local_rank = failure->local_rank - config->run.task.local_id;
    const uint32_t limit = config_role_restarts(config, local_rank);
    enum role_restarts_answer answer;
    struct role_restarts_request request;
    struct ct_role_at role;
    char what[256];

    config_role_at(&role, config, start, local_rank);
    request = (struct role_restarts_request){
        .failure = failure,
        .limit = limit,
        .role = role.number,
        .local_rank = local_rank,
        .workers = config->run.nproc,
    };
    answer = role_restarts_ask(&launch->role_restarts, &request);
    messages_format_cause(what, sizeof what, failure);
    switch (answer) {
    case ROLE_RESTARTS_GO:
        messages_notice("restarting rank %d (%s%u) alone, %u of %u: %s", failure->rank,
                        role.name, role.rank, launch->role_restarts.used[role.number],
                        limit, what);
        emit(failure, &role, launch->role_restarts.used[role.number], limit);
        return true;
    case ROLE_RESTARTS_USED_UP:
        messages_notice("rank %d (%s%u) %s: --role-restarts=%s=%u is used up in this "
                        "round",
                        failure->rank, role.name, role.rank, what, role.name, limit);
        return false;
    case ROLE_RESTARTS_CRASH_LOOP:
        messages_notice("rank %d (%s%u) %s twice in the same way within %llu s of its "
                        "start: not restarted alone again (--min-uptime)",
                        failure->rank, role.name, role.rank, what,
                        (unsigned long long)config->stop.min_uptime_ms / 1000);
        return false;
    }
    return false;
}
