/* SPDX-License-Identifier: Apache-2.0 */
/* How a launch ends: the printed failure report, error files, summary.json, the exit code. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/run/launch_private.h"
#include "launcher/config/fingerprint.h"
#include "agent/error_file/error_file_text.h"
#include "launcher/report/exit_status.h"
#include "agent/error_file/json_error_file.h"
#include "launcher/report/messages.h"
#include "agent/error_file/redact.h"
#include "agent/process/process_name.h"
#include "launcher/config/host_slot.h"
#include "launcher/report/summary.h"
#include "launcher/report/summary_json.h"
#include "rendezvous/net/port_owner.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

enum {
    TIMEOUT_TEXT_MAX = 1024
};

/* The server's text names the settings of the other nodes; adds this node's. */
static void print_unlike(const struct config *config, const struct ctrun_error *err)
{
    char ours[FINGERPRINT_TEXT_MAX];
    struct ctrun_error both;

    fingerprint_format(ours, sizeof ours, config);
    (void)ct_fail(&both, err->code, "%s; this node has %s", err->text, ours);
    launch_print_error(&both);
}

/* Before the rendezvous, so that the table of summary.h has no server to fill it. */
static void explain_absent(struct messages_block *out, const struct launch *launch,
                           const struct ctrun_error *err)
{
    messages_begin(out, err->code, "%s", err->text);
    messages_add(out, "missing", "%s", launch->absent);
    messages_add(
        out, "do",
        "look at the missing nodes; longer: --rdzv-conf join_timeout=1200; if a "
        "task cannot use srun's PMI, give --bootstrap=port to all");
}

void launch_explain(struct launch *launch, const struct ctrun_error *err)
{
    struct messages_block block;
    char owner[PORT_OWNER_TEXT_MAX];

    if (err->code == CTRUN_E_FINGERPRINT) {
        print_unlike(launch->config, err);
        return;
    }
    if (launch->config->rdzv.backend ==
        CONFIG_ETCD) { /* etcd's own error: its endpoint is no node */
        launch_print_error(err);
        return;
    }
    /* Else no port of the range is free, for a store or for an endpoint that the user left out. */
    if (err->code == CTRUN_E_PORT_BUSY && !launch->serves_rendezvous &&
        launch->config->rdzv.endpoint.port > 0) {
        const int port = launch->config->rdzv.endpoint.port;
        const bool is_known = port_owner_describe(port, owner) == 0;

        rdzv_endpoint_explain_busy(&block, &launch->endpoint, launch->config, owner,
                                   is_known && port_owner_may_run(port, "ctrund"));
    } else if (err->code == CTRUN_E_UNREACHABLE || err->code == CTRUN_E_DNS ||
               err->code == CTRUN_E_NO_HOST || err->code == -EXFULL) {
        rdzv_endpoint_explain_unreachable(&block, &launch->endpoint, launch->config,
                                          err);
    } else if (err->code == CTRUN_E_JOIN_TIMEOUT && launch->absent[0]) {
        explain_absent(&block, launch, err);
    } else if (err->code == CTRUN_E_LEADER_LOST && launch->ha) {
        messages_explain_no_ha(&block, err, ha_why_not(launch->ha));
    } else if (err->code == CTRUN_E_LEADER_LOST) {
        messages_explain_leader_lost(&block, err, launch->was_at_ctrund);
    } else {
        launch_print_error(err);
        return;
    }
    messages_print(&block);
    launch_write_own_error(err->text);
}

/* --requeue-exit's code for a run that was cut short, if all workers here have saved and ended with 0, or if a signal came
 * while none was running: the job asks to be queued again. Else `code`. */
static int requeue_code(const struct launch *launch, const struct agent_result *result,
                        int code)
{
    const struct ct_verdict *verdict = &result->verdict;
    bool is_cut_short = result->signal || result->passed_signal;

    if (launch->config->stop.requeue_exit == 0 || !is_cut_short || result->error.code ||
        verdict->failure_count > 0)
        return code;
    if (verdict->outcome != CT_OUTCOME_SUCCEEDED && !result->signal)
        return code;
    messages_notice("no worker of %s has failed: exit code %d asks for a requeue",
                    launch->config->run.host, launch->config->stop.requeue_exit);
    return launch->config->stop.requeue_exit;
}

