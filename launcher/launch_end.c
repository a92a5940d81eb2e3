/* SPDX-License-Identifier: Apache-2.0 */
/* How a launch ends: the block for people, error files, summary.json, the exit code. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "launcher/launch_private.h"
#include "launcher/fingerprint.h"
#include "launcher/json_error_file.h"
#include "launcher/messages.h"
#include "launcher/summary.h"
#include "launcher/summary_json.h"
#include "rendezvous/port_owner.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

int launch_code(const struct config *config, int code)
{
    return code && config->torchrun_exit_code ? CT_EXIT_FAILURE : code;
}

static const char *own_error_file(const struct config *config)
{
    const char *path = ct_env_find(config->env, CT_ENV_ERROR_FILE);

    return path && *path ? path : NULL;
}

void launch_write_own_error(const struct config *config, const char *message)
{
    const char *path = own_error_file(config);
    struct ctrun_error err;

    if (path && json_error_file_write(path, message, &err) < 0)
        messages_error(&err);
}

int launch_fail(const struct config *config, const struct ctrun_error *err)
{
    messages_error(err);
    launch_write_own_error(config, err->text);
    return launch_code(config, messages_exit_code(err->code));
}

/* The server has said what the others have. */
static int fail_unlike(const struct config *config, const struct ctrun_error *err)
{
    char ours[FINGERPRINT_TEXT_MAX];
    struct ctrun_error both;

    fingerprint_format(ours, sizeof ours, config);
    (void)ct_fail(&both, err->code, "%s; this node has %s", err->text, ours);
    return launch_fail(config, &both);
}

int launch_fail_to_meet(struct launch *launch, const struct ctrun_error *err)
{
    struct messages_block block;
    char owner[PORT_OWNER_TEXT_MAX];

    if (err->code == CTRUN_E_FINGERPRINT)
        return fail_unlike(launch->config, err);
    if (launch->config->backend ==
        CONFIG_ETCD) /* its own words: no endpoint is a node's */
        return launch_fail(launch->config, err);
    if (err->code == CTRUN_E_PORT_BUSY) {
        int rc = port_owner_describe(launch->config->endpoint.port, owner);

        hosts_explain_busy(&block, launch->config, rc == 0 ? owner : NULL);
    } else if (err->code == CTRUN_E_UNREACHABLE || err->code == CTRUN_E_DNS ||
               err->code == CTRUN_E_NO_HOST) {
        hosts_explain_unreachable(&block, &launch->hosts, launch->config, err);
    } else if (err->code == CTRUN_E_LEADER_LOST) {
        messages_explain_leader_lost(&block, err);
    } else {
        return launch_fail(launch->config, err);
    }
    messages_print(&block);
    launch_write_own_error(launch->config, err->text);
    return launch_code(launch->config, messages_exit_code(err->code));
}

/* A run that was cut short, but all of whose workers here have saved and ended with 0, may say
 * so by a code of its own: the job wants to be queued again. */
static int requeue_code(const struct launch *launch, const struct agent_result *result,
                        int code)
{
    const struct ct_verdict *verdict = &result->verdict;
    bool is_cut_short = result->signal || result->passed_signal;

    if (launch->config->requeue_exit == 0 || !is_cut_short || result->error.code ||
        verdict->generation == 0 || verdict->failure_count > 0)
        return code;
    if (verdict->outcome != CT_OUTCOME_SUCCEEDED && !result->signal)
        return code;
    messages_say("saved and ended early: exit code %d asks for a requeue",
                 launch->config->requeue_exit);
    return launch->config->requeue_exit;
}

static int end_by_signal(const struct launch *launch, const struct agent_result *result)
{
    const int signal = result->signal;
    const char *name = sigabbrev_np(signal);
    char text[128];

    (void)ct_format(text, sizeof text,
                    "SignalException: Process %d got signal: %d (%s%s)", (int)getpid(),
                    signal, name ? "SIG" : "", name ? name : "?");
    if (result->allocation_ends)
        messages_say("stopped before the allocation ends; all workers are gone");
    else
        messages_say("stopped by %s%s (%d); all workers are gone",
                     name ? "SIG" : "signal ", name ? name : "", signal);
    launch_write_own_error(launch->config, text);
    return launch_code(launch->config, CT_EXIT_SIGNAL + signal);
}

/* The error files of this node's failures: the whole text, not what fits into a
 * message. */
static void read_error_files(const struct launch *launch,
                             const struct ct_verdict *verdict,
                             struct json_error_file *files)
{
    for (int i = 0; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->error_file[0] && strcmp(failure->host, launch->config->host) == 0)
            (void)json_error_file_read(failure->error_file, &files[i]);
    }
}

static void copy_root_error(const struct launch *launch,
                            const struct ct_verdict *verdict)
{
    const struct ct_failure *root = &verdict->failures[0];
    const char *path = own_error_file(launch->config);
    struct ctrun_error err;

    if (!path)
        return;
    if (!verdict->failure_count)
        launch_write_own_error(launch->config,
                               "RendezvousTimeoutError: not all nodes joined");
    else if (root->error_file[0] && strcmp(root->host, launch->config->host) == 0 &&
             json_error_file_copy(root->error_file, path, summary_python_code(root),
                                  &err) < 0)
        messages_error(&err);
}

