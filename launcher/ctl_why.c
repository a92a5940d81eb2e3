/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl why: what stopped the workers the last time, while the run goes on. */
#include <errno.h>

#include "launcher/ctl_run.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    ANSWER_MAX_BYTES = 256 * 1024
};

static const struct ctl_option options[] = {CTL_RUN, CTL_USER, CTL_JSON, {0}};

static int show(const struct ctl_call *call, const struct ctl_run *run,
                struct ctrun_error *err)
{
    const struct ct_ctl_request request = {.verb = CT_CTL_WHY, .rank = -1};
    struct ct_buf text;
    char *why = NULL;
    int rc;

    ct_buf_init(&text, ANSWER_MAX_BYTES);
    rc = ctl_run_ask(run, &request, &text, err);
    if (rc == 0 && (rc = json_why_read((const char *)ct_buf_data(&text),
                                       ct_buf_length(&text), &why)) < 0)
        (void)ct_fail(err, rc, "run %s: a broken answer", run->status.run_id);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0 && *why)
        fputs(why, stdout);
    else if (rc == 0)
        printf("run %s: nothing has failed\n", run->status.run_id);
    free(why);
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find_one(&runs, call, &err) < 0 || show(call, &runs.list[0], &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_why = {
    .name = "why",
    .words = "",
    .help = "tell the first cause of the last failure of a run that goes on\n"
            "The block that ctrun prints when such a failure ends the run: the same on "
            "all nodes.",
    .options = options,
    .run = run,
};