static void end_by_signal(const struct launch *launch,
                          const struct agent_result *result)
{
    const int signal = result->signal;
    char name[CT_SIGNAL_NAME_MAX];
    const bool is_left = result->error.code == CTRUN_E_UNKILLABLE;
    const char *rest = is_left ? "do not reuse this node" : "all workers are gone";
    char text[128], killed[KILLED_RANKS_TEXT_MAX];

    killed_ranks_format(killed, &launch->killed);
    if (*killed)
        messages_warn(0, "%s", killed);
    (void)ct_format(text, sizeof text,
                    "SignalException: Process %d got signal: %d (%s)", (int)getpid(),
                    signal, ct_signal_format(name, signal));
    if (is_left)
        messages_error(&result->error);
    if (result->allocation_ends)
        messages_notice("stopped before the allocation ends; %s", rest);
    else if (result->reason[0])
        messages_notice("stopped as asked: %s; %s", result->reason, rest);
    else
        messages_notice("stopped by %s (%d); %s", name, signal, rest);
    launch_write_own_error(text);
}

/* Reads the error files of this node's failures: the messages have only the part that fits. */
static void read_error_files(const struct launch *launch,
                             const struct ct_verdict *verdict,
                             struct json_error_file *files)
{
    for (int i = 0; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (!failure->error_file[0] ||
            strcmp(failure->host, launch->config->run.host) != 0)
            continue;
        (void)json_error_file_read(failure->error_file, &files[i]);
        if (launch->config->output.redacts) {
            (void)redact(files[i].message);
            (void)redact(files[i].callstack);
        }
    }
}

/* torchrun's error for nodes that did not join in time. False: the run ended for another reason. */
static bool format_timeout(char *dst, size_t size, const struct ct_verdict *verdict)
{
    const struct ct_failure *root = &verdict->failures[0];
    const bool has_root = verdict->failure_count > 0;

    if (has_root ? root->cause != CT_CAUSE_JOIN_TIMEOUT
                 : verdict->outcome != CT_OUTCOME_JOIN_TIMEOUT)
        return false;
    (void)ct_format(dst, size, "RendezvousTimeoutError: %s",
                    has_root && root->text[0] ? root->text : "not all nodes joined");
    return true;
}

static void copy_root_error(const struct launch *launch,
                            const struct ct_verdict *verdict)
{
    const struct ct_failure *root = &verdict->failures[0];
    const char *path = launch_own_error_file();
    const int code = summary_python_code(root);
    char text[TIMEOUT_TEXT_MAX];
    struct ctrun_error err;

    if (!path)
        return;
    if (format_timeout(text, sizeof text, verdict)) {
        launch_write_own_error(text);
    } else if (!verdict->failure_count) {
        (void)ct_format(text, sizeof text, "run '%s' %s", launch->config->run.run_id,
                        verdict->outcome == CT_OUTCOME_CLOSED ? "is over" : "failed");
        launch_write_own_error(text);
    } else if (root->error_file[0] &&
               strcmp(root->host, launch->config->run.host) == 0 &&
               json_error_file_copy(root->error_file, path,
                                    code ? code : CT_EXIT_FAILURE,
                                    launch->config->output.redacts, &err) < 0) {
        messages_error(&err);
    }
}

/* NULL: the first failure is of no worker of this node. */
static const char *find_binary(const struct launch *launch,
                               const struct ct_verdict *verdict)
{
    const struct config *config = launch->config;
    const struct ct_failure *root = &verdict->failures[0];
    const int local_rank = root->local_rank - config->run.task.local_id;

    return verdict->failure_count > 0 && root->rank >= 0 && local_rank >= 0 &&
                   local_rank < config->run.nproc &&
                   strcmp(root->host, config->run.host) == 0
               ? config_program(config, local_rank)->path
               : NULL;
}

static struct summary describe_run(const struct launch *launch,
                                   const struct ct_verdict *verdict)
{
    return (struct summary){
        .verdict = verdict,
        .name = launch->config->work.program.name,
        .binary = find_binary(launch, verdict),
        .run_id = launch->config->run.run_id,
        .log_dir = launch->logdir.has_files ? launch->logdir.dir.attempt : NULL,
        .is_alone = !launch->config->output.has_table,
        .lists_stopped = launch->config->output.has_whole_table,
        .max_restarts = launch->config->run.max_restarts,
        .min_nodes = (uint32_t)launch->config->run.nodes.min,
        .min_uptime_ms = launch->config->stop.min_uptime_ms,
        .waiting = &launch->waiting,
        .waits_for_all = launch->config->run.task.is_rank,
        .counts_tasks = launch->config->run.expected_tasks != NULL,
        .waited_ms = launch->waited_ms,
        .is_static = launch->config->rdzv.backend == CONFIG_STATIC,
        .past = &launch->past,
    };
}

