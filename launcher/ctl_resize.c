/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl resize: other limits for a live run. */

#include "launcher/ctl_run.h"
#include "launcher/nnodes.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {CTL_RUN, CTL_USER, CTL_JSON, {0}};

static int parse(const struct ctl_call *call, struct nnodes *nodes,
                 struct ctrun_error *err)
{
    if (nnodes_parse(call->words[0], nodes, err) == 0 && nodes->min >= 1)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE, "resize %s: N or MIN:MAX, 1 <= MIN <= MAX",
                   call->words[0]);
}

static int resize(const struct ctl_call *call, const struct ctl_run *run,
                  const struct nnodes *nodes, struct ctrun_error *err)
{
    const struct ct_ctl_request request = {
        .verb = CT_CTL_RESIZE, .signal = nodes->min, .rank = nodes->max};
    struct ct_buf text;
    int rc;

    ct_buf_init(&text, 4096);
    rc = ctl_run_ask(run, &request, &text, err);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0)
        printf("run %s was asked to be of %d to %d nodes\n", run->status.run_id,
               nodes->min, nodes->max);
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct nnodes nodes;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (parse(call, &nodes, &err) < 0)
        return ctl_fail(&err);
    if (ctl_runs_find_one(&runs, call, &err) < 0 ||
        resize(call, &runs.list[0], &nodes, &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_resize = {
    .name = "resize",
    .words = "N|MIN:MAX",
    .word_min = 1,
    .word_max = 1,
    .help =
        "change how many nodes a live run may have\n"
        "Fewer than run now: the last ones become standbys. More: standbys and nodes "
        "that\n"
        "come are taken in. Either way the workers start anew, which costs no "
        "restart.\n"
        "A minimum counts from the next round on.",
    .options = options,
    .run = run,
};