static struct summary describe_run(const struct launch *launch,
                                   const struct ct_verdict *verdict)
{
    return (struct summary){
        .verdict = verdict,
        .name = launch->config->program.name,
        .run_id = launch->config->run_id,
        .log_dir = logdir_aside_has_files(&launch->logdir) ? launch->logdir.dir.attempt
                                                           : NULL,
        .max_restarts = launch->config->max_restarts,
        .min_nodes = (uint32_t)launch->config->nodes.min,
        .min_uptime_ms = launch->config->min_uptime_ms,
        .waiting = &launch->waiting,
        .waited_ms = launch->waited_ms,
    };
}

/* The verdict is the same everywhere: once a node is enough. Not so what happened here alone. */
static bool is_told_by_another(const struct launch *launch,
                               const struct ct_verdict *verdict)
{
    return launch->config->task.is_quiet &&
           !(verdict->failure_count > 0 &&
             verdict->failures[0].cause == CT_CAUSE_UNKILLABLE);
}

static int end_by_verdict(struct launch *launch, const struct ct_verdict *verdict)
{
    struct json_error_file files[CT_FAILURES_MAX] = {0};
    struct messages_block block;
    struct summary summary = describe_run(launch, verdict);

    summary.files = files;
    if (verdict->outcome == CT_OUTCOME_SUCCEEDED)
        return CT_EXIT_OK;
    read_error_files(launch, verdict, files);
    if (!is_told_by_another(launch, verdict)) {
        summary_format(&block, &summary);
        messages_print(&block);
        launch_say_leftovers(launch);
        summary_torchrun_format(&block, &summary);
        messages_print(&block);
    }
    copy_root_error(launch, verdict);
    for (int i = 0; i < CT_FAILURES_MAX; i++)
        json_error_file_deinit(&files[i]);
    return summary_exit_code(verdict, launch->config->torchrun_exit_code);
}

/* This node's own end: what could not be killed comes first, whatever failed before it. */
static int end_unkillable(struct launch *launch, struct agent_result *result)
{
    struct ct_verdict *verdict = &result->verdict;
    const struct ct_failure first = verdict->failures[0];
    int i = 0;

    while (i < verdict->failure_count &&
           verdict->failures[i].cause != CT_CAUSE_UNKILLABLE)
        i++;
    if (i == verdict->failure_count)
        return launch_fail_to_meet(launch, &result->error); /* none of the workers */
    verdict->failures[0] = verdict->failures[i];
    verdict->failures[i] = first;
    verdict->outcome = CT_OUTCOME_FAILED;
    return end_by_verdict(launch, verdict);
}

/* Where people have asked for files, or there are some: a temporary directory that holds nothing
 * else goes away. What is wrong with it is told, and no failure of the run. */
static void write_summary(struct launch *launch, const struct agent_result *result,
                          int code)
{
    const struct config *config = launch->config;
    const struct summary summary = describe_run(launch, &result->verdict);
    const struct summary_json json = {
        .summary = &summary,
        .host = config->host,
        .exit_code = code,
        .signal = result->signal,
        .allocation_ends = result->allocation_ends,
        .error = &result->error,
        .duration_ms = ct_now_ms() - launch->born_ms,
    };
    const struct logdir_request request = {.base = config->log_dir,
                                           .run_id = config->run_id};
    struct ctrun_error err;
    size_t length;
    char *text;

    if (config->has_no_files || (!config->log_dir && !summary.log_dir))
        return;
    if (!(text = summary_json_format(&json, &length)))
        ct_warn("summary.json: out of memory");
    else if (logdir_aside_write(&launch->logdir, &request, "summary.json", text, length,
                                &err) < 0)
        ct_warn("summary.json: %s", err.text);
}

static void tell_torch_events(struct launch *launch, const struct agent_result *result)
{
    char text[64];
    const char *why = NULL;

    if (result->signal) {
        (void)ct_format(text, sizeof text, "SignalException: signal %d",
                        result->signal);
        why = text;
    } else if (result->error.code) {
        why = result->error.text;
    } else if (result->verdict.outcome == CT_OUTCOME_JOIN_TIMEOUT) {
        why = "RendezvousTimeoutError: not all nodes joined";
    }
    torch_events_over(&launch->torch_events, why);
}

int launch_end(struct launch *launch, struct agent_result *result)
{
    int code;

    tell_torch_events(launch, result);
    if (result->is_mid_line && (result->signal || result->error.code ||
                                result->verdict.outcome != CT_OUTCOME_SUCCEEDED))
        messages_end_line(); /* our first line is for grep: it begins a line */
    if (result->signal)
        code = end_by_signal(launch, result);
    else if (result->error.code == CTRUN_E_UNKILLABLE)
        code = end_unkillable(launch, result);
    else if (result->error.code)
        code = launch_fail_to_meet(launch, &result->error);
    else
        code = end_by_verdict(launch, &result->verdict);
    launch_say_leftovers(launch);
    code = requeue_code(launch, result, code);
    write_summary(launch, result, code);
    return code;
}