/* True when this node prints the failure report. All nodes have the same verdict: the node of the
 * failed rank reports, because it has the files. Every node reports a failure that belongs to no
 * rank, and a process that cannot be killed. */
static bool is_reporter(const struct launch *launch, const struct ct_verdict *verdict)
{
    const struct ct_failure *root = &verdict->failures[0];

    if (verdict->failure_count == 0 || root->rank < 0 ||
        root->cause == CT_CAUSE_UNKILLABLE)
        return true;
    return strcmp(root->host, launch->config->run.host) == 0 &&
           (launch->config->run.task.is_rank || root->node_rank == launch->group_rank);
}

static void report(struct launch *launch, const struct summary *summary)
{
    const bool is_own = summary->verdict->failure_count > 0 &&
                        summary->verdict->failures[0].cause == CT_CAUSE_UNKILLABLE;
    struct messages_block block;
    char hint[256];

    if (launch->config->run.task.is_quiet && !is_own)
        return; /* another task of this node reports */
    summary_format(&block, summary);
    if (summary->verdict->outcome == CT_OUTCOME_JOIN_TIMEOUT &&
        rdzv_endpoint_format_loopback_hint(hint, sizeof hint, &launch->endpoint,
                                           launch->config) > 0)
        messages_add(&block, "likely", "%s", hint);
    if (!is_reporter(launch, summary->verdict)) {
        messages_keep_first_line(&block);
        summary_add_timeout(&block, summary->verdict);
        if (!host_slot_get()->is_given) /* with --hosts all nodes share one console */
            messages_print(&block);
        return;
    }
    if (!launch->config->output.has_table) {
        launch_notice_orphans(launch); /* the cause is printed last */
        messages_print(&block);
        return;
    }
    messages_print(&block);
    launch_notice_orphans(launch);
    summary_torchrun_format(&block, summary);
    messages_print(&block);
}

static void end_by_verdict(struct launch *launch, const struct ct_verdict *verdict)
{
    struct json_error_file files[CT_FAILURES_MAX] = {0};
    struct summary summary = describe_run(launch, verdict);

    summary.files = files;
    if (verdict->outcome == CT_OUTCOME_SUCCEEDED) {
        if (launch->group_rank < 0 && !launch->config->run.task.is_quiet)
            messages_notice("the run has succeeded without this node, a spare: it "
                            "started no workers");
        return;
    }
    read_error_files(launch, verdict, files);
    report(launch, &summary);
    copy_root_error(launch, verdict);
    for (int i = 0; i < CT_FAILURES_MAX; i++)
        json_error_file_deinit(&files[i]);
}

/* Puts the process that could not be killed first in this node's report, before earlier
 * failures. */
static void end_unkillable(struct launch *launch, struct agent_result *result)
{
    struct ct_verdict *verdict = &result->verdict;
    const struct ct_failure first = verdict->failures[0];
    int i = 0;

    while (i < verdict->failure_count &&
           verdict->failures[i].cause != CT_CAUSE_UNKILLABLE)
        i++;
    if (i == verdict->failure_count) { /* it was no worker */
        launch_explain(launch, &result->error);
        return;
    }
    verdict->failures[0] = verdict->failures[i];
    verdict->failures[i] = first;
    verdict->outcome = CT_OUTCOME_FAILED;
    end_by_verdict(launch, verdict);
}

/* Writes summary.json if --log-dir is given or the run has left files; else the empty temporary
 * directory was removed. An error here is printed, and does not fail the run. */
