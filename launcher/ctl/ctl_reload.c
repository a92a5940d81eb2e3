/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl reload: another program, or other arguments, from the next round on. */
#include <string.h>

#include "launcher/ctl/ctl_run.h"
#include "launcher/options/shell_words.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {
    {.name = "now", .help = "and begin a new round at once, as `restart` does"},
    CTL_REASON,
    CTL_OF_RUN};

/* Joins the words to one text; refuses what the agents would not accept. */
static int take_command(struct ct_command *out, const char *const *words,
                        struct ctrun_error *err)
{
    struct ct_command plain;

    if (shell_words_join(out->text, sizeof out->text, words) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "reload: the command is longer than %zu bytes",
                       sizeof out->text - 1);
    plain = *out;
    ct_make_plain(plain.text, true);
    return memcmp(&plain, out, sizeof plain) == 0
               ? 0
               : ct_fail(err, CTRUN_E_USAGE,
                         "reload: the command has control characters or is not UTF-8");
}

static int run(const struct ctl_call *call)
{
    struct ct_ctl_request request = {
        .verb = CT_CTL_RELOAD, .rank = -1, .command_count = 1};
    struct ct_ctl_request restart = {.verb = CT_CTL_RESTART, .rank = -1};
    struct ctrun_error err;
    int code;

    if (take_command(&request.command[0], (const char *const *)call->command, &err) <
            0 ||
        ctl_run_take_reason(&restart, call, &err) < 0)
        return ctl_fail(&err);
    code = ctl_run_do(call, &request, "",
                      "takes the new command line from its next round on");
    if (code == CT_EXIT_OK && ctl_value(call, "now"))
        code = ctl_run_do(call, &restart, "", "was asked to start a new round");
    return code;
}

const struct ctl_verb ctl_reload = {
    .name = "reload",
    .words = "PROGRAM ...",
    .word_min = 1,
    .takes_command = true,
    .help =
        "give the workers another program or other arguments, from the next round on\n"
        "Write them as behind the options of ctrun. All nodes are asked first: when "
        "one\n"
        "cannot run it, nothing changes. The next round begins after a failure, after "
        "a\n"
        "change of the nodes, or after `ctrunctl restart`.",
    .options = options,
    .run = run,
};
