/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl stop: save and end, as a preemption would. */
#include "launcher/ctl_run.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {
    {.name = "reason", .value = "TEXT", .help = "told to the workers, and in the log"},
    CTL_RUN,
    CTL_USER,
    CTL_JSON,
    {0}};

static int stop(const struct ctl_call *call, const struct ctl_run *run,
                struct ctrun_error *err)
{
    struct ct_ctl_request request = {.verb = CT_CTL_STOP, .rank = -1};
    const char *reason = ctl_value(call, "reason");
    struct ct_buf text;
    int rc;

    if (ct_copy(request.reason, sizeof request.reason,
                reason ? reason : "ctrunctl stop") < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--reason: at most %zu bytes",
                       sizeof request.reason - 1);
    ct_buf_init(&text, 4096);
    rc = ctl_run_ask(run, &request, &text, err);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0)
        printf("run %s was asked to stop\n", run->status.run_id);
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find_one(&runs, call, &err) < 0 || stop(call, &runs.list[0], &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_stop = {
    .name = "stop",
    .words = "",
    .help =
        "ask this node's workers to save, then end them as SIGTERM to ctrun does\n"
        "Workers of the SDK hear it (ctrun_should_stop) and have the grace time\n"
        "(--shutdown-timeout) to leave by themselves; then, and for others at once, "
        "SIGTERM,\n"
        "the grace time again, SIGKILL. ctrun ends with 143. Returns when ctrun has\n"
        "understood, not when it has ended.",
    .options = options,
    .run = run,
};
