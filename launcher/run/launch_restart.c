/* SPDX-License-Identifier: Apache-2.0 */
/* --role-restarts: decides whether a worker is restarted alone, and prints it. */
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "worker_sdk/base/event.h"

static void emit(const struct ct_failure *failure, const struct ct_role_at *role,
                 uint32_t count, uint32_t limit)
{
    struct ct_event event;

    ct_event_begin(&event, "worker_restarting");
    ct_event_int(&event, "generation", (int64_t)failure->generation);
    ct_event_int(&event, "rank", failure->rank);
    ct_event_int(&event, "local_rank", failure->local_rank);
    ct_event_int(&event, "worker_pid", failure->pid);
    ct_event_str(&event, "cause", ct_cause_name(failure->cause));
    ct_event_int(&event, "code", failure->code);
    ct_event_str(&event, "role", role->name);
    ct_event_int(&event, "role_rank", role->rank);
    ct_event_int(&event, "count", count);
    ct_event_int(&event, "limit", limit);
    ct_event_end(&event);
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
