/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl stacks: where the workers of a run are at this moment. */
#include <stdlib.h>

#include "launcher/ctl/ctl_run.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    ANSWER_MAX_BYTES = 16 * 1024 * 1024
};

static const struct ctl_option options[] = {CTL_RUN, CTL_USER, CTL_JSON, {0}};

static int show(const struct ctl_call *call, const struct ctl_run *run, int rank,
                struct ctrun_error *err)
{
    const struct ct_ctl_request request = {.verb = CT_CTL_STACKS, .rank = rank};
    struct ct_buf text;
    char *stacks = NULL;
    int rc;

    ct_buf_init(&text, ANSWER_MAX_BYTES);
    rc = ctl_run_ask(run, &request, &text, err);
    if (rc == 0 && (rc = json_text_read((const char *)ct_buf_data(&text),
                                        ct_buf_length(&text), "stacks", &stacks)) < 0)
        (void)ct_fail(err, rc, "run %s: a broken answer", run->status.run_id);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0)
        fputs(stacks, stdout);
    free(stacks);
    ct_buf_deinit(&text);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;
    uint64_t rank = 0;

    if (call->word_count > 0 && ct_parse_u64(call->words[0], 0, INT32_MAX, &rank) < 0) {
        (void)ct_fail(&err, CTRUN_E_USAGE, "stacks %s: a rank is a number from 0 on",
                      call->words[0]);
        return ctl_fail(&err);
    }
    if (ctl_runs_find_one(&runs, call, &err) < 0 ||
        show(call, &runs.list[0], call->word_count > 0 ? (int)rank : -1, &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_stacks = {
    .name = "stacks",
    .words = "[RANK]",
    .word_max = 1,
    .help = "print where the workers of this node are: the frames of each thread of a "
            "Python\n"
            "CPython 3.9 to 3.13, read from outside: nothing is stopped, installed or "
            "called. The\n"
            "workers run on meanwhile, so frames that change may be of two moments. Of "
            "another\n"
            "program: its state, and what it waits for in the kernel.",
    .options = options,
    .run = run,
};
