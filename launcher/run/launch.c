/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the agent from a configuration. */
#include <errno.h>
#include <unistd.h>

#include "agent/process/descriptors.h"
#include "agent/loop/limits.h"
#include "agent/loop/signals.h"
#include "agent/output/console.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/watch/file_timer.h"
#include "launcher/run/launch_private.h"
#include "launcher/config/fingerprint.h"
#include "launcher/report/json_torch.h"
#include "launcher/report/exit_status.h"
#include "launcher/report/messages.h"
#include "launcher/run/notice_start.h"
#include "launcher/config/torch_env.h"
#include "launcher/hardware/driver_version.h"
#include "launcher/hardware/own_gpu.h"
#include "launcher/run/plan.h"
#include "launcher/run/preflight.h"
#include "launcher/run/notice_end.h"
#include "launcher/config/host_slot.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

/* ---- What the agent asks ------------------------------------------------------------- */

/* Starts to make the folders on another thread; plan() waits for the folder that it needs. */
static void make_folders(struct launch *launch, uint64_t generation,
                         uint32_t restart_count)
{
    const struct config *config = launch->config;
    const char *tmpdir = ct_env_find(config->env, "TMPDIR");
    const struct logdir_request request = {
        .base = config->output.log_dir,
        .tmpdir = tmpdir && *tmpdir ? tmpdir : NULL,
        .run_id = config->run.run_id,
        .generation = generation,
        .restart_count = restart_count,
        .first = config->run.task.local_id,
        .count = config->run.nproc,
    };

    if (!config->output.has_no_files)
        logdir_blocking_begin(&launch->logdir, &request);
}

/* An output stream of this worker goes to a file. */
static bool has_files(const struct config *config, int local)
{
    return streams_has_file(
               streams_target(&config->output.streams, local, STREAM_STDOUT)) ||
           streams_has_file(
               streams_target(&config->output.streams, local, STREAM_STDERR));
}

/* False: no option asks for files of this worker, so it can run without a folder. */
static bool needs_folder(const struct config *config, int local)
{
    return config->output.log_dir || has_files(config, local);
}

/* A TMPDIR of the login node came with the job. */
static void warn_tmpdir(struct launch *launch)
{
    if (launch->logdir.dir.lacks_tmpdir && !launch->has_noticed_tmpdir &&
        !launch->config->run.task.is_quiet)
        messages_warn(
            0, "TMPDIR=%s does not exist on %s: the files of its workers are in /tmp",
            ct_env_find(launch->config->env, "TMPDIR"), launch->config->run.host);
    launch->has_noticed_tmpdir = true;
}

/* *dir: this round's log directory, with a folder for the worker; NULL: the worker gets no
 * files. */
static int find_folder(struct launch *launch, int local, struct logdir **dir,
                       struct ctrun_error *err)
{
    int rc;

    *dir = NULL;
    if (launch->config->output.has_no_files)
        return 0;
    if ((rc = logdir_blocking_wait(&launch->logdir, local, err)) == 0) {
        *dir = &launch->logdir.dir;
        warn_tmpdir(launch);
        return 0;
    }
    if (needs_folder(launch->config, local))
        return rc;
    if (!launch->has_noticed_no_files)
        messages_warn(0, "workers get no error file: %s", err->text);
    launch->has_noticed_no_files = true;
    return 0;
}

/* Called by the agent on its loop, for each worker of a round. The wait for the folder has a
 * limit well below a lease. */
