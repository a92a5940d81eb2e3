/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl signal: a signal to the workers of this node, without any other consequence than
 * what they make of it. */
#include "launcher/ctl_run.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {CTL_RANK, CTL_RUN, CTL_USER, CTL_JSON, {0}};

static int send_signal(const struct ctl_call *call, const struct ctl_run *run,
                       struct ctrun_error *err)
{
    struct ct_ctl_request request = {.verb = CT_CTL_SIGNAL};
    struct ct_buf text;
    int rank;
    int rc;

    request.signal = ctl_parse_signal(call->words[0]);
    if (request.signal < 0)
        return ct_fail(err, CTRUN_E_USAGE, "signal %s: there is no such signal",
                       call->words[0]);
    if ((rc = ctl_number(call, "rank", &rank, err)) < 0)
        return rc;
    request.rank = rank;
    ct_buf_init(&text, 4096);
    rc = ctl_run_ask(run, &request, &text, err);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find_one(&runs, call, &err) < 0 ||
        send_signal(call, &runs.list[0], &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_signal = {
    .name = "signal",
    .words = "SIGNAL",
    .word_min = 1,
    .word_max = 1,
    .help = "send a signal (USR1, SIGUSR1, 10) to the workers of this node\n"
            "To the workers themselves, not to their children. A worker that dies of "
            "it has\n"
            "failed: the run restarts or ends, as after any failure.",
    .options = options,
    .run = run,
};