static void write_summary(struct launch *launch, const struct agent_result *result,
                          const struct exit_end *end, int code)
{
    const struct config *config = launch->config;
    const struct summary summary = describe_run(launch, &result->verdict);
    char asked[KILLED_RANKS_TEXT_MAX + PROCESS_SENDER_MAX] = "";
    char killed[KILLED_RANKS_TEXT_MAX] = "";
    const struct summary_json json = {
        .summary = &summary,
        .host = config->run.host,
        .exit_code = code,
        .is_workers_code = exit_status_is_workers(end, config->stop.exit_style),
        .signal = result->signal,
        .allocation_ends = result->allocation_ends,
        .asked = asked,
        .error = &result->error,
        .bills = &launch->bills,
        .batch_task = config->run.batch_task,
        .earlier = &launch->earlier,
        .duration_ms = ct_now_ms() - launch->born_ms,
    };
    const struct logdir_request request = {.base = config->output.log_dir,
                                           .run_id = config->run.run_id};
    struct ctrun_error err;
    size_t length;
    char *text;

    if (config->output.has_no_files || (!config->output.log_dir && !summary.log_dir))
        return;
    if (result->signal)
        killed_ranks_format(killed, &launch->killed);
    (void)ct_format(asked, sizeof asked, "%s%s%s",
                    *result->reason ? result->reason : result->sender,
                    (*result->reason || *result->sender) && *killed ? "; " : "",
                    killed);
    if (!(text = summary_json_format(&json, &length)))
        ct_warn("summary.json: out of memory");
    else if (logdir_blocking_write(&launch->logdir, &request, "summary.json", text,
                                   length, &err) < 0)
        ct_warn("summary.json: %s", err.text);
}

static void end_torch_events(struct launch *launch, const struct agent_result *result)
{
    char text[TIMEOUT_TEXT_MAX];
    const char *why = NULL;

    if (result->signal) {
        (void)ct_format(text, sizeof text, "SignalException: signal %d",
                        result->signal);
        why = text;
    } else if (result->error.code) {
        why = result->error.text;
    } else if (format_timeout(text, sizeof text, &result->verdict)) {
        why = text;
    }
    torch_events_over(&launch->torch_events, why);
}

/* Redacts the failures of all nodes: another node may run with --redact=off. */
static void redact_failures(struct ct_verdict *verdict, struct past_failures *past)
{
    for (uint32_t i = 0; i < past->count; i++)
        error_file_text_redact(&past->list[i]->cause);
    for (int i = 0; i < verdict->failure_count && i < CT_FAILURES_MAX; i++)
        error_file_text_redact(&verdict->failures[i]);
}

/* True for a run that has succeeded, and is a failure on this node all the same. */
static bool has_flaw(const struct agent_result *result)
{
    return result->has_lost_checkpoint || result->error.code == CTRUN_E_BUDGET;
}

/* Turns success into CTRUN_E_SPARE: without a run id, the run that has succeeded may be another job of the same program,
 * and this node's job has not run. */
static void check_spare(const struct launch *launch, struct agent_result *result)
{
    if (launch->group_rank >= 0 || launch->config->run.has_run_id || result->signal ||
        result->error.code || result->verdict.outcome != CT_OUTCOME_SUCCEEDED)
        return;
    (void)ct_fail(&result->error, CTRUN_E_SPARE,
                  "the run at this endpoint has succeeded without this node, a spare: "
                  "it started no workers; a job of its own needs its own --rdzv-id; a "
                  "spare needs the run's");
}

int launch_end(struct launch *launch, struct agent_result *result)
{
    struct exit_end end;
    int code;

    if (result->signal)
        messages_hurry();
    launch->was_at_ctrund = result->was_at_ctrund;
    past_failures_end(&launch->past, &result->verdict);
    if (launch->config->output.redacts)
        redact_failures(&result->verdict, &launch->past);
    check_spare(launch, result);
    end_torch_events(launch, result);
    launch_check_budget(launch, result);
    end = (struct exit_end){.signal = result->signal,
                            .error = result->error.code,
                            .verdict = &result->verdict};
    logdir_blocking_tidy(&launch->logdir);
    if (result->signal)
        end_by_signal(launch, result);
    else if (result->error.code == CTRUN_E_UNKILLABLE)
        end_unkillable(launch, result);
    else if (result->error.code)
        launch_explain(launch, &result->error);
    else
        end_by_verdict(launch, &result->verdict);
    if (launch->no_program && !result->signal &&
        exit_status(&end, EXIT_STYLE_OWN) == CT_EXIT_RETRY) { /* it would fail again */
        launch_print_error(launch->no_program);
        result->error = *launch->no_program;
        end.error = result->error.code;
    }
    launch_notice_orphans(launch);
    code = requeue_code(launch, result,
                        exit_status(&end, launch->config->stop.exit_style));
    write_summary(launch, result, &end, code);
    if (!result->signal && (!result->error.code || has_flaw(result)))
        host_slot_send_verdict(has_flaw(result));
    return code;
}