static int plan(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err)
{
    struct launch *launch = context;
    const struct config *config = launch->config;
    struct logdir *dir;
    int rc;

    if (launch->no_program)
        return ct_fail(err, launch->no_program->code, "%s", launch->no_program->text);
    launch_free_ports(launch);
    make_folders(launch, start->generation, start->restart_count);
    if ((rc = find_folder(launch, config->run.task.local_id + local_rank, &dir, err)) <
            0 ||
        (rc = plan_worker(out, config, dir, start, local_rank, err)) < 0)
        return rc;
    if (dir && !launch->has_noticed_logs &&
        has_files(config, config->run.task.local_id + local_rank)) {
        launch->has_noticed_logs = true;
        notice_logs(start, dir->run);
    }
    return route_set_env(&out->env, &launch->route) < 0
               ? ct_fail(err, -ENOMEM, "worker %d: out of memory", local_rank)
               : 0;
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

/* Takes the program's name without its folders, which may differ from node to node. */
static void fill_job(const struct config *config, struct ct_hello *out)
{
    const char *name = config->work.program.name;
    const char *slash = strrchr(name, '/');
    struct ct_job *job = &out->job[0];

    out->job_count = 1;
    job->is_alone = !config->run.has_size;
    job->wants_launcher = config->rdzv.place_count > 1;
    if (!config->run.has_run_id)
        (void)ct_format(job->program, sizeof job->program, "%.60s",
                        slash && slash[1] ? slash + 1 : name);
    (void)ct_format(job->user, sizeof job->user, "uid %u", (unsigned)getuid());
}

/* What ranks of several nodes share. */
static void fill_versions(const struct config *config, struct ct_join *out)
{
    torch_env_format(out->torch, sizeof out->torch, config->work.program.torch);
    driver_version_find(out->driver, sizeof out->driver);
}

static void fill_options(struct launch *launch, struct agent_options *out)
{
    const struct config *config = launch->config;

    out->hello.pid = getpid();
    out->hello.min_nodes = (uint32_t)config->run.nodes.min;
    out->hello.max_nodes = (uint32_t)config->run.nodes.max;
    out->hello.node_unit = config->run.node_unit;
    out->hello.max_restarts = config->run.max_restarts;
    out->hello.exclude_after = config->stop.exclude_after;
    out->hello.join_timeout_ms = config->rdzv.join_timeout_ms;
    out->hello.last_call_ms = config->rdzv.last_call_ms;
    out->hello.heartbeat_ms = config->rdzv.heartbeat_ms;
    out->hello.lost_after_ms = config->rdzv.lost_after_ms;
    (void)ct_copy(out->hello.run_id, sizeof out->hello.run_id, config->run.run_id);
    (void)ct_copy(out->hello.host, sizeof out->hello.host, config->run.host);

    fill_job(config, &out->hello);
    out->earlier = launch->earlier;

    out->is_alone = config->rdzv.backend == CONFIG_LOCAL;
    if (config->run.batch_system && config->run.node_count > 0) /* a task is an agent */
        out->given_nodes = config->run.task.is_rank ? out->hello.max_nodes
                                                    : (uint32_t)config->run.node_count;
    out->join.slots = (uint32_t)config->run.nproc;
    out->join.fingerprint = fingerprint_of(config);
    if (config->run.nodes.max > 1)
        out->join.program = config_program_hash(config);
    out->join.knows_gloo_scale = config_knows_gloo_scale(config);
    if (config->run.nodes.max > 1)
        fill_versions(config, &out->join);
    out->join.survive_ms = config->rdzv.worker_serves
                               ? 0 /* the survivors would have no store */
                               : config->stop.survive_ms;
    out->join.replaces = config->stop.survive_replace > 0;
    out->join.node_rank_hint = config->run.node_rank;
    out->join.is_endpoint = launch->endpoint.is_mine;
    (void)ct_copy(out->join.role, sizeof out->join.role, config->run.role);
    out->join.roles = config->run.roles;
    addresses_fill_join(&launch->addresses, config, &out->join);
}

static void fill_workers(struct launch *launch, struct worker_options *out)
{
    const struct config *config = launch->config;

    *out = (struct worker_options){
        .pmi_fd = config->rdzv.pmi.is_for_worker ? config->rdzv.pmi.fd : 0,
        .out_filters = (const char *const *)config->output.out_filters,
        .err_filters = (const char *const *)config->output.err_filters,
        .log_max_bytes = config->output.log_max_bytes,
        .log_keep = config->output.log_keep,
        .rate_limit = config->output.rate_limit,
        .uses_pty = config->output.uses_pty,
        .min_uptime_ms = config->stop.min_uptime_ms,
        .redacts = config->output.redacts,
        .local_id = config->run.task.local_id,
        .plan = plan,
        .may_use_gpu = own_gpu_is,
        .context = launch,
    };
}

/* When workers are stopped, looked at and started again. */
static void fill_stop(struct agent_options *options, const struct stop_config *stop)
{
    options->grace_ms = stop->grace_ms;
    options->signal_grace_ms = stop->signal_grace_ms;
    options->survivor_grace_ms = stop->survivor_grace_ms;
    options->survive_ms = stop->survive_ms;
    options->frees_peers = stop->frees_peers;
    options->survive_replace = stop->survive_replace;
    options->end_s = stop->end_s;
    options->stop_before_end_s = stop->stop_before_end_s;
    options->end_grace_ms = stop->end_grace_ms;
    options->end_signal = stop->end_signal;
    options->keeps_signals = stop->keeps_signals;
    options->allows_chaos = stop->allows_chaos;
    options->signals = stop->signals;
    options->signal_count = stop->signal_count;
    options->hang_timeout_ms = stop->hang_timeout_ms;
    options->finds_stragglers = stop->finds_stragglers;
    options->restart_delay.first_ms = stop->delay_ms;
    options->restart_delay.max_ms = stop->delay_max_ms;
    options->restart_delay.settled_ms = stop->min_uptime_ms;
    options->stuck_limit_ms = stop->stuck_limit_ms;
    options->gpu_wait_ms = stop->gpu_wait_ms;
}

/* `options`, and what it points to in `config` and `launch`, is borrowed by the agent until
 * agent_run() returns. */
static int run_agent(struct launch *launch)
{
    static struct agent_result result; /* large, and touched only by failures */
    const struct config *config = launch->config;
    struct agent_options *options = ct_zalloc(sizeof *options);
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    int code, warm;

    if (!options)
        return launch_fail(config, &err);
    *options = (struct agent_options){
        .server = launch->endpoint.addrs,
        .server_count = launch->endpoint.count,
        .token = &config->rdzv.token,
        .uses_munge = config->rdzv.uses_munge,
        .wants_seal = config->rdzv.wants_seal,
        .trusts_nodes = config->rdzv.token.length > 0 || config->rdzv.uses_munge ||
                        config->rdzv.accepts_anybody,
        .tries_ports = config->rdzv.place_count > 1 && !config->rdzv.pmi.is_used,
        .serves_rendezvous = launch->serves_rendezvous && !launch->ha,
        .connect_timeout_ms = config->rdzv.connect_timeout_ms,
        .ranks_prefix = config->output.collapses ? ranks_prefix : NULL,
        .own_ranks_ms = OWN_RANKS_MS,
        .absent_ms = AGENT_ABSENT_MS,
        .early_ms = AGENT_EARLY_MS,
        .timer_file = *config->work.timer_file ? config->work.timer_file : NULL,
        .context = launch,
        .parse_timer = parse_timer,
        .restarts_alone = launch_restarts_alone,
        .reload = launch_on_reload,
        .look_at_gpus = launch_look_at_gpus,
        .wait_for_gpus = launch_wait_for_gpus,
        .on_gpu = launch_on_gpu,
        .signals_are_exact = host_slot_get()->is_given,
    };
    fill_stop(options, &config->stop);
    fill_workers(launch, &options->workers);
    warm = warm_init(&launch->warm, config, &err);
    if (warm > 0)
        options->workers.template = &launch->warm.plan;
    options->sees_start_marks = warm > 0 || config->stop.budget_ms > 0;
    launch_fill_stores(launch, options);
    launch_fill_words(options);
    fill_options(launch, options);
    messages_set_console(console_message);
    if (warm < 0 || agent_run(options, &result, &err) < 0)
        result.error = err;
    code = launch_end(launch, &result);
    warm_deinit(&launch->warm);
    free(options);
    return code;
}

/* Finds the rendezvous, and serves it if this node has to. */
static int meet(struct launch *launch, struct config *config, struct ctrun_error *err)
{
    int rc = launch_prepare_ha(launch, err);

    if (rc == 0 && config->rdzv.pmi.is_used)
        rc = launch_meet_by_pmi(launch, config, err);
    if (rc == 0 && (rc = rdzv_endpoint_resolve(&launch->endpoint, config, err)) == 0)
        rc = launch_host_rendezvous(launch, err);
    return rc < 0 ? rc : launch_start_ha(launch, err);
}

/* The first round of one node is known already, so its folders are made meanwhile. */
static int begin(struct launch *launch, struct config *config, struct ctrun_error *err)
{
    if (config->rdzv.backend == CONFIG_LOCAL) {
        signals_hold();
        make_folders(launch, 1, 0);
    }
    return meet(launch, config, err);
}

/* Raises the limit of descriptors first, because everything opened below needs it. */
int launch_run(struct config *config)
{
    /* Static because they are large, and the called functions need the stack. */
    static struct launch memory;
    static struct messages_block block;
    struct launch *launch = &memory;
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    int code;

    descriptors_raise();
    descriptors_reserve(AGENT_DESCRIPTORS +
                        AGENT_DESCRIPTORS_PER_WORKER * config->run.nproc);
    if (notice_end_check(config, &err) < 0 ||
        preflight_check_loopback(config, &err) < 0)
        return launch_fail(config, &err);
    launch_notice_beginning(config);
    launch->config = config;
    launch->program = &config->work.program;
    if (config->work.no_program.code < 0)
        launch->no_program = &config->work.no_program;
    failure_hints_use(config->stop.rules.list, config->stop.rules.count);
    launch->group_rank = launch->master_port_fd = launch->jax_port_fd = -1;
    launch->born_ms = ct_now_ms();
    if (preflight_check_endpoint(&block, config) < 0) {
        messages_print(&block);
        launch_write_own_error("the endpoint is a loopback address");
        return exit_status(&(struct exit_end){.error = CTRUN_E_LOOPBACK},
                           config->stop.exit_style);
    }
    preflight_warn(config);
    launch_begin_gpu(launch);
    earlier_starts_find(&launch->earlier,
                        &(struct earlier_starts_of){.base = config->output.log_dir,
                                                    .task = config->run.batch_task,
                                                    .run_id = config->run.run_id,
                                                    .requeues = config->run.requeues});
    if (torch_events_init(&launch->torch_events, config) < 0)
        code = launch_fail(config, &err);
    else if (addresses_resolve(&launch->addresses, config, &err) < 0 ||
             begin(launch, config, &err) < 0) {
        launch_explain(launch, &err);
        code = exit_status(&(struct exit_end){.error = err.code},
                           config->stop.exit_style);
    } else
        code = run_agent(launch);
    signals_release();
    /* The server ends after the agent: the last nodes still read their verdict from the server,
     * and must not take this agent's end for the loss of the server. */
    launch_close_server(launch);
    logdir_blocking_close(&launch->logdir);
    torch_events_deinit(&launch->torch_events);
    role_restarts_deinit(&launch->role_restarts);
    past_failures_deinit(&launch->past);
    bills_deinit(&launch->bills);
    launch_deinit_reload(launch);
    launch_end_gpu(launch);
    return code;
}
