/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl drain: a node, or all of them, saves and leaves; asked from any node. */
#include "launcher/ctl_run.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {
    {.name = "all", .help = "every node: the run ends"},
    {.name = "reason", .value = "TEXT", .help = "told to the workers, and in the log"},
    CTL_RUN,
    CTL_USER,
    CTL_JSON,
    {0}};

static const char *host_of(const struct ctl_call *call)
{
    return call->word_count > 0 ? call->words[0] : "";
}

static int parse(const struct ctl_call *call, struct ct_ctl_request *request,
                 struct ctrun_error *err)
{
    const char *reason = ctl_value(call, "reason");

    *request = (struct ct_ctl_request){.verb = CT_CTL_DRAIN, .rank = -1};
    if ((call->word_count > 0) == (ctl_value(call, "all") != NULL))
        return ct_fail(err, CTRUN_E_USAGE, "drain: name one host, or say --all");
    if (ct_format(request->reason, sizeof request->reason, "%s %s", host_of(call),
                  reason ? reason : "ctrunctl drain") < 0)
        return ct_fail(err, CTRUN_E_USAGE, "host and --reason: at most %zu bytes",
                       sizeof request->reason - 2);
    return 0;
}

static int drain(const struct ctl_call *call, const struct ctl_run *run,
                 const struct ct_ctl_request *request, struct ctrun_error *err)
{
    const char *host = host_of(call);
    struct ct_buf text;
    int rc;

    ct_buf_init(&text, 4096);
    rc = ctl_run_ask(run, request, &text, err);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0)
        printf("%s of run %s was asked to save and leave\n",
               *host ? host : "every node", run->status.run_id);
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ct_ctl_request request;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (parse(call, &request, &err) < 0)
        return ctl_fail(&err);
    if (ctl_runs_find_one(&runs, call, &err) < 0 ||
        drain(call, &runs.list[0], &request, &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_drain = {
    .name = "drain",
    .words = "[HOST]",
    .word_max = 1,
    .help =
        "ask a node of the run, or all, to save and leave, as `stop` does on the node "
        "itself\n"
        "HOST is the name that `ctrunctl status` shows there. The others go on "
        "without it, or\n"
        "with a standby in its place, as long as the minimum is there; it costs no "
        "restart.",
    .options = options,
    .run = run,
};
