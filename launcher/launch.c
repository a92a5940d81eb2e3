/* SPDX-License-Identifier: Apache-2.0 */
/* From a configuration to an agent. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/descriptors.h"
#include "agent/limits.h"
#include "launcher/launch_private.h"
#include "launcher/describe.h"
#include "launcher/fingerprint.h"
#include "launcher/json_torch.h"
#include "launcher/messages.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"
#include "launcher/say_end.h"
#include "launcher/seat.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* ---- What the agent asks ------------------------------------------------------------- */

/* Beside what follows; plan() waits for what it needs. */
static void make_folders(struct launch *launch, uint64_t generation,
                         uint32_t restart_count)
{
    const struct config *config = launch->config;
    const struct logdir_request request = {
        .base = config->log_dir,
        .tmpdir = ct_env_find(config->env, "TMPDIR"),
        .run_id = config->run_id,
        .generation = generation,
        .restart_count = restart_count,
        .first = config->task.local_id,
        .count = config->nproc,
    };

    if (!config->has_no_files)
        logdir_aside_begin(&launch->logdir, &request);
}

static int plan(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err)
{
    struct launch *launch = context;
    const struct config *config = launch->config;
    int rc;

    make_folders(launch, start->generation, start->restart_count);
    if (!config->has_no_files &&
        (rc = logdir_aside_wait(&launch->logdir, config->task.local_id + local_rank,
                                err)) < 0)
        return rc;
    if ((rc = plan_worker(out, config, &launch->logdir.dir, start, local_rank, err)) <
        0)
        return rc;
    return route_set_env(&out->env, &launch->route) < 0
               ? ct_fail(err, -ENOMEM, "worker %d: out of memory", local_rank)
               : 0;
}

static void describe(void *context, struct ct_failure *failure)
{
    const struct launch *launch = context;

    failure->local_rank += launch->config->task.local_id;
    describe_failure(failure);
}

static char *ranks_prefix(void *context, const char *local_ranks, const char *ranks,
                          bool is_teed)
{
    const struct launch *launch = context;

    return plan_ranks_prefix(launch->config, local_ranks, ranks, is_teed);
}

static int parse_timer(void *context, const char *line, size_t length,
                       struct agent_timer *out)
{
    (void)context;
    return json_torch_timer_read(line, length, out);
}

/* ---- The whole ----------------------------------------------------------------------- */

static void fill_options(struct launch *launch, struct agent_options *out)
{
    const struct config *config = launch->config;

    out->hello.pid = getpid();
    out->hello.min_nodes = (uint32_t)config->nodes.min;
    out->hello.max_nodes = (uint32_t)config->nodes.max;
    out->hello.node_unit = config->node_unit;
    out->hello.max_restarts = config->max_restarts;
    out->hello.join_timeout_ms = config->join_timeout_ms;
    out->hello.last_call_ms = config->last_call_ms;
    out->hello.heartbeat_ms = config->heartbeat_ms;
    out->hello.lost_after_ms = config->lost_after_ms;
    (void)ct_copy(out->hello.run_id, sizeof out->hello.run_id, config->run_id);
    (void)ct_copy(out->hello.host, sizeof out->hello.host, config->host);

    out->is_alone = config->backend == CONFIG_LOCAL;
    out->join.slots = (uint32_t)config->nproc;
    out->join.fingerprint = fingerprint_of(config);
    if (config->nodes.max > 1)
        out->join.program = config_program_hash(config);
    out->join.node_rank_hint = config->node_rank;
    out->join.is_endpoint = launch->hosts.is_mine;
    (void)ct_copy(out->join.role, sizeof out->join.role, config->role);
    out->join.roles = config->roles;
    addresses_fill_join(&launch->addresses, config, &out->join);
}

static int run_agent(struct launch *launch)
{
    static struct agent_result result; /* large, and touched only by failures */
    const struct config *config = launch->config;
    struct agent_options *options = ct_zalloc(sizeof *options);
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    int code;

    if (!options)
        return launch_fail(config, &err);
    *options = (struct agent_options){
        .server = launch->hosts.addrs,
        .server_count = launch->hosts.count,
        .token = &config->token,
        .uses_munge = config->uses_munge,
        .wants_seal = config->wants_seal,
        .hosts_server = launch->hosts_rendezvous,
        .claim = launch->claim,
        .connect_timeout_ms = config->connect_timeout_ms,
        .grace_ms = config->grace_ms,
        .signal_grace_ms = config->signal_grace_ms,
        .end_s = config->end_s,
        .stop_before_end_s = config->stop_before_end_s,
        .end_grace_ms = config->end_grace_ms,
        .end_signal = config->end_signal,
        .keeps_signals = config->keeps_signals,
        .serves_pmi = config->serves_pmi,
        .pmi_fd = config->pmi.is_for_worker ? config->pmi.fd : 0,
        .signals = config->signals,
        .signal_count = config->signal_count,
        .out_filters = (const char *const *)config->out_filters,
        .err_filters = (const char *const *)config->err_filters,
        .ranks_prefix = config->collapses ? ranks_prefix : NULL,
        .log_max_bytes = config->log_max_bytes,
        .log_keep = config->log_keep,
        .rate_limit = config->rate_limit,
        .min_uptime_ms = config->min_uptime_ms,
        .hang_timeout_ms = config->hang_timeout_ms,
        .stuck_limit_ms = config->stuck_limit_ms,
        .timer_file = *config->timer_file ? config->timer_file : NULL,
        .context = launch,
        .plan = plan,
        .describe = describe,
        .parse_timer = parse_timer,
        .restarts_alone = launch_restarts_alone,
        .signals_are_exact = seat_get()->is_given,
    };
    launch_fill_stores(launch, options);
    launch_fill_words(options);
    fill_options(launch, options);
    if (agent_run(options, &result, &err) < 0)
        result.error = err;
    code = launch_end(launch, &result);
    free(options);
    return code;
}

/* Where the rendezvous is; it is served when it is ours. */
static int meet(struct launch *launch, struct config *config, struct ctrun_error *err)
{
    int rc = config->pmi.is_used ? launch_meet_by_pmi(launch, config, err) : 0;

    if (rc != 0)
        return rc;
    rc = hosts_resolve(&launch->hosts, config, err);
    return rc < 0 ? rc : launch_host_rendezvous(launch, err);
}

int launch_run(struct config *config)
{
    struct launch *launch = ct_zalloc(sizeof *launch);
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    struct messages_block block;
    int code;

    if (!launch)
        return launch_fail(config, &err);
    descriptors_reserve(AGENT_DESCRIPTORS +
                        AGENT_DESCRIPTORS_PER_WORKER * config->nproc);
    if (say_end_check(config, &err) < 0) {
        free(launch);
        return launch_fail(config, &err);
    }
    launch_say_beginning(config);
    launch->config = config;
    launch->born_ms = ct_now_ms();
    if (preflight_check_endpoint(&block, config) < 0) {
        messages_print(&block);
        launch_write_own_error(config, "the endpoint is a loopback address");
        free(launch);
        return launch_code(config, CT_EXIT_REFUSED);
    }
    preflight_warn(config);
    if (config->backend == CONFIG_LOCAL) /* the first round is near, and known */
        make_folders(launch, 1, 0);
    if (torch_events_init(&launch->torch_events, config) < 0)
        code = launch_fail(config, &err);
    else if (addresses_resolve(&launch->addresses, config, &err) < 0 ||
             meet(launch, config, &err) < 0)
        code = launch_fail_to_meet(launch, &err);
    else
        code = run_agent(launch);
    launch_close_server(launch);
    logdir_aside_close(&launch->logdir);
    torch_events_deinit(&launch->torch_events);
    role_restarts_deinit(&launch->role_restarts);
    free(launch);
    return code;
}
